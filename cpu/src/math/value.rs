//! Operators for lanes, so that formulas read as formulas.
//!
//! [`F`], [`I`], [`M`] and [`W`] pair a value of a [`Lanes`] implementation with that
//! implementation. `x * 0.5 + y` then calls `fmul` and `fadd`.

use super::lanes::{Lanes, Lanes32};
use std::fmt;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Sub};

macro_rules! value {
    ($(#[$doc:meta])* $name:ident: $bound:ident, $raw:ident) => {
        $(#[$doc])*
        pub struct $name<'l, L: $bound> {
            lanes: &'l L,
            raw: L::$raw,
        }
        impl<L: $bound> Copy for $name<'_, L> {}
        impl<L: $bound> Clone for $name<'_, L> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<L: $bound> fmt::Debug for $name<'_, L> {
            /// The name alone: a value may be one of code, which nobody has computed yet.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
        impl<'l, L: $bound> $name<'l, L> {
            /// A value of `lanes`.
            pub fn new(lanes: &'l L, raw: L::$raw) -> Self {
                Self { lanes, raw }
            }
            /// The value alone.
            pub fn raw(self) -> L::$raw {
                self.raw
            }
        }
        impl<'l, L: $bound> Wrapped<'l, L> for $name<'l, L> {
            type Raw = L::$raw;
            fn from_raw(lanes: &'l L, raw: L::$raw) -> Self {
                Self { lanes, raw }
            }
        }
    };
}

/// The result of [`wrap`] for a raw value.
pub(super) trait Wrapped<'l, L> {
    type Raw;
    fn from_raw(lanes: &'l L, raw: Self::Raw) -> Self;
}

/// The value with its lanes; the wanted type decides between float, integer and mask.
pub(super) fn wrap<'l, L, V: Wrapped<'l, L>>(lanes: &'l L, raw: V::Raw) -> V {
    V::from_raw(lanes, raw)
}

value! {
    /// Floating-point lanes.
    F: Lanes, Float
}
value! {
    /// Integer lanes.
    I: Lanes, Int
}
value! {
    /// One truth value per lane.
    M: Lanes, Mask
}
value! {
    /// One binary64 number for each lane of 32 bits.
    W: Lanes32, Wide
}

macro_rules! operators {
    ($name:ident: $bound:ident, $constant:ty, $make:ident; $($trait:ident $method:ident $call:ident),*) => {$(
        impl<'l, L: $bound> $trait for $name<'l, L> {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                wrap(self.lanes, self.lanes.$call(self.raw, other.raw))
            }
        }
        impl<'l, L: $bound> $trait<$constant> for $name<'l, L> {
            type Output = Self;
            fn $method(self, other: $constant) -> Self {
                wrap(self.lanes, self.lanes.$call(self.raw, self.lanes.$make(other)))
            }
        }
    )*};
}
operators!(F: Lanes, f64, float; Add add fadd, Sub sub fsub, Mul mul fmul, Div div fdiv);
operators!(W: Lanes32, f64, wide; Add add wadd, Sub sub wsub, Mul mul wmul, Div div wdiv);
operators!(I: Lanes, i64, int;
    Add add iadd, Sub sub isub, Mul mul imul, BitAnd bitand band, BitOr bitor bor, BitXor bitxor bxor);

/// Operations of both kinds of number.
macro_rules! number {
    ($name:ident, $constant:ty, $make:ident, $select:ident, $equal:ident) => {
        impl<'l, L: Lanes> $name<'l, L> {
            /// The lanes the value belongs to.
            pub fn lanes(self) -> &'l L {
                self.lanes
            }
            /// A constant beside this value.
            pub fn constant(self, value: $constant) -> Self {
                wrap(self.lanes, self.lanes.$make(value))
            }
            /// Equality, lane by lane.
            pub fn equals(self, other: Self) -> M<'l, L> {
                wrap(self.lanes, self.lanes.$equal(self.raw, other.raw))
            }
        }
        impl<'l, L: Lanes> Select<'l, L> for $name<'l, L> {
            fn select(mask: M<'l, L>, a: Self, b: Self) -> Self {
                wrap(mask.lanes, mask.lanes.$select(mask.raw, a.raw, b.raw))
            }
        }
    };
}
number!(F, f64, float, fselect, feq);
number!(I, i64, int, iselect, ieq);

/// Values for a mask to choose between.
pub trait Select<'l, L: Lanes>: Sized {
    /// `a` where the mask is set, else `b`.
    fn select(mask: M<'l, L>, a: Self, b: Self) -> Self;
}

impl<'l, L: Lanes> M<'l, L> {
    /// `a` where set, else `b`.
    pub fn select<V: Select<'l, L>>(self, a: V, b: V) -> V {
        V::select(self, a, b)
    }
    /// The number where set, else zero. One `and` on machines with masks of ones.
    pub fn float_or_zero(self, value: f64) -> F<'l, L> {
        let float = |value| wrap(self.lanes, self.lanes.float(value));
        self.select(float(value), float(0.0))
    }
    /// The integer where set, else zero.
    pub fn int_or_zero(self, value: i64) -> I<'l, L> {
        let int = |value| wrap(self.lanes, self.lanes.int(value));
        self.select(int(value), int(0))
    }
}
impl<L: Lanes> BitAnd for M<'_, L> {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        wrap(self.lanes, self.lanes.mask_and(self.raw, other.raw))
    }
}
impl<L: Lanes> BitOr for M<'_, L> {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        wrap(self.lanes, self.lanes.mask_or(self.raw, other.raw))
    }
}
impl<L: Lanes> Not for M<'_, L> {
    type Output = Self;
    fn not(self) -> Self {
        wrap(self.lanes, self.lanes.mask_not(self.raw))
    }
}

impl<L: Lanes> Shl<u32> for I<'_, L> {
    type Output = Self;
    fn shl(self, amount: u32) -> Self {
        wrap(self.lanes, self.lanes.ishl(self.raw, amount))
    }
}
impl<L: Lanes> Not for I<'_, L> {
    type Output = Self;
    fn not(self) -> Self {
        self ^ -1
    }
}
impl<'l, L: Lanes> I<'l, L> {
    /// Shifted right, zeros coming in.
    pub fn ushr(self, amount: u32) -> Self {
        wrap(self.lanes, self.lanes.ushr(self.raw, amount))
    }
    /// Shifted right, copies of the sign coming in.
    pub fn sshr(self, amount: u32) -> Self {
        wrap(self.lanes, self.lanes.sshr(self.raw, amount))
    }
    /// Shifted left, each lane by its own amount below the width.
    pub fn shl_each(self, amount: Self) -> Self {
        wrap(self.lanes, self.lanes.ishl_each(self.raw, amount.raw))
    }
    /// Shifted right, each lane by its own amount, zeros coming in.
    pub fn ushr_each(self, amount: Self) -> Self {
        wrap(self.lanes, self.lanes.ushr_each(self.raw, amount.raw))
    }
    /// Shifted right, each lane by its own amount, copies of the sign coming in.
    pub fn sshr_each(self, amount: Self) -> Self {
        wrap(self.lanes, self.lanes.sshr_each(self.raw, amount.raw))
    }
    /// Less than, both signed.
    pub fn slt(self, other: Self) -> M<'l, L> {
        wrap(self.lanes, self.lanes.slt(self.raw, other.raw))
    }
    /// Less than, both unsigned.
    pub fn ult(self, other: Self) -> M<'l, L> {
        wrap(self.lanes, self.lanes.ult(self.raw, other.raw))
    }
    /// The smaller, both signed.
    pub fn smin(self, other: Self) -> Self {
        self.slt(other).select(self, other)
    }
    /// The larger, both signed.
    pub fn smax(self, other: Self) -> Self {
        other.slt(self).select(self, other)
    }
    /// The smaller, both unsigned.
    pub fn umin(self, other: Self) -> Self {
        self.ult(other).select(self, other)
    }
    /// The float with these bits.
    pub fn as_float(self) -> F<'l, L> {
        wrap(self.lanes, self.lanes.from_bits(self.raw))
    }
    /// The float nearest to the signed integer.
    pub fn to_float(self) -> F<'l, L> {
        wrap(self.lanes, self.lanes.from_int(self.raw))
    }
}

impl<L: Lanes> Neg for F<'_, L> {
    type Output = Self;
    /// The other sign, of zeros and NaNs too.
    fn neg(self) -> Self {
        self.flip_sign_by(self.as_int().constant(i64::MIN >> (64 - L::BITS)))
    }
}
impl<'l, L: Lanes> F<'l, L> {
    /// Less than.
    pub fn lt(self, other: Self) -> M<'l, L> {
        wrap(self.lanes, self.lanes.flt(self.raw, other.raw))
    }
    /// Less than or equal.
    pub fn le(self, other: Self) -> M<'l, L> {
        wrap(self.lanes, self.lanes.fle(self.raw, other.raw))
    }
    /// Greater than.
    pub fn gt(self, other: Self) -> M<'l, L> {
        other.lt(self)
    }
    /// Greater than or equal.
    pub fn ge(self, other: Self) -> M<'l, L> {
        other.le(self)
    }
    /// Whether the lane is a number: neither NaN nor, as everywhere, an error.
    pub fn is_number(self) -> M<'l, L> {
        self.equals(self)
    }
    /// `self` where self < other, else `other`.
    pub fn min(self, other: Self) -> Self {
        wrap(self.lanes, self.lanes.fmin(self.raw, other.raw))
    }
    /// `self` where self > other, else `other`.
    pub fn max(self, other: Self) -> Self {
        wrap(self.lanes, self.lanes.fmax(self.raw, other.raw))
    }
    /// The value within `low..=high`; NaN stays NaN.
    pub fn within(self, low: f64, high: f64) -> Self {
        self.constant(high).min(self.constant(low).max(self))
    }
    /// The square root.
    pub fn sqrt(self) -> Self {
        wrap(self.lanes, self.lanes.sqrt(self.raw))
    }
    /// The greatest whole number that is not above.
    pub fn floor(self) -> Self {
        wrap(self.lanes, self.lanes.floor(self.raw))
    }
    /// The whole part.
    pub fn trunc(self) -> Self {
        wrap(self.lanes, self.lanes.trunc(self.raw))
    }
    /// The bits.
    pub fn as_int(self) -> I<'l, L> {
        wrap(self.lanes, self.lanes.to_bits(self.raw))
    }
    /// The integer part; anything where the part does not fit.
    pub fn to_int(self) -> I<'l, L> {
        wrap(self.lanes, self.lanes.to_int(self.raw))
    }
    /// The sign bit alone.
    pub fn sign_bit(self) -> I<'l, L> {
        self.as_int() & (i64::MIN >> (64 - L::BITS))
    }
    /// Without the sign.
    pub fn abs(self) -> Self {
        (self.as_int() & !(i64::MIN >> (64 - L::BITS))).as_float()
    }
    /// With the sign flipped where the highest bit of `sign` is set; its other bits are zero.
    pub fn flip_sign_by(self, sign: I<'l, L>) -> Self {
        (self.as_int() ^ sign).as_float()
    }
    /// c₀ + c₁x + c₂x² + …, from the highest coefficient down.
    pub fn polynomial(self, coefficients: &[f64]) -> Self {
        let (&last, rest) = coefficients.split_last().unwrap_or((&0.0, &[]));
        rest.iter()
            .rev()
            .fold(self.constant(last), |sum, &c| sum * self + c)
    }
}
impl<'l, L: Lanes32> F<'l, L> {
    /// The same number as binary64.
    pub fn widen(self) -> W<'l, L> {
        wrap(self.lanes, self.lanes.widen(self.raw))
    }
}
impl<'l, L: Lanes32> W<'l, L> {
    /// The nearest binary32 number.
    pub fn narrow(self) -> F<'l, L> {
        wrap(self.lanes, self.lanes.narrow(self.raw))
    }
    /// c₀ + c₁x + c₂x² + …, from the highest coefficient down.
    pub fn polynomial(self, coefficients: &[f64]) -> Self {
        let (&last, rest) = coefficients.split_last().unwrap_or((&0.0, &[]));
        let last = wrap(self.lanes, self.lanes.wide(last));
        rest.iter().rev().fold(last, |sum: Self, &c| sum * self + c)
    }
}
