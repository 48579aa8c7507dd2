//! Types behind a pointer: parts, offsets, and whether the type can lie there at all.

use naga::proc::{Layouter, TypeResolution};
use naga::valid::Capabilities;
use naga::{
    AddressSpace, ArraySize, Handle, Module, Scalar, ScalarKind, StorageAccess, Type, TypeInner,
    UniqueArena,
};

use super::atomics::is_integer;
use super::options::PointerErrorKind;

/// A type that need not be in the module: naga has no handles for the parts of vectors and matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::kernel::passes) enum Ty {
    Handle(Handle<Type>),
    Scalar(Scalar),
    Vector(u32, Scalar),
}

/// The parts of a type.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel::passes) enum Shape {
    Scalar(Scalar),
    Atomic(Scalar),
    Vector {
        count: u32,
        scalar: Scalar,
    },
    Matrix {
        columns: u32,
        rows: u32,
        scalar: Scalar,
    },
    Array {
        base: Handle<Type>,
        count: Option<u32>,
        stride: u32,
    },
    /// Type and offset of each member.
    Struct(Vec<(Handle<Type>, u32)>),
    Other,
}

/// Alignment in bytes of a vector (or, for one component, a scalar): WGSL, "Alignment and Size".
pub(super) fn vector_align(count: u32, scalar: Scalar) -> u32 {
    u32::from(scalar.width) * count.next_power_of_two()
}

impl Ty {
    pub fn shape(self, types: &UniqueArena<Type>) -> Shape {
        let handle = match self {
            Self::Scalar(scalar) => return Shape::Scalar(scalar),
            Self::Vector(count, scalar) => return Shape::Vector { count, scalar },
            Self::Handle(handle) => handle,
        };
        match &types[handle].inner {
            TypeInner::Scalar(scalar) => Shape::Scalar(*scalar),
            TypeInner::Atomic(scalar) => Shape::Atomic(*scalar),
            TypeInner::Vector { size, scalar } => Shape::Vector {
                count: *size as u32,
                scalar: *scalar,
            },
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => Shape::Matrix {
                columns: *columns as u32,
                rows: *rows as u32,
                scalar: *scalar,
            },
            TypeInner::Array { base, size, stride } => Shape::Array {
                base: *base,
                count: match size {
                    ArraySize::Constant(count) => Some(count.get()),
                    ArraySize::Pending(_) | ArraySize::Dynamic => None,
                },
                stride: *stride,
            },
            TypeInner::Struct { members, .. } => {
                Shape::Struct(members.iter().map(|m| (m.ty, m.offset)).collect())
            }
            _ => Shape::Other,
        }
    }

    /// The type as WGSL writes it.
    pub fn name(self, types: &UniqueArena<Type>) -> String {
        let scalar_name = |scalar: Scalar| {
            let kind = match scalar.kind {
                ScalarKind::Sint | ScalarKind::AbstractInt => "i",
                ScalarKind::Uint => "u",
                ScalarKind::Float | ScalarKind::AbstractFloat => "f",
                ScalarKind::Bool => return "bool".to_owned(),
            };
            format!("{kind}{}", u32::from(scalar.width) * 8)
        };
        match self {
            Self::Scalar(scalar) => scalar_name(scalar),
            Self::Vector(count, scalar) => format!("vec{count}<{}>", scalar_name(scalar)),
            Self::Handle(handle) => match (&types[handle].name, self.shape(types)) {
                (Some(name), _) => name.clone(),
                (None, Shape::Scalar(scalar)) => scalar_name(scalar),
                (None, Shape::Atomic(scalar)) => format!("atomic<{}>", scalar_name(scalar)),
                (None, Shape::Vector { count, scalar }) => Self::Vector(count, scalar).name(types),
                (
                    None,
                    Shape::Matrix {
                        columns,
                        rows,
                        scalar,
                    },
                ) => format!("mat{columns}x{rows}<{}>", scalar_name(scalar)),
                (None, Shape::Array { base, count, .. }) => {
                    let base = Self::Handle(base).name(types);
                    match count {
                        Some(count) => format!("array<{base}, {count}>"),
                        None => format!("array<{base}>"),
                    }
                }
                (None, Shape::Struct(_)) => "struct".to_owned(),
                (None, Shape::Other) => "a type without layout".to_owned(),
            },
        }
    }
}

/// The pointee of a pointer into the storage space.
pub(super) fn storage_pointee(inner: &TypeInner) -> Option<Ty> {
    match *inner {
        TypeInner::Pointer {
            base,
            space: AddressSpace::Storage { .. },
        } => Some(Ty::Handle(base)),
        TypeInner::ValuePointer {
            size,
            scalar,
            space: AddressSpace::Storage { .. },
        } => Some(match size {
            Some(size) => Ty::Vector(size as u32, scalar),
            None => Ty::Scalar(scalar),
        }),
        _ => None,
    }
}

/// Whether a pointer into the storage space allows writing.
pub(super) fn is_writable(inner: &TypeInner) -> bool {
    match *inner {
        TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => {
            matches!(space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE))
        }
        _ => false,
    }
}

/// The same for the type of an expression.
pub(super) fn resolved_pointee(
    resolution: &TypeResolution,
    types: &UniqueArena<Type>,
) -> Option<Ty> {
    storage_pointee(resolution.inner_with(types))
}

/// Alignment and size of types.
pub(super) struct Layouts(Layouter);

impl Layouts {
    pub fn new(module: &Module) -> Result<Self, PointerErrorKind> {
        let mut layouter = Layouter::default();
        layouter
            .update(module.to_ctx())
            .map_err(|error| PointerErrorKind::Type(error.to_string()))?;
        Ok(Self(layouter))
    }

    /// Alignment in bytes.
    pub fn align(&self, ty: Ty) -> u32 {
        match ty {
            Ty::Scalar(scalar) => u32::from(scalar.width),
            Ty::Vector(count, scalar) => vector_align(count, scalar),
            Ty::Handle(handle) => self.0[handle].alignment * 1u32,
        }
    }

    /// Bytes of the type that must lie in the heap: for a type ending in a runtime-sized array, the part in front of
    /// the array.
    pub fn fixed_size(&self, ty: Ty, types: &UniqueArena<Type>) -> u32 {
        match (ty, ty.shape(types)) {
            (_, Shape::Array { count: None, .. }) => 0,
            (_, Shape::Struct(members)) if is_unsized(ty, types) => {
                members.last().map_or(0, |(_, offset)| *offset)
            }
            (Ty::Scalar(scalar), _) => u32::from(scalar.width),
            (Ty::Vector(count, scalar), _) => count * u32::from(scalar.width),
            (Ty::Handle(handle), _) => self.0[handle].size,
        }
    }
}

/// Whether the type is, or ends in, a runtime-sized array.
pub(super) fn is_unsized(ty: Ty, types: &UniqueArena<Type>) -> bool {
    match ty.shape(types) {
        Shape::Array { count, .. } => count.is_none(),
        Shape::Struct(members) => members
            .last()
            .is_some_and(|(last, _)| is_unsized(Ty::Handle(*last), types)),
        _ => false,
    }
}

/// Checks that everything in `ty` can lie in shared memory on a device with `capabilities`.
pub(super) fn check_shareable(
    module: &Module,
    ty: Ty,
    capabilities: Capabilities,
) -> Result<(), PointerErrorKind> {
    check_part(module, ty, capabilities, &ty.name(&module.types))
}

fn check_part(
    module: &Module,
    ty: Ty,
    capabilities: Capabilities,
    place: &str,
) -> Result<(), PointerErrorKind> {
    let refuse = |why: &str| {
        Err(PointerErrorKind::UnsupportedType {
            place: place.to_owned(),
            ty: ty.name(&module.types),
            why: why.to_owned(),
        })
    };
    let scalar = |scalar: Scalar| match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => {
            refuse("bool has no layout in memory that host and device agree on; use u32")
        }
        (_, 4) => Ok(()),
        (ScalarKind::Float, 2) if capabilities.contains(Capabilities::SHADER_FLOAT16) => Ok(()),
        (ScalarKind::Float, 2) => {
            refuse("this device has no f16; use f32, or keep halves in u32 with pack2x16float")
        }
        (ScalarKind::Float, 8)
            if capabilities.contains(Capabilities::FLOAT64 | Capabilities::SHADER_INT64) =>
        {
            Ok(())
        }
        (ScalarKind::Float, 8) => {
            refuse("this device has no f64 or no 64-bit integers; use f32, or keep it as vec2<u32>")
        }
        (_, 8) if capabilities.contains(Capabilities::SHADER_INT64) => Ok(()),
        (_, 8) => refuse("this device has no 64-bit integers; use vec2<u32>"),
        _ => refuse("values of this width are not moved through pointers; use a 32-bit type"),
    };
    match ty.shape(&module.types) {
        Shape::Scalar(s) | Shape::Vector { scalar: s, .. } | Shape::Matrix { scalar: s, .. } => {
            scalar(s)
        }
        // Devices without atomics of 64 bits are told apart beforehand (`kernel::atomics64`).
        Shape::Atomic(s) if is_integer(s) => Ok(()),
        Shape::Atomic(_) => refuse(
            "atomics behind pointers are u32, i32, u64 or i64; use these, with a loop of atomicCompareExchangeWeak for \
             others",
        ),
        Shape::Array { base, .. } => check_part(
            module,
            Ty::Handle(base),
            capabilities,
            &format!("{place}[_]"),
        ),
        Shape::Struct(members) => {
            let names = match ty {
                Ty::Handle(handle) => match &module.types[handle].inner {
                    TypeInner::Struct { members, .. } => members.as_slice(),
                    _ => &[],
                },
                _ => &[],
            };
            members.iter().zip(names).try_for_each(|((ty, _), member)| {
                let name = member.name.as_deref().unwrap_or("_");
                check_part(
                    module,
                    Ty::Handle(*ty),
                    capabilities,
                    &format!("{place}.{name}"),
                )
            })
        }
        Shape::Other => refuse("it has no layout in memory"),
    }
}
