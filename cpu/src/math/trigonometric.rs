//! Sine, cosine and tangent.
//!
//! # How it works
//!
//! 1. k is the whole number nearest to x ÷ π. Adding 1.5 × 2^23 leaves exactly k in the low bits.
//! 2. r = x − kπ, with π in four pieces (Cody and Waite). The first three have 13 bits, so that their
//!    products with a k of 11 bits are exact, and the subtractions are exact or err by half a ULP of
//!    r. What π's pieces leave out is 2^-63.
//! 3. A polynomial gives sin r on [−π/2, π/2]; an odd k flips the sign. One polynomial over the whole
//!    half circle costs less than the usual pair over a quarter and the choice between them.
//!
//! Beyond ±1,608 the products are no longer exact, and the lanes concerned go through
//! [`Rare`]: any finite argument is reduced correctly. Infinities and NaN give NaN.
//!
//! | function | operations | of which wide | bound of the error, ULP |
//! | --- | --- | --- | --- |
//! | `sin` | 27 | 0 | 2.1 |
//! | `cos` | 29 | 0 | 2.4 |
//! | `tan` | 35 | 0 | 2.6 |

use super::lanes::{Lanes32, Rare};
use super::value::{F, I};

/// The largest magnitude that the reduction is exact for: 1,024 half circles of π/2.
const USUAL: f64 = 1608.0;

/// 1.5 × 2^23: a sum with this is rounded to a whole number, which stands in the low bits.
const ROUND: f64 = 12_582_912.0;

/// π in pieces of 13, 13, 13 and 24 bits.
const PI: [f64; 4] = [
    3.14111328125,
    0.0004793405532836914,
    3.1781382858753204e-08,
    5.126688136514179e-12,
];

/// 1 ÷ π.
const PER_PI: f64 = 0.31830987334251404;

/// sin r = r + r³ × P(r²) on [−π/2, π/2], relative error 2^-27.3.
const SIN: [f64; 4] = [
    -0.16666659712791443,
    0.008333069272339344,
    -0.00019809776858892292,
    2.606095677037956e-06,
];

/// tan r = r + r³ × P(r²) on [−π/4, π/4], relative error 2^-25.7.
const TAN: [f64; 6] = [
    0.33333155512809753,
    0.13338835537433624,
    0.05340820178389549,
    0.024441391229629517,
    0.0031014822889119387,
    0.009396526031196117,
];

/// x − k × scale × π.
fn reduce<'l, L: Lanes32>(x: F<'l, L>, k: F<'l, L>, scale: f64) -> F<'l, L> {
    PI.iter().fold(x, |rest, piece| rest - k * (piece * scale))
}

/// r + r³ × P(r²).
fn odd<'l, L: Lanes32>(r: F<'l, L>, coefficients: &[f64]) -> F<'l, L> {
    let square = r * r;
    r + r * (square * square.polynomial(coefficients))
}

/// The lowest bit as a sign.
fn parity<'l, L: Lanes32>(k: F<'l, L>) -> I<'l, L> {
    k.as_int() << 31
}

/// `usual` where `x` is small enough for it.
fn or_rare<'l, L: Lanes32>(x: F<'l, L>, usual: F<'l, L>, call: Rare) -> F<'l, L> {
    let large = !x.abs().le(x.constant(USUAL));
    F::new(
        x.lanes(),
        x.lanes().rare(large.raw(), x.raw(), usual.raw(), call),
    )
}

/// WGSL `sin`.
pub fn sin<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let rounded = x * PER_PI + ROUND;
    let r = reduce(x, rounded - ROUND, 1.0);
    or_rare(x, odd(r, &SIN).flip_sign_by(parity(rounded)), Rare::Sin)
}

/// WGSL `cos`.
pub fn cos<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    // x = r + (h + 1/2)π, so that cos x = −sin(r + hπ). The odd constant flips the parity of h.
    let rounded = x * PER_PI - 0.5 + (ROUND + 1.0);
    let r = reduce(x, rounded - (ROUND + 1.0) + 0.5, 1.0);
    or_rare(x, odd(r, &SIN).flip_sign_by(parity(rounded)), Rare::Cos)
}

/// WGSL `tan`.
pub fn tan<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let rounded = x * (2.0 * PER_PI) + ROUND;
    let r = reduce(x, rounded - ROUND, 0.5);
    // Past an odd quarter the tangent is −1 ÷ tan r.
    let quarter = parity(rounded);
    let is_odd = quarter.slt(quarter.constant(0));
    let tangent = odd(r, &TAN).flip_sign_by(quarter);
    let one = x.constant(1.0);
    or_rare(
        x,
        is_odd.select(one, tangent) / is_odd.select(tangent, one),
        Rare::Tan,
    )
}
