//! The memory layout of WGSL types, for reflection and for the check of Rust values in launches.
//! Sizes, strides and alignments are those of the WGSL specification, "Memory Layout".

use std::fmt;

use naga::{ArraySize, Handle, Module, Scalar, Type, TypeInner};

/// How a WGSL type lies in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeLayout {
    /// The type as WGSL writes it.
    pub wgsl: String,
    /// Bytes of a value; for a type ending in a runtime-sized array, with a single element.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// What the type is made of.
    pub shape: Shape,
    /// The scalar of vectors and matrices, and of a scalar itself: of no atomic. The name of a type does not tell,
    /// where it is an alias.
    pub(crate) scalar: Option<Scalar>,
}

/// What a type is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// A scalar, an atomic or a vector of them: no gaps inside.
    Plain,
    /// A matrix: `columns` vectors at a distance of `stride` bytes, each of `column_bytes`.
    Matrix {
        /// Number of columns.
        columns: u32,
        /// Bytes from one column to the next.
        stride: u32,
        /// Bytes of one column without padding.
        column_bytes: u32,
    },
    /// An array.
    Array {
        /// The element type.
        element: Box<TypeLayout>,
        /// Bytes from one element to the next.
        stride: u32,
        /// Number of elements; `None` when the binding's size decides.
        count: Option<u32>,
    },
    /// A structure.
    Struct {
        /// Its members, in order.
        members: Vec<MemberLayout>,
    },
    /// A type that has no host-shareable layout (textures, samplers).
    Opaque,
}

/// One member of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberLayout {
    /// The member's name.
    pub name: String,
    /// Bytes from the start of the structure.
    pub offset: u32,
    /// The member's own layout.
    pub layout: TypeLayout,
}

impl TypeLayout {
    /// Reads the layout of a type out of a module.
    pub(crate) fn of(module: &Module, handle: Handle<Type>) -> Self {
        let ty = &module.types[handle];
        let context = module.to_ctx();
        let (size, align, shape) = match &ty.inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                let bytes = u32::from(scalar.width);
                (bytes, bytes, Shape::Plain)
            }
            TypeInner::Vector { size, scalar } => {
                let bytes = u32::from(scalar.width);
                let lanes = *size as u32;
                let align = bytes * if lanes == 3 { 4 } else { lanes };
                (bytes * lanes, align, Shape::Plain)
            }
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => {
                let bytes = u32::from(scalar.width);
                let lanes = *rows as u32;
                let stride = bytes * if lanes == 3 { 4 } else { lanes };
                let columns = *columns as u32;
                let shape = Shape::Matrix {
                    columns,
                    stride,
                    column_bytes: bytes * lanes,
                };
                (stride * columns, stride, shape)
            }
            TypeInner::Array { base, size, stride } => {
                let element = Self::of(module, *base);
                let count = match size {
                    ArraySize::Constant(count) => Some(count.get()),
                    ArraySize::Pending(_) | ArraySize::Dynamic => None,
                };
                let align = element.align;
                let shape = Shape::Array {
                    element: Box::new(element),
                    stride: *stride,
                    count,
                };
                (stride.saturating_mul(count.unwrap_or(1)), align, shape)
            }
            TypeInner::Struct { members, span } => {
                let members: Vec<MemberLayout> = members
                    .iter()
                    .enumerate()
                    .map(|(index, member)| MemberLayout {
                        name: member.name.clone().unwrap_or_else(|| index.to_string()),
                        offset: member.offset,
                        layout: Self::of(module, member.ty),
                    })
                    .collect();
                let align = members.iter().map(|m| m.layout.align).max().unwrap_or(1);
                (*span, align, Shape::Struct { members })
            }
            other => (other.size(context), 1, Shape::Opaque),
        };
        let scalar = match &ty.inner {
            TypeInner::Scalar(scalar)
            | TypeInner::Vector { scalar, .. }
            | TypeInner::Matrix { scalar, .. } => Some(*scalar),
            _ => None,
        };
        Self {
            wgsl: name_of(module, handle),
            size,
            align,
            shape,
            scalar,
        }
    }

    /// True when every byte of a value belongs to some scalar: the value may then be seen as a plain
    /// sequence of smaller values.
    pub fn is_dense(&self) -> bool {
        match &self.shape {
            Shape::Plain => true,
            Shape::Matrix {
                stride,
                column_bytes,
                ..
            } => stride == column_bytes,
            Shape::Array {
                element, stride, ..
            } => element.is_dense() && *stride == element.size,
            Shape::Struct { members } => {
                let mut at = 0;
                for member in members {
                    if member.offset != at || !member.layout.is_dense() {
                        return false;
                    }
                    at += member.layout.size;
                }
                at == self.size
            }
            Shape::Opaque => false,
        }
    }

    /// Bytes from one element to the next, for arrays; the size otherwise.
    pub fn stride(&self) -> u32 {
        match &self.shape {
            Shape::Array { stride, .. } => *stride,
            _ => self.size,
        }
    }

    /// True when the type is, or ends in, a runtime-sized array.
    pub fn is_unsized(&self) -> bool {
        match &self.shape {
            Shape::Array { count, element, .. } => count.is_none() || element.is_unsized(),
            Shape::Struct { members } => members.last().is_some_and(|m| m.layout.is_unsized()),
            _ => false,
        }
    }

    /// Where padding lies, in words, for error messages; empty when there is none.
    pub(crate) fn padding_note(&self) -> String {
        let gaps = |members: &[MemberLayout], end: u32| {
            let mut notes = Vec::new();
            let mut at = 0;
            for member in members {
                if member.offset > at {
                    notes.push(format!(
                        "{} bytes before `{}`",
                        member.offset - at,
                        member.name
                    ));
                }
                at = member.offset + member.layout.size;
            }
            if end > at {
                notes.push(format!("{} bytes at the end", end - at));
            }
            notes
        };
        let element = match &self.shape {
            Shape::Array { element, .. } => element,
            _ => self,
        };
        let notes = match &element.shape {
            Shape::Struct { members } => gaps(members, element.size),
            _ if self.stride() > element.size => {
                vec![format!(
                    "{} bytes after each `{}`",
                    self.stride() - element.size,
                    element.wgsl
                )]
            }
            Shape::Matrix {
                stride,
                column_bytes,
                ..
            } if stride > column_bytes => {
                vec![format!("{} bytes after each column", stride - column_bytes)]
            }
            _ => Vec::new(),
        };
        if notes.is_empty() {
            String::new()
        } else {
            format!(" (WGSL pads: {})", notes.join(", "))
        }
    }
}

impl fmt::Display for TypeLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.wgsl)?;
        match &self.shape {
            Shape::Opaque => Ok(()),
            _ => write!(f, " ({} bytes, align {})", self.size, self.align),
        }
    }
}

/// The type as WGSL writes it.
fn name_of(module: &Module, handle: Handle<Type>) -> String {
    let ty = &module.types[handle];
    if let Some(name) = &ty.name {
        return name.clone();
    }
    let scalar = |scalar: &naga::Scalar| {
        let kind = match scalar.kind {
            naga::ScalarKind::Sint | naga::ScalarKind::AbstractInt => "i",
            naga::ScalarKind::Uint => "u",
            naga::ScalarKind::Float | naga::ScalarKind::AbstractFloat => "f",
            naga::ScalarKind::Bool => return "bool".to_string(),
        };
        format!("{kind}{}", u32::from(scalar.width) * 8)
    };
    match &ty.inner {
        TypeInner::Scalar(s) => scalar(s),
        TypeInner::Atomic(s) => format!("atomic<{}>", scalar(s)),
        TypeInner::Vector { size, scalar: s } => format!("vec{}<{}>", *size as u32, scalar(s)),
        TypeInner::Matrix {
            columns,
            rows,
            scalar: s,
        } => format!("mat{}x{}<{}>", *columns as u32, *rows as u32, scalar(s)),
        TypeInner::Array { base, size, .. } => match size {
            ArraySize::Constant(count) => format!("array<{}, {count}>", name_of(module, *base)),
            _ => format!("array<{}>", name_of(module, *base)),
        },
        TypeInner::Struct { .. } => "struct".to_string(),
        TypeInner::Image { .. } => "texture".to_string(),
        TypeInner::Sampler { .. } => "sampler".to_string(),
        TypeInner::BindingArray { base, .. } => {
            format!("binding_array<{}>", name_of(module, *base))
        }
        TypeInner::AccelerationStructure { .. } => "acceleration_structure".to_string(),
        _ => "?".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(source: &str, variable: &str) -> TypeLayout {
        let module = naga::front::wgsl::parse_str(source).unwrap();
        let (_, global) = module
            .global_variables
            .iter()
            .find(|(_, g)| g.name.as_deref() == Some(variable))
            .unwrap();
        TypeLayout::of(&module, global.ty)
    }

    #[test]
    fn vec3_arrays_have_gaps() {
        let l = layout(
            "@group(0) @binding(0) var<storage> a: array<vec3<f32>>;",
            "a",
        );
        assert_eq!((l.size, l.stride(), l.align), (16, 16, 16));
        assert!(!l.is_dense());
        assert!(l.is_unsized());
        assert!(l.padding_note().contains("4 bytes after each `vec3<f32>`"));
    }

    #[test]
    fn a_scalar_fills_the_gap_behind_a_vec3() {
        let l = layout(
            "struct P { at: vec3<f32>, mass: f32 } @group(0) @binding(0) var<storage> a: array<P>;",
            "a",
        );
        assert_eq!((l.stride(), l.align), (16, 16));
        assert!(l.is_dense());
        assert_eq!(l.wgsl, "array<P>");
    }

    #[test]
    fn gaps_are_named() {
        let l = layout(
            "struct P { a: f32, b: vec2<f32>, c: f32 } @group(0) @binding(0) var<uniform> p: P;",
            "p",
        );
        assert_eq!(l.size, 24);
        assert_eq!(
            l.padding_note(),
            " (WGSL pads: 4 bytes before `b`, 4 bytes at the end)"
        );
    }

    #[test]
    fn matrices_with_three_rows_have_gaps() {
        let l = layout("@group(0) @binding(0) var<uniform> m: mat3x3<f32>;", "m");
        assert_eq!((l.size, l.align), (48, 16));
        assert!(!l.is_dense());
        let l = layout("@group(0) @binding(0) var<uniform> m: mat3x2<f32>;", "m");
        assert_eq!((l.size, l.align), (24, 8));
        assert!(l.is_dense());
    }

    #[test]
    fn a_trailing_runtime_array_counts_once() {
        let l = layout(
            "struct L { n: atomic<u32>, items: array<vec2<u32>> } @group(0) @binding(0) var<storage, read_write> l: L;",
            "l",
        );
        assert_eq!(l.size, 16);
        assert!(l.is_unsized() && !l.is_dense());
    }
}
