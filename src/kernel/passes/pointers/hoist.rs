//! Hoisting: one translation for several accesses of a pointee of fixed size.
//!
//! *How it works.*
//!
//! 1. A scan of each function finds the pointers with more than one access of a pointee: by several accesses, or by one
//!    in a loop younger than the pointer ([`find`]). Members, and elements of arrays with a length, belong to the
//!    pointee of the pointer leading to them.
//! 2. Where branches are passed over ([`Hoists::First`]), such a pointer gets a variable for a translation, empty where
//!    the pointer is made. An access with an empty variable is translated as always, and fills the variable if the
//!    whole pointee lies in one page and may be touched (`shaders/system_once.wgsl`). Later accesses add their distance
//!    to the kept translation.
//! 3. Where both sides of a branch are executed ([`Hoists::Pages`]), the page at the pointee's beginning, and the page
//!    behind, are looked up where the pointer is made, with a bit for each word open to access
//!    (`shaders/system_pages.wgsl`). Accesses choose between both by their distance. An access without a translation
//!    has no other way, so elements belong to the pointee only if their index is known to be below the length, and
//!    pointees have at most as many words as there are bits.
//! 4. So only accesses of the kernel are posted, waited for or reported, and a pointee over a border of pages, or lent
//!    in part, is reached as if nothing were kept.
//!
//! A kept translation is good for as long as the page stays in its frame: until the launch ends, unless the host takes
//! frames away meanwhile. There a written page stays, and behind a load the place of the page is looked at again
//! (`shaders/system_once_evict.wgsl`), as behind any other load. Barriers and calls change nothing: only places of
//! words are kept, and never the words.

use std::collections::{BTreeMap, BTreeSet};

use naga::{
    BinaryOperator as Op, Block, Expression, Function, Handle, Module, ScalarKind, Statement,
};

use super::builder::{Builder, Value};
use super::options::Hoists;
use super::place::{Base, Place};
use super::scan::FunctionScan;
use super::shape::{Layouts, Shape};
use crate::kernel::passes::blocks::inner;
use crate::kernel::passes::code::Emitter;
use crate::kernel::passes::range::Ranges;

/// Bytes of a page.
const PAGE: u32 = 4096;

/// Beyond every pointee: the distance of a missing element.
const BEYOND: u32 = 1 << 31;

/// Bytes of a pointee with a bit for each word.
const TOLD_APART: u32 = 128;

/// The pointee of a pointer for which a translation is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Extent {
    /// The size of the pointee, or of the part in front of an array without a length.
    pub bytes: u32,
    pub align: u32,
    /// Whether any access through the pointer writes.
    pub is_written: bool,
}

/// The pointers of a function with a kept translation.
#[derive(Default)]
pub(super) struct Hoisted {
    /// The pointers, each with the pointee.
    pub extents: BTreeMap<Handle<Expression>, Extent>,
    /// Pointers to elements of another pointer's pointee.
    pub parts: BTreeSet<Handle<Expression>>,
}

/// The translation kept for the pointee of a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Where the translation is kept.
    pub keeper: Keeper,
    extent: Extent,
    /// Bytes from the pointee's beginning to the place's base, where an index decides.
    distance: Option<Value>,
    /// Bytes from the base of the pointer's place to the pointee's beginning.
    begins: u32,
}

/// The keeper of a translation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keeper {
    /// The variable with the first access's translation.
    First(Value),
    /// What is known of the pointee's pages.
    Pages(Value),
}

/// The pointers of `function` with a kept translation.
pub(super) fn find(
    module: &Module,
    function: &Function,
    scan: &FunctionScan,
    layouts: &Layouts,
    hoists: Hoists,
) -> Hoisted {
    let mut uses = Uses {
        module,
        function,
        scan,
        keepers: BTreeMap::new(),
        found: BTreeMap::new(),
        ranges: (hoists == Hoists::Pages).then(|| Ranges::new(module, function)),
    };
    let mut parts = BTreeSet::new();
    for (handle, pointer) in &scan.pointers {
        let parent = match function.expressions[*handle] {
            Expression::AccessIndex { base, .. } => uses.keepers.get(&base).copied(),
            Expression::Access { base, index } if uses.has_part(base, index) => {
                uses.keepers.get(&base).copied()
            }
            Expression::GlobalVariable(_) => continue,
            _ => None,
        };
        let is_made = !matches!(
            function.expressions[*handle],
            Expression::AccessIndex { .. }
        );
        let extent = Extent {
            bytes: layouts.fixed_size(pointer.pointee, &module.types),
            align: layouts.align(pointer.pointee),
            is_written: false,
        };
        if let Some(parent) = parent {
            uses.keepers.insert(*handle, parent);
            if is_made {
                parts.insert(*handle);
            }
        } else if is_made && extent.is_kept(hoists) {
            uses.keepers.insert(*handle, *handle);
            uses.found.insert(*handle, Count::of(extent));
        }
    }
    uses.block(&function.body, 0);
    let Uses { found, keepers, .. } = uses;
    let extents: BTreeMap<_, _> = (found.into_iter())
        .filter(|(_, count)| count.accesses > 1)
        .map(|(handle, count)| (handle, count.extent))
        .collect();
    parts.retain(|part| (keepers.get(part)).is_some_and(|keeper| extents.contains_key(keeper)));
    Hoisted { extents, parts }
}

impl Extent {
    /// Whether a translation can be kept for the whole pointee.
    fn is_kept(self, hoists: Hoists) -> bool {
        let most = match hoists {
            Hoists::Nothing => 0,
            Hoists::First => PAGE,
            Hoists::Pages => TOLD_APART,
        };
        self.align >= 4 && self.bytes > 0 && self.bytes <= most && self.bytes.is_multiple_of(4)
    }
}

/// What is known of the accesses of a pointee.
struct Count {
    extent: Extent,
    /// Loops around the place where the pointer is made.
    depth: u32,
    /// Accesses: those in further loops count twice.
    accesses: u32,
}

impl Count {
    fn of(extent: Extent) -> Self {
        Self {
            extent,
            depth: 0,
            accesses: 0,
        }
    }
}

/// The accesses of a function.
struct Uses<'a> {
    module: &'a Module,
    function: &'a Function,
    scan: &'a FunctionScan,
    /// The pointer whose translation serves each pointer.
    keepers: BTreeMap<Handle<Expression>, Handle<Expression>>,
    found: BTreeMap<Handle<Expression>, Count>,
    /// Where an index has to be known to be below the number of parts.
    ranges: Option<Ranges<'a>>,
}

impl Uses<'_> {
    /// Whether the part of a pointer's pointee at `index` belongs to the pointee.
    fn has_part(&self, pointer: Handle<Expression>, index: Handle<Expression>) -> bool {
        let pointee = self.scan.pointers.get(&pointer).map(|p| p.pointee);
        let count = pointee.and_then(|ty| parts(ty.shape(&self.module.types)));
        let kind = match self.scan.signed.contains(&index) {
            true => ScalarKind::Sint,
            false => ScalarKind::Uint,
        };
        match (&self.ranges, count) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(ranges), Some(count)) => {
                ranges.most(index, kind).is_some_and(|most| most < count)
            }
        }
    }

    fn block(&mut self, block: &Block, depth: u32) {
        for statement in block {
            match statement {
                Statement::Emit(range) => {
                    for handle in range.clone() {
                        self.made(handle, depth);
                        if let Expression::Load { pointer } = self.function.expressions[handle] {
                            self.access(pointer, depth, false);
                        }
                    }
                }
                Statement::Call {
                    result: Some(result),
                    ..
                } => self.made(*result, depth),
                Statement::Store { pointer, .. } | Statement::Atomic { pointer, .. } => {
                    self.access(*pointer, depth, true);
                }
                _ => {}
            }
            let depth = depth + u32::from(matches!(statement, Statement::Loop { .. }));
            for one in inner(statement) {
                self.block(one.block, depth);
            }
        }
    }

    fn made(&mut self, handle: Handle<Expression>, depth: u32) {
        if let Some(count) = self.found.get_mut(&handle) {
            count.depth = depth;
        }
    }

    fn access(&mut self, pointer: Handle<Expression>, depth: u32, writes: bool) {
        let types = &self.module.types;
        let keeper = self.keepers.get(&pointer);
        let Some(count) = keeper.and_then(|keeper| self.found.get_mut(keeper)) else {
            return;
        };
        let in_parts = match self
            .scan
            .pointers
            .get(&pointer)
            .map(|p| p.pointee.shape(types))
        {
            Some(Shape::Scalar(_) | Shape::Atomic(_)) => false,
            // A vector of words is found at once.
            Some(Shape::Vector { scalar, .. }) => scalar.width != 4,
            _ => true,
        };
        count.extent.is_written |= writes;
        count.accesses += 1 + u32::from(in_parts || depth > count.depth);
    }
}

/// How many parts an index tells apart.
pub(super) fn parts(shape: Shape) -> Option<u32> {
    match shape {
        Shape::Array { count, .. } => count,
        Shape::Vector { count, .. } => Some(count),
        Shape::Matrix { columns, .. } => Some(columns),
        _ => None,
    }
}

impl Builder<'_> {
    /// The place of a new pointer; a translation of the pointee is kept from now on.
    pub fn keeping(&mut self, place: Place, extent: Extent) -> Place {
        let keeper = match place.base {
            Base::Address(low, high) if self.looks_up_pages() => {
                self.pages_of((low, high), place.constant, extent.is_written)
            }
            _ => None,
        };
        let keeper = keeper.map_or_else(
            || {
                let variable = self.local(self.heap.types.vec3);
                let nothing = self.zero(self.heap.types.vec3);
                self.store(variable, nothing);
                Keeper::First(variable)
            },
            Keeper::Pages,
        );
        let kept = Kept {
            keeper,
            extent,
            distance: None,
            begins: place.constant,
        };
        Place {
            kept: Some(kept),
            ..place
        }
    }

    /// The place `index` parts of `stride` bytes, of `count` parts, behind the place `of`, with what is kept there.
    pub fn kept_behind(
        &mut self,
        of: &Place,
        place: Place,
        (index, stride, count): (Value, u32, u32),
    ) -> Place {
        let Some(kept) = of.kept else {
            return place;
        };
        let mut distance = self.times(index, stride);
        if let Some(before) = kept.distance {
            distance = self.binary(Op::Add, before, distance);
        }
        if let Keeper::First(_) = kept.keeper {
            let is_there = self.with(Op::Less, index, count);
            let beyond = self.word(BEYOND);
            distance = self.select(is_there, distance, beyond);
        }
        let distance = Some(distance);
        Place {
            kept: Some(Kept { distance, ..kept }),
            ..place
        }
    }

    /// Bytes from the pointee's beginning to `at` bytes behind the place's base.
    pub fn within(&mut self, kept: &Kept, at: u32) -> Value {
        let at = at.wrapping_sub(kept.begins);
        match kept.distance {
            Some(distance) => self.plus(distance, at),
            None => self.word(at),
        }
    }

    /// What an access `at` bytes behind a place's base, with these arguments, is to know of the translation in
    /// `variable`.
    pub fn kept_arguments(
        &mut self,
        (kept, variable): (&Kept, Value),
        at: u32,
        arguments: &mut Vec<Value>,
    ) {
        let within = self.within(kept, at);
        let (bytes, align) = (self.word(kept.extent.bytes), self.word(kept.extent.align));
        let before = self.load(variable);
        arguments.extend([within, bytes, align, before]);
    }

    /// The same for the word around a half, beginning `odd` bytes, 0 or 2, in front of the half `at` bytes behind the
    /// place's base.
    pub fn kept_around(&mut self, kept: Option<Kept>, at: u32, odd: Value) -> Option<Kept> {
        let kept = kept?;
        let within = self.within(&kept, at);
        let distance = Some(self.binary(Op::Subtract, within, odd));
        Some(Kept {
            distance,
            begins: 0,
            ..kept
        })
    }
}
