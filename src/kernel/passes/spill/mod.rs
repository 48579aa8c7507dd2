//! Spilling: private arrays move to scratch memory, a storage buffer with room for the invocations in flight.
//!
//! Drivers take a few KiB of private arrays safely ([`Capabilities::private_memory_bytes`]); beyond that they take
//! minutes to compile, or end the process. The pass replaces the largest arrays by memory of the device, in the module
//! alone: the program's text stays unchanged, and so do the results.
//!
//! *How it works.*
//!
//! 1. The variables of the deepest path of calls are added up. Where their sum is too large, every type with an array
//!    and of at least a certain size is *kept in scratch memory*: variables of the type, and values. Such a value is
//!    the place of an unchanging copy; such an argument or result is passed as its place.
//! 2. Each function has a frame: its spilled variables, then the copies. WGSL has no recursion, so a frame has a fixed
//!    start behind the frames of all callers, and calls one after another share memory.
//! 3. A pointer into scratch memory is an index. A function with pointer arguments is made once for each choice of the
//!    pointers leading there.
//! 4. Words of the invocations of a work-group lie side by side, so accesses of neighbours coalesce:
//!
//! ```text
//!     work-group 0 of the dispatch                         work-group 1
//!     word 0             word 1             … last word    word 0
//!     ├─ lane 0 1 2 … n ─┼─ lane 0 1 2 … n ─┼─ … ──────────┼─ lane 0 1 2 …
//! ```
//!
//! 5. [`enter`] has each invocation find its first word, from the number of the work-group *in the dispatch*: a grid
//!    larger than scratch memory is dispatched in parts, one after another, sharing the memory. The step comes after
//!    [`grid`](super::grid): only there the numbers become numbers of the whole grid.
//!
//! An index beyond an array means the last element, as in naga's own code for private arrays: no index leaves the
//! invocation's memory.
//!
//! [`Capabilities::private_memory_bytes`]: crate::device::Capabilities::private_memory_bytes

mod builder;
mod filled;
mod frames;
mod function;
mod layout;
mod maker;
mod memory;
mod statements;

#[cfg(test)]
mod tests;

use naga::compact::{KeepUnused, compact};
use naga::{
    AddressSpace, ArraySize, BinaryOperator, BuiltIn, Expression, GlobalVariable, Literal,
    MemoryDecorations, Module, ResourceBinding, Scalar, Span, Statement, StorageAccess, TypeInner,
};

use super::pointers::built_in;
use super::{prepend, type_of, unique_name};
use crate::device::spill_policy::SpillPolicy;
use builder::Scratch;
use frames::Frames;
use layout::Layout;
use maker::Maker;

/// A kernel's needs of scratch memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpillFacts {
    /// Bytes of an invocation.
    pub bytes: u64,
    /// Invocations of a work-group.
    pub lanes: u32,
    /// The name of the variable with the first word of an invocation.
    first: String,
}

impl SpillFacts {
    /// Bytes of a work-group.
    pub fn group_bytes(&self) -> u64 {
        self.bytes.saturating_mul(u64::from(self.lanes))
    }
}

/// Why arrays cannot be spilled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SpillError {
    /// A work-group needs more than the largest scratch memory.
    TooLarge {
        /// Bytes of an invocation.
        bytes: u64,
        /// The largest possible number: the limit of a work-group, by the work-group's invocations.
        limit: u64,
        /// The largest variable.
        largest: Box<Largest>,
    },
    /// The module was not valid.
    Invalid,
}

/// A variable with an array.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Largest {
    pub name: String,
    /// The function around the declaration, if any.
    pub function: Option<String>,
    pub bytes: u64,
    pub span: Span,
}

/// Bytes of private arrays that an invocation of an entry point has at the same time at most.
pub(crate) fn private_bytes(module: &Module, entry: usize) -> u64 {
    Frames::new(module, entry).map_or(0, |frames| frames.bytes(u32::MAX))
}

/// The bytes from which on variables with arrays are spilled, where `limit` bytes may stay; `None` where none is.
pub(crate) fn threshold(
    module: &Module,
    entry: usize,
    policy: SpillPolicy,
    limit: u64,
) -> Option<u32> {
    Frames::new(module, entry)?.threshold(policy, limit)
}

/// Moves variables with arrays of at least `threshold` bytes to scratch memory at `binding`, of which a work-group has
/// at most `limit` bytes. The module is for entry point `entry` alone then, at index 0.
///
/// # Errors
/// [`SpillError`]; the module is then no longer of use.
pub(crate) fn run(
    module: &mut Module,
    entry: usize,
    threshold: u32,
    binding: ResourceBinding,
    limit: u64,
) -> Result<SpillFacts, SpillError> {
    let point = module.entry_points.swap_remove(entry);
    module.entry_points = vec![point];
    let layout = Layout::new(module, threshold).ok_or(SpillError::Invalid)?;
    let lanes = module.entry_points[0].workgroup_size;
    let lanes = lanes.iter().fold(1u32, |all, n| all.saturating_mul(*n));
    let old = module.clone();
    let point = &old.entry_points[0];
    let (words, first, name) = variables(module, binding);
    let scratch = Scratch {
        words,
        first,
        lanes,
        layout,
    };
    let used = frames::used(&old, &point.function);
    let shared = maker::shared(&old, &scratch, &|v| used.contains(&v));
    let mut maker = Maker::new(&old, std::mem::take(&mut module.types), scratch, shared);
    let (mut function, facts) = maker.function(&point.function, &[], true);
    let words = maker.place_frames(&mut function, &facts);
    if maker.is_invalid {
        return Err(SpillError::Invalid);
    }
    let facts = SpillFacts {
        bytes: words.saturating_mul(4),
        lanes,
        first: name,
    };
    // Indices of words have 32 bits, and so have the bytes behind them.
    let limit = limit.min(1 << 31);
    if facts.group_bytes() > limit {
        return Err(SpillError::TooLarge {
            bytes: facts.bytes,
            limit: limit / u64::from(lanes.max(1)),
            largest: Box::new(Frames::new(&old, 0).map_or_else(Largest::default, Frames::largest)),
        });
    }
    module.types = maker.types;
    module.functions = maker.new;
    module.entry_points[0].function = function;
    compact(module, KeepUnused::No);
    Ok(facts)
}

/// Adds the array of words, and the variable with the first word of an invocation, with the name of the latter.
fn variables(
    module: &mut Module,
    binding: ResourceBinding,
) -> (
    naga::Handle<GlobalVariable>,
    naga::Handle<GlobalVariable>,
    String,
) {
    let word = type_of(module, TypeInner::Scalar(Scalar::U32));
    let array = TypeInner::Array {
        base: word,
        size: ArraySize::Dynamic,
        stride: 4,
    };
    let array = type_of(module, array);
    let mut add = |name: &str, space, binding, ty| {
        let name = unique_name(module, name);
        let variable = GlobalVariable {
            name: Some(name.clone()),
            space,
            binding,
            ty,
            init: None,
            memory_decorations: MemoryDecorations::empty(),
        };
        let handle = module.global_variables.append(variable, Span::UNDEFINED);
        (handle, name)
    };
    let access = StorageAccess::LOAD | StorageAccess::STORE;
    let space = AddressSpace::Storage { access };
    let (words, _) = add("tombolo_scratch", space, Some(binding), array);
    let (first, name) = add("tombolo_scratch_first", AddressSpace::Private, None, word);
    (words, first, name)
}

/// Has entry point `entry` begin by finding the first word of the invocation.
pub(crate) fn enter(module: &mut Module, entry: usize, facts: &SpillFacts) {
    let found = (module.global_variables.iter())
        .find(|(_, v)| v.name.as_deref() == Some(facts.first.as_str()))
        .map(|(handle, _)| handle);
    let Some(first) = found else {
        // No function has use for scratch memory.
        return;
    };
    let mut point = module.entry_points.swap_remove(entry);
    let arguments = &mut point.function.arguments;
    let [local, group, groups] = [
        BuiltIn::LocalInvocationId,
        BuiltIn::WorkGroupId,
        BuiltIn::NumWorkGroups,
    ]
    .map(|wanted| built_in(module, arguments, wanted));
    let size = point.workgroup_size;
    let expressions = &mut point.function.expressions;
    let mut add = |expression| expressions.append(expression, Span::UNDEFINED);
    let word = |value| Expression::Literal(Literal::U32(value));
    let extents = [add(word(size[0])), add(word(size[1]))];
    let words = add(word((facts.group_bytes() / 4) as u32));
    let given = [local, group, groups].map(|(index, _)| add(Expression::FunctionArgument(index)));
    let pointer = add(Expression::GlobalVariable(first));
    let before = expressions.len();
    let mut add = |expression| expressions.append(expression, Span::UNDEFINED);
    let mut vectors = given;
    for (vector, (_, member)) in vectors.iter_mut().zip([local, group, groups]) {
        if let Some(index) = member {
            let base = *vector;
            *vector = add(Expression::AccessIndex { base, index });
        }
    }
    let mut component = |vector: usize, index: u32| {
        let base = vectors[vector];
        expressions.append(Expression::AccessIndex { base, index }, Span::UNDEFINED)
    };
    let lane: [_; 3] = [0, 1, 2].map(|axis| component(0, axis));
    let number: [_; 3] = [0, 1, 2].map(|axis| component(1, axis));
    let counts: [_; 2] = [0, 1].map(|axis| component(2, axis));
    let mut binary = |op, left, right| {
        expressions.append(Expression::Binary { op, left, right }, Span::UNDEFINED)
    };
    let mut linear = |at: [_; 3], extents: [_; 2]| {
        let plane = binary(BinaryOperator::Multiply, at[2], extents[1]);
        let row = binary(BinaryOperator::Add, plane, at[1]);
        let row = binary(BinaryOperator::Multiply, row, extents[0]);
        binary(BinaryOperator::Add, row, at[0])
    };
    let lane = linear(lane, extents);
    let number = linear(number, counts);
    let start = binary(BinaryOperator::Multiply, number, words);
    let value = binary(BinaryOperator::Add, start, lane);
    let emitted = point.function.expressions.range_from(before);
    let begin = vec![
        Statement::Emit(emitted),
        Statement::Store { pointer, value },
    ];
    prepend(&mut point.function, begin, Span::UNDEFINED);
    module.entry_points.push(point);
}
