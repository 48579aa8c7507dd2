//! Built-in functions of one line, with the order of operations given by WGSL's definitions.
//!
//! Errors follow from the definitions, but for:
//!
//! | function | operations | of which wide | bound of the error, ULP |
//! | --- | --- | --- | --- |
//! | `inverse_sqrt` | 2 | 0 | 1.9 |

use super::lanes::Lanes;
use super::value::F;

/// WGSL `inverseSqrt`: 1 ÷ √x. Two exact instructions rather than an estimate, different between machines. 2 operations.
pub fn inverse_sqrt<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x.constant(1.0) / x.sqrt()
}

/// WGSL `fma`: x × y + z, rounded twice.
pub fn fma<'l, L: Lanes>(x: F<'l, L>, y: F<'l, L>, z: F<'l, L>) -> F<'l, L> {
    x * y + z
}

/// WGSL `sign`: −1, 0 or 1; NaN gives 0.
pub fn sign<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    let zero = x.constant(0.0);
    zero.lt(x).float_or_zero(1.0) - x.lt(zero).float_or_zero(1.0)
}

/// WGSL `clamp`: min(max(x, low), high).
pub fn clamp<'l, L: Lanes>(x: F<'l, L>, low: F<'l, L>, high: F<'l, L>) -> F<'l, L> {
    x.max(low).min(high)
}

/// WGSL `saturate`: within [0, 1]; NaN gives 0.
pub fn saturate<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x.max(x.constant(0.0)).min(x.constant(1.0))
}

/// WGSL `mix`: x × (1 − a) + y × a.
pub fn mix<'l, L: Lanes>(x: F<'l, L>, y: F<'l, L>, a: F<'l, L>) -> F<'l, L> {
    x * (a.constant(1.0) - a) + y * a
}

/// WGSL `step`: 1 where edge ≤ x, else 0.
pub fn step<'l, L: Lanes>(edge: F<'l, L>, x: F<'l, L>) -> F<'l, L> {
    edge.le(x).float_or_zero(1.0)
}

/// WGSL `smoothstep`: t × t × (3 − 2t) with t = saturate((x − low) ÷ (high − low)).
pub fn smoothstep<'l, L: Lanes>(low: F<'l, L>, high: F<'l, L>, x: F<'l, L>) -> F<'l, L> {
    let t = saturate((x - low) / (high - low));
    t * t * (t.constant(3.0) - t * 2.0)
}

/// WGSL `degrees`: x × 180 ÷ π, one multiplication.
pub fn degrees<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x * nearest::<L>(180.0 / std::f64::consts::PI)
}

/// WGSL `radians`: x × π ÷ 180, one multiplication.
pub fn radians<'l, L: Lanes>(x: F<'l, L>) -> F<'l, L> {
    x * nearest::<L>(std::f64::consts::PI / 180.0)
}

/// The constant as held by lanes of this width.
fn nearest<L: Lanes>(value: f64) -> f64 {
    if L::BITS == 32 {
        f64::from(value as f32)
    } else {
        value
    }
}
