//! Control flow where lanes are parted.
//!
//! *How it works.* The active mask is a variable. Each arm of a branch on a varying condition runs with the lanes
//! taking the arm, and is skipped when there are none. Lanes leaving a scope or continuing a loop apart from others are
//! taken out of the mask, until all come together at the end. A loop goes on while a lane is active. So wherever a
//! statement runs, at least one lane is active: uniform loads and stores need no mask. Where the last lane may have
//! gone, code jumps to the next place for lanes to come together (`nobody`).
//!
//! The places of parting and joining are known when code is emitted: where no lanes can be missing, there is no mask.

pub(in crate::compile::emit) mod certain;
mod loops;

use cranelift_codegen::ir::{self, InstBuilder, condcodes::IntCC, types};
use smallvec::SmallVec;

use super::{PartVariables, Parts};
use crate::compile::{
    emit::{Emitter, leaves},
    error::{Result, internal},
    ir::{Binary, Block, Case, Op, Scope, Statement, Value, visit},
};

/// The most statements on a way out to be written twice for saving a mask.
const MAX_TWICE: usize = 12;

/// The mask from before a construct; `None` if all lanes were active.
type Before = Option<Parts>;

impl Emitter<'_> {
    /// Begins the body of the kernel, or a part of it behind a barrier: all lanes are active. When all have gone, code
    /// goes to `nobody`.
    pub(in crate::compile::emit) fn begin_lanes(&mut self, nobody: ir::Block) {
        if !self.lanes.are_many() {
            return;
        }
        if self.lanes.active.is_empty() {
            self.lanes.active = self.new_parts(types::I32X4);
        }
        self.lanes.nobody = Some(nobody);
        self.activate(None);
    }

    /// Ends the part begun by [`Self::begin_lanes`]: everything behind is done once for all lanes.
    pub(in crate::compile::emit) fn end_lanes(&mut self) {
        self.lanes.nobody = None;
        self.lanes.parted = false;
    }

    /// As [`Self::begin_lanes`], where lanes go on behind a barrier.
    pub(in crate::compile::emit) fn resume_lanes(&mut self) {
        if self.lanes.are_many() {
            self.activate(None);
        }
    }

    /// The lanes taking part.
    pub(super) fn active(&mut self) -> Parts {
        if !self.lanes.parted {
            return self.mask(true);
        }
        let active = self.lanes.active.clone();
        self.get_parts(&active)
    }

    fn set_active(&mut self, mask: &Parts) {
        let active = self.lanes.active.clone();
        self.set_parts(&active, mask);
    }

    fn before(&mut self) -> Before {
        self.lanes.parted.then(|| self.active())
    }

    /// Makes the lanes active again that were active before.
    fn activate(&mut self, before: Before) {
        self.lanes.parted = before.is_some();
        let mask = match before {
            Some(mask) => mask,
            None => self.mask(true),
        };
        self.set_active(&mask);
    }

    /// A value that is zero if no lane of a mask is set. A branch can test a comparison of the value at once.
    fn bits_of_any(&mut self, mask: &Parts) -> ir::Value {
        let any = self.folded(mask, |e, a, b| e.b.ins().bor(a, b));
        match cfg!(target_arch = "x86_64") {
            true => self.b.ins().vhigh_bits(types::I32, any),
            // Elsewhere, collecting bits takes several instructions.
            false => self.b.ins().vany_true(any),
        }
    }

    /// Whether a lane of a mask is set.
    fn any(&mut self, mask: &Parts) -> ir::Value {
        let bits = self.bits_of_any(mask);
        self.b.ins().icmp_imm_u(IntCC::NotEqual, bits, 0)
    }

    /// Whether no lane of a mask is set.
    fn none(&mut self, mask: &Parts) -> ir::Value {
        let bits = self.bits_of_any(mask);
        self.b.ins().icmp_imm_u(IntCC::Equal, bits, 0)
    }

    /// Whether all lanes of a mask are set.
    pub(super) fn all(&mut self, mask: &Parts) -> ir::Value {
        let all = self.folded(mask, |e, a, b| e.b.ins().band(a, b));
        self.b.ins().vall_true(all)
    }

    fn folded(
        &mut self,
        mask: &Parts,
        mut f: impl FnMut(&mut Self, ir::Value, ir::Value) -> ir::Value,
    ) -> ir::Value {
        let mut result = mask[0];
        for &part in &mask[1..] {
            result = f(self, result, part);
        }
        result
    }

    fn none_yet(&mut self) -> PartVariables {
        let variables = self.new_parts(types::I32X4);
        let none = self.mask(false);
        self.set_parts(&variables, &none);
        variables
    }

    /// Adds lanes to a mask.
    fn include(&mut self, variables: &PartVariables, lanes: &Parts) {
        let held = self.get_parts(variables);
        let both = self.each(&[&held, lanes], |e, masks| {
            e.b.ins().bor(masks[0], masks[1])
        });
        self.set_parts(variables, &both);
    }

    fn both(&mut self, a: &Parts, b: &Parts) -> Parts {
        self.each(&[a, b], |e, masks| e.b.ins().band(masks[0], masks[1]))
    }

    fn without(&mut self, a: &Parts, b: &Parts) -> Parts {
        self.each(&[a, b], |e, masks| e.b.ins().band_not(masks[0], masks[1]))
    }

    /// Whether leaving a scope parts the lanes and so changes the mask.
    fn exits_apart(&self, scope: Scope) -> bool {
        self.lanes.are_many() && self.lanes.uniformity.exits_apart(scope)
    }

    fn continues_apart(&self, scope: Scope) -> bool {
        self.lanes.are_many() && self.lanes.uniformity.continues_apart(scope)
    }

    /// Whether lanes present before a block may be missing behind, after leaving a scope around the block.
    pub(in crate::compile::emit) fn loses_lanes(&self, block: &Block) -> bool {
        self.lanes.are_many() && self.loses(block, &mut SmallVec::new())
    }

    fn loses(&self, block: &Block, inner: &mut SmallVec<[Scope; 8]>) -> bool {
        block.iter().any(|statement| {
            let entered = match statement {
                Statement::Exit(scope) => {
                    return self.exits_apart(*scope) && !inner.contains(scope);
                }
                Statement::Continue(scope) => {
                    return self.continues_apart(*scope) && !inner.contains(scope);
                }
                Statement::Loop { scope, .. } | Statement::Scope { scope, .. } => Some(*scope),
                _ => None,
            };
            inner.extend(entered);
            let mut loses = false;
            visit::blocks(statement, |block| loses = loses || self.loses(block, inner));
            if entered.is_some() {
                inner.pop();
            }
            loses
        })
    }

    /// Whether lanes may be missing behind blocks run by all active lanes or by none.
    pub(in crate::compile::emit) fn note_lost<'b>(
        &mut self,
        parted: bool,
        blocks: impl IntoIterator<Item = &'b Block>,
    ) {
        self.lanes.parted = parted || blocks.into_iter().any(|block| self.loses_lanes(block));
    }

    pub(in crate::compile::emit) fn are_parted(&self) -> bool {
        self.lanes.parted
    }

    pub(in crate::compile::emit) fn set_parted(&mut self, parted: bool) {
        self.lanes.parted = parted;
    }

    /// A branch on a varying condition.
    pub(in crate::compile::emit) fn part_branch(
        &mut self,
        condition: Value,
        accept: &Block,
        reject: &Block,
    ) -> Result<()> {
        if self.part_by_halves(condition, accept, reject)?
            || self.part_if_any(condition, accept, reject)?
        {
            return Ok(());
        }
        self.part_by_mask(condition, accept, reject)
    }

    fn part_by_mask(&mut self, condition: Value, accept: &Block, reject: &Block) -> Result<()> {
        let condition = self.vector(condition)?;
        let before = self.before();
        let (accepted, rejected) = match &before {
            Some(active) => (
                self.both(active, &condition),
                self.without(active, &condition),
            ),
            None => {
                let rejected = self.each(&[&condition], |e, mask| e.b.ins().bnot(mask[0]));
                (condition, rejected)
            }
        };
        self.part(before, &[(accepted, accept), (rejected, reject)])
    }

    /// A branch with lanes leaving unless both of two conditions hold (or if either does), where one condition is the
    /// same for all lanes: this condition is tested first, without a mask. Returns whether the branch is of this kind.
    fn part_by_halves(&mut self, condition: Value, accept: &Block, reject: &Block) -> Result<bool> {
        let (a, b, leaving, leaves_if) = match self.program.values[condition].op {
            Op::Binary(Binary::And, a, b) if accept.is_empty() => (a, b, reject, false),
            Op::Binary(Binary::Or, a, b) if reject.is_empty() => (a, b, accept, true),
            _ => return Ok(false),
        };
        let (same, varying) = match (self.is_uniform(a), self.is_uniform(b)) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => return Ok(false),
        };
        // Statements on the way out are written twice.
        if leaving.len() > MAX_TWICE || leaving.is_empty() || !self.goes_or_stays(leaving) {
            return Ok(false);
        }
        let same = self.value(same)?;
        let leaves = match leaves_if {
            true => same,
            false => self.b.ins().icmp_imm_u(IntCC::Equal, same, 0),
        };
        let goes = self.b.create_block();
        let stays = self.b.create_block();
        self.b.ins().brif(leaves, goes, &[], stays, &[]);
        self.b.switch_to_block(goes);
        let parted = self.lanes.parted;
        self.block(leaving)?;
        self.b.ins().jump(stays, &[]);
        self.b.switch_to_block(stays);
        self.lanes.parted = parted;
        self.part_branch(varying, accept, reject)?;
        Ok(true)
    }

    /// A switch on a varying value.
    pub(in crate::compile::emit) fn part_switch(
        &mut self,
        selector: Value,
        cases: &[Case],
        default: &Block,
    ) -> Result<()> {
        let selector = self.vector(selector)?;
        let before = self.before();
        let mut rest = self.active();
        let mut arms = Vec::new();
        for case in cases {
            let mut chosen = self.mask(false);
            for &value in &case.selectors {
                let value = self.word(value);
                let equal = self.each(&[&selector], |e, selector| {
                    e.b.ins().icmp(IntCC::Equal, selector[0], value)
                });
                chosen = self.each(&[&chosen, &equal], |e, masks| {
                    e.b.ins().bor(masks[0], masks[1])
                });
            }
            let chosen = self.both(&rest, &chosen);
            rest = self.without(&rest, &chosen);
            arms.push((chosen, &case.body));
        }
        arms.push((rest, default));
        self.part(before, &arms)
    }

    /// Runs each block with the lanes of its mask.
    fn part(&mut self, before: Before, arms: &[(Parts, &Block)]) -> Result<()> {
        let stays = arms.iter().any(|(_, block)| block.is_empty());
        if stays && arms.iter().all(|(_, block)| self.goes_or_stays(block)) {
            return self.part_for_good(arms);
        }
        let loses = arms.iter().any(|(_, block)| self.loses_lanes(block));
        let left = loses.then(|| self.none_yet());
        for (mask, block) in arms {
            if block.is_empty() {
                if let Some(left) = &left {
                    self.include(left, mask);
                }
            } else if !self.waits_only(mask, block)? {
                self.arm_of(mask, block, left.as_ref())?;
            }
        }
        match left {
            None => self.activate(before),
            Some(left) => {
                let left = self.get_parts(&left);
                self.activate(Some(left));
                self.leave_if_nobody()?;
            }
        }
        Ok(())
    }

    /// Whether a block is empty, or ends where lanes leave apart.
    fn goes_or_stays(&self, block: &Block) -> bool {
        match block.last() {
            None => true,
            Some(Statement::Exit(scope)) => self.exits_apart(*scope),
            Some(Statement::Continue(scope)) => self.continues_apart(*scope),
            _ => false,
        }
    }

    /// Arms that leave, and arms where nothing happens: only lanes in the latter go on. The work of lanes on their way
    /// out is skipped while none goes, and so is the question whether any is left.
    fn part_for_good(&mut self, arms: &[(Parts, &Block)]) -> Result<()> {
        let mut staying: Option<Parts> = None;
        for (mask, _) in arms.iter().filter(|(_, block)| block.is_empty()) {
            staying = Some(match staying {
                None => mask.clone(),
                Some(others) => self.each(&[&others, mask], |e, masks| {
                    e.b.ins().bor(masks[0], masks[1])
                }),
            });
        }
        let staying = staying.ok_or_else(|| internal("lanes that all leave"))?;
        let mut leaving = Vec::new();
        for (mask, block) in arms.iter().filter(|(_, block)| !block.is_empty()) {
            if !self.waits_only(mask, block)? {
                leaving.push((mask, *block));
            }
        }
        if let [(mask, block)] = leaving[..]
            && arms.len() == 2
        {
            let goes = self.b.create_block();
            let end = self.b.create_block();
            self.activate(Some(staying.clone()));
            let any = self.any(mask);
            self.b.ins().brif(any, goes, &[], end, &[]);
            let gone = self.b.create_block();
            self.b.switch_to_block(goes);
            self.go(mask, block, gone)?;
            self.activate(Some(staying));
            self.leave_if_nobody()?;
            self.b.ins().jump(end, &[]);
            self.b.switch_to_block(end);
            return Ok(());
        }
        for (mask, block) in leaving {
            let goes = self.b.create_block();
            let end = self.b.create_block();
            let any = self.any(mask);
            self.b.ins().brif(any, goes, &[], end, &[]);
            self.b.switch_to_block(goes);
            self.go(mask, block, end)?;
        }
        self.activate(Some(staying));
        self.leave_if_nobody()
    }

    /// Lanes run a block and leave by its end. The others go on at `gone`.
    fn go(&mut self, mask: &Parts, block: &Block, gone: ir::Block) -> Result<()> {
        self.activate(Some(mask.clone()));
        let outside = self.lanes.nobody.replace(gone);
        self.block(block)?;
        self.b.ins().jump(gone, &[]);
        self.b.switch_to_block(gone);
        self.lanes.nobody = outside;
        Ok(())
    }

    /// Lets lanes doing nothing but leave wait at their target. Returns whether a block is such a way out.
    fn waits_only(&mut self, mask: &Parts, block: &Block) -> Result<bool> {
        match block.as_slice() {
            [Statement::Exit(scope)] if self.exits_apart(*scope) => {
                self.wait_at_end(*scope, mask);
                Ok(true)
            }
            [Statement::Continue(scope)] if self.continues_apart(*scope) => {
                self.wait_to_continue(*scope, mask)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn arm_of(&mut self, mask: &Parts, block: &Block, left: Option<&PartVariables>) -> Result<()> {
        let start = self.b.create_block();
        let end = self.b.create_block();
        let any = self.any(mask);
        self.b.ins().brif(any, start, &[], end, &[]);
        self.b.switch_to_block(start);
        self.activate(Some(mask.clone()));
        let outside = self.lanes.nobody.replace(end);
        self.block(block)?;
        if let Some(left) = left
            && !block.last().is_some_and(leaves)
        {
            let active = self.active();
            self.include(left, &active);
        }
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        self.lanes.nobody = outside;
        Ok(())
    }

    /// Goes to where lanes come together next, if all have gone.
    fn leave_if_nobody(&mut self) -> Result<()> {
        let active = self.active();
        let none = self.none(&active);
        let nobody = self.nobody()?;
        let goes_on = self.b.create_block();
        self.b.ins().brif(none, nobody, &[], goes_on, &[]);
        self.b.switch_to_block(goes_on);
        Ok(())
    }

    fn nobody(&self) -> Result<ir::Block> {
        (self.lanes.nobody).ok_or_else(|| internal("lanes that are nowhere"))
    }

    /// Lanes leave a scope. Where lanes can be missing at its end for no other reason, nobody counts them.
    fn wait_at_end(&mut self, scope: Scope, lanes: &Parts) {
        if let Some(exited) = self.lanes.exited.get(&scope).cloned() {
            self.include(&exited, lanes);
        }
    }

    fn wait_to_continue(&mut self, scope: Scope, lanes: &Parts) -> Result<()> {
        let continued = self.lanes.continued.get(&scope).cloned();
        let continued = continued.ok_or_else(|| internal("a continue of no open loop"))?;
        self.include(&continued, lanes);
        Ok(())
    }

    /// The active lanes leave a scope that others may still run. Returns whether the scope is of this kind.
    pub(in crate::compile::emit) fn exit_apart(&mut self, scope: Scope) -> Result<bool> {
        if !self.exits_apart(scope) {
            return Ok(false);
        }
        let active = self.active();
        self.wait_at_end(scope, &active);
        self.go_away()?;
        Ok(true)
    }

    /// The active lanes wait for the others of a pass. Returns whether there may be others.
    pub(in crate::compile::emit) fn continue_apart(&mut self, scope: Scope) -> Result<bool> {
        if !self.continues_apart(scope) {
            return Ok(false);
        }
        let active = self.active();
        self.wait_to_continue(scope, &active)?;
        self.go_away()?;
        Ok(true)
    }

    fn go_away(&mut self) -> Result<()> {
        let none = self.mask(false);
        self.set_active(&none);
        let nobody = self.nobody()?;
        self.b.ins().jump(nobody, &[]);
        self.dead_block();
        Ok(())
    }
}
