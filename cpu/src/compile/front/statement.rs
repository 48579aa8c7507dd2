//! Statements and control flow.

use naga::{Handle, Statement as S, TypeInner};
use smallvec::SmallVec;

use super::Front;
use crate::compile::{
    error::{Result, internal, unsupported},
    ir::{Barrier, Block, Case, Statement},
};
use crate::sanitizer::Access;

impl<'a> Front<'a> {
    /// Appends statements, up to a statement leaving the block.
    pub(super) fn statements(&mut self, block: &'a naga::Block) -> Result<()> {
        for (statement, span) in block.span_iter() {
            self.enter_statement(statement, *span);
            self.statement(statement)?;
            self.check_size()?;
            if self.b.is_left() {
                break;
            }
        }
        Ok(())
    }

    fn inner(&mut self, block: &'a naga::Block) -> Result<Block> {
        self.b.open();
        let lowered = self.statements(block);
        let block = self.b.close();
        lowered.map(|()| block)
    }

    fn statement(&mut self, statement: &'a S) -> Result<()> {
        match statement {
            S::Emit(range) => {
                for expression in range.clone() {
                    let node = self.evaluate(expression)?;
                    self.set_node(expression, node)?;
                }
                Ok(())
            }
            S::Block(block) => self.statements(block),
            S::If {
                condition,
                accept,
                reject,
            } => {
                let condition = self.scalar(*condition)?;
                let accept = self.inner(accept)?;
                let reject = self.inner(reject)?;
                self.b.push(Statement::If {
                    condition,
                    accept,
                    reject,
                });
                Ok(())
            }
            S::Switch { selector, cases } => self.switch(*selector, cases),
            S::Loop {
                body,
                continuing,
                break_if,
            } => self.repeat(body, continuing, *break_if),
            S::Break => {
                let scope = self.frame()?.breaks.last().copied();
                let scope = scope.ok_or_else(|| internal("a break outside a loop"))?;
                self.b.push(Statement::Exit(scope));
                Ok(())
            }
            S::Continue => {
                let scope = self.frame()?.continues.last().copied();
                let scope = scope.ok_or_else(|| internal("a continue outside a loop"))?;
                self.b.push(Statement::Continue(scope));
                Ok(())
            }
            S::Return { value } => self.leave(*value),
            S::ControlBarrier(naga::Barrier::SUB_GROUP) => {
                self.subgroup_barrier();
                Ok(())
            }
            S::ControlBarrier(barrier) => {
                self.barrier(*barrier, true);
                Ok(())
            }
            S::MemoryBarrier(barrier) => {
                self.barrier(*barrier, false);
                Ok(())
            }
            S::Store { pointer, value } => {
                let pointer = self.pointer(*pointer)?;
                if let TypeInner::Atomic(_) = *self.layouts.inner(pointer.ty) {
                    let value = self.scalar(*value)?;
                    return self.atomic_store(&pointer, value);
                }
                let node = self.node(*value)?;
                self.check_access(&pointer, Access::Write)?;
                self.store_node(&pointer, node)
            }
            S::Atomic {
                pointer,
                fun,
                value,
                result,
            } => self.atomic(*pointer, fun, *value, *result),
            S::WorkGroupUniformLoad { pointer, result } => {
                self.barrier(naga::Barrier::WORK_GROUP, true);
                let pointer = self.pointer(*pointer)?;
                self.check_access(&pointer, Access::Read)?;
                let node = self.load(&pointer)?;
                self.barrier(naga::Barrier::WORK_GROUP, true);
                self.set_node(*result, node)
            }
            S::Call {
                function,
                arguments,
                result,
            } => self.call(*function, arguments, *result),
            S::ImageStore {
                image,
                coordinate,
                array_index,
                value,
            } => self.image_store(*image, *coordinate, *array_index, *value),
            S::ImageAtomic {
                image,
                coordinate,
                array_index,
                fun,
                value,
            } => self.image_atomic(*image, *coordinate, *array_index, fun, *value),
            S::SubgroupBallot { result, predicate } => self.ballot(*result, *predicate),
            S::SubgroupGather {
                mode,
                argument,
                result,
            } => self.gather(mode, *argument, *result),
            S::SubgroupCollectiveOperation {
                op,
                collective_op,
                argument,
                result,
            } => self.collect(*op, *collective_op, *argument, *result),
            other => Err(unsupported(describe(other))),
        }
    }

    fn barrier(&mut self, barrier: naga::Barrier, waits: bool) {
        if waits {
            self.check_barrier(barrier);
        }
        self.b.push(Statement::Barrier(Barrier {
            waits,
            storage: barrier.intersects(naga::Barrier::STORAGE | naga::Barrier::TEXTURE),
            number: 0,
        }));
    }

    fn switch(
        &mut self,
        selector: Handle<naga::Expression>,
        cases: &'a [naga::SwitchCase],
    ) -> Result<()> {
        let selector = self.scalar(selector)?;
        let scope = self.b.scope();
        self.frame_mut()?.breaks.push(scope);
        let lowered = self.cases(cases);
        self.frame_mut()?.breaks.pop();
        let (cases, default) = lowered?;
        let switch = Statement::Switch {
            selector,
            cases,
            default,
        };
        self.b.push(Statement::Scope {
            scope,
            body: vec![switch],
        });
        Ok(())
    }

    /// Bodies by selector, and the body of `default`. A case that falls through runs the bodies behind, too, as far as
    /// the fall goes: one body per entry, without repetition for WGSL (where only empty cases fall through).
    fn cases(&mut self, cases: &'a [naga::SwitchCase]) -> Result<(Vec<Case>, Block)> {
        let mut lowered: Vec<Case> = Vec::new();
        let mut default = Block::new();
        let mut selectors = SmallVec::<[u32; 2]>::new();
        let mut is_default = false;
        for (index, case) in cases.iter().enumerate() {
            match case.value {
                naga::SwitchValue::I32(value) => selectors.push(value as u32),
                naga::SwitchValue::U32(value) => selectors.push(value),
                naga::SwitchValue::Default => is_default = true,
            }
            if case.fall_through && case.body.is_empty() {
                continue;
            }
            self.b.open();
            let mut result = Ok(());
            for case in &cases[index..] {
                result = result.and_then(|()| self.statements(&case.body));
                if !case.fall_through || self.b.is_left() {
                    break;
                }
            }
            let body = self.b.close();
            result?;
            let selectors = std::mem::take(&mut selectors);
            // Selectors of the body of `default` need no case of their own.
            if std::mem::take(&mut is_default) {
                default = body;
            } else {
                lowered.push(Case { selectors, body });
            }
        }
        Ok((lowered, default))
    }

    fn repeat(
        &mut self,
        body: &'a naga::Block,
        continuing: &'a naga::Block,
        break_if: Option<Handle<naga::Expression>>,
    ) -> Result<()> {
        let scope = self.b.scope();
        let frame = self.frame_mut()?;
        frame.breaks.push(scope);
        frame.continues.push(scope);
        let body = self.inner(body);
        self.b.open();
        let lowered = self.continuing(continuing, break_if, scope);
        let continuing = self.b.close();
        let frame = self.frame_mut()?;
        frame.breaks.pop();
        frame.continues.pop();
        lowered?;
        self.b.push(Statement::Loop {
            scope,
            starts: SmallVec::new(),
            body: body?,
            continuing,
        });
        Ok(())
    }

    fn continuing(
        &mut self,
        continuing: &'a naga::Block,
        break_if: Option<Handle<naga::Expression>>,
        scope: crate::compile::ir::Scope,
    ) -> Result<()> {
        self.statements(continuing)?;
        if let Some(condition) = break_if {
            let condition = self.scalar(condition)?;
            self.b.push(Statement::If {
                condition,
                accept: vec![Statement::Exit(scope)],
                reject: Block::new(),
            });
        }
        Ok(())
    }
}

/// The name of a statement, for errors.
fn describe(statement: &S) -> &'static str {
    match statement {
        S::Kill => "discard",
        S::RayQuery { .. } | S::RayPipelineFunction(_) => "ray tracing",
        S::CooperativeStore { .. } => "a cooperative matrix",
        _ => "a statement",
    }
}
