//! Allocating and freeing, and the memory behind it.

use std::mem::MaybeUninit;

use bytemuck::Pod;

use super::{
    BINDABLE, FIRST_BYTES, GUARD_BYTES, HeapError, HeapShared, Hold, SEGMENT_BYTES, SharedHeap,
    State, WINDOW_BYTES,
};
use crate::device::wait::lock;
use crate::memory::pointer::{PointerKind, Ptr};
use crate::memory::region::GRANULE;

impl SharedHeap {
    /// Allocates room for a value and puts it there. Never waits for launches.
    ///
    /// # Errors
    /// [`HeapError::OutOfMemory`], [`HeapError::TooLarge`].
    pub fn alloc<T: Pod>(&self, value: T) -> Result<Ptr<T>, HeapError> {
        let bytes = bytemuck::bytes_of(&value);
        let align = align_of::<T>() as u64;
        let fill = |to: &mut [MaybeUninit<u8>]| {
            to.write_copy_of_slice(bytes);
        };
        self.allocate(bytes.len() as u64, align, None, fill)
            .map(Ptr::cast)
    }

    /// Allocates room for some values and puts them there. Never waits for launches. The pointer is
    /// to the first one.
    ///
    /// # Errors
    /// As [`SharedHeap::alloc`], and [`HeapError::Layout`] for no values.
    pub fn alloc_slice<T: Pod>(&self, values: &[T]) -> Result<Ptr<T>, HeapError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let align = BINDABLE.max(align_of::<T>() as u64);
        let fill = |to: &mut [MaybeUninit<u8>]| {
            to.write_copy_of_slice(bytes);
        };
        self.allocate(bytes.len() as u64, align, None, fill)
            .map(Ptr::cast)
    }

    /// Allocates room for `len` zeroed values. Never waits for launches.
    ///
    /// # Errors
    /// As [`SharedHeap::alloc_slice`].
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Ptr<T>, HeapError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let align = BINDABLE.max(align_of::<T>() as u64);
        self.allocate(bytes, align, None, zero).map(Ptr::cast)
    }

    /// Allocates zeroed bytes at an alignment that is a power of two.
    ///
    /// # Errors
    /// As [`SharedHeap::alloc_slice`].
    pub fn alloc_bytes(&self, bytes: u64, align: u64) -> Result<Ptr<u8>, HeapError> {
        self.allocate(bytes, align, None, zero)
    }

    /// `fill` has to set every byte, unless the allocation is [`Hold::Owned`].
    pub(super) fn allocate(
        &self,
        bytes: u64,
        align: u64,
        hold: Option<Hold>,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<Ptr<u8>, HeapError> {
        if bytes == 0 || !align.is_power_of_two() {
            return Err(HeapError::Layout { bytes, align });
        }
        let shared = &self.shared;
        if bytes > WINDOW_BYTES || align > WINDOW_BYTES {
            return Err(shared.too_large(bytes));
        }
        let mut state = match hold {
            // Nobody tells what happens to it, so that it must not be there while a mirror is ahead.
            Some(_) => self.state_without_mirror()?,
            None => lock(&shared.state),
        };
        state.settle();
        // Kernels load and store whole words, and pointers as pairs of them: the region grants whole
        // granules of 16 bytes, of which only what was asked for may be borrowed.
        let align = align.max(GRANULE);
        let allocation = loop {
            match state.region.allocate(bytes, align) {
                Ok(allocation) => break allocation,
                Err(_) => shared.grow(&mut state, bytes, bytes.saturating_add(align))?,
            }
        };
        if let Some(hold) = hold {
            state.holds.insert(allocation.id, hold);
        }
        let address = shared.base() + allocation.address;
        let at = shared.host_pointer(address).cast::<MaybeUninit<u8>>();
        // SAFETY: the range is committed memory of the window that the region has just handed out: no
        // borrow of it exists, since every borrow is checked against the live allocations under this
        // lock, and no kernel was given its address. The bytes may be what a type with padding has
        // left there.
        #[allow(unsafe_code)]
        let to = unsafe { std::slice::from_raw_parts_mut(at, bytes as usize) };
        fill(to);
        state.host_wrote(allocation.address..allocation.address + allocation.size);
        Ok(Ptr::from_address(address))
    }

    /// Frees the allocation that starts at `ptr`. While a launch in flight or a [`HostAccess`](super::HostAccess) might
    /// still look, and while an [`AtomicView`](super::AtomicView) of it lives, its memory is kept from reuse.
    ///
    /// # Errors
    /// [`HeapError::Null`], [`HeapError::Interior`], [`HeapError::NotAllocated`], also when it was
    /// freed before; [`HeapError::Owned`].
    pub fn free<T>(&self, ptr: Ptr<T>) -> Result<(), HeapError> {
        const WHAT: &str = "a free";
        let address = ptr.address();
        match ptr.kind() {
            PointerKind::Null => return Err(HeapError::Null { what: WHAT }),
            PointerKind::Device => {
                return Err(HeapError::DeviceMemory {
                    what: WHAT,
                    address,
                });
            }
            PointerKind::Shared => {}
        }
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        let missing = HeapError::NotAllocated {
            what: WHAT,
            address,
            bytes: 1,
        };
        let Some(found) = shared.find_live(&state, address) else {
            return Err(missing);
        };
        let base = shared.base() + found.address;
        if base != address {
            return Err(HeapError::Interior { address, base });
        }
        if let Some(Hold::Owned) = state.holds.get(&found.id) {
            return Err(HeapError::Owned {
                what: WHAT,
                address,
            });
        }
        state.deferred.insert(found.id);
        state.settle();
        drop(state);
        shared.contract();
        Ok(())
    }
}

impl HeapShared {
    /// The most that one allocation may have.
    fn largest(&self) -> u64 {
        self.bound.min(SEGMENT_BYTES) - GUARD_BYTES
    }

    pub(super) fn too_large(&self, bytes: u64) -> HeapError {
        HeapError::TooLarge {
            bytes,
            limit: self.largest(),
            instead: "allocate it in parts, use a device buffer, or give the context a larger HeapSize",
        }
    }

    /// Backs more of the window with memory, doubling what there is, until `needed` bytes fit.
    ///
    /// Allocations must not cross the segments in which devices bind the heap, and never cross blocks:
    /// a block ends where a segment may.
    pub(super) fn grow(&self, state: &mut State, bytes: u64, needed: u64) -> Result<(), HeapError> {
        if needed > self.largest() {
            return Err(self.too_large(bytes));
        }
        loop {
            let old = state.committed.max(GUARD_BYTES);
            let boundary = (old / SEGMENT_BYTES + 1) * SEGMENT_BYTES;
            let wanted = old
                .max(needed.next_multiple_of(GUARD_BYTES))
                .max(FIRST_BYTES - GUARD_BYTES);
            let new = (old + wanted).min(self.bound).min(boundary);
            if new <= old {
                let stats = state.region.stats();
                return Err(HeapError::OutOfMemory {
                    bytes,
                    in_use: stats.in_use,
                    bound: self.bound,
                    largest_free: stats.largest_free,
                });
            }
            let failed = |error: String| HeapError::NoWindow(error);
            self.window
                .commit(state.committed..new)
                .map_err(|error| failed(error.to_string()))?;
            state
                .region
                .add_block(old, new - old)
                .map_err(|error| failed(error.to_string()))?;
            state.committed = new;
            if new - old >= needed {
                return Ok(());
            }
        }
    }

    /// Bytes from the start that are backed by memory: some, since a kernel that follows no pointer but
    /// null needs something bound, too.
    pub(super) fn committed(&self) -> Result<u64, HeapError> {
        let mut state = lock(&self.state);
        if state.committed == 0 {
            self.grow(&mut state, 1, 16)?;
        }
        Ok(state.committed)
    }
}

pub(super) fn zero(to: &mut [MaybeUninit<u8>]) {
    to.fill(MaybeUninit::new(0));
}
