//! The work of a run, with times: a file of spans for a viewer of traces.
//!
//! The runtime opens spans of the crate `tracing` where a program may lose time (`src/span.rs`). `chrome.rs` writes the
//! spans to a file, with the times of the devices beside them (`device_times.rs`).

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
