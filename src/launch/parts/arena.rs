//! Memory only for arguments, for a launch with more arguments than bindings: buffers of the device in the place of the
//! heap, for kernels without other use of the heap.
//!
//! Each device has a set of such buffers. Every launch copies the arguments in at the start and the results out at the
//! end, all in a single step and in the queue's order, so the next launch may use the same buffers, of any kernel.

use std::sync::{Arc, Mutex};

use crate::device::heap_shape::segment_bytes;
use crate::device::wait::lock;
use crate::device::{DeviceShared, capture, unique_id};
use crate::launch::LaunchError;
use crate::memory::MemoryError;

/// The alignment of an argument's start, in bytes: enough for every WGSL type.
const ALIGN: u64 = 16;
/// The smallest size of a buffer, in bytes.
const LEAST: u64 = 64 << 10;

/// The buffers of a device, each with its identity for the bind-group cache.
#[derive(Default)]
pub(in crate::launch) struct Arena(Mutex<Vec<(u64, wgpu::Buffer)>>);

/// Where arguments lie, and how much room the arguments take.
#[derive(Debug, Default, PartialEq)]
pub(in crate::launch) struct Places {
    /// Buffer and byte offset in it, for each argument.
    pub(in crate::launch) places: Vec<(usize, u64)>,
    /// Bytes of each buffer.
    sizes: Vec<u64>,
}

impl Places {
    /// Places arguments of these sizes in buffers of at most `step` bytes, each in the first with room. The error is
    /// the size of an argument without a fitting buffer.
    fn of(arguments: impl Iterator<Item = u64>, step: u64) -> Result<Self, u64> {
        let mut all = Self::default();
        for bytes in arguments {
            let room = bytes.next_multiple_of(ALIGN);
            if room > step {
                return Err(bytes);
            }
            let found = all.sizes.iter().position(|used| used + room <= step);
            let index = found.unwrap_or(all.sizes.len());
            if found.is_none() {
                all.sizes.push(0);
            }
            let used = &mut all.sizes[index];
            all.places.push((index, *used));
            *used += room;
        }
        Ok(all)
    }

    /// As [`Self::of`], with the buffers of `device`.
    pub(in crate::launch) fn on(
        device: &DeviceShared,
        arguments: impl Iterator<Item = u64>,
    ) -> Result<Self, LaunchError> {
        let limit = segment_bytes(&device.limits);
        Self::of(arguments, limit).map_err(|bytes| {
            MemoryError::TooLarge {
                bytes,
                limit,
                device: device.capabilities.name.clone(),
            }
            .into()
        })
    }

    /// The number of buffers: at least 1, since a binding must not be empty.
    pub(in crate::launch) fn parts(&self) -> u32 {
        self.sizes.len().max(1) as u32
    }
}

impl Arena {
    /// `parts` buffers with room for `places`.
    pub(in crate::launch) fn buffers(
        device: &Arc<DeviceShared>,
        places: &Places,
        parts: u32,
    ) -> Result<Vec<(u64, wgpu::Buffer)>, LaunchError> {
        let limit = segment_bytes(&device.limits);
        let mut buffers = lock(&device.extensions.launch.arena.0);
        let mut answer = Vec::new();
        for part in 0..parts as usize {
            let needed = places.sizes.get(part).copied().unwrap_or(0);
            match buffers.get(part) {
                Some(known) if known.1.size() >= needed => answer.push(known.clone()),
                old => {
                    let bytes = needed.next_power_of_two().max(LEAST).min(limit);
                    let new = (unique_id(), buffer(device, bytes, "arguments")?);
                    answer.push(new.clone());
                    if let (Some((id, _)), Some(tell)) = (old, device.buffer_gone.get()) {
                        tell(device, *id);
                    }
                    match buffers.get_mut(part) {
                        Some(old) => *old = new,
                        None => buffers.push(new),
                    }
                }
            }
        }
        Ok(answer)
    }

    /// Gives the buffers back; recorded launches keep theirs.
    pub(in crate::launch) fn clear(device: &DeviceShared) {
        let buffers = std::mem::take(&mut *lock(&device.extensions.launch.arena.0));
        if let Some(tell) = device.buffer_gone.get() {
            for (id, _) in buffers {
                tell(device, id);
            }
        }
    }
}

/// A buffer of the runtime's own for writes by kernels, for `what`.
pub(super) fn buffer(
    device: &DeviceShared,
    bytes: u64,
    what: &'static str,
) -> Result<wgpu::Buffer, LaunchError> {
    use wgpu::BufferUsages as U;
    let (buffer, error) = capture(&device.raw, || {
        device.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some(&format!("tombolo {what}")),
            size: bytes,
            usage: U::STORAGE | U::COPY_SRC | U::COPY_DST,
            mapped_at_creation: false,
        })
    });
    match error {
        None => Ok(buffer),
        Some(wgpu::Error::OutOfMemory { .. }) => Err(MemoryError::OutOfMemory {
            bytes,
            device: device.capabilities.name.clone(),
        }
        .into()),
        Some(error) => Err(MemoryError::Refused {
            what: match what {
                "arguments" => "making room for arguments",
                _ => "making room for spilled arrays",
            },
            message: error.to_string(),
        }
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_argument_larger_than_a_buffer_is_refused() {
        assert_eq!(Places::of([16, 80].into_iter(), 64), Err(80));
        assert_eq!(Places::of([].into_iter(), 64).map(|p| p.parts()), Ok(1));
    }

    proptest! {
        /// Every argument lies in one buffer, apart from the others, and within the sizes told.
        #[test]
        fn places_are_apart(sizes in prop::collection::vec(1u64..100, 0..40)) {
            let step = 256;
            let places = Places::of(sizes.iter().copied(), step).unwrap();
            prop_assert_eq!(places.places.len(), sizes.len());
            let mut used = vec![[false; 256]; places.parts() as usize];
            for ((part, offset), bytes) in places.places.iter().zip(sizes) {
                prop_assert!(offset.is_multiple_of(16) && offset + bytes <= places.sizes[*part]);
                for byte in *offset..offset + bytes {
                    prop_assert!(!used[*part][byte as usize]);
                    used[*part][byte as usize] = true;
                }
            }
            prop_assert!(places.sizes.iter().all(|&size| size <= step));
        }
    }
}
