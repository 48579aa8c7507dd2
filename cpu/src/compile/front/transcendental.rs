//! Functions of floats that no instruction computes, and packing.

use naga::{Expression as E, Handle, MathFunction as F};

use super::{
    Front, Node,
    lanes::{Appending32, Appending64, call_of},
    scalars,
};
use crate::{
    compile::{
        error::{Result, internal},
        host::HostFunction,
        ir::{Conversion, Type, Value},
    },
    math::{
        self, F as Float, I as Int, Lanes, double, exponential, hyperbolic, inverse, logarithm,
        packing, rounding, trigonometric,
    },
};

impl Front<'_> {
    /// A function of one or two floats that no instruction computes; `None` for any other.
    pub(super) fn transcendental(
        &mut self,
        function: F,
        at: &impl Fn(usize) -> Result<Value>,
    ) -> Result<Option<Value>> {
        if !matches!(
            function,
            F::Sin
                | F::Cos
                | F::Tan
                | F::Asin
                | F::Acos
                | F::Atan
                | F::Sinh
                | F::Cosh
                | F::Tanh
                | F::Asinh
                | F::Acosh
                | F::Atanh
                | F::Exp
                | F::Exp2
                | F::Log
                | F::Log2
                | F::Atan2
                | F::Pow
        ) {
            return Ok(None);
        }
        let x = at(0)?;
        let y = match function {
            F::Atan2 | F::Pow => Some(at(1)?),
            _ => None,
        };
        Ok(Some(match self.b.program.ty(x) {
            Type::F64 => self.double(function, x, y)?,
            // Half floats are computed as `f32` and rounded once more.
            Type::F16 => {
                let x = self.b.convert(Conversion::Float, Type::F32, x);
                let y = y.map(|y| self.b.convert(Conversion::Float, Type::F32, y));
                let result = self.single(function, x, y)?;
                self.b.convert(Conversion::Float, Type::F16, result)
            }
            _ => self.single(function, x, y)?,
        }))
    }

    fn single(&mut self, function: F, x: Value, y: Option<Value>) -> Result<Value> {
        let lanes = Appending32::new(&mut self.b);
        let x = Float::new(&lanes, x);
        if let Some(y) = y {
            let y = Float::new(&lanes, y);
            return Ok(match function {
                F::Atan2 => inverse::atan2(x, y),
                _ => logarithm::pow(x, y),
            }
            .raw());
        }
        Ok(match function {
            F::Sin => trigonometric::sin(x),
            F::Cos => trigonometric::cos(x),
            F::Tan => trigonometric::tan(x),
            F::Asin => inverse::asin(x),
            F::Acos => inverse::acos(x),
            F::Atan => inverse::atan(x),
            F::Sinh => hyperbolic::sinh(x),
            F::Cosh => hyperbolic::cosh(x),
            F::Tanh => hyperbolic::tanh(x),
            F::Asinh => hyperbolic::asinh(x),
            F::Acosh => hyperbolic::acosh(x),
            F::Atanh => hyperbolic::atanh(x),
            F::Exp => exponential::exp(x),
            F::Exp2 => exponential::exp2(x),
            F::Log => logarithm::log(x),
            F::Log2 => logarithm::log2(x),
            other => return Err(internal(format!("{other:?} of one float"))),
        }
        .raw())
    }

    fn double(&mut self, function: F, x: Value, y: Option<Value>) -> Result<Value> {
        use double::{Binary, Unary};
        if let Some(y) = y {
            let function = match function {
                F::Atan2 => Binary::Atan2,
                _ => Binary::Pow,
            };
            let function = HostFunction::Double2(function);
            return Ok(call_of(&mut self.b, function, &[x, y], Type::F64));
        }
        let function = match function {
            F::Sin => Unary::Sin,
            F::Cos => Unary::Cos,
            F::Tan => Unary::Tan,
            F::Asin => Unary::Asin,
            F::Acos => Unary::Acos,
            F::Atan => Unary::Atan,
            F::Sinh => Unary::Sinh,
            F::Cosh => Unary::Cosh,
            F::Tanh => Unary::Tanh,
            F::Asinh => Unary::Asinh,
            F::Acosh => Unary::Acosh,
            F::Atanh => Unary::Atanh,
            F::Exp => Unary::Exp,
            F::Exp2 => Unary::Exp2,
            F::Log => Unary::Log,
            F::Log2 => Unary::Log2,
            other => return Err(internal(format!("{other:?} of one float"))),
        };
        Ok(call_of(
            &mut self.b,
            HostFunction::Double1(function),
            &[x],
            Type::F64,
        ))
    }

    /// `modf`, `frexp` and `ldexp`; `None` for any other function. The first two give a structure: first all fractions,
    /// then all whole parts or exponents.
    pub(super) fn decomposition(
        &mut self,
        function: F,
        arguments: &[Option<Handle<E>>; 4],
    ) -> Result<Option<Node>> {
        if !matches!(function, F::Modf | F::Frexp | F::Ldexp) {
            return Ok(None);
        }
        let [Some(first), second, ..] = *arguments else {
            return Err(internal("a function without arguments"));
        };
        let values = self.values(first)?;
        let exponents = match second {
            Some(second) => Some(self.values(second)?),
            None => None,
        };
        let (mut fractions, mut rest) = (Vec::new(), Vec::new());
        for (index, &x) in values.iter().enumerate() {
            let ty = self.b.program.ty(x);
            let exponent = exponents.as_ref().map(|e| e[index.min(e.len() - 1)]);
            let x = match ty {
                Type::F16 => self.b.convert(Conversion::Float, Type::F32, x),
                _ => x,
            };
            let (fraction, other) = match ty {
                Type::F64 => {
                    let exponent =
                        exponent.map(|e| self.b.convert(Conversion::WidenS, Type::I64, e));
                    decompose(&Appending64::new(&mut self.b), function, x, exponent)?
                }
                _ => decompose(&Appending32::new(&mut self.b), function, x, exponent)?,
            };
            // Parts of a half float are half floats; only `ldexp` can give another number.
            let float = |front: &mut Self, value| match ty {
                Type::F16 => front.b.convert(Conversion::Float, Type::F16, value),
                _ => value,
            };
            fractions.push(float(self, fraction));
            rest.extend(other.map(|other| match (function, ty) {
                (F::Modf, _) => float(self, other),
                (_, Type::F64) => self.b.convert(Conversion::Narrow, Type::I32, other),
                _ => other,
            }));
        }
        fractions.extend(rest);
        Ok(Some(scalars(fractions)))
    }

    /// Functions packing several numbers into one, and back; `None` for any other.
    pub(super) fn packing(
        &mut self,
        function: F,
        arguments: &[Option<Handle<E>>; 4],
    ) -> Result<Option<Node>> {
        let [Some(first), second, ..] = *arguments else {
            return Err(internal("a function without arguments"));
        };
        let packs = matches!(
            function,
            F::Pack4x8snorm
                | F::Pack4x8unorm
                | F::Pack2x16snorm
                | F::Pack2x16unorm
                | F::Pack2x16float
                | F::Pack4xI8
                | F::Pack4xU8
                | F::Pack4xI8Clamp
                | F::Pack4xU8Clamp
                | F::Unpack4x8snorm
                | F::Unpack4x8unorm
                | F::Unpack2x16snorm
                | F::Unpack2x16unorm
                | F::Unpack2x16float
                | F::Unpack4xI8
                | F::Unpack4xU8
                | F::Dot4I8Packed
                | F::Dot4U8Packed
        );
        if !packs {
            return Ok(None);
        }
        let values = self.values(first)?;
        let second = match second {
            Some(second) => Some(self.scalar(second)?),
            None => None,
        };
        let lanes = Appending32::new(&mut self.b);
        let float = |at: usize| Float::new(&lanes, values[at.min(values.len() - 1)]);
        let int = |at: usize| Int::new(&lanes, values[at.min(values.len() - 1)]);
        let four = || [float(0), float(1), float(2), float(3)];
        let two = || [float(0), float(1)];
        let ints = || [int(0), int(1), int(2), int(3)];
        let other = || {
            second
                .map(|y| Int::new(&lanes, y))
                .ok_or_else(|| internal("dot4 of one"))
        };
        Ok(Some(match function {
            F::Pack4x8snorm => scalars([packing::pack_4x8_snorm(four()).raw()]),
            F::Pack4x8unorm => scalars([packing::pack_4x8_unorm(four()).raw()]),
            F::Pack2x16snorm => scalars([packing::pack_2x16_snorm(two()).raw()]),
            F::Pack2x16unorm => scalars([packing::pack_2x16_unorm(two()).raw()]),
            F::Pack2x16float => scalars([packing::pack_2x16_float(two()).raw()]),
            F::Pack4xI8 | F::Pack4xU8 => scalars([packing::pack_4x8(ints()).raw()]),
            F::Pack4xI8Clamp => scalars([packing::pack_4xi8_clamp(ints()).raw()]),
            F::Pack4xU8Clamp => scalars([packing::pack_4xu8_clamp(ints()).raw()]),
            F::Unpack4x8snorm => scalars(packing::unpack_4x8_snorm(int(0)).map(Float::raw)),
            F::Unpack4x8unorm => scalars(packing::unpack_4x8_unorm(int(0)).map(Float::raw)),
            F::Unpack2x16snorm => scalars(packing::unpack_2x16_snorm(int(0)).map(Float::raw)),
            F::Unpack2x16unorm => scalars(packing::unpack_2x16_unorm(int(0)).map(Float::raw)),
            F::Unpack2x16float => scalars(packing::unpack_2x16_float(int(0)).map(Float::raw)),
            F::Unpack4xI8 => scalars(packing::unpack_4xi8(int(0)).map(Int::raw)),
            F::Unpack4xU8 => scalars(packing::unpack_4xu8(int(0)).map(Int::raw)),
            F::Dot4I8Packed => scalars([packing::dot_4xi8(int(0), other()?).raw()]),
            _ => scalars([packing::dot_4xu8(int(0), other()?).raw()]),
        }))
    }
}

/// Fraction and whole part, fraction and exponent, or a product with a power of two.
fn decompose<L: Lanes<Float = Value, Int = Value>>(
    lanes: &L,
    function: F,
    x: Value,
    exponent: Option<Value>,
) -> Result<(Value, Option<Value>)> {
    let x = Float::new(lanes, x);
    Ok(match (function, exponent) {
        (F::Modf, _) => {
            let (fraction, whole) = rounding::modf(x);
            (fraction.raw(), Some(whole.raw()))
        }
        (F::Frexp, _) => {
            let (fraction, exponent) = rounding::frexp(x);
            (fraction.raw(), Some(exponent.raw()))
        }
        (_, Some(exponent)) => {
            let product = math::rounding::ldexp(x, Int::new(lanes, exponent));
            (product.raw(), None)
        }
        (_, None) => return Err(internal("ldexp without an exponent")),
    })
}
