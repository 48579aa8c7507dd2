//! Numbers of 16 bits (binary16), as the low half of integer lanes.
//!
//! Arithmetic on f16 runs in lanes of f32: after each operation [`quantize`] rounds to what f16 can
//! hold. For + − × ÷ and √ the two roundings together give the correctly rounded result, since 24
//! bits are at least twice 11 bits and two. All functions here are exact or correctly rounded, for
//! all arguments, subnormal numbers included; NaN stays NaN, quiet.
//!
//! | function | operations |
//! | --- | --- |
//! | `to_f16` | 19 |
//! | `from_f16` | 11 |
//! | `quantize` | 16 |

use super::lanes::Lanes32;
use super::rounding::power_of_two;
use super::value::{F, I};

/// From here on the nearest f16 is infinite: half a step above the largest, 65504.
const OVERFLOW: f64 = 65_520.0;
/// The least number that f16 holds with all its bits.
const NORMAL: f64 = power_of_two(-14);

/// Rounds the magnitude of a number in f16's normal range to 11 bits, ties to even, as bits of f32.
fn round_to_11_bits<'l, L: Lanes32>(magnitude: I<'l, L>) -> I<'l, L> {
    magnitude + 0xfff + (magnitude.ushr(13) & 1)
}

/// The bits of the nearest f16, ties to even; numbers from 65520 on become infinite.
pub fn to_f16<'l, L: Lanes32>(x: F<'l, L>) -> I<'l, L> {
    let sign = x.sign_bit();
    let magnitude = x.flip_sign_by(sign);
    let bits = magnitude.as_int();
    let normal = (round_to_11_bits(bits) - (112 << 23)).ushr(13);
    // A sum with 1/2 has steps of 2^-24, the least f16; its low bits are those of the result.
    let subnormal = (magnitude + 0.5).as_int() - (126 << 23);
    let finite = magnitude.lt(x.constant(NORMAL)).select(subnormal, normal);
    let special = x
        .is_number()
        .select(bits.constant(0x7c00), bits.constant(0x7e00));
    let result = magnitude.lt(x.constant(OVERFLOW)).select(finite, special);
    result | sign.ushr(16)
}

/// The number whose f16 bits are the low half of `bits`; the high half is ignored.
pub fn from_f16<'l, L: Lanes32>(bits: I<'l, L>) -> F<'l, L> {
    let sign = (bits & 0x8000) << 16;
    let magnitude = (bits & 0x7fff) << 13;
    // The exponent moves by 112; subnormal numbers become normal on the way.
    let finite = magnitude.as_float() * power_of_two(112);
    let special = magnitude.constant(0x0f7f_ffff).slt(magnitude);
    // 0xff minus 0x1f minus 112 is what the exponent of an infinity lacks.
    let result = special.select(magnitude + (0xe0 << 23), finite.as_int());
    (result | sign).as_float()
}

/// WGSL `quantizeToF16`, and the rounding after each operation on f16.
pub fn quantize<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let sign = x.sign_bit();
    let magnitude = x.flip_sign_by(sign);
    let normal = (round_to_11_bits(magnitude.as_int()) & !0x1fff).as_float();
    let subnormal = (magnitude + 0.5) - 0.5;
    let finite = magnitude.lt(x.constant(NORMAL)).select(subnormal, normal);
    // NaN stays what it is: the maximum with infinity returns its second operand.
    let special = x.constant(f64::INFINITY).max(magnitude);
    magnitude
        .lt(x.constant(OVERFLOW))
        .select(finite, special)
        .flip_sign_by(sign)
}
