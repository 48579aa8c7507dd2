//! Memory that the host fills and a device copies out of, kept for the next time: new memory has to be given pages and
//! zeroed, which costs more than filling it.

use std::sync::{Arc, Mutex};

use super::hop::End;
use crate::device::wait::lock;
use crate::device::{DeviceShared, capture};
use crate::memory::{MemoryError, MemoryRoom};

/// Memory beyond this many bytes is given back.
const KEEP_BYTES: u64 = 64 << 20;
/// The smallest memory.
const LEAST_BYTES: u64 = 256;

/// A device's.
#[derive(Default)]
pub(crate) struct UploadPool(Mutex<Vec<Kept>>);

struct Kept {
    memory: wgpu::Buffer,
    state: Using,
}

enum Using {
    /// A batch copies out of it, and may not have ended.
    Device(End),
    /// It is being mapped; whether it was, as soon as that is known.
    Mapping(Arc<Mutex<Option<bool>>>),
}

impl std::fmt::Debug for UploadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UploadPool")
            .field("kept", &lock(&self.0).len())
            .finish()
    }
}

impl UploadPool {
    /// Mapped memory of so many bytes, if some is free. Batches of a device end in their order: who finds one that has not
    /// ended need not look further.
    fn take(&self, device: &DeviceShared, size: u64) -> Option<wgpu::Buffer> {
        let mut kept = lock(&self.0);
        let at = kept.iter().position(|kept| kept.memory.size() == size)?;
        if let Using::Device(end) = &kept[at].state {
            if !end.is_reached() {
                return None;
            }
            let mapped = Arc::new(Mutex::new(None));
            let told = Arc::clone(&mapped);
            let ((), error) = capture(&device.raw, || {
                let memory = &kept[at].memory;
                memory.map_async(wgpu::MapMode::Write, .., move |result| {
                    *lock(&told) = Some(result.is_ok());
                });
            });
            if error.is_some() {
                kept.remove(at);
                return None;
            }
            // Nothing uses it: another look at the queue is all that it takes.
            end.collect();
            kept[at].state = Using::Mapping(mapped);
        }
        let Using::Mapping(mapped) = &kept[at].state else {
            return None;
        };
        let is_mapped = *lock(mapped);
        if is_mapped.is_none() && Arc::strong_count(mapped) > 1 {
            // Another thread's poll has collected the callback and not yet run it.
            return None;
        }
        // A callback that is gone and was not run says nothing of the memory.
        let found = kept.remove(at).memory;
        is_mapped.filter(|is_mapped| *is_mapped).map(|_| found)
    }

    /// Takes memory back, out of which nothing copies after `end`.
    pub(super) fn give(&self, memory: wgpu::Buffer, end: End) {
        let mut kept = lock(&self.0);
        let held: u64 = kept.iter().map(|kept| kept.memory.size()).sum();
        if held + memory.size() <= KEEP_BYTES {
            let state = Using::Device(end);
            kept.push(Kept { memory, state });
        }
    }
}

/// A buffer of `device`, mapped, that the host fills before the device copies out of it. It may hold anything.
pub(super) fn upload_memory(
    device: &DeviceShared,
    bytes: u64,
) -> Result<wgpu::Buffer, MemoryError> {
    let size = bytes.next_power_of_two().max(LEAST_BYTES);
    let pool = &device.memory_room.get::<MemoryRoom>().uploads;
    if let Some(memory) = pool.take(device, size) {
        return Ok(memory);
    }
    let (buffer, error) = capture(&device.raw, || {
        device.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tombolo upload"),
            size,
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        })
    });
    match error {
        None => Ok(buffer),
        Some(wgpu::Error::OutOfMemory { .. }) => Err(MemoryError::OutOfMemory {
            bytes,
            device: device.capabilities.name.clone(),
        }),
        Some(error) => Err(MemoryError::Refused {
            what: "a copy to a device",
            message: error.to_string(),
        }),
    }
}

/// Writes `bytes` from byte `at` on, and nothing but zeros to the rest of the words that they lie in.
pub(super) fn fill(view: &mut wgpu::BufferViewMut, at: u64, bytes: &[u8]) {
    const ZEROS: [u8; 4] = [0; 4];
    let (at, end) = (at as usize, at as usize + bytes.len());
    let whole = end.next_multiple_of(4);
    view.slice(..at).copy_from_slice(&ZEROS[..at]);
    view.slice(at..end).copy_from_slice(bytes);
    view.slice(end..whole)
        .copy_from_slice(&ZEROS[..whole - end]);
}
