//! Settings of contexts and devices for the shared heap, which is made in a higher module.

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

/// Where a device keeps the context's shared heap for its kernels: the device's *preferred location*, in CUDA's words. Pointers
/// have the same addresses in either place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HeapPlacement {
    /// Decided by the runtime, which refuses nothing for the sake of speed: [`HeapPlacement::InPlace`] where that can be had,
    /// and else a copy.
    ///
    /// A device with memory of its own that can use the host's in place has both, and each launch takes one of them
    /// ([`SharedHeap::residence`](crate::heap::SharedHeap::residence)): it begins in place, moves to the copy once launches have
    /// lost as much time to the bus as sending the heap takes, and goes back once accesses of the host in between have cost as
    /// much. Launches that need the host's memory have it: those beside an [`AtomicView`](crate::heap::AtomicView) or a block of
    /// a [`HeapAllocator`](crate::heap::HeapAllocator), those that call functions, and those with live words. A device moves only
    /// when no command that uses the heap is under way. [`SharedHeap::advise`](crate::heap::SharedHeap::advise) and
    /// [`Device::heap_prefetch`](crate::Device::heap_prefetch) tell it what is to come.
    #[default]
    Auto,
    /// The device uses the host's memory. Nothing is copied, and host and running kernels may use the same words
    /// ([`AtomicView`](crate::heap::AtomicView), [`HeapAllocator`](crate::heap::HeapAllocator)). On a device with memory of its own every
    /// access of a kernel crosses the bus.
    ///
    /// A device that can neither import the host's memory nor map memory of its own is not opened
    /// ([`DeviceError::HeapPlacement`](crate::device::DeviceError::HeapPlacement)). One that would have to map memory, in a context whose
    /// heap lies elsewhere, refuses commands that use the heap ([`HeapError::Placement`](crate::heap::HeapError::Placement)).
    InPlace,
    /// The device keeps a copy of the heap in memory of its own, and kernels run at the speed of that memory. What the host has
    /// written goes up with the next launch; what kernels have written comes down when the host or another device looks. In
    /// between nothing is moved, nor searched.
    ///
    /// Memory that the host changes at any time cannot be followed so: launches that use the heap are refused on the device
    /// while there are [`AtomicView`](crate::heap::AtomicView)s or blocks of a [`HeapAllocator`](crate::heap::HeapAllocator), and servers
    /// whose handlers follow pointers are refused. Device memory for the copy that cannot be had is
    /// [`HeapError::Mirror`](crate::heap::HeapError::Mirror).
    Device,
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
        /// Bytes that were given.
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
