//! A table of what WGSL requires of compute kernels, as kernels that any adapter can run.
//!
//! A [`Row`] is one operator or built-in function for one type and width: the kernel's text, operands
//! with all edges of the type, and for each result what WGSL allows ([`Expected`]). Rows of operations
//! that IEEE 754 defines also say what an implementation gives that follows it to the letter
//! ([`Strictness::Ieee`]), which this project's own adapter promises and drivers need not.
//!
//! Where bounds come from: [`accuracy`] is WGSL's accuracy table in interval arithmetic
//! ([`interval`]); integers and conversions are exact, by [`crate::operate`].

pub mod accuracy;
pub mod deviations;
pub mod expected;
pub mod format;
pub mod inputs;
pub mod interval;
pub mod row;
pub mod rows;

pub use expected::Expected;
pub use row::{Mismatch, Needs, Row, Strictness};
