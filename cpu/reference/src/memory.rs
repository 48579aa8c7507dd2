//! How values lie in memory, and pointers into it.
//!
//! Memory is bytes, as on a device: two views of one buffer see each other, and every access has a
//! place and a size that can be watched. The layout is computed here from WGSL's rules, so that it
//! does not share a fault with anybody's layouter.

use core::num::NonZeroU32;

use naga::{AddressSpace, Handle, ScalarKind, TypeInner, VectorSize};

use crate::fault::Fault;
use crate::value::{Scalar, Value, Vector};

/// What a pointer points to. Components of vectors and columns of matrices have no type of their own
/// in a module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pointee {
    Type(Handle<naga::Type>),
    Vector {
        size: VectorSize,
        scalar: naga::Scalar,
    },
    Scalar(naga::Scalar),
}

/// Where a pointer leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// A bound range of a buffer, by its place among the program's bound ranges.
    Buffer(usize),
    /// A variable that the work-group shares.
    WorkGroup(Handle<naga::GlobalVariable>),
    /// A variable of the invocation, or of one of its running functions.
    Invocation(usize),
    /// The bytes that a dispatch hands over beside its resources.
    Immediate,
    /// A `binding_array` of buffers, before one of them is chosen.
    BindingArray(naga::ResourceBinding),
}

/// A place of memory, and whether an access may go there.
#[derive(Clone, Copy, Debug)]
pub struct Pointer {
    pub place: Place,
    pub offset: u64,
    pub pointee: Pointee,
    pub space: AddressSpace,
    /// False where reads give zero and writes do nothing.
    pub valid: bool,
    /// The first index on the way here that was out of range, if any.
    pub out_of_range: Option<OutOfRange>,
}

/// An index that is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    pub index: i64,
    pub length: u64,
}

/// Size and alignment of a type, in bytes. The size of a type that ends in a runtime-sized array is
/// that of what comes before the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub size: u64,
    pub align: u64,
}

/// The layouts of all types of a module whose overrides are known.
#[derive(Clone, Debug)]
pub struct Layouts {
    layouts: Vec<Layout>,
    /// Lengths of arrays; `None` for runtime-sized ones and for types that are no arrays.
    lengths: Vec<Option<u64>>,
    /// Which types are, or end in, a runtime-sized array.
    runtime_sized: Vec<bool>,
}

fn scalar_layout(scalar: naga::Scalar) -> Layout {
    Layout {
        size: scalar.width.into(),
        align: scalar.width.into(),
    }
}

fn vector_layout(size: VectorSize, scalar: naga::Scalar) -> Layout {
    let width = u64::from(scalar.width);
    let aligned = if size == VectorSize::Bi { 2 } else { 4 };
    Layout {
        size: size as u64 * width,
        align: aligned * width,
    }
}

/// Bytes from one column of a matrix to the next.
pub fn column_stride(rows: VectorSize, scalar: naga::Scalar) -> u64 {
    let column = vector_layout(rows, scalar);
    column.size.next_multiple_of(column.align)
}

impl Layouts {
    /// Lays out the types of a module. `overrides` says the value of an override that sizes an array.
    pub fn new(
        module: &naga::Module,
        overrides: impl Fn(Handle<naga::Override>) -> Result<Scalar, Fault>,
    ) -> Result<Layouts, Fault> {
        let mut layouts = Layouts {
            layouts: Vec::with_capacity(module.types.len()),
            lengths: Vec::with_capacity(module.types.len()),
            runtime_sized: Vec::with_capacity(module.types.len()),
        };
        for (_, ty) in module.types.iter() {
            let length = match ty.inner {
                TypeInner::Array { size, .. } | TypeInner::BindingArray { size, .. } => {
                    array_length(size, &overrides)?
                }
                _ => None,
            };
            let layout = layouts.of_inner(&ty.inner, length);
            let runtime_sized = match ty.inner {
                TypeInner::Array { .. } => length.is_none(),
                TypeInner::Struct { ref members, .. } => layouts.ends_runtime_sized(members),
                _ => false,
            };
            layouts.layouts.push(layout);
            layouts.lengths.push(length);
            layouts.runtime_sized.push(runtime_sized);
        }
        Ok(layouts)
    }

    fn of_inner(&self, inner: &TypeInner, length: Option<u64>) -> Layout {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => scalar_layout(scalar),
            TypeInner::Vector { size, scalar } => vector_layout(size, scalar),
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => Layout {
                size: columns as u64 * column_stride(rows, scalar),
                align: vector_layout(rows, scalar).align,
            },
            TypeInner::Array { base, stride, .. } => Layout {
                size: length.unwrap_or(0) * u64::from(stride),
                align: self[base].align,
            },
            TypeInner::Struct { ref members, span } => {
                let align = members.iter().map(|member| self[member.ty].align).max();
                let size = match members.last() {
                    Some(last) if self.ends_runtime_sized(members) => {
                        u64::from(last.offset) + self[last.ty].size
                    }
                    _ => span.into(),
                };
                Layout {
                    size,
                    align: align.unwrap_or(1),
                }
            }
            _ => Layout { size: 0, align: 1 },
        }
    }

    fn ends_runtime_sized(&self, members: &[naga::StructMember]) -> bool {
        members
            .last()
            .is_some_and(|last| self.runtime_sized[last.ty.index()])
    }

    /// The number of elements of an array type; `None` for runtime-sized arrays and other types.
    pub fn length(&self, ty: Handle<naga::Type>) -> Option<u64> {
        self.lengths[ty.index()]
    }
}

impl core::ops::Index<Handle<naga::Type>> for Layouts {
    type Output = Layout;

    fn index(&self, ty: Handle<naga::Type>) -> &Layout {
        &self.layouts[ty.index()]
    }
}

fn array_length(
    size: naga::ArraySize,
    overrides: &impl Fn(Handle<naga::Override>) -> Result<Scalar, Fault>,
) -> Result<Option<u64>, Fault> {
    match size {
        naga::ArraySize::Constant(length) => Ok(Some(NonZeroU32::get(length).into())),
        naga::ArraySize::Dynamic => Ok(None),
        naga::ArraySize::Pending(handle) => match overrides(handle)?.integer() {
            Some(length) if length > 0 && length <= i128::from(u32::MAX) => Ok(Some(length as u64)),
            _ => Err(Fault::Malformed("an array's length is no positive integer")),
        },
    }
}

/// Reads a value of a type from the beginning of `bytes`.
pub fn read(
    module: &naga::Module,
    layouts: &Layouts,
    pointee: Pointee,
    bytes: &[u8],
) -> Result<Value, Fault> {
    let handle = match pointee {
        Pointee::Scalar(scalar) => return read_scalar(scalar, bytes).map(Value::Scalar),
        Pointee::Vector { size, scalar } => {
            return read_vector(size, scalar, bytes).map(Value::Vector);
        }
        Pointee::Type(handle) => handle,
    };
    match module.types[handle].inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
            read_scalar(scalar, bytes).map(Value::Scalar)
        }
        TypeInner::Vector { size, scalar } => read_vector(size, scalar, bytes).map(Value::Vector),
        TypeInner::Matrix {
            columns,
            rows,
            scalar,
        } => (0..columns as u64)
            .map(|column| {
                read_vector(
                    rows,
                    scalar,
                    part(bytes, column * column_stride(rows, scalar)),
                )
            })
            .collect::<Result<_, _>>()
            .map(Value::Matrix),
        TypeInner::Array { base, stride, .. } => {
            let length = layouts
                .length(handle)
                .ok_or(Fault::Malformed("a runtime-sized array is read whole"))?;
            (0..length)
                .map(|index| {
                    read(
                        module,
                        layouts,
                        Pointee::Type(base),
                        part(bytes, index * u64::from(stride)),
                    )
                })
                .collect::<Result<_, _>>()
                .map(Value::Composite)
        }
        TypeInner::Struct { ref members, .. } => members
            .iter()
            .map(|member| {
                read(
                    module,
                    layouts,
                    Pointee::Type(member.ty),
                    part(bytes, member.offset.into()),
                )
            })
            .collect::<Result<_, _>>()
            .map(Value::Composite),
        _ => Err(Fault::Malformed(
            "a value of this type does not lie in memory",
        )),
    }
}

/// Writes a value to the beginning of `bytes`, and nothing to the padding within.
pub fn write(
    module: &naga::Module,
    layouts: &Layouts,
    pointee: Pointee,
    value: &Value,
    bytes: &mut [u8],
) -> Result<(), Fault> {
    for_each_leaf(module, layouts, pointee, 0, &mut |offset, scalar, leaf| {
        let width = usize::from(scalar.width);
        let value = leaf.and_then(|path| leaf_of(value, path)).ok_or(MISMATCH)?;
        let start = usize::try_from(offset).map_err(|_| OUTSIDE)?;
        bytes
            .get_mut(start..start + width)
            .ok_or(OUTSIDE)?
            .copy_from_slice(&value.bits().to_le_bytes()[..width]);
        Ok(())
    })
}

const MISMATCH: Fault = Fault::Malformed("a stored value has another type than its place");
const OUTSIDE: Fault = Fault::Malformed("a place lies outside of its variable");

fn leaf_of(value: &Value, path: &[usize]) -> Option<Scalar> {
    match (value, path) {
        (Value::Scalar(scalar), []) => Some(*scalar),
        (Value::Vector(vector), [index]) => vector.components().get(*index).copied(),
        (Value::Matrix(columns), [column, row]) => {
            columns.get(*column)?.components().get(*row).copied()
        }
        (Value::Composite(parts), [index, rest @ ..]) => leaf_of(parts.get(*index)?, rest),
        _ => None,
    }
}

/// What [`for_each_leaf`] calls: a scalar's offset, its type, and the way to it from the whole.
type Visitor<'a> = &'a mut dyn FnMut(u64, naga::Scalar, Option<&[usize]>) -> Result<(), Fault>;

/// Calls `visit` for each scalar of a place: offset, type, and the way to it from the whole.
pub fn for_each_leaf(
    module: &naga::Module,
    layouts: &Layouts,
    pointee: Pointee,
    offset: u64,
    visit: Visitor<'_>,
) -> Result<(), Fault> {
    let mut walk = Walk {
        module,
        layouts,
        path: Vec::new(),
    };
    walk.leaves(pointee, offset, visit)
}

/// A walk over the scalars of a type.
struct Walk<'a> {
    module: &'a naga::Module,
    layouts: &'a Layouts,
    path: Vec<usize>,
}

impl Walk<'_> {
    fn within(
        &mut self,
        index: usize,
        pointee: Pointee,
        offset: u64,
        visit: Visitor<'_>,
    ) -> Result<(), Fault> {
        self.path.push(index);
        let result = self.leaves(pointee, offset, visit);
        self.path.pop();
        result
    }

    fn leaves(&mut self, pointee: Pointee, offset: u64, visit: Visitor<'_>) -> Result<(), Fault> {
        let handle = match pointee {
            Pointee::Scalar(scalar) => return visit(offset, scalar, Some(&self.path)),
            Pointee::Vector { size, scalar } => {
                for index in 0..size as usize {
                    let offset = offset + index as u64 * u64::from(scalar.width);
                    self.within(index, Pointee::Scalar(scalar), offset, visit)?;
                }
                return Ok(());
            }
            Pointee::Type(handle) => handle,
        };
        match self.module.types[handle].inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                self.leaves(Pointee::Scalar(scalar), offset, visit)
            }
            TypeInner::Vector { size, scalar } => {
                self.leaves(Pointee::Vector { size, scalar }, offset, visit)
            }
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => {
                for column in 0..columns as usize {
                    let offset = offset + column as u64 * column_stride(rows, scalar);
                    self.within(
                        column,
                        Pointee::Vector { size: rows, scalar },
                        offset,
                        visit,
                    )?;
                }
                Ok(())
            }
            TypeInner::Array { base, stride, .. } => {
                let length = self
                    .layouts
                    .length(handle)
                    .ok_or(Fault::Malformed("a runtime-sized array is used whole"))?;
                for index in 0..length {
                    let offset = offset + index * u64::from(stride);
                    self.within(index as usize, Pointee::Type(base), offset, visit)?;
                }
                Ok(())
            }
            TypeInner::Struct { ref members, .. } => {
                for (index, member) in members.iter().enumerate() {
                    let offset = offset + u64::from(member.offset);
                    self.within(index, Pointee::Type(member.ty), offset, visit)?;
                }
                Ok(())
            }
            _ => Err(Fault::Malformed(
                "a value of this type does not lie in memory",
            )),
        }
    }
}

fn part(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| bytes.get(offset..))
        .unwrap_or_default()
}

fn read_scalar(scalar: naga::Scalar, bytes: &[u8]) -> Result<Scalar, Fault> {
    let width = usize::from(scalar.width);
    let mut bits = [0; 8];
    bits[..width].copy_from_slice(bytes.get(..width).ok_or(OUTSIDE)?);
    let bits = u64::from_le_bytes(bits);
    let bits = if scalar.kind == ScalarKind::Bool {
        u64::from(bits != 0)
    } else {
        bits
    };
    Scalar::from_bits(scalar, bits).ok_or(Fault::Malformed(
        "a scalar of an abstract type lies in memory",
    ))
}

fn read_vector(size: VectorSize, scalar: naga::Scalar, bytes: &[u8]) -> Result<Vector, Fault> {
    let first = read_scalar(scalar, bytes)?;
    let mut components = [first; 4];
    for (index, component) in components[..size as usize].iter_mut().enumerate() {
        *component = read_scalar(scalar, part(bytes, index as u64 * u64::from(scalar.width)))?;
    }
    Vector::new(&components[..size as usize]).ok_or(MISMATCH)
}

/// The zero of a type. `lengths` says how many elements an array type has.
pub fn zero(
    module: &naga::Module,
    lengths: &dyn Fn(Handle<naga::Type>) -> Option<u64>,
    ty: Handle<naga::Type>,
) -> Result<Value, Fault> {
    const ABSTRACT: Fault = Fault::Malformed("an abstract type has no zero at run time");
    let scalar_zero = |scalar| Scalar::zero(scalar).ok_or(ABSTRACT);
    Ok(match module.types[ty].inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => scalar_zero(scalar)?.into(),
        TypeInner::Vector { size, scalar } => Vector::splat(size, scalar_zero(scalar)?).into(),
        TypeInner::Matrix {
            columns,
            rows,
            scalar,
        } => {
            Value::Matrix(vec![Vector::splat(rows, scalar_zero(scalar)?); columns as usize].into())
        }
        TypeInner::Array { base, .. } => {
            let length =
                lengths(ty).ok_or(Fault::Malformed("a runtime-sized array has no zero value"))?;
            Value::Composite(vec![zero(module, lengths, base)?; length as usize].into())
        }
        TypeInner::Struct { ref members, .. } => Value::Composite(
            members
                .iter()
                .map(|member| zero(module, lengths, member.ty))
                .collect::<Result<_, _>>()?,
        ),
        _ => return Err(Fault::Malformed("a value of this type has no zero")),
    })
}
