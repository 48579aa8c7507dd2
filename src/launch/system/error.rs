//! Errors of launches with lent memory.

use std::sync::Arc;

use crate::device::{ExecutionError, WaitError};
use crate::error_text::debug_by_text;
use crate::launch::LaunchError;
use crate::memory::{MemoryError, ReadError};

/// Why a launch with lent memory failed. Lent memory has not changed then, unless the variant says so, or the memory is
/// used in place.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// The launch was refused.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The launch failed: with [`ExecutionError::Pointer`] where a kernel followed a pointer to memory not lent or not
    /// there, or wrote memory lent for reading.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A buffer for pages, or a transfer of them, was refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A single work-group touches more pages than the pool has frames; or the launch does, and can run neither in
    /// parts nor with pages that make room for others (`docs/system-allocations.md`).
    #[error(
        "kernel `{kernel}` touches {needed} pages of 4 KiB or more at once, and {pages} fit: give it a larger pool \
         (SystemMemory::set_pool_bytes; {device} binds at most {limit} bytes), smaller work-groups, or less work in a launch"
    )]
    PoolFull {
        /// The entry point.
        kernel: String,
        /// Pages that are needed at once, at least.
        needed: u64,
        /// Pages that fit.
        pages: u64,
        /// The most bytes of a pool on the device.
        limit: u64,
        /// The device's name.
        device: String,
    },
    /// The launch has to be repeated when its pages are there, and cannot.
    #[error(
        "kernel `{kernel}` touches pages that are fetched when it misses them, after which the launch is repeated; but \
         {what}, which cannot be undone: lend no more than the pool holds (SystemMemory::set_pool_bytes), so that all is \
         there from the beginning, or let pages come while the kernel runs (SystemTier::Live)"
    )]
    NotRepeatable {
        /// The entry point.
        kernel: String,
        /// What the kernel does.
        what: &'static str,
    },
    /// Pages cannot come while the kernel runs.
    #[error(
        "pages of lent memory cannot come to {device} while a kernel runs: {why}; ask for no tier \
         (SystemMemory::set_tier), or for SystemTier::Sliced"
    )]
    NoLiveTier {
        /// The device's name.
        device: String,
        /// The reason.
        why: String,
    },
    /// An invocation has missed a page that did not come in time.
    #[error(
        "kernel `{kernel}` missed a page that did not come within the {turns} turns of a loop that it may wait: lend no more \
         than the pool holds (SystemMemory::set_pool_bytes), touch fewer pages in a launch, or let it wait longer \
         (SystemMemory::set_wait_turns) where the device does not ration turns"
    )]
    Unanswered {
        /// The entry point.
        kernel: String,
        /// Turns that an invocation may wait, or, on devices that ration turns, a group of invocations together.
        turns: u32,
    },
    /// Memory lent by its address cannot be written any more. Other words of the launch may have been written.
    #[error(
        "memory at {address:#x}, which was lent for writing by its address, cannot be written: keep it until the launch \
         has returned"
    )]
    WriteBack {
        /// The address.
        address: u64,
    },
}

debug_by_text!(SystemError {
    Launch,
    Wait,
    Memory,
    PoolFull,
    NotRepeatable,
    NoLiveTier,
    Unanswered,
    WriteBack,
});

impl From<ReadError> for SystemError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Memory(error) => Self::Memory(error),
            ReadError::Execution(error) => Self::Wait(WaitError::Failed(error)),
            ReadError::Deadline => Self::Wait(WaitError::Deadline),
            ReadError::Taken => Self::Memory(MemoryError::Refused {
                what: "read",
                message: error.to_string(),
            }),
        }
    }
}

impl From<Arc<ExecutionError>> for SystemError {
    fn from(error: Arc<ExecutionError>) -> Self {
        Self::Wait(WaitError::Failed(error))
    }
}
