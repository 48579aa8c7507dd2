//! Recording copies of rows between two buffers of a device.
//!
//! # How it works
//!
//! 1. Rows that follow each other on both sides are a single row already ([`Transfer::merged`]).
//! 2. Few rows of whole words, and long rows of any bytes, are copied one by one ([`places`]): a copy by wgpu costs as much as
//!    some kilobytes of a kernel's time.
//! 3. Many short rows are copied by a kernel ([`dispatch`](super::dispatch)), from the source to the target with nothing in
//!    between.
//! 4. A kernel can neither bind one buffer as source and target, nor staging memory, mapped by the host: rows go, a
//!    group at a time, through scratch memory there.

use std::ops::Range;

use super::dispatch::by_kernel;
use super::rows::{Rows, Transfer};
use crate::device::DeviceShared;
use crate::device::queue::Recorder;
use crate::memory::MemoryError;
use crate::memory::places::{self, Place};
use crate::memory::staging;

/// Up to this many rows are copied one by one, if made of words.
const FEW_ROWS: u64 = 16;
/// Rows from this size on are copied one by one.
const LONG_ROW: u64 = 32 << 10;
/// The most bytes that go through scratch memory at once: a group of rows shorter than [`LONG_ROW`].
pub(crate) const GROUP_BYTES: u64 = 8 << 20;

/// How rows are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    OneByOne,
    ByKernel,
}

impl Way {
    /// The way for rows; few are copied one by one only with `words`: made of words, or with surplus bytes allowed.
    pub(crate) fn of(rows: &Rows, words: bool) -> Self {
        let few = words && rows.count() <= FEW_ROWS;
        match few || rows.count() == 1 || rows.bytes >= LONG_ROW {
            true => Self::OneByOne,
            false => Self::ByKernel,
        }
    }

    /// The way of a transfer within a device.
    pub(crate) fn between(transfer: &Transfer) -> Self {
        let words = transfer.from.are_words() && transfer.to.are_words();
        Self::of(&transfer.from, words)
    }
}

/// Records the copy of merged rows between buffers of a device, or within a buffer if no bytes are shared.
///
/// # Errors
/// [`MemoryError::OutOfMemory`] where there is no room for scratch memory; [`MemoryError::Refused`].
pub(crate) fn copy(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&wgpu::Buffer, &wgpu::Buffer),
    transfer: &Transfer,
) -> Result<(), MemoryError> {
    if Way::between(transfer) == Way::OneByOne {
        return one_by_one(
            queue,
            device,
            (from, to),
            transfer,
            0..transfer.from.count(),
        );
    }
    if from != to {
        return by_kernel(
            queue,
            device,
            (from, to),
            transfer,
            0..transfer.from.count(),
        );
    }
    let bytes = transfer.from.bytes;
    for group in transfer.groups(bytes, GROUP_BYTES) {
        let scratch = staging::of(device).scratch(device, scratch_bytes(&group, bytes))?;
        let between = transfer.from.packed(group.start, bytes);
        let (first, second) = (
            Transfer {
                from: transfer.from,
                to: between,
            },
            Transfer {
                from: between,
                to: transfer.to,
            },
        );
        by_kernel(queue, device, (from, &scratch), &first, group.clone())?;
        by_kernel(queue, device, (&scratch, to), &second, group)?;
    }
    Ok(())
}

/// Words for the rows of a group without gaps.
fn scratch_bytes(group: &Range<u64>, bytes: u64) -> u64 {
    ((group.end - group.start) * bytes).next_multiple_of(4)
}

/// Where a group of rows lies in staging memory for [`copy_from_staging`] to `rows`.
pub(crate) fn for_staging(rows: &Rows, way: Way, group: &Range<u64>) -> Rows {
    match way {
        Way::OneByOne => rows.aligned(group.start),
        Way::ByKernel => rows.packed(group.start, rows.bytes),
    }
}

/// Records the copy of a group of rows from staging memory ([`for_staging`]) to a buffer.
///
/// # Errors
/// As [`copy`].
pub(crate) fn copy_from_staging(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&wgpu::Buffer, &wgpu::Buffer),
    transfer: &Transfer,
    (way, group): (Way, Range<u64>),
) -> Result<(), MemoryError> {
    match way {
        Way::OneByOne => one_by_one(queue, device, (from, to), transfer, group),
        Way::ByKernel => {
            let bytes = scratch_bytes(&group, transfer.from.bytes);
            let scratch = staging::of(device).scratch(device, bytes)?;
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(from, 0, &scratch, 0, bytes);
            });
            by_kernel(queue, device, (&scratch, to), transfer, group)
        }
    }
}

/// Records the copy of rows into staging memory ([`in_staging`]).
///
/// # Errors
/// As [`copy`].
pub(crate) fn copy_to_staging(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&wgpu::Buffer, &wgpu::Buffer),
    rows: &Rows,
    way: Way,
) -> Result<(), MemoryError> {
    let goal = in_staging(rows, way);
    let transfer = Transfer {
        from: *rows,
        to: goal,
    };
    if way == Way::OneByOne {
        queue.encode(|encoder| {
            for row in 0..rows.count() {
                let bytes = rows.row(row);
                let start = bytes.start / 4 * 4;
                let count = bytes.end.next_multiple_of(4) - start;
                encoder.copy_buffer_to_buffer(from, start, to, goal.at(row), count);
            }
        });
        return Ok(());
    }
    for group in transfer.groups(rows.bytes, GROUP_BYTES) {
        let bytes = scratch_bytes(&group, rows.bytes);
        let scratch = staging::of(device).scratch(device, bytes)?;
        let gathered = Transfer {
            from: *rows,
            to: rows.packed(group.start, rows.bytes),
        };
        by_kernel(queue, device, (from, &scratch), &gathered, group.clone())?;
        queue.encode(|encoder| {
            // The rows of all groups but the last are whole words.
            encoder.copy_buffer_to_buffer(&scratch, 0, to, goal.at(group.start), bytes);
        });
    }
    Ok(())
}

/// Where rows lie in staging memory behind [`copy_to_staging`]: by the kernel without gaps, else the words around each row,
/// so a row's offset in the first word stays the same.
pub(crate) fn in_staging(rows: &Rows, way: Way) -> Rows {
    let pitch = match way {
        // A row of `n` bytes lies in at most `n + 6` bytes of whole words.
        Way::OneByOne => (rows.bytes + 6) / 4 * 4,
        Way::ByKernel => rows.bytes,
    };
    rows.packed(0, pitch)
}

fn one_by_one(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&wgpu::Buffer, &wgpu::Buffer),
    transfer: &Transfer,
    rows: Range<u64>,
) -> Result<(), MemoryError> {
    for row in rows {
        let from = Place::in_buffer(from, transfer.from.at(row), false);
        let to = Place::in_buffer(to, transfer.to.at(row), false);
        places::copy(queue, device, &from, &to, transfer.from.bytes)?;
    }
    Ok(())
}
