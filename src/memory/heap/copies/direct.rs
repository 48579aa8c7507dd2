//! Transfers between the host, or a buffer, and a part of an allocation that a pointer leads to, for rooms above that
//! keep their own account of which bytes are good: they look at it, and change it, while the queue is held.

use std::ops::Range;
use std::sync::Arc;

use super::places::{Buffers, Place, copy};
use super::{Memory, Pointee, event, take_turn};
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::device::{DeviceShared, Event, capture};
use crate::memory::buffer::{BufferShared, DeviceBuffer, MemoryError};
use crate::memory::fill::fill_bytes;
use crate::memory::heap::{HeapError, SharedHeap};
use crate::memory::pointer::Ptr;

/// A part of a live allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub ptr: Ptr<u8>,
    pub bytes: u64,
}

/// What a write leaves there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Contents<'a> {
    /// As many bytes as the part has.
    Bytes(&'a [u8]),
    Zeros,
}

/// Writes `contents` to `part` at any alignment, in the order of the queue. The bytes are taken at once.
pub(crate) fn write(
    device: &Arc<DeviceShared>,
    what: &'static str,
    part: Part,
    contents: Contents<'_>,
    recorded: impl FnOnce(),
) -> Result<Event, HeapError> {
    record(device, what, part, |queue, place, _| {
        let (buffer, at, _) = place.after(0)?;
        let range = at..at + part.bytes;
        let whole = at.is_multiple_of(4) && part.bytes.is_multiple_of(4);
        match contents {
            Contents::Zeros => fill_bytes(queue, device, buffer, &[0], &range)?,
            Contents::Bytes(bytes) if whole => {
                let staging = staged(device, what, bytes)?;
                queue.encode(|encoder| {
                    encoder.copy_buffer_to_buffer(&staging, 0, buffer, at, part.bytes);
                });
            }
            // The pattern as long as the range: bytes at any alignment, and their neighbours stay as they are.
            Contents::Bytes(bytes) => fill_bytes(queue, device, buffer, bytes, &range)?,
        }
        recorded();
        Ok(())
    })
}

/// Copies `part`, whose ends are those of whole words, into a new buffer. `recorded` gets the buffer's state and the
/// launches that used the heap and may have failed.
pub(crate) fn read(
    device: &Arc<DeviceShared>,
    what: &'static str,
    part: Part,
    recorded: impl FnOnce(&BufferShared, Vec<Arc<Outcome>>),
) -> Result<DeviceBuffer<u8>, HeapError> {
    let buffer = DeviceBuffer::<u8>::allocate(device, part.bytes)?;
    let target = Place {
        buffers: Buffers::One(buffer.shared.raw.clone()),
        start: 0,
        padded: false,
    };
    record(device, what, part, |queue, place, pointee| {
        copy(queue, device, place, &target, part.bytes)?;
        recorded(&buffer.shared, pointee.uncertain());
        Ok(())
    })?;
    Ok(buffer)
}

/// Copies `part` to `range` of a buffer of the device. Both are whole words of one size.
pub(crate) fn to_buffer(
    device: &Arc<DeviceShared>,
    what: &'static str,
    part: Part,
    buffer: &BufferShared,
    range: Range<u64>,
    recorded: impl FnOnce(Vec<Arc<Outcome>>),
) -> Result<Event, HeapError> {
    let target = Place {
        buffers: Buffers::One(buffer.raw.clone()),
        start: range.start,
        padded: false,
    };
    record(device, what, part, |queue, place, pointee| {
        copy(queue, device, place, &target, part.bytes)?;
        buffer.overwritten(&range);
        recorded(pointee.uncertain());
        Ok(())
    })
}

/// Copies `range` of a buffer of the device to `part`. Both are whole words of one size.
pub(crate) fn from_buffer(
    device: &Arc<DeviceShared>,
    what: &'static str,
    part: Part,
    buffer: &BufferShared,
    range: Range<u64>,
    recorded: impl FnOnce(),
) -> Result<Event, HeapError> {
    let source = Place {
        buffers: Buffers::One(buffer.raw.clone()),
        start: range.start,
        padded: false,
    };
    record(device, what, part, |queue, place, _| {
        copy(queue, device, &source, place, part.bytes)?;
        recorded();
        Ok(())
    })
}

fn record(
    device: &Arc<DeviceShared>,
    what: &'static str,
    part: Part,
    work: impl FnOnce(&mut Recorder<'_>, &Place, &Pointee<'_, u8>) -> Result<(), HeapError>,
) -> Result<Event, HeapError> {
    let mut pointee = Pointee::find(device, what, part.ptr, part.bytes)?;
    // Devices with memory of their own may have no shared heap at all.
    let heap = match &pointee.memory {
        Memory::Shared(shared, _) => Some(SharedHeap {
            shared: Arc::clone(shared),
        }),
        Memory::Own(..) => None,
    };
    let _turn = match &heap {
        Some(heap) => take_turn(heap, device, [&mut pointee])?,
        None => None,
    };
    let mut queue = device.queue.lock(device);
    pointee.enter(&queue, what, &[])?;
    let place = pointee.place(what, part.bytes)?;
    work(&mut queue, &place, &pointee)?;
    Ok(event(queue, device))
}

/// A buffer that holds `bytes` from the start.
fn staged(
    device: &DeviceShared,
    what: &'static str,
    bytes: &[u8],
) -> Result<wgpu::Buffer, MemoryError> {
    let (filled, error) = capture(&device.raw, || {
        let staging = device.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tombolo upload"),
            size: bytes.len() as u64,
            usage: wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        });
        let view = staging.get_mapped_range_mut(..);
        let filled = view.map(|mut view| view.slice(..).copy_from_slice(bytes));
        staging.unmap();
        filled.map(|()| staging).map_err(|error| error.to_string())
    });
    let refused = |message| MemoryError::Refused { what, message };
    match error {
        Some(error) => Err(refused(error.to_string())),
        None => filled.map_err(refused),
    }
}
