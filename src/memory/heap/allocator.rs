//! Ordinary Rust collections in the heap, by way of the `allocator-api2` interface.

use std::alloc::Layout;
use std::num::NonZero;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use super::{HeapError, HeapShared, Hold, SharedHeap};
use crate::device::wait::lock;
use crate::memory::pointer::Ptr;

/// Puts Rust collections into a [`SharedHeap`]: `allocator_api2::vec::Vec`, `allocator_api2::boxed::Box`, and
/// collections of other crates with support for [`Allocator`], such as hashbrown's `HashMap`.
///
/// Made by [`SharedHeap::allocator`], whose docs give the obligations. Its blocks are governed by Rust's own borrows: a
/// [`HostAccess`](crate::heap::HostAccess), an [`AtomicView`](crate::heap::AtomicView), [`SharedHeap::free`] and transfers on the
/// host refuse such a block with [`HeapError::Owned`]. Launches take blocks like everything else in the heap, by the
/// pointers from [`SharedHeap::pointer_to`].
///
/// Allocation never waits for launches. Memory that is given back while a launch in flight might still
/// look, or the host has access, is kept from reuse until then.
#[derive(Debug, Clone)]
pub struct HeapAllocator {
    heap: SharedHeap,
}

impl SharedHeap {
    /// An allocator for Rust collections in this heap.
    ///
    /// ```
    /// # use tombolo::{SharedHeap, heap::HeapSize};
    /// use tombolo::allocator_api2::vec::Vec;
    ///
    /// let heap = SharedHeap::new(HeapSize::Default)?;
    /// // SAFETY: this program launches nothing.
    /// let allocator = unsafe { heap.allocator() };
    /// let mut values = Vec::new_in(allocator);
    /// values.extend([1u32, 2, 3]);
    /// assert!(heap.pointer_to(values.as_ptr()).is_some());
    /// # Ok::<(), tombolo::heap::HeapError>(())
    /// ```
    ///
    /// While any of its blocks lives, launches using the heap are refused on devices with a copy
    /// ([`Tier::CoarseGrained`](crate::device::Tier::CoarseGrained)): the host's changes there would go unnoticed.
    ///
    /// # Safety
    /// Launches are safe to submit and write where their kernels please, unseen by Rust. The maker of an allocator
    /// therefore answers, until all blocks of the allocator and its clones are given back, for every launch, and every
    /// transfer on a device, that can reach such a block: as an argument, by following a pointer (a stale or made-up
    /// one, too), or by running over from elsewhere. "In flight" means from the submission of the launch until
    /// [`Event::wait`](crate::Event::wait), [`Device::finish`](crate::Device::finish) or [`SharedHeap::host`] has shown
    /// its end.
    ///
    /// - While a launch that may *write* bytes of a block is in flight, no reference to these bytes may exist and
    ///   nothing may read or write them. The collection owning the block counts as long as used: indexing, growing,
    ///   iterating and dropping (where elements are dropped) all touch the block. Moving the handle itself does not.
    /// - While a launch that may *read* bytes of a block is in flight, nothing may write them.
    ///   Dropping elements that need no drop, and growing (which moves the values and leaves the
    ///   old block untouched), are fine; the launch goes on seeing the old block.
    /// - A launch's results in a block have to be valid for the type there: no `bool` of 2, no dangling `Box`. Lengths
    ///   and capacities are in the handle, which a kernel reaches only if the handle itself lies in the heap.
    /// - A failed launch may have written any part of its output.
    ///
    /// Launches that only touch other allocations of the heap need no care.
    #[allow(unsafe_code)]
    pub unsafe fn allocator(&self) -> HeapAllocator {
        HeapAllocator { heap: self.clone() }
    }

    /// The address of an object in the heap, for kernels to follow: an element of a collection with a
    /// [`HeapAllocator`], or a loan of a [`HostAccess`](crate::heap::HostAccess). `None` where `place` is not within a live
    /// allocation of this heap.
    pub fn pointer_to<T>(&self, place: *const T) -> Option<Ptr<T>> {
        let ptr = Ptr::from_address(self.shared.memory.address_of(place as u64));
        self.find(ptr).map(|_| ptr)
    }
}

impl HeapAllocator {
    /// The heap.
    pub fn heap(&self) -> &SharedHeap {
        &self.heap
    }

    fn block(&self, layout: Layout, zeroed: bool) -> Result<NonNull<[u8]>, HeapError> {
        let bytes = layout.size();
        if bytes == 0 {
            // No memory, but the address has to be aligned. Alignments are at least 1.
            let address = NonZero::new(layout.align()).unwrap_or(NonZero::<usize>::MIN);
            let at = NonNull::without_provenance(address);
            return Ok(NonNull::slice_from_raw_parts(at, 0));
        }
        let heap = &self.heap;
        let align = layout.align() as u64;
        let ptr = heap.allocate(bytes as u64, align, Some(Hold::Owned), |to| {
            if zeroed {
                super::zero(to);
            }
        })?;
        let at = heap.shared.host_pointer(ptr.address());
        match NonNull::new(at) {
            Some(at) => Ok(NonNull::slice_from_raw_parts(at, bytes)),
            None => Err(HeapError::Null {
                what: "an allocation",
            }),
        }
    }
}

// SAFETY: a block is an allocation of the region, which overlaps no other and is given to nobody else
// until it is freed; only `deallocate` frees what is `Owned`. Its memory is mapped as long as the window,
// which lives as long as any clone of the heap and so of the allocator. All clones are the same heap.
#[allow(unsafe_code)]
unsafe impl Allocator for HeapAllocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.block(layout, false).map_err(|_| AllocError)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.block(layout, true).map_err(|_| AllocError)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            let shared = &self.heap.shared;
            shared.give_back(shared.memory.address_of(ptr.as_ptr() as u64));
        }
    }
}

impl HeapShared {
    /// Frees the block of an allocator that starts at `address`.
    pub(super) fn give_back(&self, address: u64) {
        let mut state = lock(&self.state);
        // Always found: the caller of `deallocate` vouches for the block.
        if let Some(found) = self.find_live(&state, address) {
            state.holds.remove(&found.id);
            // Mirrors have not seen its use.
            state.host_wrote(found.address..found.end());
            self.note_freed(&found, None);
            state.deferred.insert(found.id);
            state.settle();
        }
        drop(state);
        self.contract();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as Reference;

    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec as HeapVec;
    use hashbrown::{DefaultHashBuilder, HashMap};

    use super::*;
    use crate::memory::heap::HeapSize;

    fn heap() -> (SharedHeap, HeapAllocator) {
        let heap = SharedHeap::new(HeapSize::Bytes(64 << 20)).unwrap();
        // SAFETY: these tests have no device.
        #[allow(unsafe_code)]
        let allocator = unsafe { heap.allocator() };
        (heap, allocator)
    }

    fn is_owned(error: &HeapError) -> bool {
        matches!(error, HeapError::Owned { .. })
    }

    #[test]
    fn collections_agree_with_those_of_the_global_heap() {
        let (heap, allocator) = heap();
        let mut map: HashMap<u32, HeapVec<u8, HeapAllocator>, DefaultHashBuilder, HeapAllocator> =
            HashMap::new_in(allocator.clone());
        let mut reference: Reference<u32, Vec<u8>> = Reference::new();
        let mut random = 1u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (key, byte) = (random >> 20 & 0x3ff, (random >> 12) as u8);
            if random >> 30 == 0 {
                let removed = map.remove(&key).map(|vec| vec.to_vec());
                assert_eq!(removed, reference.remove(&key));
            } else {
                map.entry(key)
                    .or_insert_with(|| HeapVec::new_in(allocator.clone()))
                    .push(byte);
                reference.entry(key).or_default().push(byte);
            }
        }
        assert_eq!(map.len(), reference.len());
        for (key, bytes) in &reference {
            let vec = &map[key];
            assert_eq!(vec[..], bytes[..]);
            let ptr = heap.pointer_to(vec.as_ptr()).unwrap();
            assert_eq!(ptr.address(), vec.as_ptr() as u64);
        }
        // A table, and a block for each vector.
        assert_eq!(heap.allocations().len(), reference.len() + 1);
        drop(map);
        assert_eq!(heap.allocations(), []);
    }

    #[test]
    fn layouts_of_every_kind() {
        #[repr(align(4096))]
        struct Page(u8);

        let (heap, allocator) = heap();
        let page = Box::new_in(Page(7), allocator.clone());
        assert_eq!((&raw const *page as usize % 4096, page.0), (0, 7));
        let mut nothing = HeapVec::new_in(allocator.clone());
        nothing.extend([(); 1000]);
        assert_eq!((nothing.len(), heap.allocations().len()), (1000, 1));
        let empty: HeapVec<u64, _> = HeapVec::new_in(allocator.clone());
        let boxed = empty.into_boxed_slice();
        assert_eq!((boxed.len(), heap.allocations().len()), (0, 1));
        for align in [1, 16, 1 << 16] {
            let layout = Layout::from_size_align(0, align).unwrap();
            let block = allocator.allocate(layout).unwrap();
            assert_eq!((block.len(), block.addr().get() % align), (0, 0));
            // SAFETY: it was allocated with this layout.
            #[allow(unsafe_code)]
            unsafe {
                allocator.deallocate(block.cast(), layout);
            }
        }
        let mut vec: HeapVec<u32, _> = HeapVec::new_in(allocator.clone());
        assert!(vec.try_reserve(1 << 30).is_err());
        vec.extend(0..1000);
        vec.truncate(3);
        vec.shrink_to_fit();
        assert_eq!((&vec[..], vec.capacity()), (&[0, 1, 2][..], 3));
        drop((page, nothing, boxed, vec));
        assert_eq!(heap.allocations(), []);
    }

    #[test]
    fn nothing_else_reaches_what_rust_owns() {
        let (heap, allocator) = heap();
        let mut vec: HeapVec<u32, _> = HeapVec::new_in(allocator);
        vec.extend([1, 2, 3]);
        let ptr = heap.pointer_to(vec.as_ptr()).unwrap();
        assert!(is_owned(&heap.free(ptr).unwrap_err()));
        assert!(is_owned(&heap.atomic_u32(ptr).unwrap_err()));
        assert!(is_owned(&heap.read(ptr, 1).unwrap_err()));
        assert!(is_owned(&heap.write(ptr, &[9]).unwrap_err()));
        assert!(is_owned(
            &heap.host().unwrap().get_mut(ptr.add(2)).unwrap_err()
        ));
        let other = heap.alloc(5u32).unwrap();
        assert!(is_owned(&heap.copy(other, ptr, 1).unwrap_err()));
        assert!(is_owned(&heap.copy(ptr, other, 1).unwrap_err()));
        assert_eq!(vec[..], [1, 2, 3]);
        assert_eq!(heap.pointer_to(&raw const ptr), None);
    }

    #[test]
    fn blocks_stay_while_the_host_looks_and_come_back_clean() {
        let (heap, allocator) = heap();
        let mut vec = HeapVec::new_in(allocator);
        // Seven bytes of each value are padding, which Rust leaves undefined.
        vec.extend((0..64).map(|i| (i as u8, u64::MAX)));
        let place = heap.pointer_to(vec.as_ptr()).unwrap().address();
        let bytes = vec.capacity() * 16;
        let host = heap.host().unwrap();
        drop(vec);
        assert_ne!(heap.alloc_zeroed::<u8>(bytes).unwrap().address(), place);
        drop(host);
        let again = heap.alloc_bytes(bytes as u64, 16).unwrap();
        assert_eq!(again.address(), place);
        assert_eq!(heap.read(again, bytes).unwrap(), vec![0; bytes]);
    }
}
