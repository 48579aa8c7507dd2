//! Places in buffers that transfers lead from and to, and the copies between them, whatever words their bytes lie in.

use std::ops::Range;

use crate::device::queue::Recorder;
use crate::device::{DeviceShared, capture};
use crate::memory::buffer::MemoryError;
use crate::memory::heap::{DeviceView, HeapError};
use crate::memory::shift::{self, Bytes};

/// The most that goes through the third buffer at once.
const BETWEEN_BYTES: u64 = 16 << 20;
/// Below this it is not worth while to copy the whole words in the middle of a range apart from its ends.
const FEW_BYTES: u64 = 64 << 10;

/// Where a transfer reads or writes.
pub(crate) struct Place {
    pub buffers: Buffers,
    /// First byte.
    pub start: u64,
    /// Whether the bytes behind the last one, up to the end of its word, belong to nobody else.
    pub padded: bool,
}

pub(crate) enum Buffers {
    One(wgpu::Buffer),
    /// The heap, and bytes of a whole segment.
    Segments(DeviceView, u64),
}

impl Place {
    /// The buffer with the byte `done` bytes further on, the byte's place in it, and the bytes from there
    /// to its end.
    pub fn after(&self, done: u64) -> Result<(&wgpu::Buffer, u64, u64), HeapError> {
        let at = self.start + done;
        let (buffer, at) = match &self.buffers {
            Buffers::One(raw) => (Some(raw), at),
            Buffers::Segments(view, step) => {
                let segment = view.segments.get((at / step) as usize);
                (segment.map(|(_, raw)| raw), at % step)
            }
        };
        match buffer {
            Some(raw) if at < raw.size() => Ok((raw, at, raw.size() - at)),
            // Never: places are checked when they are made.
            _ => Err(HeapError::NotAllocated {
                what: "a transfer",
                address: at,
                bytes: 1,
            }),
        }
    }
}

/// A transfer in three pieces, one behind the other; the first and the last one may be empty, or the one in
/// the middle.
pub(super) struct Pieces {
    /// What wgpu copies.
    words: Range<u64>,
    bytes: u64,
}

impl Pieces {
    pub fn of(from: &Place, to: &Place, bytes: u64) -> Self {
        let none = |bytes| Self { words: 0..0, bytes };
        if from.start % 4 != to.start % 4 {
            return none(bytes);
        }
        let first = from.start.next_multiple_of(4) - from.start;
        let beyond = (from.start + bytes) % 4;
        let bytes = match beyond > 0 && from.padded && to.padded {
            true => bytes + 4 - beyond,
            false => bytes,
        };
        let end = ((from.start + bytes) / 4 * 4).saturating_sub(from.start);
        let words = first..end.max(first);
        let all = words == (0..bytes);
        match all || words.end - words.start >= FEW_BYTES {
            true => Self { words, bytes },
            false => none(bytes),
        }
    }

    pub fn are_words(&self) -> bool {
        self.words == (0..self.bytes)
    }
}

/// Records the copy of `bytes` bytes between places that share none.
pub(crate) fn copy(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    from: &Place,
    to: &Place,
    bytes: u64,
) -> Result<(), HeapError> {
    let Pieces { words, bytes } = Pieces::of(from, to, bytes);
    let mut between = None;
    copy_bytes(queue, device, (from, to), 0..words.start, &mut between)?;
    let mut done = words.start;
    while done < words.end {
        let (source, source_at, source_left) = from.after(done)?;
        let (target, target_at, target_left) = to.after(done)?;
        let mut count = source_left.min(target_left).min(words.end - done);
        if source == target {
            count = count.min(BETWEEN_BYTES);
            let third = third_buffer(device, &mut between, count)?;
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(source, source_at, third, 0, count);
                encoder.copy_buffer_to_buffer(third, 0, target, target_at, count);
            });
        } else {
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(source, source_at, target, target_at, count);
            });
        }
        done += count;
    }
    copy_bytes(queue, device, (from, to), words.end..bytes, &mut between)
}

/// Records the copy of a part of a transfer, whatever words its bytes lie in.
fn copy_bytes(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&Place, &Place),
    part: Range<u64>,
    between: &mut Option<wgpu::Buffer>,
) -> Result<(), HeapError> {
    let mut done = part.start;
    while done < part.end {
        let (source, source_at, source_left) = from.after(done)?;
        let (target, target_at, target_left) = to.after(done)?;
        let most = source_left.min(target_left).min(shift::most_bytes(device));
        let bytes = Bytes {
            source,
            source_at,
            target,
            target_at,
            count: most.min(part.end - done),
        };
        let third = third_buffer(device, between, shift::between_bytes(bytes.count))?;
        shift::shift(queue, device, third, &bytes)?;
        done += bytes.count;
    }
    Ok(())
}

/// The third buffer, with at least `bytes` bytes.
fn third_buffer<'b>(
    device: &DeviceShared,
    between: &'b mut Option<wgpu::Buffer>,
    bytes: u64,
) -> Result<&'b wgpu::Buffer, MemoryError> {
    if let Some(third) = between.take_if(|third| third.size() >= bytes) {
        return Ok(between.insert(third));
    }
    let (buffer, error) = capture(&device.raw, || {
        device.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tombolo copy"),
            size: bytes,
            usage: wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        })
    });
    match error {
        None => Ok(between.insert(buffer)),
        Some(wgpu::Error::OutOfMemory { .. }) => Err(MemoryError::OutOfMemory {
            bytes,
            device: device.capabilities.name.clone(),
        }),
        Some(error) => Err(MemoryError::Refused {
            what: "a copy",
            message: error.to_string(),
        }),
    }
}
