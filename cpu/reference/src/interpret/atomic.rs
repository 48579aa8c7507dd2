//! Atomic operations on memory. One invocation runs at a time, so that each is indivisible.

use std::rc::Rc;

use naga::{AtomicFunction, BinaryOperator, Expression, Handle, MathFunction};

use super::access::Kind;
use super::dispatch::World;
use super::invocation::Invocation;
use crate::fault::Fault;
use crate::operate;
use crate::value::{Scalar, Value};

impl World<'_, '_> {
    /// Executes an atomic statement. Out of range, it reads zero and changes nothing.
    pub fn atomic(
        &mut self,
        invocation: &mut Invocation<'_>,
        pointer: Handle<Expression>,
        function: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Result<(), Fault> {
        let target = invocation.pointer(pointer)?;
        let operand = invocation.value(value)?.clone();
        let compare = match function {
            AtomicFunction::Exchange {
                compare: Some(compare),
            } => Some(invocation.value(compare)?.clone()),
            _ => None,
        };
        let site = match invocation.statement_site() {
            Some(site) if site.span.is_defined() => site,
            _ => invocation.expression_site(pointer)?,
        };
        self.note(invocation, &target, Kind::Modify, site)?;
        let before = self.read_unnoted(invocation, &target)?;
        let after = updated(function, &before, &operand, compare.as_ref()).ok_or(
            Fault::Malformed("an atomic function does not take operands of this type"),
        )?;
        self.overwrite(invocation, &target, &after)?;
        let Some(result) = result else {
            return Ok(());
        };
        let value = match compare {
            None => before,
            Some(compare) => {
                let exchanged = before.scalar() == compare.scalar();
                Value::Composite(Rc::new([before, Scalar::Bool(exchanged).into()]))
            }
        };
        invocation.set(result, value)
    }
}

/// The value after an atomic function; `None` where operands do not fit.
pub(super) fn updated(
    function: AtomicFunction,
    before: &Value,
    operand: &Value,
    compare: Option<&Value>,
) -> Option<Value> {
    let operator = match function {
        AtomicFunction::Add => BinaryOperator::Add,
        AtomicFunction::Subtract => BinaryOperator::Subtract,
        AtomicFunction::And => BinaryOperator::And,
        AtomicFunction::ExclusiveOr => BinaryOperator::ExclusiveOr,
        AtomicFunction::InclusiveOr => BinaryOperator::InclusiveOr,
        AtomicFunction::Min => return operate::math(MathFunction::Min, &[before, operand]),
        AtomicFunction::Max => return operate::math(MathFunction::Max, &[before, operand]),
        AtomicFunction::Exchange { .. } => {
            let replace = compare.is_none_or(|compare| compare.scalar() == before.scalar());
            return Some(if replace {
                operand.clone()
            } else {
                before.clone()
            });
        }
    };
    operate::binary(operator, before, operand)
}
