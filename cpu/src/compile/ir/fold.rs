//! Evaluation of operations on constants, and identities that hold for all values.
//!
//! Folding must not change results: floats are computed here by the same IEEE operations as in emitted code, and
//! identities failing for a NaN, an infinity or a negative zero are not used.

use half::f16;

use super::{Binary, Comparison, Conversion, Def, Op, Program, Type, Unary, Value};

/// The result of folding an operation.
pub(crate) enum Folded {
    Constant(u64),
    Same(Value),
}

/// The result of folding `op` of type `ty`, if known.
pub(crate) fn fold(program: &Program, op: Op, ty: Type) -> Option<Folded> {
    let constant = |value| program.constant(value);
    let folded = match op {
        Op::Unary(unary, a) => Folded::Constant(fold_unary(unary, program.ty(a), constant(a)?)),
        Op::Binary(binary, a, b) => match (constant(a), constant(b)) {
            (Some(x), Some(y)) => Folded::Constant(fold_binary(binary, ty, x, y)),
            (x, y) => identity(binary, ty, (a, x), (b, y))?,
        },
        Op::Compare(comparison, a, b) => match (constant(a), constant(b)) {
            (Some(x), Some(y)) => Folded::Constant(compare(comparison, program.ty(a), x, y).into()),
            _ if a == b && !program.ty(a).is_float() => {
                Folded::Constant(compare(comparison, Type::I32, 0, 0).into())
            }
            _ => return None,
        },
        Op::Select {
            condition,
            accept,
            reject,
        } => match constant(condition) {
            Some(0) => Folded::Same(reject),
            Some(_) => Folded::Same(accept),
            None if accept == reject => Folded::Same(accept),
            None => return None,
        },
        Op::Convert(conversion, a) => {
            let from = program.ty(a);
            if from == ty && matches!(conversion, Conversion::Bits | Conversion::Float) {
                Folded::Same(a)
            } else {
                Folded::Constant(convert(conversion, from, ty, constant(a)?))
            }
        }
        Op::MultiplyAdd(a, b, c) => {
            Folded::Constant(multiply_add(ty, constant(a)?, constant(b)?, constant(c)?))
        }
        Op::Const(_) | Op::Builtin(_) | Op::Get(_) | Op::Result | Op::Length(_) => return None,
    };
    Some(folded)
}

fn identity(
    op: Binary,
    ty: Type,
    (a, x): (Value, Option<u64>),
    (b, y): (Value, Option<u64>),
) -> Option<Folded> {
    let ones = mask(ty);
    Some(match (op, x, y) {
        (Binary::Add, Some(0), None) if !ty.is_float() => Folded::Same(b),
        (Binary::Add | Binary::Sub, None, Some(0)) if !ty.is_float() => Folded::Same(a),
        (Binary::Mul, Some(0), None) | (Binary::Mul, None, Some(0)) if !ty.is_float() => {
            Folded::Constant(0)
        }
        (Binary::Mul, Some(1), None) if !ty.is_float() => Folded::Same(b),
        (Binary::Mul | Binary::DivS | Binary::DivU, None, Some(1)) if !ty.is_float() => {
            Folded::Same(a)
        }
        (Binary::Mul, Some(one), None) if ty.is_float() && one == one_bits(ty) => Folded::Same(b),
        (Binary::Mul | Binary::DivF, None, Some(one)) if ty.is_float() && one == one_bits(ty) => {
            Folded::Same(a)
        }
        (Binary::And, Some(0), None) | (Binary::And, None, Some(0)) => Folded::Constant(0),
        (Binary::And, Some(all), None) if all == ones => Folded::Same(b),
        (Binary::And, None, Some(all)) if all == ones => Folded::Same(a),
        (Binary::Or | Binary::Xor, Some(0), None) => Folded::Same(b),
        (Binary::Or | Binary::Xor, None, Some(0)) => Folded::Same(a),
        (Binary::Or, Some(all), None) | (Binary::Or, None, Some(all)) if all == ones => {
            Folded::Constant(ones)
        }
        (Binary::Shl | Binary::ShrU | Binary::ShrS, None, Some(0)) => Folded::Same(a),
        (
            Binary::And
            | Binary::Or
            | Binary::MinS
            | Binary::MinU
            | Binary::MaxS
            | Binary::MaxU
            | Binary::MinF
            | Binary::MaxF,
            _,
            _,
        ) if a == b => Folded::Same(a),
        (Binary::Xor | Binary::Sub, _, _) if a == b && !ty.is_float() => Folded::Constant(0),
        _ => return None,
    })
}

/// The bits of the number 1.
fn one_bits(ty: Type) -> u64 {
    match ty {
        Type::F64 => 1f64.to_bits(),
        _ => u64::from(1f32.to_bits()),
    }
}

/// All bits of values of a type.
pub(crate) fn mask(ty: Type) -> u64 {
    match ty {
        Type::Bool => 1,
        Type::I64 | Type::F64 => u64::MAX,
        _ => u64::from(u32::MAX),
    }
}

/// The nearest half float, as the `f32` of the same value.
pub(crate) fn round_to_half(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

fn signed(ty: Type, bits: u64) -> i64 {
    match ty {
        Type::I64 => bits as i64,
        _ => i64::from(bits as u32 as i32),
    }
}

fn float(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::F64 => f64::from_bits(bits),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

/// Applies an operation of `f32` or `f64`, and rounds to half floats where the type asks for rounding.
fn floats(ty: Type, bits: u64, single: impl Fn(f32) -> f32, double: impl Fn(f64) -> f64) -> u64 {
    match ty {
        Type::F64 => double(f64::from_bits(bits)).to_bits(),
        Type::F16 => round_to_half(single(f32::from_bits(bits as u32)))
            .to_bits()
            .into(),
        _ => single(f32::from_bits(bits as u32)).to_bits().into(),
    }
}

fn floats2(
    ty: Type,
    (x, y): (u64, u64),
    single: impl Fn(f32, f32) -> f32,
    double: impl Fn(f64, f64) -> f64,
) -> u64 {
    let other = float(ty, y);
    floats(ty, x, |x| single(x, other as f32), |x| double(x, other))
}

fn fold_unary(op: Unary, ty: Type, x: u64) -> u64 {
    let width = ty.bits();
    let bits = mask(ty);
    match op {
        Unary::Negate if ty.is_float() => floats(ty, x, |x| -x, |x| -x),
        Unary::Negate => x.wrapping_neg() & bits,
        Unary::Abs if ty.is_float() => floats(ty, x, f32::abs, f64::abs),
        Unary::Abs => signed(ty, x).wrapping_abs() as u64 & bits,
        Unary::Not => !x & bits,
        Unary::Sqrt => floats(ty, x, f32::sqrt, f64::sqrt),
        Unary::Ceil => floats(ty, x, f32::ceil, f64::ceil),
        Unary::Floor => floats(ty, x, f32::floor, f64::floor),
        Unary::Trunc => floats(ty, x, f32::trunc, f64::trunc),
        Unary::Nearest => floats(ty, x, f32::round_ties_even, f64::round_ties_even),
        Unary::CountOnes => x.count_ones().into(),
        Unary::LeadingZeros => (x.leading_zeros() - (64 - width)).into(),
        Unary::TrailingZeros => x.trailing_zeros().min(width).into(),
        Unary::ReverseBits => x.reverse_bits() >> (64 - width),
    }
}

fn fold_binary(op: Binary, ty: Type, x: u64, y: u64) -> u64 {
    let (a, b) = (signed(ty, x), signed(ty, y));
    let shift = y as u32 % ty.bits();
    let result = match op {
        Binary::Add if ty.is_float() => floats2(ty, (x, y), |x, y| x + y, |x, y| x + y),
        Binary::Sub if ty.is_float() => floats2(ty, (x, y), |x, y| x - y, |x, y| x - y),
        Binary::Mul if ty.is_float() => floats2(ty, (x, y), |x, y| x * y, |x, y| x * y),
        Binary::DivF => floats2(ty, (x, y), |x, y| x / y, |x, y| x / y),
        Binary::MinF => {
            if float(ty, x) < float(ty, y) {
                x
            } else {
                y
            }
        }
        Binary::MaxF => {
            if float(ty, x) > float(ty, y) {
                x
            } else {
                y
            }
        }
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::DivS if b == 0 => x,
        Binary::DivS => a.wrapping_div(b) as u64,
        Binary::DivU => x.checked_div(y).unwrap_or(x),
        Binary::RemS if b == 0 => 0,
        Binary::RemS => a.wrapping_rem(b) as u64,
        Binary::RemU => x.checked_rem(y).unwrap_or(0),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl => x << shift,
        Binary::ShrU => x >> shift,
        Binary::ShrS => (a >> shift) as u64,
        Binary::MinS => a.min(b) as u64,
        Binary::MaxS => a.max(b) as u64,
        Binary::MinU => x.min(y),
        Binary::MaxU => x.max(y),
    };
    result & mask(ty)
}

/// Whether a comparison of two constants of a type holds.
pub(crate) fn compare(op: Comparison, ty: Type, x: u64, y: u64) -> bool {
    let (a, b) = (signed(ty, x), signed(ty, y));
    let (f, g) = (float(ty, x), float(ty, y));
    match op {
        Comparison::Eq if ty.is_float() => f == g,
        Comparison::Ne if ty.is_float() => f != g,
        Comparison::Eq => x == y,
        Comparison::Ne => x != y,
        Comparison::LtS => a < b,
        Comparison::LeS => a <= b,
        Comparison::LtU => x < y,
        Comparison::LeU => x <= y,
        Comparison::LtF => f < g,
        Comparison::LeF => f <= g,
    }
}

fn convert(op: Conversion, from: Type, to: Type, x: u64) -> u64 {
    let store = |single: f32, double: f64| match to {
        Type::F64 => double.to_bits(),
        Type::F16 => u64::from(round_to_half(single).to_bits()),
        _ => single.to_bits().into(),
    };
    match op {
        Conversion::SignedToFloat => store(signed(from, x) as f32, signed(from, x) as f64),
        Conversion::UnsignedToFloat => store(x as f32, x as f64),
        Conversion::FloatToSigned if to == Type::I64 => float(from, x) as i64 as u64,
        Conversion::FloatToSigned => (float(from, x) as i32 as u32).into(),
        Conversion::FloatToUnsigned if to == Type::I64 => float(from, x) as u64,
        Conversion::FloatToUnsigned => (float(from, x) as u32).into(),
        Conversion::WidenS => i64::from(x as u32 as i32) as u64,
        Conversion::WidenU | Conversion::Narrow => x & u64::from(u32::MAX),
        Conversion::Float => store(float(from, x) as f32, float(from, x)),
        Conversion::Bits => match (from, to) {
            (Type::F16, Type::I32) => f16::from_f32(f32::from_bits(x as u32)).to_bits().into(),
            (Type::I32, Type::F16) => f16::from_bits(x as u16).to_f32().to_bits().into(),
            _ => x,
        },
    }
}

/// With one rounding on every system, but for half floats, rounded as in the code for them: the standard library asks
/// the system's C library, and MinGW's rounds twice.
fn multiply_add(ty: Type, x: u64, y: u64, z: u64) -> u64 {
    let single = |bits| f32::from_bits(bits as u32);
    match ty {
        Type::F64 => libm::fma(f64::from_bits(x), f64::from_bits(y), f64::from_bits(z)).to_bits(),
        // The product is exact in `f32`.
        Type::F16 => {
            let sum = single(x) * single(y) + single(z);
            round_to_half(sum).to_bits().into()
        }
        _ => libm::fmaf(single(x), single(y), single(z)).to_bits().into(),
    }
}

/// The definition of a constant.
pub(crate) fn constant(ty: Type, bits: u64) -> Def {
    Def {
        ty,
        op: Op::Const(bits & mask(ty)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums a hair beside the middle between two numbers, and the nearest numbers to these sums, on paper.
    #[test]
    fn products_and_sums_are_rounded_once() {
        let two_to = |power: i32| 2f64.powi(power);
        let middle = [1.0 + two_to(-12), 1.0 + two_to(-12)].map(|x| (x as f32).to_bits().into());
        let below = 1.0 + two_to(-11);
        for (hair, expected) in [
            (two_to(-80), below + two_to(-23)),
            (0.0, below),
            (-two_to(-80), below),
        ] {
            let hair = (hair as f32).to_bits().into();
            let found = multiply_add(Type::F32, middle[0], middle[1], hair);
            assert_eq!(found, u64::from((expected as f32).to_bits()), "{expected}");
        }
        // 1.5 times the smallest number.
        let half = 0.5f32.to_bits().into();
        assert_eq!(multiply_add(Type::F32, half, 1, 1), 2);
        let middle = [1.0 + two_to(-26), 1.0 + two_to(-27)].map(f64::to_bits);
        let below = 1.0 + two_to(-26) + two_to(-27);
        for (hair, expected) in [(two_to(-200), below + two_to(-52)), (-two_to(-200), below)] {
            let found = multiply_add(Type::F64, middle[0], middle[1], hair.to_bits());
            assert_eq!(found, f64::to_bits(expected), "{expected}");
        }
    }
}
