//! Finds the pointers of which only the low word matters.
//!
//! Where a kernel translates pointers by their low word alone, a pointer only followed, or kept for following, needs no
//! high word: not in a variable, and not from memory. Drivers cannot find this out where a pointer goes round a loop as
//! a vector, and each loaded word costs.
//!
//! The analysis is a demand for high words, followed from each use (a comparison, a store, a call) back to the origin,
//! over the variables of a single function.

use std::collections::BTreeSet;

use naga::{Expression, Function, Handle, LocalVariable, Module, Scalar, Statement, TypeInner};

use super::super::blocks::each_statement;
use super::builder::Value;
use super::rewrite::{Outcomes, Rewriter};
use super::scan::{Role, role};
use super::visit::{operands, used_by};
use crate::kernel::passes::code::Emitter;

/// Values with a low word alone.
#[derive(Default)]
pub(super) struct Narrow {
    /// Pointers are translated by their low words alone; otherwise the rest is empty.
    pub low_words: bool,
    /// Pointer expressions to be replaced by their low words.
    pub values: BTreeSet<Handle<Expression>>,
    /// Variables of the function with pointers, to be replaced by their low words.
    pub locals: BTreeSet<Handle<LocalVariable>>,
}

/// The subject of a need for a high word.
#[derive(Clone, Copy)]
enum Use {
    Value(Handle<Expression>),
    Local(Handle<LocalVariable>),
}

/// The expressions whose types matter here.
#[derive(Default)]
pub(super) struct Types {
    /// Pointers in their memory form: `vec2<u32>`.
    pub pairs: BTreeSet<Handle<Expression>>,
    /// `bool`.
    pub flags: BTreeSet<Handle<Expression>>,
}

struct Analysis<'a> {
    function: &'a Function,
    types: &'a Types,
    /// Expressions and variables whose high words are needed.
    wanted: BTreeSet<Handle<Expression>>,
    wanted_locals: BTreeSet<Handle<LocalVariable>>,
    /// Edges of the analysis: if the first is needed whole, so is the second.
    flows: Vec<(Use, Use)>,
}

/// Whether `ty` is that of a pointer in memory.
pub(super) fn is_pair(inner: &TypeInner) -> bool {
    *inner
        == TypeInner::Vector {
            size: naga::VectorSize::Bi,
            scalar: Scalar::U32,
        }
}

/// Finds them in `function`.
pub(super) fn find(module: &Module, function: &Function, types: &Types) -> Narrow {
    let mut analysis = Analysis {
        function,
        types,
        wanted: BTreeSet::new(),
        wanted_locals: BTreeSet::new(),
        flows: Vec::new(),
    };
    for (handle, expression) in function.expressions.iter() {
        analysis.expression(handle, expression);
    }
    each_statement(&function.body, &mut |statement| {
        analysis.statement(module, statement);
    });
    analysis.settle();
    let values = (types.pairs.iter().copied())
        .filter(|handle| !analysis.wanted.contains(handle) && analysis.can_be_narrow(*handle))
        .collect();
    let locals = (function.local_variables.iter())
        .filter(|(handle, local)| {
            is_pair(&module.types[local.ty].inner)
                && !analysis.wanted_locals.contains(handle)
                && analysis.starts_narrow(local)
        })
        .map(|(handle, _)| handle)
        .collect();
    Narrow {
        low_words: true,
        values,
        locals,
    }
}

impl Analysis<'_> {
    fn local(&self, pointer: Handle<Expression>) -> Option<Handle<LocalVariable>> {
        match self.function.expressions[pointer] {
            Expression::LocalVariable(local) => Some(local),
            _ => None,
        }
    }

    /// All of `operand` is needed, whatever its kind.
    fn want(&mut self, operand: Handle<Expression>) {
        if self.types.pairs.contains(&operand) {
            self.wanted.insert(operand);
        }
        if let Some(local) = self.local(operand) {
            self.wanted_locals.insert(local);
        }
    }

    fn expression(&mut self, handle: Handle<Expression>, expression: &Expression) {
        match *expression {
            Expression::AccessIndex { index: 0, .. } => {}
            Expression::Load { pointer } => {
                if let Some(local) = self.local(pointer) {
                    self.flows.push((Use::Value(handle), Use::Local(local)));
                }
            }
            Expression::Select {
                condition,
                accept,
                reject,
            } if self.types.pairs.contains(&handle) && self.types.flags.contains(&condition) => {
                for operand in [accept, reject] {
                    self.flows.push((Use::Value(handle), Use::Value(operand)));
                }
            }
            ref other => {
                let mut copy = other.clone();
                let done: Result<(), std::convert::Infallible> =
                    operands(&mut copy, &mut |operand| {
                        self.want(*operand);
                        Ok(())
                    });
                done.unwrap_or_default();
            }
        }
    }

    fn statement(&mut self, module: &Module, statement: &Statement) {
        match *statement {
            Statement::Store { pointer, value } => {
                if let Some(local) = self.local(pointer) {
                    self.flows.push((Use::Local(local), Use::Value(value)));
                    return;
                }
            }
            Statement::Call { function, .. }
                if role(&module.functions[function], &module.types) == Role::Root =>
            {
                return;
            }
            _ => {}
        }
        let mut copy = statement.clone();
        let done: Result<(), std::convert::Infallible> = used_by(
            &mut copy,
            &mut |operand| {
                self.want(*operand);
                Ok(())
            },
            &mut |_| Ok(()),
        );
        done.unwrap_or_default();
    }

    /// Passes needs on until nothing changes.
    fn settle(&mut self) {
        loop {
            let mut changed = false;
            for (from, to) in &self.flows {
                let wanted = match from {
                    Use::Value(value) => self.wanted.contains(value),
                    Use::Local(local) => self.wanted_locals.contains(local),
                };
                changed |= wanted
                    && match to {
                        Use::Value(value) => {
                            self.types.pairs.contains(value) && self.wanted.insert(*value)
                        }
                        Use::Local(local) => self.wanted_locals.insert(*local),
                    };
            }
            if !changed {
                return;
            }
        }
    }

    /// Whether the low word of an expression can be had without the whole.
    fn can_be_narrow(&self, handle: Handle<Expression>) -> bool {
        match self.function.expressions[handle] {
            Expression::Load { .. } | Expression::ZeroValue(_) => true,
            Expression::Compose { ref components, .. } => components.len() == 2,
            Expression::Select { condition, .. } => self.types.flags.contains(&condition),
            _ => false,
        }
    }

    fn starts_narrow(&self, local: &LocalVariable) -> bool {
        local.init.is_none_or(|init| {
            matches!(
                self.function.expressions[init],
                Expression::ZeroValue(_) | Expression::Compose { .. }
            ) && self.can_be_narrow(init)
        })
    }
}

impl Rewriter<'_> {
    /// Whether the expression is a variable that holds the low word of a pointer alone.
    pub(super) fn is_narrow_local(&self, handle: Handle<Expression>) -> bool {
        matches!(self.old.expressions[handle],
            Expression::LocalVariable(local) if self.scan.narrow.locals.contains(&local))
    }

    /// The low word of a pointer expression in its memory form.
    pub(super) fn low(&mut self, handle: Handle<Expression>) -> Outcomes<Value> {
        let value = self.value(handle)?;
        Ok(match self.scan.narrow.values.contains(&handle) {
            true => value,
            false => self.builder.member(value, 0),
        })
    }

    /// The low word of an expression of which nothing else is needed.
    pub(super) fn narrow(&mut self, handle: Handle<Expression>) -> Outcomes<Value> {
        let old = self.old;
        Ok(match old.expressions[handle] {
            Expression::Load { pointer } => {
                let of = self.value(pointer)?;
                let word = match self.is_narrow_local(pointer) {
                    true => of,
                    false => self.builder.member(of, 0),
                };
                self.builder.code.span = self.span_of(handle);
                self.builder.load(word)
            }
            Expression::Select {
                condition,
                accept,
                reject,
            } => {
                let condition = self.value(condition)?;
                let accept = self.low(accept)?;
                let reject = self.low(reject)?;
                self.builder.select(condition, accept, reject)
            }
            Expression::Compose { ref components, .. } if !components.is_empty() => {
                self.value(components[0])?
            }
            _ => self.builder.word(0),
        })
    }
}
