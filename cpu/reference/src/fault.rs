//! What ends a run without a result.

use crate::report::Site;

/// Why a dispatch could not be interpreted to its end.
///
/// A fault is not a [finding](crate::report::Finding): findings are what a run noticed about a kernel
/// and went on from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No entry point of the module has the name, or it is none of compute.
    #[error("the module has no compute entry point `{0}`")]
    NoEntryPoint(String),
    /// A pipeline constant names no override.
    #[error("the module has no override `{0}`")]
    NoOverride(String),
    /// An override has neither a default nor a value.
    #[error("the override `{0}` has no default and was given no value")]
    OverrideWithoutValue(String),
    /// A value given to an override is not in the range of its type.
    #[error("the override `{name}` cannot be {value}: its type does not hold that value")]
    OverrideOutOfRange { name: String, value: f64 },
    /// A resource that the entry point uses was not bound.
    #[error("nothing is bound to group {}, binding {}", .0.group, .0.binding)]
    Unbound(naga::ResourceBinding),
    /// Something else is bound than the kernel declares.
    #[error("what is bound to group {}, binding {} is no {expected}", .binding.group, .binding.binding)]
    WrongResource {
        binding: naga::ResourceBinding,
        expected: &'static str,
    },
    /// A bound range is smaller than the fixed part of its variable, or lies outside of its buffer.
    #[error("{bound} bytes are bound to group {}, binding {}, whose variable needs {needed}", .binding.group, .binding.binding)]
    TooSmall {
        binding: naga::ResourceBinding,
        bound: u64,
        needed: u64,
    },
    /// Fewer bytes of immediate data than the variable has.
    #[error("{given} bytes of immediate data were given, the kernel's variable needs {needed}")]
    ImmediatesTooSmall { given: u64, needed: u64 },
    /// An access that nothing defines: out of range, and no policy in force.
    #[error("index {index} of a sequence of {length}, and no bounds check is in force")]
    OutOfRange { index: i64, length: u64, site: Site },
    /// Invocations of a work-group wait at different places, or some have ended.
    #[error("invocation {waiting} waits at a barrier that invocation {elsewhere} does not reach")]
    BarrierInDivergentFlow {
        waiting: u32,
        elsewhere: u32,
        site: Site,
        other: Option<Site>,
    },
    /// The kernel took more steps than the options allow.
    #[error("the kernel took more than {limit} steps")]
    StepLimit { limit: u64 },
    /// A feature of the IR that no compute WGSL reaches.
    #[error("not interpreted: {0}")]
    Unsupported(&'static str),
    /// The module contradicts itself. A module that naga's validator accepted does not.
    #[error("the module is not valid: {0}")]
    Malformed(&'static str),
}
