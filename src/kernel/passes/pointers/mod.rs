//! Pointers: lowers accesses behind `usm_<Type>(p)` to loads, stores and atomics on the heap binding.
//!
//! The text side (`kernel::usm`) declares a function without a body for each type that pointers are followed to. Its
//! calls are the *roots*; everything reached from a root, through members, indices, `let`, arguments and results of
//! functions, is a *place* in the heap. A place is an element index and a constant offset, so a pointer is translated
//! once and a member costs nothing but its load.
//!
//! # What a pointer is
//!
//! A `vec2<u32>`: the address, low word first, equal to the host's. Pointers in memory are not translated; the
//! translation is at each following. In a heap that begins at a multiple of 4 GiB the low word is the offset, and there
//! is nothing to translate.
//!
//! # What the heap is
//!
//! One array per binding, with an element type decided by the kernel's accesses: pairs or quadruples of words where
//! every access is aligned for them, words otherwise, atomic words as soon as an operation is atomic (a buffer may be
//! bound only once where written). Atomics of 64 bits have a second binding of the same memory (`atomics.rs`).
//!
//! # What is not the same as with a bound buffer
//!
//! - Outside checked mode an index beyond a fixed-size array reaches the memory behind that array, inside the heap:
//!   nothing there marks the end of an allocation.
//! - A lone `f16` is stored by two atomic operations; its neighbour in the word is not disturbed.

mod access;
mod ahead;
mod atomics;
mod builder;
mod chains;
mod check;
mod flow;
mod heap;
mod hoist;
mod narrow;
mod needs;
mod notes;
mod options;
mod place;
mod reuse;
mod rewrite;
mod scan;
mod shape;
mod statements;
mod system;
mod values;
pub(in crate::kernel) mod visit;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_atomics64;
#[cfg(test)]
mod tests_hoist;
#[cfg(test)]
mod tests_loads;
#[cfg(test)]
mod tests_reuse;
#[cfg(test)]
mod tests_system;
#[cfg(test)]
mod tests_table;

use std::collections::BTreeMap;

use naga::{Arena, BuiltIn, Function, Handle, Module, Span};

pub use flow::passed;
pub use options::{
    ArgumentTable, FaultReason, HeapInfo, HeapMemory, Hoists, LivePlaces, PointerError,
    PointerFacts, PointerOptions, TableRow, TranslationMode,
};
#[cfg(test)]
use options::{HeapElement, PointerErrorKind};
pub(in crate::kernel) use reuse::may_see_others;

use super::{turns, unique_name};
pub(super) use check::built_in;
use heap::Heap;
pub(super) use heap::{is_not_emitted, vector_type};
use rewrite::{Callee, Invocation, Parameter, Plan};
use scan::{Role, Scan};
pub(super) use shape::{Shape, Ty};

/// Whether entry point `entry` reaches a stub, and needs lowering by [`run`].
pub fn reaches_stubs(module: &Module, entry: usize) -> bool {
    let Some(point) = module.entry_points.get(entry) else {
        return false;
    };
    let reached = super::reachable(module, &point.function);
    let role = |f: &Handle<Function>| scan::role(&module.functions[*f], &module.types);
    reached.iter().any(|f| role(f) != Role::User)
}

/// Lowers the pointers of entry point `entry` (its index in `module.entry_points`).
///
/// `None`, and an untouched module, where the entry point is not there or reaches no stub. Otherwise the module is for
/// this entry point alone: other entry points, and all unreached functions, are removed, because functions with stubs
/// could not be validated.
///
/// # Errors
/// [`PointerError`], with the place in the source. The module is then no longer of use.
pub fn run(
    module: &mut Module,
    entry: usize,
    options: &PointerOptions,
) -> Result<Option<PointerFacts>, PointerError> {
    let Some(entry_point) = module.entry_points.get(entry) else {
        return Ok(None);
    };
    let Some(scan) = scan::scan(module, &entry_point.function, options)? else {
        return Ok(None);
    };
    let mut heap = Heap::add(module, options, &scan).map_err(|kind| PointerError {
        kind,
        span: Span::UNDEFINED,
        function: None,
    })?;
    let mut callees = callees(module, &scan);
    let mut entry_point = module.entry_points.swap_remove(entry);
    module.entry_points.clear();
    let invocation = heap.invocation.map(|_| Invocation {
        ids: check::built_in(
            module,
            &mut entry_point.function.arguments,
            BuiltIn::GlobalInvocationId,
        ),
        groups: check::built_in(
            module,
            &mut entry_point.function.arguments,
            BuiltIn::NumWorkGroups,
        ),
        workgroup: entry_point.workgroup_size,
        sizes: entry_point.workgroup_size_overrides.unwrap_or_default(),
        globals: module.global_expressions.clone(),
    });
    let fault_name = unique_name(module, "tombolo_pointer_fault");
    let meetings = turns::meeting_functions(module);
    let old = std::mem::take(&mut module.functions);
    let mut new: Arena<Function> = Arena::new();
    let hoists = match scan.hoists() {
        true => options.hoists(),
        false => Hoists::Nothing,
    };
    heap.system = system::add(module, &mut new, &heap, options, hoists)?;
    heap.fault = match notes::fault_function(&heap, fault_name) {
        Some(function) => Some(new.append(function, Span::UNDEFINED)),
        None => heap.system.and_then(|system| system.writes_note()),
    };

    let mut sites = Vec::new();
    for (handle, function_scan) in &scan.functions {
        let plan = Plan::of(&heap, &scan, &callees, &meetings);
        let function = rewrite::function(
            &mut module.types,
            &plan,
            &old[*handle],
            function_scan,
            &mut sites,
            None,
        )?;
        let appended = new.append(function, old.get_span(*handle));
        if let Some(callee) = callees.get_mut(handle) {
            callee.new = Some(appended);
        }
    }
    let plan = Plan::of(&heap, &scan, &callees, &meetings);
    entry_point.function = rewrite::function(
        &mut module.types,
        &plan,
        &entry_point.function,
        &scan.entry,
        &mut sites,
        invocation.as_ref(),
    )?;
    module.functions = new;
    module.entry_points.push(entry_point);
    Ok(Some(PointerFacts {
        entry: 0,
        element: heap.element,
        reads_info: heap.info.is_some(),
        writes: scan.writes,
        follows: scan.follows,
        sites,
        tables: (
            heap.allocations.len() as u32,
            heap.device_allocations.is_some(),
        ),
        system: heap.system.is_some(),
        wide: heap.wide.is_some(),
    }))
}

/// The new form of calls of the module's functions.
fn callees(module: &Module, scan: &Scan) -> BTreeMap<Handle<Function>, Callee> {
    let pointee = |ty| scan::pointee(module, ty);
    (module.functions.iter())
        .map(|(handle, function)| {
            let role = scan::role(function, &module.types);
            let known = scan.functions.get(&handle);
            let pointee = function.result.as_ref().and_then(|r| pointee(r.ty));
            let source = known.map_or_else(flow::Source::default, |scan| scan.result_source);
            let callee = Callee {
                role,
                new: None,
                arguments: match (role, known) {
                    (Role::User, Some(scan)) => scan.parameters().collect(),
                    _ => Vec::new(),
                },
                result: pointee.map(|pointee| Parameter {
                    pointee,
                    source,
                    writable: known.is_none_or(|scan| scan.writable_result),
                }),
            };
            (handle, callee)
        })
        .collect()
}
