//! The operations under the functions of this room.
//!
//! [`Lanes`] is one machine for values of one width: floats, integers and masks side by side, one
//! per lane. [`Scalar32`](super::Scalar32) implements it for plain Rust values, and the compiler
//! implements it by emitting vector instructions. A function is written once and means the same
//! bits on both, because every operation here is exact by IEEE 754 or by two's complement:
//!
//! - Each operation rounds to nearest, ties to even, and keeps subnormal numbers.
//! - No operation fuses. A fused multiply-add rounds once where `fmul` and `fadd` round twice, and
//!   machines without the instruction would give other bits.
//! - An operation whose result the machines disagree about (an out-of-range [`Lanes::to_int`], the
//!   payload of a NaN) is never allowed to reach a result.
//! - No branch, no loop, no table depends on a value. The exception is [`Lanes32::rare`].
//!
//! Methods with a body are built from the others. An implementation overrides them where the
//! machine has an instruction with the same result.

use super::{bits, rounding, value::wrap};

/// Lanes of one width: `Float` is binary32 or binary64, `Int` has as many bits.
///
/// Methods take `&self`, so that calls nest; an implementation that appends instructions keeps the
/// builder in a cell.
pub trait Lanes: Sized {
    /// Floating-point lanes.
    type Float: Copy;
    /// Integer lanes: bits that each operation reads as signed or unsigned.
    type Int: Copy;
    /// One truth value per lane.
    type Mask: Copy;

    /// Bits of a lane: 32 or 64.
    const BITS: u32;

    /// `value` in each lane; `value` is exact in the width of the lanes.
    fn float(&self, value: f64) -> Self::Float;
    /// The low bits of `value` in each lane.
    fn int(&self, value: i64) -> Self::Int;

    /// a + b.
    fn fadd(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// a − b.
    fn fsub(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// a × b.
    fn fmul(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// a ÷ b.
    fn fdiv(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// √a, correctly rounded.
    fn sqrt(&self, a: Self::Float) -> Self::Float;
    /// `a` where a < b, else `b`: x86's `minps`. With a NaN on either side the result is `b`.
    fn fmin(&self, a: Self::Float, b: Self::Float) -> Self::Float {
        self.fselect(self.flt(a, b), a, b)
    }
    /// `a` where a > b, else `b`: x86's `maxps`. With a NaN on either side the result is `b`.
    fn fmax(&self, a: Self::Float, b: Self::Float) -> Self::Float {
        self.fselect(self.flt(b, a), a, b)
    }
    /// a < b; false where either is NaN.
    fn flt(&self, a: Self::Float, b: Self::Float) -> Self::Mask;
    /// a ≤ b; false where either is NaN.
    fn fle(&self, a: Self::Float, b: Self::Float) -> Self::Mask;
    /// a = b; false where either is NaN, true for +0 and −0.
    fn feq(&self, a: Self::Float, b: Self::Float) -> Self::Mask;
    /// `a` where the mask is set, else `b`.
    fn fselect(&self, mask: Self::Mask, a: Self::Float, b: Self::Float) -> Self::Float;

    /// a + b, wrapping.
    fn iadd(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// a − b, wrapping.
    fn isub(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// a × b, wrapping.
    fn imul(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise and.
    fn band(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise or.
    fn bor(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise exclusive or.
    fn bxor(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `a` shifted left by the same amount in each lane, below [`BITS`](Self::BITS).
    fn ishl(&self, a: Self::Int, amount: u32) -> Self::Int;
    /// `a` shifted right by the same amount in each lane, zeros coming in.
    fn ushr(&self, a: Self::Int, amount: u32) -> Self::Int;
    /// `a` shifted right by the same amount in each lane, copies of the sign coming in.
    fn sshr(&self, a: Self::Int, amount: u32) -> Self::Int;
    /// `a` shifted left by `amount` of the same lane; amounts are below [`BITS`](Self::BITS).
    fn ishl_each(&self, a: Self::Int, amount: Self::Int) -> Self::Int;
    /// `a` shifted right by `amount` of the same lane, zeros coming in.
    fn ushr_each(&self, a: Self::Int, amount: Self::Int) -> Self::Int;
    /// `a` shifted right by `amount` of the same lane, copies of the sign coming in.
    fn sshr_each(&self, a: Self::Int, amount: Self::Int) -> Self::Int;
    /// a = b.
    fn ieq(&self, a: Self::Int, b: Self::Int) -> Self::Mask;
    /// a < b, both signed.
    fn slt(&self, a: Self::Int, b: Self::Int) -> Self::Mask;
    /// a < b, both unsigned.
    fn ult(&self, a: Self::Int, b: Self::Int) -> Self::Mask {
        let sign = self.int(i64::MIN >> (64 - Self::BITS));
        self.slt(self.bxor(a, sign), self.bxor(b, sign))
    }
    /// `a` where the mask is set, else `b`.
    fn iselect(&self, mask: Self::Mask, a: Self::Int, b: Self::Int) -> Self::Int;

    /// Both.
    fn mask_and(&self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Either.
    fn mask_or(&self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Not.
    fn mask_not(&self, a: Self::Mask) -> Self::Mask;

    /// The bits of a float.
    fn to_bits(&self, a: Self::Float) -> Self::Int;
    /// The float with these bits.
    #[expect(
        clippy::wrong_self_convention,
        reason = "`self` is what builds, not what is converted"
    )]
    fn from_bits(&self, a: Self::Int) -> Self::Float;
    /// The integer part as a signed integer. Where the integer does not fit, or for NaN, the lane may hold anything, but the
    /// operation does not trap: `cvttps2dq` will do, and so will saturation.
    fn to_int(&self, a: Self::Float) -> Self::Int;
    /// The float nearest to a signed integer.
    #[expect(clippy::wrong_self_convention, reason = "as above")]
    fn from_int(&self, a: Self::Int) -> Self::Float;

    /// The greatest whole number that is not above `a`; keeps the sign of zero.
    fn floor(&self, a: Self::Float) -> Self::Float {
        rounding::floor_by_addition(wrap(self, a)).raw()
    }
    /// The least whole number that is not below `a`; keeps the sign of zero, and −0.5 gives −0.
    fn ceil(&self, a: Self::Float) -> Self::Float {
        rounding::ceil_by_addition(wrap(self, a)).raw()
    }
    /// The whole part of `a`, with the sign of `a`.
    fn trunc(&self, a: Self::Float) -> Self::Float {
        rounding::trunc_by_addition(wrap(self, a)).raw()
    }
    /// The nearest whole number, ties to even, with the sign of `a`.
    fn nearest(&self, a: Self::Float) -> Self::Float {
        rounding::nearest_by_addition(wrap(self, a)).raw()
    }
    /// How many bits are set.
    fn popcnt(&self, a: Self::Int) -> Self::Int {
        bits::count_by_halves(wrap(self, a)).raw()
    }
    /// The bits in reverse order.
    fn bitrev(&self, a: Self::Int) -> Self::Int {
        bits::reverse_by_halves(wrap(self, a)).raw()
    }
    /// How many zeros precede the highest set bit; [`BITS`](Self::BITS) for zero.
    fn clz(&self, a: Self::Int) -> Self::Int {
        bits::leading_by_exponent(wrap(self, a)).raw()
    }
    /// How many zeros follow the lowest set bit; [`BITS`](Self::BITS) for zero.
    fn ctz(&self, a: Self::Int) -> Self::Int {
        bits::trailing_by_exponent(wrap(self, a)).raw()
    }
}

/// Lanes of 32 bits.
///
/// `Wide` holds one binary64 number for each lane: two vectors where `Float` is one.
pub trait Lanes32: Lanes {
    /// One binary64 number per lane.
    type Wide: Copy;

    /// `value` in each lane.
    fn wide(&self, value: f64) -> Self::Wide;
    /// The same number with more bits.
    fn widen(&self, a: Self::Float) -> Self::Wide;
    /// The nearest binary32 number.
    fn narrow(&self, a: Self::Wide) -> Self::Float;
    /// a + b.
    fn wadd(&self, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// a − b.
    fn wsub(&self, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// a × b.
    fn wmul(&self, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// a ÷ b.
    fn wdiv(&self, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// The number whose bits are `high` above `low`: `punpckldq` and `punpckhdq`.
    fn wide_from_halves(&self, low: Self::Int, high: Self::Int) -> Self::Wide;
    /// The low half of the bits: `shufps`.
    fn low_half(&self, a: Self::Wide) -> Self::Int;

    /// `usual` where the mask is clear, and where the mask is set what
    /// [`call.function()`](Rare::function) returns for `x` of that lane.
    ///
    /// An implementation branches around the calls where no lane needs one; a single call on all
    /// lanes is never wrong.
    fn rare(&self, mask: Self::Mask, x: Self::Float, usual: Self::Float, call: Rare)
    -> Self::Float;
}

/// Lanes of 64 bits.
pub trait Lanes64: Lanes {}

/// Arguments too large for the usual reduction go through one of these, lane by lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rare {
    /// Sine of a large argument.
    Sin,
    /// Cosine of a large argument.
    Cos,
    /// Tangent of a large argument.
    Tan,
}

impl Rare {
    /// All of them, for an implementation that registers symbols.
    pub const ALL: [Self; 3] = [Self::Sin, Self::Cos, Self::Tan];

    /// The code to call.
    pub fn function(self) -> extern "C" fn(f32) -> f32 {
        extern "C" fn sin(x: f32) -> f32 {
            libm::sinf(x)
        }
        extern "C" fn cos(x: f32) -> f32 {
            libm::cosf(x)
        }
        extern "C" fn tan(x: f32) -> f32 {
            libm::tanf(x)
        }
        match self {
            Self::Sin => sin,
            Self::Cos => cos,
            Self::Tan => tan,
        }
    }

    /// A symbol for the code, the same in every build.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sin => "tombolo_rare_sin",
            Self::Cos => "tombolo_rare_cos",
            Self::Tan => "tombolo_rare_tan",
        }
    }
}
