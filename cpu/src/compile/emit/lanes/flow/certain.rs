//! Branches where the first lane can tell for all lanes that none takes the branch: `if (i < half)` is skipped by most
//! vectors of lanes, and a single comparison costs less than a comparison of all lanes.

use cranelift_codegen::ir::{self, InstBuilder, condcodes::IntCC};

use crate::compile::{
    emit::Emitter,
    error::Result,
    ir::{Block, Comparison, Op, Value},
    passes::{range, uniform::Shape},
};

/// Integers below this bound grow from lane to lane without going round, if their stride is below, too.
const SMALL: u32 = 1 << 31;

impl Emitter<'_> {
    /// A branch on a varying condition, behind a test of the first lane. Returns whether there is such a test.
    pub(super) fn part_if_any(
        &mut self,
        condition: Value,
        accept: &Block,
        reject: &Block,
    ) -> Result<bool> {
        if !reject.is_empty() || self.loses_lanes(accept) {
            return Ok(false);
        }
        let Some(none) = self.certainly_none(condition)? else {
            return Ok(false);
        };
        let some = self.b.create_block();
        let end = self.b.create_block();
        self.b.ins().brif(none, end, &[], some, &[]);
        self.b.switch_to_block(some);
        let parted = self.lanes.parted;
        self.part_by_mask(condition, accept, reject)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        self.lanes.parted = parted;
        Ok(true)
    }

    /// Whether a condition holds in no lane, if the first lane can tell. Where the answer is no, the condition may hold.
    fn certainly_none(&mut self, condition: Value) -> Result<Option<ir::Value>> {
        let Op::Compare(op, a, b) = self.program.values[condition].op else {
            return Ok(None);
        };
        let shapes = (self.shape(a), self.shape(b));
        let beyond = match (op, shapes) {
            (Comparison::Eq, (Shape::Linear(1), Shape::Uniform)) => {
                return self.none_equals(a, b).map(Some);
            }
            (Comparison::Eq, (Shape::Uniform, Shape::Linear(1))) => {
                return self.none_equals(b, a).map(Some);
            }
            (_, (Shape::Linear(stride), Shape::Uniform))
                if stride < SMALL && range::greatest(self.program, a) < SMALL =>
            {
                match op {
                    Comparison::LtU => IntCC::UnsignedGreaterThanOrEqual,
                    Comparison::LeU => IntCC::UnsignedGreaterThan,
                    Comparison::LtS => IntCC::SignedGreaterThanOrEqual,
                    Comparison::LeS => IntCC::SignedGreaterThan,
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let (first, bound) = (self.value(a)?, self.value(b)?);
        Ok(Some(self.b.ins().icmp(beyond, first, bound)))
    }

    /// Whether a value is none of the values growing by one from lane to lane.
    fn none_equals(&mut self, linear: Value, same: Value) -> Result<ir::Value> {
        let (first, same) = (self.value(linear)?, self.value(same)?);
        let distance = self.b.ins().isub(same, first);
        let last = i64::from(self.lanes.width - 1);
        Ok((self.b.ins()).icmp_imm_u(IntCC::UnsignedGreaterThan, distance, last))
    }
}
