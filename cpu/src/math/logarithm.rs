//! Logarithms and powers.
//!
//! # How it works
//!
//! 1. x = m × 2^e with m within [√½, √2), by arithmetic on the bits; subnormal numbers are scaled up
//!    before.
//! 2. With f = m − 1 and s = f ÷ (2 + f), ln m = 2 artanh s = f − f²/2 + s × (f²/2 + R(s²)), in which
//!    only the small last term errs by more than half a ULP.
//! 3. The logarithm is e × ln 2 + ln m, with ln 2 in two pieces.
//!
//! `pow` multiplies the logarithm by up to 128, and an error with it. The logarithm is therefore
//! taken in binary64, where a few terms of the series suffice.
//!
//! | function | operations | of which wide | bound of the error, ULP |
//! | --- | --- | --- | --- |
//! | `log` | 35 | 0 | 1.2 |
//! | `log2` | 33 | 0 | 1.9 |
//! | `pow` | 64 | 21 | 1.6 |

use super::exponential::{LN_2, Split, exp2_near_zero};
use super::lanes::Lanes32;
use super::rounding::power_of_two;
use super::value::F;

/// The bits of √½.
const SQRT_HALF: i64 = 0x3f35_04f3;

/// ln(1 + f) = f − f²/2 + s × (f²/2 + s² × R(s²)), relative error 2^-30.2.
const LN: [f64; 3] = [0.6666677594184875, 0.3997758626937866, 0.29870694875717163];

/// log₂ m = s × P(s²), relative error 2^-37.8.
const LOG2_WIDE: [f64; 5] = [
    2.8853900817900815,
    0.961796673348544,
    0.5770835835910318,
    0.41167280566662734,
    0.34072843339165715,
];

/// x = (1 + f) × 2^e for a positive, finite x.
fn normalize<'l, L: Lanes32>(x: F<'l, L>) -> (F<'l, L>, F<'l, L>) {
    let subnormal = x.lt(x.constant(power_of_two(-126)));
    let bits = subnormal.select(x * power_of_two(23), x).as_int() - SQRT_HALF;
    let e = bits.sshr(23).to_float() - subnormal.float_or_zero(23.0);
    let m = ((bits & 0x7f_ffff) + SQRT_HALF).as_float();
    (m - 1.0, e)
}

/// ln(1 + f).
fn ln_near_one<'l, L: Lanes32>(f: F<'l, L>) -> F<'l, L> {
    let s = f / (f + 2.0);
    let z = s * s;
    let half_square = f * f * 0.5;
    f - (half_square - s * (half_square + z * z.polynomial(&LN)))
}

/// `usual` where x is positive and finite, and the logarithm's limits elsewhere.
fn with_limits<'l, L: Lanes32>(x: F<'l, L>, usual: F<'l, L>) -> F<'l, L> {
    let zero = x.constant(0.0);
    let not_positive = x
        .equals(zero)
        .select(x.constant(f64::NEG_INFINITY), x.constant(f64::NAN));
    let or_itself = x.lt(x.constant(f64::INFINITY)).select(usual, x);
    zero.lt(x).select(or_itself, not_positive)
}

/// ln w + `correction` + `more` × ln 2, for a positive w.
pub(super) fn ln_sum<'l, L: Lanes32>(
    w: F<'l, L>,
    correction: F<'l, L>,
    more: F<'l, L>,
) -> F<'l, L> {
    let (f, e) = normalize(w);
    let e = e + more;
    e * LN_2[0] + (ln_near_one(f) + (e * LN_2[1] + correction))
}

/// WGSL `log`: −∞ for zero, NaN below.
pub fn log<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let (f, e) = normalize(x);
    with_limits(x, e * LN_2[0] + (ln_near_one(f) + e * LN_2[1]))
}

/// WGSL `log2`: −∞ for zero, NaN below; exact for powers of 2.
pub fn log2<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    const PER_LN_2: f64 = 1.4426950216293335;
    let (f, e) = normalize(x);
    with_limits(x, ln_near_one(f) * PER_LN_2 + e)
}

/// WGSL `pow`: x^y for x ≥ 0, and 1 for y = 0; NaN for negative x.
pub fn pow<'l, L: Lanes32>(x: F<'l, L>, y: F<'l, L>) -> F<'l, L> {
    let (f, e) = normalize(x);
    let e = with_limits(x, e);
    let f = f.widen();
    let s = f / (f + 2.0);
    let z = s * s;
    let exponent = y.widen() * (e.widen() + s * z.polynomial(&LOG2_WIDE));
    let split = Split::new(exponent.narrow().within(-152.0, 129.0));
    // Where the exponent is out of range, so is r, and the polynomial must not see it.
    let r = (exponent - split.n.widen()).narrow().within(-1.0, 1.0);
    let power = split.scale(exp2_near_zero(r));
    y.equals(y.constant(0.0)).select(y.constant(1.0), power)
}
