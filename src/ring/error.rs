//! Errors of rings.

use std::time::Duration;

use super::protocol::Impossible;
use crate::device::LiveError;
use crate::error_text::debug_by_text;
use crate::memory::{MemoryError, ReadError};

/// An error of a ring.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// There is no such ring.
    #[error("a ring of {slots} slots: choose from 1 to {limit}")]
    Slots {
        /// The slots asked for.
        slots: usize,
        /// The most slots of a ring.
        limit: usize,
    },
    /// The ring is closed, by the kernel or by this end's own `close`: nothing more goes in, or comes out.
    #[error(
        "the ring is closed, by the kernel or by `close`; {moved} items of this call went in or came before that"
    )]
    Closed {
        /// The transferred items of this call.
        moved: usize,
    },
    /// The time was over before all items went through.
    #[error(
        "{moved} items went through the ring in {waited:?}, and then the time was over: is the kernel launched, or its \
         server called?"
    )]
    Deadline {
        /// The transferred items of this call: the first ones.
        moved: usize,
        /// How long the call waited.
        waited: Duration,
    },
    /// The ring's functions never write the count found in the ring: a kernel has released or committed more items than
    /// there were, or has written over the ring.
    #[error(
        "the kernel's count in the ring is impossible: release no more items than are ready, commit no more than there is \
         room for, and have one invocation at a time do so"
    )]
    Garbled,
    /// There is no live memory for the ring.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// There is no memory for the ring, or the memory could not be written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The ring could not be read, or a launch with the ring failed: then make another ring. Where rings travel between
    /// launches only.
    #[error(transparent)]
    Read(#[from] ReadError),
}

debug_by_text!(RingError {
    Slots,
    Closed,
    Deadline,
    Garbled,
    Live,
    Memory,
    Read,
});

impl From<Impossible> for RingError {
    fn from(_: Impossible) -> Self {
        Self::Garbled
    }
}
