//! Conversions between floats and integers.
//!
//! WGSL converts a float to an integer by rounding towards zero and then to the nearest value that
//! both types hold: 1e10 becomes 2147483520 as i32, the largest i32 that f32 can write. NaN may become
//! anything; here it becomes the least value of the integer type, on every machine.
//!
//! | function | operations |
//! | --- | --- |
//! | `float_to_signed` | 3 |
//! | `float_to_unsigned` | 8; 3 where the integer is narrower than the lane |
//! | `unsigned_to_float` | 6 |

use super::lanes::Lanes;
use super::value::{F, I};

/// The floating-point types of WGSL, by the width of their significand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// binary16.
    F16,
    /// binary32.
    F32,
    /// binary64.
    F64,
}

/// The largest value that `float` and an integer of so many value bits (without the sign) share.
pub fn largest_shared(float: FloatType, value_bits: u32) -> f64 {
    let (significand, largest) = match float {
        FloatType::F16 => (11, 65504.0),
        FloatType::F32 => (24, f64::from(f32::MAX)),
        FloatType::F64 => (53, f64::MAX),
    };
    let kept = value_bits.min(significand);
    let whole = ((1u64 << kept) - 1) << (value_bits - kept);
    // `whole` has at most 53 bits that are not zero.
    (whole as f64).min(largest)
}

/// To a signed integer of `bits` bits, at most those of a lane, sign-extended to the lane.
///
/// `from` is the type that WGSL gives to `x`; the lanes may be wider.
pub fn float_to_signed<'l, L: Lanes>(x: F<'l, L>, from: FloatType, bits: u32) -> I<'l, L> {
    let high = largest_shared(from, bits - 1);
    let low = match from {
        FloatType::F16 if bits > 16 => -65504.0,
        _ => -((1u64 << (bits - 1)) as f64),
    };
    x.max(x.constant(low)).min(x.constant(high)).to_int()
}

/// To an unsigned integer of `bits` bits, at most those of a lane, zero-extended to the lane.
pub fn float_to_unsigned<'l, L: Lanes>(x: F<'l, L>, from: FloatType, bits: u32) -> I<'l, L> {
    let high = largest_shared(from, bits);
    let clamped = x.max(x.constant(0.0)).min(x.constant(high));
    let half = (1u64 << (L::BITS - 1)) as f64;
    if high < half {
        return clamped.to_int();
    }
    // The conversion is signed: the upper half of the range goes without its highest bit.
    let upper = x.constant(half).le(clamped);
    let low_bits = (clamped - upper.float_or_zero(half)).to_int();
    low_bits ^ upper.int_or_zero(i64::MIN >> (64 - L::BITS))
}

/// To the nearest float of the same width.
pub fn signed_to_float<'l, L: Lanes>(x: I<'l, L>) -> F<'l, L> {
    x.to_float()
}

/// To the nearest float of the same width.
pub fn unsigned_to_float<'l, L: Lanes>(x: I<'l, L>) -> F<'l, L> {
    // Each half is exact as a signed integer; only the sum rounds.
    let half = L::BITS / 2;
    let high = x.ushr(half).to_float() * (1u64 << half) as f64;
    high + (x & ((1 << half) - 1)).to_float()
}
