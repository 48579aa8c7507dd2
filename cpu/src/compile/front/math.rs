//! Numeric functions of the language with instructions of their own, or made of few operations.

use std::rc::Rc;

use naga::{Expression as E, Handle, MathFunction as F, ScalarKind};

use super::{Front, Node, scalars};
use crate::compile::{
    error::{Result, internal, unsupported},
    ir::{Binary, Comparison, Conversion, Type, Unary, Value},
};

/// The arguments of a function.
type Arguments = [Option<Handle<E>>; 4];

impl Front<'_> {
    pub(super) fn math(&mut self, function: F, arguments: Arguments) -> Result<Node> {
        let [Some(first), ..] = arguments else {
            return Err(internal("a function without arguments"));
        };
        if let Some(node) = self.whole(function, first, &arguments)? {
            return Ok(node);
        }
        if let Some(node) = self.decomposition(function, &arguments)? {
            return Ok(node);
        }
        if let Some(node) = self.packing(function, &arguments)? {
            return Ok(node);
        }
        let kind = self.kind(first)?;
        let count = self.vector_size(first)?;
        let mut values: Vec<Rc<[Value]>> = Vec::new();
        for argument in arguments.into_iter().flatten() {
            values.push(self.values(argument)?);
        }
        let mut result = Vec::with_capacity(count);
        for index in 0..count {
            let at = |argument: usize| {
                values
                    .get(argument)
                    .map(|values| values[index.min(values.len() - 1)])
                    .ok_or_else(|| internal("a function with too few arguments"))
            };
            let value = match kind {
                ScalarKind::Float => self.float_function(function, at)?,
                _ => self.integer_function(function, kind == ScalarKind::Sint, at)?,
            };
            result.push(value);
        }
        Ok(scalars(result))
    }

    fn float_function(
        &mut self,
        function: F,
        at: impl Fn(usize) -> Result<Value>,
    ) -> Result<Value> {
        if let Some(value) = self.transcendental(function, &at)? {
            return Ok(value);
        }
        let x = at(0)?;
        let ty = self.b.program.ty(x);
        Ok(match function {
            F::Abs => self.b.unary(Unary::Abs, x),
            F::Ceil => self.b.unary(Unary::Ceil, x),
            F::Floor => self.b.unary(Unary::Floor, x),
            F::Trunc => self.b.unary(Unary::Trunc, x),
            F::Round => self.b.unary(Unary::Nearest, x),
            F::Sqrt => self.b.unary(Unary::Sqrt, x),
            F::Min => self.smaller(x, at(1)?),
            F::Max => self.larger(x, at(1)?),
            F::Clamp => {
                let low = self.larger(x, at(1)?);
                self.smaller(low, at(2)?)
            }
            F::Saturate => {
                let (zero, one) = (self.float(ty, 0.0), self.float(ty, 1.0));
                let low = self.larger(x, zero);
                self.smaller(low, one)
            }
            F::Fract => {
                let whole = self.b.unary(Unary::Floor, x);
                self.b.sub(x, whole)
            }
            F::InverseSqrt => {
                let one = self.float(ty, 1.0);
                let root = self.b.unary(Unary::Sqrt, x);
                self.b.binary(Binary::DivF, one, root)
            }
            F::Fma => {
                let (y, z) = (at(1)?, at(2)?);
                self.b.multiply_add(x, y, z)
            }
            F::Mix => self.mix(x, at(1)?, at(2)?),
            F::Step => {
                let (zero, one) = (self.float(ty, 0.0), self.float(ty, 1.0));
                let reached = self.b.compare(Comparison::LeF, x, at(1)?);
                self.b.select(reached, one, zero)
            }
            F::SmoothStep => self.smooth_step(x, at(1)?, at(2)?),
            F::Sign => {
                let zero = self.float(ty, 0.0);
                let (one, minus) = (self.float(ty, 1.0), self.float(ty, -1.0));
                let positive = self.b.compare(Comparison::LtF, zero, x);
                let negative = self.b.compare(Comparison::LtF, x, zero);
                // Zeros and NaN stay unchanged.
                let sign = self.b.select(negative, minus, x);
                self.b.select(positive, one, sign)
            }
            F::Radians => {
                let factor = self.float(ty, std::f64::consts::PI / 180.0);
                self.b.mul(x, factor)
            }
            F::Degrees => {
                let factor = self.float(ty, 180.0 / std::f64::consts::PI);
                self.b.mul(x, factor)
            }
            F::QuantizeToF16 => {
                let half = self.b.convert(Conversion::Float, Type::F16, x);
                self.b.convert(Conversion::Float, ty, half)
            }
            other => return Err(unsupported(format!("the function {other:?} of floats"))),
        })
    }

    /// `y` if less than `x`, and `x` otherwise, as WGSL defines `min`.
    fn smaller(&mut self, x: Value, y: Value) -> Value {
        self.b.binary(Binary::MinF, y, x)
    }

    /// `y` if `x` is less, and `x` otherwise, as WGSL defines `max`.
    fn larger(&mut self, x: Value, y: Value) -> Value {
        self.b.binary(Binary::MaxF, y, x)
    }

    /// `x (1 - a) + y a`
    fn mix(&mut self, x: Value, y: Value, a: Value) -> Value {
        let ty = self.b.program.ty(x);
        let one = self.float(ty, 1.0);
        let rest = self.b.sub(one, a);
        self.sum_of_products(&[(x, rest), (y, a)])
    }

    /// `t t (3 - 2 t)` with `t` the place of `x` between the edges, limited to 0..1.
    fn smooth_step(&mut self, low: Value, high: Value, x: Value) -> Value {
        let ty = self.b.program.ty(x);
        let (zero, one) = (self.float(ty, 0.0), self.float(ty, 1.0));
        let (two, three) = (self.float(ty, 2.0), self.float(ty, 3.0));
        let distance = self.b.sub(x, low);
        let range = self.b.sub(high, low);
        let t = self.b.binary(Binary::DivF, distance, range);
        let t = self.larger(t, zero);
        let t = self.smaller(t, one);
        let double = self.b.mul(two, t);
        let rest = self.b.sub(three, double);
        let square = self.b.mul(t, t);
        self.b.mul(square, rest)
    }

    fn integer_function(
        &mut self,
        function: F,
        signed: bool,
        at: impl Fn(usize) -> Result<Value>,
    ) -> Result<Value> {
        let x = at(0)?;
        let (least, greatest) = if signed {
            (Binary::MinS, Binary::MaxS)
        } else {
            (Binary::MinU, Binary::MaxU)
        };
        Ok(match function {
            F::Abs if signed => self.b.unary(Unary::Abs, x),
            F::Abs => x,
            F::Min => self.b.binary(least, x, at(1)?),
            F::Max => self.b.binary(greatest, x, at(1)?),
            F::Clamp => {
                let low = self.b.binary(greatest, x, at(1)?);
                self.b.binary(least, low, at(2)?)
            }
            F::Sign => {
                let ty = self.b.program.ty(x);
                let (minus, one) = (self.b.integer(ty, -1), self.b.integer(ty, 1));
                let low = self.b.binary(Binary::MaxS, x, minus);
                self.b.binary(Binary::MinS, low, one)
            }
            F::CountOneBits => self.b.unary(Unary::CountOnes, x),
            F::CountLeadingZeros => self.b.unary(Unary::LeadingZeros, x),
            F::CountTrailingZeros => self.b.unary(Unary::TrailingZeros, x),
            F::ReverseBits => self.b.unary(Unary::ReverseBits, x),
            F::FirstTrailingBit => {
                let zeros = self.b.unary(Unary::TrailingZeros, x);
                self.unless_zero(x, zeros)
            }
            F::FirstLeadingBit => self.first_leading_bit(x, signed),
            F::ExtractBits => self.extract_bits(x, signed, at(1)?, at(2)?),
            F::InsertBits => self.insert_bits(x, at(1)?, at(2)?, at(3)?),
            other => return Err(unsupported(format!("the function {other:?} of integers"))),
        })
    }

    /// `value`, or all ones where `x` is zero.
    fn unless_zero(&mut self, x: Value, value: Value) -> Value {
        let ty = self.b.program.ty(x);
        let (zero, none) = (self.b.integer(ty, 0), self.b.integer(ty, -1));
        let empty = self.b.compare(Comparison::Eq, x, zero);
        self.b.select(empty, none, value)
    }

    /// The highest bit differing from the sign, all ones if none does.
    fn first_leading_bit(&mut self, x: Value, signed: bool) -> Value {
        let ty = self.b.program.ty(x);
        let width = i64::from(ty.bits());
        let magnitude = if signed {
            let last = self.b.u32(ty.bits() - 1);
            let sign = self.b.binary(Binary::ShrS, x, last);
            self.b.binary(Binary::Xor, x, sign)
        } else {
            x
        };
        let zeros = self.b.unary(Unary::LeadingZeros, magnitude);
        let last = self.b.integer(ty, width - 1);
        // 31 - 32 is all ones already.
        self.b.sub(last, zeros)
    }

    /// Offset and count of a bit field, limited to the bits there are, and the bits behind it.
    fn field(&mut self, offset: Value, count: Value, width: u32) -> (Value, Value, Value) {
        let width = self.b.u32(width);
        let offset = self.b.binary(Binary::MinU, offset, width);
        let rest = self.b.sub(width, offset);
        let count = self.b.binary(Binary::MinU, count, rest);
        let behind = self.b.sub(rest, count);
        (offset, count, behind)
    }

    fn extract_bits(&mut self, x: Value, signed: bool, offset: Value, count: Value) -> Value {
        let ty = self.b.program.ty(x);
        let (_, count, behind) = self.field(offset, count, ty.bits());
        let width = self.b.u32(ty.bits());
        let down = self.b.sub(width, count);
        let right = if signed { Binary::ShrS } else { Binary::ShrU };
        let up = self.b.binary(Binary::Shl, x, behind);
        let field = self.b.binary(right, up, down);
        // Shifts by the whole width do nothing, so that an empty field is a case of its own.
        let (none, zero) = (self.b.u32(0), self.b.integer(ty, 0));
        let empty = self.b.compare(Comparison::Eq, count, none);
        self.b.select(empty, zero, field)
    }

    fn insert_bits(&mut self, x: Value, new: Value, offset: Value, count: Value) -> Value {
        let ty = self.b.program.ty(x);
        let (offset, count, _) = self.field(offset, count, ty.bits());
        let width = self.b.u32(ty.bits());
        let ones = self.b.integer(ty, -1);
        let unused = self.b.sub(width, count);
        let low = self.b.binary(Binary::ShrU, ones, unused);
        let mask = self.b.binary(Binary::Shl, low, offset);
        let shifted = self.b.binary(Binary::Shl, new, offset);
        let kept = self.b.unary(Unary::Not, mask);
        let kept = self.b.binary(Binary::And, x, kept);
        let set = self.b.binary(Binary::And, shifted, mask);
        let joined = self.b.binary(Binary::Or, kept, set);
        let none = self.b.u32(0);
        let empty = self.b.compare(Comparison::Eq, count, none);
        self.b.select(empty, x, joined)
    }
}
