//! Lanes of other machines: results must not depend on choices left open by the trait.
//!
//! [`Hostile`] converts numbers out of range to x86's results (or to noise), calls every rare function on every lane, and makes
//! NaN of another sign. Functions must return the same bits.

use super::super::catalogue::{BINARY, UNARY, binary, unary};
use super::super::{
    F, I, Lanes, Lanes32, Rare, Scalar32, convert, division, half, packing, rounding,
};
use super::{floats, same, word};
use std::cell::Cell;

#[derive(Default)]
struct Hostile {
    noise: Cell<u64>,
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> $result {
            Scalar32.$name($($argument),*)
        }
    )*};
}

impl Hostile {
    fn noise(&self) -> u64 {
        self.noise.set(self.noise.get() + 1);
        word(self.noise.get())
    }
    /// Another NaN for each NaN.
    fn scramble(&self, x: f32) -> f32 {
        if !x.is_nan() {
            return x;
        }
        f32::from_bits(0x7fc0_0000 | self.noise() as u32 & 0x803f_ffff)
    }
}

impl Lanes for Hostile {
    type Float = f32;
    type Int = i32;
    type Mask = bool;
    const BITS: u32 = 32;

    fn fadd(&self, a: f32, b: f32) -> f32 {
        self.scramble(a + b)
    }
    fn fsub(&self, a: f32, b: f32) -> f32 {
        self.scramble(a - b)
    }
    fn fmul(&self, a: f32, b: f32) -> f32 {
        self.scramble(a * b)
    }
    fn fdiv(&self, a: f32, b: f32) -> f32 {
        self.scramble(a / b)
    }
    fn sqrt(&self, a: f32) -> f32 {
        self.scramble(a.sqrt())
    }
    fn to_int(&self, a: f32) -> i32 {
        let fits = (-2147483648.0..2147483648.0).contains(&a);
        let odd = self.noise();
        if fits {
            a as i32
        } else {
            [i32::MIN, odd as i32][(odd >> 40) as usize % 2]
        }
    }
    // The instructions of machines with such instructions.
    fn floor(&self, a: f32) -> f32 {
        a.floor()
    }
    fn trunc(&self, a: f32) -> f32 {
        a.trunc()
    }
    fn ult(&self, a: i32, b: i32) -> bool {
        (a as u32) < b as u32
    }
    forward! {
        float(value: f64) -> f32;
        int(value: i64) -> i32;
        flt(a: f32, b: f32) -> bool;
        fle(a: f32, b: f32) -> bool;
        feq(a: f32, b: f32) -> bool;
        fselect(mask: bool, a: f32, b: f32) -> f32;
        fmin(a: f32, b: f32) -> f32;
        fmax(a: f32, b: f32) -> f32;
        iadd(a: i32, b: i32) -> i32;
        isub(a: i32, b: i32) -> i32;
        imul(a: i32, b: i32) -> i32;
        band(a: i32, b: i32) -> i32;
        bor(a: i32, b: i32) -> i32;
        bxor(a: i32, b: i32) -> i32;
        ishl(a: i32, amount: u32) -> i32;
        ushr(a: i32, amount: u32) -> i32;
        sshr(a: i32, amount: u32) -> i32;
        ishl_each(a: i32, amount: i32) -> i32;
        ushr_each(a: i32, amount: i32) -> i32;
        sshr_each(a: i32, amount: i32) -> i32;
        ieq(a: i32, b: i32) -> bool;
        slt(a: i32, b: i32) -> bool;
        iselect(mask: bool, a: i32, b: i32) -> i32;
        mask_and(a: bool, b: bool) -> bool;
        mask_or(a: bool, b: bool) -> bool;
        mask_not(a: bool) -> bool;
        to_bits(a: f32) -> i32;
        from_bits(a: i32) -> f32;
        from_int(a: i32) -> f32;
    }
}

impl Lanes32 for Hostile {
    type Wide = f64;
    forward! {
        wide(value: f64) -> f64;
        widen(a: f32) -> f64;
        wadd(a: f64, b: f64) -> f64;
        wsub(a: f64, b: f64) -> f64;
        wmul(a: f64, b: f64) -> f64;
        wdiv(a: f64, b: f64) -> f64;
        wide_from_halves(low: i32, high: i32) -> f64;
        low_half(a: f64) -> i32;
    }
    fn narrow(&self, a: f64) -> f32 {
        self.scramble(a as f32)
    }
    fn rare(&self, mask: bool, x: f32, usual: f32, call: Rare) -> f32 {
        let called = call.function()(x);
        if mask { called } else { usual }
    }
}

#[test]
fn functions_of_floats_do_not_depend_on_the_machine() {
    let hostile = Hostile::default();
    for name in UNARY {
        let (one, other) = (unary(name).unwrap(), unary(name).unwrap());
        for x in floats(30_000) {
            let value = other(F::new(&hostile, x)).raw();
            same(value, one(F::new(&Scalar32, x)).raw(), (name, x));
        }
    }
    for name in BINARY {
        let (one, other) = (binary(name).unwrap(), binary(name).unwrap());
        for (x, y) in floats(30_000).zip(floats(40_000).skip(10_000)) {
            let value = other(F::new(&hostile, x), F::new(&hostile, y)).raw();
            same(
                value,
                one(F::new(&Scalar32, x), F::new(&Scalar32, y)).raw(),
                (name, x, y),
            );
        }
    }
}

#[test]
fn functions_of_bits_do_not_depend_on_the_machine() {
    let hostile = Hostile::default();
    for x in floats(100_000) {
        let (here, there) = (F::new(&Scalar32, x), F::new(&hostile, x));
        for bits in [16, 32] {
            let from = convert::FloatType::F32;
            let value = convert::float_to_signed(there, from, bits).raw();
            assert_eq!(
                value,
                convert::float_to_signed(here, from, bits).raw(),
                "{x:e}"
            );
            let value = convert::float_to_unsigned(there, from, bits).raw();
            assert_eq!(
                value,
                convert::float_to_unsigned(here, from, bits).raw(),
                "{x:e}"
            );
        }
        assert_eq!(half::to_f16(there).raw(), half::to_f16(here).raw(), "{x:e}");
        same(half::quantize(there).raw(), half::quantize(here).raw(), x);
        same(
            rounding::modf(there).0.raw(),
            rounding::modf(here).0.raw(),
            x,
        );
        same(
            rounding::frexp(there).0.raw(),
            rounding::frexp(here).0.raw(),
            x,
        );
        assert_eq!(
            rounding::frexp(there).1.raw(),
            rounding::frexp(here).1.raw(),
            "{x:e}"
        );
        let value = packing::pack_4x8_snorm([there; 4]).raw();
        assert_eq!(value, packing::pack_4x8_snorm([here; 4]).raw(), "{x:e}");
        let value = packing::pack_4x8_unorm([there; 4]).raw();
        assert_eq!(value, packing::pack_4x8_unorm([here; 4]).raw(), "{x:e}");
        let (x, y) = (x.to_bits() as i32, x.to_bits().swap_bytes() as i32);
        let there = division::divide_signed(I::new(&hostile, x), I::new(&hostile, y)).raw();
        let here = division::divide_signed(I::new(&Scalar32, x), I::new(&Scalar32, y)).raw();
        assert_eq!(there, here, "{x} / {y}");
    }
}
