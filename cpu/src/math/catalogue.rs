//! The functions of floats by name, for runs over all functions: tests and measurements.

use super::lanes::Lanes32;
use super::value::F;
use super::{common, exponential, hyperbolic, inverse, logarithm, rounding, trigonometric};

/// A function of one argument.
pub type Unary<'l, L> = fn(F<'l, L>) -> F<'l, L>;

/// A function of two arguments.
pub type Binary<'l, L> = fn(F<'l, L>, F<'l, L>) -> F<'l, L>;

macro_rules! unary {
    ($($name:ident = $room:ident, $reference:expr;)*) => {
        /// The names known to `unary`.
        pub const UNARY: &[&str] = &[$(stringify!($name)),*];

        /// A function of one argument.
        pub fn unary<'l, L: Lanes32>(name: &str) -> Option<Unary<'l, L>> {
            match name {
                $(stringify!($name) => Some($room::$name),)*
                _ => None,
            }
        }

        /// The same function in binary64.
        pub fn unary_reference(name: &str) -> Option<fn(f64) -> f64> {
            match name {
                $(stringify!($name) => Some($reference),)*
                _ => None,
            }
        }
    };
}
unary! {
    sin = trigonometric, libm::sin;
    cos = trigonometric, libm::cos;
    tan = trigonometric, libm::tan;
    asin = inverse, libm::asin;
    acos = inverse, libm::acos;
    atan = inverse, libm::atan;
    sinh = hyperbolic, libm::sinh;
    cosh = hyperbolic, libm::cosh;
    tanh = hyperbolic, libm::tanh;
    asinh = hyperbolic, libm::asinh;
    // The library is not meant for arguments below 1 here.
    acosh = hyperbolic, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
    atanh = hyperbolic, libm::atanh;
    exp = exponential, libm::exp;
    exp2 = exponential, libm::exp2;
    log = logarithm, libm::log;
    log2 = logarithm, libm::log2;
    inverse_sqrt = common, |x| 1.0 / x.sqrt();
    floor = rounding, f64::floor;
    ceil = rounding, f64::ceil;
    trunc = rounding, f64::trunc;
    round = rounding, f64::round_ties_even;
}

/// The factor from a function of x to the function of −x; none where the two have nothing in common.
pub fn parity(name: &str) -> Option<f32> {
    match name {
        "sin" | "tan" | "asin" | "atan" | "sinh" | "tanh" | "asinh" | "atanh" => Some(-1.0),
        "trunc" | "round" => Some(-1.0),
        "cos" | "cosh" => Some(1.0),
        _ => None,
    }
}

/// The names known to [`binary`].
pub const BINARY: &[&str] = &["atan2", "pow"];

/// A function of two arguments.
pub fn binary<'l, L: Lanes32>(name: &str) -> Option<Binary<'l, L>> {
    match name {
        "atan2" => Some(inverse::atan2),
        "pow" => Some(logarithm::pow),
        _ => None,
    }
}

/// The same function in binary64.
pub fn binary_reference(name: &str) -> Option<fn(f64, f64) -> f64> {
    match name {
        "atan2" => Some(libm::atan2),
        "pow" => Some(|x, y| {
            if x < 0.0 && y != 0.0 {
                f64::NAN
            } else {
                libm::pow(x, y)
            }
        }),
        _ => None,
    }
}

/// How far `value` is from `exact`, in units in the last place: the step between floats where `exact` is. Infinite where exactly
/// one is NaN; an infinite `value` counts as 2^128.
pub fn error_in_ulp(value: f32, exact: f64) -> f64 {
    if value.is_nan() || exact.is_nan() {
        return if value.is_nan() && exact.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    let edge = rounding::power_of_two(128);
    let bounded = |x: f64| x.clamp(-edge, edge);
    let (value, exact) = (bounded(f64::from(value)), bounded(exact));
    let exponent = (exact.to_bits() >> 52 & 0x7ff) as i64 - 1023;
    (value - exact).abs() / rounding::power_of_two(exponent.clamp(-126, 127) - 23)
}
