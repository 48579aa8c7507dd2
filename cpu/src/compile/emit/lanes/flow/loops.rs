//! Scopes and loops with lanes leaving or continuing apart.

use std::collections::HashSet;

use cranelift_codegen::ir::{self, InstBuilder};
use smallvec::SmallVec;

use super::{Before, PartVariables, Parts};
use crate::compile::{
    emit::{Emitter, Target, leaves},
    error::Result,
    ir::{Block, Scope, Value, visit},
};

impl Emitter<'_> {
    /// A scope with lanes leaving apart, or leaving a scope around. Returns whether the scope is of this kind.
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

    /// A loop with lanes leaving or continuing apart, or leaving a scope around. Returns whether the loop is of this kind.
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
        let never = self.never();
        self.b.ins().brif(never, end, &[], start, &[]);
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

    /// Emits the body of a loop that lanes may leave for `next` anywhere, and begins `next`. Values computed in the
    /// body and used behind are put into variables: lanes using a value have computed it, but not all ways go by there.
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
