//! The statements of a function in their new form.

use std::collections::HashMap;

use naga::{Block, Expression, Function, Handle, Span, Statement};

use super::builder::Value;
use super::function::{Body, Form};
use crate::kernel::passes::code::Emitter;
use crate::kernel::passes::pointers::is_not_emitted;
use crate::kernel::passes::pointers::visit::used_by;

impl Body<'_, '_> {
    pub fn block(&mut self, block: &Block) {
        let statements: Vec<(&Statement, &Span)> = block.span_iter().collect();
        for (index, (statement, span)) in statements.iter().enumerate() {
            self.b.code.span = **span;
            let next = statements.get(index + 1).map(|(statement, _)| *statement);
            self.statement(statement, **span, next);
        }
    }

    /// The value that a statement stores to scratch memory, if nothing else uses the value.
    fn stored_by(&self, statement: Option<&Statement>) -> Option<Value> {
        let value = match statement? {
            Statement::Store { pointer, value } => {
                // A pointer of the same `Emit` has no form yet.
                let root = self.root(*pointer);
                matches!(self.form(root), Some(Form::Pointer(_))).then_some(*value)?
            }
            Statement::Return { value } => {
                self.result?;
                (*value)?
            }
            _ => return None,
        };
        (self.uses.get(&value) == Some(&1)).then_some(value)
    }

    /// The variable or argument that a pointer leads from.
    fn root(&self, pointer: Value) -> Value {
        let mut at = pointer;
        while let Expression::Access { base, .. } | Expression::AccessIndex { base, .. } =
            self.old.expressions[at]
        {
            at = base;
        }
        at
    }

    fn inner(&mut self, block: &Block) -> Block {
        let outer = self.b.open();
        self.block(block);
        self.b.close(outer)
    }

    fn statement(&mut self, statement: &Statement, span: Span, next: Option<&Statement>) {
        match statement {
            Statement::Emit(range) => {
                let next = self.stored_by(next);
                for handle in range.clone() {
                    self.emit(handle, next);
                }
                self.b.code.span = span;
            }
            Statement::Block(block) => {
                let block = self.inner(block);
                self.b.push(Statement::Block(block));
            }
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                let condition = self.plain(*condition);
                let (accept, reject) = (self.inner(accept), self.inner(reject));
                self.b.code.span = span;
                self.b.push(Statement::If {
                    condition,
                    accept,
                    reject,
                });
            }
            Statement::Switch { selector, cases } => {
                let selector = self.plain(*selector);
                let mut made = Vec::with_capacity(cases.len());
                for case in cases {
                    made.push(naga::SwitchCase {
                        value: case.value,
                        body: self.inner(&case.body),
                        fall_through: case.fall_through,
                    });
                }
                self.b.code.span = span;
                self.b.push(Statement::Switch {
                    selector,
                    cases: made,
                });
            }
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => self.looped(body, continuing, *break_if, span),
            Statement::Store { pointer, value } => self.stored(*pointer, *value),
            Statement::Return { value: Some(value) } if self.result.is_some() => {
                if let Some(place) = self.result {
                    self.store(&place, *value);
                }
                self.b.push(Statement::Return { value: None });
            }
            Statement::Call {
                function,
                arguments,
                result,
            } => self.call(*function, arguments, *result),
            other => self.other(other),
        }
    }

    fn looped(&mut self, body: &Block, continuing: &Block, break_if: Option<Value>, span: Span) {
        // What the body has made is in scope of `continuing`, too: its memory is kept for it.
        let outer = self.b.open();
        self.block(body);
        let inner = self.b.open();
        self.block(continuing);
        let break_if = break_if.map(|value| self.plain(value));
        let continuing = self.b.close(inner);
        let body = self.b.close(outer);
        self.b.code.span = span;
        self.b.push(Statement::Loop {
            body,
            continuing,
            break_if,
        });
    }

    fn stored(&mut self, pointer: Value, value: Value) {
        if let Some(Form::Pointer(place)) = self.form(pointer) {
            return self.store(&place, value);
        }
        let to = self.plain(pointer);
        match self.form(value) {
            Some(Form::Memory(from)) => self.b.copy_out(to, &from),
            _ => {
                let value = self.plain(value);
                self.b.store(to, value);
            }
        }
    }

    fn call(&mut self, function: Handle<Function>, arguments: &[Value], result: Option<Value>) {
        let mut mask = Vec::with_capacity(arguments.len());
        let mut passed = Vec::with_capacity(arguments.len() + 1);
        for &argument in arguments {
            let form = self.form(argument);
            mask.push(matches!(form, Some(Form::Pointer(_))));
            let place = match (form, self.kept(argument)) {
                (Some(Form::Pointer(place) | Form::Memory(place)), _) => Some(place),
                // A constant.
                (_, Some(ty)) => {
                    let place = self.b.take(ty);
                    self.store(&place, argument);
                    Some(place)
                }
                _ => None,
            };
            passed.push(match place {
                Some(place) => self.b.address(&place),
                None => self.plain(argument),
            });
        }
        let number = self.calls.get(&(function, mask));
        let Some(made) = number.and_then(|&number| self.made.get(number)) else {
            return;
        };
        let function = made.handle;
        let kept = result.and_then(|result| Some((result, self.kept(result)?)));
        if let Some((result, ty)) = kept {
            let place = self.b.take(ty);
            passed.push(self.b.address(&place));
            self.b.push(Statement::Call {
                function,
                arguments: passed,
                result: None,
            });
            self.forms.insert(result, Form::Memory(place));
            return;
        }
        let result = result.map(|result| {
            let value = self.b.add(Expression::CallResult(function));
            self.forms.insert(result, Form::Plain(value));
            value
        });
        self.b.push(Statement::Call {
            function,
            arguments: passed,
            result,
        });
    }

    /// Any other statement, with the new forms of its operands.
    fn other(&mut self, statement: &Statement) {
        let mut copy = statement.clone();
        let mut operands = Vec::new();
        let mut results = Vec::new();
        let _ = used_by(
            &mut copy,
            &mut |handle| -> Result<(), std::convert::Infallible> {
                operands.push(*handle);
                Ok(())
            },
            &mut |handle| {
                results.push(*handle);
                Ok(())
            },
        );
        let mut made: HashMap<Value, Value> = HashMap::new();
        for handle in operands {
            made.insert(handle, self.plain(handle));
        }
        for handle in results {
            let expression = self.old.expressions[handle].clone();
            debug_assert!(is_not_emitted(&expression));
            let value = self.b.add(expression);
            self.forms.insert(handle, Form::Plain(value));
            made.insert(handle, value);
        }
        let replace = |handle: &mut Value| -> Result<(), std::convert::Infallible> {
            if let Some(value) = made.get(handle) {
                *handle = *value;
            }
            Ok(())
        };
        let _ = used_by(&mut copy, &mut { replace }, &mut { replace });
        self.b.push(copy);
    }
}
