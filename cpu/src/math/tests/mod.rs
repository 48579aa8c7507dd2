//! Tests of the functions as scalar Rust; the compiler's tests compare its code with these.

#![allow(
    clippy::needless_range_loop,
    clippy::manual_is_multiple_of,
    clippy::approx_constant,
    reason = "tables of numbers and lanes"
)]

mod exact;
mod hostile;
mod integers;
mod tables;

use super::{F, I, Scalar32, Scalar64};
use crate::random::word;

fn f(x: f32) -> F<'static, Scalar32> {
    F::new(&Scalar32, x)
}

fn d(x: f64) -> F<'static, Scalar64> {
    F::new(&Scalar64, x)
}

fn i(x: i32) -> I<'static, Scalar32> {
    I::new(&Scalar32, x)
}

fn l(x: i64) -> I<'static, Scalar64> {
    I::new(&Scalar64, x)
}

/// Floats where functions change course: both sides of every power of 2, whole and half numbers,
/// multiples of π/4, the ends of the range, and NaN; then random ones.
fn floats(random: u64) -> impl Iterator<Item = f32> {
    let powers = (0..255u32).map(|exponent| f32::from_bits(exponent << 23));
    let halves = (0..600).map(|n| n as f32 / 2.0);
    let angles = (1..2100).map(|n| (f64::from(n) * std::f64::consts::FRAC_PI_4) as f32);
    let named = [
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        8_388_607.5,
        16_777_215.0,
        2_147_483_520.0,
        4_294_967_000.0,
        65_504.0,
        65_519.996,
        65_520.0,
        88.72283,
        88.7229,
        89.4,
        89.5,
        103.97,
        104.0,
        149.0,
        149.5,
        150.0,
        151.0,
        127.99999,
        1608.0,
        0.600_097_66,
        9.01,
        9.02,
        16_384.0,
        0.707_106_77,
        1.414_213_5,
    ];
    let near = powers
        .chain(halves)
        .chain(angles)
        .chain(named)
        .flat_map(|x| {
            let bits = x.to_bits();
            [bits.saturating_sub(1), bits, bits + 1].map(f32::from_bits)
        });
    near.flat_map(|x| [x, -x])
        .chain((0..random).map(|index| f32::from_bits(word(index) as u32)))
}

/// Doubles likewise.
fn doubles(random: u64) -> impl Iterator<Item = f64> {
    let powers = (0..2047u64).map(|exponent| f64::from_bits(exponent << 52));
    let halves = (0..600).map(|n| f64::from(n) / 2.0);
    let named = [
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
        4_503_599_627_370_495.5,
        9.3e18,
        1.9e19,
    ];
    let near = powers.chain(halves).chain(named).flat_map(|x| {
        let bits = x.to_bits();
        [bits.saturating_sub(1), bits, bits + 1].map(f64::from_bits)
    });
    near.flat_map(|x| [x, -x])
        .chain((0..random).map(|index| f64::from_bits(word(index))))
}

/// Fails unless both are NaN or the bits are the same.
#[track_caller]
fn same(value: f32, expected: f32, of: impl std::fmt::Debug) {
    let both_nan = value.is_nan() && expected.is_nan();
    assert!(
        both_nan || value.to_bits() == expected.to_bits(),
        "{of:?}: {value:e}, not {expected:e}"
    );
}

/// Fails unless both are NaN or the bits are the same.
#[track_caller]
fn same_double(value: f64, expected: f64, of: impl std::fmt::Debug) {
    let both_nan = value.is_nan() && expected.is_nan();
    assert!(
        both_nan || value.to_bits() == expected.to_bits(),
        "{of:?}: {value:e}, not {expected:e}"
    );
}
