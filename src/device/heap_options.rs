//! Settings of contexts and devices for the shared heap, which is made in a higher module.

use std::time::Duration;

/// The behaviour of a launch, or a transfer on a device, while another thread has the shared heap
/// ([`HostAccess`](crate::HostAccess)), and so prevents the recording. Reads and writes of the heap, and of buffers in
/// the heap, hold the heap for their duration.
///
/// A command of the *same* thread is refused at once in any case
/// ([`HeapError::HostAccess`](crate::HeapError::HostAccess)): waiting would be for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HostAccessPolicy {
    /// The calling thread waits until the access has ended. The holder must not wait for this thread meanwhile.
    #[default]
    Wait,
    /// As [`HostAccessPolicy::Wait`], and [`HeapError::Deadline`](crate::HeapError::Deadline) after so long.
    WaitAtMost(Duration),
    /// [`HeapError::HostAccess`](crate::HeapError::HostAccess) at once.
    Refuse,
}

/// Why no heap can have a [`HeapSize`](crate::HeapSize).
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapSizeError {
    /// The fraction is no part of a working set.
    #[error("a shared heap of {fraction} times the working set: give a number between 0 and 1")]
    Fraction {
        /// The given fraction.
        fraction: f64,
    },
    /// The size is beyond the low words of pointers.
    #[error("a shared heap of {bytes} bytes: it has at most {limit}; use device buffers besides")]
    Bytes {
        /// Bytes that were given.
        bytes: u64,
        /// The most that a heap has, in bytes.
        limit: u64,
    },
}
