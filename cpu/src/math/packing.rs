//! Packing of small numbers into u32 and back.
//!
//! Components come and go as arrays, the first in the lowest bits. Results are those of WGSL's
//! formulas; in normalized formats each step rounds once. A NaN packs as the least value.
//!
//! | function | operations |
//! | --- | --- |
//! | `pack_4x8_unorm`, `pack_4x8_snorm` | 35, 39 |
//! | `unpack_4x8_unorm`, `unpack_4x8_snorm` | 14, 19 |
//! | `dot_4x8_*` | 23 |

use super::half;
use super::lanes::{Lanes, Lanes32};
use super::rounding::floor;
use super::value::{F, I};

/// One u32 of fields of `bits` bits; fields may carry copies of their sign above.
fn join<'l, L: Lanes, const N: usize>(fields: [I<'l, L>; N], bits: u32) -> I<'l, L> {
    let mask = (1i64 << bits) - 1;
    let mut shift = 0;
    let mut joined: Option<I<'l, L>> = None;
    for (index, field) in fields.iter().enumerate() {
        // The last field's sign falls off at the top.
        let part = if index + 1 == N {
            *field
        } else {
            *field & mask
        };
        let part = if shift == 0 { part } else { part << shift };
        joined = Some(joined.map_or(part, |sum| sum | part));
        shift += bits;
    }
    joined.unwrap_or(fields[0])
}

/// Fields of `bits` bits, zero-extended.
fn split<'l, L: Lanes, const N: usize>(packed: I<'l, L>, bits: u32) -> [I<'l, L>; N] {
    std::array::from_fn(|index| {
        let shift = bits * index as u32;
        let moved = if shift == 0 {
            packed
        } else {
            packed.ushr(shift)
        };
        if shift + bits == L::BITS {
            moved
        } else {
            moved & ((1 << bits) - 1)
        }
    })
}

/// Fields of `bits` bits, sign-extended.
fn split_signed<'l, L: Lanes, const N: usize>(packed: I<'l, L>, bits: u32) -> [I<'l, L>; N] {
    std::array::from_fn(|index| {
        let up = L::BITS - bits * (index as u32 + 1);
        let moved = if up == 0 { packed } else { packed << up };
        moved.sshr(L::BITS - bits)
    })
}

/// ⌊½ + scale × min(1, max(low, x))⌋.
fn normalize<'l, L: Lanes32>(x: F<'l, L>, low: f64, scale: f64) -> I<'l, L> {
    let clamped = x.max(x.constant(low)).min(x.constant(1.0));
    let shifted = clamped * scale + 0.5;
    if low < 0.0 {
        floor(shifted).to_int()
    } else {
        shifted.to_int()
    }
}

/// WGSL `pack4x8unorm`.
pub fn pack_4x8_unorm<'l, L: Lanes32>(x: [F<'l, L>; 4]) -> I<'l, L> {
    join(x.map(|x| normalize(x, 0.0, 255.0)), 8)
}

/// WGSL `pack4x8snorm`.
pub fn pack_4x8_snorm<'l, L: Lanes32>(x: [F<'l, L>; 4]) -> I<'l, L> {
    join(x.map(|x| normalize(x, -1.0, 127.0)), 8)
}

/// WGSL `pack2x16unorm`.
pub fn pack_2x16_unorm<'l, L: Lanes32>(x: [F<'l, L>; 2]) -> I<'l, L> {
    join(x.map(|x| normalize(x, 0.0, 65535.0)), 16)
}

/// WGSL `pack2x16snorm`.
pub fn pack_2x16_snorm<'l, L: Lanes32>(x: [F<'l, L>; 2]) -> I<'l, L> {
    join(x.map(|x| normalize(x, -1.0, 32767.0)), 16)
}

/// WGSL `pack2x16float`; numbers that f16 cannot hold become infinite.
pub fn pack_2x16_float<'l, L: Lanes32>(x: [F<'l, L>; 2]) -> I<'l, L> {
    join(x.map(half::to_f16), 16)
}

/// WGSL `pack4xI8` and `pack4xU8`: the low bytes.
pub fn pack_4x8<'l, L: Lanes32>(x: [I<'l, L>; 4]) -> I<'l, L> {
    join(x, 8)
}

/// WGSL `pack4xI8Clamp`.
pub fn pack_4xi8_clamp<'l, L: Lanes32>(x: [I<'l, L>; 4]) -> I<'l, L> {
    join(x.map(|x| x.smax(x.constant(-128)).smin(x.constant(127))), 8)
}

/// WGSL `pack4xU8Clamp`.
pub fn pack_4xu8_clamp<'l, L: Lanes32>(x: [I<'l, L>; 4]) -> I<'l, L> {
    join(x.map(|x| x.umin(x.constant(255))), 8)
}

/// WGSL `unpack4x8unorm`.
pub fn unpack_4x8_unorm<'l, L: Lanes32>(packed: I<'l, L>) -> [F<'l, L>; 4] {
    split(packed, 8).map(|x| x.to_float() / x.to_float().constant(255.0))
}

/// WGSL `unpack4x8snorm`: −128 gives −1, as −127 does.
pub fn unpack_4x8_snorm<'l, L: Lanes32>(packed: I<'l, L>) -> [F<'l, L>; 4] {
    split_signed(packed, 8).map(|x| signed_fraction(x.to_float(), 127.0))
}

/// WGSL `unpack2x16unorm`.
pub fn unpack_2x16_unorm<'l, L: Lanes32>(packed: I<'l, L>) -> [F<'l, L>; 2] {
    split(packed, 16).map(|x| x.to_float() / x.to_float().constant(65535.0))
}

/// WGSL `unpack2x16snorm`: −32768 gives −1, as −32767 does.
pub fn unpack_2x16_snorm<'l, L: Lanes32>(packed: I<'l, L>) -> [F<'l, L>; 2] {
    split_signed(packed, 16).map(|x| signed_fraction(x.to_float(), 32767.0))
}

fn signed_fraction<'l, L: Lanes32>(x: F<'l, L>, scale: f64) -> F<'l, L> {
    (x / x.constant(scale)).max(x.constant(-1.0))
}

/// WGSL `unpack2x16float`.
pub fn unpack_2x16_float<'l, L: Lanes32>(packed: I<'l, L>) -> [F<'l, L>; 2] {
    [half::from_f16(packed), half::from_f16(packed.ushr(16))]
}

/// WGSL `unpack4xU8`.
pub fn unpack_4xu8<'l, L: Lanes32>(packed: I<'l, L>) -> [I<'l, L>; 4] {
    split(packed, 8)
}

/// WGSL `unpack4xI8`.
pub fn unpack_4xi8<'l, L: Lanes32>(packed: I<'l, L>) -> [I<'l, L>; 4] {
    split_signed(packed, 8)
}

/// The sum of the products of corresponding components.
fn dot<'l, L: Lanes32>(x: [I<'l, L>; 4], y: [I<'l, L>; 4]) -> I<'l, L> {
    x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3]
}

/// WGSL `dot4U8Packed`.
pub fn dot_4xu8<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    dot(split(x, 8), split(y, 8))
}

/// WGSL `dot4I8Packed`.
pub fn dot_4xi8<'l, L: Lanes32>(x: I<'l, L>, y: I<'l, L>) -> I<'l, L> {
    dot(split_signed(x, 8), split_signed(y, 8))
}
