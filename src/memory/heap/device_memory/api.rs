//! A device's own memory as programs ask for it: [`Device::malloc`], [`Device::find`], [`Device::free`].

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;

use super::{
    ADDRESS_BITS, ADDRESS_MASK, DeviceMemory, DevicePlace, UNIFIED_TAG, first_tag, memory, place,
};
use crate::device::Device;
use crate::device::wait::lock;
use crate::memory::heap::{BINDABLE, HeapAllocation, HeapError, SharedHeap, heap_of};
use crate::memory::pointer::{PointerKind, Ptr};

impl Device {
    /// Allocates room for `len` values in the device's own memory. The pointer may be stored in shared
    /// structures and followed by this device's kernels; the host reaches the values through copies.
    /// The contents are undefined.
    ///
    /// # Errors
    /// [`HeapError::Layout`] for no values, [`HeapError::OutOfMemory`], [`HeapError::OutOfSegments`],
    /// [`HeapError::TooLarge`]; [`HeapError::Execution`] where the device is lost.
    #[track_caller]
    pub fn malloc<T: Pod>(&self, len: usize) -> Result<Ptr<T>, HeapError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let align = (align_of::<T>() as u64).max(BINDABLE);
        self.malloc_bytes(bytes, align).map(Ptr::cast)
    }

    /// As [`Device::malloc`], for bytes at an alignment that is a power of two.
    ///
    /// # Errors
    /// As [`Device::malloc`], and [`HeapError::Layout`] for an alignment that is no power of two.
    #[track_caller]
    pub fn malloc_bytes(&self, bytes: u64, align: u64) -> Result<Ptr<u8>, HeapError> {
        let shared = &self.shared;
        if bytes == 0 || !align.is_power_of_two() {
            return Err(HeapError::Layout { bytes, align });
        }
        shared.lost.check().map_err(Arc::new)?;
        let address = if shared.capabilities.unified_memory {
            let heap: SharedHeap = heap_of(shared)?;
            let address = heap.alloc_bytes(bytes, align)?.address();
            lock(&memory(shared).segments).unified.insert(address);
            u64::from(UNIFIED_TAG) << ADDRESS_BITS | address
        } else {
            DeviceMemory::allocate(shared, bytes, align)?
        };
        Ok(Ptr::from_address(address))
    }

    /// The live allocation around the address, in the shared heap or in this device's own memory, whatever the
    /// pointer's kind; pointers into its middle are fine. `None` for every other pointer. The base has the kind of the
    /// pointer.
    pub fn find<T>(&self, ptr: Ptr<T>) -> Option<HeapAllocation> {
        let (shared, address) = (&self.shared, ptr.address());
        let tag = address & !ADDRESS_MASK;
        match ptr.kind() {
            PointerKind::Null => None,
            PointerKind::Shared => heap_of(shared).ok()?.find(ptr),
            PointerKind::Device if shared.capabilities.unified_memory => {
                if tag != u64::from(UNIFIED_TAG) << ADDRESS_BITS {
                    return None;
                }
                let heap = heap_of(shared).ok()?;
                let found = heap.find(Ptr::<u8>::from_address(address & ADDRESS_MASK))?;
                let is_own = lock(&memory(shared).segments)
                    .unified
                    .contains(&found.base.address());
                is_own.then(|| HeapAllocation {
                    base: Ptr::from_address(found.base.address() | tag),
                    ..found
                })
            }
            PointerKind::Device => {
                let state = lock(&memory(shared).segments);
                let segment =
                    (address >> ADDRESS_BITS).checked_sub(u64::from(first_tag(shared)))?;
                let offset = u32::try_from(address & ADDRESS_MASK).ok()?;
                let found = state
                    .region
                    .as_ref()?
                    .find(segment << 32 | u64::from(offset))?;
                (u64::from(offset) < (found.address & 0xffff_ffff) + found.requested).then(|| {
                    HeapAllocation {
                        base: Ptr::from_address(tag | (found.address & 0xffff_ffff)),
                        size: found.requested,
                    }
                })
            }
        }
    }

    /// Frees an allocation of [`Device::malloc`] or [`Device::malloc_bytes`]. Launches in flight may go on using the
    /// memory.
    ///
    /// # Errors
    /// [`HeapError::NotAllocated`], [`HeapError::Interior`], [`HeapError::Null`]; a pointer into the
    /// shared heap is [`HeapError::NotAllocated`] here.
    #[track_caller]
    pub fn free<T>(&self, ptr: Ptr<T>) -> Result<(), HeapError> {
        const WHAT: &str = "a free";
        let (shared, address) = (&self.shared, ptr.address());
        let missing = HeapError::NotAllocated {
            what: WHAT,
            address,
            bytes: 1,
        };
        match ptr.kind() {
            PointerKind::Null => return Err(HeapError::Null { what: WHAT }),
            PointerKind::Shared => return Err(missing),
            PointerKind::Device => {}
        }
        match DeviceMemory::resolve(shared, WHAT, address, 1)? {
            DevicePlace::Shared(address) => {
                let (heap, ptr) = (heap_of(shared)?, Ptr::<u8>::from_address(address));
                let Some(found) = heap.find(ptr) else {
                    return Err(missing);
                };
                let base = found.base.address();
                // An allocation of the shared heap does not become the device's by its tag. No other lock is held
                // together with the heap's: the heap may ask this module for its segments.
                let mut state = lock(&memory(shared).segments);
                match (state.unified.contains(&base), base == address) {
                    (false, _) => return Err(missing),
                    (true, false) => {
                        let base = u64::from(UNIFIED_TAG) << ADDRESS_BITS | base;
                        let address = ptr.address() | u64::from(UNIFIED_TAG) << ADDRESS_BITS;
                        return Err(HeapError::Interior { address, base });
                    }
                    (true, true) => state.unified.remove(&address),
                };
                drop(state);
                heap.free(ptr)
            }
            DevicePlace::Own { offset, .. } => {
                let mut state = lock(&memory(shared).segments);
                // The pointer was resolved.
                let segment = (address >> ADDRESS_BITS) - u64::from(first_tag(shared));
                let Some(region) = &state.region else {
                    return Err(missing);
                };
                let Some(found) = region.find(segment << 32 | offset) else {
                    return Err(missing);
                };
                let base = found.address & 0xffff_ffff;
                if base != offset {
                    return Err(HeapError::Interior {
                        address,
                        base: address - (offset - base),
                    });
                }
                state.note_freed(&found, place(Location::caller()));
                let Some(region) = &mut state.region else {
                    return Err(missing);
                };
                // The queue is in order: the new user of the place comes after the old one.
                region.free(found.id).map(|_| ()).map_err(|_| missing)
            }
        }
    }
}
