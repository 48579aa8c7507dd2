//! Words of the heap that host and running kernels use at the same time.
//!
//! An allocation may be *claimed* by an [`AtomicView`](super::AtomicView) or by a Rust value with a
//! [`HeapAllocator`](super::HeapAllocator). Every other way in is refused by allocation, so that a mailbox does not
//! close the rest of the heap.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::{HeapError, Hold, SharedHeap, State};
use crate::addresses::region::AllocationId;
use crate::device::wait::lock;
use crate::memory::pointer::Ptr;

/// Words of a [`SharedHeap`] as atomics, for host and kernels at the same time: dereferences to
/// [`AtomicU32`] or `[AtomicU32]`, or to [`AtomicU64`] or `[AtomicU64]`, with all their operations and orderings.
///
/// Launches go on while views exist, and views may be used on every thread meanwhile. A kernel's side of the
/// conversation are `atomic<u32>` at the same addresses, or `atomic<u64>` where the device has
/// [`Aspect::Atomic64`](crate::device::Aspect::Atomic64); WGSL's atomics are relaxed, so a kernel's other writes are
/// only certain to be seen after the end of the launch.
///
/// Certain on every device: the host sees the kernels' writes after the end of their launch, and kernels see the host's
/// writes from before their submission. Visibility *during* a launch depends on the device:
///
/// - Where host and device share all memory ([`Capabilities::unified_memory`](crate::device::Capabilities)) and the device has
///   [`Aspect::LiveMemory`](crate::device::Aspect::LiveMemory), either side sees the other's stores while both run.
/// - A device with memory of its own reaches the heap across a bus. A running kernel may go on seeing a cached value of
///   a word, whatever the host stores meanwhile: an NVIDIA H200 behaves so. [`Device::live`](crate::Device::live) gives
///   words that a running kernel does see there.
/// - An operation with a read and a write (`atomicAdd`, `fetch_add`) is atomic for both sides on software adapters,
///   whose kernels run on the host's processors. No graphics interface promises such atomicity elsewhere: let a single
///   side write a word.
///
/// The host sees an allocation either through views or through a [`HostAccess`](crate::heap::HostAccess): a view is refused
/// while one is alive, and an access refuses to resolve pointers into an allocation of which a view exists
/// ([`HeapError::AtomicView`]); other allocations are not affected. The views of one allocation are all of 32 bits or all
/// of 64, since Rust forbids atomics of two sizes on the same bytes: a view of the other size is refused in the same way. A
/// freed allocation is not reused before its last
/// view is dropped.
#[derive(Debug)]
pub struct AtomicView<T: ?Sized = [AtomicU32]> {
    heap: SharedHeap,
    /// `None` for a view of nothing.
    allocation: Option<AllocationId>,
    at: NonNull<T>,
}

// SAFETY: a view is a reference to a `T`, kept valid by the hold in the heap's state, and a heap, which
// is both itself.
#[allow(unsafe_code)]
unsafe impl<T: ?Sized + Sync> Send for AtomicView<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: ?Sized + Sync> Sync for AtomicView<T> {}

impl SharedHeap {
    /// The word at `ptr` as an atomic, whether or not kernels run.
    ///
    /// While the view lives, launches using the heap are refused on devices with a copy
    /// ([`Tier::CoarseGrained`](crate::device::Tier::CoarseGrained)): the host's changes there would go unnoticed. Devices that
    /// choose ([`SharedHeap::residence`]) work in place meanwhile. Launches on a copy that has changes are waited for.
    ///
    /// # Errors
    /// [`HeapError::HostAccess`] while this thread has a [`HostAccess`](crate::heap::HostAccess), whereas another thread's is
    /// waited for; [`HeapError::Owned`] for blocks of a [`HeapAllocator`](crate::heap::HeapAllocator);
    /// [`HeapError::AtomicView`] while there is a view of 64 bits of the allocation; [`HeapError::Null`],
    /// [`HeapError::NotAllocated`], [`HeapError::Misaligned`], [`HeapError::DeviceMemory`].
    pub fn atomic_u32(&self, ptr: Ptr<u32>) -> Result<AtomicView<AtomicU32>, HeapError> {
        self.atomic(ptr)
    }

    /// The 64 bits at `ptr` as an atomic, whether or not kernels run: also a pointer, whose 64 bits a kernel changes at once.
    ///
    /// # Errors
    /// As [`SharedHeap::atomic_u32`], with [`HeapError::Misaligned`] for an address that is no multiple of 8; and
    /// [`HeapError::AtomicView`] while there is a view of 32 bits of the allocation, or a function of the host reads or writes
    /// the allocation for a kernel.
    pub fn atomic_u64(&self, ptr: Ptr<u64>) -> Result<AtomicView<AtomicU64>, HeapError> {
        self.atomic(ptr)
    }

    /// The `len` words from `ptr` on as atomics, whether or not kernels run.
    ///
    /// # Errors
    /// As [`SharedHeap::atomic_u32`]; no words are never an error.
    pub fn atomic_u32_slice(
        &self,
        ptr: Ptr<u32>,
        len: usize,
    ) -> Result<AtomicView<[AtomicU32]>, HeapError> {
        self.atomics(ptr, len)
    }

    /// The `len` values of 64 bits from `ptr` on as atomics, whether or not kernels run.
    ///
    /// # Errors
    /// As [`SharedHeap::atomic_u64`]; no values are never an error.
    pub fn atomic_u64_slice(
        &self,
        ptr: Ptr<u64>,
        len: usize,
    ) -> Result<AtomicView<[AtomicU64]>, HeapError> {
        self.atomics(ptr, len)
    }

    fn atomic<A: AtomicScalar>(&self, ptr: Ptr<A::Scalar>) -> Result<AtomicView<A>, HeapError> {
        let allocation = self.hold(ptr, 1)?;
        Ok(AtomicView {
            heap: self.clone(),
            allocation: Some(allocation),
            at: self.atomic_at(ptr)?,
        })
    }

    fn atomics<A: AtomicScalar>(
        &self,
        ptr: Ptr<A::Scalar>,
        len: usize,
    ) -> Result<AtomicView<[A]>, HeapError> {
        let (allocation, first) = match len {
            0 => (None, NonNull::dangling()),
            _ => (Some(self.hold(ptr, len)?), self.atomic_at(ptr)?),
        };
        Ok(AtomicView {
            heap: self.clone(),
            allocation,
            at: NonNull::slice_from_raw_parts(first, len),
        })
    }

    /// Counts another view of the allocation around the words.
    fn hold<W: bytemuck::Pod>(&self, ptr: Ptr<W>, len: usize) -> Result<AllocationId, HeapError> {
        const WHAT: &str = "an atomic view";
        let width = size_of::<W>() as u64;
        let bytes = (len as u64).saturating_mul(width);
        // Atomics are aligned to their size on all systems, and numbers of 64 bits are not.
        if !ptr.address().is_multiple_of(width) {
            return Err(HeapError::Misaligned {
                what: WHAT,
                address: ptr.address(),
                align: width,
                element: std::any::type_name::<W>(),
            });
        }
        let mut state = loop {
            let state = self.state_without_mirror()?;
            match state.host {
                None => break state,
                Some(holder) if holder == std::thread::current().id() => {
                    return Err(HeapError::HostAccess { what: WHAT });
                }
                Some(_) => drop(state),
            }
            self.shared.await_host(None);
        };
        let (_, found) = self.shared.locate(&state, WHAT, ptr, bytes)?;
        state.add_view(found.id, size_of::<W>(), WHAT, ptr.address())?;
        Ok(found.id)
    }

    /// The view of `len` words for which a hold of `allocation`, which has them, was counted.
    pub(super) fn held(
        &self,
        ptr: Ptr<u32>,
        len: usize,
        allocation: AllocationId,
    ) -> Result<AtomicView<[AtomicU32]>, HeapError> {
        Ok(AtomicView {
            heap: self.clone(),
            allocation: Some(allocation),
            at: NonNull::slice_from_raw_parts(self.atomic_at(ptr)?, len),
        })
    }

    fn atomic_at<A: AtomicScalar>(&self, ptr: Ptr<A::Scalar>) -> Result<NonNull<A>, HeapError> {
        let at = self.shared.host_pointer(ptr.address()).cast();
        NonNull::new(at).ok_or(HeapError::Null {
            what: "an atomic view",
        })
    }
}

impl State {
    /// Counts another view of an allocation, of atomics of `bytes` bytes; `address` is the view's.
    pub(super) fn add_view(
        &mut self,
        allocation: AllocationId,
        bytes: usize,
        what: &'static str,
        address: u64,
    ) -> Result<(), HeapError> {
        let none = Hold::Atomics { views: 0, bytes };
        match self.holds.entry(allocation).or_insert(none) {
            Hold::Atomics { views, bytes: of } if *of == bytes => {
                *views += 1;
                Ok(())
            }
            Hold::Atomics { .. } => Err(HeapError::AtomicView { what, address }),
            Hold::Owned => Err(HeapError::Owned { what, address }),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::sync::atomic::AtomicU32 {}
    impl Sealed for std::sync::atomic::AtomicU64 {}
    impl<A: Sealed> Sealed for [A] {}
}

/// An atomic of the standard library that an [`AtomicView`] shows.
trait AtomicScalar: AtomicTarget<Scalar: bytemuck::Pod> + Sized {}

impl AtomicScalar for AtomicU32 {}
impl AtomicScalar for AtomicU64 {}

/// What an [`AtomicView`] dereferences to: an [`AtomicU32`] or an [`AtomicU64`], or a slice of either.
pub trait AtomicTarget: sealed::Sealed {
    /// The scalar inside.
    type Scalar;
}

impl AtomicTarget for AtomicU32 {
    type Scalar = u32;
}

impl AtomicTarget for AtomicU64 {
    type Scalar = u64;
}

impl<A: AtomicTarget> AtomicTarget for [A] {
    type Scalar = A::Scalar;
}

impl<T: AtomicTarget + ?Sized> AtomicView<T> {
    /// The address of the first atomic.
    pub fn pointer(&self) -> Ptr<T::Scalar> {
        Ptr::from_address(self.address())
    }
}

impl<T: ?Sized> AtomicView<T> {
    /// The heap.
    pub fn heap(&self) -> &SharedHeap {
        &self.heap
    }

    fn address(&self) -> u64 {
        self.at.cast::<u8>().as_ptr() as u64
    }
}

impl<T: ?Sized> Deref for AtomicView<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: made of aligned atomics within one live allocation, whose bytes are initialised. While
        // the view lives its hold keeps the allocation from reuse, and every other kind of borrow by the
        // host out of it, as well as atomics of another size; devices may write, as any other agent may
        // write an atomic.
        #[allow(unsafe_code)]
        unsafe {
            self.at.as_ref()
        }
    }
}

impl<T: ?Sized> Clone for AtomicView<T> {
    fn clone(&self) -> Self {
        if let Some(allocation) = self.allocation {
            let mut state = lock(&self.heap.shared.state);
            // Present, since this view counts.
            if let Some(Hold::Atomics { views, .. }) = state.holds.get_mut(&allocation) {
                *views += 1;
            }
        }
        Self {
            heap: self.heap.clone(),
            allocation: self.allocation,
            at: self.at,
        }
    }
}

impl<T: ?Sized> Drop for AtomicView<T> {
    fn drop(&mut self) {
        let Some(allocation) = self.allocation else {
            return;
        };
        let mut state = lock(&self.heap.shared.state);
        if let Some(Hold::Atomics { views, .. }) = state.holds.get_mut(&allocation) {
            *views -= 1;
            if *views == 0 {
                state.holds.remove(&allocation);
                // Mirrors have not seen its changes. The allocation is not reused before.
                let offset = self.address() - self.heap.shared.base();
                if let Some(found) = state.region.find(offset) {
                    state.host_wrote(found.address..found.end());
                }
                state.settle();
            }
        }
        drop(state);
        self.heap.shared.contract();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

    use super::*;
    use crate::memory::heap::HeapSize;

    fn heap() -> SharedHeap {
        SharedHeap::new(HeapSize::Bytes(64 << 20)).unwrap()
    }

    #[test]
    fn threads_count_in_one_word() {
        fn is_shared<T: Send + Sync>(value: T) -> T {
            value
        }
        let heap = heap();
        let words = heap.alloc_zeroed::<u32>(4).unwrap();
        let view = is_shared(heap.atomic_u32_slice(words, 4).unwrap());
        assert_eq!((view.len(), view.pointer()), (4, words));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let view = view.clone();
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        view[0].fetch_add(1, Relaxed);
                        let turn = |n| (n % 4 == thread).then_some(n + 1);
                        while view[1].fetch_update(AcqRel, Acquire, turn).is_err() {
                            std::thread::yield_now();
                        }
                        if view[1].load(Acquire) > 400 {
                            break;
                        }
                    }
                });
            }
        });
        view[3].store(9, Release);
        assert_eq!(view[3].compare_exchange(9, 10, AcqRel, Acquire), Ok(9));
        assert_eq!(view[3].compare_exchange(9, 11, AcqRel, Acquire), Err(10));
        let (count, turns) = (view[0].load(Acquire), view[1].load(Acquire));
        assert!(
            turns > 400 && turns <= 404 && count == turns,
            "{turns} {count}"
        );
        drop(view);
        assert_eq!(heap.read(words, 4).unwrap(), [count, turns, 0, 10]);
    }

    #[test]
    fn views_of_64_bits_count_beyond_32() {
        let heap = heap();
        let sums = heap.alloc_slice(&[u64::from(u32::MAX); 3]).unwrap();
        let view = heap.atomic_u64_slice(sums.add(1), 2).unwrap();
        assert_eq!((view.len(), view.pointer()), (2, sums.add(1)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let view = view.clone();
                scope.spawn(move || {
                    for _ in 0..1000 {
                        view[0].fetch_add(1 << 31, Relaxed);
                    }
                });
            }
        });
        view[1].store(u64::MAX, Release);
        drop(view);
        let all = u64::from(u32::MAX);
        assert_eq!(
            heap.read(sums, 3).unwrap(),
            [all, all + (4000 << 31), u64::MAX]
        );
        let one = heap.atomic_u64(sums).unwrap();
        assert_eq!(one.swap(7, AcqRel), all);
        assert_eq!(one.pointer(), sums);
    }

    #[test]
    fn views_of_one_allocation_have_one_size() {
        let heap = heap();
        let sums = heap.alloc_zeroed::<u64>(4).unwrap();
        let words = sums.cast::<u32>();
        let is_viewed = |error| matches!(error, HeapError::AtomicView { .. });
        let wide = heap.atomic_u64(sums).unwrap();
        assert!(is_viewed(heap.atomic_u32(words.add(7)).unwrap_err()));
        let clone = wide.clone();
        drop(wide);
        assert!(is_viewed(heap.atomic_u32_slice(words, 2).unwrap_err()));
        drop(clone);
        let narrow = heap.atomic_u32(words).unwrap();
        assert!(is_viewed(heap.atomic_u64(sums.add(3)).unwrap_err()));
        assert!(is_viewed(heap.atomic_u64_slice(sums, 4).unwrap_err()));
        drop(narrow);
        heap.atomic_u64_slice(sums, 4).unwrap();
        for (ptr, len) in [(sums, 5), (sums.add(4), 1), (sums, usize::MAX)] {
            assert!(matches!(
                heap.atomic_u64_slice(ptr, len),
                Err(HeapError::NotAllocated { .. })
            ));
        }
        assert!(matches!(
            heap.atomic_u64(sums.byte_add(4)),
            Err(HeapError::Misaligned { align: 8, .. })
        ));
        assert!(heap.atomic_u64_slice(Ptr::null(), 0).unwrap().is_empty());
        // A refusal left nothing behind.
        heap.write(sums, &[1, 2, 3, 4]).unwrap();
    }

    #[test]
    fn views_and_accesses_keep_out_of_each_others_way() {
        let heap = heap();
        let words = heap.alloc_zeroed::<u32>(8).unwrap();
        let other = heap.alloc(1u32).unwrap();
        let view = heap.atomic_u32(words.add(3)).unwrap();
        let mut host = heap.host().unwrap();
        let is_viewed = |error| matches!(error, HeapError::AtomicView { .. });
        // Any word of the allocation: a slice could span them all.
        assert!(is_viewed(host.get(words).unwrap_err()));
        assert!(is_viewed(host.slice_mut(words.add(5), 2).unwrap_err()));
        assert!(is_viewed(host.copy(other, words, 1).unwrap_err()));
        *host.get_mut(other).unwrap() += 1;
        for refused in [
            heap.atomic_u32(words).map(|_| ()),
            heap.atomic_u32(other).map(|_| ()),
            heap.atomic_u32_slice(words, 2).map(|_| ()),
        ] {
            assert!(matches!(refused, Err(HeapError::HostAccess { .. })));
        }
        // An existing view may go on, and be cloned.
        let clone = view.clone();
        clone.store(5, Release);
        drop(view);
        assert!(is_viewed(host.get(words).unwrap_err()));
        drop(clone);
        assert_eq!(host.slice(words, 4).unwrap(), [0, 0, 0, 5]);
        drop(host);
        assert_eq!(heap.atomic_u32(other).unwrap().load(Acquire), 2);
    }

    #[test]
    fn freed_words_stay_until_the_last_view_goes() {
        let heap = heap();
        let words = heap.alloc_zeroed::<u32>(64).unwrap();
        let view = heap.atomic_u32(words).unwrap();
        let clone = view.clone();
        heap.free(words).unwrap();
        assert!(heap.find(words).is_none());
        assert!(matches!(
            heap.atomic_u32(words),
            Err(HeapError::NotAllocated { .. })
        ));
        let used = heap.statistics().in_use;
        drop(view);
        assert_eq!(heap.statistics().in_use, used);
        // Room for new allocations is elsewhere.
        let others: Vec<_> = (0..64)
            .map(|_| heap.alloc_zeroed::<u8>(16).unwrap())
            .collect();
        let end = words.address() + 256;
        assert!(
            others
                .iter()
                .all(|p| !(words.address()..end).contains(&p.address()))
        );
        assert_eq!(clone.fetch_add(3, AcqRel), 0);
        assert_eq!(clone.load(Acquire), 3);
        let used = heap.statistics().in_use;
        drop(clone);
        assert_eq!(heap.statistics().in_use, used - 256);
    }

    #[test]
    fn pointers_are_checked() {
        let heap = heap();
        let words = heap.alloc_zeroed::<u32>(4).unwrap();
        assert!(matches!(
            heap.atomic_u32(Ptr::null()),
            Err(HeapError::Null { .. })
        ));
        assert!(matches!(
            heap.atomic_u32(words.byte_add(2)),
            Err(HeapError::Misaligned { align: 4, .. })
        ));
        assert!(matches!(
            heap.atomic_u32(Ptr::from_address(u64::MAX - 3)),
            Err(HeapError::DeviceMemory { .. })
        ));
        for (ptr, len) in [(words, 5), (words.add(4), 1), (words, usize::MAX)] {
            assert!(matches!(
                heap.atomic_u32_slice(ptr, len),
                Err(HeapError::NotAllocated { .. })
            ));
        }
        assert!(heap.atomic_u32_slice(Ptr::null(), 0).unwrap().is_empty());
        // A refusal left nothing behind.
        heap.write(words, &[1, 2, 3, 4]).unwrap();
    }
}
