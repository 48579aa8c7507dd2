//! The functions of [`math`](crate::math), written once for any lanes, as operations of a lane program.

use std::cell::RefCell;

use smallvec::SmallVec;

use crate::{
    compile::{
        host::HostFunction,
        ir::{Binary, Call, Comparison, Conversion, Statement, Type, Unary, Value, build::Builder},
    },
    math::{Lanes, Lanes32, Lanes64, Rare},
};

/// A builder as lanes of so many bits: each operation is appended.
pub(super) struct Appending<'b, const BITS: u32>(RefCell<&'b mut Builder>);

/// As lanes of 32 bits.
pub(super) type Appending32<'b> = Appending<'b, 32>;
/// As lanes of 64 bits.
pub(super) type Appending64<'b> = Appending<'b, 64>;

impl<'b, const BITS: u32> Appending<'b, BITS> {
    const FLOAT: Type = if BITS == 32 { Type::F32 } else { Type::F64 };
    const INT: Type = if BITS == 32 { Type::I32 } else { Type::I64 };

    pub(super) fn new(builder: &'b mut Builder) -> Self {
        Self(RefCell::new(builder))
    }

    fn unary(&self, op: Unary, a: Value) -> Value {
        self.0.borrow_mut().unary(op, a)
    }

    fn binary(&self, op: Binary, a: Value, b: Value) -> Value {
        self.0.borrow_mut().binary(op, a, b)
    }

    fn compare(&self, op: Comparison, a: Value, b: Value) -> Value {
        self.0.borrow_mut().compare(op, a, b)
    }

    fn select(&self, mask: Value, a: Value, b: Value) -> Value {
        self.0.borrow_mut().select(mask, a, b)
    }

    fn convert(&self, op: Conversion, ty: Type, a: Value) -> Value {
        self.0.borrow_mut().convert(op, ty, a)
    }

    fn shift(&self, op: Binary, a: Value, amount: u32) -> Value {
        let amount = self.0.borrow_mut().u32(amount);
        self.binary(op, a, amount)
    }
}

impl<const BITS: u32> Lanes for Appending<'_, BITS> {
    type Float = Value;
    type Int = Value;
    type Mask = Value;
    const BITS: u32 = BITS;

    fn float(&self, value: f64) -> Value {
        self.0.borrow_mut().float(Self::FLOAT, value)
    }
    fn int(&self, value: i64) -> Value {
        self.0.borrow_mut().integer(Self::INT, value)
    }
    fn fadd(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Add, a, b)
    }
    fn fsub(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Sub, a, b)
    }
    fn fmul(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Mul, a, b)
    }
    fn fdiv(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::DivF, a, b)
    }
    fn sqrt(&self, a: Value) -> Value {
        self.unary(Unary::Sqrt, a)
    }
    fn fmin(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::MinF, a, b)
    }
    fn fmax(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::MaxF, a, b)
    }
    fn flt(&self, a: Value, b: Value) -> Value {
        self.compare(Comparison::LtF, a, b)
    }
    fn fle(&self, a: Value, b: Value) -> Value {
        self.compare(Comparison::LeF, a, b)
    }
    fn feq(&self, a: Value, b: Value) -> Value {
        self.compare(Comparison::Eq, a, b)
    }
    fn fselect(&self, mask: Value, a: Value, b: Value) -> Value {
        self.select(mask, a, b)
    }
    fn iadd(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Add, a, b)
    }
    fn isub(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Sub, a, b)
    }
    fn imul(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Mul, a, b)
    }
    fn band(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::And, a, b)
    }
    fn bor(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Or, a, b)
    }
    fn bxor(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Xor, a, b)
    }
    fn ishl(&self, a: Value, amount: u32) -> Value {
        self.shift(Binary::Shl, a, amount)
    }
    fn ushr(&self, a: Value, amount: u32) -> Value {
        self.shift(Binary::ShrU, a, amount)
    }
    fn sshr(&self, a: Value, amount: u32) -> Value {
        self.shift(Binary::ShrS, a, amount)
    }
    fn ishl_each(&self, a: Value, amount: Value) -> Value {
        self.binary(Binary::Shl, a, amount)
    }
    fn ushr_each(&self, a: Value, amount: Value) -> Value {
        self.binary(Binary::ShrU, a, amount)
    }
    fn sshr_each(&self, a: Value, amount: Value) -> Value {
        self.binary(Binary::ShrS, a, amount)
    }
    fn ieq(&self, a: Value, b: Value) -> Value {
        self.compare(Comparison::Eq, a, b)
    }
    fn slt(&self, a: Value, b: Value) -> Value {
        self.compare(Comparison::LtS, a, b)
    }
    fn ult(&self, a: Value, b: Value) -> Value {
        self.compare(Comparison::LtU, a, b)
    }
    fn iselect(&self, mask: Value, a: Value, b: Value) -> Value {
        self.select(mask, a, b)
    }
    fn mask_and(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::And, a, b)
    }
    fn mask_or(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Or, a, b)
    }
    fn mask_not(&self, a: Value) -> Value {
        self.unary(Unary::Not, a)
    }
    fn to_bits(&self, a: Value) -> Value {
        self.convert(Conversion::Bits, Self::INT, a)
    }
    fn from_bits(&self, a: Value) -> Value {
        self.convert(Conversion::Bits, Self::FLOAT, a)
    }
    fn to_int(&self, a: Value) -> Value {
        self.convert(Conversion::FloatToSigned, Self::INT, a)
    }
    fn from_int(&self, a: Value) -> Value {
        self.convert(Conversion::SignedToFloat, Self::FLOAT, a)
    }
    fn floor(&self, a: Value) -> Value {
        self.unary(Unary::Floor, a)
    }
    fn ceil(&self, a: Value) -> Value {
        self.unary(Unary::Ceil, a)
    }
    fn trunc(&self, a: Value) -> Value {
        self.unary(Unary::Trunc, a)
    }
    fn nearest(&self, a: Value) -> Value {
        self.unary(Unary::Nearest, a)
    }
    fn popcnt(&self, a: Value) -> Value {
        self.unary(Unary::CountOnes, a)
    }
    fn bitrev(&self, a: Value) -> Value {
        self.unary(Unary::ReverseBits, a)
    }
    fn clz(&self, a: Value) -> Value {
        self.unary(Unary::LeadingZeros, a)
    }
    fn ctz(&self, a: Value) -> Value {
        self.unary(Unary::TrailingZeros, a)
    }
}

impl Lanes64 for Appending64<'_> {}

impl Lanes32 for Appending32<'_> {
    type Wide = Value;

    fn wide(&self, value: f64) -> Value {
        self.0.borrow_mut().float(Type::F64, value)
    }
    fn widen(&self, a: Value) -> Value {
        self.convert(Conversion::Float, Type::F64, a)
    }
    fn narrow(&self, a: Value) -> Value {
        self.convert(Conversion::Float, Type::F32, a)
    }
    fn wadd(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Add, a, b)
    }
    fn wsub(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Sub, a, b)
    }
    fn wmul(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::Mul, a, b)
    }
    fn wdiv(&self, a: Value, b: Value) -> Value {
        self.binary(Binary::DivF, a, b)
    }
    fn wide_from_halves(&self, low: Value, high: Value) -> Value {
        let low = self.convert(Conversion::WidenU, Type::I64, low);
        let high = self.convert(Conversion::WidenU, Type::I64, high);
        let high = self.shift(Binary::Shl, high, 32);
        let bits = self.binary(Binary::Or, low, high);
        self.convert(Conversion::Bits, Type::F64, bits)
    }
    fn low_half(&self, a: Value) -> Value {
        let bits = self.convert(Conversion::Bits, Type::I64, a);
        self.convert(Conversion::Narrow, Type::I32, bits)
    }
    fn rare(&self, mask: Value, x: Value, usual: Value, call: Rare) -> Value {
        let mut builder = self.0.borrow_mut();
        match builder.program.constant(mask) {
            Some(0) => return usual,
            Some(_) if let Some(bits) = builder.program.constant(x) => {
                let value = call.function()(f32::from_bits(bits as u32));
                return builder.f32(value);
            }
            _ => {}
        }
        let result = builder.variable(Type::F32);
        builder.set(result, usual);
        builder.open();
        let called = call_of(&mut builder, HostFunction::Rare(call), &[x], Type::F32);
        builder.set(result, called);
        let accept = builder.close();
        builder.push(Statement::If {
            condition: mask,
            accept,
            reject: Vec::new(),
        });
        builder.get(result)
    }
}

/// Calls a function in Rust that gives one value.
pub(super) fn call_of(
    builder: &mut Builder,
    function: HostFunction,
    operands: &[Value],
    ty: Type,
) -> Value {
    let result = builder.result(ty);
    builder.push(Statement::Call(Box::new(Call {
        function,
        resources: SmallVec::new(),
        operands: operands.into(),
        results: [result].into_iter().collect(),
    })));
    result
}
