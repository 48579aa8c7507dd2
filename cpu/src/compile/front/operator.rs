//! Operators, conversions and `select`.

use std::rc::Rc;

use naga::{BinaryOperator as B, Expression as E, Handle, ScalarKind, TypeInner, UnaryOperator};

use super::{Front, Node, scalars};
use crate::compile::{
    error::{Result, internal, unsupported},
    ir::{Binary, Comparison, Conversion, Type, Unary, Value},
    layout::{self, Ty},
};

impl Front<'_> {
    /// The kind of number of an expression's scalars.
    pub(super) fn kind(&self, expression: Handle<E>) -> Result<ScalarKind> {
        Ok(self.layouts.scalar_of(self.type_of(expression)?)?.kind)
    }

    pub(super) fn map(
        &mut self,
        values: &[Value],
        f: impl FnMut(&mut Self, Value) -> Value,
    ) -> Node {
        let mut f = f;
        let mapped: Vec<_> = values.iter().map(|&value| f(self, value)).collect();
        scalars(mapped)
    }

    pub(super) fn unary(&mut self, op: UnaryOperator, operand: Handle<E>) -> Result<Node> {
        let values = self.values(operand)?;
        let op = match op {
            UnaryOperator::Negate => Unary::Negate,
            UnaryOperator::LogicalNot | UnaryOperator::BitwiseNot => Unary::Not,
        };
        Ok(self.map(&values, |front, value| front.b.unary(op, value)))
    }

    pub(super) fn binary(&mut self, op: B, left: Handle<E>, right: Handle<E>) -> Result<Node> {
        let (a, b) = (self.values(left)?, self.values(right)?);
        let kind = self.kind(left)?;
        if op == B::Multiply
            && let Some(node) = self.matrix_product(left, right, &a, &b)?
        {
            return Ok(node);
        }
        let count = a.len().max(b.len());
        let at = |values: &Rc<[Value]>, index: usize| match values.len() {
            1 => values[0],
            _ => values[index],
        };
        let mut result = Vec::with_capacity(count);
        for index in 0..count {
            result.push(self.scalar_binary(op, kind, at(&a, index), at(&b, index))?);
        }
        Ok(scalars(result))
    }

    fn scalar_binary(&mut self, op: B, kind: ScalarKind, a: Value, b: Value) -> Result<Value> {
        use ScalarKind::{Float, Sint, Uint};
        let number = match (op, kind) {
            (B::Add, _) => Binary::Add,
            (B::Subtract, _) => Binary::Sub,
            (B::Multiply, _) => Binary::Mul,
            (B::Divide, Float) => Binary::DivF,
            (B::Divide, Sint) => Binary::DivS,
            (B::Divide, Uint) => Binary::DivU,
            (B::Modulo, Sint) => Binary::RemS,
            (B::Modulo, Uint) => Binary::RemU,
            (B::Modulo, Float) => return Ok(self.float_remainder(a, b)),
            (B::And | B::LogicalAnd, _) => Binary::And,
            (B::InclusiveOr | B::LogicalOr, _) => Binary::Or,
            (B::ExclusiveOr, _) => Binary::Xor,
            (B::ShiftLeft, _) => Binary::Shl,
            (B::ShiftRight, Sint) => Binary::ShrS,
            (B::ShiftRight, _) => Binary::ShrU,
            _ => return self.comparison(op, kind, a, b),
        };
        Ok(self.b.binary(number, a, b))
    }

    fn comparison(&mut self, op: B, kind: ScalarKind, a: Value, b: Value) -> Result<Value> {
        use Comparison as C;
        let less = match kind {
            ScalarKind::Float => C::LtF,
            ScalarKind::Sint => C::LtS,
            _ => C::LtU,
        };
        let less_equal = match kind {
            ScalarKind::Float => C::LeF,
            ScalarKind::Sint => C::LeS,
            _ => C::LeU,
        };
        let (op, a, b) = match op {
            B::Equal => (C::Eq, a, b),
            B::NotEqual => (C::Ne, a, b),
            B::Less => (less, a, b),
            B::LessEqual => (less_equal, a, b),
            B::Greater => (less, b, a),
            B::GreaterEqual => (less_equal, b, a),
            other => return Err(internal(format!("{other:?} of {kind:?}"))),
        };
        Ok(self.b.compare(op, a, b))
    }

    /// `a - b * trunc(a / b)`, as defined by WGSL.
    fn float_remainder(&mut self, a: Value, b: Value) -> Value {
        let quotient = self.b.binary(Binary::DivF, a, b);
        let whole = self.b.unary(Unary::Trunc, quotient);
        let product = self.b.mul(b, whole);
        self.b.sub(a, product)
    }

    /// The product, if an operand is a matrix and the other one is not a scalar.
    fn matrix_product(
        &mut self,
        left: Handle<E>,
        right: Handle<E>,
        a: &[Value],
        b: &[Value],
    ) -> Result<Option<Node>> {
        let (left, right) = (self.type_of(left)?, self.type_of(right)?);
        let (left, right) = (self.layouts.inner(left), self.layouts.inner(right));
        // Columns, rows, and elements of the right operand's columns.
        let (inner, rows) = match (&*left, &*right) {
            (
                TypeInner::Matrix { columns, rows, .. },
                TypeInner::Vector { .. } | TypeInner::Matrix { .. },
            ) => (*columns as usize, *rows as usize),
            (TypeInner::Vector { size, .. }, TypeInner::Matrix { .. }) => (*size as usize, 1),
            _ => return Ok(None),
        };
        // A vector on the left is a matrix of one row, whose element `k` stands at `k`.
        let mut result = Vec::new();
        for column in b.chunks_exact(inner) {
            for row in 0..rows {
                let terms: Vec<_> = (0..inner).map(|k| (a[k * rows + row], column[k])).collect();
                result.push(self.sum_of_products(&terms));
            }
        }
        Ok(Some(scalars(result)))
    }

    /// `Σ aᵢ bᵢ`, from the first on, unfused.
    pub(super) fn sum_of_products(&mut self, terms: &[(Value, Value)]) -> Value {
        let mut sum = None;
        for &(a, b) in terms {
            let product = self.b.mul(a, b);
            sum = Some(match sum {
                None => product,
                Some(sum) => self.b.add(sum, product),
            });
        }
        sum.unwrap_or_else(|| self.b.f32(0.0))
    }

    pub(super) fn select(
        &mut self,
        condition: Handle<E>,
        accept: Handle<E>,
        reject: Handle<E>,
    ) -> Result<Node> {
        let conditions = self.values(condition)?;
        let (accept, reject) = (self.values(accept)?, self.values(reject)?);
        let mut result = Vec::with_capacity(accept.len());
        for (index, (&accept, &reject)) in accept.iter().zip(reject.iter()).enumerate() {
            let condition = conditions[index.min(conditions.len() - 1)];
            result.push(self.b.select(condition, accept, reject));
        }
        Ok(scalars(result))
    }

    pub(super) fn relational(
        &mut self,
        function: naga::RelationalFunction,
        argument: Handle<E>,
    ) -> Result<Node> {
        use naga::RelationalFunction as F;
        let values = self.values(argument)?;
        Ok(match function {
            F::All | F::Any => {
                let op = match function {
                    F::All => Binary::And,
                    _ => Binary::Or,
                };
                let mut all = values[0];
                for &value in &values[1..] {
                    all = self.b.binary(op, all, value);
                }
                scalars([all])
            }
            F::IsNan => self.map(&values, |front, value| {
                front.b.compare(Comparison::Ne, value, value)
            }),
            F::IsInf => self.map(&values, |front, value| {
                let ty = front.b.program.ty(value);
                let infinity = front.b.float(ty, f64::INFINITY);
                let magnitude = front.b.unary(Unary::Abs, value);
                front.b.compare(Comparison::Eq, magnitude, infinity)
            }),
        })
    }

    pub(super) fn conversion(
        &mut self,
        expression: Handle<E>,
        kind: ScalarKind,
        convert: Option<naga::Bytes>,
    ) -> Result<Node> {
        let values = self.values(expression)?;
        let from = self.layouts.scalar_of(self.type_of(expression)?)?;
        let Some(width) = convert else {
            let to = layout::scalar(naga::Scalar {
                kind,
                width: from.width,
            })?;
            return Ok(self.map(&values, |front, value| {
                front.b.convert(Conversion::Bits, to, value)
            }));
        };
        let to = layout::scalar(naga::Scalar { kind, width })?;
        let mut result = Vec::with_capacity(values.len());
        for &value in values.iter() {
            result.push(self.convert(value, from.kind, kind, to)?);
        }
        Ok(scalars(result))
    }

    /// Converts a number to a type, by value.
    fn convert(
        &mut self,
        value: Value,
        from: ScalarKind,
        kind: ScalarKind,
        to: Type,
    ) -> Result<Value> {
        use ScalarKind::{Bool, Float, Sint, Uint};
        let ty = self.b.program.ty(value);
        Ok(match (from, kind) {
            (Bool, Bool) => value,
            (Bool, Float) => {
                let (one, zero) = (self.b.float(to, 1.0), self.b.float(to, 0.0));
                self.b.select(value, one, zero)
            }
            (Bool, Sint | Uint) => {
                let (one, zero) = (self.b.integer(to, 1), self.b.integer(to, 0));
                self.b.select(value, one, zero)
            }
            (_, Bool) => {
                let zero = self.b.constant(ty, 0);
                self.b.compare(Comparison::Ne, value, zero)
            }
            (Sint, Float) => self.b.convert(Conversion::SignedToFloat, to, value),
            (Uint, Float) => self.b.convert(Conversion::UnsignedToFloat, to, value),
            (Float, Sint | Uint) => self.float_to_integer(value, kind == Sint, to),
            (Float, Float) => self.b.convert(Conversion::Float, to, value),
            (Sint | Uint, Sint | Uint) => match (ty, to) {
                (Type::I32, Type::I64) if from == Sint => {
                    self.b.convert(Conversion::WidenS, to, value)
                }
                (Type::I32, Type::I64) => self.b.convert(Conversion::WidenU, to, value),
                (Type::I64, Type::I32) => self.b.convert(Conversion::Narrow, to, value),
                _ => value,
            },
            (from, to) => return Err(unsupported(format!("a conversion from {from:?} to {to:?}"))),
        })
    }

    /// The integer towards zero from a float, clamped before to the common range of both types.
    fn float_to_integer(&mut self, value: Value, signed: bool, to: Type) -> Value {
        let from = self.b.program.ty(value);
        let digits = match from {
            Type::F16 => 11,
            Type::F64 => f64::MANTISSA_DIGITS,
            _ => f32::MANTISSA_DIGITS,
        };
        let (ty, value) = match from {
            // Integers are larger than half floats can be.
            Type::F16 => (
                Type::F32,
                self.b.convert(Conversion::Float, Type::F32, value),
            ),
            _ => (from, value),
        };
        let bits = to.bits() - u32::from(signed);
        // The most significant bits of the greatest integer, as many as the float has digits.
        let surplus = bits.saturating_sub(digits);
        let greatest = (u64::MAX >> (64 - bits)) >> surplus << surplus;
        let least = if signed { -2f64.powi(bits as i32) } else { 0.0 };
        // The integers of half floats end before those of `to`.
        let (least, greatest) = match from {
            Type::F16 => {
                let largest = f64::from(half::f16::MAX);
                (least.max(-largest), largest)
            }
            _ => (least, greatest as f64),
        };
        let (low, high) = (self.b.float(ty, least), self.b.float(ty, greatest));
        // A NaN stays NaN.
        let clamped = self.b.binary(Binary::MaxF, low, value);
        let clamped = self.b.binary(Binary::MinF, high, clamped);
        let conversion = match signed {
            true => Conversion::FloatToSigned,
            false => Conversion::FloatToUnsigned,
        };
        self.b.convert(conversion, to, clamped)
    }

    /// The type of a vector or scalar expression, and its number of scalars.
    pub(super) fn vector_size(&self, expression: Handle<E>) -> Result<usize> {
        let ty: Ty = self.type_of(expression)?;
        Ok(self.layouts.scalars(ty)? as usize)
    }
}
