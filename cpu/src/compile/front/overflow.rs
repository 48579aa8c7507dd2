//! Overflows of sums and products on the way to an index, for [`sanitizer`](crate::sanitizer).
//!
//! *How it works.* From the index on, additions, subtractions and multiplications of `i32` and `u32` are followed
//! through their operands, conversions and selections within the function, up to loaded values, results of calls and
//! arguments. Each operation is done again in 64 bits, and the results are compared.

use std::collections::HashSet;

use naga::{BinaryOperator as O, Expression as E, Handle, Scalar, ScalarKind, TypeInner};

use super::Front;
use crate::{
    compile::{
        error::Result,
        ir::{Binary, Comparison, Conversion, Type, Value},
    },
    sanitizer::What,
};

/// The most operations followed from one index.
const MAX_FOLLOWED: usize = 32;

impl Front<'_> {
    /// Tells of an index resulting from an overflow, before its use.
    pub(super) fn check_overflow(&mut self, index: Handle<E>) -> Result<()> {
        if !self.inspector.checks_overflow() {
            return Ok(());
        }
        let mut seen = HashSet::new();
        let mut open = vec![index];
        let mut overflowed: Option<Value> = None;
        while let Some(expression) = open.pop() {
            if !seen.insert(expression) || seen.len() > MAX_FOLLOWED {
                continue;
            }
            let function = self.frame()?.function;
            match function.expressions[expression] {
                E::Binary { op, left, right } => {
                    open.extend([left, right]);
                    if let Some(found) = self.overflow(expression, op, [left, right])? {
                        overflowed = Some(match overflowed {
                            None => found,
                            Some(others) => self.b.binary(Binary::Or, others, found),
                        });
                    }
                }
                E::As { expr, .. } => open.push(expr),
                E::Select { accept, reject, .. } => open.extend([accept, reject]),
                _ => {}
            }
        }
        match overflowed {
            Some(value) if self.b.program.constant(value) != Some(0) => {
                self.call_check(What::Overflow, None, [value]);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether an operation overflowed; `None` for an operation that cannot overflow.
    fn overflow(
        &mut self,
        expression: Handle<E>,
        op: O,
        operands: [Handle<E>; 2],
    ) -> Result<Option<Value>> {
        let op = match op {
            O::Add => Binary::Add,
            O::Subtract => Binary::Sub,
            O::Multiply => Binary::Mul,
            _ => return Ok(None),
        };
        let info = &self.frame()?.info[expression];
        let widen = match *info.ty.inner_with(&self.module.types) {
            TypeInner::Scalar(Scalar { kind, width: 4 }) => match kind {
                ScalarKind::Sint => Conversion::WidenS,
                ScalarKind::Uint => Conversion::WidenU,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let [a, b] = operands;
        let (a, b, result) = (self.scalar(a)?, self.scalar(b)?, self.scalar(expression)?);
        let [a, b, result] = [a, b, result].map(|value| self.b.convert(widen, Type::I64, value));
        let exact = self.b.binary(op, a, b);
        Ok(Some(self.b.compare(Comparison::Ne, exact, result)))
    }
}
