//! What contexts and devices are told of the shared heap, which is made in a room above.

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
    /// It is no part of a working set.
    #[error("a shared heap of {fraction} times the working set: give a number between 0 and 1")]
    Fraction {
        /// What was given.
        fraction: f64,
    },
    /// It is more than the low words of pointers can address.
    #[error("a shared heap of {bytes} bytes: it has at most {limit}; use device buffers besides")]
    Bytes {
        /// Bytes that were given.
        bytes: u64,
        /// The most that a heap has, in bytes.
        limit: u64,
    },
}
