//! Functions on the bits of integers, for lanes of either width.
//!
//! The functions `…_by_halves` and `…_by_exponent` serve machines without the instruction; callers use
//! the methods of [`Lanes`], which such machines inherit.
//!
//! Types narrower than the lane are the caller's: zero- or sign-extend, call, and correct counts of
//! leading zeros by the difference in width (reverse by a shift).
//!
//! | function | operations, 32 bits |
//! | --- | --- |
//! | `count_by_halves` | 14 |
//! | `reverse_by_halves` | 23 |
//! | `leading_by_exponent` | 10 |
//! | `trailing_by_exponent` | 8 |
//! | `first_leading_bit_*` | 1 to 3 + `clz` |
//! | `first_trailing_bit` | 2 + `ctz` |
//! | `extract_bits_*` | 13 |
//! | `insert_bits` | 16 |

use super::lanes::Lanes;
use super::value::I;

/// The byte in each byte of a lane.
fn bytes(byte: u8) -> i64 {
    i64::from_ne_bytes([byte; 8])
}

pub(super) fn count_by_halves<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    let pairs = x - (x.ushr(1) & bytes(0x55));
    let nibbles = (pairs & bytes(0x33)) + (pairs.ushr(2) & bytes(0x33));
    let mut sum = (nibbles + nibbles.ushr(4)) & bytes(0x0f);
    let mut width = 8;
    while width < L::BITS {
        sum = sum + sum.ushr(width);
        width *= 2;
    }
    sum & 0x7f
}

pub(super) fn reverse_by_halves<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    let swap = |x: I<'l, L>, width: u32, low: i64| ((x & low) << width) | (x.ushr(width) & low);
    let x = swap(x, 1, bytes(0x55));
    let x = swap(x, 2, bytes(0x33));
    let x = swap(x, 4, bytes(0x0f));
    let x = swap(x, 8, 0x00ff_00ff_00ff_00ff);
    if L::BITS == 32 {
        return (x << 16) | x.ushr(16);
    }
    let x = swap(x, 16, 0x0000_ffff_0000_ffff);
    (x << 32) | x.ushr(32)
}

/// The exponent of a power of 2 or of a number with different highest two bits, as the float conversion stores it; 0 for 0. The
/// highest bit of the lane may be set: the float is negative then.
fn exponent<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    let (mantissa, field) = if L::BITS == 32 {
        (23, 0xff)
    } else {
        (52, 0x7ff)
    };
    x.to_float().as_int().ushr(mantissa) & field
}

/// The [`exponent`] of 1.
fn exponent_of_one<L: Lanes>() -> i64 {
    if L::BITS == 32 { 127 } else { 1023 }
}

pub(super) fn leading_by_exponent<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    let bits = i64::from(L::BITS);
    // With a zero below each highest one, the conversion cannot round up to the next power of 2.
    let spaced = x & !x.ushr(1);
    let top = exponent_of_one::<L>() + bits - 1;
    let zeros = (x.constant(top) - exponent(spaced)).umin(x.constant(bits));
    // A negative lane converts to a float with the exponent of its magnitude.
    x.slt(x.constant(0)).select(x.constant(0), zeros)
}

pub(super) fn trailing_by_exponent<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    let lowest = x & (x.constant(0) - x);
    let zeros = exponent(lowest) - exponent_of_one::<L>();
    zeros
        .slt(x.constant(0))
        .select(x.constant(i64::from(L::BITS)), zeros)
}

/// WGSL `countOneBits`.
pub fn count_one_bits<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    I::new(x.lanes(), x.lanes().popcnt(x.raw()))
}

/// WGSL `reverseBits`.
pub fn reverse_bits<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    I::new(x.lanes(), x.lanes().bitrev(x.raw()))
}

/// WGSL `countLeadingZeros`.
pub fn count_leading_zeros<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    I::new(x.lanes(), x.lanes().clz(x.raw()))
}

/// WGSL `countTrailingZeros`.
pub fn count_trailing_zeros<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    I::new(x.lanes(), x.lanes().ctz(x.raw()))
}

/// WGSL `firstLeadingBit` of an unsigned integer: the index of the highest one, −1 for zero.
pub fn first_leading_bit_unsigned<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    x.constant(i64::from(L::BITS) - 1) - count_leading_zeros(x)
}

/// WGSL `firstLeadingBit` of a signed integer: the index of the highest bit that differs from the
/// sign, −1 for 0 and −1.
pub fn first_leading_bit_signed<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    first_leading_bit_unsigned(x ^ x.sshr(L::BITS - 1))
}

/// WGSL `firstTrailingBit`: the index of the lowest one, −1 for zero.
pub fn first_trailing_bit<'l, L: Lanes>(x: I<'l, L>) -> I<'l, L> {
    x.equals(x.constant(0))
        .select(x.constant(-1), count_trailing_zeros(x))
}

/// Offset and count within the lane, as WGSL clamps them.
fn field<'l, L: Lanes>(offset: I<'l, L>, count: I<'l, L>) -> (I<'l, L>, I<'l, L>) {
    let width = offset.constant(i64::from(L::BITS));
    let offset = offset.umin(width);
    (offset, count.umin(width - offset))
}

/// The field moved to the top of the lane, how far it has to come down, and where it is empty. An
/// empty field has shifts out of range, which wrap to the range.
fn to_top<'l, L: Lanes>(
    x: I<'l, L>,
    offset: I<'l, L>,
    count: I<'l, L>,
) -> (I<'l, L>, I<'l, L>, super::value::M<'l, L>) {
    let (offset, count) = field(offset, count);
    let wrap = i64::from(L::BITS) - 1;
    let up = (x.constant(0) - offset - count) & wrap;
    (
        x.shl_each(up),
        (x.constant(0) - count) & wrap,
        count.equals(x.constant(0)),
    )
}

/// WGSL `extractBits` of an unsigned integer.
pub fn extract_bits_unsigned<'l, L: Lanes>(
    x: I<'l, L>,
    offset: I<'l, L>,
    count: I<'l, L>,
) -> I<'l, L> {
    let (top, down, empty) = to_top(x, offset, count);
    empty.select(x.constant(0), top.ushr_each(down))
}

/// WGSL `extractBits` of a signed integer: the field's highest bit is its sign.
pub fn extract_bits_signed<'l, L: Lanes>(
    x: I<'l, L>,
    offset: I<'l, L>,
    count: I<'l, L>,
) -> I<'l, L> {
    let (top, down, empty) = to_top(x, offset, count);
    empty.select(x.constant(0), top.sshr_each(down))
}

/// WGSL `insertBits`: `x` with `count` bits from `offset` on replaced by the low bits of `new`.
pub fn insert_bits<'l, L: Lanes>(
    x: I<'l, L>,
    new: I<'l, L>,
    offset: I<'l, L>,
    count: I<'l, L>,
) -> I<'l, L> {
    let (offset, count) = field(offset, count);
    let zero = x.constant(0);
    let wrap = i64::from(L::BITS) - 1;
    let ones = x.constant(-1).ushr_each((zero - count) & wrap);
    let mask = ones.shl_each(offset & wrap);
    let mask = count.equals(zero).select(zero, mask);
    x ^ ((x ^ new.shl_each(offset & wrap)) & mask)
}
