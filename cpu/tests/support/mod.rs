//! What several tests of this crate use.

pub mod formats;
pub mod kernel;
pub mod random;
