//! Operations on single values: values of one invocation, and values common to all lanes.

use cranelift_codegen::ir::{
    self, InstBuilder, MemFlagsData,
    condcodes::{FloatCC, IntCC},
    types,
};

use super::{Emitter, register};
use crate::compile::{
    abi::Group,
    error::{Result, internal},
    host::HostFunction,
    ir::{Binary, Builtin, Comparison, Conversion, Op, Type, Unary},
};

/// 2^112, the distance between the exponents of half floats and of `f32`.
const HALF_SCALE: u32 = (127 + 112) << 23;
/// 2^-112
const HALF_SCALE_DOWN: u32 = (127 - 112) << 23;

impl Emitter<'_> {
    pub(super) fn constant(&mut self, ty: Type, bits: u64) -> ir::Value {
        match ty {
            Type::F16 | Type::F32 => self.b.ins().f32const(f32::from_bits(bits as u32)),
            Type::F64 => self.b.ins().f64const(f64::from_bits(bits)),
            Type::I32 => self.int32(bits as u32),
            _ => self.b.ins().iconst(register(ty), bits as i64),
        }
    }

    pub(super) fn int32(&mut self, bits: u32) -> ir::Value {
        self.b.ins().iconst(types::I32, i64::from(bits))
    }

    fn single(&mut self, bits: u32) -> ir::Value {
        self.b.ins().f32const(f32::from_bits(bits))
    }

    pub(super) fn builtin(&mut self, builtin: Builtin) -> ir::Value {
        let word = |base: usize, axis: u8| base + 4 * usize::from(axis);
        match builtin {
            Builtin::LocalIndex => self.local_index(),
            Builtin::GroupId(axis) => {
                let at = word(std::mem::offset_of!(Group, id), axis);
                self.group_field(types::I32, at)
            }
            Builtin::GroupCount(axis) => {
                let at = word(std::mem::offset_of!(Group, count), axis);
                self.group_field(types::I32, at)
            }
            Builtin::LocalId(axis) => {
                let [x, y, _] = self.program.workgroup_size;
                let index = self.local_index();
                match axis {
                    0 => self.b.ins().urem_imm_u(index, i64::from(x)),
                    1 => {
                        let row = self.b.ins().udiv_imm_u(index, i64::from(x));
                        self.b.ins().urem_imm_u(row, i64::from(y))
                    }
                    _ => self.b.ins().udiv_imm_u(index, i64::from(x) * i64::from(y)),
                }
            }
        }
    }

    pub(super) fn operation(&mut self, ty: Type, op: Op) -> Result<ir::Value> {
        let result = match op {
            Op::Unary(op, a) => {
                let from = self.program.ty(a);
                let a = self.value(a)?;
                self.unary(op, from, a)
            }
            Op::Binary(op, a, b) => {
                let divisor = self.program.constant(b);
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.binary(op, ty, a, b, divisor)
            }
            Op::Compare(op, a, b) => {
                let float = self.program.ty(a).is_float();
                let (a, b) = (self.value(a)?, self.value(b)?);
                return Ok(self.compare(op, float, a, b));
            }
            Op::Select {
                condition,
                accept,
                reject,
            } => {
                let condition = self.value(condition)?;
                let (accept, reject) = (self.value(accept)?, self.value(reject)?);
                return Ok(self.b.ins().select(condition, accept, reject));
            }
            Op::Convert(op, a) => {
                let from = self.program.ty(a);
                let a = self.value(a)?;
                return self.convert(op, from, ty, a);
            }
            Op::MultiplyAdd(a, b, c) => {
                let (a, b, c) = (self.value(a)?, self.value(b)?, self.value(c)?);
                if ty == Type::F16 {
                    let product = self.b.ins().fmul(a, b);
                    self.b.ins().fadd(product, c)
                } else if self.fuses {
                    self.b.ins().fma(a, b, c)
                } else {
                    let function = match ty {
                        Type::F64 => HostFunction::MultiplyAdd64,
                        _ => HostFunction::MultiplyAdd32,
                    };
                    self.call_host(function, &[], &[(ty, a), (ty, b), (ty, c)], &[ty])[0]
                }
            }
            Op::Const(_) | Op::Builtin(_) | Op::Get(_) | Op::Result | Op::Length(_) => {
                return Err(internal(format!("an operation that is none: {op:?}")));
            }
        };
        Ok(match (ty, op) {
            // These operations are exact: half floats become half floats.
            (
                Type::F16,
                Op::Unary(Unary::Negate | Unary::Abs, _)
                | Op::Binary(Binary::MinF | Binary::MaxF, ..),
            ) => result,
            (Type::F16, _) => self.round_to_half(result),
            _ => result,
        })
    }

    pub(super) fn unary(&mut self, op: Unary, ty: Type, a: ir::Value) -> ir::Value {
        match op {
            Unary::Negate if ty.is_float() => self.b.ins().fneg(a),
            Unary::Negate => self.b.ins().ineg(a),
            Unary::Abs if ty.is_float() => self.b.ins().fabs(a),
            Unary::Abs => self.b.ins().iabs(a),
            Unary::Not if ty == Type::Bool => self.b.ins().bxor_imm_s(a, 1),
            Unary::Not => self.b.ins().bnot(a),
            Unary::Sqrt => self.b.ins().sqrt(a),
            Unary::Ceil => self.b.ins().ceil(a),
            Unary::Floor => self.b.ins().floor(a),
            Unary::Trunc => self.b.ins().trunc(a),
            Unary::Nearest => self.b.ins().nearest(a),
            Unary::CountOnes => self.b.ins().popcnt(a),
            Unary::LeadingZeros => self.b.ins().clz(a),
            Unary::TrailingZeros => self.b.ins().ctz(a),
            Unary::ReverseBits => self.b.ins().bitrev(a),
        }
    }

    pub(super) fn binary(
        &mut self,
        op: Binary,
        ty: Type,
        a: ir::Value,
        b: ir::Value,
        divisor: Option<u64>,
    ) -> ir::Value {
        let float = ty.is_float();
        match op {
            Binary::Add if float => self.b.ins().fadd(a, b),
            Binary::Sub if float => self.b.ins().fsub(a, b),
            Binary::Mul if float => self.b.ins().fmul(a, b),
            Binary::DivF => self.b.ins().fdiv(a, b),
            Binary::MinF => self.choose(FloatCC::LessThan, a, b),
            Binary::MaxF => self.choose(FloatCC::GreaterThan, a, b),
            Binary::Add => self.b.ins().iadd(a, b),
            Binary::Sub => self.b.ins().isub(a, b),
            Binary::Mul => self.b.ins().imul(a, b),
            Binary::DivS | Binary::DivU | Binary::RemS | Binary::RemU => {
                self.divide(op, a, b, divisor)
            }
            Binary::And => self.b.ins().band(a, b),
            Binary::Or => self.b.ins().bor(a, b),
            Binary::Xor => self.b.ins().bxor(a, b),
            Binary::Shl => self.b.ins().ishl(a, b),
            Binary::ShrU => self.b.ins().ushr(a, b),
            Binary::ShrS => self.b.ins().sshr(a, b),
            Binary::MinS => self.b.ins().smin(a, b),
            Binary::MinU => self.b.ins().umin(a, b),
            Binary::MaxS => self.b.ins().smax(a, b),
            Binary::MaxU => self.b.ins().umax(a, b),
        }
    }

    /// `a` if the comparison holds, else `b`
    fn choose(&mut self, condition: FloatCC, a: ir::Value, b: ir::Value) -> ir::Value {
        let holds = self.b.ins().fcmp(condition, a, b);
        self.b.ins().select(holds, a, b)
    }

    /// An integer division that cannot trap: a trapping divisor is replaced by one.
    fn divide(
        &mut self,
        op: Binary,
        a: ir::Value,
        b: ir::Value,
        divisor: Option<u64>,
    ) -> ir::Value {
        let ty = self.b.func.dfg.value_type(a);
        let signed = matches!(op, Binary::DivS | Binary::RemS);
        let ones = if ty == types::I64 {
            u64::MAX
        } else {
            u64::from(u32::MAX)
        };
        let harmless = divisor.is_some_and(|bits| bits != 0 && !(signed && bits == ones));
        let remainder = matches!(op, Binary::RemS | Binary::RemU);
        let mut b = b;
        // The instruction traps where the language has a result, so the replacement is no matter of policy.
        if !harmless {
            let zero = self.b.ins().icmp_imm_u(IntCC::Equal, b, 0);
            let mut replaced = zero;
            if signed {
                let least = if ty == types::I64 {
                    i64::MIN
                } else {
                    i64::from(i32::MIN)
                };
                let overflows = self.b.ins().icmp_imm_s(IntCC::Equal, a, least);
                let minus = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
                let overflows = self.b.ins().band(overflows, minus);
                replaced = self.b.ins().bor(zero, overflows);
            }
            let one = self.b.ins().iconst(ty, 1);
            b = self.b.ins().select(replaced, one, b);
        }
        match (signed, remainder) {
            (true, false) => self.b.ins().sdiv(a, b),
            (false, false) => self.b.ins().udiv(a, b),
            (true, true) => self.b.ins().srem(a, b),
            (false, true) => self.b.ins().urem(a, b),
        }
    }

    fn compare(&mut self, op: Comparison, float: bool, a: ir::Value, b: ir::Value) -> ir::Value {
        let (int_condition, float_condition) = conditions(op);
        if float {
            self.b.ins().fcmp(float_condition, a, b)
        } else {
            self.b.ins().icmp(int_condition, a, b)
        }
    }

    fn convert(&mut self, op: Conversion, from: Type, to: Type, a: ir::Value) -> Result<ir::Value> {
        let register = register(to);
        let ins = self.b.ins();
        Ok(match op {
            Conversion::SignedToFloat | Conversion::UnsignedToFloat => {
                let value = match op {
                    Conversion::SignedToFloat => ins.fcvt_from_sint(register, a),
                    _ => ins.fcvt_from_uint(register, a),
                };
                if to == Type::F16 {
                    self.round_to_half(value)
                } else {
                    value
                }
            }
            Conversion::FloatToSigned => ins.fcvt_to_sint_sat(register, a),
            Conversion::FloatToUnsigned => ins.fcvt_to_uint_sat(register, a),
            Conversion::WidenS => ins.sextend(register, a),
            Conversion::WidenU => ins.uextend(register, a),
            Conversion::Narrow => ins.ireduce(register, a),
            Conversion::Float => match (from, to) {
                (Type::F64, Type::F64) => a,
                (Type::F64, _) => {
                    let single = ins.fdemote(types::F32, a);
                    if to == Type::F16 {
                        self.round_to_half(single)
                    } else {
                        single
                    }
                }
                (_, Type::F64) => ins.fpromote(types::F64, a),
                (_, Type::F16) => self.round_to_half(a),
                _ => a,
            },
            Conversion::Bits => match (from, to) {
                (Type::F16, Type::I32) => self.half_bits(a),
                (Type::I32, Type::F16) => self.half_from_bits(a),
                _ if self.b.func.dfg.value_type(a) == register => a,
                _ => self.b.ins().bitcast(register, MemFlagsData::new(), a),
            },
        })
    }

    fn bits(&mut self, single: ir::Value) -> ir::Value {
        self.b
            .ins()
            .bitcast(types::I32, MemFlagsData::new(), single)
    }

    fn float_of_bits(&mut self, bits: ir::Value) -> ir::Value {
        self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
    }

    /// The nearest half float, ties to even, as an `f32`.
    ///
    /// Numbers below 2^-14 are multiples of 2^-24, as `f32`s from 0.5 on are: adding 0.5 rounds them. Greater ones lose 13
    /// bits, and become infinite from 65520 on, where rounding reaches 65536.
    pub(super) fn round_to_half(&mut self, value: ir::Value) -> ir::Value {
        let bits = self.bits(value);
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff_ffff);
        let sign = self.b.ins().bxor(bits, magnitude);
        let odd = self.b.ins().ushr_imm_u(magnitude, 13);
        let odd = self.b.ins().band_imm_u(odd, 1);
        let rounded = self.b.ins().iadd_imm_s(magnitude, 0xfff);
        let rounded = self.b.ins().iadd(rounded, odd);
        let rounded = self.b.ins().band_imm_u(rounded, 0xffff_e000);
        let infinity = self.int32(0x7f80_0000);
        let too_large =
            self.b
                .ins()
                .icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, rounded, 0x4780_0000);
        let normal = self.b.ins().select(too_large, infinity, rounded);
        let small = self.float_of_bits(magnitude);
        let half = self.single(0.5f32.to_bits());
        let small = self.b.ins().fadd(small, half);
        let small = self.b.ins().fsub(small, half);
        let small = self.bits(small);
        let is_small = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedLessThan, magnitude, 0x3880_0000);
        let finite = self.b.ins().select(is_small, small, normal);
        let nan = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedGreaterThan, magnitude, 0x7f80_0000);
        let result = self.b.ins().select(nan, magnitude, finite);
        let result = self.b.ins().bor(result, sign);
        self.float_of_bits(result)
    }

    /// The 16 bits of a half float held as an `f32`.
    pub(super) fn half_bits(&mut self, value: ir::Value) -> ir::Value {
        let bits = self.bits(value);
        let sign = self.b.ins().ushr_imm_u(bits, 16);
        let sign = self.b.ins().band_imm_u(sign, 0x8000);
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff_ffff);
        let scale = self.single(HALF_SCALE_DOWN);
        let scaled = self.float_of_bits(magnitude);
        let scaled = self.b.ins().fmul(scaled, scale);
        let scaled = self.bits(scaled);
        let finite = self.b.ins().ushr_imm_u(scaled, 13);
        let infinity = self.int32(0x7c00);
        let large =
            self.b
                .ins()
                .icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7f80_0000);
        let result = self.b.ins().select(large, infinity, finite);
        let quiet = self.int32(0x7e00);
        let nan = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedGreaterThan, magnitude, 0x7f80_0000);
        let result = self.b.ins().select(nan, quiet, result);
        self.b.ins().bor(result, sign)
    }

    /// The half float with the low 16 bits of an integer, as an `f32`.
    pub(super) fn half_from_bits(&mut self, bits: ir::Value) -> ir::Value {
        let sign = self.b.ins().band_imm_u(bits, 0x8000);
        let sign = self.b.ins().ishl_imm_u(sign, 16);
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff);
        let shifted = self.b.ins().ishl_imm_u(magnitude, 13);
        let scale = self.single(HALF_SCALE);
        let value = self.float_of_bits(shifted);
        let value = self.b.ins().fmul(value, scale);
        let finite = self.bits(value);
        let infinite = self.b.ins().bor_imm_u(shifted, 0x7f80_0000);
        let large = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7c00);
        let result = self.b.ins().select(large, infinite, finite);
        let result = self.b.ins().bor(result, sign);
        self.float_of_bits(result)
    }
}

/// The conditions for a comparison of integers, and of floats.
pub(super) fn conditions(op: Comparison) -> (IntCC, FloatCC) {
    match op {
        Comparison::Eq => (IntCC::Equal, FloatCC::Equal),
        Comparison::Ne => (IntCC::NotEqual, FloatCC::NotEqual),
        Comparison::LtS => (IntCC::SignedLessThan, FloatCC::LessThan),
        Comparison::LeS => (IntCC::SignedLessThanOrEqual, FloatCC::LessThanOrEqual),
        Comparison::LtU => (IntCC::UnsignedLessThan, FloatCC::LessThan),
        Comparison::LeU => (IntCC::UnsignedLessThanOrEqual, FloatCC::LessThanOrEqual),
        Comparison::LtF => (IntCC::SignedLessThan, FloatCC::LessThan),
        Comparison::LeF => (IntCC::SignedLessThanOrEqual, FloatCC::LessThanOrEqual),
    }
}
