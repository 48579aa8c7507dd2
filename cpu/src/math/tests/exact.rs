//! Functions whose results are exact or correctly rounded: every bit is compared.

use super::super::{bits, common, convert, half, packing, rounding};
use super::{I, Scalar32, Scalar64, d, doubles, f, floats, i, l, same, same_double, word};
use convert::FloatType;

#[test]
fn rounding_matches_the_standard_library() {
    for x in floats(200_000) {
        same(rounding::floor(f(x)).raw(), x.floor(), x);
        same(rounding::ceil(f(x)).raw(), x.ceil(), x);
        same(rounding::trunc(f(x)).raw(), x.trunc(), x);
        same(rounding::round(f(x)).raw(), x.round_ties_even(), x);
        same(rounding::fract(f(x)).raw(), x - x.floor(), x);
    }
    for x in doubles(200_000) {
        same_double(rounding::floor(d(x)).raw(), x.floor(), x);
        same_double(rounding::ceil(d(x)).raw(), x.ceil(), x);
        same_double(rounding::trunc(d(x)).raw(), x.trunc(), x);
        same_double(rounding::round(d(x)).raw(), x.round_ties_even(), x);
    }
}

#[test]
fn modf_splits_without_loss() {
    for x in floats(100_000) {
        let (fraction, whole) = rounding::modf(f(x));
        same(whole.raw(), x.trunc(), x);
        if x.is_finite() {
            assert_eq!(fraction.raw() + whole.raw(), x);
            assert!(fraction.raw().abs() < 1.0);
        } else if x.is_infinite() {
            assert!(fraction.raw().is_nan());
        }
    }
}

#[test]
fn frexp_and_ldexp_are_inverse_and_match_libm() {
    for x in floats(100_000) {
        let (fraction, exponent) = rounding::frexp(f(x));
        if x.is_finite() {
            let (expected, power) = libm::frexpf(x);
            same(fraction.raw(), expected, x);
            assert_eq!(exponent.raw(), power, "{x:e}");
        } else {
            same(fraction.raw(), x, x);
            assert_eq!(exponent.raw(), 0);
        }
        same(rounding::ldexp(fraction, exponent).raw(), x, x);
    }
    for x in doubles(100_000).filter(|x| x.is_finite()) {
        let (fraction, exponent) = rounding::frexp(d(x));
        let (expected, power) = libm::frexp(x);
        same_double(fraction.raw(), expected, x);
        assert_eq!(exponent.raw(), i64::from(power), "{x:e}");
        same_double(rounding::ldexp(fraction, exponent).raw(), x, x);
    }
}

#[test]
fn ldexp_rounds_once_for_any_exponent() {
    let exponents = (-300..=300).chain([i32::MIN, -1_000_000, 1_000_000, i32::MAX]);
    for exponent in exponents {
        for x in floats(0)
            .step_by(7)
            .chain([1.5, 0.99999994, 1.0000001, 3.0e-45])
        {
            // Doubles have room for the exact product; the conversion rounds it.
            let exact = libm::scalbn(f64::from(x), exponent.clamp(-700, 700));
            same(
                rounding::ldexp(f(x), i(exponent)).raw(),
                exact as f32,
                (x, exponent),
            );
        }
    }
    for exponent in (-2200..=2200).step_by(13) {
        for x in doubles(0).step_by(41) {
            let exact = libm::scalbn(x, exponent);
            same_double(
                rounding::ldexp(d(x), l(exponent.into())).raw(),
                exact,
                (x, exponent),
            );
        }
    }
}

#[test]
fn remainder_follows_its_definition() {
    for index in 0..100_000 {
        let (x, y) = (
            f32::from_bits(word(2 * index) as u32),
            f32::from_bits(word(2 * index + 1) as u32),
        );
        same(
            rounding::remainder(f(x), f(y)).raw(),
            x - y * (x / y).trunc(),
            (x, y),
        );
    }
    assert_eq!(rounding::remainder(f(-7.5), f(2.0)).raw(), -1.5);
}

#[test]
fn half_precision_matches_the_half_crate() {
    for bits in 0..=u16::MAX {
        let expected = ::half::f16::from_bits(bits).to_f32_const();
        let garbage = i32::from(bits) | 0x5a5a_0000;
        same(half::from_f16(i(garbage)).raw(), expected, bits);
        // Each f16, its neighbours among f32, and the midpoints where rounding decides.
        let near = expected.to_bits();
        for step in [0, 1, 0xfff, 0x1000, 0x1001, 0x17ff, 0x1800, 0x1fff] {
            for bits in [near.wrapping_add(step), near.wrapping_sub(step)] {
                check_half(f32::from_bits(bits));
            }
        }
    }
    floats(300_000).for_each(check_half);
}

fn check_half(x: f32) {
    let expected = ::half::f16::from_f32_const(x);
    let bits = half::to_f16(f(x)).raw();
    assert_eq!(bits & !0xffff, 0, "{x:e} leaves bits above");
    if x.is_nan() {
        assert!(::half::f16::from_bits(bits as u16).is_nan());
    } else {
        assert_eq!(bits as u16, expected.to_bits(), "{x:e}");
    }
    same(half::quantize(f(x)).raw(), expected.to_f32_const(), x);
}

/// What WGSL says: the nearest value that both types hold.
fn clamped(x: f64, low: f64, high: f64) -> f64 {
    if x.is_nan() {
        low
    } else {
        x.trunc().clamp(low, high)
    }
}

#[test]
fn floats_become_integers_as_wgsl_defines() {
    for x in floats(100_000) {
        let wide = f64::from(x);
        let signed = convert::float_to_signed(f(x), FloatType::F32, 32).raw();
        assert_eq!(
            f64::from(signed),
            clamped(wide, -2147483648.0, 2147483520.0),
            "{x:e}"
        );
        let unsigned = convert::float_to_unsigned(f(x), FloatType::F32, 32).raw() as u32;
        assert_eq!(
            f64::from(unsigned),
            clamped(wide, 0.0, 4294967040.0),
            "{x:e}"
        );
        let signed = convert::float_to_signed(f(x), FloatType::F32, 16).raw();
        assert_eq!(f64::from(signed), clamped(wide, -32768.0, 32767.0), "{x:e}");
        let unsigned = convert::float_to_unsigned(f(x), FloatType::F32, 16).raw();
        assert_eq!(f64::from(unsigned), clamped(wide, 0.0, 65535.0), "{x:e}");
        let signed = convert::float_to_signed(d(wide), FloatType::F32, 64).raw();
        assert_eq!(
            signed as f64,
            clamped(wide, -9223372036854775808.0, 9223371487098961920.0)
        );
        let unsigned = convert::float_to_unsigned(d(wide), FloatType::F32, 64).raw() as u64;
        assert_eq!(
            unsigned as f64,
            clamped(wide, 0.0, 18446742974197923840.0),
            "{x:e}"
        );
    }
    for x in doubles(100_000) {
        let signed = convert::float_to_signed(d(x), FloatType::F64, 64).raw();
        assert_eq!(
            signed as f64,
            clamped(x, -9223372036854775808.0, 9223372036854774784.0)
        );
        let unsigned = convert::float_to_unsigned(d(x), FloatType::F64, 64).raw() as u64;
        assert_eq!(
            unsigned as f64,
            clamped(x, 0.0, 18446744073709549568.0),
            "{x:e}"
        );
        let signed = convert::float_to_signed(d(x), FloatType::F64, 32).raw();
        assert_eq!(
            signed as f64,
            clamped(x, -2147483648.0, 2147483647.0),
            "{x:e}"
        );
        let unsigned = convert::float_to_unsigned(d(x), FloatType::F64, 32).raw();
        assert_eq!(unsigned as f64, clamped(x, 0.0, 4294967295.0), "{x:e}");
    }
    let largest_half = f(f32::INFINITY);
    assert_eq!(
        convert::float_to_signed(largest_half, FloatType::F16, 32).raw(),
        65504
    );
    assert_eq!(
        convert::float_to_signed(-largest_half, FloatType::F16, 32).raw(),
        -65504
    );
    assert_eq!(
        convert::float_to_unsigned(largest_half, FloatType::F16, 16).raw(),
        65504
    );
    assert_eq!(
        convert::float_to_signed(largest_half, FloatType::F16, 16).raw(),
        32752
    );
    assert_eq!(
        convert::float_to_signed(-largest_half, FloatType::F16, 16).raw(),
        -32768
    );
}

#[test]
fn integers_become_the_nearest_float() {
    let words = (0..200_000).map(word).chain((0..64).flat_map(|shift| {
        let power = 1u64 << shift;
        [power - 1, power, power + 1, !power, (power - 1) << 7]
    }));
    for word in words {
        same(
            convert::unsigned_to_float(i(word as i32)).raw(),
            word as u32 as f32,
            word,
        );
        same(
            convert::signed_to_float(i(word as i32)).raw(),
            word as i32 as f32,
            word,
        );
        same_double(
            convert::unsigned_to_float(l(word as i64)).raw(),
            word as f64,
            word,
        );
    }
}

#[test]
fn one_line_functions_follow_their_definitions() {
    for x in floats(20_000) {
        let sign = if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else {
            0.0
        };
        same(common::sign(f(x)).raw(), sign, x);
        let saturated = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
        assert_eq!(common::saturate(f(x)).raw(), saturated, "{x:e}");
        same(common::degrees(f(x)).raw(), x * 57.295_78, x);
        same(common::radians(f(x)).raw(), x * 0.017_453_292, x);
        same(
            common::step(f(0.5), f(x)).raw(),
            if 0.5 <= x { 1.0 } else { 0.0 },
            x,
        );
    }
    same(common::mix(f(2.0), f(4.0), f(0.25)).raw(), 2.5, "mix");
    same(
        common::smoothstep(f(1.0), f(3.0), f(1.5)).raw(),
        0.15625,
        "smoothstep",
    );
    same(
        common::smoothstep(f(3.0), f(1.0), f(2.5)).raw(),
        0.15625,
        "smoothstep downwards",
    );
    same(common::clamp(f(5.0), f(0.0), f(2.0)).raw(), 2.0, "clamp");
    same(
        common::clamp(f(5.0), f(3.0), f(2.0)).raw(),
        2.0,
        "clamp of an empty range",
    );
    same(common::fma(f(3.0), f(5.0), f(-1.0)).raw(), 14.0, "fma");
}

#[test]
fn packed_numbers_round_as_wgsl_defines() {
    let unorm = |x: f32, scale: f32| (0.5 + scale * x.clamp(0.0, 1.0)).floor() as i64;
    let snorm = |x: f32, scale: f32| (0.5 + scale * x.clamp(-1.0, 1.0)).floor() as i64;
    let field =
        |value: i64, index: u32, bits: u32| (value as u32 & ((1 << bits) - 1)) << (index * bits);
    let units = (-1200..=1200).map(|n| n as f32 / 1000.0);
    let steps = (0..=65535).map(|n| (n as f32 + 0.5) / 65535.0);
    let xs: Vec<f32> = units
        .chain(steps)
        .chain(floats(1000))
        .filter(|x| !x.is_nan())
        .collect();
    for quad in xs.windows(4) {
        let x: [f32; 4] = quad.try_into().unwrap();
        let four = |each: &dyn Fn(f32) -> i64| {
            (0..4)
                .map(|n| field(each(x[n as usize]), n, 8))
                .sum::<u32>()
        };
        let two = |each: &dyn Fn(f32) -> i64| {
            (0..2)
                .map(|n| field(each(x[n as usize]), n, 16))
                .sum::<u32>()
        };
        let pair = [f(x[0]), f(x[1])];
        assert_eq!(
            packing::pack_4x8_unorm(x.map(f)).raw() as u32,
            four(&|x| unorm(x, 255.0)),
            "{x:?}"
        );
        assert_eq!(
            packing::pack_4x8_snorm(x.map(f)).raw() as u32,
            four(&|x| snorm(x, 127.0)),
            "{x:?}"
        );
        assert_eq!(
            packing::pack_2x16_unorm(pair).raw() as u32,
            two(&|x| unorm(x, 65535.0)),
            "{x:?}"
        );
        assert_eq!(
            packing::pack_2x16_snorm(pair).raw() as u32,
            two(&|x| snorm(x, 32767.0)),
            "{x:?}"
        );
        let float = |x: f32| i64::from(::half::f16::from_f32_const(x).to_bits());
        assert_eq!(
            packing::pack_2x16_float(pair).raw() as u32,
            two(&float),
            "{x:?}"
        );
    }
}

#[test]
fn unpacked_numbers_are_correctly_rounded() {
    for byte in 0..=255u32 {
        let packed = i((byte | (255 - byte) << 8 | byte << 16 | (byte ^ 0x55) << 24) as i32);
        let bytes = packed.raw().to_le_bytes();
        for n in 0..4 {
            let exact = f64::from(bytes[n]) / 255.0;
            same(
                packing::unpack_4x8_unorm(packed)[n].raw(),
                exact as f32,
                byte,
            );
            let exact = (f64::from(bytes[n] as i8) / 127.0).max(-1.0);
            same(
                packing::unpack_4x8_snorm(packed)[n].raw(),
                exact as f32,
                byte,
            );
            assert_eq!(packing::unpack_4xu8(packed)[n].raw(), i32::from(bytes[n]));
            assert_eq!(
                packing::unpack_4xi8(packed)[n].raw(),
                i32::from(bytes[n] as i8)
            );
        }
    }
    for word in 0..=0xffffu32 {
        let packed: I<Scalar32> = i((word | (word ^ 0x9669) << 16) as i32);
        for (n, word) in [word as u16, (word ^ 0x9669) as u16]
            .into_iter()
            .enumerate()
        {
            same(
                packing::unpack_2x16_unorm(packed)[n].raw(),
                (f64::from(word) / 65535.0) as f32,
                word,
            );
            let exact = (f64::from(word as i16) / 32767.0).max(-1.0);
            same(
                packing::unpack_2x16_snorm(packed)[n].raw(),
                exact as f32,
                word,
            );
            let exact = ::half::f16::from_bits(word).to_f32_const();
            same(packing::unpack_2x16_float(packed)[n].raw(), exact, word);
        }
    }
}

#[test]
fn lanes_of_64_bits_have_the_same_bit_functions() {
    for index in 0..20_000 {
        let x = word(index) >> (index % 64);
        let lane: I<Scalar64> = l(x as i64);
        assert_eq!(bits::count_one_bits(lane).raw() as u32, x.count_ones());
        assert_eq!(bits::reverse_bits(lane).raw() as u64, x.reverse_bits());
        assert_eq!(
            bits::count_leading_zeros(lane).raw() as u32,
            x.leading_zeros()
        );
        assert_eq!(
            bits::count_trailing_zeros(lane).raw() as u32,
            x.trailing_zeros()
        );
    }
}
