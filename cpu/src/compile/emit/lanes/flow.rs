//! Control flow where lanes are parted.
//!
//! *How it works.* The active mask is a variable. Each arm of a branch on a varying condition runs with the lanes that take
//! it, and is skipped when there are none. Lanes that leave a scope or continue a loop apart from others are taken out of
//! the mask, until all come together at its end. A loop goes on while a lane is active. So wherever a statement runs, at
//! least one lane is active: uniform loads and stores need no mask. Where the last lane may have gone, code jumps to the
//! next place where lanes come together (`nobody`).
//!
//! What parts and what joins is known when code is emitted: where no lanes can be missing, there is no mask.

use std::collections::HashSet;

use cranelift_codegen::ir::{self, InstBuilder, condcodes::IntCC, types};
use smallvec::SmallVec;

use super::{PartVariables, Parts};
use crate::compile::{
    emit::{Emitter, Target, leaves},
    error::{Result, internal},
    ir::{Block, Case, Scope, Statement, Value, visit},
};

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

    /// As [`Self::begin_lanes`], where lanes go on behind a barrier.
    pub(in crate::compile::emit) fn resume_lanes(&mut self) {
        if self.lanes.are_many() {
            self.activate(None);
        }
    }

    /// The lanes that take part.
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

    /// Makes the lanes active that were before.
    fn activate(&mut self, before: Before) {
        self.lanes.parted = before.is_some();
        let mask = match before {
            Some(mask) => mask,
            None => self.mask(true),
        };
        self.set_active(&mask);
    }

    /// Whether a lane of a mask is set.
    pub(super) fn any(&mut self, mask: &Parts) -> ir::Value {
        let all = self.folded(mask, |e, a, b| e.b.ins().bor(a, b));
        self.b.ins().vany_true(all)
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

    /// Whether leaving a scope parts the lanes, so that it changes the mask.
    fn exits_apart(&self, scope: Scope) -> bool {
        self.lanes.are_many() && self.lanes.uniformity.exits_apart(scope)
    }

    fn continues_apart(&self, scope: Scope) -> bool {
        self.lanes.are_many() && self.lanes.uniformity.continues_apart(scope)
    }

    /// Whether behind a block lanes may be missing that were there before: those that left a scope around it.
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

    /// Whether lanes may be missing behind blocks that are run by all active lanes or by none.
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

    /// A branch on a condition that varies.
    pub(in crate::compile::emit) fn part_branch(
        &mut self,
        condition: Value,
        accept: &Block,
        reject: &Block,
    ) -> Result<()> {
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

    /// A switch on a value that varies.
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
        let loses = arms.iter().any(|(_, block)| self.loses_lanes(block));
        let left = loses.then(|| self.none_yet());
        for (mask, block) in arms {
            match block.as_slice() {
                [] => {
                    if let Some(left) = &left {
                        self.include(left, mask);
                    }
                }
                [Statement::Exit(scope)] if self.exits_apart(*scope) => {
                    self.wait_at_end(*scope, mask);
                }
                [Statement::Continue(scope)] if self.continues_apart(*scope) => {
                    self.wait_to_continue(*scope, mask)?;
                }
                _ => self.arm_of(mask, block, left.as_ref())?,
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
        let any = self.any(&active);
        let nobody = self.nobody()?;
        let goes_on = self.b.create_block();
        self.b.ins().brif(any, goes_on, &[], nobody, &[]);
        self.b.switch_to_block(goes_on);
        Ok(())
    }

    fn nobody(&self) -> Result<ir::Block> {
        (self.lanes.nobody).ok_or_else(|| internal("lanes that are nowhere"))
    }

    /// Lanes leave a scope. Where nothing else can have happened to those that are missing at its end, nobody counts them.
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

    /// The active lanes leave a scope that others may still run. Returns whether this is such a scope.
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

    /// A scope that lanes leave apart, or in which lanes leave one around it. Returns whether this is one.
    pub(in crate::compile::emit) fn part_scope(
        &mut self,
        scope: Scope,
        body: &Block,
    ) -> Result<bool> {
        let apart = self.exits_apart(scope);
        let loses = self.lanes.are_many() && self.loses(body, &mut SmallVec::from_slice(&[scope]));
        if !apart && !loses {
            return Ok(false);
        }
        let before = self.before();
        let end = self.b.create_block();
        let target = Target {
            end,
            continuing: None,
        };
        self.targets.insert(scope, target);
        if apart && loses {
            let exited = self.none_yet();
            self.lanes.exited.insert(scope, exited);
        }
        let outside = self.lanes.nobody.replace(end);
        self.block(body)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        self.lanes.nobody = outside;
        self.join(scope, before, loses)?;
        Ok(true)
    }

    /// Lanes come together at the end of a scope or loop.
    fn join(&mut self, scope: Scope, before: Before, loses: bool) -> Result<()> {
        let exited = self.lanes.exited.remove(&scope);
        if !loses {
            self.activate(before);
            return Ok(());
        }
        self.lanes.parted = true;
        if let Some(exited) = exited {
            let active = self.lanes.active.clone();
            let exited = self.get_parts(&exited);
            self.include(&active, &exited);
        }
        self.leave_if_nobody()
    }

    /// A loop that lanes leave or continue apart, or in which lanes leave a scope around it. Returns whether this is one.
    pub(in crate::compile::emit) fn part_loop(
        &mut self,
        scope: Scope,
        body: &Block,
        continuing: &Block,
    ) -> Result<bool> {
        let apart = self.exits_apart(scope);
        let waits = self.continues_apart(scope);
        let loses = self.lanes.are_many()
            && [body, continuing]
                .iter()
                .any(|block| self.loses(block, &mut SmallVec::from_slice(&[scope])));
        if !apart && !waits && !loses {
            return Ok(false);
        }
        let before = self.before();
        let active = self.active();
        self.activate(Some(active));
        if apart && loses {
            let exited = self.none_yet();
            self.lanes.exited.insert(scope, exited);
        }
        let start = self.b.create_block();
        let next = self.b.create_block();
        let end = self.b.create_block();
        let target = Target {
            end,
            continuing: Some(next),
        };
        self.targets.insert(scope, target);
        let passes = self.count_passes(scope);
        self.b.ins().jump(start, &[]);
        self.b.switch_to_block(start);
        if waits {
            let continued = self.none_yet();
            self.lanes.continued.insert(scope, continued);
        }
        let outside = self.lanes.nobody.replace(if waits { next } else { end });
        if waits {
            self.body_with_jumps(body, continuing, next)?;
        } else {
            self.block(body)?;
            self.b.ins().jump(next, &[]);
            self.b.switch_to_block(next);
        }
        self.lanes.nobody = Some(end);
        self.lanes.parted = true;
        if let Some(continued) = self.lanes.continued.remove(&scope) {
            let active = self.lanes.active.clone();
            let continued = self.get_parts(&continued);
            self.include(&active, &continued);
            self.leave_if_nobody()?;
        }
        self.block(continuing)?;
        self.poll(scope, passes);
        self.b.ins().jump(start, &[]);
        self.b.switch_to_block(end);
        self.lanes.nobody = outside;
        self.join(scope, before, loses)?;
        Ok(true)
    }

    /// Emits the body of a loop that lanes may leave for `next` anywhere, and begins `next`. What is computed in the body
    /// and used behind it is put into variables: lanes that use it have computed it, but not all ways go by there.
    fn body_with_jumps(&mut self, body: &Block, continuing: &Block, next: ir::Block) -> Result<()> {
        let mut used = HashSet::new();
        visit::statements(continuing, &mut |statement| {
            visit::uses(self.program, statement, |value| _ = used.insert(value));
        });
        let mut carried = Vec::new();
        for statement in body {
            self.statement(statement)?;
            if leaves(statement) {
                break;
            }
            let mut defined = SmallVec::<[Value; 4]>::new();
            visit::definitions(statement, |value| defined.push(value));
            for value in defined.into_iter().filter(|value| used.contains(value)) {
                let held: Parts = match self.lanes.values.get(&value) {
                    Some(parts) => parts.clone(),
                    None => SmallVec::from_slice(&[self.value(value)?]),
                };
                let variables: PartVariables = held
                    .iter()
                    .map(|&part| {
                        let ty = self.b.func.dfg.value_type(part);
                        self.b.declare_var(ty)
                    })
                    .collect();
                self.set_parts(&variables, &held);
                carried.push((value, variables));
            }
        }
        self.b.ins().jump(next, &[]);
        self.b.switch_to_block(next);
        for (value, variables) in carried {
            let held = self.get_parts(&variables);
            if self.lanes.values.contains_key(&value) {
                self.set_vector(value, held);
            } else {
                self.values[value] = held[0].into();
            }
        }
        Ok(())
    }
}
