//! A whole buffer of a context: the books about its bytes, and its memory in each place.
//!
//! Each buffer has one lock. A thread with several buffers takes the locks in the order of the buffers' numbers, before
//! locks of a device or of the heap; code that runs under a queue's lock never takes a buffer's. A thread with a buffer
//! may submit, and wgpu runs callbacks of the program meanwhile: callbacks are refused buffers ([`Root::enter`]), since
//! the lock may be held by the same thread.
//!
//! A launch locks its roots, has memory made, carries the plan out, is recorded, and notes its writes, all before the
//! unlock: so the order of launches is the order of versions.
//!
//! A device gets memory for the whole root, whatever part is used: offsets in the device's memory are offsets in the
//! root, so a part is bound in place, and another part costs no allocation. Programs whose devices should have memory
//! for disjoint parts alone use several buffers.

mod uses;

use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard};

use bytemuck::Pod;

use super::Placement;
use super::common::{Living, Turns};
use super::context::ContextBuffers;
use super::device_allocation::DeviceAllocation;
use super::device_places::DevicePlaces;
use super::error::BufferError;
use super::statistics::BufferStatistics;
use crate::device::outcome::{Outcome, Taint};
use crate::device::submissions::Held;
use crate::device::unique_id;
use crate::device::wait::lock;
use crate::extensions::ContextExtensions;
use crate::memory::heap::SharedHeap;
use crate::memory::migrate::{Place, Plan, Residency, Routes};
use crate::memory::pointer::Ptr;
use crate::memory::{HeapError, MemoryError, host_memory};
use uses::InUse;

/// A buffer, with all its parts.
pub(crate) struct Root {
    pub(super) id: u64,
    pub(super) bytes: u64,
    /// The buffer lives in the heap, used or not.
    is_shared: bool,
    /// Of the buffer's context.
    pub(super) extensions: Arc<ContextExtensions>,
    state: Mutex<State>,
    /// Mappings dropped by the program, and not yet removed from `maps`.
    unmapped: Mutex<Vec<u64>>,
}

/// The state of a buffer under its lock.
pub(crate) struct State {
    pub(super) residency: Residency,
    pub(super) home: Home,
    /// The host's own memory, once there is some. Bytes never written are zero.
    pub(super) host: Option<Box<dyn HostBytes>>,
    /// Launches of uncertain outcome with results in the host's memory.
    pub(super) host_taint: Taint,
    /// By place, without the host's.
    copies: Vec<Option<DeviceAllocation>>,
    pub(super) living: Living,
    /// How often the buffer had to leave a block because of another argument in the block.
    pub(super) departures: u8,
    pub(super) maps: Vec<Mapping>,
    /// Bytes on their way to devices, each range with the outcome of its transfer.
    pub(super) arrivals: Vec<(Arc<Outcome>, Place, Range<u64>)>,
    /// The devices at the places.
    pub(super) devices: DevicePlaces,
    /// The ways between the places.
    pub(super) routes: Routes,
    /// Commands not known to have ended, with their numbers in the residency. There are few.
    uses: Vec<(u64, InUse)>,
    /// Without the moves, counted by the residency.
    pub(super) statistics: BufferStatistics,
}

/// Where a buffer lives.
pub(super) enum Home {
    /// Each device has memory of its own.
    Apart,
    /// In the context's heap, seen by all devices.
    Heap {
        heap: Option<SharedHeap>,
        /// Null before the first use.
        ptr: Ptr<u8>,
        /// The allocation is freed with the buffer.
        owned: bool,
    },
}

/// Bytes mapped by the host.
pub(super) struct Mapping {
    pub(super) id: u64,
    pub(super) range: Range<u64>,
    pub(super) writing: bool,
}

/// Memory of the host, of any element type.
pub(crate) trait HostBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<T: Pod + Send + Sync> HostBytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }
}

/// A buffer locked by a thread.
pub(crate) struct Locked<'r> {
    state: MutexGuard<'r, State>,
    _held: Held,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Root {
    pub(super) fn new(
        extensions: &Arc<ContextExtensions>,
        bytes: u64,
        placement: Placement,
        host: Option<Box<dyn HostBytes>>,
    ) -> Arc<Self> {
        let home = match placement {
            Placement::Auto | Placement::Device => Home::Apart,
            Placement::Shared => Home::Heap {
                heap: None,
                ptr: Ptr::null(),
                owned: true,
            },
        };
        let root = Self::with_home(extensions, bytes, home, host);
        if placement == Placement::Auto {
            root.lock().living = Living::Apart(Turns::default());
        }
        root
    }

    pub(super) fn with_home(
        extensions: &Arc<ContextExtensions>,
        bytes: u64,
        home: Home,
        host: Option<Box<dyn HostBytes>>,
    ) -> Arc<Self> {
        let mut residency = Residency::new(bytes);
        let is_written = host.is_some() || matches!(home, Home::Heap { owned: false, .. });
        if is_written {
            // The range is the whole buffer, so this cannot fail.
            let _ = residency.wrote(Place::HOST, 0..bytes);
        }
        let root = Arc::new(Self {
            id: unique_id(),
            bytes,
            is_shared: matches!(home, Home::Heap { .. }),
            extensions: Arc::clone(extensions),
            unmapped: Mutex::default(),
            state: Mutex::new(State {
                residency,
                home,
                host,
                host_taint: Taint::default(),
                copies: Vec::new(),
                living: Living::default(),
                departures: 0,
                maps: Vec::new(),
                arrivals: Vec::new(),
                devices: DevicePlaces::default(),
                routes: Routes::new(),
                uses: Vec::new(),
                statistics: BufferStatistics::default(),
            }),
        });
        root.context().join(&root);
        root
    }

    /// Whether the buffer lives in the heap, used or not.
    pub(super) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The heap of the context.
    pub(super) fn heap(&self) -> Result<SharedHeap, HeapError> {
        self.extensions.heap.heap()
    }

    pub(super) fn context(&self) -> &ContextBuffers {
        &self.extensions.buffers
    }

    /// Takes the buffer for a command of the program.
    ///
    /// # Errors
    /// [`BufferError::Execution`] with [`ExecutionError::InCallback`](crate::device::ExecutionError::InCallback).
    pub(super) fn enter(&self, what: &'static str) -> Result<Locked<'_>, BufferError> {
        let held = Held::new(what).map_err(Arc::new)?;
        Ok(self.locked(held))
    }

    /// Takes the buffer, for callers that have entered or have [`Held`] otherwise.
    pub(super) fn lock(&self) -> Locked<'_> {
        self.locked(Held::counted())
    }

    fn locked(&self, held: Held) -> Locked<'_> {
        self.begun(lock(&self.state), held)
    }

    fn begun<'r>(&'r self, mut state: MutexGuard<'r, State>, held: Held) -> Locked<'r> {
        if !state.maps.is_empty() {
            let gone = std::mem::take(&mut *lock(&self.unmapped));
            state.maps.retain(|map| !gone.contains(&map.id));
        }
        Locked { state, _held: held }
    }

    /// Drops a mapping, also in a callback run by a call with the buffer locked.
    pub(super) fn unmap(&self, id: u64) {
        lock(&self.unmapped).push(id);
        drop(self.look());
    }

    /// `None` while another caller has the lock.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        use std::sync::TryLockError;
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.begun(state, Held::counted()))
    }

    /// Takes the buffer for short work that cannot fail; `None` in a callback if the buffer is locked.
    pub(super) fn look(&self) -> Option<Locked<'_>> {
        match Held::is_refused() {
            true => self.try_lock(),
            false => Some(self.lock()),
        }
    }

    /// Enters a plan that was carried out.
    pub(super) fn commit(&self, state: &mut State, plan: &Plan) -> Result<(), BufferError> {
        state.residency.commit(plan).map_err(BufferError::Migrate)?;
        self.context().count(|totals| totals.moves.add(plan));
        Ok(())
    }
}

impl State {
    pub(super) fn copy(&self, place: Place) -> Option<&DeviceAllocation> {
        let at = (place.index() as usize).checked_sub(1)?;
        self.copies.get(at)?.as_ref()
    }

    pub(super) fn copy_mut(&mut self, place: Place) -> Option<&mut DeviceAllocation> {
        let at = (place.index() as usize).checked_sub(1)?;
        self.copies.get_mut(at)?.as_mut()
    }

    pub(super) fn put_copy(&mut self, place: Place, copy: DeviceAllocation) {
        let Some(at) = (place.index() as usize).checked_sub(1) else {
            return;
        };
        if self.copies.len() <= at {
            self.copies.resize_with(at + 1, || None);
        }
        self.copies[at] = Some(copy);
    }

    pub(super) fn take_copy(&mut self, place: Place) -> Option<DeviceAllocation> {
        let at = (place.index() as usize).checked_sub(1)?;
        self.copies.get_mut(at)?.take()
    }

    /// The memory at all places, without the host's.
    pub(super) fn all_copies(&self) -> impl Iterator<Item = &DeviceAllocation> {
        self.copies.iter().flatten()
    }

    /// The places with memory, without the host's.
    pub(super) fn places(&self) -> Vec<Place> {
        let with = (self.copies.iter().enumerate()).filter(|(_, copy)| copy.is_some());
        with.filter_map(|(at, _)| Place::new(at as u32 + 1).ok())
            .collect()
    }

    /// The host's memory, made if there is none.
    ///
    /// # Errors
    /// [`MemoryError::HostMemory`].
    pub(super) fn host_bytes(
        &mut self,
        what: &'static str,
        bytes: u64,
    ) -> Result<&mut [u8], MemoryError> {
        let host = match self.host.take() {
            Some(host) => host,
            None => Box::new(host_memory::zeroed::<u8>(what, bytes as usize)?),
        };
        Ok(self.host.insert(host).bytes_mut())
    }

    /// Refuses a command that meets mapped bytes: a write meets any mapping of `range`, a read only mappings for
    /// writing.
    pub(super) fn check_maps(
        &self,
        what: &'static str,
        range: &Range<u64>,
        writes: bool,
        own: Option<u64>,
    ) -> Result<(), BufferError> {
        let meets = |map: &&Mapping| {
            Some(map.id) != own
                && map.range.start < range.end
                && range.start < map.range.end
                && (map.writing || writes)
        };
        match self.maps.iter().find(meets) {
            None => Ok(()),
            Some(map) => Err(BufferError::Mapped {
                what,
                range: map.range.clone(),
                writing: map.writing,
            }),
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let extensions = Arc::clone(&self.extensions);
        let state = self
            .state
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Home::Heap {
            heap: Some(heap),
            ptr,
            owned: true,
        } = &state.home
            && !ptr.is_null()
        {
            // The allocation belongs to this buffer, and `free` waits for launches in flight.
            let _ = heap.free(*ptr);
        }
        if let Living::Together { memory, .. } = std::mem::take(&mut state.living) {
            let exchange = &extensions.buffers.exchange;
            exchange.give(memory, state.unfinished_ends());
        }
    }
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Root")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
