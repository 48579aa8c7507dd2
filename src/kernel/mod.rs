//! The kernel room: from WGSL text to pipelines. Text is tokenized and rewritten where a convention of the runtime asks
//! for a rewriting (`private_array`), parsed and specialized (`program`, `specialize`), changed by passes without a
//! device (`passes`), format strings kept on the host (`print`), reflected (`reflect`, `layout`), and made into
//! pipelines (`compile`, `limits`, `plan`, `pipeline`), each step cached (`cache`).
//!
//! Kernels without conventions: a text that uses none is parsed once, as wgpu would, and handed over as
//! `ShaderSource::Naga`. wgpu substitutes overrides when a pipeline is made; substituting them earlier, with the same
//! function of naga, loses nothing and lets passes see constants.
//!
//! Caches: modules by (source, entry point, values, options), shared by the devices of a context; kernels by the
//! program's identity, which is one look-up, and by module, so that another `Program` with the same text finds the
//! same kernel.
//!
//! Includes are left out: the crate that composes WGSL modules rewrites the text before it is parsed, and both the
//! conventions and the places of diagnostics work on the text that the user wrote.

mod atomics64;
pub(crate) mod bindings;
pub(crate) mod cache;
pub(crate) mod calls;
pub(crate) mod compile;
mod constants;
mod declarations;
mod declared;
mod deep_stack;
mod diagnostic;
mod edit;
pub(crate) mod error;
mod evaluate;
mod files;
mod fold;
pub(crate) mod globals;
pub(crate) mod heap_setup;
pub(crate) mod host_layout;
#[cfg(shading_languages)]
mod languages;
pub(crate) mod layout;
mod limits;
pub(crate) mod passes;
pub(crate) mod pipeline;
pub(crate) mod plan;
mod precompiled;
mod print;
mod private_array;
mod private_memory;
mod program;
pub(crate) mod reflect;
pub(crate) mod report;
pub(crate) mod server;
mod specialize;
mod text_limits;
mod token;
mod usm;
mod values;
mod walk;
mod work;

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod mutation_tests;

pub use crate::device::spill_policy::SpillPolicy;
pub use cache::{CacheCounts, CacheStatistics};
pub use constants::{ConstantInfo, ConstantType, ConstantValue, Constants, OverrideKey};
pub use diagnostic::{Diagnostic, DiagnosticLabel};
pub use error::{KernelError, ProgramMistake};
pub use globals::{GlobalAccess, GlobalConflict, GlobalPlace, GlobalScope, GlobalUse, InitMode};
pub use host_layout::{
    HostShareable, LayoutDifference, LayoutFault, LayoutMismatch, RustField, RustLayout,
};
pub use layout::{MemberLayout, Shape, TypeLayout};
pub use passes::pointers::TranslationMode;
pub use pipeline::{Kernel, KernelOptions};
pub use precompiled::Precompiled;
pub use private_array::PrivateArrayInfo;
pub use program::{Program, ProgramBuilder};
pub use reflect::{ArgumentInfo, ArgumentKind, Interface};
pub use text_limits::TextLimits;
