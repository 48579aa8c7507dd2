//! Scalars of every type that naga's WGSL has, and what can be asked of one without arithmetic.

use core::fmt;

use half::f16;
use naga::ScalarKind;

/// A scalar of a concrete WGSL type, or of naga's extensions of WGSL (64-bit and 16-bit types).
#[derive(Clone, Copy)]
pub enum Scalar {
    Bool(bool),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    F16(f16),
    F32(f32),
    F64(f64),
}

impl Scalar {
    /// The type of the scalar.
    pub fn ty(self) -> naga::Scalar {
        match self {
            Scalar::Bool(_) => naga::Scalar::BOOL,
            Scalar::I16(_) => naga::Scalar::I16,
            Scalar::U16(_) => naga::Scalar::U16,
            Scalar::I32(_) => naga::Scalar::I32,
            Scalar::U32(_) => naga::Scalar::U32,
            Scalar::I64(_) => naga::Scalar::I64,
            Scalar::U64(_) => naga::Scalar::U64,
            Scalar::F16(_) => naga::Scalar::F16,
            Scalar::F32(_) => naga::Scalar::F32,
            Scalar::F64(_) => naga::Scalar::F64,
        }
    }

    /// The bits of the scalar, zero-extended.
    pub fn bits(self) -> u64 {
        match self {
            Scalar::Bool(value) => u64::from(value),
            Scalar::I16(value) => u64::from(value as u16),
            Scalar::U16(value) => u64::from(value),
            Scalar::I32(value) => u64::from(value as u32),
            Scalar::U32(value) => u64::from(value),
            Scalar::I64(value) => value as u64,
            Scalar::U64(value) => value,
            Scalar::F16(value) => u64::from(value.to_bits()),
            Scalar::F32(value) => u64::from(value.to_bits()),
            Scalar::F64(value) => value.to_bits(),
        }
    }

    /// The scalar of a type whose low bits are `bits`. `None` for abstract types, and for widths
    /// that naga does not have.
    pub fn from_bits(ty: naga::Scalar, bits: u64) -> Option<Scalar> {
        Some(match (ty.kind, ty.width) {
            (ScalarKind::Bool, _) => Scalar::Bool(bits & 1 != 0),
            (ScalarKind::Sint, 2) => Scalar::I16(bits as u16 as i16),
            (ScalarKind::Uint, 2) => Scalar::U16(bits as u16),
            (ScalarKind::Sint, 4) => Scalar::I32(bits as u32 as i32),
            (ScalarKind::Uint, 4) => Scalar::U32(bits as u32),
            (ScalarKind::Sint, 8) => Scalar::I64(bits as i64),
            (ScalarKind::Uint, 8) => Scalar::U64(bits),
            (ScalarKind::Float, 2) => Scalar::F16(f16::from_bits(bits as u16)),
            (ScalarKind::Float, 4) => Scalar::F32(f32::from_bits(bits as u32)),
            (ScalarKind::Float, 8) => Scalar::F64(f64::from_bits(bits)),
            _ => return None,
        })
    }

    /// The zero of a type; `None` where the type has no values here.
    pub fn zero(ty: naga::Scalar) -> Option<Scalar> {
        Scalar::from_bits(ty, 0)
    }

    /// The value of an integer; `None` for other kinds.
    pub fn integer(self) -> Option<i128> {
        Some(match self {
            Scalar::I16(value) => value.into(),
            Scalar::U16(value) => value.into(),
            Scalar::I32(value) => value.into(),
            Scalar::U32(value) => value.into(),
            Scalar::I64(value) => value.into(),
            Scalar::U64(value) => value.into(),
            _ => return None,
        })
    }

    /// The integer of a type that is congruent to `value`: what wrapping arithmetic gives. `None`
    /// for types that are no integers.
    pub fn wrapped(ty: naga::Scalar, value: i128) -> Option<Scalar> {
        match ty.kind {
            ScalarKind::Sint | ScalarKind::Uint => Scalar::from_bits(ty, value as u64),
            _ => None,
        }
    }

    /// The value of a floating-point scalar, exactly; `None` for other kinds.
    pub fn float(self) -> Option<f64> {
        Some(match self {
            Scalar::F16(value) => value.to_f64(),
            Scalar::F32(value) => value.into(),
            Scalar::F64(value) => value,
            _ => return None,
        })
    }

    /// The floating-point scalar of a type that is nearest to `value`, ties to even. `None` for
    /// types that are no floating-point types.
    pub fn rounded(ty: naga::Scalar, value: f64) -> Option<Scalar> {
        Some(match (ty.kind, ty.width) {
            (ScalarKind::Float, 2) => Scalar::F16(nearest_f16(value)),
            (ScalarKind::Float, 4) => Scalar::F32(value as f32),
            (ScalarKind::Float, 8) => Scalar::F64(value),
            _ => return None,
        })
    }

    /// The value of a boolean; `None` for other kinds.
    pub fn bool(self) -> Option<bool> {
        match self {
            Scalar::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The value of an index: an integer of 32 bits or less, signed or not.
    pub fn index(self) -> Option<i64> {
        match self {
            Scalar::I32(value) => Some(value.into()),
            Scalar::U32(value) => Some(value.into()),
            Scalar::I16(value) => Some(value.into()),
            Scalar::U16(value) => Some(value.into()),
            _ => None,
        }
    }

    /// True for a floating-point scalar that is not a number.
    pub fn is_nan(self) -> bool {
        self.float().is_some_and(f64::is_nan)
    }
}

/// The `f16` nearest to `value`, ties to even.
///
/// `half`'s own conversion drops the low bits of an `f64` before it rounds, or rounds twice, by way
/// of `f32`; either misses the nearest value now and then. Both are close enough to compare three
/// neighbours exactly.
pub(crate) fn nearest_f16(value: f64) -> f16 {
    // Half way between the largest finite value and the power of two above it.
    const OVERFLOW: f64 = 65520.0;
    if value.is_nan() || value == 0.0 || value.abs() >= OVERFLOW {
        return f16::from_f32(value as f32);
    }
    let guess = f16::from_f64(value.abs()).to_bits().min(f16::MAX.to_bits());
    let distance = |bits: u16| (f16::from_bits(bits).to_f64() - value.abs()).abs();
    let nearest = [
        guess,
        guess.saturating_sub(1),
        (guess + 1).min(f16::MAX.to_bits()),
    ]
    .into_iter()
    .min_by(|&a, &b| {
        distance(a)
            .total_cmp(&distance(b))
            .then((a & 1).cmp(&(b & 1)))
    })
    .unwrap_or(guess);
    f16::from_bits(nearest | if value < 0.0 { 0x8000 } else { 0 })
}

/// Bit for bit: a NaN equals itself, and the zeros differ.
impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.ty() == other.ty() && self.bits() == other.bits()
    }
}

impl Eq for Scalar {}

/// As WGSL would write the value; what WGSL cannot write (infinities, NaN) is shown by its bits.
impl fmt::Display for Scalar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Scalar::Bool(value) => write!(formatter, "{value}"),
            Scalar::I16(value) => write!(formatter, "{value}"),
            Scalar::U16(value) => write!(formatter, "{value}"),
            Scalar::I32(value) => write!(formatter, "{value}i"),
            Scalar::U32(value) => write!(formatter, "{value}u"),
            Scalar::I64(value) => write!(formatter, "{value}li"),
            Scalar::U64(value) => write!(formatter, "{value}lu"),
            Scalar::F16(value) if value.is_finite() => write!(formatter, "{value:?}h"),
            Scalar::F32(value) if value.is_finite() => write!(formatter, "{value:?}f"),
            Scalar::F64(value) if value.is_finite() => write!(formatter, "{value:?}lf"),
            Scalar::F16(value) => write!(formatter, "{value} ({:#06x})", value.to_bits()),
            Scalar::F32(value) => write!(formatter, "{value} ({:#010x})", value.to_bits()),
            Scalar::F64(value) => write!(formatter, "{value} ({:#018x})", value.to_bits()),
        }
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
