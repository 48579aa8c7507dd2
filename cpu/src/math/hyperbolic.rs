//! Hyperbolic functions and their inverses.
//!
//! # How it works
//!
//! - `sinh`, `cosh` and `tanh` come from e^|x| − 1, computed to be accurate near zero, and in quarters, to overflow no sooner
//!   than the result.
//! - The inverses are ln(1 + u) with u formed without cancellation. The sum 1 + u rounds; the lost part comes back as a
//!   correction. For large arguments `asinh` and `acosh` are ln 2x.
//!
//! | function | operations | of which wide | bound of the error, ULP |
//! | --- | --- | --- | --- |
//! | `sinh` | 31 | 0 | 2.4 |
//! | `cosh` | 26 | 0 | 1.6 |
//! | `tanh` | 29 | 0 | 2.7 |
//! | `asinh` | 50 | 0 | 2.1 |
//! | `acosh` | 48 | 0 | 2.1 |
//! | `atanh` | 48 | 0 | 2.3 |

use super::exponential::exp_quarter;
use super::lanes::Lanes32;
use super::logarithm::ln_sum;
use super::value::{F, I};

/// From here on 1 vanishes beside the square of the argument.
const LARGE: f64 = 16_384.0;

/// The magnitude and the sign of `x`.
fn parts<'l, L: Lanes32>(x: F<'l, L>) -> (F<'l, L>, I<'l, L>) {
    let sign = x.sign_bit();
    (x.flip_sign_by(sign), sign)
}

/// The largest argument of `exp_quarter`; `sinh` and `cosh` are infinite before.
const END: f64 = 89.5;

/// WGSL `sinh`.
pub fn sinh<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let (magnitude, sign) = parts(x);
    let (p, s) = exp_quarter(x.constant(END).min(magnitude));
    // A quarter of e^x − 1; near zero s is exactly a quarter, and nothing cancels.
    let quarter = s * p + (s - 0.25);
    let half = quarter + quarter / (quarter * 4.0 + 1.0);
    (half * 2.0).flip_sign_by(sign)
}

/// WGSL `cosh`.
pub fn cosh<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let (p, s) = exp_quarter(x.constant(END).min(x.abs()));
    let quarter = s + s * p;
    (quarter + x.constant(1.0 / 16.0) / quarter) * 2.0
}

/// WGSL `tanh`.
pub fn tanh<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let (magnitude, sign) = parts(x);
    // tanh x = (e^2x − 1) ÷ (e^2x + 1), equal to 1 to the last bit from 9.01 on.
    let (p, s) = exp_quarter(x.constant(20.0).min(magnitude * 2.0));
    let quarter = s * p + (s - 0.25);
    (quarter / (quarter + 0.5)).flip_sign_by(sign)
}

/// ln(1 + u) for u ≥ 0, and ln(2 × magnitude) for large magnitudes.
fn ln_one_plus<'l, L: Lanes32>(u: F<'l, L>, magnitude: F<'l, L>) -> F<'l, L> {
    let zero = u.constant(0.0);
    let large = magnitude.gt(u.constant(LARGE));
    let sum = u + 1.0;
    let lost = (u - (sum - 1.0)) / sum;
    ln_sum(
        large.select(magnitude, sum),
        large.select(zero, lost),
        large.float_or_zero(1.0),
    )
}

/// WGSL `asinh`.
pub fn asinh<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let (magnitude, sign) = parts(x);
    let square = x * x;
    let u = magnitude + square / ((square + 1.0).sqrt() + 1.0);
    let usual = ln_one_plus(u, magnitude);
    // Infinities and NaN are their own result.
    magnitude
        .lt(x.constant(f64::INFINITY))
        .select(usual, magnitude)
        .flip_sign_by(sign)
}

/// WGSL `acosh`; NaN below 1.
pub fn acosh<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let t = x - 1.0;
    let u = t + (t * (t + 2.0)).sqrt();
    let usual = ln_one_plus(u, x);
    let finite = x.lt(x.constant(f64::INFINITY)).select(usual, x);
    x.lt(x.constant(1.0)).select(x.constant(f64::NAN), finite)
}

/// WGSL `atanh`; infinite for ±1, NaN beyond.
pub fn atanh<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let (magnitude, sign) = parts(x);
    let one = x.constant(1.0);
    let twice = magnitude * 2.0;
    let u = twice + twice * magnitude / (one - magnitude);
    let sum = u + 1.0;
    let usual = ln_sum(sum, (u - (sum - 1.0)) / sum, x.constant(0.0)) * 0.5;
    let end = magnitude
        .equals(one)
        .select(x.constant(f64::INFINITY), x.constant(f64::NAN));
    magnitude.lt(one).select(usual, end).flip_sign_by(sign)
}
