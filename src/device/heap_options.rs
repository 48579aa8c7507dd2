//! Settings of contexts and devices for the shared heap, itself made in a higher module.

use std::fmt;
use std::time::Duration;

use crate::error_text::debug_by_text;

/// The behaviour of a launch, or a transfer on a device, while another thread has the shared heap
/// ([`HostAccess`](crate::heap::HostAccess)), and so prevents the recording. Reads and writes of the heap, and of buffers in
/// the heap, hold the heap for their duration.
///
/// A command of the *same* thread is refused at once in any case
/// ([`HeapError::HostAccess`](crate::heap::HeapError::HostAccess)): waiting would be for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HostAccessPolicy {
    /// The calling thread waits until the access has ended. The holder must not wait for this thread meanwhile.
    #[default]
    Wait,
    /// As [`HostAccessPolicy::Wait`], and [`HeapError::Deadline`](crate::heap::HeapError::Deadline) after so long.
    WaitAtMost(Duration),
    /// [`HeapError::HostAccess`](crate::heap::HeapError::HostAccess) at once.
    Refuse,
}

/// For people: the variant in words.
impl fmt::Display for HostAccessPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait => f.write_str("wait"),
            Self::WaitAtMost(most) => write!(f, "wait at most {most:?}"),
            Self::Refuse => f.write_str("refuse"),
        }
    }
}

/// Where a device keeps the context's shared heap for its kernels: the device's *preferred location*, in CUDA's words. Pointers
/// have the same addresses in either place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HeapPlacement {
    /// Decided by the runtime, without refusals for the sake of speed: [`HeapPlacement::InPlace`] where possible, and
    /// else a copy.
    ///
    /// A device with memory of its own and able to use the host's in place has both, and each launch takes either
    /// ([`SharedHeap::residence`](crate::heap::SharedHeap::residence)): the device begins in place, moves to the copy
    /// once launches have lost as much time to the bus as sending the heap takes, and goes back once accesses of the
    /// host in between have cost as much. Some launches need the host's memory, and are always in place: launches
    /// beside an [`AtomicView`](crate::heap::AtomicView) or a block of a [`HeapAllocator`](crate::heap::HeapAllocator),
    /// launches that call functions, and launches with live words. A device moves only when no command using the heap
    /// is under way. [`SharedHeap::advise`](crate::heap::SharedHeap::advise) and
    /// [`Device::heap_prefetch`](crate::Device::heap_prefetch) tell the device of coming accesses.
    #[default]
    Auto,
    /// The device uses the host's memory. Nothing is copied, and host and running kernels may use the same words
    /// ([`AtomicView`](crate::heap::AtomicView), [`HeapAllocator`](crate::heap::HeapAllocator)). On a device with memory of its own every
    /// access of a kernel crosses the bus.
    ///
    /// A device that can neither import the host's memory nor map memory of its own is not opened
    /// ([`DeviceError::HeapPlacement`](crate::device::DeviceError::HeapPlacement)). A device left with mapping memory,
    /// in a context whose heap lies elsewhere, refuses commands using the heap
    /// ([`HeapError::Placement`](crate::heap::HeapError::Placement)).
    InPlace,
    /// The device keeps a copy of the heap in memory of its own, and kernels run at the speed of the device's memory.
    /// Bytes written by the host go up with the next launch; bytes written by kernels come down when the host or
    /// another device looks. In between nothing is moved, nor searched.
    ///
    /// Changes by the host at any time cannot be followed so: launches using the heap are refused on the device while
    /// there are [`AtomicView`](crate::heap::AtomicView)s or blocks of a [`HeapAllocator`](crate::heap::HeapAllocator),
    /// and servers whose handlers follow pointers are refused. Missing device memory for the copy is
    /// [`HeapError::Mirror`](crate::heap::HeapError::Mirror).
    Device,
}

/// For people: the variant in words.
impl fmt::Display for HeapPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "decided by the runtime",
            Self::InPlace => "in the host's memory",
            Self::Device => "in a copy of the device",
        })
    }
}

/// Why no heap can have a [`HeapSize`](crate::heap::HeapSize).
#[derive(Clone, Copy, PartialEq, thiserror::Error)]
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
        /// Bytes given.
        bytes: u64,
        /// The most that a heap has, in bytes.
        limit: u64,
    },
    /// An adaptive heap would begin larger than it may become.
    #[error(
        "a shared heap that starts with {start} bytes and has at most {bound}: give it a smaller start or a larger bound"
    )]
    Start {
        /// Bytes to start with.
        start: u64,
        /// The most that this heap has, in bytes.
        bound: u64,
    },
}

debug_by_text!(HeapSizeError {
    Fraction,
    Bytes,
    Start
});
