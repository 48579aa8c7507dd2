//! Conversions between all scalar types, and reinterpretations of bits.

use naga::{Scalar as Type, ScalarKind};

use super::{ComponentWise, exactly};
use crate::conformance::expected::Expected;
use crate::conformance::format::Format;
use crate::conformance::row::{Row, scalar_name};
use crate::operate;
use crate::value::Scalar;

const TYPES: [Type; 8] = [
    Type::BOOL,
    Type::I32,
    Type::U32,
    Type::F32,
    Type::F16,
    Type::I64,
    Type::U64,
    Type::F64,
];

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for from in TYPES {
        for to in TYPES {
            rows.extend(conversion_rows(from, to));
        }
    }
    for types in [
        &[Type::I32, Type::U32, Type::F32][..],
        &[Type::I64, Type::U64, Type::F64],
    ] {
        for from in types {
            for to in types {
                rows.extend(bitcast_rows(*from, *to));
            }
        }
    }
    rows
}

fn convert(scalar: Scalar, to: Type, reinterpret: bool) -> Option<Scalar> {
    let width = (!reinterpret).then_some(to.width);
    operate::convert(&scalar.into(), to.kind, width)?.scalar()
}

/// The name of a type's vector, to convert by: WGSL infers nothing between types.
fn constructor(to: Type) -> String {
    scalar_name(to).to_owned()
}

fn conversion_rows(from: Type, to: Type) -> Vec<Row> {
    let mut rows = Vec::new();
    let name = format!("to {}", scalar_name(to));
    let all = |expression: &str| {
        ComponentWise {
            name: &name,
            operands: &[from],
            result: to,
            expression,
            always_scalar: &[],
            expected: &|scalars| converted(scalars[0], to),
            ieee: &|scalars| {
                if scalars[0].is_nan() && to.kind != ScalarKind::Float {
                    None
                } else {
                    convert(scalars[0], to, false)
                }
            },
        }
        .rows()
    };
    // One text serves one width: scalars and vectors are constructed differently.
    for (index, row) in all(&format!("{}(a0)", constructor(to)))
        .into_iter()
        .enumerate()
    {
        if index == 0 {
            rows.push(row);
        }
    }
    for width in 2..=4 {
        rows.extend(
            all(&format!("vec{width}<{}>(a0)", constructor(to)))
                .into_iter()
                .nth(width - 1),
        );
    }
    rows
}

/// What WGSL allows a conversion to give.
fn converted(scalar: Scalar, to: Type) -> Expected {
    let exact = || exactly(convert(scalar, to, false));
    let Some(target) = Format::of(to) else {
        // Float to integer is exact, but for NaN. Whatever is not zero is true; a subnormal may be zero.
        return match scalar.float() {
            Some(value) if value.is_nan() => Expected::Anything,
            Some(value) if !value.is_finite() => Expected::Anything,
            Some(value)
                if to.kind == ScalarKind::Bool
                    && Format::of(scalar.ty()).is_some_and(|from| from.is_subnormal(value)) =>
            {
                Expected::Anything
            }
            _ => exact(),
        };
    };
    let value = match (scalar.float(), scalar.integer()) {
        (Some(value), _) if !value.is_finite() => return Expected::Anything,
        (Some(value), _) => value,
        // Integers beyond 2^53 are compared by what lies around them.
        (_, Some(integer)) => return between_neighbours(integer, target),
        _ => return exact(),
    };
    let (low, high) = (target.down(value), target.up(value));
    if low < -target.max() || high > target.max() {
        return Expected::Anything;
    }
    let source_flushes = Format::of(scalar.ty()).is_some_and(|from| from.is_subnormal(value));
    let flushes = source_flushes || target.is_subnormal(low) || target.is_subnormal(high);
    if flushes {
        Expected::Between(low.min(0.0), high.max(0.0))
    } else {
        Expected::Between(low, high)
    }
}

fn between_neighbours(integer: i128, target: Format) -> Expected {
    let nearest = integer as f64;
    // An `f64` next to the integer on either side, if it is none itself.
    let below = if nearest as i128 > integer {
        nearest.next_down()
    } else {
        nearest
    };
    let above = if (nearest as i128) < integer {
        nearest.next_up()
    } else {
        nearest
    };
    let (low, high) = (target.down(below), target.up(above));
    if low < -target.max() || high > target.max() {
        Expected::Anything
    } else {
        Expected::Between(low, high)
    }
}

fn bitcast_rows(from: Type, to: Type) -> Vec<Row> {
    let name = format!("bitcast to {}", scalar_name(to));
    let mut rows = Vec::new();
    for width in 1..=4 {
        let target = if width == 1 {
            scalar_name(to).to_owned()
        } else {
            format!("vec{width}<{}>", scalar_name(to))
        };
        let all = ComponentWise {
            name: &name,
            operands: &[from],
            result: to,
            expression: &format!("bitcast<{target}>(a0)"),
            always_scalar: &[],
            expected: &|scalars| reinterpreted(scalars[0], to),
            ieee: &|scalars| convert(scalars[0], to, true).filter(|_| !scalars[0].is_nan()),
        }
        .rows();
        rows.extend(all.into_iter().nth(width - 1));
    }
    rows
}

/// The same bits. A NaN may change its own, and a subnormal may become zero on the way.
fn reinterpreted(scalar: Scalar, to: Type) -> Expected {
    let Some(bits) = convert(scalar, to, true) else {
        return Expected::Anything;
    };
    let loose = |scalar: Scalar| {
        let format = Format::of(scalar.ty());
        let value = scalar.float();
        value.is_some_and(|value| {
            value.is_nan() || format.is_some_and(|format| format.is_subnormal(value))
        })
    };
    match (loose(scalar), loose(bits)) {
        (true, _) if scalar.is_nan() => Expected::Anything,
        (_, true) if bits.is_nan() => Expected::Anything,
        (true, _) | (_, true) => match Scalar::zero(to) {
            // A flushed value keeps its sign or loses it.
            Some(zero) => {
                let sign = Scalar::from_bits(to, bits.bits() & 1 << (u32::from(to.width) * 8 - 1));
                Expected::OneOf(
                    [Some(bits), Some(zero), sign]
                        .into_iter()
                        .flatten()
                        .collect(),
                )
            }
            None => Expected::Anything,
        },
        _ => Expected::Exactly(bits),
    }
}
