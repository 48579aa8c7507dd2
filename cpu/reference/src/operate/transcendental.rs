//! Functions that are rounded from a result of twice the precision.
//!
//! For `f32` and `f16` the mathematics is done in `f64`, whose error is far below half a unit in the
//! last place of the result. For `f64`, which WGSL itself does not have, the result is libm's.

use naga::MathFunction;

use crate::value::Scalar;

/// Functions of one argument; `None` for other functions and for integers.
pub fn unary(function: MathFunction, argument: Scalar) -> Option<Scalar> {
    use MathFunction as Mf;
    let x = argument.float()?;
    let result = match function {
        Mf::Cos => libm::cos(x),
        Mf::Cosh => libm::cosh(x),
        Mf::Sin => libm::sin(x),
        Mf::Sinh => libm::sinh(x),
        Mf::Tan => libm::tan(x),
        Mf::Tanh => libm::tanh(x),
        Mf::Acos => libm::acos(x),
        Mf::Asin => libm::asin(x),
        Mf::Atan => libm::atan(x),
        Mf::Asinh => libm::asinh(x),
        Mf::Acosh => libm::acosh(x),
        Mf::Atanh => libm::atanh(x),
        Mf::Exp => libm::exp(x),
        Mf::Exp2 => libm::exp2(x),
        Mf::Log => libm::log(x),
        Mf::Log2 => libm::log2(x),
        Mf::Sqrt => libm::sqrt(x),
        Mf::InverseSqrt => 1.0 / libm::sqrt(x),
        Mf::Radians => x * (core::f64::consts::PI / 180.0),
        Mf::Degrees => x * (180.0 / core::f64::consts::PI),
        _ => return None,
    };
    Scalar::rounded(argument.ty(), result)
}

/// Functions of two arguments; `None` for other functions and for integers.
pub fn binary(function: MathFunction, first: Scalar, second: Scalar) -> Option<Scalar> {
    if first.ty() != second.ty() {
        return None;
    }
    let (x, y) = (first.float()?, second.float()?);
    let result = match function {
        MathFunction::Atan2 => libm::atan2(x, y),
        MathFunction::Pow => libm::pow(x, y),
        _ => return None,
    };
    Scalar::rounded(first.ty(), result)
}
