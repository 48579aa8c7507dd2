//! Atomic operations of 64 bits, held against the device before naga's validator would only name a capability: behind
//! pointers, in buffers and in work-group memory alike.
//!
//! Two features of wgpu: all operations everywhere, and minima and maxima in storage whose result is not used, which is
//! what Metal has.

use naga::proc::ResolveContext;
use naga::valid::Capabilities;
use naga::{
    AddressSpace, AtomicFunction, Expression, Function, Handle, Module, Scalar, ScalarKind, Span,
    Statement, TypeInner,
};

use super::diagnostic::{Diagnostic, Reporter};
use super::passes::blocks::each_statement;
use super::passes::{reachable, typified};

/// An operation that the device has not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lack {
    /// The operation, as WGSL names it; the type, where no operation of the kernel is at fault.
    pub operation: String,
    scalar: Scalar,
    span: Span,
}

impl Lack {
    /// The message for kernel `entry`.
    pub fn told(&self, entry: &str, reporter: Reporter<'_>) -> Box<Diagnostic> {
        let (operation, ty) = (&self.operation, name(self.scalar));
        let done = match *operation == ty {
            true => format!("the module of `{entry}` declares {ty}"),
            false => format!("`{entry}` takes {operation} of {ty}"),
        };
        let message =
            format!("{done}, and this device has no such operations on 64 bits (Aspect::Atomic64)");
        let label = reporter.back(self.span).map(|at| (at, String::new()));
        let notes = [
            "choose a device that has them (Device::has), as the embedded adapter of tombolo-cpu",
            "or keep the value in words of atomic<u32>: a sum in two, with the carry from the result of atomicAdd; an \
             index in the place of a pointer",
        ];
        let notes = notes.map(str::to_owned).to_vec();
        reporter.at(message, label.into_iter().collect(), notes)
    }
}

/// Whether the module has a type of such atomics.
pub(super) fn mentions(module: &Module) -> bool {
    first_type(module).is_some()
}

fn first_type(module: &Module) -> Option<Scalar> {
    module.types.iter().find_map(|(_, ty)| match ty.inner {
        TypeInner::Atomic(scalar) => Some(scalar).filter(|scalar| is_wide(*scalar)),
        _ => None,
    })
}

fn is_wide(scalar: Scalar) -> bool {
    scalar.width == 8 && matches!(scalar.kind, ScalarKind::Sint | ScalarKind::Uint)
}

fn name(scalar: Scalar) -> &'static str {
    match scalar.kind {
        ScalarKind::Sint => "atomic<i64>",
        _ => "atomic<u64>",
    }
}

/// Finds the first operation of compute entry point `entry` that the device has not.
///
/// # Errors
/// That operation; or the type, which is not to be had in the module either, on a device with neither feature.
pub(super) fn check(module: &Module, entry: &str, capabilities: Capabilities) -> Result<(), Lack> {
    let all = capabilities.contains(Capabilities::SHADER_INT64_ATOMIC_ALL_OPS);
    let Some(scalar) = first_type(module).filter(|_| !all) else {
        return Ok(());
    };
    let orders = capabilities.contains(Capabilities::SHADER_INT64_ATOMIC_MIN_MAX);
    let point = module.entry_points.iter().find(|point| point.name == entry);
    if let Some(point) = point {
        let reached = reachable(module, &point.function);
        let functions = reached.iter().map(|function| &module.functions[*function]);
        for function in functions.chain([&point.function]) {
            first_lack(module, function, orders).map_or(Ok(()), Err)?;
        }
    }
    match orders {
        true => Ok(()),
        false => Err(Lack {
            operation: name(scalar).to_owned(),
            scalar,
            span: Span::UNDEFINED,
        }),
    }
}

/// The first such operation of `function`; `orders`: minima and maxima without a result are to be had in storage.
fn first_lack(module: &Module, function: &Function, orders: bool) -> Option<Lack> {
    let context =
        ResolveContext::with_locals(module, &function.local_variables, &function.arguments);
    // The validator tells of types that cannot be found.
    let types = typified(function, &context).ok()?;
    let target = |pointer: Handle<Expression>| match *types[pointer].inner_with(&module.types) {
        TypeInner::Pointer { base, space } => match module.types[base].inner {
            TypeInner::Atomic(scalar) if is_wide(scalar) => Some((scalar, space)),
            _ => None,
        },
        _ => None,
    };
    let mut found = Vec::new();
    for (handle, expression) in function.expressions.iter() {
        if let Expression::Load { pointer } = *expression
            && let Some((scalar, _)) = target(pointer)
        {
            let span = function.expressions.get_span(handle);
            found.push(("atomicLoad", scalar, span));
        }
    }
    each_statement(&function.body, &mut |statement| match *statement {
        Statement::Store { pointer, .. } => {
            if let Some((scalar, _)) = target(pointer) {
                let span = function.expressions.get_span(pointer);
                found.push(("atomicStore", scalar, span));
            }
        }
        Statement::Atomic {
            pointer,
            ref fun,
            result,
            ..
        } => {
            let Some((scalar, space)) = target(pointer) else {
                return;
            };
            let is_order = matches!(fun, AtomicFunction::Min | AtomicFunction::Max);
            let in_storage = matches!(space, AddressSpace::Storage { .. });
            if !(orders && is_order && in_storage && result.is_none()) {
                let span = function.expressions.get_span(result.unwrap_or(pointer));
                found.push((called(fun), scalar, span));
            }
        }
        _ => {}
    });
    let start = |span: &Span| span.to_range().map_or(usize::MAX, |range| range.start);
    let first = found.into_iter().min_by_key(|(_, _, span)| start(span));
    first.map(|(operation, scalar, span)| Lack {
        operation: operation.to_owned(),
        scalar,
        span,
    })
}

/// The name in WGSL.
fn called(fun: &AtomicFunction) -> &'static str {
    match fun {
        AtomicFunction::Add => "atomicAdd",
        AtomicFunction::Subtract => "atomicSub",
        AtomicFunction::And => "atomicAnd",
        AtomicFunction::ExclusiveOr => "atomicXor",
        AtomicFunction::InclusiveOr => "atomicOr",
        AtomicFunction::Min => "atomicMin",
        AtomicFunction::Max => "atomicMax",
        AtomicFunction::Exchange { compare: None } => "atomicExchange",
        AtomicFunction::Exchange { compare: Some(_) } => "atomicCompareExchangeWeak",
    }
}

#[cfg(test)]
mod tests;
