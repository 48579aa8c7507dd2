//! Lanes of plain Rust values: one lane.

use super::lanes::{Lanes, Lanes32, Lanes64, Rare};

/// One lane of 32 bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar32;

/// One lane of 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar64;

/// A comparison kept apart from the following choice.
///
/// For AArch64 the compiler makes `fmaxnm` and `fminnm` of `if b < a { a } else { b }` where one side is a constant. The
/// instructions agree with the expression for every value and every quiet NaN, but give a NaN for a signaling NaN, and not the
/// other side.
#[inline]
fn alone(comparison: bool) -> bool {
    match cfg!(target_arch = "aarch64") {
        true => std::hint::black_box(comparison),
        false => comparison,
    }
}

macro_rules! scalar {
    ($name:ident, $bits:literal, $float:ty, $int:ty, $uint:ty) => {
        impl Lanes for $name {
            type Float = $float;
            type Int = $int;
            type Mask = bool;
            const BITS: u32 = $bits;

            fn float(&self, value: f64) -> $float {
                let float = value as $float;
                debug_assert!(
                    f64::from(float) == value || value.is_nan(),
                    "{value} is not exact"
                );
                float
            }
            fn int(&self, value: i64) -> $int {
                value as $int
            }
            fn fadd(&self, a: $float, b: $float) -> $float {
                a + b
            }
            fn fsub(&self, a: $float, b: $float) -> $float {
                a - b
            }
            fn fmul(&self, a: $float, b: $float) -> $float {
                a * b
            }
            fn fdiv(&self, a: $float, b: $float) -> $float {
                a / b
            }
            fn sqrt(&self, a: $float) -> $float {
                a.sqrt()
            }
            fn fmin(&self, a: $float, b: $float) -> $float {
                if alone(a < b) { a } else { b }
            }
            fn fmax(&self, a: $float, b: $float) -> $float {
                if alone(b < a) { a } else { b }
            }
            fn flt(&self, a: $float, b: $float) -> bool {
                a < b
            }
            fn fle(&self, a: $float, b: $float) -> bool {
                a <= b
            }
            fn feq(&self, a: $float, b: $float) -> bool {
                a == b
            }
            fn fselect(&self, mask: bool, a: $float, b: $float) -> $float {
                if mask { a } else { b }
            }
            fn iadd(&self, a: $int, b: $int) -> $int {
                a.wrapping_add(b)
            }
            fn isub(&self, a: $int, b: $int) -> $int {
                a.wrapping_sub(b)
            }
            fn imul(&self, a: $int, b: $int) -> $int {
                a.wrapping_mul(b)
            }
            fn band(&self, a: $int, b: $int) -> $int {
                a & b
            }
            fn bor(&self, a: $int, b: $int) -> $int {
                a | b
            }
            fn bxor(&self, a: $int, b: $int) -> $int {
                a ^ b
            }
            fn ishl(&self, a: $int, amount: u32) -> $int {
                a << amount
            }
            fn ushr(&self, a: $int, amount: u32) -> $int {
                (a as $uint >> amount) as $int
            }
            fn sshr(&self, a: $int, amount: u32) -> $int {
                a >> amount
            }
            fn ishl_each(&self, a: $int, amount: $int) -> $int {
                a << amount
            }
            fn ushr_each(&self, a: $int, amount: $int) -> $int {
                (a as $uint >> amount) as $int
            }
            fn sshr_each(&self, a: $int, amount: $int) -> $int {
                a >> amount
            }
            fn ieq(&self, a: $int, b: $int) -> bool {
                a == b
            }
            fn slt(&self, a: $int, b: $int) -> bool {
                a < b
            }
            fn iselect(&self, mask: bool, a: $int, b: $int) -> $int {
                if mask { a } else { b }
            }
            fn mask_and(&self, a: bool, b: bool) -> bool {
                a & b
            }
            fn mask_or(&self, a: bool, b: bool) -> bool {
                a | b
            }
            fn mask_not(&self, a: bool) -> bool {
                !a
            }
            fn to_bits(&self, a: $float) -> $int {
                a.to_bits() as $int
            }
            fn from_bits(&self, a: $int) -> $float {
                <$float>::from_bits(a as $uint)
            }
            fn to_int(&self, a: $float) -> $int {
                a as $int
            }
            fn from_int(&self, a: $int) -> $float {
                a as $float
            }
        }
    };
}
scalar!(Scalar32, 32, f32, i32, u32);
scalar!(Scalar64, 64, f64, i64, u64);

impl Lanes64 for Scalar64 {}

impl Lanes32 for Scalar32 {
    type Wide = f64;

    fn wide(&self, value: f64) -> f64 {
        value
    }
    fn widen(&self, a: f32) -> f64 {
        f64::from(a)
    }
    fn narrow(&self, a: f64) -> f32 {
        a as f32
    }
    fn wadd(&self, a: f64, b: f64) -> f64 {
        a + b
    }
    fn wsub(&self, a: f64, b: f64) -> f64 {
        a - b
    }
    fn wmul(&self, a: f64, b: f64) -> f64 {
        a * b
    }
    fn wdiv(&self, a: f64, b: f64) -> f64 {
        a / b
    }
    fn wide_from_halves(&self, low: i32, high: i32) -> f64 {
        f64::from_bits(u64::from(high as u32) << 32 | u64::from(low as u32))
    }
    fn low_half(&self, a: f64) -> i32 {
        a.to_bits() as i32
    }
    fn rare(&self, mask: bool, x: f32, usual: f32, call: Rare) -> f32 {
        if mask { call.function()(x) } else { usual }
    }
}
