//! The scalars of values in the words of a port: where WGSL lays each scalar, and the expressions between scalars and
//! words.
//!
//! A scalar of 32 bits is a word. A scalar of 64 bits is two words, the low word first, as in the host's memory. Two halves
//! share a word where WGSL lays both there; a half alone leaves the rest of the word zero. Expressions for halves go through
//! `f32`, wide enough for every half: naga's `bitcast` keeps the width of scalars, and makes no word of two halves.

use std::collections::BTreeSet;
use std::fmt::Write;

use naga::valid::Capabilities;
use naga::{Scalar, ScalarKind};

use crate::kernel::layout::{Shape, TypeLayout};

/// The most words of a function's arguments or result: each is a line of the kernel.
const MOST_WORDS: usize = 1024;

/// A scalar travelling in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LeafScalar {
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
    F16,
}

impl LeafScalar {
    /// Every such scalar.
    pub const ALL: [Self; 7] = [
        Self::U32,
        Self::I32,
        Self::F32,
        Self::U64,
        Self::I64,
        Self::F64,
        Self::F16,
    ];

    /// The leaf for a scalar of naga, if any.
    pub fn of(scalar: Scalar) -> Option<Self> {
        match (scalar.kind, scalar.width) {
            (ScalarKind::Uint, 4) => Some(Self::U32),
            (ScalarKind::Sint, 4) => Some(Self::I32),
            (ScalarKind::Float, 4) => Some(Self::F32),
            (ScalarKind::Uint, 8) => Some(Self::U64),
            (ScalarKind::Sint, 8) => Some(Self::I64),
            (ScalarKind::Float, 8) => Some(Self::F64),
            (ScalarKind::Float, 2) => Some(Self::F16),
            _ => None,
        }
    }

    /// The leaf that a Rust type is by the compiler's name for it, or that its elements are.
    pub fn of_rust(type_name: &str) -> Option<Self> {
        let inner = type_name.trim_start_matches('[');
        let inner = inner.split(';').next().unwrap_or(inner);
        Self::ALL.into_iter().find(|scalar| match scalar {
            Self::F16 => inner == std::any::type_name::<half::f16>(),
            other => inner == other.name(),
        })
    }

    /// The name in WGSL, and in Rust.
    pub fn name(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::F16 => "f16",
        }
    }

    /// Bytes of the scalar.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The needs of the scalar on a device: `f64` also goes through `u64`.
    fn needs(self) -> Capabilities {
        match self {
            Self::U32 | Self::I32 | Self::F32 => Capabilities::empty(),
            Self::U64 | Self::I64 => Capabilities::SHADER_INT64,
            Self::F64 => Capabilities::FLOAT64 | Capabilities::SHADER_INT64,
            Self::F16 => Capabilities::SHADER_FLOAT16,
        }
    }

    /// The advice for devices without the scalar.
    fn instead(self) -> &'static str {
        match self {
            Self::F16 => {
                "the device has no `f16` (Aspect::Fp16): hand over `f32`, or two halves in a `u32` (unpack2x16float)"
            }
            Self::F64 => {
                "the device has no `f64`, or no 64-bit integers, as whose words an `f64` travels (Aspect::Fp64, \
                 Aspect::Int64): hand over `f32`, or the words as `vec2<u32>`"
            }
            _ => {
                "the device has no 64-bit integers (Aspect::Int64): hand over `vec2<u32>`, the low word first"
            }
        }
    }

    /// Why the value `what` of this type does not travel on a device with these capabilities; nothing where the device
    /// has all scalars of the type.
    pub fn refusal(what: &str, layout: &TypeLayout, capabilities: Capabilities) -> Option<String> {
        let mut scalars = BTreeSet::new();
        scalars_of(layout, &mut scalars);
        let scalar = (scalars.into_iter()).find(|one| !capabilities.contains(one.needs()))?;
        let ty = match layout.wgsl == scalar.name() {
            true => format!("`{}`", scalar.name()),
            false => format!("`{}` with `{}`", layout.wgsl, scalar.name()),
        };
        Some(format!("{what} is a {ty}: {}", scalar.instead()))
    }
}

/// The scalars inside a type.
fn scalars_of(layout: &TypeLayout, found: &mut BTreeSet<LeafScalar>) {
    found.extend(layout.scalar.and_then(LeafScalar::of));
    match &layout.shape {
        Shape::Array { element, .. } => scalars_of(element, found),
        Shape::Struct { members } => {
            for member in members {
                scalars_of(&member.layout, found);
            }
        }
        Shape::Plain | Shape::Matrix { .. } | Shape::Opaque => {}
    }
}

/// A scalar of a value: path, bytes from the value's beginning, and type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub path: String,
    pub offset: usize,
    pub scalar: LeafScalar,
}

impl Leaf {
    /// The first word.
    pub fn word(&self) -> usize {
        self.offset / 4
    }

    /// Whether a half is the upper half of its word.
    fn is_upper(&self) -> bool {
        !self.offset.is_multiple_of(4)
    }

    /// The scalar, with `load` for the expression of a word of the value.
    fn value(&self, load: &impl Fn(usize) -> String) -> String {
        let word = load(self.word());
        let wide = || format!("((u64({}) << 32u) | u64({word}))", load(self.word() + 1));
        match self.scalar {
            LeafScalar::U32 => word,
            LeafScalar::I32 | LeafScalar::F32 => {
                format!("bitcast<{}>({word})", self.scalar.name())
            }
            LeafScalar::U64 => wide(),
            LeafScalar::I64 | LeafScalar::F64 => {
                format!("bitcast<{}>({})", self.scalar.name(), wide())
            }
            LeafScalar::F16 => {
                let half = if self.is_upper() { "y" } else { "x" };
                format!("f16(unpack2x16float({word}).{half})")
            }
        }
    }
}

/// The scalars of a value, or why the value does not travel.
pub(crate) fn leaves(
    layout: &TypeLayout,
    path: &str,
    offset: usize,
    found: &mut Vec<Leaf>,
) -> Result<(), String> {
    let words = |leaf: &Leaf| leaf.scalar.bytes().div_ceil(4);
    if found.iter().map(words).sum::<usize>() > MOST_WORDS {
        return Err(format!(
            "a `{}` is too long: pass a pointer to it",
            layout.wgsl
        ));
    }
    match &layout.shape {
        Shape::Plain => {
            let scalar = scalar_of(layout)?;
            match layout.size as usize / scalar.bytes() {
                1 => found.push(Leaf {
                    path: path.to_owned(),
                    offset,
                    scalar,
                }),
                lanes => found.extend(vector(path, offset, scalar, lanes)),
            }
        }
        Shape::Matrix {
            columns,
            stride,
            column_bytes,
        } => {
            let scalar = scalar_of(layout)?;
            let lanes = *column_bytes as usize / scalar.bytes();
            for column in 0..*columns as usize {
                let path = format!("{path}[{column}]");
                let offset = offset + column * *stride as usize;
                found.extend(vector(&path, offset, scalar, lanes));
            }
        }
        Shape::Array {
            element,
            stride,
            count: Some(count),
        } => {
            for index in 0..*count as usize {
                let path = format!("{path}[{index}]");
                leaves(element, &path, offset + index * *stride as usize, found)?;
            }
        }
        Shape::Struct { members } => {
            for member in members {
                let path = format!("{path}.{}", member.name);
                let offset = offset + member.offset as usize;
                leaves(&member.layout, &path, offset, found)?;
            }
        }
        Shape::Array { count: None, .. } | Shape::Opaque => {
            return Err(format!(
                "`{}` cannot be handed over: pass a pointer",
                layout.wgsl
            ));
        }
    }
    Ok(())
}

/// The scalar of a plain value or a matrix.
fn scalar_of(layout: &TypeLayout) -> Result<LeafScalar, String> {
    layout.scalar.and_then(LeafScalar::of).ok_or_else(|| {
        let names = LeafScalar::ALL.map(LeafScalar::name);
        format!(
            "`{}` cannot be handed over: use {}",
            layout.wgsl,
            names.join(", ")
        )
    })
}

/// The leaves of a vector.
fn vector(
    path: &str,
    offset: usize,
    scalar: LeafScalar,
    lanes: usize,
) -> impl Iterator<Item = Leaf> {
    let names = ["x", "y", "z", "w"].into_iter().take(lanes).enumerate();
    names.map(move |(lane, name)| Leaf {
        path: format!("{path}.{name}"),
        offset: offset + scalar.bytes() * lane,
        scalar,
    })
}

/// The words of a value, in order, each with the expression of its bits; without words of padding.
pub(crate) fn words_of(leaves: &[Leaf]) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    let mut rest = leaves.iter().peekable();
    while let Some(leaf) = rest.next() {
        let (path, word) = (&leaf.path, leaf.word());
        match leaf.scalar {
            LeafScalar::U32 => words.push((word, path.clone())),
            LeafScalar::I32 | LeafScalar::F32 => {
                words.push((word, format!("bitcast<u32>({path})")))
            }
            LeafScalar::U64 | LeafScalar::I64 | LeafScalar::F64 => {
                let bits = match leaf.scalar {
                    LeafScalar::U64 => path.clone(),
                    _ => format!("bitcast<u64>({path})"),
                };
                words.push((word, format!("u32({bits})")));
                words.push((word + 1, format!("u32({bits} >> 32u)")));
            }
            LeafScalar::F16 => {
                let shares = |next: &&Leaf| next.scalar == LeafScalar::F16 && next.word() == word;
                // Behind padding (`@size(6) a: f16, b: f16`) a half has the upper place alone.
                let [low, high] = match (leaf.is_upper(), rest.next_if(shares)) {
                    (true, _) => ["0.0".to_owned(), format!("f32({path})")],
                    (false, Some(next)) => [path, &next.path].map(|path| format!("f32({path})")),
                    (false, None) => [format!("f32({path})"), "0.0".to_owned()],
                };
                words.push((word, format!("pack2x16float(vec2<f32>({low}, {high}))")));
            }
        }
    }
    words
}

/// The statements giving a value its scalars, with `load` for the expression of a word of the value.
pub(crate) fn loads_of(leaves: &[Leaf], load: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for leaf in leaves {
        let _ = writeln!(text, "{} = {};", leaf.path, leaf.value(&load));
    }
    text
}
