//! Packing and unpacking, and dot products of packed vectors.

use naga::{MathFunction as Mf, Scalar as Type};

use super::exactly;
use crate::conformance::expected::Expected;
use crate::conformance::format::Format;
use crate::conformance::inputs::{self, Draw};
use crate::conformance::interval::Interval;
use crate::conformance::row::{Case, Operation, Row, ValueType};
use crate::operate;
use crate::value::Scalar;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, bits, signed) in [
        ("pack4x8snorm", 8, true),
        ("pack4x8unorm", 8, false),
        ("pack2x16snorm", 16, true),
        ("pack2x16unorm", 16, false),
    ] {
        rows.push(row(name, Type::F32, 32 / bits, Type::U32, 1, &|scalars| {
            vec![normalized(scalars, u32::from(bits), signed)]
        }));
    }
    rows.push(row(
        "pack2x16float",
        Type::F32,
        2,
        Type::U32,
        1,
        &|scalars| vec![halves(scalars)],
    ));
    for (name, function, ty) in [
        ("pack4xI8", Mf::Pack4xI8, Type::I32),
        ("pack4xU8", Mf::Pack4xU8, Type::U32),
        ("pack4xI8Clamp", Mf::Pack4xI8Clamp, Type::I32),
        ("pack4xU8Clamp", Mf::Pack4xU8Clamp, Type::U32),
    ] {
        rows.push(row(name, ty, 4, Type::U32, 1, &|scalars| {
            exact(function, scalars, 4)
        }));
    }
    for (name, function, result) in [
        ("unpack4xI8", Mf::Unpack4xI8, Type::I32),
        ("unpack4xU8", Mf::Unpack4xU8, Type::U32),
    ] {
        rows.push(row(name, Type::U32, 1, result, 4, &|scalars| {
            exact(function, scalars, 1)
        }));
    }
    for (name, width, divisor) in [
        ("unpack4x8snorm", 4, 127.0),
        ("unpack4x8unorm", 4, 255.0),
        ("unpack2x16snorm", 2, 32767.0),
        ("unpack2x16unorm", 2, 65535.0),
    ] {
        let signed = name.ends_with("snorm");
        rows.push(row(name, Type::U32, 1, Type::F32, width, &|scalars| {
            let fields = fields(scalars[0], width, signed);
            let value = |field: i64| {
                Interval::within_ulp(Format::F32, (field as f64 / divisor).max(-1.0), 3.0)
            };
            fields
                .into_iter()
                .map(|field| value(field).into())
                .collect()
        }));
    }
    rows.push(row(
        "unpack2x16float",
        Type::U32,
        1,
        Type::F32,
        2,
        &|scalars| {
            fields(scalars[0], 2, false)
                .into_iter()
                .map(unpacked_half)
                .collect()
        },
    ));
    rows.extend([
        dot_row("dot4I8Packed", true),
        dot_row("dot4U8Packed", false),
    ]);
    rows
}

/// The row of a function from vectors of `width` components to vectors of `result_width`.
fn row(
    name: &str,
    ty: Type,
    width: u8,
    result: Type,
    result_width: u8,
    expected: &dyn Fn(&[Scalar]) -> Vec<Expected>,
) -> Row {
    let mut draw = Draw::new(name);
    let edges = inputs::edges(ty);
    let cases = (0..600).map(|case: usize| {
        let component = |draw: &mut Draw| match case {
            0..200 => edges[(case + draw.below(edges.len())) % edges.len()],
            200..300 if ty == Type::F32 => Scalar::F32(draw.between(-1.2, 1.2) as f32),
            // Near the middle between two values of eight bits, where rounding decides.
            300..400 if ty == Type::F32 => {
                Scalar::F32(((draw.below(256) as f64 + 0.5) / 255.0) as f32)
            }
            _ => draw.scalar(ty),
        };
        let operands: Vec<Scalar> = (0..width).map(|_| component(&mut draw)).collect();
        Case {
            expected: expected(&operands),
            operands: vec![operands],
            ieee: None,
        }
    });
    Operation {
        cases: cases.collect(),
        name: name.to_owned(),
        operands: vec![ValueType::wide(ty, width)],
        result: ValueType::wide(result, result_width),
        expression: format!("{name}(a0)"),
    }
    .row()
}

fn exact(function: Mf, scalars: &[Scalar], width: u8) -> Vec<Expected> {
    let ty = ValueType::wide(scalars[0].ty(), width);
    let result = ty
        .value(scalars)
        .and_then(|value| operate::math(function, &[&value]));
    result.map_or(Vec::new(), |result| {
        result.leaves().into_iter().map(Expected::Exactly).collect()
    })
}

/// Fields of `floor(0.5 + scale * clamp(x))`, whose product and sum may be rounded up or down.
fn normalized(scalars: &[Scalar], bits: u32, signed: bool) -> Expected {
    let scale = if signed {
        (1i64 << (bits - 1)) - 1
    } else {
        (1i64 << bits) - 1
    };
    let range = |scalar: &Scalar| {
        let value = scalar.float().filter(|value| value.is_finite());
        let Some(value) = value else {
            return (i64::MIN, i64::MAX);
        };
        let clamped =
            Interval::operand(Format::F32, value).clamp(if signed { -1.0 } else { 0.0 }, 1.0);
        let scaled = clamped.mul(Format::F32, Interval::constant(Format::F32, scale as f64));
        match scaled.add(Format::F32, Interval::constant(Format::F32, 0.5)) {
            Interval::Between(low, high) => (low.floor() as i64, high.floor() as i64),
            Interval::Anything => (i64::MIN, i64::MAX),
        }
    };
    Expected::Fields {
        bits,
        signed,
        ranges: scalars.iter().map(range).collect(),
    }
}

/// Two `f16`: the values next to each component, as unsigned fields. Subnormals may be flushed.
fn halves(scalars: &[Scalar]) -> Expected {
    let small = Format::F16;
    let range = |scalar: &Scalar| {
        let value = scalar.float().unwrap_or(f64::NAN);
        let (low, high) = (small.down(value), small.up(value));
        // A zero of either sign may stand for what is flushed, and the sign makes the fields no range.
        let flushes = Format::F32.is_subnormal(value) || value == 0.0;
        let near_zero = low.abs() < small.min_normal() || high.abs() < small.min_normal();
        if flushes || near_zero {
            return (0, 0xffff);
        }
        let bits = |value: f64| i64::from(crate::value::nearest_f16(value).to_bits());
        (bits(low).min(bits(high)), bits(low).max(bits(high)))
    };
    // One component beyond the range leaves the whole word open.
    let in_range = |scalar: &Scalar| {
        scalar
            .float()
            .is_some_and(|value| value.abs() <= small.max())
    };
    if !scalars.iter().all(in_range) {
        return Expected::Anything;
    }
    Expected::Fields {
        bits: 16,
        signed: false,
        ranges: scalars.iter().map(range).collect(),
    }
}

fn fields(scalar: Scalar, count: u8, signed: bool) -> Vec<i64> {
    let bits = 32 / u32::from(count);
    let field = |index: u32| {
        let field = (scalar.bits() as u32) << (32 - bits - bits * index);
        if signed {
            i64::from(field as i32 >> (32 - bits))
        } else {
            i64::from(field >> (32 - bits))
        }
    };
    (0..u32::from(count)).map(field).collect()
}

fn unpacked_half(field: i64) -> Expected {
    let value = half::f16::from_bits(field as u16).to_f64();
    match value.is_finite() {
        true if Format::F16.is_subnormal(value) => Expected::exact_float(Type::F32, [value, 0.0]),
        true => Expected::exact_float(Type::F32, [value]),
        false => Expected::Anything,
    }
}

fn dot_row(name: &str, signed: bool) -> Row {
    let function = if signed {
        Mf::Dot4I8Packed
    } else {
        Mf::Dot4U8Packed
    };
    let cases = inputs::combinations(name, &[Type::U32, Type::U32], 400)
        .into_iter()
        .map(|scalars| Case {
            expected: vec![exactly(super::math(function, &scalars))],
            operands: scalars.into_iter().map(|scalar| vec![scalar]).collect(),
            ieee: None,
        });
    Operation {
        cases: cases.collect(),
        name: name.to_owned(),
        operands: vec![ValueType::wide(Type::U32, 1); 2],
        result: ValueType::wide(if signed { Type::I32 } else { Type::U32 }, 1),
        expression: format!("{name}(a0, a1)"),
    }
    .row()
}
