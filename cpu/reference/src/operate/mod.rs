//! What WGSL's operators and built-in functions compute, as plain functions on values.
//!
//! Integers are computed exactly in `i128` and wrapped; floating-point results are computed so that
//! one rounding to nearest even remains. Where WGSL leaves a choice (fusing, reassociation, flushing
//! of subnormals, what infinities and NaN give), the choice here is IEEE 754's.

mod bits;
mod convert;
mod geometry;
mod math;
mod operators;
mod packing;
mod transcendental;

pub use convert::{convert, integer_range};
pub use math::math;
pub use operators::{binary, relational, select, unary};

#[cfg(test)]
mod tests;
