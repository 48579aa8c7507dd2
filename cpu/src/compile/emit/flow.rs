//! Control flow common to all lanes: branches and jumps. Where lanes part, see [`lanes`](super::lanes).

use std::mem::offset_of;

use cranelift_codegen::ir::{
    self, AbiParam, Block as ClifBlock, InstBuilder, MemFlagsData, Signature, condcodes::IntCC,
    types,
};
use cranelift_frontend::{Switch, Variable as ClifVariable};

use super::{Emitter, Target};
use crate::compile::{
    abi::{Group, PASSES_WAITING, POLL_SHARES, POLL_STOP, POLL_WAITS},
    error::{Result, internal},
    ir::{Block, Case, Scope, Statement, Value},
    passes::trips::Poll,
};

/// Passes of a working loop that may wait, between calls of the runtime.
const PASSES_SHARING: u32 = 256;

impl Emitter<'_> {
    pub(super) fn branch(
        &mut self,
        condition: Value,
        accept: &Block,
        reject: &Block,
    ) -> Result<()> {
        if !self.is_uniform(condition) {
            return self.part_branch(condition, accept, reject);
        }
        let condition = self.value(condition)?;
        let parted = self.are_parted();
        let then = self.b.create_block();
        let otherwise = self.b.create_block();
        let end = self.b.create_block();
        match (leaves_at_end(accept), leaves_at_end(reject)) {
            (false, true) => {
                let not = self.b.ins().icmp_imm_u(IntCC::Equal, condition, 0);
                self.b.ins().brif(not, otherwise, &[], then, &[]);
            }
            _ => {
                self.b.ins().brif(condition, then, &[], otherwise, &[]);
            }
        }
        self.arm(then, accept, end)?;
        self.set_parted(parted);
        self.arm(otherwise, reject, end)?;
        self.b.switch_to_block(end);
        self.note_lost(parted, [accept, reject]);
        Ok(())
    }

    /// Emits a block of its own, ending at `end`.
    fn arm(&mut self, start: ClifBlock, block: &Block, end: ClifBlock) -> Result<()> {
        self.b.switch_to_block(start);
        self.block(block)?;
        self.b.ins().jump(end, &[]);
        Ok(())
    }

    pub(super) fn switch(
        &mut self,
        selector: Value,
        cases: &[Case],
        default: &Block,
    ) -> Result<()> {
        if !self.is_uniform(selector) {
            return self.part_switch(selector, cases, default);
        }
        let selector = self.value(selector)?;
        let parted = self.are_parted();
        let mut switch = Switch::new();
        let otherwise = self.b.create_block();
        let end = self.b.create_block();
        let mut arms = Vec::new();
        for case in cases {
            let arm = self.b.create_block();
            for &value in &case.selectors {
                switch.set_entry(value.into(), arm);
            }
            arms.push(arm);
        }
        switch.emit(&mut self.b, selector, otherwise);
        for (case, arm) in cases.iter().zip(arms) {
            self.set_parted(parted);
            self.arm(arm, &case.body, end)?;
        }
        self.set_parted(parted);
        self.arm(otherwise, default, end)?;
        self.b.switch_to_block(end);
        let bodies = cases.iter().map(|case| &case.body);
        self.note_lost(parted, bodies.chain([default]));
        Ok(())
    }

    pub(super) fn scope(&mut self, scope: Scope, body: &Block) -> Result<()> {
        if self.part_scope(scope, body)? {
            return Ok(());
        }
        let end = self.b.create_block();
        self.targets.insert(
            scope,
            Target {
                end,
                continuing: None,
            },
        );
        self.block(body)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        Ok(())
    }

    pub(super) fn repeat(&mut self, scope: Scope, body: &Block, continuing: &Block) -> Result<()> {
        if self.part_loop(scope, body, continuing)? {
            return Ok(());
        }
        let start = self.b.create_block();
        let next = self.b.create_block();
        let end = self.b.create_block();
        self.targets.insert(
            scope,
            Target {
                end,
                continuing: Some(next),
            },
        );
        let passes = self.count_passes(scope);
        let never = self.never();
        self.b.ins().brif(never, end, &[], start, &[]);
        self.b.switch_to_block(start);
        self.block(body)?;
        self.b.ins().jump(next, &[]);
        self.b.switch_to_block(next);
        self.block(continuing)?;
        self.poll(scope, passes);
        self.b.ins().jump(start, &[]);
        self.b.switch_to_block(end);
        Ok(())
    }

    /// A condition that does not hold, unknown while code is compiled.
    ///
    /// A way around each loop, opened by this condition, keeps statements behind the loop from being dominated by a
    /// block inside. Cranelift moves unchanging values out of a loop during a walk over the tree of dominators, and
    /// stops doing so for good after coming to a block outside the loop. Ways out are the first successors of their
    /// branches for the same reason: the walk goes there last.
    pub(super) fn never(&mut self) -> ir::Value {
        self.b.ins().icmp_imm_u(IntCC::Equal, self.group, 0)
    }

    /// A counter of passes, for a polling loop.
    pub(super) fn count_passes(&mut self, scope: Scope) -> Option<ClifVariable> {
        let begins = match self.polling.get(&scope)? {
            Poll::Waits => self.group_field(types::I32, offset_of!(Group, waited)),
            Poll::Stop | Poll::Shares => self.int32(0),
        };
        let passes = self.b.declare_var(types::I32);
        self.b.def_var(passes, begins);
        Some(passes)
    }

    /// The polling of a loop between passes.
    pub(super) fn poll(&mut self, scope: Scope, passes: Option<ClifVariable>) {
        match (self.polling.get(&scope), passes) {
            (Some(Poll::Waits), Some(passes)) => {
                self.poll_after(passes, PASSES_WAITING, POLL_WAITS)
            }
            (Some(Poll::Shares), Some(passes)) => {
                self.poll_after(passes, PASSES_SHARING, POLL_SHARES)
            }
            (Some(_), _) => self.poll_stop(),
            (None, _) => {}
        }
    }

    pub(super) fn exit(&mut self, scope: Scope) -> Result<()> {
        if self.exit_apart(scope)? {
            return Ok(());
        }
        let target = self.targets.get(&scope);
        let end = target
            .ok_or_else(|| internal("a way out of a scope that is not open"))?
            .end;
        self.b.ins().jump(end, &[]);
        self.dead_block();
        Ok(())
    }

    pub(super) fn go_on(&mut self, scope: Scope) -> Result<()> {
        if self.continue_apart(scope)? {
            return Ok(());
        }
        let target = self.targets.get(&scope);
        let next = target.and_then(|target| target.continuing);
        let next = next.ok_or_else(|| internal("a continue of a loop that is not open"))?;
        self.b.ins().jump(next, &[]);
        self.dead_block();
        Ok(())
    }

    /// Begins an unreachable block: code emitted behind a jump goes there, and away.
    pub(super) fn dead_block(&mut self) {
        let dead = self.b.create_block();
        self.b.switch_to_block(dead);
    }

    /// Looks at the stop word; calls the runtime if the word is set.
    fn poll_stop(&mut self) {
        let stop = self.group_field(types::I64, offset_of!(Group, stop));
        // Somebody else writes the word, so the load is no candidate for anything but itself.
        let word = self
            .b
            .ins()
            .atomic_load(types::I32, MemFlagsData::trusted(), stop);
        let called = self.b.create_block();
        let goes_on = self.b.create_block();
        self.b.set_cold_block(called);
        self.b.ins().brif(word, called, &[], goes_on, &[]);
        self.call_poll(called, goes_on, POLL_STOP);
    }

    /// Counts a pass; calls the runtime after so many.
    fn poll_after(&mut self, passes: ClifVariable, limit: u32, reason: u32) {
        let count = self.b.use_var(passes);
        let count = self.b.ins().iadd_imm_s(count, 1);
        self.b.def_var(passes, count);
        let called = self.b.create_block();
        let goes_on = self.b.create_block();
        self.b.set_cold_block(called);
        let limit = i64::from(limit);
        let reached = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, count, limit);
        self.b.ins().brif(reached, called, &[], goes_on, &[]);
        self.b.switch_to_block(called);
        let zero = self.int32(0);
        self.b.def_var(passes, zero);
        let block = self.b.create_block();
        self.b.ins().jump(block, &[]);
        self.call_poll(block, goes_on, reason);
    }

    /// In `called`, calls the runtime, and returns if told so. Goes on in `goes_on`.
    fn call_poll(&mut self, called: ClifBlock, goes_on: ClifBlock, reason: u32) {
        let returns = self.stopped;
        self.b.switch_to_block(called);
        let function = self.group_field(types::I64, offset_of!(Group, poll));
        let signature = self.poll_signature();
        let reason = self.int32(reason);
        let arguments = [self.group, reason];
        let call = self.b.ins().call_indirect(signature, function, &arguments);
        let result = self.b.inst_results(call)[0];
        let stops = self.b.ins().icmp_imm_u(IntCC::NotEqual, result, 0);
        self.b.ins().brif(stops, returns, &[], goes_on, &[]);
        self.b.switch_to_block(goes_on);
    }

    fn poll_signature(&mut self) -> cranelift_codegen::ir::SigRef {
        if let Some(known) = self.poll_signature {
            return known;
        }
        let mut signature = Signature::new(self.convention);
        signature.params.push(AbiParam::new(types::I64));
        signature.params.push(AbiParam::new(types::I32));
        signature.returns.push(AbiParam::new(types::I32));
        let signature = self.b.import_signature(signature);
        self.poll_signature = Some(signature);
        signature
    }
}

/// Whether a block ends by leaving a scope or a loop.
fn leaves_at_end(block: &Block) -> bool {
    matches!(block.last(), Some(Statement::Exit(_)))
}
