//! Operators and functions against Rust's own, and against definitions spelled out bit by bit.

use half::f16;
use naga::{BinaryOperator as Op, MathFunction as Mf, Scalar as Type, ScalarKind};

use super::*;
use crate::conformance::inputs::{Draw, edges};
use crate::value::{Scalar, Value, Vector, nearest_f16};

fn pairs(ty: Type) -> Vec<(Scalar, Scalar)> {
    let edges = edges(ty);
    let mut draw = Draw::new("pairs");
    let mut all: Vec<(Scalar, Scalar)> = edges
        .iter()
        .flat_map(|a| edges.iter().map(move |b| (*a, *b)))
        .collect();
    all.extend((0..2000).map(|_| (draw.scalar(ty), draw.scalar(ty))));
    all
}

fn of(operator: Op, a: Scalar, b: Scalar) -> Scalar {
    binary(operator, &a.into(), &b.into())
        .and_then(|value| value.scalar())
        .unwrap()
}

fn of_one(function: Mf, a: Scalar) -> Scalar {
    math(function, &[&a.into()])
        .and_then(|value| value.scalar())
        .unwrap()
}

#[test]
fn signed_integers_wrap_as_those_of_rust() {
    for (a, b) in pairs(Type::I32) {
        let (Scalar::I32(x), Scalar::I32(y)) = (a, b) else {
            panic!()
        };
        assert_eq!(of(Op::Add, a, b), Scalar::I32(x.wrapping_add(y)));
        assert_eq!(of(Op::Subtract, a, b), Scalar::I32(x.wrapping_sub(y)));
        assert_eq!(of(Op::Multiply, a, b), Scalar::I32(x.wrapping_mul(y)));
        let quotient = if y == 0 { x } else { x.wrapping_div(y) };
        let rest = if y == 0 { 0 } else { x.wrapping_rem(y) };
        assert_eq!(of(Op::Divide, a, b), Scalar::I32(quotient), "{x} / {y}");
        assert_eq!(of(Op::Modulo, a, b), Scalar::I32(rest), "{x} % {y}");
        assert_eq!(of(Op::And, a, b), Scalar::I32(x & y));
        assert_eq!(of(Op::InclusiveOr, a, b), Scalar::I32(x | y));
        assert_eq!(of(Op::ExclusiveOr, a, b), Scalar::I32(x ^ y));
        assert_eq!(of(Op::Less, a, b), Scalar::Bool(x < y));
        assert_eq!(
            of(Op::ShiftLeft, a, Scalar::U32(y as u32)),
            Scalar::I32(x.wrapping_shl(y as u32))
        );
        assert_eq!(
            of(Op::ShiftRight, a, Scalar::U32(y as u32)),
            Scalar::I32(x.wrapping_shr(y as u32))
        );
    }
}

#[test]
fn unsigned_integers_of_64_bits_wrap_as_those_of_rust() {
    for (a, b) in pairs(Type::U64) {
        let (Scalar::U64(x), Scalar::U64(y)) = (a, b) else {
            panic!()
        };
        assert_eq!(of(Op::Add, a, b), Scalar::U64(x.wrapping_add(y)));
        assert_eq!(of(Op::Subtract, a, b), Scalar::U64(x.wrapping_sub(y)));
        assert_eq!(of(Op::Multiply, a, b), Scalar::U64(x.wrapping_mul(y)));
        assert_eq!(
            of(Op::Divide, a, b),
            Scalar::U64(x.checked_div(y).unwrap_or(x))
        );
        assert_eq!(
            of(Op::Modulo, a, b),
            Scalar::U64(x.checked_rem(y).unwrap_or(0))
        );
        assert_eq!(
            of(Op::ShiftLeft, a, Scalar::U32(y as u32)),
            Scalar::U64(x.wrapping_shl(y as u32))
        );
        assert_eq!(of(Op::GreaterEqual, a, b), Scalar::Bool(x >= y));
    }
}

#[test]
fn floats_are_those_of_rust_bit_for_bit() {
    for (a, b) in pairs(Type::F32) {
        let (Scalar::F32(x), Scalar::F32(y)) = (a, b) else {
            panic!()
        };
        let same = |got: Scalar, expected: f32| {
            let Scalar::F32(got) = got else { panic!() };
            assert!(
                got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                "{x} {y}: {got} {expected}"
            );
        };
        same(of(Op::Add, a, b), x + y);
        same(of(Op::Divide, a, b), x / y);
        // Not Rust's `%`, which is exact: WGSL defines the remainder by operations each of which rounds.
        same(of(Op::Modulo, a, b), x - y * (x / y).trunc());
        same(of_one(Mf::Round, a), x.round_ties_even());
        same(of_one(Mf::Sqrt, a), x.sqrt());
        same(of_one(Mf::Fract, a), x - x.floor());
        assert_eq!(of(Op::NotEqual, a, b), Scalar::Bool(x != y));
        assert_eq!(of(Op::LessEqual, a, b), Scalar::Bool(x <= y));
        let fma = math(Mf::Fma, &[&a.into(), &b.into(), &a.into()])
            .unwrap()
            .scalar()
            .unwrap();
        same(fma, x.mul_add(y, x));
    }
}

/// Every finite value of an `f16` and all midpoints between neighbours, as `f64`.
#[test]
fn numbers_are_rounded_to_the_nearest_half_with_ties_to_even() {
    for bits in 0..f16::MAX.to_bits() {
        let (low, high) = (
            f16::from_bits(bits).to_f64(),
            f16::from_bits(bits + 1).to_f64(),
        );
        let middle = (low + high) / 2.0;
        let even = if bits % 2 == 0 { bits } else { bits + 1 };
        for sign in [1.0, -1.0] {
            let magnitude = |value: f64| nearest_f16(sign * value).to_bits() & 0x7fff;
            assert_eq!(magnitude(low), bits);
            assert_eq!(magnitude(middle), even);
            assert_eq!(magnitude(middle.next_down()), bits);
            assert_eq!(magnitude(middle.next_up()), bits + 1);
        }
    }
    assert_eq!(nearest_f16(65519.99), f16::MAX);
    assert_eq!(nearest_f16(65520.0), f16::INFINITY);
    assert_eq!(nearest_f16(-1e300), f16::NEG_INFINITY);
}

/// All sums, products and quotients of some halves, against exact rational comparison: the result is at
/// least as near as its neighbours.
#[test]
fn arithmetic_on_halves_is_correctly_rounded() {
    let mut draw = Draw::new("halves");
    for _ in 0..20_000 {
        let (Scalar::F16(x), Scalar::F16(y)) = (draw.scalar(Type::F16), draw.scalar(Type::F16))
        else {
            panic!()
        };
        let (a, b) = (x.to_f64(), y.to_f64());
        let Scalar::F16(sum) = of(Op::Add, Scalar::F16(x), Scalar::F16(y)) else {
            panic!()
        };
        let Scalar::F16(product) = of(Op::Multiply, Scalar::F16(x), Scalar::F16(y)) else {
            panic!()
        };
        for (got, exact) in [(sum, a + b), (product, a * b)] {
            if !exact.is_finite() || exact.abs() >= 65520.0 {
                assert!(!got.is_finite() || !exact.is_finite());
                continue;
            }
            let distance = (got.to_f64() - exact).abs();
            for neighbour in [got.to_bits().wrapping_sub(1), got.to_bits().wrapping_add(1)] {
                let neighbour = f16::from_bits(neighbour).to_f64();
                assert!(
                    !neighbour.is_finite() || distance <= (neighbour - exact).abs(),
                    "{x} {y}: {got}"
                );
            }
        }
    }
}

fn bits_of(value: u32) -> Vec<bool> {
    (0..32).map(|bit| value >> bit & 1 == 1).collect()
}

#[test]
fn functions_on_bits_do_what_their_definitions_say() {
    for scalar in edges(Type::U32) {
        let Scalar::U32(value) = scalar else { panic!() };
        let bits = bits_of(value);
        let word = |count: usize| Scalar::U32(count as u32);
        assert_eq!(
            of_one(Mf::CountOneBits, scalar),
            word(bits.iter().filter(|bit| **bit).count())
        );
        assert_eq!(
            of_one(Mf::CountLeadingZeros, scalar),
            word(bits.iter().rev().take_while(|bit| !**bit).count())
        );
        assert_eq!(
            of_one(Mf::CountTrailingZeros, scalar),
            word(bits.iter().take_while(|bit| !**bit).count())
        );
        let none = usize::MAX;
        assert_eq!(
            of_one(Mf::FirstLeadingBit, scalar),
            word(bits.iter().rposition(|bit| *bit).unwrap_or(none))
        );
        assert_eq!(
            of_one(Mf::FirstTrailingBit, scalar),
            word(bits.iter().position(|bit| *bit).unwrap_or(none))
        );
        let signed = Scalar::I32(value as i32);
        let different = bits.iter().rposition(|bit| *bit != bits[31]);
        assert_eq!(
            of_one(Mf::FirstLeadingBit, signed),
            Scalar::I32(different.map_or(-1, |at| at as i32))
        );
        let Scalar::U32(reversed) = of_one(Mf::ReverseBits, scalar) else {
            panic!()
        };
        assert!(bits_of(reversed).iter().eq(bits.iter().rev()));
    }
}

#[test]
fn bit_fields_are_copied_bit_by_bit() {
    for value in [0u32, 0xffff_ffff, 0x1234_5678, 0x8000_0001, 0x7fff_0000] {
        for offset in 0..40u32 {
            for count in 0..40u32 {
                let (o, c) = (offset.min(32), count.min(32 - offset.min(32)));
                let mut extracted = vec![false; 32];
                for bit in 0..c as usize {
                    extracted[bit] = bits_of(value)[bit + o as usize];
                }
                let operands = [
                    &Scalar::U32(value).into(),
                    &Scalar::U32(offset).into(),
                    &Scalar::U32(count).into(),
                ];
                let Some(Value::Scalar(Scalar::U32(got))) = math(Mf::ExtractBits, &operands) else {
                    panic!()
                };
                assert_eq!(bits_of(got), extracted, "{value:#x} {offset} {count}");

                let operands = [
                    &Scalar::I32(value as i32).into(),
                    &Scalar::U32(offset).into(),
                    &Scalar::U32(count).into(),
                ];
                let Some(Value::Scalar(Scalar::I32(got))) = math(Mf::ExtractBits, &operands) else {
                    panic!()
                };
                let sign = c > 0 && extracted[c as usize - 1];
                let extended: Vec<bool> = (0..32)
                    .map(|bit| {
                        if bit < c as usize {
                            extracted[bit]
                        } else {
                            sign
                        }
                    })
                    .collect();
                assert_eq!(bits_of(got as u32), extended, "{value:#x} {offset} {count}");

                let new = 0x5a5a_a5a5u32;
                let mut inserted = bits_of(value);
                for bit in 0..c as usize {
                    inserted[bit + o as usize] = bits_of(new)[bit];
                }
                let operands = [
                    &Scalar::U32(value).into(),
                    &Scalar::U32(new).into(),
                    &Scalar::U32(offset).into(),
                    &Scalar::U32(count).into(),
                ];
                let Some(Value::Scalar(Scalar::U32(got))) = math(Mf::InsertBits, &operands) else {
                    panic!()
                };
                assert_eq!(bits_of(got), inserted, "{value:#x} {offset} {count}");
            }
        }
    }
}

#[test]
fn conversions_are_those_that_wgsl_gives_as_examples() {
    let to = |scalar: Scalar, kind, width| {
        convert(&scalar.into(), kind, Some(width))
            .unwrap()
            .scalar()
            .unwrap()
    };
    let (sint, uint) = (ScalarKind::Sint, ScalarKind::Uint);
    assert_eq!(to(Scalar::F32(3.9), uint, 4), Scalar::U32(3));
    assert_eq!(to(Scalar::F32(-1.0), uint, 4), Scalar::U32(0));
    assert_eq!(to(Scalar::F32(1e20), uint, 4), Scalar::U32(4_294_967_040));
    assert_eq!(to(Scalar::F32(-3.9), sint, 4), Scalar::I32(-3));
    assert_eq!(to(Scalar::F32(1e20), sint, 4), Scalar::I32(2_147_483_520));
    assert_eq!(to(Scalar::F32(-1e20), sint, 4), Scalar::I32(i32::MIN));
    assert_eq!(
        to(Scalar::F32(f32::INFINITY), sint, 8),
        Scalar::I64(0x7fff_ff80_0000_0000)
    );
    assert_eq!(
        to(Scalar::F64(1e300), uint, 8),
        Scalar::U64(0xffff_ffff_ffff_f800)
    );
    assert_eq!(to(Scalar::F16(f16::INFINITY), sint, 4), Scalar::I32(65504));
    assert_eq!(to(Scalar::I32(-1), uint, 8), Scalar::U64(u64::MAX));
    assert_eq!(to(Scalar::U32(u32::MAX), sint, 8), Scalar::I64(0xffff_ffff));
    assert_eq!(to(Scalar::I64(0x1_0000_0002), uint, 4), Scalar::U32(2));
    assert_eq!(
        to(Scalar::U32(0xffff_ffff), ScalarKind::Float, 4),
        Scalar::F32(4_294_967_296.0)
    );
    assert_eq!(
        to(Scalar::F32(f32::NAN), ScalarKind::Bool, 1),
        Scalar::Bool(true)
    );
    assert_eq!(
        to(Scalar::F32(-0.0), ScalarKind::Bool, 1),
        Scalar::Bool(false)
    );
    let reinterpreted = convert(&Scalar::F32(1.0).into(), uint, None).unwrap();
    assert_eq!(reinterpreted.scalar(), Some(Scalar::U32(0x3f80_0000)));
}

#[test]
fn packing_is_as_wgsl_writes_it() {
    let vector = |components: &[f32]| {
        Value::Vector(
            Vector::new(
                &components
                    .iter()
                    .map(|value| Scalar::F32(*value))
                    .collect::<Vec<_>>(),
            )
            .unwrap(),
        )
    };
    let packed = |function, value: &Value| math(function, &[value]).unwrap().scalar().unwrap();
    assert_eq!(
        packed(Mf::Pack4x8snorm, &vector(&[1.0, -1.0, 0.5, -2.0])),
        Scalar::U32(0x8140_817f)
    );
    assert_eq!(
        packed(Mf::Pack4x8unorm, &vector(&[1.0, 0.5, -1.0, 0.3])),
        Scalar::U32(0x4d00_80ff)
    );
    assert_eq!(
        packed(Mf::Pack2x16snorm, &vector(&[-1.0, -0.5])),
        Scalar::U32(0xc001_8001)
    );
    assert_eq!(
        packed(Mf::Pack2x16float, &vector(&[1.0, -2.0])),
        Scalar::U32(0xc000_3c00)
    );
    let unpacked = math(Mf::Unpack4x8snorm, &[&Scalar::U32(0x8081_7f00).into()]).unwrap();
    assert_eq!(unpacked.leaves(), [0.0, 1.0, -1.0, -1.0].map(Scalar::F32));
    let dot = |function, a: u32, b: u32| {
        math(function, &[&Scalar::U32(a).into(), &Scalar::U32(b).into()])
    };
    let dot = |function, a, b| dot(function, a, b).unwrap().scalar().unwrap();
    assert_eq!(
        dot(Mf::Dot4I8Packed, 0x80ff_017f, 0x8002_ff7f),
        Scalar::I32(16384 - 2 - 1 + 16129)
    );
    assert_eq!(
        dot(Mf::Dot4U8Packed, 0xffff_ffff, 0xffff_ffff),
        Scalar::U32(4 * 65025)
    );
}
