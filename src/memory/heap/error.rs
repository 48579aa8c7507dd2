//! Errors of a request to the shared heap.

use std::sync::Arc;

use crate::device::{ExecutionError, HeapSizeError, WindowError};
use crate::error_text::debug_by_text;
use crate::memory::MemoryError;

/// Why the shared heap refused.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The system cannot reserve address space for a heap.
    #[error("no address space for a shared heap: {0}; use device buffers instead")]
    NoWindow(String),
    /// No heap can have the size asked for.
    #[error(transparent)]
    Size(#[from] HeapSizeError),
    /// The allocation could never fit this heap, even if everything else were freed.
    #[error(
        "{bytes} bytes can never fit this heap, where one allocation has at most {limit} at this \
         alignment: {instead}"
    )]
    TooLarge {
        /// Bytes that were asked for.
        bytes: u64,
        /// The most bytes of an allocation.
        limit: u64,
        /// The remedy.
        instead: &'static str,
    },
    /// There is no room now: the heap has reached its bound, and no gap is large enough.
    #[error(
        "no room for {bytes} bytes now: {in_use} of {bound} are in use and the largest gap is {largest_free}; {instead}"
    )]
    OutOfMemory {
        /// Bytes that were asked for.
        bytes: u64,
        /// Bytes in use.
        in_use: u64,
        /// Bytes that the heap may grow to.
        bound: u64,
        /// Bytes of the largest gap.
        largest_free: u64,
        /// The remedy.
        instead: &'static str,
    },
    /// The system has no memory to put behind the heap, although its bound is not reached.
    #[error("the heap cannot grow: {0}")]
    System(#[from] WindowError),
    /// The device has as many segments of its own memory as its kernels can bind.
    #[error(
        "no room for {bytes} bytes now: {device} has {segments} segments of its own memory, and kernels bind \
         {bindings} storage buffers at most, one of which is the shared heap and one a status record (and 64 \
         segments in any case); the largest gap is {largest_free}; free something, or use the shared heap or a device buffer"
    )]
    OutOfSegments {
        /// Bytes that were asked for.
        bytes: u64,
        /// The device's name.
        device: String,
        /// Existing segments, the most possible.
        segments: usize,
        /// The adapter's limit of storage buffers in a kernel.
        bindings: u32,
        /// Bytes of the largest gap.
        largest_free: u64,
    },
    /// The size is zero or the alignment no power of two.
    #[error(
        "an allocation of {bytes} bytes aligned to {align}: sizes are at least 1 and alignments powers of two"
    )]
    Layout {
        /// Bytes that were asked for.
        bytes: u64,
        /// The alignment asked for.
        align: u64,
    },
    /// The pointer is null.
    #[error("{what} of the null pointer")]
    Null {
        /// The attempted operation.
        what: &'static str,
    },
    /// The pointer's upper bits are those of a device's own memory.
    #[error(
        "{what} of {address:#x}, which lies in a device's own memory: copy it to the host first"
    )]
    DeviceMemory {
        /// The attempted operation.
        what: &'static str,
        /// The pointer's bits.
        address: u64,
    },
    /// The bytes do not lie in one live allocation.
    #[error(
        "{what} of {bytes} bytes at {address:#x}, which is not within one live allocation of this heap"
    )]
    NotAllocated {
        /// The attempted operation.
        what: &'static str,
        /// The pointer's bits.
        address: u64,
        /// Bytes that were meant.
        bytes: u64,
    },
    /// The address does not suit the type.
    #[error("{what} at {address:#x}, which is not aligned to {align} bytes as `{element}` needs")]
    Misaligned {
        /// The attempted operation.
        what: &'static str,
        /// The pointer's bits.
        address: u64,
        /// The type's alignment.
        align: u64,
        /// The type.
        element: &'static str,
    },
    /// The pointer to be freed is not the start of its allocation.
    #[error("free of {address:#x}, which lies inside the allocation at {base:#x}: free its base")]
    Interior {
        /// The pointer's bits.
        address: u64,
        /// The start of the allocation.
        base: u64,
    },
    /// A [`HostAccess`](crate::heap::HostAccess) is alive, on this thread or in the way of a launch.
    #[error("{what} while the host has access to the heap: drop the HostAccess first")]
    HostAccess {
        /// The attempted operation.
        what: &'static str,
    },
    /// An [`AtomicView`](crate::heap::AtomicView) shows the allocation, which the host may then see in no
    /// other way.
    #[error(
        "{what} at {address:#x}, of which an AtomicView exists: use the view, or drop it first"
    )]
    AtomicView {
        /// The attempted operation.
        what: &'static str,
        /// The pointer's bits.
        address: u64,
    },
    /// The allocation belongs to a Rust value, such as a `Vec` with a
    /// [`HeapAllocator`](crate::heap::HeapAllocator).
    #[error(
        "{what} at {address:#x}, which a HeapAllocator has handed out: use the Rust value that owns it"
    )]
    Owned {
        /// The attempted operation.
        what: &'static str,
        /// The pointer's bits.
        address: u64,
    },
    /// Source and destination of a copy overlap.
    #[error(
        "a copy of {bytes} bytes from {from:#x} to {to:#x}, which overlap: copy through another \
         allocation"
    )]
    Overlap {
        /// First byte of the source.
        from: u64,
        /// First byte of the destination.
        to: u64,
        /// Bytes that were meant.
        bytes: u64,
    },
    /// The device buffer on the other side of a transfer, or wgpu, refused.
    #[error(transparent)]
    Buffer(#[from] MemoryError),
    /// The launches in flight, or another thread's access, did not end in time.
    #[error("the heap was still in use when the deadline passed")]
    Deadline,
    /// The device cannot import the heap.
    #[error("{device} cannot use the shared heap: {why}; give the kernel device buffers instead")]
    Unsupported {
        /// The device's name.
        device: String,
        /// Why not.
        why: String,
    },
    /// The device was opened with [`HeapPlacement::InPlace`](crate::heap::HeapPlacement::InPlace), and cannot use this heap in place.
    #[error(
        "{device} cannot use the shared heap in place: {why}; open it with HeapPlacement::Auto or HeapPlacement::Device, \
         which keep a copy on the device"
    )]
    Placement {
        /// The device's name.
        device: String,
        /// Why not.
        why: String,
    },
    /// A device with a copy of the heap had no room for the copy, or refused to bring it up to date.
    #[error(
        "the mirror of the shared heap on {device} failed: {message}; free memory of the device, or \
         give the context a smaller HeapSize"
    )]
    Mirror {
        /// The device's name.
        device: String,
        /// wgpu's own words.
        message: String,
    },
    /// A device was lost, and its driver does not report the end of the kernels there.
    #[error(
        "{device} was lost ({reason}), and nothing says whether its kernels still write the heap: drop all handles of the \
         device, which waits for its queue, and ask again"
    )]
    Unproven {
        /// The device's name.
        device: String,
        /// Why the device was lost.
        reason: String,
    },
    /// A launch with possible writes to the heap failed, or its device was lost.
    #[error("a launch that used the heap failed: {0}")]
    Execution(#[from] Arc<ExecutionError>),
}

debug_by_text!(HeapError {
    NoWindow,
    Placement,
    Size,
    TooLarge,
    OutOfMemory,
    System,
    OutOfSegments,
    Layout,
    Null,
    DeviceMemory,
    NotAllocated,
    Misaligned,
    Interior,
    HostAccess,
    AtomicView,
    Owned,
    Overlap,
    Buffer,
    Deadline,
    Unsupported,
    Mirror,
    Unproven,
    Execution,
});

impl HeapError {
    /// Whether a wait was refused because threads may not wait at all.
    pub(super) fn would_block(&self) -> bool {
        matches!(self, Self::Execution(error) if matches!(**error, ExecutionError::WouldBlock { .. }))
    }

    /// Whether a device was lost, on which nothing runs any more.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::Execution(error) if matches!(**error, ExecutionError::DeviceLost { .. }))
    }
}
