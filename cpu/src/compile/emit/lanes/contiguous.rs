//! Finds the contiguous accesses of all lanes.
//!
//! An access is contiguous if its only index differing between lanes grows by a word from lane to lane: as proven, or,
//! for loads, where no lane meets a limit of the index ([`clamped`](super::clamped)).

use cranelift_codegen::ir::{self, InstBuilder, condcodes::IntCC, types};

use super::{clamped::First, memory::WORD};
use crate::compile::{
    abi::BoundResource,
    emit::Emitter,
    error::Result,
    ir::{Base, Count, Place, Step},
    passes::{range, uniform::Shape},
};

/// How the lanes of an access find out whether the access is contiguous.
pub(super) enum Contiguous {
    Always,
    /// With the first lane's index, where the index varies as far as is known
    If(ir::Value, Option<ir::Value>),
    Never,
}

impl Emitter<'_> {
    /// Whether neighbouring lanes reach neighbouring words.
    pub(super) fn contiguous(&mut self, place: &Place) -> Result<Contiguous> {
        let mut varying = place
            .steps
            .iter()
            .filter(|step| !self.is_uniform(step.index));
        let (first, second) = (varying.next(), varying.next());
        if let Base::Slot(_) = place.base {
            return Ok(match first {
                None => Contiguous::Always,
                Some(_) => Contiguous::Never,
            });
        }
        let (Some(&step), None) = (first, second) else {
            return Ok(Contiguous::Never);
        };
        let stride = self.stride_within_limits(step.index);
        if stride.and_then(|stride| stride.checked_mul(step.stride)) != Some(WORD) {
            return Ok(Contiguous::Never);
        }
        if let Shape::Linear(_) = self.shape(step.index) {
            let first = self.value(step.index)?;
            return self.whole_in_bounds(&step, first);
        }
        let First { value, holds } = self.first_within_limits(step.index)?;
        let bounds = self.whole_in_bounds(&step, value)?;
        Ok(match (bounds, holds) {
            (Contiguous::If(within, _), Some(holds)) => {
                Contiguous::If(self.b.ins().band(holds, within), Some(value))
            }
            (Contiguous::Always, Some(holds)) => Contiguous::If(holds, Some(value)),
            _ => Contiguous::Never,
        })
    }

    /// Whether the indices of all lanes are in bounds, where indices grow from lane to lane from the first lane's on.
    fn whole_in_bounds(&mut self, step: &Step, first: ir::Value) -> Result<Contiguous> {
        let more = self.lanes.width - 1;
        let last = match step.count {
            Count::Fixed(count) => {
                if range::greatest(self.program, step.index) < count {
                    return Ok(Contiguous::Always);
                }
                let Some(limit) = (count - 1).checked_sub(more) else {
                    return Ok(Contiguous::Never);
                };
                let limit = self.int32(limit);
                let holds = (self.b.ins()).icmp(IntCC::UnsignedLessThanOrEqual, first, limit);
                return Ok(Contiguous::If(holds, None));
            }
            Count::Bound(at) => {
                let entry = self.buffer(at)?;
                let field = std::mem::offset_of!(BoundResource, last);
                self.buffer_field(entry, types::I32, field)
            }
        };
        let more = i64::from(more);
        let enough = (self.b.ins()).icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, last, more);
        let limit = self.b.ins().iadd_imm_s(last, -more);
        let within = (self.b.ins()).icmp(IntCC::UnsignedLessThanOrEqual, first, limit);
        Ok(Contiguous::If(self.b.ins().band(enough, within), None))
    }
}
