//! Conversions between scalar types, and reinterpretation of bits.

use naga::ScalarKind;

use crate::value::{Scalar, Value};

/// naga's `As`: a conversion to `kind` of `width` bytes, or a reinterpretation of the bits where no
/// width is given. `None` where WGSL has no such conversion.
pub fn convert(value: &Value, kind: ScalarKind, width: Option<naga::Bytes>) -> Option<Value> {
    let one = |scalar: Scalar| match width {
        Some(width) => convert_scalar(scalar, naga::Scalar { kind, width }),
        None => reinterpret(scalar, kind),
    };
    match value {
        Value::Matrix(columns) => {
            let columns = columns.iter().map(|column| column.map(one));
            columns.collect::<Option<_>>().map(Value::Matrix)
        }
        _ => value.map(one),
    }
}

fn reinterpret(scalar: Scalar, kind: ScalarKind) -> Option<Scalar> {
    let width = scalar.ty().width;
    Scalar::from_bits(naga::Scalar { kind, width }, scalar.bits())
}

/// Converts a scalar as WGSL's value constructors do.
pub fn convert_scalar(scalar: Scalar, to: naga::Scalar) -> Option<Scalar> {
    let from = scalar.ty().kind;
    match (from, to.kind) {
        (ScalarKind::Bool, ScalarKind::Bool) => Some(scalar),
        (ScalarKind::Bool, ScalarKind::Float) => {
            Scalar::rounded(to, f64::from(u8::from(scalar.bool()?)))
        }
        (ScalarKind::Bool, _) => Scalar::wrapped(to, i128::from(scalar.bool()?)),
        (ScalarKind::Float, ScalarKind::Bool) => Some(Scalar::Bool(scalar.float()? != 0.0)),
        (_, ScalarKind::Bool) => Some(Scalar::Bool(scalar.integer()? != 0)),
        (ScalarKind::Float, ScalarKind::Float) => Scalar::rounded(to, scalar.float()?),
        (ScalarKind::Float, _) => float_to_integer(scalar, to),
        (_, ScalarKind::Float) => integer_to_float(scalar.integer()?, to),
        _ => Scalar::wrapped(to, scalar.integer()?),
    }
}

/// The largest finite value of an `f16`.
const LARGEST_F16: i128 = 65504;

/// Towards zero, clamped to the values of the target that the source type can represent. A NaN
/// gives zero, where WGSL leaves the value open.
fn float_to_integer(scalar: Scalar, to: naga::Scalar) -> Option<Scalar> {
    let value = scalar.float()?;
    if value.is_nan() {
        return Scalar::zero(to);
    }
    let (low, high) = integer_range(to)?;
    // The integers of an `f16` end before those of most types; those of an `f32` and an `f64` do not.
    let (low, high) = match scalar {
        Scalar::F16(_) => (low.max(-LARGEST_F16), high.min(LARGEST_F16)),
        _ => (low, high),
    };
    // The clamped value is exact: magnitudes up to 2^64 fit an `i128`, and larger ones are clamped.
    let truncated = value.trunc().clamp(-2f64.powi(100), 2f64.powi(100)) as i128;
    let digits = significand(scalar.ty())?;
    Scalar::wrapped(
        to,
        truncated.clamp(representable(low, digits), representable(high, digits)),
    )
}

/// The lowest and the highest value of an integer type.
pub fn integer_range(ty: naga::Scalar) -> Option<(i128, i128)> {
    let bits = u32::from(ty.width) * 8;
    match ty.kind {
        ScalarKind::Sint => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        ScalarKind::Uint => Some((0, (1 << bits) - 1)),
        _ => None,
    }
}

/// Digits of the significand of a floating-point type, the hidden one included.
fn significand(ty: naga::Scalar) -> Option<u32> {
    match ty.width {
        2 => Some(11),
        4 => Some(24),
        8 => Some(53),
        _ => None,
    }
}

/// The integer nearest to `value`, towards zero, that has at most `digits` significant digits.
fn representable(value: i128, digits: u32) -> i128 {
    let surplus = (128 - value.unsigned_abs().leading_zeros()).saturating_sub(digits);
    (value.unsigned_abs() >> surplus << surplus) as i128 * value.signum()
}

/// Rounded once, to nearest even.
fn integer_to_float(value: i128, to: naga::Scalar) -> Option<Scalar> {
    match to.width {
        // Out of an `f16`'s range long before an `f64` has to round.
        2 => Scalar::rounded(to, value as f64),
        4 => Some(Scalar::F32(value as f32)),
        8 => Some(Scalar::F64(value as f64)),
        _ => None,
    }
}
