//! Rewrites statements: statements with blocks inside are taken apart, stores and atomics of the heap become operations
//! on its binding, and others are copied with their rewritten operands.

use std::collections::HashMap;

use naga::{Block, Expression, Handle, Span, Statement, SwitchCase};

use super::options::PointerError;
use super::place::Place;
use super::rewrite::{Mapped, Outcomes, Rewriter};
use super::visit::used_by;
use crate::kernel::passes::code::Emitter;

impl<'a> Rewriter<'a> {
    pub(super) fn block(&mut self, block: &'a Block) -> Outcomes<Block> {
        // The closure borrows all of the rewriter, and the builder is a part of it: the block is opened and
        // closed by hand.
        let opened = self.builder.open();
        let mut result = Ok(());
        let around = self.rest;
        for ((statement, span), at) in block.span_iter().zip(0..) {
            self.builder.code.span = *span;
            self.rest = block.get(at..).unwrap_or_default();
            result = self.statement(statement, *span);
            if result.is_err() {
                break;
            }
        }
        self.rest = around;
        let made = self.builder.close(opened);
        result.map(|()| made)
    }

    fn statement(&mut self, statement: &'a Statement, span: Span) -> Outcomes<()> {
        // In a loop also what comes later comes first.
        let changes = self.may_change(statement);
        if changes {
            self.builder.forget();
        }
        self.rewritten(statement, span)?;
        if changes {
            self.builder.forget();
        }
        Ok(())
    }

    fn rewritten(&mut self, statement: &'a Statement, span: Span) -> Outcomes<()> {
        match statement {
            Statement::Emit(range) => {
                for handle in range.clone() {
                    self.builder.code.span = self.span_of(handle);
                    self.expression(handle)?;
                }
                Ok(())
            }
            Statement::Block(_)
            | Statement::If { .. }
            | Statement::Switch { .. }
            | Statement::Loop { .. } => self.control_flow(statement, span),
            Statement::Return { value } => self.leave(statement, *value),
            Statement::Store { pointer, value } => match self.place_of(*pointer) {
                Some(place) => self.store_in_heap(&place, *pointer, *value, span),
                None if self.is_narrow_local(*pointer) => self.store_low(*pointer, *value, span),
                None => self.plain_statement(statement),
            },
            Statement::Atomic {
                pointer,
                fun,
                value,
                result,
            } => match self.place_of(*pointer) {
                Some(place) => {
                    self.check_writable(*pointer, span)?;
                    self.atomic(&place, *pointer, *fun, *value, *result)
                }
                None => self.plain_statement(statement),
            },
            Statement::Call {
                function,
                arguments,
                result,
            } => self.call(*function, arguments, *result, span),
            _ => self.plain_statement(statement),
        }
    }

    /// A statement with blocks inside, each of which is rewritten.
    fn control_flow(&mut self, statement: &'a Statement, span: Span) -> Outcomes<()> {
        let new = match statement {
            Statement::If {
                condition,
                accept,
                reject,
            } => Statement::If {
                condition: self.value(*condition)?,
                accept: self.block(accept)?,
                reject: self.block(reject)?,
            },
            Statement::Switch { selector, cases } => {
                let selector = self.value(*selector)?;
                let mut new = Vec::with_capacity(cases.len());
                for case in cases {
                    new.push(SwitchCase {
                        value: case.value,
                        body: self.block(&case.body)?,
                        fall_through: case.fall_through,
                    });
                }
                Statement::Switch {
                    selector,
                    cases: new,
                }
            }
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => Statement::Loop {
                body: {
                    let leave = self.leaves_failed(body, continuing);
                    let body = self.block(body)?;
                    self.ended_by_failure(body, leave)
                },
                continuing: self.block(continuing)?,
                break_if: break_if.map(|c| self.value(c)).transpose()?,
            },
            Statement::Block(inner) => Statement::Block(self.block(inner)?),
            _ => return self.plain_statement(statement),
        };
        self.builder.code.span = span;
        self.builder.push(new);
        Ok(())
    }

    /// A `return`, of `value` if there is one: pointers take their boundary form, and faults noted by the function are
    /// handed over, or written by the entry point.
    fn leave(&mut self, statement: &Statement, value: Option<Handle<Expression>>) -> Outcomes<()> {
        if let (Some(value), true) = (value, self.scan.result.is_some()) {
            let expected = self.scan.result_parameter();
            let value = Some(self.boundary(value, expected)?);
            self.builder.hand_over_notes();
            self.builder.push(Statement::Return { value });
            return Ok(());
        }
        if let Some(value) = value {
            self.value(value)?;
        }
        self.builder.hand_over_notes();
        if self.is_entry {
            self.builder.write_notes();
        }
        self.plain_statement(statement)
    }

    /// A store behind a pointer into the heap.
    fn store_in_heap(
        &mut self,
        place: &Place,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
        span: Span,
    ) -> Outcomes<()> {
        self.check_writable(pointer, span)?;
        let value = self.value(value)?;
        let ty = self.pointee(pointer)?;
        self.builder.code.span = span;
        self.builder.report(place);
        self.builder
            .store_value(place, ty, value)
            .map_err(self.error(span))
    }

    /// A store in a variable that keeps only low words of pointers.
    fn store_low(
        &mut self,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
        span: Span,
    ) -> Outcomes<()> {
        let value = self.low(value)?;
        let pointer = self.value(pointer)?;
        self.builder.code.span = span;
        self.builder.store(pointer, value);
        Ok(())
    }

    /// Copies a statement that has nothing to do with pointers into the heap.
    fn plain_statement(&mut self, statement: &Statement) -> Outcomes<()> {
        let mut copy = statement.clone();
        let mut results = Vec::new();
        let mut uses = Vec::new();
        used_by::<PointerError>(
            &mut copy,
            &mut |handle| {
                uses.push(*handle);
                Ok(())
            },
            &mut |_| Ok(()),
        )?;
        // Operands come first: making one may add to the arena. Results of atomics are put together anew at each use as
        // a whole.
        let mut made = HashMap::new();
        for used in uses {
            made.insert(used, self.value(used)?);
        }
        used_by::<PointerError>(&mut copy, &mut |_| Ok(()), &mut |handle| {
            results.push(*handle);
            Ok(())
        })?;
        for result in results {
            self.builder.code.span = self.span_of(result);
            let copied = self.builder.add(self.old.expressions[result].clone());
            self.map.insert(result, Mapped::Value(copied));
            made.insert(result, copied);
        }
        let find = |handle: &mut Handle<Expression>| {
            if let Some(value) = made.get(handle) {
                *handle = *value;
            }
            Ok::<(), PointerError>(())
        };
        used_by(&mut copy, &mut { find }, &mut { find })?;
        self.builder.push(copy);
        Ok(())
    }
}
