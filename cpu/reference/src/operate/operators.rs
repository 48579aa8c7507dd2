//! Unary and binary operators, `select`, and the tests of booleans.

use naga::{BinaryOperator, RelationalFunction, ScalarKind, UnaryOperator};

use crate::value::{Scalar, Value, Vector};

/// The result of an operator on one value; `None` where WGSL has no such operator.
pub fn unary(operator: UnaryOperator, value: &Value) -> Option<Value> {
    if let (UnaryOperator::Negate, Value::Matrix(columns)) = (operator, value) {
        let columns = columns.iter().map(|column| column.map(negate));
        return columns.collect::<Option<_>>().map(Value::Matrix);
    }
    value.map(|scalar| match operator {
        UnaryOperator::Negate => negate(scalar),
        UnaryOperator::LogicalNot => scalar.bool().map(|value| Scalar::Bool(!value)),
        UnaryOperator::BitwiseNot => Scalar::wrapped(scalar.ty(), !scalar.integer()?),
    })
}

fn negate(scalar: Scalar) -> Option<Scalar> {
    match scalar {
        Scalar::F16(value) => Some(Scalar::F16(-value)),
        Scalar::F32(value) => Some(Scalar::F32(-value)),
        Scalar::F64(value) => Some(Scalar::F64(-value)),
        _ => Scalar::wrapped(scalar.ty(), -scalar.integer()?),
    }
}

/// The result of an operator on two values; `None` where WGSL has no such operator.
pub fn binary(operator: BinaryOperator, left: &Value, right: &Value) -> Option<Value> {
    use Value::Matrix;
    match (operator, left, right) {
        (BinaryOperator::Add | BinaryOperator::Subtract, Matrix(a), Matrix(b))
            if a.len() == b.len() =>
        {
            let columns = a
                .iter()
                .zip(b.iter())
                .map(|(a, b)| a.zip(*b, |a, b| scalar_binary(operator, a, b)));
            columns.collect::<Option<_>>().map(Matrix)
        }
        (BinaryOperator::Equal | BinaryOperator::NotEqual, Matrix(_), _) => None,
        (BinaryOperator::Multiply, Matrix(a), Matrix(b)) => b
            .iter()
            .map(|column| matrix_times_vector(a, *column))
            .collect::<Option<_>>()
            .map(Matrix),
        (BinaryOperator::Multiply, Matrix(a), Value::Vector(b)) => {
            matrix_times_vector(a, *b).map(Value::Vector)
        }
        (BinaryOperator::Multiply, Value::Vector(a), Matrix(b)) => {
            let components: Option<Vec<_>> = b
                .iter()
                .map(|column| dot(a.components(), column.components()))
                .collect();
            Vector::new(&components?).map(Value::Vector)
        }
        (BinaryOperator::Multiply, Matrix(a), Value::Scalar(b))
        | (BinaryOperator::Multiply, Value::Scalar(b), Matrix(a)) => {
            let columns = a
                .iter()
                .map(|column| column.map(|a| scalar_binary(operator, a, *b)));
            columns.collect::<Option<_>>().map(Matrix)
        }
        _ => left.zip(right, |a, b| scalar_binary(operator, a, b)),
    }
}

/// The sum of products, from the first to the last, each step rounded.
pub(super) fn dot(a: &[Scalar], b: &[Scalar]) -> Option<Scalar> {
    if a.len() != b.len() {
        return None;
    }
    let mut products = a
        .iter()
        .zip(b)
        .map(|(a, b)| scalar_binary(BinaryOperator::Multiply, *a, *b));
    let first = products.next()??;
    products.try_fold(first, |sum, product| {
        scalar_binary(BinaryOperator::Add, sum, product?)
    })
}

fn matrix_times_vector(columns: &[Vector], vector: Vector) -> Option<Vector> {
    let rows = columns.first()?.size();
    let components: Option<Vec<Scalar>> = (0..rows)
        .map(|row| {
            let row: Option<Vec<Scalar>> = columns
                .iter()
                .map(|column| column.components().get(row).copied())
                .collect();
            dot(&row?, vector.components())
        })
        .collect();
    Vector::new(&components?)
}

/// The result of an operator on two scalars; `None` where WGSL has no such operator.
pub fn scalar_binary(operator: BinaryOperator, left: Scalar, right: Scalar) -> Option<Scalar> {
    use BinaryOperator as Op;
    match operator {
        Op::ShiftLeft | Op::ShiftRight => shift(operator, left, right),
        _ if left.ty() != right.ty() => None,
        Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual => {
            compare(operator, left, right).map(Scalar::Bool)
        }
        _ => match left.ty().kind {
            ScalarKind::Bool => logical(operator, left.bool()?, right.bool()?).map(Scalar::Bool),
            ScalarKind::Float => float(operator, left, right),
            _ => integer(operator, left.integer()?, right.integer()?)
                .and_then(|value| Scalar::wrapped(left.ty(), value)),
        },
    }
}

/// The amount of a shift counts modulo the width of what is shifted.
fn shift(operator: BinaryOperator, value: Scalar, amount: Scalar) -> Option<Scalar> {
    let width = u32::from(value.ty().width) * 8;
    let amount = (amount.integer()? as u32) % width;
    let value_before = value.integer()?;
    let shifted = match operator {
        BinaryOperator::ShiftLeft => value_before << amount,
        _ => value_before >> amount,
    };
    Scalar::wrapped(value.ty(), shifted)
}

fn logical(operator: BinaryOperator, left: bool, right: bool) -> Option<bool> {
    Some(match operator {
        BinaryOperator::And | BinaryOperator::LogicalAnd => left && right,
        BinaryOperator::InclusiveOr | BinaryOperator::LogicalOr => left || right,
        BinaryOperator::ExclusiveOr => left != right,
        _ => return None,
    })
}

/// Exact; division by zero gives the dividend, its remainder zero.
fn integer(operator: BinaryOperator, left: i128, right: i128) -> Option<i128> {
    use BinaryOperator as Op;
    Some(match operator {
        Op::Add => left + right,
        Op::Subtract => left - right,
        Op::Multiply => left.wrapping_mul(right),
        Op::Divide if right == 0 => left,
        Op::Divide => left / right,
        Op::Modulo if right == 0 => 0,
        Op::Modulo => left % right,
        Op::And => left & right,
        Op::InclusiveOr => left | right,
        Op::ExclusiveOr => left ^ right,
        _ => return None,
    })
}

/// An operator on floats of one type, in the arithmetic of that type; `%` by WGSL's definition.
macro_rules! arithmetic {
    ($operator:expr, $a:expr, $b:expr) => {
        match $operator {
            BinaryOperator::Add => $a + $b,
            BinaryOperator::Subtract => $a - $b,
            BinaryOperator::Multiply => $a * $b,
            BinaryOperator::Divide => $a / $b,
            BinaryOperator::Modulo => $a - $b * ($a / $b).trunc(),
            _ => return None,
        }
    };
}

fn float(operator: BinaryOperator, left: Scalar, right: Scalar) -> Option<Scalar> {
    Some(match (left, right) {
        // Each step of `%` rounds.
        (Scalar::F32(a), Scalar::F32(b)) => Scalar::F32(arithmetic!(operator, a, b)),
        (Scalar::F64(a), Scalar::F64(b)) => Scalar::F64(arithmetic!(operator, a, b)),
        (Scalar::F16(a), Scalar::F16(b)) if operator == BinaryOperator::Modulo => {
            let (a, b) = (a.to_f64(), b.to_f64());
            let round = half::f16::from_f64;
            let quotient = round(a / b).to_f64().trunc();
            Scalar::F16(round(a - round(b * quotient).to_f64()))
        }
        (Scalar::F16(a), Scalar::F16(b)) => {
            // An `f64` holds more than twice an `f16`'s digits, so that its rounding is innocuous.
            Scalar::rounded(naga::Scalar::F16, double(operator, a.to_f64(), b.to_f64())?)?
        }
        _ => return None,
    })
}

fn double(operator: BinaryOperator, a: f64, b: f64) -> Option<f64> {
    Some(arithmetic!(operator, a, b))
}

/// A NaN is equal to nothing, and neither less nor greater.
fn compare(operator: BinaryOperator, left: Scalar, right: Scalar) -> Option<bool> {
    use core::cmp::Ordering;
    let ordering: Option<Ordering> = match (left.bool(), right.bool()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => match (left.integer(), right.integer()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.float()?.partial_cmp(&right.float()?),
        },
    };
    Some(match operator {
        BinaryOperator::Equal => ordering == Some(Ordering::Equal),
        BinaryOperator::NotEqual => ordering != Some(Ordering::Equal),
        BinaryOperator::Less => ordering == Some(Ordering::Less),
        BinaryOperator::LessEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        BinaryOperator::Greater => ordering == Some(Ordering::Greater),
        BinaryOperator::GreaterEqual => {
            matches!(ordering, Some(Ordering::Greater | Ordering::Equal))
        }
        _ => return None,
    })
}

/// `select`: `accept` where the condition holds, component by component if it is a vector.
pub fn select(condition: &Value, accept: &Value, reject: &Value) -> Option<Value> {
    match condition {
        Value::Scalar(condition) => Some(if condition.bool()? {
            accept.clone()
        } else {
            reject.clone()
        }),
        Value::Vector(conditions) => {
            let (accept, reject) = (accept.vector()?, reject.vector()?);
            let chosen: Option<Vec<Scalar>> = conditions
                .components()
                .iter()
                .zip(accept.components().iter().zip(reject.components()))
                .map(|(condition, (accept, reject))| {
                    Some(if condition.bool()? { *accept } else { *reject })
                })
                .collect();
            Vector::new(&chosen?).map(Value::Vector)
        }
        _ => None,
    }
}

/// `all`, `any`, and the tests for NaN and infinity.
pub fn relational(function: RelationalFunction, argument: &Value) -> Option<Value> {
    match function {
        RelationalFunction::All => fold(argument, |a, b| a && b),
        RelationalFunction::Any => fold(argument, |a, b| a || b),
        RelationalFunction::IsNan => {
            argument.map(|value| Some(Scalar::Bool(value.float()?.is_nan())))
        }
        RelationalFunction::IsInf => {
            argument.map(|value| Some(Scalar::Bool(value.float()?.is_infinite())))
        }
    }
}

fn fold(argument: &Value, combine: impl Fn(bool, bool) -> bool) -> Option<Value> {
    let mut components = argument
        .components()?
        .iter()
        .map(|component| component.bool());
    let first = components.next()??;
    let all = components.try_fold(first, |all, next| Some(combine(all, next?)))?;
    Some(Scalar::Bool(all).into())
}
