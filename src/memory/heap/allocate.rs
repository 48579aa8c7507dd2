//! Allocating and freeing, and the memory behind allocations.

use std::mem::MaybeUninit;
use std::panic::Location;

use bytemuck::Pod;

use super::allocation_table::place;
use super::size::least_bound;
use super::{
    BINDABLE, FIRST_BYTES, GUARD_BYTES, HeapError, HeapShared, Hold, MOST_BYTES, SEGMENT_BYTES,
    SharedHeap, State,
};
use crate::addresses::region::GRANULE;
use crate::device::wait::lock;
use crate::memory::pointer::{PointerKind, Ptr};

impl SharedHeap {
    /// Allocates room for a value and writes the value there. Never waits for launches.
    ///
    /// # Errors
    /// [`HeapError::OutOfMemory`], [`HeapError::TooLarge`].
    #[track_caller]
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
    #[track_caller]
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
    #[track_caller]
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Ptr<T>, HeapError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let align = BINDABLE.max(align_of::<T>() as u64);
        self.allocate(bytes, align, None, zero).map(Ptr::cast)
    }

    /// Allocates zeroed bytes at an alignment that is a power of two.
    ///
    /// # Errors
    /// As [`SharedHeap::alloc_slice`].
    #[track_caller]
    pub fn alloc_bytes(&self, bytes: u64, align: u64) -> Result<Ptr<u8>, HeapError> {
        self.allocate(bytes, align, None, zero)
    }

    /// As [`Self::alloc_bytes`], with `contents`, and zeros behind them. Never waits, since the bytes are still
    /// private.
    pub(crate) fn alloc_filled(
        &self,
        bytes: u64,
        align: u64,
        contents: &[u8],
    ) -> Result<Ptr<u8>, HeapError> {
        self.allocate(bytes, align, None, |to| {
            let (front, rest) = to.split_at_mut(contents.len().min(to.len()));
            front.write_copy_of_slice(&contents[..front.len()]);
            zero(rest);
        })
    }

    /// `fill` has to set every byte, unless the allocation is [`Hold::Owned`].
    #[track_caller]
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
        shared.look_for_freed();
        let mut state = match hold {
            // Changes there are not reported, so the allocation must not exist while a mirror is ahead.
            Some(_) => self.state_without_mirror()?,
            None => lock(&shared.state),
        };
        state.settle();
        // Kernels load and store whole words, and pointers as pairs of words: the region grants whole granules of 16
        // bytes, and only the requested bytes may be borrowed.
        let align = align.max(GRANULE);
        if align > shared.memory.alignment() {
            // The alignment of an offset says nothing of its address then.
            return Err(shared.too_large(&state, bytes, align));
        }
        let allocation = loop {
            match state.region.allocate(bytes, align) {
                Ok(allocation) => break allocation,
                Err(_) => shared.lay_out(&mut state, bytes, align)?,
            }
        };
        if let Err(error) = shared.back(&mut state, allocation.end()) {
            // The pointer was handed out right here.
            let _ = state.region.free(allocation.id);
            return Err(error);
        }
        if let Some(hold) = hold {
            state.holds.insert(allocation.id, hold);
        }
        shared.note_allocated(&allocation, state.committed, place(Location::caller()));
        let address = shared.base() + allocation.address;
        let at = shared.host_pointer(address).cast::<MaybeUninit<u8>>();
        // SAFETY: the range is committed memory of the window that the region has just handed out: no
        // borrow of it exists, since every borrow is checked against the live allocations under this lock, and no
        // kernel was given its address. The bytes may include padding of an earlier type.
        #[allow(unsafe_code)]
        let to = unsafe { std::slice::from_raw_parts_mut(at, bytes as usize) };
        fill(to);
        state.host_wrote(allocation.address..allocation.end());
        drop(state);
        shared.contract();
        Ok(Ptr::from_address(address))
    }

    /// Frees the allocation that starts at `ptr`. While a launch in flight or a [`HostAccess`](super::HostAccess) might
    /// still look, and during the life of an [`AtomicView`](super::AtomicView) there, the memory is kept from reuse.
    ///
    /// # Errors
    /// [`HeapError::Null`], [`HeapError::Interior`], [`HeapError::NotAllocated`], also when it was
    /// freed before; [`HeapError::Owned`].
    #[track_caller]
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
        shared.note_freed(&found, place(Location::caller()));
        state.deferred.insert(found.id);
        drop(state);
        shared.look_for_freed();
        lock(&shared.state).settle();
        shared.contract();
        Ok(())
    }
}

impl HeapShared {
    /// Lays out another segment of the window, or the rest below the bound.
    ///
    /// Allocations must not cross the segments in which devices bind the heap, and never cross blocks of the
    /// region: each segment is a block.
    fn lay_out(&self, state: &mut State, bytes: u64, align: u64) -> Result<(), HeapError> {
        state.fit_devices();
        if bytes > self.largest(state.bound, state.widest(), align) {
            return Err(self.too_large(state, bytes, align));
        }
        if state.laid_out >= state.bound {
            return Err(self.out_of_memory(state, bytes));
        }
        let start = state.laid_out.max(GUARD_BYTES);
        let end = match bytes > self.largest(state.bound, state.part, align) {
            true => state.wide_end(start.next_multiple_of(align), bytes),
            false => None,
        };
        let end = end.unwrap_or((start / state.part + 1) * state.part);
        let end = end.min(state.bound);
        state
            .region
            .add_block(start, end - start)
            .map_err(|error| HeapError::NoWindow(error.to_string()))?;
        state.laid_out = end;
        Ok(())
    }

    /// The most bytes of an allocation in a heap of `bound` bytes bound in segments of `part` bytes, when everything
    /// else is freed.
    fn largest(&self, bound: u64, part: u64, align: u64) -> u64 {
        if align > self.memory.alignment() {
            return 0;
        }
        let starts = (0..bound).step_by(part as usize);
        let rooms = starts.map(|start| {
            let first = start.max(GUARD_BYTES).next_multiple_of(align);
            let end = (start + part).min(bound);
            end.saturating_sub(first)
        });
        rooms.max().unwrap_or(0)
    }

    fn too_large(&self, state: &State, bytes: u64, align: u64) -> HeapError {
        let part = state.widest();
        let limit = self.largest(state.bound, part, align);
        // Whether the alignment is the obstacle, or the bound, or the segments.
        let instead = if align > self.memory.alignment() {
            "alignments are 4 GiB at most in a heap in place, 2 MiB in memory that a device has mapped, and 64 KiB in the \
             block of a page; ask for a smaller alignment"
        } else if limit < self.largest(MOST_BYTES, part, align) {
            match self.memory.fixed() {
                None => {
                    "allocate it in parts, use a device buffer, or give the context a larger HeapSize"
                }
                Some(_) => self.memory.limit(),
            }
        } else if part < SEGMENT_BYTES {
            "a device of the context binds less than 128 MiB at once, and an allocation lies in one of its \
             segments; allocate it in parts, use a device buffer, or raise \
             DeviceOptions::storage_binding_bytes if that was lowered"
        } else if part == SEGMENT_BYTES {
            "devices bind a heap in segments of 128 MiB, and a kernel chooses the segment once for each \
             pointer that it follows, so that an allocation lies in one; allocate it in parts, or use a \
             device buffer"
        } else {
            "an allocation lies in one segment, which is what every device of the context binds at once \
             (max_storage_buffer_binding_size, and 2 GiB in any case); allocate it in parts, or use a device buffer"
        };
        HeapError::TooLarge {
            bytes,
            limit,
            instead,
        }
    }

    fn out_of_memory(&self, state: &State, bytes: u64) -> HeapError {
        let stats = state.region.stats();
        HeapError::OutOfMemory {
            bytes,
            in_use: stats.in_use,
            bound: state.bound,
            largest_free: stats.largest_free,
            instead: if state.bound - stats.in_use.min(state.bound) >= bytes {
                "so much is free, but in no one gap: allocate it in parts, or free what lies between the gaps"
            } else if state.bound >= MOST_BYTES {
                "free something, or use device buffers besides: no heap is larger"
            } else {
                match self.memory.fixed() {
                    None => "free something, or give the context a larger HeapSize",
                    Some(_) => self.memory.limit(),
                }
            },
        }
    }

    /// Backs the heap with memory up to `end`, at least doubling the memory, so a heap growing step by step is not
    /// imported again at each step.
    fn back(&self, state: &mut State, end: u64) -> Result<(), HeapError> {
        let old = state.committed;
        if end <= old {
            return Ok(());
        }
        let exact = end.next_multiple_of(GUARD_BYTES);
        let start = self.size.start();
        let ample = (old + old.max(end - old)).max(start);
        let ample = match state.part < FIRST_BYTES {
            // Each segment costs kernels a binding.
            true if start > FIRST_BYTES => end.max(start).next_multiple_of(state.part),
            true => end.next_multiple_of(state.part),
            false => ample.next_multiple_of(GUARD_BYTES).max(exact),
        };
        let ample = ample.min(state.bound.max(exact));
        // A system that has not so much left may still have enough.
        let new = match self.memory.commit(old..ample) {
            Ok(()) => ample,
            Err(_) => {
                self.memory.commit(old..exact)?;
                exact
            }
        };
        state.committed = new;
        self.grown.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        state.backed = state.backed.max(new);
        Ok(())
    }

    /// Bytes from the start backed by memory: some, since a kernel that follows no pointer but null needs something
    /// bound, too.
    pub(super) fn committed(&self) -> Result<u64, HeapError> {
        let mut state = lock(&self.state);
        self.back(&mut state, 1)?;
        Ok(state.committed)
    }
}

impl State {
    /// Has the largest segments fit the devices of today: a device that is gone limits no allocation. Without any, the
    /// last ones are the best guess, as long as they bound no less than is usual.
    fn fit_devices(&mut self) {
        let last = self.widest.map(|bytes| bytes.max(SEGMENT_BYTES));
        self.widest = least_bound(&mut self.binders).or(last);
    }

    /// Bytes of the widest segment for an allocation.
    fn widest(&self) -> u64 {
        self.widest.unwrap_or(SEGMENT_BYTES).max(self.part)
    }

    /// The end of a segment for an allocation from `first` on that the usual segments are too small for, if one can begin
    /// there. It ends where a usual one may begin.
    fn wide_end(&self, first: u64, bytes: u64) -> Option<u64> {
        let widest = self.widest();
        let end = (first / widest + 1) * widest;
        let needed = first + bytes;
        (needed <= end.min(self.bound)).then(|| needed.next_multiple_of(self.part).min(end))
    }
}

pub(super) fn zero(to: &mut [MaybeUninit<u8>]) {
    to.fill(MaybeUninit::new(0));
}
