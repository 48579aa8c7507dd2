//! Elements of the heap shared by several loads: a loaded element is not loaded again while nothing could have changed
//! it.
//!
//! A node's members are read at the kernel's own reads, often one behind a branch. Drivers do not merge two loads of
//! the same element where the heap is bound for writing: on an NVIDIA H200 the walk of `examples/octree` took 1.21 of a
//! walk over indices, and takes 1.00 with whole elements. So the first load of an element read again later loads the
//! whole element. Where pointers are read apart, on lavapipe, a load costs by words, and an element has more words than
//! are read: the walk of the bench `peers` (`barnes_hut`) takes 1.2 of its time with whole elements there, and 0.83 on
//! SwiftShader.
//!
//! Within an invocation only the invocation's own statements change memory, except where invocations meet: at a
//! barrier, in an atomic, or in a function with either. Kernels with atomics in storage, or with coherent or volatile
//! memory, reuse nothing.

use std::collections::{HashMap, HashSet};

use naga::{
    AddressSpace, Expression, Function, Handle, Module, Statement, Type, TypeInner, UniqueArena,
};

use super::builder::{Builder, Value};
use super::place::{Base, Place};
use super::rewrite::Rewriter;
use super::scan::{FunctionScan, Role, stride};
use super::shape::{Shape, Ty};

/// The words loaded by a function behind each pointer, counted from the pointee: the first word, and how many.
pub(super) type Words = HashMap<Handle<Expression>, Vec<(u32, u32)>>;

/// The elements loaded by a function.
pub(super) struct Elements {
    /// Elements by array and position, for each open block, with the time of their load.
    loaded: Vec<HashMap<(Value, Value), (Value, u64)>>,
    /// Elements read by several loads, by base and position behind the base.
    shared: HashSet<(Value, u32)>,
    /// Counts possible changes of memory.
    time: u64,
}

impl Default for Elements {
    fn default() -> Self {
        Self {
            loaded: vec![HashMap::new()],
            shared: HashSet::new(),
            time: 0,
        }
    }
}

impl Elements {
    pub fn open(&mut self) {
        self.loaded.push(HashMap::new());
    }

    pub fn close(&mut self) {
        self.loaded.pop();
    }
}

/// Whether others may write the kernel's reads in an order visible to the kernel: the kernel has atomics in storage, or
/// asks for coherent memory.
pub(in crate::kernel) fn may_see_others(module: &Module, but: &[naga::ResourceBinding]) -> bool {
    (module.global_variables.iter())
        .filter(|(_, variable)| matches!(variable.space, AddressSpace::Storage { .. }))
        .filter(|(_, variable)| !(variable.binding).is_some_and(|place| but.contains(&place)))
        .any(|(_, variable)| {
            !variable.memory_decorations.is_empty()
                || has_atomics(&module.types, &module.types[variable.ty])
        })
}

fn has_atomics(types: &UniqueArena<Type>, ty: &Type) -> bool {
    match &ty.inner {
        TypeInner::Atomic(_) => true,
        TypeInner::Array { base, .. } | TypeInner::BindingArray { base, .. } => {
            has_atomics(types, &types[*base])
        }
        TypeInner::Struct { members, .. } => {
            (members.iter()).any(|member| has_atomics(types, &types[member.ty]))
        }
        _ => false,
    }
}

/// The pointer from which `pointer` leads away by members and constant indices alone, and by how many bytes.
fn behind(
    function: &Function,
    scan: &FunctionScan,
    types: &UniqueArena<Type>,
    pointer: Handle<Expression>,
) -> Option<(Handle<Expression>, u32)> {
    let Expression::AccessIndex { base, index } = function.expressions[pointer] else {
        return Some((pointer, 0));
    };
    let (root, offset) = behind(function, scan, types, base)?;
    let ty = scan.pointers.get(&base)?.pointee;
    let step = match ty.shape(types) {
        Shape::Struct(members) => members.get(index as usize)?.1,
        _ => stride(ty, types).wrapping_mul(index),
    };
    Some((root, offset.wrapping_add(step)))
}

/// The words of each pointer of the function.
pub(super) fn words(function: &Function, scan: &FunctionScan, types: &UniqueArena<Type>) -> Words {
    let mut words = Words::new();
    for (handle, expression) in function.expressions.iter() {
        let Expression::Load { pointer } = *expression else {
            continue;
        };
        let Some(target) = scan.pointers.get(&pointer) else {
            continue;
        };
        let count = match scan.narrow.values.contains(&handle) {
            true => Some(1),
            false => words_of(target.pointee, types),
        };
        if let (Some(count), Some((root, offset))) = (count, behind(function, scan, types, pointer))
        {
            words.entry(root).or_default().push((offset / 4, count));
        }
    }
    words
}

/// Words of a scalar or vector of whole words.
pub(super) fn words_of(ty: Ty, types: &UniqueArena<Type>) -> Option<u32> {
    match ty.shape(types) {
        Shape::Scalar(scalar) if scalar.width == 4 => Some(1),
        Shape::Vector { count, scalar } if scalar.width == 4 => Some(count),
        _ => None,
    }
}

impl Rewriter<'_> {
    /// Notes the elements around a place with several loads, where `pointer` leads to the place.
    pub(super) fn note_shared(&mut self, pointer: Handle<Expression>, place: &Place) {
        let Base::Elements(base) = place.base else {
            return;
        };
        let found = behind(self.old, self.scan, self.builder.types, pointer);
        let Some((root, offset)) = found else {
            return;
        };
        // All of the pointer's at its first load.
        let Some(words) = self.words.remove(&root) else {
            return;
        };
        let width = self.builder.heap.words();
        let start = place.constant.wrapping_sub(offset) / 4;
        let mut readers: HashMap<u32, u32> = HashMap::new();
        for (first, count) in words {
            let (first, last) = (start + first, start + first + count - 1);
            for element in first / width..=last / width {
                *readers.entry(element).or_default() += 1;
            }
        }
        let shared = readers.into_iter().filter(|(_, readers)| *readers > 1);
        let elements = &mut self.builder.elements;
        elements
            .shared
            .extend(shared.map(|(element, _)| (base, element)));
    }

    /// Whether memory of the heap may be another behind the statement than in front of it.
    pub(super) fn may_change(&self, statement: &Statement) -> bool {
        match *statement {
            Statement::Emit(_)
            | Statement::Block(_)
            | Statement::If { .. }
            | Statement::Switch { .. }
            | Statement::Break
            | Statement::Continue
            | Statement::Return { .. }
            | Statement::Kill => false,
            // Of other memory: written memory is never bound twice.
            Statement::Store { pointer, .. } => self.place_of(pointer).is_some(),
            Statement::Call { function, .. } => {
                (self.plan.callees.get(&function)).is_none_or(|callee| callee.role == Role::User)
            }
            _ => true,
        }
    }
}

impl Builder<'_> {
    /// Memory may have changed.
    pub fn forget(&mut self) {
        self.elements.time += 1;
    }

    /// Whether another load reads the element `at` behind the base: then the whole element is better loaded.
    pub fn is_shared(&self, place: &Place, at: u32) -> bool {
        let Base::Elements(base) = place.base else {
            return false;
        };
        self.heap.reuses && self.elements.shared.contains(&(base, at))
    }

    /// A loaded element, the same as in memory.
    pub fn kept_element(&self, array: Value, element: Value) -> Option<Value> {
        let key = (array, element);
        let found = (self.elements.loaded.iter().rev()).find_map(|loaded| loaded.get(&key));
        found
            .filter(|(_, time)| *time == self.elements.time)
            .map(|(whole, _)| *whole)
    }

    /// Keeps an element for later loads.
    pub fn keep_element(&mut self, array: Value, element: Value, whole: Value) {
        if !self.heap.reuses {
            return;
        }
        let time = self.elements.time;
        if let Some(loaded) = self.elements.loaded.last_mut() {
            loaded.insert((array, element), (whole, time));
        }
    }
}
