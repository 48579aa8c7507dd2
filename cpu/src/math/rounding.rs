//! Whole parts, fractions and exponents, for lanes of either width.
//!
//! All results are exact, or correctly rounded where a result has no exact form (`ldexp` towards
//! the subnormal numbers). The functions `…_by_addition` serve machines without the instruction;
//! callers use the methods of [`Lanes`], which such machines inherit.
//!
//! | function | operations |
//! | --- | --- |
//! | `floor_by_addition`, `ceil_by_addition` | 10 |
//! | `trunc_by_addition`, `nearest_by_addition` | 7 |
//! | `fract` | 1 + floor |
//! | `modf` | 3 + trunc |
//! | `remainder` | 3 + trunc |
//! | `frexp` | 16 |
//! | `ldexp` | 25 |

use super::lanes::Lanes;
use super::value::{F, I};

/// Stored bits of the mantissa.
const fn mantissa_bits(bits: u32) -> u32 {
    if bits == 32 { 23 } else { 52 }
}

/// The stored form of the exponent of 1.
const fn bias(bits: u32) -> i64 {
    if bits == 32 { 127 } else { 1023 }
}

/// 2 to a power, normal in binary64.
pub(super) const fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// From this magnitude on every number is whole.
const fn whole_from(bits: u32) -> f64 {
    power_of_two(mantissa_bits(bits) as i64)
}

/// Rounds towards zero by way of an integer; the sign of zero is lost, large numbers are garbage.
fn chop<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x.to_int().to_float()
}

/// `rounded` with the sign of `x`, or `x` where `x` has no fraction to round.
fn finish<'l, L: Lanes>(x: F<'l, L>, rounded: F<'l, L>) -> F<'l, L> {
    let sign = x.sign_bit();
    let magnitude = (x.as_int() ^ sign).as_float();
    let signed = (rounded.as_int() | sign).as_float();
    magnitude
        .lt(x.constant(whole_from(L::BITS)))
        .select(signed, x)
}

pub(super) fn floor_by_addition<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    let chopped = chop(x);
    finish(x, chopped - x.lt(chopped).float_or_zero(1.0))
}

pub(super) fn ceil_by_addition<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    let chopped = chop(x);
    finish(x, chopped + chopped.lt(x).float_or_zero(1.0))
}

pub(super) fn trunc_by_addition<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    finish(x, chop(x))
}

pub(super) fn nearest_by_addition<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    // Adding 2^23 leaves no bit for a fraction: the addition itself rounds to a whole number.
    let shift = whole_from(L::BITS);
    finish(x, (x.abs() + shift) - shift)
}

/// WGSL `floor`.
pub fn floor<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x.floor()
}

/// WGSL `ceil`.
pub fn ceil<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    F::new(x.lanes(), x.lanes().ceil(x.raw()))
}

/// WGSL `trunc`.
pub fn trunc<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x.trunc()
}

/// WGSL `round`: to the nearest whole number, ties to even.
pub fn round<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    F::new(x.lanes(), x.lanes().nearest(x.raw()))
}

/// WGSL `fract`: x − ⌊x⌋, which is 1 for the largest negative numbers.
pub fn fract<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x - x.floor()
}

/// WGSL `modf`: the fraction and the whole part, both with the sign of `x`; the fraction of an
/// whole number is +0, that of an infinity NaN.
pub fn modf<'l, L: Lanes>(x: F<'l, L>) -> (F<'l, L>, F<'l, L>) {
    let whole = x.trunc();
    (x - whole, whole)
}

/// The operator `%`: x − y × trunc(x ÷ y), each step rounded, as WGSL defines it.
pub fn remainder<'l, L: Lanes>(x: F<'l, L>, y: F<'l, L>) -> F<'l, L> {
    x - y * (x / y).trunc()
}

/// WGSL `frexp`: a fraction of magnitude in [0.5, 1) and an exponent, so that
/// x = fraction × 2^exponent. Zeros, infinities and NaN come back with exponent 0.
pub fn frexp<'l, L: Lanes>(x: F<'l, L>) -> (F<'l, L>, I<'l, L>) {
    let mantissa = mantissa_bits(L::BITS);
    let bias = bias(L::BITS);
    // Subnormal numbers get a leading 1 first.
    let lift = i64::from(mantissa) + 2;
    let magnitude = x.abs();
    let subnormal = magnitude.lt(x.constant(power_of_two(1 - bias)));
    let bits = subnormal.select(x * power_of_two(lift), x).as_int();
    let field = (2 * bias + 1) << mantissa;
    let stored = (bits & field).ushr(mantissa);
    let exponent = stored - (bias - 1) - subnormal.int_or_zero(lift);
    let fraction = ((bits & !field) | (bias - 1) << mantissa).as_float();
    let usual = x.constant(0.0).lt(magnitude) & magnitude.lt(x.constant(f64::INFINITY));
    (
        usual.select(fraction, x),
        usual.select(exponent, exponent.constant(0)),
    )
}

/// WGSL `ldexp`: x × 2^exponent, rounded once, for any exponent.
pub fn ldexp<'l, L: Lanes>(x: F<'l, L>, exponent: I<'l, L>) -> F<'l, L> {
    let mantissa = mantissa_bits(L::BITS);
    let bias = bias(L::BITS);
    let clamp = |e: I<'l, L>, low, high| e.smax(e.constant(low)).smin(e.constant(high));
    let scale = |e: I<'l, L>| ((e + bias) << mantissa).as_float();
    // Three powers in range make any useful one. The smallest step comes first: it is exact unless
    // the result is zero or infinite anyhow, and so are the others except the last.
    let all = clamp(exponent, -3 * (bias - 1), 3 * bias);
    let third = clamp(all, 1 - bias, bias);
    let rest = all - third;
    let second = clamp(rest, 1 - bias, bias);
    let first = rest - second;
    x * scale(first) * scale(second) * scale(third)
}
