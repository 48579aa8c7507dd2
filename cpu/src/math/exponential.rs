//! Exponential functions.
//!
//! # How it works
//!
//! 1. n is the whole number nearest to the exponent of 2; r is the exact rest.
//! 2. A polynomial gives 2^r or e^r on half a unit to either side.
//! 3. 2^n is applied as two powers of half the size, because one float cannot hold the smallest and
//!    the largest n. The result overflows to infinity and passes through the subnormal numbers to
//!    zero, rounded once.
//!
//! | function | operations | of which wide | bound of the error, ULP |
//! | --- | --- | --- | --- |
//! | `exp` | 27 | 0 | 1.3 |
//! | `exp2` | 23 | 0 | 1.4 |

use super::lanes::Lanes32;
use super::value::{F, I};

/// 1.5 × 2^23, and twice the bias of an exponent: a sum with this has in its low bits the rounded
/// number plus 254.
const ROUND: f64 = 12_582_912.0 + 254.0;

/// 1 ÷ ln 2.
const PER_LN_2: f64 = 1.4426950216293335;

/// ln 2 in two pieces; products of the first with 8 bits are exact.
pub(super) const LN_2: [f64; 2] = [0.693145751953125, 1.428606765330187e-06];

/// 2^r = 1 + r × P(r) on [−1/2, 1/2], relative error 2^-28.3.
const EXP2: [f64; 6] = [
    0.6931471824645996,
    0.24022647738456726,
    0.05550359934568405,
    0.009618505835533142,
    0.0013390806270763278,
    0.00015326471475418657,
];

/// e^r − 1 = r + r² × P(r) on ln 2 × [−1/2, 1/2], error 2^-27.6 relative to e^r.
const EXP: [f64; 5] = [
    0.4999999403953552,
    0.1666652262210846,
    0.041668206453323364,
    0.008368289098143578,
    0.0013817967846989632,
];

/// A number near 1 and its power of 2.
pub(super) struct Split<'l, L: Lanes32> {
    /// The whole exponent; the low bits of the float that it was rounded in hold n + 254.
    rounded: F<'l, L>,
    /// The exponent alone.
    pub n: F<'l, L>,
}

impl<'l, L: Lanes32> Split<'l, L> {
    /// Rounds an exponent within −152..=129.
    pub fn new(exponent: F<'l, L>) -> Self {
        let rounded = exponent + ROUND;
        Self {
            rounded,
            n: rounded - ROUND,
        }
    }

    /// `mantissa` × 2^n.
    pub fn scale(self, mantissa: F<'l, L>) -> F<'l, L> {
        // The bits are those of 1.5 × 2^23 with m = n + 254 below; shifts by 23 drop the former.
        let m = self.rounded.as_int();
        let half = m.ushr(1);
        let power = |biased: I<'l, L>| (biased << 23).as_float();
        mantissa * power(half) * power(m - half)
    }
}

/// 2^r for r within [−1/2, 1/2].
pub(super) fn exp2_near_zero<'l, L: Lanes32>(r: F<'l, L>) -> F<'l, L> {
    r * r.polynomial(&EXP2) + 1.0
}

/// e^r − 1 for r within ln 2 × [−1/2, 1/2].
fn exp_minus_one_near_zero<'l, L: Lanes32>(r: F<'l, L>) -> F<'l, L> {
    r + r * r * r.polynomial(&EXP)
}

/// x − n × ln 2.
fn reduce<'l, L: Lanes32>(x: F<'l, L>, n: F<'l, L>) -> F<'l, L> {
    LN_2.iter().fold(x, |rest, &piece| rest - n * piece)
}

/// p and s so that e^x = 4s × (1 + p), for x within 0..=89.5.
///
/// A quarter keeps the power of 2 in range up to where even e^x ÷ 2 overflows.
pub(super) fn exp_quarter<'l, L: Lanes32>(x: F<'l, L>) -> (F<'l, L>, F<'l, L>) {
    // The low bits hold the biased exponent of the quarter.
    const ROUND: f64 = 12_582_912.0 + 125.0;
    let rounded = x * PER_LN_2 + ROUND;
    let r = reduce(x, rounded - ROUND);
    (
        exp_minus_one_near_zero(r),
        (rounded.as_int() << 23).as_float(),
    )
}

/// WGSL `exp`.
pub fn exp<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    // Outside of the bounds the result is zero or infinite.
    let x = x.within(-104.0, 89.0);
    let split = Split::new(x * PER_LN_2);
    let r = reduce(x, split.n);
    split.scale(exp_minus_one_near_zero(r) + 1.0)
}

/// WGSL `exp2`.
pub fn exp2<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let x = x.within(-152.0, 129.0);
    let split = Split::new(x);
    let r = x - split.n;
    split.scale(exp2_near_zero(r))
}
