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
mod span;

#[cfg(feature = "trace")]
pub use chrome::{Trace, TraceLayer};
#[cfg(feature = "trace")]
pub use error::TraceError;

pub(crate) use span::span;

#[cfg(not(feature = "tracing"))]
pub(crate) use span::NoSpan;
