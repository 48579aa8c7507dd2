//! Where the scalars of a type lie in memory.
//!
//! Memory seen by the host has naga's layout. Memory seen by kernels only (private and work-group memory, tables) is
//! packed without padding, every scalar in four or eight bytes: booleans have no host layout at all, half floats are
//! held as `f32`, and lanes are interleaved by the size of a scalar.

use naga::{Handle, Scalar, ScalarKind, TypeInner, VectorSize, proc::Alignment};

use super::{
    error::{CompileError, Result, internal, unsupported},
    ir::Type,
};

/// The most scalars in a value taken apart. Larger values stay in memory.
pub(crate) const MAX_SCALARS: u64 = 128;

/// The most bytes in a variable of a kernel.
const MAX_BYTES: u64 = 1 << 31;

/// A type of a module, or a part of a type without a handle there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ty {
    Handle(Handle<naga::Type>),
    Scalar(Scalar),
    Vector(VectorSize, Scalar),
    /// Columns, rows
    Matrix(VectorSize, VectorSize, Scalar),
}

/// The elements of a composite.
pub(crate) struct Element {
    pub(crate) ty: Ty,
    pub(crate) offset: u32,
}

/// Equal elements of a composite.
pub(crate) struct Elements {
    pub(crate) ty: Ty,
    pub(crate) stride: u32,
    /// `None` for an array whose size the buffer decides
    pub(crate) count: Option<u32>,
}

/// The choice between the two layouts of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Host,
    Own,
}

impl Space {
    fn scalar_bytes(self, ty: Type) -> u32 {
        match self {
            Space::Host => ty.host_bytes(),
            Space::Own => ty.own_bytes(),
        }
    }
}

/// Layouts of the types of a module.
#[derive(Clone, Copy)]
pub(crate) struct Layouts<'a> {
    pub(crate) module: &'a naga::Module,
}

/// The type of a scalar in lane programs.
pub(crate) fn scalar(scalar: Scalar) -> Result<Type> {
    Ok(match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => Type::Bool,
        (ScalarKind::Sint | ScalarKind::Uint, 4) => Type::I32,
        (ScalarKind::Sint | ScalarKind::Uint, 8) => Type::I64,
        (ScalarKind::Float, 2) => Type::F16,
        (ScalarKind::Float, 4) => Type::F32,
        (ScalarKind::Float, 8) => Type::F64,
        (kind, width) => return Err(unsupported(format!("{kind:?} of {width} bytes"))),
    })
}

impl<'a> Layouts<'a> {
    /// A type by its structure. Parts without a handle become types of their own.
    pub(crate) fn inner(&self, ty: Ty) -> std::borrow::Cow<'a, TypeInner> {
        use std::borrow::Cow;
        match ty {
            Ty::Handle(handle) => Cow::Borrowed(&self.module.types[handle].inner),
            Ty::Scalar(scalar) => Cow::Owned(TypeInner::Scalar(scalar)),
            Ty::Vector(size, scalar) => Cow::Owned(TypeInner::Vector { size, scalar }),
            Ty::Matrix(columns, rows, scalar) => Cow::Owned(TypeInner::Matrix {
                columns,
                rows,
                scalar,
            }),
        }
    }

    /// The scalar type of a number, a vector, a matrix or an atomic.
    pub(crate) fn scalar_of(&self, ty: Ty) -> Result<Scalar> {
        match *self.inner(ty) {
            TypeInner::Scalar(scalar)
            | TypeInner::Atomic(scalar)
            | TypeInner::Vector { scalar, .. }
            | TypeInner::Matrix { scalar, .. } => Ok(scalar),
            ref other => Err(internal(format!("a number was expected, not {other:?}"))),
        }
    }

    /// The equal elements of a vector, a matrix or an array.
    pub(crate) fn elements(&self, ty: Ty, space: Space) -> Result<Elements> {
        Ok(match *self.inner(ty) {
            TypeInner::Vector { size, scalar: s } => Elements {
                ty: Ty::Scalar(s),
                stride: space.scalar_bytes(scalar(s)?),
                count: Some(size as u32),
            },
            TypeInner::Matrix {
                columns,
                rows,
                scalar: s,
            } => {
                let bytes = space.scalar_bytes(scalar(s)?);
                let stride = match space {
                    Space::Host => Alignment::from(rows) * bytes,
                    Space::Own => rows as u32 * bytes,
                };
                Elements {
                    ty: Ty::Vector(rows, s),
                    stride,
                    count: Some(columns as u32),
                }
            }
            TypeInner::Array { base, size, stride } => Elements {
                ty: Ty::Handle(base),
                stride: match space {
                    Space::Host => stride,
                    Space::Own => self.bytes(Ty::Handle(base), space)?,
                },
                count: array_count(self.module, size)?,
            },
            ref other => return Err(internal(format!("elements of {other:?}"))),
        })
    }

    /// A member of a structure, or an element by a constant index.
    pub(crate) fn element(&self, ty: Ty, index: u32, space: Space) -> Result<Element> {
        if let TypeInner::Struct { ref members, .. } = *self.inner(ty) {
            let member = members
                .get(index as usize)
                .ok_or_else(|| internal("a member that the structure does not have"))?;
            let mut offset = member.offset;
            if space == Space::Own {
                offset = 0;
                for before in &members[..index as usize] {
                    offset = self.sum(offset, self.bytes(Ty::Handle(before.ty), space)?)?;
                }
            }
            return Ok(Element {
                ty: Ty::Handle(member.ty),
                offset,
            });
        }
        let elements = self.elements(ty, space)?;
        Ok(Element {
            ty: elements.ty,
            offset: elements
                .stride
                .checked_mul(index)
                .ok_or_else(|| self.too_large(u64::from(elements.stride) * u64::from(index)))?,
        })
    }

    /// Bytes of a type; of a type with a run-time sized array, the bytes with one element of the array.
    pub(crate) fn bytes(&self, ty: Ty, space: Space) -> Result<u32> {
        Ok(match *self.inner(ty) {
            TypeInner::Scalar(s) | TypeInner::Atomic(s) => space.scalar_bytes(scalar(s)?),
            TypeInner::Struct { ref members, span } => match space {
                Space::Host => span,
                Space::Own => members.iter().try_fold(0, |sum, member| {
                    self.sum(sum, self.bytes(Ty::Handle(member.ty), space)?)
                })?,
            },
            TypeInner::Vector { .. } | TypeInner::Matrix { .. } | TypeInner::Array { .. } => {
                let elements = self.elements(ty, space)?;
                let bytes =
                    u64::from(elements.stride) * u64::from(elements.count.unwrap_or(1).max(1));
                if bytes > MAX_BYTES {
                    return Err(self.too_large(bytes));
                }
                bytes as u32
            }
            ref other => return Err(unsupported(format!("memory that holds {other:?}"))),
        })
    }

    fn sum(&self, a: u32, b: u32) -> Result<u32> {
        let sum = u64::from(a) + u64::from(b);
        if sum > MAX_BYTES {
            return Err(self.too_large(sum));
        }
        Ok(sum as u32)
    }

    fn too_large(&self, needed: u64) -> CompileError {
        CompileError::TooLarge {
            what: "a type".into(),
            needed,
            limit: MAX_BYTES,
            remedy: "keep so much data in a storage buffer with a run-time sized array",
        }
    }

    /// How many scalars a value of a type has.
    pub(crate) fn scalars(&self, ty: Ty) -> Result<u64> {
        Ok(match *self.inner(ty) {
            TypeInner::Scalar(_) | TypeInner::Atomic(_) => 1,
            TypeInner::Vector { size, .. } => size as u64,
            TypeInner::Matrix { columns, rows, .. } => columns as u64 * rows as u64,
            TypeInner::Array { base, size, .. } => {
                let count = array_count(self.module, size)?.ok_or_else(unsized_value)?;
                self.scalars(Ty::Handle(base))?.saturating_mul(count.into())
            }
            TypeInner::Struct { ref members, .. } => {
                members.iter().try_fold(0u64, |sum, member| {
                    Ok(sum.saturating_add(self.scalars(Ty::Handle(member.ty))?))
                })?
            }
            ref other => return Err(unsupported(format!("a value of {other:?}"))),
        })
    }

    /// Calls `f` with the offset and the type of each scalar of a value, in order.
    pub(crate) fn leaves(&self, ty: Ty, space: Space) -> Result<Vec<(u32, Type)>> {
        let mut leaves = Vec::new();
        self.collect(ty, space, 0, &mut leaves)?;
        Ok(leaves)
    }

    fn collect(
        &self,
        ty: Ty,
        space: Space,
        offset: u32,
        leaves: &mut Vec<(u32, Type)>,
    ) -> Result<()> {
        match *self.inner(ty) {
            TypeInner::Scalar(s) | TypeInner::Atomic(s) => leaves.push((offset, scalar(s)?)),
            TypeInner::Struct { ref members, .. } => {
                for index in 0..members.len() as u32 {
                    let element = self.element(ty, index, space)?;
                    self.collect(element.ty, space, offset + element.offset, leaves)?;
                }
            }
            _ => {
                let elements = self.elements(ty, space)?;
                for index in 0..elements.count.ok_or_else(unsized_value)? {
                    self.collect(elements.ty, space, offset + index * elements.stride, leaves)?;
                }
            }
        }
        Ok(())
    }

    /// Where the elements of a run-time sized array begin in a buffer of this type, and their stride.
    pub(crate) fn run_time_array(&self, ty: Ty) -> Result<Option<(u32, u32)>> {
        Ok(match *self.inner(ty) {
            TypeInner::Array {
                size: naga::ArraySize::Dynamic,
                stride,
                ..
            } => Some((0, stride)),
            TypeInner::Struct { ref members, .. } => match members.last() {
                Some(last) => self
                    .run_time_array(Ty::Handle(last.ty))?
                    .map(|(offset, stride)| (last.offset + offset, stride)),
                None => None,
            },
            _ => None,
        })
    }
}

/// Elements of an array; `None` if the buffer decides. naga leaves the sizes of arrays in work-group memory as overrides, whose
/// values are in the module once the pipeline's constants are.
pub(crate) fn array_count(module: &naga::Module, size: naga::ArraySize) -> Result<Option<u32>> {
    match size.resolve(module.to_ctx()) {
        Ok(naga::proc::IndexableLength::Known(count)) => Ok(Some(count)),
        Ok(naga::proc::IndexableLength::Dynamic) => Ok(None),
        Err(error) => Err(CompileError::Constants(error.to_string())),
    }
}

fn unsized_value() -> CompileError {
    internal("a run-time sized array as a value")
}
