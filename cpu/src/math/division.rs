//! Division of integers of 32 bits: vector units have no such instruction.
//!
//! # How it works
//!
//! Quotients are taken in binary64. For whole x and y, (x + ½) ÷ y has the whole part of x ÷ y and stays ½ ÷ y away from any
//! whole number; its rounding error is smaller than 2^-20 ÷ y. Less ½, the nearest whole number is therefore the quotient. Adding
//! 1.5 × 2^52 rounds to the quotient and leaves the quotient in the low bits.
//!
//! WGSL defines the rest: x ÷ 0 = x and x % 0 = 0; the least i32 divided by −1 is itself, with
//! remainder 0.
//!
//! | function | operations | of which wide |
//! | --- | --- | --- |
//! | `divide_unsigned` | 10 | 8 |
//! | `remainder_unsigned` | 12 | 8 |
//! | `divide_signed` | 19 | 8 |
//! | `remainder_signed` | 21 | 8 |

use super::lanes::Lanes32;
use super::value::{I, W};

/// 2^52: the bits of this plus a whole number below are its bits with the number in the low half.
const WHOLE: f64 = 4_503_599_627_370_496.0;

/// 1.5 × 2^52: a sum with this is rounded to a whole number, even one slightly smaller than this.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// The high half of the bits of 2^52.
const WHOLE_HIGH: i64 = 0x4330_0000;

/// An unsigned integer and `more`, a half or zero, as binary64: exact.
fn widen<'l, L: Lanes32>(x: I<'l, L>, more: f64) -> W<'l, L> {
    let lanes = x.lanes();
    let high = x.constant(WHOLE_HIGH);
    W::new(lanes, lanes.wide_from_halves(x.raw(), high.raw())) - (WHOLE - more)
}

/// x ÷ y without a remainder; anything where y is 0.
fn quotient<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    let lanes = x.lanes();
    let whole = widen(x, 0.5) / widen(y, 0.0) - 0.5 + ROUND;
    I::new(lanes, lanes.low_half(whole.raw()))
}

/// [`quotient`] of signed integers.
fn signed_quotient<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    let negate = |value: I<'l, L>, sign: I<'l, L>| (value ^ sign) - sign;
    let (sign_x, sign_y) = (x.sshr(31), y.sshr(31));
    negate(
        quotient(negate(x, sign_x), negate(y, sign_y)),
        sign_x ^ sign_y,
    )
}

/// The operator `/` on u32.
pub fn divide_unsigned<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    y.equals(y.constant(0)).select(x, quotient(x, y))
}

/// The operator `%` on u32.
pub fn remainder_unsigned<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    let zero = y.constant(0);
    y.equals(zero).select(zero, x - y * quotient(x, y))
}

/// The operator `/` on i32.
pub fn divide_signed<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    y.equals(y.constant(0)).select(x, signed_quotient(x, y))
}

/// The operator `%` on i32; the result has the sign of x.
pub fn remainder_signed<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    let zero = y.constant(0);
    y.equals(zero).select(zero, x - y * signed_quotient(x, y))
}
