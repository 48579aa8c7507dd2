//! The numeric built-in functions, and the way to those of the other files here.

use std::rc::Rc;

use naga::{BinaryOperator, MathFunction, ScalarKind};

use super::operators::scalar_binary;
use super::{bits, geometry, packing, transcendental};
use crate::value::{Scalar, Value, Vector};

/// The result of a built-in function; `None` where WGSL has no such overload.
pub fn math(function: MathFunction, arguments: &[&Value]) -> Option<Value> {
    use MathFunction as Mf;
    match (function, arguments) {
        (Mf::Modf | Mf::Frexp, [value]) => split(function, value),
        (Mf::Mix, [a, b, ratio]) => mix(a, b, ratio),
        (Mf::Dot4I8Packed | Mf::Dot4U8Packed, [first, second]) => {
            packing::packing(function, first, Some(second))
        }
        (_, [value]) => value
            .map(|scalar| one(function, scalar))
            .or_else(|| packing::packing(function, value, None))
            .or_else(|| geometry::geometry(function, arguments)),
        (Mf::Distance | Mf::Dot | Mf::Cross | Mf::Reflect | Mf::Outer, [_, _]) => {
            geometry::geometry(function, arguments)
        }
        (_, [first, second]) => first.zip(second, |first, second| two(function, first, second)),
        (Mf::FaceForward | Mf::Refract, [_, _, _]) => geometry::geometry(function, arguments),
        (Mf::ExtractBits, [value, offset, count]) => {
            let (offset, count) = (offset.scalar()?, count.scalar()?);
            value.map(|value| bits::extract(value, offset, count))
        }
        (Mf::InsertBits, [value, new, offset, count]) => {
            let (offset, count) = (offset.scalar()?, count.scalar()?);
            value.zip(new, |value, new| bits::insert(value, new, offset, count))
        }
        (_, [first, second, third]) => three_components(function, first, second, third),
        _ => None,
    }
}

fn three_components(
    function: MathFunction,
    first: &Value,
    second: &Value,
    third: &Value,
) -> Option<Value> {
    match (first, second, third) {
        (Value::Scalar(a), Value::Scalar(b), Value::Scalar(c)) => {
            three(function, *a, *b, *c).map(Value::Scalar)
        }
        (Value::Vector(a), Value::Vector(b), Value::Vector(c)) => {
            let (a, b, c) = (a.components(), b.components(), c.components());
            if a.len() != b.len() || a.len() != c.len() {
                return None;
            }
            let components =
                (0..a.len()).map(|index| three(function, a[index], b[index], c[index]));
            Vector::new(&components.collect::<Option<Vec<_>>>()?).map(Value::Vector)
        }
        _ => None,
    }
}

fn constant(like: Scalar, value: f64) -> Option<Scalar> {
    Scalar::rounded(like.ty(), value)
}

/// A function of one floating-point argument whose result is exact in `f64`.
fn exact(scalar: Scalar, result: impl Fn(f64) -> f64) -> Option<Scalar> {
    Scalar::rounded(scalar.ty(), result(scalar.float()?))
}

fn one(function: MathFunction, scalar: Scalar) -> Option<Scalar> {
    use MathFunction as Mf;
    let float = scalar.ty().kind == ScalarKind::Float;
    match function {
        Mf::Abs if float => exact(scalar, f64::abs),
        Mf::Abs => Scalar::wrapped(scalar.ty(), scalar.integer()?.abs()),
        Mf::Sign if float => {
            // Zeros and NaN stay as they are.
            exact(scalar, |value| {
                if value > 0.0 {
                    1.0
                } else if value < 0.0 {
                    -1.0
                } else {
                    value
                }
            })
        }
        Mf::Sign => Scalar::wrapped(scalar.ty(), scalar.integer()?.signum()),
        Mf::Saturate => three(
            Mf::Clamp,
            scalar,
            constant(scalar, 0.0)?,
            constant(scalar, 1.0)?,
        ),
        Mf::Ceil => exact(scalar, f64::ceil),
        Mf::Floor => exact(scalar, f64::floor),
        Mf::Round => exact(scalar, f64::round_ties_even),
        Mf::Trunc => exact(scalar, f64::trunc),
        Mf::Fract => scalar_binary(BinaryOperator::Subtract, scalar, one(Mf::Floor, scalar)?),
        Mf::QuantizeToF16 => match scalar {
            Scalar::F32(value) => Some(Scalar::F32(half::f16::from_f32(value).to_f32())),
            _ => None,
        },
        Mf::CountTrailingZeros => bits::trailing_zeros(scalar),
        Mf::CountLeadingZeros => bits::leading_zeros(scalar),
        Mf::CountOneBits => bits::ones(scalar),
        Mf::ReverseBits => bits::reverse(scalar),
        Mf::FirstTrailingBit => bits::first_trailing(scalar),
        Mf::FirstLeadingBit => bits::first_leading(scalar),
        // The length of a scalar is no component-wise function, though it looks like one.
        Mf::Length | Mf::Normalize => None,
        _ => transcendental::unary(function, scalar),
    }
}

fn less(a: Scalar, b: Scalar) -> Option<bool> {
    scalar_binary(BinaryOperator::Less, a, b)?.bool()
}

fn two(function: MathFunction, a: Scalar, b: Scalar) -> Option<Scalar> {
    use MathFunction as Mf;
    match function {
        Mf::Min => Some(if less(b, a)? { b } else { a }),
        Mf::Max => Some(if less(a, b)? { b } else { a }),
        Mf::Step => constant(a, f64::from(u8::from(a.float()? <= b.float()?))),
        Mf::Ldexp => {
            // Beyond these exponents every result is zero or infinite, and products stay exact in
            // `f64` for `f32` and `f16`.
            let exponent = b.integer()?.clamp(-5000, 5000) as i32;
            let wide = match a {
                Scalar::F64(value) => libm::ldexp(value, exponent),
                _ => libm::ldexp(a.float()?, exponent.clamp(-400, 400)),
            };
            Scalar::rounded(a.ty(), wide)
        }
        _ => transcendental::binary(function, a, b),
    }
}

fn three(function: MathFunction, a: Scalar, b: Scalar, c: Scalar) -> Option<Scalar> {
    use MathFunction as Mf;
    let times = |a, b| scalar_binary(BinaryOperator::Multiply, a, b);
    let minus = |a, b| scalar_binary(BinaryOperator::Subtract, a, b);
    match function {
        Mf::Clamp => two(Mf::Min, two(Mf::Max, a, b)?, c),
        Mf::Fma => fused(a, b, c),
        Mf::SmoothStep => {
            let t = scalar_binary(BinaryOperator::Divide, minus(c, a)?, minus(b, a)?)?;
            let t = one(Mf::Saturate, t)?;
            let slope = minus(constant(t, 3.0)?, times(constant(t, 2.0)?, t)?)?;
            times(times(t, t)?, slope)
        }
        _ => None,
    }
}

/// Multiplied and added with one rounding.
fn fused(a: Scalar, b: Scalar, c: Scalar) -> Option<Scalar> {
    match (a, b, c) {
        (Scalar::F32(a), Scalar::F32(b), Scalar::F32(c)) => Some(Scalar::F32(libm::fmaf(a, b, c))),
        (Scalar::F64(a), Scalar::F64(b), Scalar::F64(c)) => Some(Scalar::F64(libm::fma(a, b, c))),
        // The product of two `f16` is exact in `f64`. So is the sum, or else the product is too small
        // to move the third operand, which is an `f16` already.
        (Scalar::F16(a), Scalar::F16(b), Scalar::F16(c)) => Scalar::rounded(
            naga::Scalar::F16,
            libm::fma(a.to_f64(), b.to_f64(), c.to_f64()),
        ),
        _ => None,
    }
}

/// `x * (1 - z) + y * z`; a scalar `z` counts for every component.
fn mix(a: &Value, b: &Value, ratio: &Value) -> Option<Value> {
    let one_minus =
        ratio.map(|ratio| scalar_binary(BinaryOperator::Subtract, constant(ratio, 1.0)?, ratio))?;
    let times = |a, b| scalar_binary(BinaryOperator::Multiply, a, b);
    let (first, second) = (a.zip(&one_minus, times)?, b.zip(ratio, times)?);
    first.zip(&second, |a, b| scalar_binary(BinaryOperator::Add, a, b))
}

/// `modf` and `frexp`: a structure of the fraction and the whole number, or of the fraction and the
/// exponent.
fn split(function: MathFunction, value: &Value) -> Option<Value> {
    let (fraction, rest) = if function == MathFunction::Modf {
        let whole = value.map(|scalar| one(MathFunction::Trunc, scalar))?;
        let fraction = value.zip(&whole, |value, whole| {
            scalar_binary(BinaryOperator::Subtract, value, whole)
        })?;
        (fraction, whole)
    } else {
        let fraction =
            value.map(|scalar| Scalar::rounded(scalar.ty(), libm::frexp(scalar.float()?).0))?;
        // naga gives exponents the width of the fraction; WGSL's are `i32`, which it has for `f32` alone.
        let exponent = value.map(|scalar| {
            let ty = naga::Scalar {
                kind: ScalarKind::Sint,
                width: scalar.ty().width,
            };
            Scalar::wrapped(ty, libm::frexp(scalar.float()?).1.into())
        })?;
        (fraction, exponent)
    };
    Some(Value::Composite(Rc::new([fraction, rest])))
}
