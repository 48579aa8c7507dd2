//! The obstacles to compiling a kernel.

use thiserror::Error;

/// Why a kernel could not be compiled.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub(crate) enum CompileError {
    /// The language has the feature, this adapter does not.
    #[error("{what} cannot be compiled by this adapter")]
    Unsupported { what: String },
    /// A limit of this compiler.
    #[error("{what} needs {needed}, more than the {limit} that this adapter allows; {remedy}")]
    TooLarge {
        what: String,
        needed: u64,
        limit: u64,
        remedy: &'static str,
    },
    /// The pipeline names an entry point missing from the module.
    #[error("the module has no compute entry point named {name}")]
    NoEntryPoint { name: String },
    /// Values of pipeline-overridable constants do not fit the module.
    #[error("{0}")]
    Constants(String),
    /// A defect of this compiler.
    #[error("internal error of the compiler: {0}")]
    Internal(String),
}

pub(crate) type Result<T> = std::result::Result<T, CompileError>;

/// An error for features of the language missing from this adapter.
pub(crate) fn unsupported(what: impl Into<String>) -> CompileError {
    CompileError::Unsupported { what: what.into() }
}

/// An error for modules that validation should have refused.
pub(crate) fn internal(what: impl Into<String>) -> CompileError {
    CompileError::Internal(what.into())
}
