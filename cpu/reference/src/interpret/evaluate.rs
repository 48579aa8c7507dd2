//! Expressions whose value follows from their operands alone.

use std::rc::Rc;

use naga::{Expression, Handle, Literal, TypeInner};

use crate::fault::Fault;
use crate::memory;
use crate::operate;
use crate::value::{Scalar, Value, Vector};

const TYPES: Fault = Fault::Malformed("an operand has a type that its operation does not take");

/// What an expression may refer to beside its operands.
pub trait Scope {
    fn module(&self) -> &naga::Module;
    fn constant(&self, handle: Handle<naga::Constant>) -> Result<Value, Fault>;
    fn override_(&self, handle: Handle<naga::Override>) -> Result<Scalar, Fault>;
    fn length(&self, ty: Handle<naga::Type>) -> Option<u64>;
}

/// Evaluates an expression that neither reads memory nor depends on the invocation. `None` for
/// expressions of other kinds.
pub fn pure<'v>(
    scope: &impl Scope,
    expression: &Expression,
    operand: impl Fn(Handle<Expression>) -> Result<&'v Value, Fault>,
) -> Result<Option<Value>, Fault> {
    let value = match *expression {
        Expression::Literal(literal) => literal_value(literal).map(Value::Scalar),
        Expression::Constant(handle) => return scope.constant(handle).map(Some),
        Expression::Override(handle) => {
            return scope.override_(handle).map(|scalar| Some(scalar.into()));
        }
        Expression::ZeroValue(ty) => {
            return memory::zero(scope.module(), &|ty| scope.length(ty), ty).map(Some);
        }
        Expression::Compose { ty, ref components } => {
            let components: Vec<&Value> = components
                .iter()
                .map(|part| operand(*part))
                .collect::<Result<_, _>>()?;
            compose(&scope.module().types[ty].inner, &components)
        }
        Expression::Access { base, index } => match operand(base)? {
            Value::Pointer(_) => return Ok(None),
            base => operand(index)?
                .scalar()
                .and_then(Scalar::index)
                .and_then(|index| element(base, u64::try_from(index).ok()?)),
        },
        Expression::AccessIndex { base, index } => match operand(base)? {
            Value::Pointer(_) => return Ok(None),
            base => element(base, u64::from(index)),
        },
        Expression::Splat { size, value } => operand(value)?
            .scalar()
            .map(|scalar| Value::Vector(Vector::splat(size, scalar))),
        Expression::Swizzle {
            size,
            vector,
            pattern,
        } => operand(vector)?.vector().and_then(|vector| {
            let chosen = pattern[..size as usize].iter();
            let components: Option<Vec<Scalar>> = chosen
                .map(|component| vector.components().get(*component as usize).copied())
                .collect();
            Vector::new(&components?).map(Value::Vector)
        }),
        Expression::Unary { op, expr } => operate::unary(op, operand(expr)?),
        Expression::Binary { op, left, right } => {
            operate::binary(op, operand(left)?, operand(right)?)
        }
        Expression::Select {
            condition,
            accept,
            reject,
        } => operate::select(operand(condition)?, operand(accept)?, operand(reject)?),
        Expression::Relational { fun, argument } => operate::relational(fun, operand(argument)?),
        Expression::Math {
            fun,
            arg,
            arg1,
            arg2,
            arg3,
        } => {
            if fun == naga::MathFunction::Inverse {
                return Err(Fault::Unsupported(
                    "the inverse of a matrix, which WGSL does not have",
                ));
            }
            let arguments: Vec<&Value> = [Some(arg), arg1, arg2, arg3]
                .into_iter()
                .flatten()
                .map(operand)
                .collect::<Result<_, _>>()?;
            operate::math(fun, &arguments)
        }
        Expression::As {
            expr,
            kind,
            convert,
        } => operate::convert(operand(expr)?, kind, convert),
        _ => return Ok(None),
    };
    value.map(Some).ok_or(TYPES)
}

/// The scalar of a concrete literal.
pub fn literal_value(literal: Literal) -> Option<Scalar> {
    Some(match literal {
        Literal::F64(value) => Scalar::F64(value),
        Literal::F32(value) => Scalar::F32(value),
        Literal::F16(value) => Scalar::F16(value),
        Literal::U16(value) => Scalar::U16(value),
        Literal::I16(value) => Scalar::I16(value),
        Literal::U32(value) => Scalar::U32(value),
        Literal::I32(value) => Scalar::I32(value),
        Literal::U64(value) => Scalar::U64(value),
        Literal::I64(value) => Scalar::I64(value),
        Literal::Bool(value) => Scalar::Bool(value),
        Literal::AbstractInt(_) | Literal::AbstractFloat(_) => return None,
    })
}

fn compose(inner: &TypeInner, components: &[&Value]) -> Option<Value> {
    match inner {
        TypeInner::Vector { .. } => {
            let scalars: Vec<Scalar> = components.iter().flat_map(|part| part.leaves()).collect();
            Vector::new(&scalars).map(Value::Vector)
        }
        TypeInner::Matrix { .. } => {
            let columns: Option<Rc<[Vector]>> =
                components.iter().map(|column| column.vector()).collect();
            columns.map(Value::Matrix)
        }
        TypeInner::Array { .. } | TypeInner::Struct { .. } => Some(Value::Composite(
            components.iter().map(|part| (*part).clone()).collect(),
        )),
        _ => None,
    }
}

/// The element of a value that is no pointer; `None` where the index is out of range.
pub fn element(base: &Value, index: u64) -> Option<Value> {
    let index = usize::try_from(index).ok()?;
    match base {
        Value::Vector(vector) => vector.components().get(index).copied().map(Value::Scalar),
        Value::Matrix(columns) => columns.get(index).copied().map(Value::Vector),
        Value::Composite(parts) => parts.get(index).cloned(),
        _ => None,
    }
}

/// The number of elements of a value that can be indexed.
pub fn elements(base: &Value) -> Option<u64> {
    match base {
        Value::Vector(vector) => Some(vector.size() as u64),
        Value::Matrix(columns) => Some(columns.len() as u64),
        Value::Composite(parts) => Some(parts.len() as u64),
        _ => None,
    }
}
