//! Why there is no trace.

use std::path::PathBuf;

use crate::error_text::debug_by_text;

/// Why a trace cannot be recorded, or was not written whole.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be made.
    #[error("a trace cannot be written to `{}`: {message}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's words.
        message: String,
    },
    /// Another trace is being recorded: devices have one set of times.
    #[error("another trace of this process is being recorded: finish it first")]
    Recording,
    /// The program has a subscriber for spans already.
    #[error(
        "the program has a subscriber of its own for `tracing`: add the layer of Trace::layer to it"
    )]
    Subscribed,
    /// The file is not whole.
    #[error("the trace in `{}` is not whole: {message}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's first words.
        message: String,
    },
}

debug_by_text!(TraceError {
    Create,
    Recording,
    Subscribed,
    Write,
});
