//! The host's access to the heap.
//!
//! A kernel that follows pointers may touch any byte. [`SharedHeap::host`](super::SharedHeap::host) therefore waits
//! until every batch of every device that used the heap is over, whatever became of the batches behind it, and keeps
//! commands of devices out while the access lives. Where a device was lost and its driver does not say that its
//! kernels have ended, the heap stays closed (`HeapError::Unproven`). Inside, borrows are Rust's own (`&self` gives
//! `&T`, `&mut self` gives `&mut T`), and every pointer is checked against the live allocations. New allocations are
//! nobody else's yet and never wait; freed memory is kept from reuse while anybody might still look. Locks of the heap
//! are let go before wgpu is asked.
//!
//! A failed launch may have written anywhere in the heap: the next access reports it, once.

use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytemuck::Pod;

use super::{HeapError, HeapShared, InFlight, SharedHeap, State};
use crate::clock::Instant;
use crate::device::submissions::Held;
use crate::device::wait::lock;
use crate::memory::pointer::Ptr;

/// The host's turn with a [`SharedHeap`]: during its life no launch that follows pointers runs, and the values of the
/// heap can be borrowed like any others.
///
/// Shared borrows come from `&self` and exclusive ones from `&mut self`, for the compiler's usual checks. Every pointer
/// is checked when resolved: the whole value has to lie in a live allocation, and be aligned. Allocations that an
/// [`AtomicView`](crate::heap::AtomicView) shows or a [`HeapAllocator`](crate::heap::HeapAllocator) has handed out are refused.
///
/// The access belongs to the thread that got it, where waiting for the access is refused; the thread may lend it to
/// others (`&HostAccess` may be shared) but not give it away:
///
/// ```compile_fail,E0277
/// fn give_away<T: Send>(_: T) {}
/// let heap = tombolo::SharedHeap::new(tombolo::heap::HeapSize::Default).unwrap();
/// give_away(heap.host().unwrap());
/// ```
///
/// A borrower must not ask the heap for an access: such a request would wait for this one.
#[derive(Debug)]
pub struct HostAccess {
    heap: SharedHeap,
    /// Not `Send`: the heap knows the holder by the thread.
    thread: PhantomData<*const ()>,
}

// SAFETY: all that `&HostAccess` gives are shared borrows of the heap's bytes, as `&[u8]` would be, and handles of the heap.
// The access stays with its thread, which drops it.
#[allow(unsafe_code)]
unsafe impl Sync for HostAccess {}

impl SharedHeap {
    /// Waits for every launch in flight with possible accesses to the heap, and for other threads' accesses, which
    /// blocks the calling thread for their duration.
    ///
    /// While the result lives, commands of devices that use the heap are kept out: commands of other threads wait for
    /// its end, unless another policy is set ([`HostAccessPolicy`](crate::heap::HostAccessPolicy)); commands of this thread,
    /// which would wait for itself, are refused. Launches that have nothing to do with the heap go on. So keep the
    /// access short, and wait for no other thread with submissions.
    ///
    /// # Errors
    /// [`HeapError::HostAccess`] when this thread holds an access already; [`HeapError::Execution`] when a launch that
    /// used the heap has failed since the last access, or a device was lost. The failure is reported once: the heap
    /// then holds the results of the failed launch. The same with
    /// [`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler) in a function of the host that serves a call of a
    /// kernel that uses the heap. [`HeapError::Unproven`] as long as the end of kernels of a lost device is unknown.
    pub fn host(&self) -> Result<HostAccess, HeapError> {
        self.host_until(None)
    }

    /// As [`SharedHeap::host`], giving up after `timeout`.
    ///
    /// # Errors
    /// As [`SharedHeap::host`], and [`HeapError::Deadline`].
    pub fn host_timeout(&self, timeout: Duration) -> Result<HostAccess, HeapError> {
        self.host_until(Instant::now().checked_add(timeout))
    }

    fn host_until(&self, deadline: Option<Instant>) -> Result<HostAccess, HeapError> {
        self.shared.entrance.stand_back();
        let (access, waited) = self.quiesce(deadline)?;
        let outcomes = std::mem::take(&mut lock(&self.shared.state).outcomes);
        for last in &waited {
            last.settle();
        }
        outcomes.iter().for_each(|outcome| outcome.resolve());
        // Reported once: another request takes the heap unchanged.
        match outcomes.iter().find_map(|outcome| outcome.failure()) {
            Some(error) => Err(error.into()),
            None => Ok(access),
        }
    }

    /// As [`SharedHeap::host`], without blocking: in a browser there is no other form.
    ///
    /// The future takes the heap at its first poll: until the access is dropped, or the future is, commands of this thread that
    /// use the heap are refused. The future stays with its thread, as the access does.
    ///
    /// ```no_run
    /// # async fn page(heap: tombolo::SharedHeap, sum: tombolo::Ptr<u32>) -> Result<(), tombolo::Error> {
    /// let host = heap.host_async().await?;
    /// println!("{}", host.get(sum)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`SharedHeap::host`]; [`HeapError::HostAccess`] also where another thread has the access, which is not waited for.
    pub async fn host_async(&self) -> Result<HostAccess, HeapError> {
        let shared = &self.shared;
        let batches = {
            let mut state = lock(&shared.state);
            if state.host.is_some() {
                return Err(HeapError::HostAccess {
                    what: "access by the host",
                });
            }
            state.host = Some(std::thread::current().id());
            let batches: Vec<InFlight> = state.in_flight.drain().map(|(_, last)| last).collect();
            state.host_awaits = Some(batches.clone());
            batches
        };
        let access = HostAccess {
            heap: self.clone(),
            thread: PhantomData,
        };
        let mut awaited = Awaited {
            heap: shared,
            batches,
        };
        for one in &awaited.batches {
            if let Err(error) = one.ended().await {
                if error.is_loss() {
                    // A mirror lost with the device is the same news.
                    drop(awaited);
                    let _ = shared.bring_down_for_host_async().await;
                }
                return Err(error);
            }
        }
        let waited = std::mem::take(&mut awaited.batches);
        lock(&shared.state).host_awaits = None;
        let brought_down = shared.bring_down_for_host_async().await;
        shared.looked_in_place();
        let outcomes = std::mem::take(&mut lock(&shared.state).outcomes);
        for last in &waited {
            last.settled(&outcomes).await;
        }
        brought_down?;
        match outcomes.iter().find_map(|outcome| outcome.failure()) {
            Some(error) => Err(error.into()),
            None => Ok(access),
        }
    }

    /// Whether this thread has the heap.
    pub(crate) fn is_held_here(&self) -> bool {
        lock(&self.shared.state).host == Some(std::thread::current().id())
    }

    /// The heap's state at a time without unseen changes in mirrors; failed launches are left for the next
    /// [`HostAccess`] to report.
    pub(super) fn state_without_mirror(&self) -> Result<MutexGuard<'_, State>, HeapError> {
        loop {
            let state = lock(&self.shared.state);
            if !state.mirror_ahead {
                return Ok(state);
            }
            drop(state);
            self.quiesce(None)?;
        }
    }

    /// Keeps launches out, waits for launches in flight, and brings down the changes of mirrors.
    fn quiesce(&self, deadline: Option<Instant>) -> Result<(HostAccess, Vec<InFlight>), HeapError> {
        let _held = Held::new("access to the heap").map_err(Arc::new)?;
        self.shared.may_wait("access to the heap")?;
        let this = std::thread::current().id();
        let mut state = lock(&self.shared.state);
        while let Some(holder) = state.host {
            if holder == this {
                return Err(HeapError::HostAccess {
                    what: "access by the host",
                });
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return Err(HeapError::Deadline);
            }
            let slice = Duration::from_millis(20);
            state = match self.shared.released.wait_timeout(state, slice) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        // From here on launches are refused, so the awaited set does not grow.
        state.host = Some(this);
        let waiting: Vec<InFlight> = state.in_flight.drain().map(|(_, last)| last).collect();
        state.host_awaits = Some(waiting.clone());
        drop(state);
        let access = HostAccess {
            heap: self.clone(),
            thread: PhantomData,
        };
        if let Some(error) = waiting.iter().find_map(|one| one.wait(deadline).err()) {
            // Possibly running launches stay in flight; a lost device without running work is reported once.
            let is_lost = error.is_loss();
            lock(&self.shared.state).still_in_flight(waiting);
            if is_lost {
                // A mirror lost with the device is the same news.
                let _ = self.shared.bring_down_for_host();
            }
            return Err(error);
        }
        lock(&self.shared.state).host_awaits = None;
        self.shared.bring_down_for_host()?;
        self.shared.looked_in_place();
        Ok((access, waiting))
    }
}

/// The batches that an access awaits, which are in flight again where it is given up.
struct Awaited<'h> {
    heap: &'h HeapShared,
    batches: Vec<InFlight>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let batches = std::mem::take(&mut self.batches);
        if !batches.is_empty() {
            lock(&self.heap.state).still_in_flight(batches);
        }
    }
}

impl Drop for HostAccess {
    fn drop(&mut self) {
        let shared = &self.heap.shared;
        let mut state = lock(&shared.state);
        state.host = None;
        state.host_awaits = None;
        state.settle();
        drop(state);
        shared.released.notify_all();
        shared.contract();
    }
}

impl HostAccess {
    /// The heap.
    pub fn heap(&self) -> &SharedHeap {
        &self.heap
    }

    /// The value that `ptr` points to.
    ///
    /// # Errors
    /// [`HeapError::Null`], [`HeapError::NotAllocated`], [`HeapError::Misaligned`],
    /// [`HeapError::DeviceMemory`], [`HeapError::AtomicView`], [`HeapError::Owned`].
    pub fn get<T: Pod>(&self, ptr: Ptr<T>) -> Result<&T, HeapError> {
        let at = self.resolve("a read", ptr, 1)?;
        // SAFETY: `resolve` has checked that a whole, aligned `T` lies there in a live allocation,
        // whose bytes are initialised and any `T`, and that no atomic view or allocator has a claim to
        // it; views are not made while `self` lives. Till then no kernel runs on the heap, the
        // allocation is not reused, and exclusive borrows need `&mut self`.
        #[allow(unsafe_code)]
        Ok(unsafe { &*at })
    }

    /// The value that `ptr` points to, to be changed.
    ///
    /// # Errors
    /// As [`HostAccess::get`].
    pub fn get_mut<T: Pod>(&mut self, ptr: Ptr<T>) -> Result<&mut T, HeapError> {
        let at = self.resolve_mut("a write", ptr, 1)?;
        // SAFETY: as in `get`; `&mut self` makes this the only borrow.
        #[allow(unsafe_code)]
        Ok(unsafe { &mut *at })
    }

    /// The `len` values from `ptr` on.
    ///
    /// # Errors
    /// As [`HostAccess::get`].
    pub fn slice<T: Pod>(&self, ptr: Ptr<T>, len: usize) -> Result<&[T], HeapError> {
        if len == 0 {
            return Ok(&[]);
        }
        let at = self.resolve("a read", ptr, len)?;
        // SAFETY: as in `get`, for `len` values.
        #[allow(unsafe_code)]
        Ok(unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// The `len` values from `ptr` on, to be changed.
    ///
    /// # Errors
    /// As [`HostAccess::get`].
    pub fn slice_mut<T: Pod>(&mut self, ptr: Ptr<T>, len: usize) -> Result<&mut [T], HeapError> {
        if len == 0 {
            return Ok(&mut []);
        }
        let at = self.resolve_mut("a write", ptr, len)?;
        // SAFETY: as in `get_mut`, for `len` values.
        #[allow(unsafe_code)]
        Ok(unsafe { std::slice::from_raw_parts_mut(at, len) })
    }

    /// A range for the host to read.
    pub(super) fn resolve<T: Pod>(
        &self,
        what: &'static str,
        ptr: Ptr<T>,
        len: usize,
    ) -> Result<*const T, HeapError> {
        Ok(self.checked(what, ptr, len, false)?.cast_const())
    }

    /// A range for the host to write: what is never asked for with this is never searched for changes.
    pub(super) fn resolve_mut<T: Pod>(
        &mut self,
        what: &'static str,
        ptr: Ptr<T>,
        len: usize,
    ) -> Result<*mut T, HeapError> {
        self.checked(what, ptr, len, true)
    }

    fn checked<T: Pod>(
        &self,
        what: &'static str,
        ptr: Ptr<T>,
        len: usize,
        writes: bool,
    ) -> Result<*mut T, HeapError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        self.heap.shared.check_host(what, ptr, bytes, writes)?;
        let address = ptr.address();
        Ok(self.heap.shared.host_pointer(address).cast())
    }
}
