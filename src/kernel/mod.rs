//! The compile pipeline.

pub(crate) mod cache;
pub(crate) mod compile;
mod constants;
mod declarations;
mod declared;
mod diagnostic;
mod edit;
pub(crate) mod error;
mod evaluate;
pub(crate) mod layout;
mod passes;
pub(crate) mod pipeline;
mod precompiled;
mod private_array;
mod private_memory;
mod program;
pub(crate) mod reflect;
mod specialize;
mod token;
mod walk;

#[cfg(test)]
mod fault_tests;

pub use cache::{CacheCounts, CacheStatistics};
pub use constants::{ConstantInfo, ConstantType, ConstantValue, Constants, OverrideKey};
pub use diagnostic::{Diagnostic, DiagnosticLabel};
pub use error::KernelError;
pub use layout::{MemberLayout, Shape, TypeLayout};
pub use pipeline::Kernel;
pub use precompiled::Precompiled;
pub use private_array::PrivateArrayInfo;
pub use program::Program;
pub use reflect::{ArgumentInfo, ArgumentKind, Interface};
