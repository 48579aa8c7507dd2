//! Operators on booleans, `select`, `all` and `any`.

use naga::{BinaryOperator as Op, Scalar as Type};

use super::{ComponentWise, binary, exactly, no_ieee};
use crate::conformance::expected::Expected;
use crate::conformance::inputs;
use crate::conformance::row::{Case, Operation, Row, ValueType};
use crate::value::Scalar;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (symbol, operator) in [
        ("&", Op::And),
        ("|", Op::InclusiveOr),
        ("==", Op::Equal),
        ("!=", Op::NotEqual),
        ("&&", Op::LogicalAnd),
        ("||", Op::LogicalOr),
    ] {
        let expected = |scalars: &[Scalar]| exactly(binary(operator, scalars));
        let widths =
            ComponentWise::operator_rows(symbol, operator, Type::BOOL, &expected, &no_ieee);
        // The logical operators are of scalars only.
        let count = match operator {
            Op::LogicalAnd | Op::LogicalOr => 1,
            _ => widths.len(),
        };
        rows.extend(widths.into_iter().take(count));
    }
    let not = ComponentWise {
        name: "!",
        operands: &[Type::BOOL],
        result: Type::BOOL,
        expression: "!a0",
        always_scalar: &[],
        expected: &|scalars| exactly(scalars[0].bool().map(|value| Scalar::Bool(!value))),
        ieee: &no_ieee,
    };
    rows.extend(not.rows());
    rows.extend(select_rows());
    rows.extend((2..=4).flat_map(|width| [fold_row("all", width), fold_row("any", width)]));
    rows
}

/// `select` of every type, by a boolean for each component and by one for all.
fn select_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in [
        Type::I32,
        Type::U32,
        Type::F32,
        Type::F16,
        Type::BOOL,
        Type::I64,
        Type::F64,
    ] {
        for (name, always_scalar) in [("select", &[][..]), ("select by one", &[2][..])] {
            let operation = ComponentWise {
                name,
                operands: &[ty, ty, Type::BOOL],
                result: ty,
                expression: "select(a0, a1, a2)",
                always_scalar,
                expected: &|scalars| match scalars[2].bool() {
                    Some(chosen) => Expected::Exactly(scalars[usize::from(chosen)]),
                    None => Expected::Anything,
                },
                ieee: &no_ieee,
            };
            rows.extend(operation.rows());
        }
    }
    rows
}

fn fold_row(name: &str, width: u8) -> Row {
    let mut draw = inputs::Draw::new(name);
    let cases = (0..32u32).map(|case| {
        // Every combination, and the rest drawn.
        let components: Vec<Scalar> = (0..width)
            .map(|index| {
                if case < 16 {
                    Scalar::Bool(case >> index & 1 == 1)
                } else {
                    draw.scalar(Type::BOOL)
                }
            })
            .collect();
        let mut values = components.iter().filter_map(|component| component.bool());
        let result = if name == "all" {
            values.all(|value| value)
        } else {
            values.any(|value| value)
        };
        Case {
            operands: vec![components],
            expected: vec![Expected::Exactly(Scalar::Bool(result))],
            ieee: None,
        }
    });
    Operation {
        name: format!("{name} bool x{width}"),
        operands: vec![ValueType::wide(Type::BOOL, width)],
        result: ValueType::wide(Type::BOOL, 1),
        expression: format!("{name}(a0)"),
        cases: cases.collect(),
    }
    .row()
}
