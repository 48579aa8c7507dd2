//! Layout of types in scratch memory, and which types are kept there.
//!
//! Scratch memory belongs to one invocation and is read by nobody else, so its layout is free: every scalar of up to
//! 32 bits takes one word, wider ones take two, and nothing is padded. An `f16` lies there as the `f32` of equal value.

use naga::proc::Layouter;
use naga::{Handle, Module, Scalar, Type, UniqueArena};

use crate::kernel::passes::pointers::{Shape, Ty};

/// Sizes of the types of a module.
pub(super) struct Layout {
    layouter: Layouter,
    /// Types that contain an array and have at least so many bytes are kept in scratch memory.
    threshold: u32,
}

impl Layout {
    /// `None` for a module with types that have no layout, which the validator refuses.
    pub fn new(module: &Module, threshold: u32) -> Option<Self> {
        let mut layouter = Layouter::default();
        layouter.update(module.to_ctx()).ok()?;
        Some(Self {
            layouter,
            threshold,
        })
    }

    /// Whether variables and values of a type lie in scratch memory. A type that contains such a type is one itself.
    pub fn in_memory(&self, types: &UniqueArena<Type>, ty: Handle<Type>) -> bool {
        has_array(types, ty) && self.bytes(ty) >= self.threshold
    }

    /// The same for parts of types.
    pub fn keeps(&self, types: &UniqueArena<Type>, ty: Ty) -> bool {
        match ty {
            Ty::Handle(handle) => self.in_memory(types, handle),
            Ty::Scalar(_) | Ty::Vector(..) => false,
        }
    }

    /// Bytes of a type by the rules of WGSL.
    pub fn bytes(&self, ty: Handle<Type>) -> u32 {
        self.layouter[ty].size
    }
}

/// Whether the type is, or contains, an array of a size known here.
pub(super) fn has_array(types: &UniqueArena<Type>, ty: Handle<Type>) -> bool {
    match Ty::Handle(ty).shape(types) {
        Shape::Array { count, .. } => count.is_some(),
        Shape::Struct(members) => members.iter().any(|(ty, _)| has_array(types, *ty)),
        _ => false,
    }
}

/// Words of a scalar.
pub(super) fn scalar_words(scalar: Scalar) -> u32 {
    u32::from(scalar.width).div_ceil(4)
}

/// Words of a type, at most the largest number.
pub(super) fn words(types: &UniqueArena<Type>, ty: Ty) -> u32 {
    match ty.shape(types) {
        Shape::Scalar(scalar) | Shape::Atomic(scalar) => scalar_words(scalar),
        Shape::Vector { count, scalar } => count * scalar_words(scalar),
        Shape::Matrix {
            columns,
            rows,
            scalar,
        } => columns * rows * scalar_words(scalar),
        Shape::Array { base, count, .. } => {
            words(types, Ty::Handle(base)).saturating_mul(count.unwrap_or(0))
        }
        Shape::Struct(members) => (members.iter()).fold(0, |sum: u32, (ty, _)| {
            sum.saturating_add(words(types, Ty::Handle(*ty)))
        }),
        Shape::Other => 0,
    }
}

/// The part of a type at a constant index, and the words in front of the part.
pub(super) fn part(types: &UniqueArena<Type>, ty: Ty, index: u32) -> Option<(Ty, u32)> {
    match ty.shape(types) {
        Shape::Struct(members) => {
            let (wanted, _) = *members.get(index as usize)?;
            let before = members.iter().take(index as usize);
            let before = before.fold(0u32, |sum, (ty, _)| {
                sum.saturating_add(words(types, Ty::Handle(*ty)))
            });
            Some((Ty::Handle(wanted), before))
        }
        _ => {
            let (element, _) = element(types, ty)?;
            Some((element, index.saturating_mul(words(types, element))))
        }
    }
}

/// The type of the elements of an array, a matrix or a vector, and their number.
pub(super) fn element(types: &UniqueArena<Type>, ty: Ty) -> Option<(Ty, u32)> {
    match ty.shape(types) {
        Shape::Array {
            base,
            count: Some(count),
            ..
        } => Some((Ty::Handle(base), count)),
        Shape::Matrix {
            columns,
            rows,
            scalar,
        } => Some((Ty::Vector(rows, scalar), columns)),
        Shape::Vector { count, scalar } => Some((Ty::Scalar(scalar), count)),
        _ => None,
    }
}
