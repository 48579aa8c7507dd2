//! What a run did, and when: spans of the crate `tracing`, and a file of them for a viewer of traces.
//!
//! The runtime opens spans where a program may lose time: they are there with the feature `tracing`, and
//! nothing at all without. Spans are entered where no lock is held that a subscriber's own use of the runtime could want.
//! `chrome.rs` writes them to a file, with the times of the devices beside them (`device_times.rs`).

#[cfg(feature = "trace")]
mod chrome;
#[cfg(feature = "trace")]
pub(crate) mod device_times;
#[cfg(feature = "trace")]
mod error;
#[cfg(feature = "trace")]
mod json;

#[cfg(feature = "trace")]
pub use chrome::{Trace, TraceLayer};
#[cfg(feature = "trace")]
pub use error::TraceError;

/// Opens a span until the value is dropped: a name, and fields as `tracing` takes them.
#[cfg(feature = "tracing")]
macro_rules! span {
    ($name:literal $(, $($fields:tt)+)?) => {
        ::tracing::info_span!(target: "tombolo", $name $(, $($fields)+)?).entered()
    };
}

/// Without the feature there are no spans, and their fields are not looked at.
#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($name:literal $(, $($fields:tt)+)?) => {
        $crate::trace::NoSpan
    };
}

pub(crate) use span;

/// No span.
#[cfg(not(feature = "tracing"))]
pub(crate) struct NoSpan;
