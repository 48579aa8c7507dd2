//! How large a heap may grow, and the heap of a context.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use super::{HeapError, SharedHeap};
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared};

/// How large a context's heap may grow. Where the system does not tell how much memory it has (Windows),
/// 8 GiB are assumed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum HeapSize {
    /// One eighth of the machine's memory, at most 4 GiB.
    Default,
    /// This part of the machine's memory, at most 4 GiB.
    Fraction(f64),
    /// This many bytes, at most 4 GiB; rounded up to whole pages.
    Bytes(u64),
    /// Up to three quarters of the machine's memory, at most 4 GiB; memory at the end of the heap is given
    /// back once three quarters of it have been free for `contract_after`.
    Adaptive {
        /// How long the heap must have been mostly free, each time that something is freed.
        contract_after: Duration,
    },
}

/// The heap of a context, made when it is first asked for.
#[derive(Default)]
pub(crate) struct ContextHeap {
    size: Mutex<Option<HeapSize>>,
    heap: OnceLock<Result<SharedHeap, HeapError>>,
}

impl ContextHeap {
    /// Decides how large the heap may grow; without effect once it exists.
    pub(crate) fn set_size(&self, size: HeapSize) {
        *lock(&self.size) = Some(size);
    }

    pub(crate) fn heap(&self) -> Result<SharedHeap, HeapError> {
        let size = lock(&self.size).unwrap_or(HeapSize::Default);
        self.heap.get_or_init(|| SharedHeap::new(size)).clone()
    }
}

impl Device {
    /// The heap that the host shares with the devices of this device's context.
    ///
    /// # Errors
    /// [`HeapError::NoWindow`] where the system has no address space for it.
    pub fn heap(&self) -> Result<SharedHeap, HeapError> {
        heap_of(&self.shared)
    }
}

/// The heap of the device's context.
pub(crate) fn heap_of(device: &DeviceShared) -> Result<SharedHeap, HeapError> {
    device.heap_room.get::<ContextHeap>().heap()
}

impl HeapSize {
    pub(super) fn bytes(self) -> u64 {
        let memory = system_memory();
        match self {
            Self::Default => memory / 8,
            Self::Fraction(part) => (memory as f64 * part.clamp(0.0, 1.0)) as u64,
            Self::Bytes(bytes) => bytes,
            Self::Adaptive { .. } => memory / 4 * 3,
        }
    }
}

/// Bytes of the machine's memory; 8 GiB where the system cannot be asked.
fn system_memory() -> u64 {
    const UNKNOWN: u64 = 8 << 30;
    #[cfg(unix)]
    {
        // SAFETY: `sysconf` only reads its argument.
        #[allow(unsafe_code)]
        let (pages, page) = unsafe {
            (
                libc::sysconf(libc::_SC_PHYS_PAGES),
                libc::sysconf(libc::_SC_PAGESIZE),
            )
        };
        if let (Ok(pages), Ok(page)) = (u64::try_from(pages), u64::try_from(page)) {
            return pages.saturating_mul(page);
        }
    }
    UNKNOWN
}
