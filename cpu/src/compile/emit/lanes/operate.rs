//! Operations on the values of all lanes, with the same results as one lane after the other.

use cranelift_codegen::ir::{
    self, InstBuilder,
    condcodes::{FloatCC, IntCC},
    types,
};

use super::{Parts, vector_type};
use crate::compile::{
    emit::{Emitter, scalar::conditions},
    error::{Result, internal},
    ir::{Binary, Comparison, Conversion, Op, Type, Unary, Value},
};

impl Emitter<'_> {
    /// Computes a varying value.
    pub(in crate::compile::emit) fn vector_definition(&mut self, value: Value) -> Result<Parts> {
        let ty = self.program.ty(value);
        match self.program.values[value].op {
            Op::Get(variable) => Ok(self.get_varying(variable)),
            Op::Unary(op, a) => {
                let from = self.program.ty(a);
                let a = self.vector(a)?;
                Ok(self.unary_parts(op, from, &a))
            }
            Op::Binary(op, a, b) => self.binary_parts(op, ty, a, b),
            Op::Compare(op, a, b) => {
                let float = self.program.ty(a).is_float();
                let (a, b) = (self.vector(a)?, self.vector(b)?);
                Ok(self.compare_parts(op, float, &a, &b))
            }
            Op::Select {
                condition,
                accept,
                reject,
            } => {
                let (accept, reject) = (self.vector(accept)?, self.vector(reject)?);
                if self.is_uniform(condition) {
                    let condition = self.value(condition)?;
                    return Ok(self.each(&[&accept, &reject], |e, operands| {
                        e.b.ins().select(condition, operands[0], operands[1])
                    }));
                }
                let condition = self.vector(condition)?;
                Ok(self.blend(&condition, &accept, &reject))
            }
            Op::Convert(op, a) => {
                let a = self.vector(a)?;
                self.convert_parts(op, ty, &a)
            }
            Op::MultiplyAdd(a, b, c) => {
                let (a, b, c) = (self.vector(a)?, self.vector(b)?, self.vector(c)?);
                Ok(self.each(&[&a, &b, &c], |e, operands| {
                    e.b.ins().fma(operands[0], operands[1], operands[2])
                }))
            }
            op => Err(internal(format!("{op:?} cannot vary"))),
        }
    }

    fn unary_parts(&mut self, op: Unary, ty: Type, a: &Parts) -> Parts {
        if matches!(
            op,
            Unary::CountOnes | Unary::LeadingZeros | Unary::TrailingZeros | Unary::ReverseBits
        ) {
            return self.by_lane(ty, &[a], |e, a| e.unary(op, ty, a[0]));
        }
        self.each(&[a], |e, a| match op {
            // A mask
            Unary::Not => e.b.ins().bnot(a[0]),
            _ => e.unary(op, ty, a[0]),
        })
    }

    fn binary_parts(&mut self, op: Binary, ty: Type, a: Value, b: Value) -> Result<Parts> {
        let constant = self.program.constant(b).map(|bits| bits as u32);
        match op {
            Binary::Shl | Binary::ShrU | Binary::ShrS => {
                let parts = self.vector(a)?;
                if self.is_uniform(b) {
                    let amount = self.value(b)?;
                    return Ok(self.each(&[&parts], |e, a| e.binary(op, ty, a[0], amount, None)));
                }
                let amounts = self.vector(b)?;
                Ok(self.by_lane(ty, &[&parts, &amounts], |e, operands| {
                    e.binary(op, ty, operands[0], operands[1], None)
                }))
            }
            // Cranelift makes shifts of products of single numbers alone.
            Binary::Mul if ty == Type::I32 && constant.is_some_and(u32::is_power_of_two) => {
                let shift = self.int32(constant.unwrap_or(1).trailing_zeros());
                let parts = self.vector(a)?;
                Ok(self.each(&[&parts], |e, a| e.b.ins().ishl(a[0], shift)))
            }
            Binary::DivU | Binary::RemU if constant.is_some_and(u32::is_power_of_two) => {
                let divisor = constant.unwrap_or(1);
                let parts = self.vector(a)?;
                if op == Binary::RemU {
                    let low = self.word(divisor - 1);
                    return Ok(self.each(&[&parts], |e, a| e.b.ins().band(a[0], low)));
                }
                let shift = self.int32(divisor.trailing_zeros());
                Ok(self.each(&[&parts], |e, a| e.b.ins().ushr(a[0], shift)))
            }
            Binary::DivS | Binary::DivU | Binary::RemS | Binary::RemU => {
                let bits = self.program.constant(b);
                let dividends = self.vector(a)?;
                if self.is_uniform(b) {
                    let divisor = self.value(b)?;
                    return Ok(self.by_lane(ty, &[&dividends], |e, a| {
                        e.binary(op, ty, a[0], divisor, bits)
                    }));
                }
                let divisors = self.vector(b)?;
                Ok(self.by_lane(ty, &[&dividends, &divisors], |e, operands| {
                    e.binary(op, ty, operands[0], operands[1], bits)
                }))
            }
            Binary::MinF | Binary::MaxF => {
                let condition = match op {
                    Binary::MinF => FloatCC::LessThan,
                    _ => FloatCC::GreaterThan,
                };
                let (a, b) = (self.vector(a)?, self.vector(b)?);
                let holds = self.each(&[&a, &b], |e, operands| {
                    e.b.ins().fcmp(condition, operands[0], operands[1])
                });
                Ok(self.blend(&holds, &a, &b))
            }
            _ => {
                let (a, b) = (self.vector(a)?, self.vector(b)?);
                Ok(self.each(&[&a, &b], |e, operands| {
                    e.binary(op, ty, operands[0], operands[1], None)
                }))
            }
        }
    }

    fn compare_parts(&mut self, op: Comparison, float: bool, a: &Parts, b: &Parts) -> Parts {
        let (int_condition, float_condition): (IntCC, FloatCC) = conditions(op);
        self.each(&[a, b], |e, operands| {
            if float {
                e.b.ins().fcmp(float_condition, operands[0], operands[1])
            } else {
                e.b.ins().icmp(int_condition, operands[0], operands[1])
            }
        })
    }

    fn convert_parts(&mut self, op: Conversion, to: Type, a: &Parts) -> Result<Parts> {
        let ty = vector_type(to);
        let convert = |e: &mut Self, a: ir::Value| match op {
            Conversion::SignedToFloat => Some(e.b.ins().fcvt_from_sint(ty, a)),
            Conversion::UnsignedToFloat => Some(e.b.ins().fcvt_from_uint(ty, a)),
            Conversion::FloatToSigned => Some(e.b.ins().fcvt_to_sint_sat(types::I32X4, a)),
            Conversion::FloatToUnsigned => Some(e.b.ins().fcvt_to_uint_sat(types::I32X4, a)),
            Conversion::Bits => Some(e.cast(ty, a)),
            Conversion::Float => Some(a),
            Conversion::WidenS | Conversion::WidenU | Conversion::Narrow => None,
        };
        let mut missing = false;
        let parts = self.each(&[a], |e, a| {
            convert(e, a[0]).unwrap_or_else(|| {
                missing = true;
                a[0]
            })
        });
        if missing {
            return Err(internal(format!("{op:?} of values that vary")));
        }
        Ok(parts)
    }
}
