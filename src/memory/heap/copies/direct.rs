//! Transfers between the host, or a buffer, and a part of an allocation behind a pointer, for higher modules with their
//! own account of good bytes: such a module reads and changes its account while the queue is held.

use std::ops::Range;
use std::sync::Arc;

use super::{Memory, Pointee, begin, event};
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::device::{DeviceShared, Event};
use crate::memory::buffer::{BufferShared, DeviceBuffer};
use crate::memory::buffers::End;
use crate::memory::fill::fill_bytes;
use crate::memory::heap::{HeapError, SharedHeap};
use crate::memory::places::{Place, copy};
use crate::memory::pointer::Ptr;
use crate::memory::staging;

/// A part of a live allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub ptr: Ptr<u8>,
    pub bytes: u64,
}

/// The outcome of a write.
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
    let at = part.ptr.address() % 4;
    let pool = staging::of(device);
    let memory = match contents {
        Contents::Bytes(bytes) => Some(pool.filled(device, what, at, bytes)?),
        Contents::Zeros => None,
    };
    let mut used_by = None;
    let written = record(device, what, part, |queue, place, _| {
        match &memory {
            Some(memory) => {
                used_by = Some(queue.batch());
                let source = Place::in_buffer(memory, at, true);
                copy(queue, device, &source, place, part.bytes)?;
            }
            None => {
                let (buffer, at, _) = place.after(0)?;
                fill_bytes(queue, device, buffer, &[0], &(at..at + part.bytes))?;
            }
        }
        recorded();
        Ok(())
    });
    if let (Some(memory), Some(batch)) = (memory, used_by) {
        pool.give_upload(memory, End::of(device, batch));
    }
    written
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
    let target = Place::in_buffer(&buffer.shared.raw, 0, false);
    record(device, what, part, |queue, place, pointee| {
        copy(queue, device, place, &target, part.bytes)?;
        recorded(&buffer.shared, pointee.uncertain());
        Ok(())
    })?;
    Ok(buffer)
}

/// Copies `part` to `range` of a buffer of the device, which lies at `target`; both have one size.
pub(crate) fn to_buffer(
    device: &Arc<DeviceShared>,
    what: &'static str,
    part: Part,
    (buffer, range, target): (&BufferShared, Range<u64>, &Place),
    recorded: impl FnOnce(Vec<Arc<Outcome>>),
) -> Result<Event, HeapError> {
    record(device, what, part, |queue, place, pointee| {
        copy(queue, device, place, target, part.bytes)?;
        buffer.overwritten(&range);
        recorded(pointee.uncertain());
        Ok(())
    })
}

/// Copies the bytes at `source`, in a buffer of the device, to `part`, of the same length.
pub(crate) fn from_buffer(
    device: &Arc<DeviceShared>,
    what: &'static str,
    part: Part,
    source: &Place,
    recorded: impl FnOnce(),
) -> Result<Event, HeapError> {
    record(device, what, part, |queue, place, _| {
        copy(queue, device, source, place, part.bytes)?;
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
    let (_turn, mut queue) = match &heap {
        Some(heap) => begin(heap, device, what, [&mut pointee], Vec::new)?,
        None => (None, device.queue.lock(device)),
    };
    let place = pointee.place(what, part.bytes)?;
    work(&mut queue, &place, &pointee)?;
    Ok(event(queue, device))
}
