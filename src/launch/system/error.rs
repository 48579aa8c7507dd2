//! Errors of launches with lent memory.

use std::sync::Arc;

use crate::device::{ExecutionError, WaitError};
use crate::error_text::debug_by_text;
use crate::launch::LaunchError;
use crate::memory::{MemoryError, ReadError};

/// Why a launch with lent memory failed. What is lent has not changed then, unless the variant says so.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// The launch was refused.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The launch failed: with [`ExecutionError::Pointer`] where a kernel followed a pointer to memory that is not lent, not
    /// there, or lent for reading and written.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A buffer for pages, or a transfer of them, was refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The launch touches more pages than the pool has frames.
    #[error(
        "kernel `{kernel}` touches more than the {pages} pages of 4 KiB that fit at once: give it a larger pool \
         (SystemMemory::set_pool_bytes; {device} binds at most {limit} bytes), or split the work over several launches"
    )]
    PoolFull {
        /// The entry point.
        kernel: String,
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
         there from the beginning"
    )]
    NotRepeatable {
        /// The entry point.
        kernel: String,
        /// What the kernel does.
        what: &'static str,
    },
    /// Memory that was lent by its address cannot be written any more. Other words of the launch's may have been written.
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
