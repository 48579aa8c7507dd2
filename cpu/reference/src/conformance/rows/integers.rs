//! Operators and built-in functions on integers. All results are exact.

use naga::{BinaryOperator as Op, MathFunction as Mf, Scalar as Type, ScalarKind};

use super::{ComponentWise, INTEGERS, OPERATORS, binary, exactly, math, no_ieee};
use crate::conformance::row::Row;
use crate::operate;
use crate::value::Scalar;

const BITWISE: [(&str, Op); 3] = [
    ("&", Op::And),
    ("|", Op::InclusiveOr),
    ("^", Op::ExclusiveOr),
];

const FUNCTIONS: [(&str, Mf, usize); 11] = [
    ("abs", Mf::Abs, 1),
    ("sign", Mf::Sign, 1),
    ("min", Mf::Min, 2),
    ("max", Mf::Max, 2),
    ("clamp", Mf::Clamp, 3),
    ("countLeadingZeros", Mf::CountLeadingZeros, 1),
    ("countTrailingZeros", Mf::CountTrailingZeros, 1),
    ("countOneBits", Mf::CountOneBits, 1),
    ("reverseBits", Mf::ReverseBits, 1),
    ("firstLeadingBit", Mf::FirstLeadingBit, 1),
    ("firstTrailingBit", Mf::FirstTrailingBit, 1),
];

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in INTEGERS {
        for (symbol, operator) in OPERATORS.into_iter().chain(BITWISE) {
            let expected = |scalars: &[Scalar]| exactly(binary(operator, scalars));
            rows.extend(ComponentWise::operator_rows(
                symbol, operator, ty, &expected, &no_ieee,
            ));
        }
        for (name, function, count) in FUNCTIONS {
            // Functions on bits exist for 32 bits only; WGSL's `sign` has no unsigned form.
            let wide = ty.width == 8
                && !matches!(function, Mf::Abs | Mf::Sign | Mf::Min | Mf::Max | Mf::Clamp);
            if !wide && !(function == Mf::Sign && ty.kind == ScalarKind::Uint) {
                let expected = |scalars: &[Scalar]| exactly(math(function, scalars));
                rows.extend(ComponentWise::function_rows(
                    name, count, ty, &expected, &no_ieee,
                ));
            }
        }
        rows.extend(shift_rows(ty));
        rows.extend(unary_rows(ty));
        if ty.width == 4 {
            rows.extend(field_rows(ty));
        }
    }
    rows
}

/// Shifts by every amount, those beyond the width included.
fn shift_rows(ty: Type) -> Vec<Row> {
    [("<<", Op::ShiftLeft), (">>", Op::ShiftRight)]
        .iter()
        .flat_map(|(symbol, operator)| {
            ComponentWise {
                name: symbol,
                operands: &[ty, Type::U32],
                result: ty,
                expression: &format!("a0 {symbol} a1"),
                always_scalar: &[],
                expected: &|scalars| exactly(binary(*operator, scalars)),
                ieee: &no_ieee,
            }
            .rows()
        })
        .collect()
}

fn unary_rows(ty: Type) -> Vec<Row> {
    let one = |name: &str, expression: &str, operator: naga::UnaryOperator| {
        ComponentWise {
            name,
            operands: &[ty],
            result: ty,
            expression,
            always_scalar: &[],
            expected: &|scalars| {
                let result = operate::unary(operator, &scalars[0].into());
                exactly(result.and_then(|result| result.scalar()))
            },
            ieee: &no_ieee,
        }
        .rows()
    };
    let mut rows = one("~", "~a0", naga::UnaryOperator::BitwiseNot);
    if ty.kind == ScalarKind::Sint {
        rows.extend(one("negate", "-a0", naga::UnaryOperator::Negate));
    }
    rows
}

/// `extractBits` and `insertBits`, with fields that begin or end beyond the width.
fn field_rows(ty: Type) -> Vec<Row> {
    let result = |function: Mf| move |scalars: &[Scalar]| exactly(math(function, scalars));
    let mut rows = ComponentWise {
        name: "extractBits",
        operands: &[ty, Type::U32, Type::U32],
        result: ty,
        expression: "extractBits(a0, a1 % 40u, a2 % 40u)",
        always_scalar: &[1, 2],
        expected: &|scalars| result(Mf::ExtractBits)(&reduced(scalars)),
        ieee: &no_ieee,
    }
    .rows();
    rows.extend(
        ComponentWise {
            name: "insertBits",
            operands: &[ty, ty, Type::U32, Type::U32],
            result: ty,
            expression: "insertBits(a0, a1, a2 % 40u, a3 % 40u)",
            always_scalar: &[2, 3],
            expected: &|scalars| result(Mf::InsertBits)(&reduced(scalars)),
            ieee: &no_ieee,
        }
        .rows(),
    );
    rows
}

/// The last two operands modulo 40: fields near the width's end are what matters.
fn reduced(scalars: &[Scalar]) -> Vec<Scalar> {
    let fields = scalars.len() - 2;
    let reduce = |(index, scalar): (usize, &Scalar)| match *scalar {
        Scalar::U32(value) if index >= fields => Scalar::U32(value % 40),
        other => other,
    };
    scalars.iter().enumerate().map(reduce).collect()
}
