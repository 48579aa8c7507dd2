//! An independent reference for WGSL compute: what adapters are judged by.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`interpret`] | runs compute entry points of naga IR, plainly, and says what they do wrong |
//! | [`operate`] | what operators and built-in functions compute |
//! | [`value`], [`memory`] | values, and how they lie in memory |
//! | [`conformance`] | what WGSL requires, as kernels for any adapter |
//! | `adapters` | kernels on wgpu adapters (feature `adapters`) |
//! | [`source`] | from text to modules |
//! | [`report`], [`fault`] | what a run found, and why one could not go on |

#![allow(
    clippy::type_complexity,
    clippy::excessive_precision,
    clippy::should_implement_trait,
    clippy::nonminimal_bool,
    clippy::needless_range_loop,
    clippy::match_overlapping_arm,
    clippy::wrong_self_convention,
    reason = "formulas and tables are written as the specification has them"
)]

#[cfg(feature = "adapters")]
pub mod adapters;
pub mod conformance;
pub mod differential;
pub mod fault;
pub mod generate;
pub mod interpret;
pub mod memory;
pub mod operate;
pub mod report;
pub mod shrink;
pub mod source;
pub mod value;
