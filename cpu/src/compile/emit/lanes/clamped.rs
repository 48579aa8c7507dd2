//! Indices that grow from lane to lane but at an edge: `min(x + 1, width - 1)` in the pixels of a picture.
//!
//! *How it works.* Such an index varies, as far as a proof goes, and the lanes would be loaded one after the other.
//! Where the index is made of linear values and of limits common to all lanes, code asks whether this time no lane
//! meets a limit: then the access is contiguous. The first and the last lane say so for all, and registers of one lane
//! are enough for them: what all lanes hold is computed on the way of the others only.

use cranelift_codegen::ir::{self, InstBuilder, condcodes::IntCC};

use crate::compile::{
    emit::Emitter,
    error::Result,
    ir::{Binary, Conversion, Op, Type, Value},
    passes::uniform::Shape,
};

/// The most operations followed from an index to its linear parts; compiling takes at most so long for an index.
const MOST: u32 = 8;

/// The first lane's value where no lane meets a limit.
pub(super) struct First {
    pub(super) value: ir::Value,
    /// Whether no lane meets a limit, unless the answer is known
    pub(super) holds: Option<ir::Value>,
}

impl Emitter<'_> {
    /// The growth of an index from lane to lane where no lane meets a limit; `None` if unknown.
    pub(super) fn stride_within_limits(&self, index: Value) -> Option<u32> {
        self.stride_within(index, MOST)
    }

    fn stride_within(&self, value: Value, most: u32) -> Option<u32> {
        match self.shape(value) {
            Shape::Uniform => return Some(0),
            Shape::Linear(stride) => return Some(stride),
            Shape::Varying => {}
        }
        let most = most.checked_sub(1)?;
        let def = self.program.values[value];
        if def.ty != Type::I32 {
            return None;
        }
        let stride = |value| self.stride_within(value, most);
        match def.op {
            Op::Binary(op, a, b) if is_limit(op) => match (stride(a)?, stride(b)?) {
                // The last lane is the greatest then, unless there is an overflow.
                (0, grows) | (grows, 0) if self.reach(grows).is_some() => Some(grows),
                _ => None,
            },
            Op::Binary(Binary::Add, a, b) => Some(stride(a)?.wrapping_add(stride(b)?)),
            Op::Binary(Binary::Sub, a, b) => Some(stride(a)?.wrapping_sub(stride(b)?)),
            Op::Convert(Conversion::Bits, a) if self.program.ty(a) == Type::I32 => stride(a),
            _ => None,
        }
    }

    /// How much greater the last lane is, if the difference is a positive number.
    fn reach(&self, stride: u32) -> Option<i64> {
        let reach = i64::from(stride) * i64::from(self.lanes.width - 1);
        i32::try_from(reach).is_ok().then_some(reach)
    }

    /// The first lane's value of an index with a [stride](Self::stride_within_limits).
    pub(super) fn first_within_limits(&mut self, value: Value) -> Result<First> {
        let (op, a, b) = match self.program.values[value].op {
            _ if self.shape(value) != Shape::Varying => {
                let value = self.value(value)?;
                return Ok(First { value, holds: None });
            }
            Op::Convert(_, a) => return self.first_within_limits(a),
            Op::Binary(op, a, b) => (op, a, b),
            // Has no stride.
            _ => return Err(super::internal(format!("{value} has no first lane"))),
        };
        if is_limit(op) {
            let stride = self.stride_within_limits(a).unwrap_or(0);
            return match stride {
                0 => self.first_within_limit(op, b, a),
                _ => self.first_within_limit(op, a, b),
            };
        }
        let (a, b) = (self.first_within_limits(a)?, self.first_within_limits(b)?);
        Ok(First {
            value: match op {
                Binary::Sub => self.b.ins().isub(a.value, b.value),
                _ => self.b.ins().iadd(a.value, b.value),
            },
            holds: self.also(a.holds, b.holds),
        })
    }

    fn first_within_limit(&mut self, op: Binary, grows: Value, limit: Value) -> Result<First> {
        let reach = (self.stride_within_limits(grows)).and_then(|stride| self.reach(stride));
        let (grows, limit) = (
            self.first_within_limits(grows)?,
            self.first_within_limits(limit)?,
        );
        let (first, limited) = (grows.value, limit.value);
        let last = self.b.ins().iadd_imm_s(first, reach.unwrap_or(0));
        let (at_most, low, high) = match op {
            Binary::MinS => (IntCC::SignedLessThanOrEqual, last, limited),
            Binary::MaxS => (IntCC::SignedLessThanOrEqual, limited, first),
            Binary::MinU => (IntCC::UnsignedLessThanOrEqual, last, limited),
            _ => (IntCC::UnsignedLessThanOrEqual, limited, first),
        };
        let within = self.b.ins().icmp(at_most, low, high);
        let grow = self.b.ins().icmp(at_most, first, last);
        let within = self.b.ins().band(within, grow);
        let earlier = self.also(grows.holds, limit.holds);
        Ok(First {
            value: first,
            holds: self.also(earlier, Some(within)),
        })
    }

    fn also(&mut self, a: Option<ir::Value>, b: Option<ir::Value>) -> Option<ir::Value> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.b.ins().band(a, b)),
            (one, other) => one.or(other),
        }
    }
}

fn is_limit(op: Binary) -> bool {
    matches!(
        op,
        Binary::MinS | Binary::MinU | Binary::MaxS | Binary::MaxU
    )
}
