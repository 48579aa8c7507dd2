//! Branches where the first lane can tell for all lanes that none takes the branch, and the last lane that all do:
//! `if (i < half)` is skipped by most vectors of lanes and taken by most others as a whole, and a single comparison costs
//! less than a comparison of all lanes, and than masks of loads and stores.

use cranelift_codegen::ir::{self, InstBuilder, condcodes::IntCC};

use crate::compile::{
    emit::Emitter,
    error::Result,
    ir::{Access, Block, Comparison, Op, Program, Statement, Value},
    passes::{range, uniform::Shape},
};

/// Integers below this bound grow from lane to lane without going round, if their stride is below, too.
const SMALL: u32 = 1 << 31;

/// Whether an integer of such a shape grows from one invocation to the next without going round.
pub(in crate::compile::emit) fn grows(program: &Program, shape: Shape, value: Value) -> bool {
    let is_linear = matches!(shape, Shape::Linear(stride) if stride < SMALL);
    is_linear && range::greatest(program, value) < SMALL
}

/// The most statements to be written once for all lanes, and once more for some.
const MAX_WHOLE: usize = 24;

/// Whether statements are worth writing for all lanes, too: few of them, with memory among them.
fn is_worth_writing_twice(block: &Block) -> bool {
    let is_memory = |statement: &Statement| match statement {
        Statement::Load { access, .. } => *access == Access::Plain,
        Statement::Store { access, .. } => *access == Access::Plain,
        _ => false,
    };
    block.len() <= MAX_WHOLE
        && block.iter().any(is_memory)
        && block.iter().all(|statement| {
            is_memory(statement) || matches!(statement, Statement::Let(_) | Statement::Set(..))
        })
}

impl Emitter<'_> {
    /// A branch on a varying condition, behind tests of the first lane and of the last. Returns whether there is such a test.
    pub(super) fn part_if_any(
        &mut self,
        condition: Value,
        accept: &Block,
        reject: &Block,
    ) -> Result<bool> {
        if !reject.is_empty() || self.loses_lanes(accept) {
            return Ok(false);
        }
        let none = self.certainly_none(condition)?;
        let all = match self.lanes.parted || !is_worth_writing_twice(accept) {
            true => None,
            false => self.certainly_all(condition)?,
        };
        if none.is_none() && all.is_none() {
            return Ok(false);
        }
        let end = self.b.create_block();
        let parted = self.lanes.parted;
        if let Some(none) = none {
            let some = self.b.create_block();
            self.b.ins().brif(none, end, &[], some, &[]);
            self.b.switch_to_block(some);
        }
        if let Some(all) = all {
            let whole = self.b.create_block();
            let part = self.b.create_block();
            self.b.ins().brif(all, whole, &[], part, &[]);
            self.b.switch_to_block(whole);
            self.block(accept)?;
            self.b.ins().jump(end, &[]);
            self.b.switch_to_block(part);
            self.lanes.parted = parted;
        }
        self.part_by_mask(condition, accept, reject)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        self.lanes.parted = parted;
        Ok(true)
    }

    /// Whether a condition holds in no lane, if the first lane can tell. Where the answer is no, the condition may hold.
    pub(in crate::compile::emit) fn certainly_none(
        &mut self,
        condition: Value,
    ) -> Result<Option<ir::Value>> {
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
            (_, (shape, Shape::Uniform)) if grows(self.program, shape, a) => match op {
                Comparison::LtU => IntCC::UnsignedGreaterThanOrEqual,
                Comparison::LeU => IntCC::UnsignedGreaterThan,
                Comparison::LtS => IntCC::SignedGreaterThanOrEqual,
                Comparison::LeS => IntCC::SignedGreaterThan,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let (first, bound) = (self.value(a)?, self.value(b)?);
        Ok(Some(self.b.ins().icmp(beyond, first, bound)))
    }

    /// Whether a condition holds in all lanes, if the last lane can tell. Where the answer is no, the condition may hold.
    fn certainly_all(&mut self, condition: Value) -> Result<Option<ir::Value>> {
        let Op::Compare(op, a, b) = self.program.values[condition].op else {
            return Ok(None);
        };
        let (within, grown) = match op {
            Comparison::LtU => (IntCC::UnsignedLessThan, IntCC::UnsignedGreaterThanOrEqual),
            Comparison::LeU => (
                IntCC::UnsignedLessThanOrEqual,
                IntCC::UnsignedGreaterThanOrEqual,
            ),
            Comparison::LtS => (IntCC::SignedLessThan, IntCC::SignedGreaterThanOrEqual),
            Comparison::LeS => (
                IntCC::SignedLessThanOrEqual,
                IntCC::SignedGreaterThanOrEqual,
            ),
            _ => return Ok(None),
        };
        let reach = match (self.shape(a), self.shape(b)) {
            (Shape::Linear(stride), Shape::Uniform) => stride.checked_mul(self.lanes.width - 1),
            _ => None,
        };
        let Some(reach) = reach.filter(|&reach| reach < SMALL) else {
            return Ok(None);
        };
        let (first, bound) = (self.value(a)?, self.value(b)?);
        let last = self.b.ins().iadd_imm_s(first, i64::from(reach));
        let is_within = self.b.ins().icmp(within, last, bound);
        if range::greatest(self.program, a) < SMALL {
            return Ok(Some(is_within));
        }
        // A value that goes round between the lanes is less in the last.
        let is_grown = self.b.ins().icmp(grown, last, first);
        Ok(Some(self.b.ins().band(is_within, is_grown)))
    }

    /// Whether a value is none of the values growing by one from lane to lane.
    fn none_equals(&mut self, linear: Value, same: Value) -> Result<ir::Value> {
        let (first, same) = (self.value(linear)?, self.value(same)?);
        let distance = self.b.ins().isub(same, first);
        let last = i64::from(self.lanes.width - 1);
        Ok((self.b.ins()).icmp_imm_u(IntCC::UnsignedGreaterThan, distance, last))
    }
}
