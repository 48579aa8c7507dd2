//! Errors of buffers and of commands on them.

use std::ops::Range;
use std::sync::Arc;

use crate::device::WindowError;
use crate::device::outcome::ExecutionError;
use crate::error_text::debug_by_text;
use crate::memory::rect::RectError;

/// Why a buffer, or a command on one, was refused. Nothing has been recorded or changed then.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The buffer could never exist on this device.
    #[error(
        "a buffer of {bytes} bytes is more than {device} allows ({limit}): use several buffers"
    )]
    TooLarge {
        /// The size asked for, in bytes.
        bytes: u64,
        /// The device's limit, in bytes.
        limit: u64,
        /// The device's name.
        device: String,
    },
    /// The device has no room for the buffer now.
    #[error("{device} has no room for {bytes} bytes now: drop buffers that are not needed")]
    OutOfMemory {
        /// The size asked for, in bytes.
        bytes: u64,
        /// The device's name.
        device: String,
    },
    /// A range reaches beyond its buffer.
    #[error("{what}: elements {start}..{end} of a buffer of {len}")]
    OutOfRange {
        /// The command.
        what: &'static str,
        /// First element of the range.
        start: u64,
        /// One past the last element of the range.
        end: u64,
        /// Elements in the buffer.
        len: u64,
    },
    /// An imported buffer ends inside a word of 4 bytes, and the range reaches into that word: wgpu copies, maps and
    /// binds whole words only.
    #[error(
        "{what}: bytes {start}..{end} reach into the last word of an imported buffer that ends inside it, which wgpu \
         cannot copy: give the buffer a size that is a multiple of 4"
    )]
    Misaligned {
        /// The command.
        what: &'static str,
        /// First byte of the range.
        start: u64,
        /// One past the last byte of the range.
        end: u64,
    },
    /// Source and destination of a copy overlap in one buffer.
    #[error(
        "copy: elements {from:?} and {to:?} of one buffer overlap: copy through another buffer"
    )]
    Overlap {
        /// Source, in elements.
        from: Range<u64>,
        /// Destination, in elements.
        to: Range<u64>,
    },
    /// The buffers belong to different devices, and the command is made by one.
    #[error(
        "{what}: the buffers belong to different devices ({first}, {second}): copy ranges of buffers with `copy_to`, or by way of the host"
    )]
    OtherDevice {
        /// The command.
        what: &'static str,
        /// One device's name.
        first: String,
        /// The other device's name.
        second: String,
    },
    /// An imported buffer lacks a usage that the command needs.
    #[error("{what} needs wgpu usage {needed:?}; the imported buffer has {usage:?}")]
    MissingUsage {
        /// The command.
        what: &'static str,
        /// The required usages.
        needed: wgpu::BufferUsages,
        /// The buffer's usages.
        usage: wgpu::BufferUsages,
    },
    /// The imported buffer's size is no multiple of the element type's.
    #[error(
        "a wgpu buffer of {bytes} bytes does not hold whole values of `{element}` ({element_bytes} \
         bytes each)"
    )]
    ElementSize {
        /// The buffer's size, in bytes.
        bytes: u64,
        /// The element type.
        element: &'static str,
        /// The element's size, in bytes.
        element_bytes: usize,
    },
    /// The element type has no size, so no element has an address.
    #[error("`{element}` has no size: buffers hold values of at least one byte")]
    ZeroSized {
        /// The element type.
        element: &'static str,
    },
    /// The host has no memory for a result, or a copy, of that size.
    #[error("{what}: the host has no memory for {bytes} bytes now: work on parts")]
    HostMemory {
        /// The command.
        what: &'static str,
        /// Bytes that the command needs on the host.
        bytes: u64,
    },
    /// The system has no pinned memory of that size: [`PinnedVec`](crate::buffers::PinnedVec).
    #[error("{bytes} bytes of pinned memory: {reason}; use several vectors, or a `Vec`")]
    Pinned {
        /// The size asked for, in bytes.
        bytes: u64,
        /// Why there is none.
        reason: WindowError,
    },
    /// A rectangle does not fit its memory, or two do not fit each other.
    #[error(transparent)]
    Rect(#[from] RectError),
    /// wgpu refused for another reason.
    #[error("{what} was refused: {message}")]
    Refused {
        /// The command.
        what: &'static str,
        /// wgpu's own words.
        message: String,
    },
    /// The device is gone, or the commands recorded before failed to submit.
    #[error(transparent)]
    Execution(#[from] Arc<ExecutionError>),
}

debug_by_text!(MemoryError {
    TooLarge,
    OutOfMemory,
    OutOfRange,
    Misaligned,
    Overlap,
    OtherDevice,
    MissingUsage,
    ElementSize,
    ZeroSized,
    HostMemory,
    Pinned,
    Rect,
    Refused,
    Execution,
});
