//! The memory of a heap: pages of the host imported by devices, or memory mapped by a single device.
//!
//! # Mapped heaps
//!
//! Where no device of the context imports when the heap is first asked for, but one has live memory, the heap *is*
//! memory that this device has mapped for good: host and kernels use the same bytes while kernels run, as with an
//! import. The base lies where the driver maps it, so that kernels subtract its low word, which a uniform gives them
//! (the code is another one, and importing devices do not pay for it). Three things are different, and reported:
//!
//! - The size is fixed, at most one binding of the device: what is mapped cannot grow in place, and further mappings
//!   would lie at unrelated addresses, which neither one subtraction nor the segment bits of a pointer can reach.
//! - All of that memory is taken at once, though devices with copies see only as much as the heap has grown to.
//! - No other device can share the memory: others keep mirrors, also those that could import, and also when the first
//!   device is dropped.
//!
//! The mapping lives as long as the heap, whatever becomes of the device (`device/live.rs`), so that no borrow ever
//! dangles. `SharedHeap::tier` says which devices use the heap in place.

// Mapped memory is reached through pointers.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::block::{self, Block};
use super::device_memory::DeviceMemory;
use super::{DeviceView, GUARD_BYTES, HeapError, WINDOW_BYTES};
use crate::device::heap_shape::segment_bytes;
use crate::device::live::{LiveBuffer, Reader};
use crate::device::window::{Window, WindowError};
use crate::device::{DeviceShared, unique_id};

/// The heap's base in mapped memory is a multiple of this, and no larger alignment can be had there.
const LIVE_ALIGNMENT: u64 = 2 << 20;

/// The memory of a heap, by offsets from its base.
pub(super) enum Memory {
    /// A span of address space at a multiple of 4 GiB; memory comes and goes inside.
    Window(Arc<Window>),
    /// Memory mapped for good by a device, all of it from the beginning.
    Live(LiveMemory),
    /// Ordinary memory, where no device can use the host's in place.
    Block(Block),
}

/// Mapped memory of a device.
///
/// The device, or objects destroyed together with it by wgpu, may go at any time: the mapping stays until this value is
/// dropped (`device/live.rs`), not before the last borrow of the heap.
pub(super) struct LiveMemory {
    buffer: LiveBuffer,
    /// Identity of the buffer, for the bind-group cache.
    id: u64,
    /// Identity of the device with access in place.
    device: u64,
    /// Bytes of the mapping in front of the heap's base.
    front: u64,
    /// Bytes of the heap.
    size: u64,
}

impl Memory {
    /// The heap's first address.
    pub(super) fn base(&self) -> u64 {
        match self {
            Self::Window(window) => window.base().as_ptr() as u64,
            Self::Live(live) => live.address() + live.front,
            Self::Block(_) => block::BASE,
        }
    }

    /// The address of an offset as a pointer of this process.
    pub(super) fn pointer(&self, offset: u64) -> *mut u8 {
        // Both fit: windows and mappings are parts of the address space.
        match self {
            Self::Window(window) => window.base().as_ptr().wrapping_add(offset as usize),
            Self::Live(live) => {
                let at = live.front + offset;
                live.buffer.as_ptr().as_ptr().wrapping_add(at as usize)
            }
            Self::Block(block) => block.pointer(offset),
        }
    }

    /// The alignment of the base.
    pub(super) fn alignment(&self) -> u64 {
        match self {
            Self::Window(_) => WINDOW_BYTES,
            Self::Live(_) => LIVE_ALIGNMENT,
            Self::Block(_) => Block::ALIGNMENT,
        }
    }

    /// The bytes present from the beginning, and never given back.
    pub(super) fn fixed(&self) -> Option<u64> {
        match self {
            Self::Window(_) => None,
            Self::Live(live) => Some(live.size),
            Self::Block(block) => Some(block.size()),
        }
    }

    /// Puts zeroed memory behind a range without memory.
    pub(super) fn commit(&self, range: Range<u64>) -> Result<(), WindowError> {
        match self {
            Self::Window(window) => window.commit(range),
            // The device has them from the beginning, and since they were last taken away.
            Self::Live(_) | Self::Block(_) => Ok(()),
        }
    }

    /// Takes memory away again, and says how many bytes the system has got back.
    ///
    /// # Safety
    /// The range is neither borrowed nor allocated, and no kernel with access runs.
    pub(super) unsafe fn decommit(&self, range: Range<u64>) -> Result<u64, WindowError> {
        let bytes = range.end - range.start;
        match self {
            Self::Window(window) => window.decommit(range).map(|()| bytes),
            Self::Live(_) | Self::Block(_) => {
                debug_assert!(self.fixed().is_some_and(|size| range.end <= size));
                let at = self.pointer(range.start);
                // SAFETY: the range lies in the mapping or the block, and nobody uses it: the caller's promise.
                unsafe { at.write_bytes(0, bytes as usize) };
                Ok(0)
            }
        }
    }
}

impl Memory {
    /// The address by which kernels know a place of the host; none of the heap's for a place elsewhere.
    pub(super) fn address_of(&self, place: u64) -> u64 {
        match self {
            Self::Window(_) | Self::Live(_) => place,
            Self::Block(block) => block.address_of(place),
        }
    }

    /// Why a fixed size, or a small alignment, is what it is.
    pub(super) fn limit(&self) -> &'static str {
        match self {
            Self::Window(_) | Self::Live(_) => {
                "the heap lies in memory that a device has mapped, at most one binding of it; allocate it in parts, use a \
                 device buffer, or give the context a larger HeapSize"
            }
            Self::Block(_) => {
                "the heap of a page is one block; allocate it in parts, use a device buffer, or give the context a larger \
                 HeapSize"
            }
        }
    }
}

impl LiveMemory {
    /// Maps memory of `device` for a heap of up to `wanted` bytes: as much as the device's binding limit allows.
    pub(super) fn new(device: &DeviceShared, wanted: u64) -> Result<Self, HeapError> {
        let unsupported = |why: String| HeapError::Unsupported {
            device: device.capabilities.name.clone(),
            why,
        };
        // In front, because the base is aligned; behind, because unchecked kernels following null arrive at the end,
        // where they are kept within the binding.
        let total = wanted + LIVE_ALIGNMENT + GUARD_BYTES;
        let total = total.min(segment_bytes(&device.limits));
        let backend = device.capabilities.backend;
        let buffer = LiveBuffer::new(&device.raw, backend, Reader::Host, total, "shared heap")
            .map_err(|error| unsupported(error.to_string()))?;
        let address = buffer.as_ptr().addr().get() as u64;
        // The base, a multiple of all of these, has to be at a bindable offset.
        let limits = &device.limits;
        let aligned = [
            limits.min_storage_buffer_offset_alignment,
            limits.min_uniform_buffer_offset_alignment,
        ];
        let is_aligned = |&to: &u32| address.is_multiple_of(u64::from(to));
        if !aligned.iter().all(is_aligned) || (address + total) >> 48 != 0 {
            let why = format!("its driver maps memory at {address:#x}, where pointers cannot be");
            return Err(unsupported(why));
        }
        let front = address.next_multiple_of(LIVE_ALIGNMENT) - address;
        let size = buffer.len().saturating_sub(front + GUARD_BYTES);
        let size = (size - size % GUARD_BYTES).min(wanted);
        if size < 2 * GUARD_BYTES {
            return Err(unsupported("it maps too little memory".to_owned()));
        }
        Ok(Self {
            buffer,
            id: unique_id(),
            device: device.id,
            front,
            size,
        })
    }

    /// Whether the device sees the memory in place.
    pub(super) fn is_of(&self, device: &DeviceShared) -> bool {
        self.device == device.id
    }

    /// The device's view of the memory, for a heap grown to `covered` bytes.
    pub(super) fn view(&self, device: &Arc<DeviceShared>, covered: u64) -> DeviceView {
        DeviceView {
            owner: Arc::downgrade(device),
            base: self.address() + self.front,
            front: self.front,
            covered,
            segments: vec![(self.id, self.buffer.buffer().clone())],
            own: DeviceMemory::segments(device),
            tables: Vec::new(),
            own_table: None,
        }
    }

    fn address(&self) -> u64 {
        self.buffer.as_ptr().addr().get() as u64
    }
}
