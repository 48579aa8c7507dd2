//! Loads made together: consecutive loads of a node with nothing in between able to change their values. Such loads
//! share a single choice of the binding, and a single test.
//!
//! Pointers only to be followed come first, wherever the kernel reads them: the next node waits for such a pointer, and
//! for nothing else. Where worthwhile ([`super::options::PointerOptions::pointers_apart`]) pointers also have a choice
//! of their own.
//!
//! That order is why a chase through pointers is faster on lavapipe than one through indices into a typed buffer whose
//! kernel reads the value first.

use naga::{Expression, Handle, Scalar, Statement};

use super::place::Place;
use super::reuse::words_of;
use super::rewrite::{Mapped, Outcomes, Rewriter};
use super::scan::{Role, stride};
use super::shape::{Shape, Ty};

/// Words that are loaded together: more would keep many registers busy.
const WORDS_TOGETHER: u32 = 16;

/// A load made with others.
struct Load {
    handle: Handle<Expression>,
    place: Place,
    ty: Ty,
}

impl Rewriter<'_> {
    /// The type of a load through a pointer into the heap.
    fn loaded_type(&self, handle: Handle<Expression>, pointer: Handle<Expression>) -> Option<Ty> {
        match self.is_narrow(handle) {
            true => Some(Ty::Scalar(Scalar::U32)),
            false => self.scan.pointers.get(&pointer).map(|p| p.pointee),
        }
    }

    /// Loads from the heap, and their grouping.
    pub(super) fn load(
        &mut self,
        handle: Handle<Expression>,
        pointer: Handle<Expression>,
    ) -> Outcomes<()> {
        let Some((place, ty)) = (self.place_of(pointer)).zip(self.loaded_type(handle, pointer))
        else {
            return Ok(());
        };
        self.builder.report(&place);
        self.note_shared(pointer, &place);
        let loads = self.together(handle, place);
        if loads.is_empty() {
            let loaded = self.builder.load_value(&place, ty);
            let loaded = loaded.map_err(self.error(self.span_of(handle)))?;
            self.map.insert(handle, Mapped::Value(loaded));
            return Ok(());
        }
        let (mut first, rest): (Vec<_>, Vec<_>) =
            (loads.into_iter()).partition(|load| self.is_narrow(load.handle));
        if self.builder.heap.pointers_apart && place.needs_choice() {
            self.load_at_once(&first);
            self.load_at_once(&rest);
        } else {
            first.extend(rest);
            self.load_at_once(&first);
        }
        Ok(())
    }

    /// Makes loads of a node, with a single choice of the binding.
    fn load_at_once(&mut self, loads: &[Load]) {
        let parts: Vec<_> = loads.iter().map(|load| (load.place, load.ty)).collect();
        let values = self.builder.load_values(&parts);
        for (load, value) in loads.iter().zip(values) {
            self.map.insert(load.handle, Mapped::Value(value));
        }
    }

    /// Whether a pointer value is only followed: its low word alone.
    fn is_narrow(&self, handle: Handle<Expression>) -> bool {
        self.scan.narrow.values.contains(&handle)
    }

    /// The load `first` from `place`, and later loads to be made together with the first. None, if there are no others.
    fn together(&self, first: Handle<Expression>, place: Place) -> Vec<Load> {
        let mut words = 0;
        let mut found = Vec::new();
        let mut take = |load: Option<Load>| {
            if let Some(load) = load
                && let Some(count) = words_of(load.ty, self.builder.types)
                && words + count <= WORDS_TOGETHER
            {
                words += count;
                found.push(load);
            }
        };
        take(self.loaded(first, place));
        let mut begun = false;
        for (statement, is_first) in self.rest.iter().zip((0..).map(|i| i == 0)) {
            match *statement {
                Statement::Emit(ref range) => {
                    for handle in range.clone() {
                        if handle == first {
                            begun = true;
                        } else if begun && !self.map.contains_key(&handle) {
                            take(self.like(handle, &place));
                        }
                    }
                }
                Statement::Store { pointer, .. } if self.is_own(pointer) => {}
                Statement::Call { function, .. }
                    if (self.plan.callees.get(&function)).is_some_and(|c| c.role == Role::Root) => {
                }
                _ => break,
            }
            // The load is made by a later statement: the effects in between are unknown.
            if is_first && !begun {
                break;
            }
        }
        match found.len() {
            0 | 1 => Vec::new(),
            _ => found,
        }
    }

    /// The expression as a load from the node that `place` belongs to.
    fn like(&self, handle: Handle<Expression>, place: &Place) -> Option<Load> {
        let Expression::Load { pointer } = self.old.expressions[handle] else {
            return None;
        };
        let other = self.place_ahead(pointer)?;
        let same = other.base == place.base
            && other.valid == place.valid
            && other.root.selector == place.root.selector
            && other.array.is_none();
        same.then(|| self.loaded(handle, other))?
    }

    fn loaded(&self, handle: Handle<Expression>, place: Place) -> Option<Load> {
        let Expression::Load { pointer } = self.old.expressions[handle] else {
            return None;
        };
        let ty = self.loaded_type(handle, pointer)?;
        Some(Load { handle, place, ty })
    }

    /// The target of a pointer not yet reached, if the pointer is a member of a reached node.
    fn place_ahead(&self, pointer: Handle<Expression>) -> Option<Place> {
        if let Some(place) = self.place_of(pointer) {
            return Some(place);
        }
        let Expression::AccessIndex { base, index } = self.old.expressions[pointer] else {
            return None;
        };
        let place = self.place_ahead(base)?;
        let ty = self.scan.pointers.get(&base)?.pointee;
        match ty.shape(self.builder.types) {
            Shape::Struct(members) => Some(place.member(members.get(index as usize)?.1)),
            Shape::Array { count: None, .. } => None,
            _ => Some(place.member(stride(ty, self.builder.types).wrapping_mul(index))),
        }
    }

    /// Whether a pointer is to a variable of the function itself.
    fn is_own(&self, pointer: Handle<Expression>) -> bool {
        match self.old.expressions[pointer] {
            Expression::LocalVariable(_) => true,
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                self.is_own(base)
            }
            _ => false,
        }
    }
}
