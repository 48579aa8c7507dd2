//! Atomic operations.

use naga::{AtomicFunction as F, Expression as E, Handle, ScalarKind, TypeInner};

use super::{Front, scalars};
use crate::compile::{
    error::{Result, internal, unsupported},
    ir::{self, Atomic, AtomicFunction, Leaf, Statement, Type, Unary},
    layout,
};
use crate::sanitizer::Access;

impl Front<'_> {
    pub(super) fn atomic(
        &mut self,
        pointer: Handle<E>,
        function: &F,
        value: Handle<E>,
        result: Option<Handle<E>>,
    ) -> Result<()> {
        let pointer = self.pointer(pointer)?;
        let TypeInner::Atomic(scalar) = *self.layouts.inner(pointer.ty) else {
            return Err(internal("an atomic operation on memory that is not atomic"));
        };
        let ty = layout::scalar(scalar)?;
        let mut value = self.scalar(value)?;
        let signed = scalar.kind == ScalarKind::Sint;
        let mut compare = None;
        let operation = match *function {
            F::Add => AtomicFunction::Add,
            F::Subtract if ty.is_float() => {
                value = self.b.unary(Unary::Negate, value);
                AtomicFunction::Add
            }
            F::Subtract => AtomicFunction::Sub,
            F::And => AtomicFunction::And,
            F::ExclusiveOr => AtomicFunction::Xor,
            F::InclusiveOr => AtomicFunction::Or,
            F::Min | F::Max if ty.is_float() => {
                return Err(unsupported("an atomic minimum or maximum of floats"));
            }
            F::Min if signed => AtomicFunction::MinS,
            F::Min => AtomicFunction::MinU,
            F::Max if signed => AtomicFunction::MaxS,
            F::Max => AtomicFunction::MaxU,
            F::Exchange { compare: None } => AtomicFunction::Exchange,
            F::Exchange {
                compare: Some(expected),
            } => {
                compare = Some(self.scalar(expected)?);
                AtomicFunction::CompareExchange
            }
        };
        let old = self.b.result(ty);
        let exchanged = compare.map(|_| self.b.result(Type::Bool));
        self.check_access(&pointer, Access::AtomicWrite)?;
        self.b.push(Statement::Atomic(Box::new(Atomic {
            place: pointer.place.clone(),
            function: operation,
            value,
            compare,
            result: old,
            exchanged,
        })));
        match (result, exchanged) {
            (Some(result), Some(exchanged)) => self.set_node(result, scalars([old, exchanged])),
            (Some(result), None) => self.set_node(result, scalars([old])),
            (None, _) => Ok(()),
        }
    }

    /// Stores to atomic memory are indivisible.
    pub(super) fn atomic_store(
        &mut self,
        pointer: &super::Pointer,
        value: crate::compile::ir::Value,
    ) -> Result<()> {
        self.check_access(pointer, Access::AtomicWrite)?;
        self.b.push(Statement::Store {
            place: pointer.place.clone(),
            leaves: [Leaf { offset: 0, value }].into_iter().collect(),
            access: ir::Access::Atomic,
        });
        Ok(())
    }
}
