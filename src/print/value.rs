//! Values printed by kernels: types, words, and text.

use std::fmt::Write;

use super::format::{Align, Kind, Spec};

/// The types of printed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarType {
    Bool,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

impl ScalarType {
    /// Every type.
    const ALL: [Self; 10] = [
        Self::Bool,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
    ];

    /// Words of a number in a record.
    pub fn words(self) -> usize {
        match self {
            Self::I64 | Self::U64 | Self::F64 => 2,
            _ => 1,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Whether a placeholder of the kind can show the number: whether the Rust type has the trait.
    fn takes(self, kind: Kind) -> bool {
        let is_integer = !matches!(self, Self::Bool | Self::F16 | Self::F32 | Self::F64);
        match kind {
            Kind::Display | Kind::Debug | Kind::DebugLowerHex | Kind::DebugUpperHex => true,
            Kind::LowerHex | Kind::UpperHex | Kind::Octal | Kind::Binary => is_integer,
            Kind::LowerExp | Kind::UpperExp => self != Self::Bool,
            Kind::Pointer => false,
        }
    }
}

/// The types of printed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueType {
    pub scalar: ScalarType,
    /// Rows of a vector or a matrix; 1 for a scalar.
    pub rows: u32,
    /// Columns of a matrix; 1 for everything else.
    pub columns: u32,
}

impl ValueType {
    pub fn words(self) -> usize {
        self.scalar.words() * self.rows as usize * self.columns as usize
    }

    /// As WGSL writes it.
    pub fn name(self) -> String {
        let scalar = self.scalar.name();
        match (self.columns, self.rows) {
            (1, 1) => scalar.to_owned(),
            (1, rows) => format!("vec{rows}<{scalar}>"),
            (columns, rows) => format!("mat{columns}x{rows}<{scalar}>"),
        }
    }

    /// The type as a word, for values that travel with their types; never 0.
    pub fn code(self) -> u32 {
        (self.scalar as u32 + 1) | self.rows << 8 | self.columns << 16
    }

    /// The type of a word, if the word is that of a type.
    pub fn from_code(code: u32) -> Option<Self> {
        let [scalar, rows, columns, rest] = code.to_le_bytes();
        let scalar = ScalarType::ALL.get(usize::from(scalar).checked_sub(1)?)?;
        let sized = (1..=4).contains(&rows) && (1..=4).contains(&columns) && rest == 0;
        sized.then(|| Self {
            scalar: *scalar,
            rows: rows.into(),
            columns: columns.into(),
        })
    }

    fn is_pointer(self) -> bool {
        self.scalar == ScalarType::U32 && self.rows == 2 && self.columns == 1
    }

    /// Why a placeholder cannot show the value; nothing for a showable value.
    pub fn refusal(self, kind: Kind) -> Option<String> {
        let takes = match kind {
            Kind::Pointer => self.is_pointer(),
            kind => self.scalar.takes(kind),
        };
        let wanted = match kind {
            Kind::Pointer => "a usm_ptr",
            Kind::LowerExp | Kind::UpperExp => "numbers",
            _ => "integers",
        };
        (!takes).then(|| {
            let name = self.name();
            format!(
                "`{{:{}}}` shows {wanted}, and the argument is of type {name}",
                kind.text()
            )
        })
    }

    /// Writes the value carried by `words`; missing words count as zero.
    pub fn render(self, words: &[u32], spec: &Spec, out: &mut String) {
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        if spec.kind == Kind::Pointer {
            pointer(u64::from(word(0)) | u64::from(word(1)) << 32, spec, out);
            return;
        }
        let step = self.scalar.words();
        let pretty = spec.alternate && spec.kind.is_debug();
        let scalar = |index: usize, out: &mut String| {
            let at = index * step;
            let bits = match step {
                2 => u64::from(word(at)) | u64::from(word(at + 1)) << 32,
                _ => u64::from(word(at)),
            };
            render_scalar(self.scalar, bits, spec, out);
        };
        let (rows, columns) = (self.rows as usize, self.columns as usize);
        match (columns, rows) {
            (1, 1) => scalar(0, out),
            (1, rows) => list(rows, 0, pretty, out, &mut |row, _, out| scalar(row, out)),
            (columns, rows) => list(columns, 0, pretty, out, &mut |column, depth, out| {
                list(rows, depth, pretty, out, &mut |row, _, out| {
                    scalar(column * rows + row, out);
                });
            }),
        }
    }
}

/// Elements as `Debug` of a Rust array writes them, on a single line or on a line each.
fn list(
    len: usize,
    depth: usize,
    pretty: bool,
    out: &mut String,
    element: &mut dyn FnMut(usize, usize, &mut String),
) {
    out.push('[');
    for index in 0..len {
        match pretty {
            true => {
                out.push('\n');
                out.push_str(&"    ".repeat(depth + 1));
            }
            false if index > 0 => out.push_str(", "),
            false => {}
        }
        element(index, depth + 1, out);
        if pretty {
            out.push(',');
        }
    }
    if pretty {
        out.push('\n');
        out.push_str(&"    ".repeat(depth));
    }
    out.push(']');
}

/// Formats with the flags of `spec` for Rust; width only where zeros fill it, since `format!` takes no fill character
/// at run time.
macro_rules! with_flags {
    ($value:expr, $spec:expr, $width:expr, $kind:literal) => {{
        let (v, s) = ($value, $spec);
        match ((s.sign, s.alternate), ($width, s.precision)) {
            ((false, false), (None, None)) => format!(concat!("{:", $kind, "}"), v),
            ((false, true), (None, None)) => format!(concat!("{:#", $kind, "}"), v),
            ((true, false), (None, None)) => format!(concat!("{:+", $kind, "}"), v),
            ((true, true), (None, None)) => format!(concat!("{:+#", $kind, "}"), v),
            ((false, false), (None, Some(p))) => {
                format!(concat!("{:.p$", $kind, "}"), v, p = usize::from(p))
            }
            ((false, true), (None, Some(p))) => {
                format!(concat!("{:#.p$", $kind, "}"), v, p = usize::from(p))
            }
            ((true, false), (None, Some(p))) => {
                format!(concat!("{:+.p$", $kind, "}"), v, p = usize::from(p))
            }
            ((true, true), (None, Some(p))) => {
                format!(concat!("{:+#.p$", $kind, "}"), v, p = usize::from(p))
            }
            ((false, false), (Some(w), None)) => {
                format!(concat!("{:0w$", $kind, "}"), v, w = usize::from(w))
            }
            ((false, true), (Some(w), None)) => {
                format!(concat!("{:#0w$", $kind, "}"), v, w = usize::from(w))
            }
            ((true, false), (Some(w), None)) => {
                format!(concat!("{:+0w$", $kind, "}"), v, w = usize::from(w))
            }
            ((true, true), (Some(w), None)) => {
                format!(concat!("{:+#0w$", $kind, "}"), v, w = usize::from(w))
            }
            ((false, false), (Some(w), Some(p))) => {
                format!(
                    concat!("{:0w$.p$", $kind, "}"),
                    v,
                    w = usize::from(w),
                    p = usize::from(p)
                )
            }
            ((false, true), (Some(w), Some(p))) => {
                format!(
                    concat!("{:#0w$.p$", $kind, "}"),
                    v,
                    w = usize::from(w),
                    p = usize::from(p)
                )
            }
            ((true, false), (Some(w), Some(p))) => {
                format!(
                    concat!("{:+0w$.p$", $kind, "}"),
                    v,
                    w = usize::from(w),
                    p = usize::from(p)
                )
            }
            ((true, true), (Some(w), Some(p))) => {
                format!(
                    concat!("{:+#0w$.p$", $kind, "}"),
                    v,
                    w = usize::from(w),
                    p = usize::from(p)
                )
            }
        }
    }};
}

macro_rules! debug_kinds {
    ($value:expr, $spec:expr, $width:expr) => {
        match $spec.kind {
            Kind::Debug => with_flags!($value, $spec, $width, "?"),
            Kind::DebugLowerHex => with_flags!($value, $spec, $width, "x?"),
            Kind::DebugUpperHex => with_flags!($value, $spec, $width, "X?"),
            _ => with_flags!($value, $spec, $width, ""),
        }
    };
}

macro_rules! exponent_kinds {
    ($value:expr, $spec:expr, $width:expr) => {
        match $spec.kind {
            Kind::LowerExp => with_flags!($value, $spec, $width, "e"),
            Kind::UpperExp => with_flags!($value, $spec, $width, "E"),
            _ => debug_kinds!($value, $spec, $width),
        }
    };
}

macro_rules! integer_kinds {
    ($value:expr, $spec:expr, $width:expr) => {
        match $spec.kind {
            Kind::LowerHex => with_flags!($value, $spec, $width, "x"),
            Kind::UpperHex => with_flags!($value, $spec, $width, "X"),
            Kind::Octal => with_flags!($value, $spec, $width, "o"),
            Kind::Binary => with_flags!($value, $spec, $width, "b"),
            _ => exponent_kinds!($value, $spec, $width),
        }
    };
}

fn render_scalar(ty: ScalarType, bits: u64, spec: &Spec, out: &mut String) {
    // Most placeholders are plain, and records come by the million.
    let is_plain =
        spec.width.is_none() && !spec.sign && !spec.alternate && spec.precision.is_none();
    if is_plain && spec.kind == Kind::Display {
        let _ = match ty {
            ScalarType::Bool => write!(out, "{}", bits != 0),
            ScalarType::I16 | ScalarType::I32 => write!(out, "{}", bits as i32),
            ScalarType::I64 => write!(out, "{}", bits as i64),
            ScalarType::U16 | ScalarType::U32 | ScalarType::U64 => write!(out, "{bits}"),
            // Halves travel as their value in 32 bits.
            ScalarType::F16 | ScalarType::F32 => write!(out, "{}", f32::from_bits(bits as u32)),
            ScalarType::F64 => write!(out, "{}", f64::from_bits(bits)),
        };
        return;
    }
    let zeros = spec.width.filter(|_| spec.zero);
    let core = match ty {
        ScalarType::Bool => debug_kinds!(bits != 0, spec, None::<u16>),
        ScalarType::I16 => integer_kinds!(bits as i16, spec, zeros),
        ScalarType::I32 => integer_kinds!(bits as i32, spec, zeros),
        ScalarType::I64 => integer_kinds!(bits as i64, spec, zeros),
        ScalarType::U16 => integer_kinds!(bits as u16, spec, zeros),
        ScalarType::U32 => integer_kinds!(bits as u32, spec, zeros),
        ScalarType::U64 => integer_kinds!(bits, spec, zeros),
        ScalarType::F16 | ScalarType::F32 => {
            exponent_kinds!(f32::from_bits(bits as u32), spec, zeros)
        }
        ScalarType::F64 => exponent_kinds!(f64::from_bits(bits), spec, zeros),
    };
    let default = match ty {
        ScalarType::Bool => Align::Left,
        _ => Align::Right,
    };
    pad(&core, spec, default, out);
}

/// An address as Rust shows a pointer.
fn pointer(address: u64, spec: &Spec, out: &mut String) {
    let core = match (spec.alternate, spec.zero, spec.width) {
        (true, _, width) => format!("{address:#0w$x}", w = usize::from(width.unwrap_or(18))),
        (false, true, Some(width)) => format!("{address:#0w$x}", w = usize::from(width)),
        _ => format!("{address:#x}"),
    };
    pad(&core, spec, Align::Right, out);
}

fn pad(core: &str, spec: &Spec, default: Align, out: &mut String) {
    let width = spec.width.map_or(0, usize::from);
    let missing = width.saturating_sub(core.chars().count());
    let before = match spec.align.unwrap_or(default) {
        Align::Left => 0,
        Align::Center => missing / 2,
        Align::Right => missing,
    };
    out.extend(std::iter::repeat_n(spec.fill, before));
    out.push_str(core);
    out.extend(std::iter::repeat_n(spec.fill, missing - before));
}

#[cfg(test)]
mod tests;
