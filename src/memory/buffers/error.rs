//! Errors of a context's buffers.

use std::ops::Range;
use std::sync::Arc;

use crate::device::ExecutionError;
use crate::error_text::debug_by_text;
use crate::memory::migrate::MigrateError;
use crate::memory::{HeapError, MemoryError};

/// Why a buffer of a context, or a command on a buffer, was refused, or has no values. No contents are lost by the
/// error.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// A part of no elements.
    #[error("a part of no elements, at {at}, of a buffer of {len}: give it one element or more")]
    EmptyPart {
        /// Where it would begin, in elements.
        at: u64,
        /// Elements of the buffer.
        len: u64,
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
    /// The element type has no size, so that no element has an address.
    #[error("`{element}` has no size: buffers hold values of at least one byte")]
    ZeroSized {
        /// The element type.
        element: &'static str,
    },
    /// The part begins inside a value of the other type, or is no whole number of them.
    #[error(
        "bytes {start}..{end} do not hold whole values of `{element}` ({element_bytes} bytes each): choose other ends"
    )]
    ElementSize {
        /// First byte of the part.
        start: u64,
        /// One past its last byte.
        end: u64,
        /// The element type.
        element: &'static str,
        /// The element's size, in bytes.
        element_bytes: usize,
    },
    /// The device belongs to another context.
    #[error(
        "{device} belongs to another context than the buffer: open it with the buffer's context"
    )]
    OtherContext {
        /// The device's name.
        device: String,
    },
    /// The device has no room, even when everything that could be moved to the host has been.
    #[error(
        "{device} has no room for a buffer of {bytes} bytes: buffers have {used} bytes there{}; drop buffers, make \
         fewer of them part of one launch{}", limit(.cap), hint(.cap)
    )]
    NoRoom {
        /// The device's name.
        device: String,
        /// Bytes of the buffer.
        bytes: u64,
        /// Bytes that buffers of the context have on the device.
        used: u64,
        /// [`DeviceOptions::buffer_bytes`](crate::DeviceOptions::buffer_bytes), if that was in the way.
        cap: Option<u64>,
    },
    /// The latest bytes were on a device that is gone, and nowhere else.
    #[error(
        "bytes {} were only on {device}, which was lost: overwrite or discard them before they are read",
        list(.ranges)
    )]
    Lost {
        /// The device's name.
        device: String,
        /// The lost bytes within the range asked for, in bytes of the whole buffer.
        ranges: Vec<Range<u64>>,
    },
    /// Source and destination of a copy have bytes in common.
    #[error("copy: bytes {from:?} and {to:?} of one buffer overlap: copy through another buffer")]
    Overlap {
        /// Source, in bytes of the whole buffer.
        from: Range<u64>,
        /// Destination, in bytes of the whole buffer.
        to: Range<u64>,
    },
    /// The bytes are mapped.
    #[error("{what}: bytes {}..{} are mapped{}: unmap them first", .range.start, .range.end, mapped(*.writing))]
    Mapped {
        /// The command.
        what: &'static str,
        /// The mapped bytes, in bytes of the whole buffer.
        range: Range<u64>,
        /// They are mapped for writing.
        writing: bool,
    },
    /// The memory of a device was refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The heap that the buffer lies in.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The launch that wrote the bytes failed, or a device was lost on the way.
    #[error(transparent)]
    Execution(#[from] Arc<ExecutionError>),
    /// The planner refused.
    #[error(transparent)]
    Migrate(MigrateError),
}

debug_by_text!(BufferError {
    EmptyPart,
    OutOfRange,
    ZeroSized,
    ElementSize,
    OtherContext,
    NoRoom,
    Lost,
    Overlap,
    Mapped,
    Memory,
    Heap,
    Execution,
    Migrate,
});

fn limit(cap: &Option<u64>) -> String {
    cap.map_or_else(String::new, |cap| {
        format!(", of {cap} that DeviceOptions::buffer_bytes allows")
    })
}

fn hint(cap: &Option<u64>) -> &'static str {
    match cap {
        Some(_) => ", or allow more",
        None => "",
    }
}

fn mapped(writing: bool) -> &'static str {
    match writing {
        true => " for writing",
        false => "",
    }
}

fn list(ranges: &[Range<u64>]) -> String {
    const SHOWN: usize = 4;
    let shown = ranges
        .iter()
        .take(SHOWN)
        .map(|range| format!("{}..{}", range.start, range.end));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = ranges.len().checked_sub(SHOWN) {
        text.push_str(&format!(" and {more} more ranges"));
    }
    text
}
