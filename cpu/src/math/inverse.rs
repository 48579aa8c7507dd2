//! Inverse trigonometric functions.
//!
//! # How it works
//!
//! - `asin`, `acos`: a polynomial up to a middle magnitude; beyond, the identity
//!   asin x = π/2 − 2 asin √((1 − x) ÷ 2) leads back to it.
//! - `atan`, `atan2`: the ratio of the smaller to the larger magnitude, a polynomial on [0, 1], and
//!   the reflections that undo the exchange and the signs.
//!
//! Arguments outside of [−1, 1] give NaN for `asin` and `acos`. `atan2` follows IEEE 754 for zeros
//! and infinities of either sign.
//!
//! | function | operations | of which wide | bound of the error, ULP |
//! | --- | --- | --- | --- |
//! | `asin` | 27 | 0 | 1.7 |
//! | `acos` | 30 | 0 | 1.6 |
//! | `atan` | 29 | 0 | 2.1 |
//! | `atan2` | 37 | 0 | 2.3 |

use super::lanes::Lanes32;
use super::value::F;

/// asin x = x + x³ × P(x²) on [−0.6, 0.6], relative error 2^-27.4.
const ASIN: [f64; 6] = [
    0.16666573286056519,
    0.07504824548959732,
    0.043821316212415695,
    0.0366881899535656,
    -0.0011198092252016068,
    0.05602248013019562,
];

/// Where the identity takes over.
const ASIN_MIDDLE: f64 = 0.60009765625;

/// atan t = t + t³ × P(t²) on [−1, 1], relative error 2^-28.5.
const ATAN: [f64; 9] = [
    -0.33333298563957214,
    0.1999852955341339,
    -0.14264015853405,
    0.10950881987810135,
    -0.08399321883916855,
    0.05788199231028557,
    -0.031098078936338425,
    0.010869626887142658,
    -0.0017831310397014022,
];

/// π/2 as the nearest float and the rest.
const HALF_PI: [f64; 2] = [1.5707963705062866, -4.371138828673793e-08];

/// asin of `x`'s magnitude or of the half-angle's sine, and where it is the latter.
fn asin_part<'l, L: Lanes32>(magnitude: F<'l, L>) -> (F<'l, L>, super::value::M<'l, L>) {
    let beyond = magnitude.gt(magnitude.constant(ASIN_MIDDLE));
    let square = beyond.select(
        (magnitude.constant(1.0) - magnitude) * 0.5,
        magnitude * magnitude,
    );
    let sine = beyond.select(square.sqrt(), magnitude);
    (sine + sine * (square * square.polynomial(&ASIN)), beyond)
}

/// WGSL `asin`; NaN outside of [−1, 1].
pub fn asin<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let sign = x.sign_bit();
    let magnitude = x.flip_sign_by(sign);
    let (part, beyond) = asin_part(magnitude);
    let reflected = x.constant(HALF_PI[0]) - (part * 2.0 - HALF_PI[1]);
    beyond.select(reflected, part).flip_sign_by(sign)
}

/// WGSL `acos`; NaN outside of [−1, 1].
pub fn acos<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let sign = x.sign_bit();
    let (part, beyond) = asin_part(x.flip_sign_by(sign));
    let part = part.flip_sign_by(sign);
    let zero = x.constant(0.0);
    let middle = x.constant(HALF_PI[0]) - (part - HALF_PI[1]);
    let end = part * 2.0 + x.lt(zero).float_or_zero(2.0 * HALF_PI[0]);
    beyond.select(end, middle)
}

/// atan of a ratio in [0, 1].
fn atan_part<'l, L: Lanes32>(t: F<'l, L>) -> F<'l, L> {
    let square = t * t;
    t + t * (square * square.polynomial(&ATAN))
}

/// WGSL `atan`.
pub fn atan<'l, L: Lanes32>(x: F<'l, L>) -> F<'l, L> {
    let sign = x.sign_bit();
    let magnitude = x.flip_sign_by(sign);
    let one = x.constant(1.0);
    let part = atan_part(one.min(magnitude) / one.max(magnitude));
    let reflected = x.constant(HALF_PI[0]) - part;
    magnitude.gt(one).select(reflected, part).flip_sign_by(sign)
}

/// WGSL `atan2`: the angle of the point (x, y).
pub fn atan2<'l, L: Lanes32>(y: F<'l, L>, x: F<'l, L>) -> F<'l, L> {
    let (sign_x, sign_y) = (x.sign_bit(), y.sign_bit());
    let (x, y) = (x.flip_sign_by(sign_x), y.flip_sign_by(sign_y));
    let steep = x.lt(y);
    let small = steep.select(x, y);
    // The least positive number keeps 0 ÷ 0 from being NaN and changes no other ratio.
    let least = x.constant(f64::from(f32::from_bits(1)));
    let large = least.max(steep.select(y, x));
    // Equal infinities have the ratio 1 too.
    let ratio = small.equals(large).select(x.constant(1.0), small / large);
    let part = atan_part(ratio);
    let upward = steep.select(x.constant(HALF_PI[0]) - part, part);
    let left = sign_x.slt(sign_x.constant(0));
    left.select(x.constant(2.0 * HALF_PI[0]) - upward, upward)
        .flip_sign_by(sign_y)
}
