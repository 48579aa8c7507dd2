//! A device's own memory behind pointers: allocations reached only by kernels of that device, named by pointers with
//! nonzero upper 16 bits.
//!
//! Where host and device share all memory the device's own memory is part of the shared heap, under tagged pointers:
//! kernels follow them with the same instructions as any other. Elsewhere the memory consists of buffers of the device,
//! each a segment selected by the tag; no two devices share a tag, so no device takes another's pointer for its own.
//!
//! A tag costs one test per pointer, and only in kernels made after the device has such memory. There are as many
//! segments as the adapter binds beside the heap and the status record, each as long as all before it, so that there
//! are few.

mod api;

use std::collections::HashSet;
use std::panic::Location;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use bytemuck::Pod;

use super::HeapError;
use super::allocation_table::{AllocationTable, Block, Place, Upload, Whereabouts, place};
use crate::addresses::granules::DEVICE_GRANULE;
use crate::addresses::region::{Allocation, Region, RegionOptions};
use crate::device::heap_shape::own_segment_bytes;
use crate::device::wait::lock;
use crate::device::{DeviceShared, capture, unique_id};
use crate::memory::buffer::{BufferShared, BufferView};
use crate::memory::pointer::Ptr;

/// The upper 16 bits of pointers into a device's own memory where that is memory of the heap.
const UNIFIED_TAG: u16 = 1;
/// Tags of a device, and its most segments; the tags of the next device follow. Tags begin again after a thousand
/// devices of a process.
const TAGS: u16 = 64;
/// Bits of a pointer below the tag.
const ADDRESS_BITS: u64 = 48;
pub(crate) const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
/// The least that a segment has, where the device binds as much at once. Each segment costs a pointer-following kernel
/// a binding and a test, hence the doubling.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The segments of one device.
pub(crate) struct DeviceMemory {
    segments: Mutex<Segments>,
    first_tag: u16,
}

impl Default for DeviceMemory {
    fn default() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % (u16::MAX / TAGS);
        Self {
            segments: Mutex::default(),
            first_tag: 1 + number * TAGS,
        }
    }
}

#[derive(Default)]
struct Segments {
    region: Option<Region>,
    buffers: Vec<(u64, wgpu::Buffer)>,
    /// With unified memory: this device's allocations in the shared heap.
    unified: HashSet<u64>,
    /// The table for checked kernels, once there are any: of all segments, in a row.
    table: Option<AllocationTable>,
}

impl Segments {
    /// The begin of each segment in the table's bytes, and the number of these bytes.
    fn starts(&self) -> (Vec<u64>, u64) {
        let mut end = 0;
        let starts = (self.buffers.iter())
            .map(|(_, buffer)| {
                let start = end;
                end += buffer.size();
                start
            })
            .collect();
        (starts, end)
    }

    /// An allocation as noted in the table, and its end in its segment.
    fn block(&self, allocation: &Allocation) -> (Block, u64) {
        let (segment, offset) = (allocation.address >> 32, allocation.address & 0xffff_ffff);
        let (starts, _) = self.starts();
        let start = starts.get(segment as usize).copied().unwrap_or(0);
        let block = Block {
            address: start + offset,
            size: allocation.size,
            requested: allocation.requested,
        };
        (block, offset + allocation.requested)
    }

    fn note_allocated(&mut self, allocation: &Allocation, at: Option<Place>) {
        let (block, end) = self.block(allocation);
        let (_, bytes) = self.starts();
        if let Some(table) = &mut self.table {
            table.grow(bytes);
            table.allocated(block, end, at);
        }
    }

    fn note_freed(&mut self, allocation: &Allocation, at: Option<Place>) {
        let (block, _) = self.block(allocation);
        if let Some(table) = &mut self.table {
            table.freed(block, at);
        }
    }
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("segments", &lock(&self.segments).buffers.len())
            .finish_non_exhaustive()
    }
}

/// Where a device pointer leads.
pub(crate) enum DevicePlace {
    /// Into the shared heap, at this address.
    Shared(u64),
    /// Into a segment.
    Own {
        /// The segment's identity.
        id: u64,
        buffer: wgpu::Buffer,
        /// Where in the buffer, in bytes.
        offset: u64,
        /// Where in the buffer the allocation ends.
        end: u64,
    },
}

/// Segments of device memory that kernels on the device can bind: a binding is the shared heap's, and another the
/// status record's. A kernel with storage arguments of its own may have fewer left, an error when the kernel is made.
fn most_segments(limits: &wgpu::Limits) -> usize {
    limits
        .max_storage_buffers_per_shader_stage
        .saturating_sub(2)
        .clamp(1, TAGS.into()) as usize
}

fn memory(device: &DeviceShared) -> &DeviceMemory {
    &device.extensions.memory.device_memory
}

/// The upper 16 bits of pointers into the first segment of a device's own memory; those of the others follow.
pub(crate) fn first_tag(device: &DeviceShared) -> u16 {
    match device.capabilities.unified_memory {
        true => UNIFIED_TAG,
        false => memory(device).first_tag,
    }
}

/// The only buffer of a device's table, and the commands to record before the buffer holds all of the table.
type OwnTable = (Option<(u64, wgpu::Buffer)>, Vec<Upload>);

impl DeviceMemory {
    /// The table of allocations in the device's own memory, kept from now on.
    pub(super) fn table(device: &Arc<DeviceShared>) -> Result<OwnTable, HeapError> {
        let mut state = lock(&memory(device).segments);
        let (_, bytes) = state.starts();
        if state.table.is_none() {
            state.table = Some(AllocationTable::new(DEVICE_GRANULE));
            let live: Vec<Allocation> = (state.region.iter())
                .flat_map(|region| region.allocations())
                .collect();
            for one in live {
                state.note_allocated(&one, None);
            }
        }
        let Some(table) = &mut state.table else {
            return Ok((None, Vec::new()));
        };
        table.grow(bytes);
        let (mut buffers, stale) = table.on(device)?;
        match (buffers.pop(), buffers.is_empty()) {
            (last, true) => Ok((last, stale)),
            (_, false) => Err(HeapError::Unsupported {
                device: device.capabilities.name.clone(),
                why: format!(
                    "a table of what is allocated in {bytes} bytes of its own memory is more than it binds at once; \
                     switch DeviceOptions::checked_allocations off"
                ),
            }),
        }
    }

    /// Has the next launch make the device's copy of the table anew.
    pub(super) fn forget_table_copy(device: &DeviceShared) {
        if let Some(table) = &mut lock(&memory(device).segments).table {
            table.forget_copy(device);
        }
    }

    /// The allocation at an address in the device's own memory, now or before.
    pub(super) fn whereabouts(device: &DeviceShared, address: u64) -> Option<Whereabouts> {
        let state = lock(&memory(device).segments);
        let segment = (address >> ADDRESS_BITS).checked_sub(u64::from(first_tag(device)))?;
        let (starts, _) = state.starts();
        let start = starts.get(usize::try_from(segment).ok()?)?;
        let offset = address & ADDRESS_MASK;
        let (_, buffer) = state.buffers.get(segment as usize)?;
        (offset < buffer.size()).then_some(())?;
        Some(state.table.as_ref()?.whereabouts(start + offset))
    }

    /// The segments for kernels' bindings, each with an identity for the bind-group cache.
    pub(crate) fn segments(device: &DeviceShared) -> Vec<(u64, wgpu::Buffer)> {
        lock(&memory(device).segments).buffers.clone()
    }

    /// Resolves a device pointer, which has to lie with `bytes` bytes in one live allocation.
    pub(crate) fn resolve(
        device: &Arc<DeviceShared>,
        what: &'static str,
        address: u64,
        bytes: u64,
    ) -> Result<DevicePlace, HeapError> {
        let missing = HeapError::NotAllocated {
            what,
            address,
            bytes,
        };
        if device.capabilities.unified_memory {
            return match address >> ADDRESS_BITS == u64::from(UNIFIED_TAG) {
                true => Ok(DevicePlace::Shared(address & ADDRESS_MASK)),
                false => Err(missing),
            };
        }
        let state = lock(&memory(device).segments);
        let segment = (address >> ADDRESS_BITS).wrapping_sub(u64::from(first_tag(device)));
        let offset = address & ADDRESS_MASK;
        let (Some(region), Some((id, buffer))) =
            (&state.region, state.buffers.get(segment as usize))
        else {
            return Err(missing);
        };
        let found = (offset >> 32 == 0)
            .then(|| region.find(segment << 32 | offset))
            .flatten();
        match found.map(|found| (found.address & 0xffff_ffff) + found.requested) {
            Some(end) if offset.checked_add(bytes).is_some_and(|last| last <= end) => {
                Ok(DevicePlace::Own {
                    id: *id,
                    buffer: buffer.clone(),
                    offset,
                    end,
                })
            }
            _ => Err(missing),
        }
    }

    #[track_caller]
    fn allocate(device: &DeviceShared, bytes: u64, align: u64) -> Result<u64, HeapError> {
        // So a word of the table belongs to a single allocation.
        let align = align.max(DEVICE_GRANULE);
        let mut state = lock(&memory(device).segments);
        let state = &mut *state;
        let step = own_segment_bytes(&device.limits);
        let region = state.region.get_or_insert_with(|| {
            Region::new(RegionOptions::default().with_growth(step).with_lookup(true))
        });
        if bytes > step || align > step {
            return Err(HeapError::TooLarge {
                bytes,
                limit: step,
                instead: "the device cannot bind it at once; allocate it in parts",
            });
        }
        let most = most_segments(&device.limits);
        let allocation = match region.allocate(bytes, align) {
            Ok(allocation) => allocation,
            Err(_) => {
                // Segments that the driver gives no memory for are no room.
                let full = |region: &Region| {
                    let stats = region.stats();
                    HeapError::OutOfMemory {
                        bytes,
                        in_use: stats.in_use,
                        bound: stats.capacity,
                        largest_free: stats.largest_free,
                        instead: "the driver gives the device no memory for another segment: free something, or use the \
                                  shared heap",
                    }
                };
                if state.buffers.len() >= most {
                    return Err(HeapError::OutOfSegments {
                        bytes,
                        segments: most,
                        device: device.capabilities.name.clone(),
                        bindings: device.limits.max_storage_buffers_per_shader_stage,
                        largest_free: region.stats().largest_free,
                    });
                }
                let size = (bytes.next_multiple_of(4096))
                    .max(SEGMENT_BYTES)
                    .max(region.stats().capacity)
                    .min(step);
                let (buffer, error) = capture(&device.raw, || {
                    device.raw.create_buffer(&wgpu::BufferDescriptor {
                        label: Some("tombolo device memory"),
                        size,
                        usage: wgpu::BufferUsages::STORAGE
                            | wgpu::BufferUsages::UNIFORM
                            | wgpu::BufferUsages::INDIRECT
                            | wgpu::BufferUsages::COPY_SRC
                            | wgpu::BufferUsages::COPY_DST,
                        mapped_at_creation: false,
                    })
                });
                if error.is_some() {
                    return Err(full(region));
                }
                device.submissions.made(&buffer).map_err(Arc::new)?;
                let base = (state.buffers.len() as u64) << 32;
                let added = region.add_block(base, size);
                added.map_err(|_| full(region))?;
                state.buffers.push((unique_id(), buffer));
                region.allocate(bytes, align).map_err(|_| full(region))?
            }
        };
        state.note_allocated(&allocation, place(Location::caller()));
        let segment = allocation.address >> 32;
        let tag = u64::from(first_tag(device)) + segment;
        Ok(tag << ADDRESS_BITS | (allocation.address & 0xffff_ffff))
    }
}

/// Bytes of a device's own memory as something to bind.
pub(crate) fn own_view<T: Pod>(
    device: &Arc<DeviceShared>,
    what: &'static str,
    ptr: Ptr<T>,
    bytes: u64,
) -> Result<BufferView, HeapError> {
    match DeviceMemory::resolve(device, what, ptr.address(), bytes)? {
        DevicePlace::Own {
            id,
            buffer,
            offset,
            end,
        } => Ok(BufferView {
            shared: BufferShared::new(device, buffer, id, true),
            offset,
            bytes,
            element_bytes: size_of::<T>(),
            element: std::any::type_name::<T>(),
            address: ptr.address(),
            out_of_range: None,
            // Allocations are granted whole words.
            padded: offset + bytes == end,
        }),
        DevicePlace::Shared(address) => Err(HeapError::NotAllocated {
            what,
            address,
            bytes,
        }),
    }
}
