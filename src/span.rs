//! Spans of what may take time, or nothing: they are there with the feature `tracing`, and nothing at all without. Spans are
//! entered where no lock is held that a subscriber's own use of the runtime could want.
//!
//! The package `tombolo-mpi` includes this file, for spans of its own: whether there are any is decided by the features of the
//! crate that includes it, which calls the module `span`.

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
        $crate::span::NoSpan
    };
}

pub(crate) use span;

/// No span.
#[cfg(not(feature = "tracing"))]
pub(crate) struct NoSpan;
