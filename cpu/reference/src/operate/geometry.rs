//! Built-in functions on vectors and matrices as wholes.
//!
//! Each is evaluated by the expression that WGSL's accuracy table names, step by step in the type of
//! its arguments.

use naga::{BinaryOperator, MathFunction};

use super::operators::{dot, scalar_binary};
use super::transcendental;
use crate::value::{Scalar, Value, Vector};

fn mul(a: Scalar, b: Scalar) -> Option<Scalar> {
    scalar_binary(BinaryOperator::Multiply, a, b)
}

fn sub(a: Scalar, b: Scalar) -> Option<Scalar> {
    scalar_binary(BinaryOperator::Subtract, a, b)
}

fn constant(like: Scalar, value: f64) -> Option<Scalar> {
    Scalar::rounded(like.ty(), value)
}

/// The geometric functions; `None` for other functions and for arguments that do not fit.
pub fn geometry(function: MathFunction, arguments: &[&Value]) -> Option<Value> {
    use MathFunction as Mf;
    match (function, arguments) {
        (Mf::Dot, [a, b]) => {
            dot(a.vector()?.components(), b.vector()?.components()).map(Value::Scalar)
        }
        (Mf::Cross, [a, b]) => cross(a.vector()?, b.vector()?).map(Value::Vector),
        (Mf::Length, [a]) => length(a).map(Value::Scalar),
        (Mf::Distance, [a, b]) => length(&a.zip(b, sub)?).map(Value::Scalar),
        (Mf::Normalize, [a]) => {
            let length = length(a)?;
            a.map(|component| scalar_binary(BinaryOperator::Divide, component, length))
        }
        (Mf::FaceForward, [a, b, c]) => {
            let facing = dot(b.vector()?.components(), c.vector()?.components())?;
            let toward = facing.float()? < 0.0;
            if toward {
                Some((*a).clone())
            } else {
                super::unary(naga::UnaryOperator::Negate, a)
            }
        }
        (Mf::Reflect, [incident, normal]) => {
            reflect(incident.vector()?, normal.vector()?).map(Value::Vector)
        }
        (Mf::Refract, [incident, normal, ratio]) => {
            refract(incident.vector()?, normal.vector()?, ratio.scalar()?).map(Value::Vector)
        }
        (Mf::Outer, [a, b]) => {
            let (a, b) = (a.vector()?, b.vector()?);
            let columns = b.components().iter().map(|b| a.map(|a| mul(a, *b)));
            columns.collect::<Option<_>>().map(Value::Matrix)
        }
        (Mf::Transpose, [Value::Matrix(columns)]) => {
            transpose(columns).map(|columns| Value::Matrix(columns.into()))
        }
        (Mf::Determinant, [Value::Matrix(columns)]) => determinant(columns).map(Value::Scalar),
        _ => None,
    }
}

/// The absolute value of a scalar, the square root of `dot(v, v)` of a vector.
fn length(value: &Value) -> Option<Scalar> {
    match value {
        Value::Scalar(scalar) => Scalar::rounded(scalar.ty(), scalar.float()?.abs()),
        Value::Vector(vector) => transcendental::unary(
            MathFunction::Sqrt,
            dot(vector.components(), vector.components())?,
        ),
        _ => None,
    }
}

fn cross(a: Vector, b: Vector) -> Option<Vector> {
    let (&[ax, ay, az], &[bx, by, bz]) = (a.components(), b.components()) else {
        return None;
    };
    Vector::new(&[
        sub(mul(ay, bz)?, mul(az, by)?)?,
        sub(mul(az, bx)?, mul(ax, bz)?)?,
        sub(mul(ax, by)?, mul(ay, bx)?)?,
    ])
}

/// `x - 2 * dot(x, y) * y`.
fn reflect(incident: Vector, normal: Vector) -> Option<Vector> {
    let along = dot(incident.components(), normal.components())?;
    let twice = mul(constant(along, 2.0)?, along)?;
    incident.zip(normal, |incident, normal| {
        sub(incident, mul(twice, normal)?)
    })
}

/// `z * x - (z * dot(y, x) + sqrt(k)) * y`, `k = 1 - z * z * (1 - dot(y, x) * dot(y, x))`; zero for
/// negative `k`.
fn refract(incident: Vector, normal: Vector, ratio: Scalar) -> Option<Vector> {
    let along = dot(normal.components(), incident.components())?;
    let one = constant(ratio, 1.0)?;
    let sine = sub(one, mul(along, along)?)?;
    let k = sub(one, mul(mul(ratio, ratio)?, sine)?)?;
    if k.float()? < 0.0 {
        return incident.map(|component| Scalar::zero(component.ty()));
    }
    let root = transcendental::unary(MathFunction::Sqrt, k)?;
    let factor = scalar_binary(BinaryOperator::Add, mul(ratio, along)?, root)?;
    incident.zip(normal, |incident, normal| {
        sub(mul(ratio, incident)?, mul(factor, normal)?)
    })
}

fn transpose(columns: &[Vector]) -> Option<Vec<Vector>> {
    (0..columns.first()?.size())
        .map(|row| {
            let row: Vec<Scalar> = columns
                .iter()
                .map(|column| column.components()[row])
                .collect();
            Vector::new(&row)
        })
        .collect()
}

/// By cofactors of the first column, recursively.
fn determinant(columns: &[Vector]) -> Option<Scalar> {
    let rows: Vec<Vec<Scalar>> = columns
        .iter()
        .map(|column| column.components().to_vec())
        .collect();
    if rows.iter().any(|row| row.len() != columns.len()) {
        return None;
    }
    minor(&rows)
}

fn minor(rows: &[Vec<Scalar>]) -> Option<Scalar> {
    if let [row] = rows {
        return row.first().copied();
    }
    let mut sum: Option<Scalar> = None;
    for (index, row) in rows.iter().enumerate() {
        let rest: Vec<Vec<Scalar>> = rows
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .map(|(_, row)| row[1..].to_vec())
            .collect();
        let term = mul(row[0], minor(&rest)?)?;
        sum = Some(match sum {
            None => term,
            Some(sum) if index % 2 == 0 => scalar_binary(BinaryOperator::Add, sum, term)?,
            Some(sum) => sub(sum, term)?,
        });
    }
    sum
}
