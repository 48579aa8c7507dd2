//! Errors in the use of a device global.

use std::sync::Arc;

use crate::device::ExecutionError;
use crate::error_text::debug_by_text;
use crate::kernel::{GlobalAccess, GlobalConflict};
use crate::memory::{BufferError, HeapError, MemoryError, ReadError};

/// Why a command on a device global was refused, or its values could not be read.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GlobalError {
    /// The name means something else elsewhere.
    #[error(transparent)]
    Conflict(#[from] Box<GlobalConflict>),
    /// A copy reaches beyond the variable: the seed's `invalid`. Nothing was submitted.
    #[error(
        "invalid: {what} of bytes {start}..{end} of the device global `{name}`, which has {bytes} bytes"
    )]
    Invalid {
        /// The variable's name.
        name: String,
        /// The command.
        what: &'static str,
        /// First byte that was meant.
        start: u64,
        /// The position behind the last byte of the range.
        end: u64,
        /// Bytes of the variable.
        bytes: u64,
    },
    /// A variable of image scope has an instance in several modules, so the name alone says nothing: the seed's
    /// `invalid`.
    #[error(
        "invalid: {what} of the device global `{name}`, which has image scope and an instance in each of {}: name it \
         in one program only, or keep them apart by prefixes (ProgramBuilder::global_prefix)", modules.join(", ")
    )]
    SeveralModules {
        /// The variable's name.
        name: String,
        /// The command.
        what: &'static str,
        /// The modules' names.
        modules: Vec<String>,
    },
    /// The variable's declaration in Rust does not let the host do this.
    #[error("{what} of the device global `{name}`, which is declared with host access {access}")]
    HostAccess {
        /// The variable's name.
        name: String,
        /// The command.
        what: &'static str,
        /// The declared access.
        access: GlobalAccess,
    },
    /// No declaration of a variable of that name is known yet.
    #[error(
        "there is no device global `{name}` yet; there are: {}",
        listed(available)
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that there are.
        available: Vec<String>,
    },
    /// A value has another size than the variable.
    #[error(
        "{what} of the device global `{name}` ({bytes} bytes) as `{rust}`, which has {rust_bytes} bytes"
    )]
    Size {
        /// The variable's name.
        name: String,
        /// The command.
        what: &'static str,
        /// Bytes of the variable.
        bytes: u64,
        /// The Rust type.
        rust: &'static str,
        /// Bytes of the Rust type.
        rust_bytes: u64,
    },
    /// A variable of image scope has no address that other modules could follow.
    #[error(
        "the address of the device global `{name}`, which has image scope: declare it without, to pass its address on"
    )]
    NoAddress {
        /// The variable's name.
        name: String,
    },
    /// A copy on the device of a variable of image scope not yet named by any program: its value is kept on the host.
    #[error(
        "{what} of the device global `{name}`, which has image scope and is named by no kernel yet, so that it is not \
         on the device: copy through the host, or make the kernel first"
    )]
    NotOnDevice {
        /// The variable's name.
        name: String,
        /// The command.
        what: &'static str,
    },
    /// The device has no room for the variable, or cannot move bytes so.
    #[error("device global `{name}`: {source}")]
    Heap {
        /// The variable's name.
        name: String,
        /// The memory's error.
        source: HeapError,
    },
    /// The buffer on the other side of a copy, or wgpu, refused.
    #[error("device global `{name}`: {source}")]
    Buffer {
        /// The variable's name.
        name: String,
        /// The buffer's error.
        source: MemoryError,
    },
    /// The buffer of the context on the other side of a copy refused.
    #[error("device global `{name}`: {source}")]
    ContextBuffer {
        /// The variable's name.
        name: String,
        /// The buffer's error.
        source: BufferError,
    },
    /// The values cannot be read: the writing launch failed, or the device was lost.
    #[error("device global `{name}`: {source}")]
    Read {
        /// The variable's name.
        name: String,
        /// The fault of the values.
        source: ReadError,
    },
    /// An event of another device that the command was to wait for has failed.
    #[error("device global `{name}`: a command that {what} was to wait for has failed: {source}")]
    Dependency {
        /// The variable's name.
        name: String,
        /// The command.
        what: &'static str,
        /// The failure.
        source: Arc<ExecutionError>,
    },
}

debug_by_text!(GlobalError {
    Conflict,
    Invalid,
    SeveralModules,
    HostAccess,
    Unknown,
    Size,
    NoAddress,
    NotOnDevice,
    Heap,
    Buffer,
    ContextBuffer,
    Read,
    Dependency,
});

impl GlobalError {
    /// True for `errc::invalid` of the seed's specification: a range beyond the variable, or a variable of image scope
    /// in several modules.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::SeveralModules { .. })
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
