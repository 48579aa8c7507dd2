//! The shared heap: memory in which a value has one address, and Rust and WGSL both follow it.
//!
//! The heap is a span of host address space whose base is a multiple of 4 GiB, so that the low word of
//! a pointer is its byte offset. Each device of the context *imports* the part that is in use, and
//! kernels on all of them see the same bytes. Memory is added to the end of that part as it is needed,
//! and no address ever changes.
//!
//! Who may look when: a kernel that follows pointers may touch any byte of the heap, so the host looks
//! through a [`HostAccess`], which waits for the launches in flight and keeps new ones out while it
//! lives. New allocations are nobody else's yet, and are filled without waiting. Words that host and
//! running kernels use at the same time are seen through an [`AtomicView`], and allocations whose
//! values are ordinary Rust ones come from a [`HeapAllocator`]; a `HostAccess` stays out of both.

mod access;
mod allocator;
mod atomics;
mod copies;
pub(crate) mod device_memory;
mod devices;
mod error;
mod lookup;
mod mirror;
#[cfg(test)]
mod tests;
mod transfer;
mod trim;

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use bytemuck::Pod;

pub use access::HostAccess;
pub use allocator::HeapAllocator;
pub use atomics::AtomicView;
pub use error::HeapError;
pub use mirror::MirrorStatistics;

use super::pointer::{PointerKind, Ptr};
use super::region::{AllocationId, GRANULE, Region, RegionOptions, RegionStats};
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::wait::{Progress, lock, wait_for};
use crate::device::window::Window;
use crate::device::{Device, DeviceShared};
pub(crate) use devices::{DeviceView, segment_bytes};
pub(crate) use mirror::Turn;

/// Bytes at the start of the heap that are never handed out: null lies there, and so does whatever a
/// null pointer to a structure would reach.
const GUARD_BYTES: u64 = 64 << 10;
/// The first part of the heap that is backed by memory; it doubles when it is full.
const FIRST_BYTES: u64 = 16 << 20;
/// The smallest segment in which a device binds the heap: the storage binding that WebGPU guarantees.
const SEGMENT_BYTES: u64 = 128 << 20;
/// The largest alignment that WebGPU allows an adapter to ask of a binding's offset.
const BINDABLE: u64 = 256;
/// The most that low words can address.
const WINDOW_BYTES: u64 = 4 << 30;

/// How large a context's heap may grow. Where the system does not tell how much memory it has (Windows),
/// 8 GiB are assumed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum HeapSize {
    /// One eighth of the machine's memory, at most 4 GiB.
    Default,
    /// This part of the machine's memory, at most 4 GiB.
    Fraction(f64),
    /// This many bytes, at most 4 GiB; rounded up to whole pages.
    Bytes(u64),
    /// Up to three quarters of the machine's memory, at most 4 GiB; memory at the end of the heap is given
    /// back once three quarters of it have been free for `contract_after`.
    Adaptive {
        /// How long the heap must have been mostly free, each time that something is freed.
        contract_after: Duration,
    },
}

/// Memory shared by the host and every device of a context.
///
/// Handles are cheap to clone; the memory goes with the last one and the last launch that uses it.
#[derive(Clone)]
pub struct SharedHeap {
    pub(crate) shared: Arc<HeapShared>,
}

pub(crate) struct HeapShared {
    window: Arc<Window>,
    size: HeapSize,
    /// Bytes that the heap may grow to.
    bound: u64,
    state: Mutex<State>,
    /// Wakes who waits for another thread's [`HostAccess`].
    released: Condvar,
    /// What each device has imported.
    views: Mutex<HashMap<u64, DeviceView>>,
    /// Counts how often a device was about to import what it had imported already.
    imports: AtomicU64,
    /// Copies of the heap on devices that cannot import it.
    mirrors: mirror::Mirrors,
}

struct State {
    region: Region,
    /// Bytes from the start that are backed by memory.
    committed: u64,
    /// Since when most of the heap is free.
    roomy_since: Option<Instant>,
    /// The thread that holds a [`HostAccess`].
    host: Option<ThreadId>,
    /// The last batch of each device that used the heap; queues are in order.
    in_flight: HashMap<u64, InFlight>,
    /// Freed while somebody might still look.
    deferred: HashSet<AllocationId>,
    /// Allocations to which somebody has a claim of their own.
    holds: HashMap<AllocationId, Hold>,
    /// Launches that used the heap and may have failed: the next access of the host is told.
    outcomes: Vec<Arc<Outcome>>,
    /// Counts whatever may have changed the heap's bytes, but for kernels on mirrors and `fresh`.
    version: u64,
    /// A mirror has changes that did not come down.
    mirror_ahead: bool,
    /// What was allocated since the mirror that is ahead was brought up to date.
    fresh: mirror::RangeSet,
}

/// Why the host may not simply borrow an allocation.
enum Hold {
    /// This many [`AtomicView`]s exist: the bytes may be seen as atomics only, and stay where they are.
    Atomics(usize),
    /// A [`HeapAllocator`] has handed it out: Rust's own borrows rule there.
    Owned,
}

#[derive(Clone)]
struct InFlight {
    id: u64,
    /// Weak, since devices know the heap: a device that is gone runs nothing.
    device: Weak<DeviceShared>,
    batch: Arc<Batch>,
}

/// A live allocation, as [`SharedHeap::find`] reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapAllocation {
    /// The address of its first byte.
    pub base: Ptr<u8>,
    /// Bytes that were asked for.
    pub size: u64,
}

impl InFlight {
    fn is_done(&self) -> bool {
        let Some(device) = self.device.upgrade() else {
            return true;
        };
        match self.batch.submission() {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(index)) => {
                let now = Some(Duration::ZERO);
                wait_for(&device.raw, &device.lost, index, now) != Progress::Pending
            }
        }
    }
}

impl State {
    /// Notes that the host has written a range of the heap, given by its offsets, without having had
    /// access to all of it: mirrors get it whatever they hold, and their own bytes there are void.
    fn host_wrote(&mut self, range: std::ops::Range<u64>) {
        if self.mirror_ahead {
            self.fresh.insert(range);
        } else {
            self.version += 1;
        }
    }

    /// Frees what was put off, once nobody can look any more.
    fn settle(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        self.in_flight.retain(|_, last| !last.is_done());
        if self.in_flight.is_empty() && self.host.is_none() {
            let Self { region, holds, .. } = self;
            self.deferred.retain(|&id| {
                let stays = holds.contains_key(&id);
                if !stays {
                    // It was live when it was put off, and nobody else frees by id.
                    let _ = region.free(id);
                }
                stays
            });
        }
    }
}

impl SharedHeap {
    /// Reserves address space for a heap; memory comes as it is needed.
    ///
    /// # Errors
    /// [`HeapError::NoWindow`] where the system has no room in its address space, or no way to ask.
    pub fn new(size: HeapSize) -> Result<Self, HeapError> {
        let window = Window::reserve(WINDOW_BYTES)
            .map_err(|error| HeapError::NoWindow(error.to_string()))?;
        let bound = size.bytes().clamp(2 * GUARD_BYTES, WINDOW_BYTES);
        Ok(Self {
            shared: Arc::new(HeapShared {
                window,
                size,
                bound: bound.next_multiple_of(GUARD_BYTES),
                state: Mutex::new(State {
                    region: Region::new(
                        RegionOptions::default()
                            .with_growth(bound)
                            .with_lookup(true),
                    ),
                    committed: 0,
                    roomy_since: None,
                    host: None,
                    in_flight: HashMap::new(),
                    deferred: HashSet::new(),
                    holds: HashMap::new(),
                    outcomes: Vec::new(),
                    version: 0,
                    mirror_ahead: false,
                    fresh: mirror::RangeSet::default(),
                }),
                released: Condvar::new(),
                views: Mutex::default(),
                imports: AtomicU64::new(0),
                mirrors: mirror::Mirrors::default(),
            }),
        })
    }

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
    fn allocate(
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

    /// Frees the allocation that starts at `ptr`. While a launch in flight or a [`HostAccess`] might
    /// still look, and while an [`AtomicView`] of it lives, its memory is kept from reuse.
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

    /// The live allocation that contains the address; pointers into its middle are fine.
    pub fn find<T>(&self, ptr: Ptr<T>) -> Option<HeapAllocation> {
        let shared = &self.shared;
        let state = lock(&shared.state);
        let found = shared.find_live(&state, ptr.address())?;
        Some(HeapAllocation {
            base: Ptr::from_address(shared.base() + found.address),
            size: found.requested,
        })
    }

    /// The address at which the heap begins: a multiple of 4 GiB.
    pub fn base(&self) -> Ptr<u8> {
        Ptr::from_address(self.shared.base())
    }

    /// Bytes that the heap may grow to.
    pub fn bound(&self) -> u64 {
        self.shared.bound
    }

    /// The live allocations, in no particular order: what is left when everything should have been
    /// freed has leaked.
    pub fn allocations(&self) -> Vec<HeapAllocation> {
        let mut state = lock(&self.shared.state);
        state.settle();
        let base = self.shared.base();
        state
            .region
            .allocations()
            .filter(|allocation| !state.deferred.contains(&allocation.id))
            .map(|allocation| HeapAllocation {
                base: Ptr::from_address(base + allocation.address),
                size: allocation.requested,
            })
            .collect()
    }

    /// How the heap is used now: bytes in use, the largest gap, fragmentation, the peak.
    pub fn statistics(&self) -> RegionStats {
        let mut state = lock(&self.shared.state);
        state.settle();
        state.region.stats()
    }
}

impl HeapShared {
    pub(crate) fn base(&self) -> u64 {
        self.window.base().as_ptr() as u64
    }

    /// The address as a pointer of this process. It has to lie in the committed part.
    fn host_pointer(&self, address: u64) -> *mut u8 {
        let offset = (address - self.base()) as usize;
        self.window.base().as_ptr().wrapping_add(offset)
    }

    /// The most that one allocation may have.
    fn largest(&self) -> u64 {
        self.bound.min(SEGMENT_BYTES) - GUARD_BYTES
    }

    fn too_large(&self, bytes: u64) -> HeapError {
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
    fn grow(&self, state: &mut State, bytes: u64, needed: u64) -> Result<(), HeapError> {
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
    fn committed(&self) -> Result<u64, HeapError> {
        let mut state = lock(&self.state);
        if state.committed == 0 {
            self.grow(&mut state, 1, 16)?;
        }
        Ok(state.committed)
    }

    /// Notes that `batch` of `device`, whose turn it is, uses the heap.
    pub(crate) fn enter(
        &self,
        device: &Arc<DeviceShared>,
        batch: &Arc<Batch>,
        outcome: Option<&Arc<Outcome>>,
    ) -> Result<(), HeapError> {
        let outcomes = outcome.map(std::slice::from_ref).unwrap_or_default();
        self.enter_for("a launch", device, batch, outcomes)
    }

    fn enter_for(
        &self,
        what: &'static str,
        device: &Arc<DeviceShared>,
        batch: &Arc<Batch>,
        outcomes: &[Arc<Outcome>],
    ) -> Result<(), HeapError> {
        let mut state = lock(&self.state);
        if state.host.is_some() {
            return Err(HeapError::HostAccess { what });
        }
        let last = InFlight {
            id: device.id,
            device: Arc::downgrade(device),
            batch: Arc::clone(batch),
        };
        state.in_flight.insert(last.id, last);
        if !mirror::is_mirrored(device) {
            state.version += 1;
        }
        if !outcomes.is_empty() {
            // Now and then, so that a long batch does not look at all of them each time.
            if state.outcomes.len().is_power_of_two() {
                state.outcomes.retain(|known| !known.succeeded());
            }
            state.outcomes.extend_from_slice(outcomes);
        }
        Ok(())
    }
}

fn zero(to: &mut [MaybeUninit<u8>]) {
    to.fill(MaybeUninit::new(0));
}

/// The heap of a context, made when it is first asked for.
#[derive(Default)]
pub(crate) struct ContextHeap {
    size: Mutex<Option<HeapSize>>,
    heap: OnceLock<Result<SharedHeap, HeapError>>,
}

impl ContextHeap {
    /// Decides how large the heap may grow; without effect once it exists.
    pub(crate) fn set_size(&self, size: HeapSize) {
        *lock(&self.size) = Some(size);
    }

    pub(crate) fn heap(&self) -> Result<SharedHeap, HeapError> {
        let size = lock(&self.size).unwrap_or(HeapSize::Default);
        self.heap.get_or_init(|| SharedHeap::new(size)).clone()
    }
}

impl Device {
    /// The heap that the host shares with the devices of this device's context.
    ///
    /// # Errors
    /// [`HeapError::NoWindow`] where the system has no address space for it.
    pub fn heap(&self) -> Result<SharedHeap, HeapError> {
        heap_of(&self.shared)
    }
}

/// The heap of the device's context.
pub(crate) fn heap_of(device: &DeviceShared) -> Result<SharedHeap, HeapError> {
    device.heap_room.get::<ContextHeap>().heap()
}

impl HeapSize {
    fn bytes(self) -> u64 {
        let memory = system_memory();
        match self {
            Self::Default => memory / 8,
            Self::Fraction(part) => (memory as f64 * part.clamp(0.0, 1.0)) as u64,
            Self::Bytes(bytes) => bytes,
            Self::Adaptive { .. } => memory / 4 * 3,
        }
    }
}

/// Bytes of the machine's memory; 8 GiB where the system cannot be asked.
fn system_memory() -> u64 {
    const UNKNOWN: u64 = 8 << 30;
    #[cfg(unix)]
    {
        // SAFETY: `sysconf` only reads its argument.
        #[allow(unsafe_code)]
        let (pages, page) = unsafe {
            (
                libc::sysconf(libc::_SC_PHYS_PAGES),
                libc::sysconf(libc::_SC_PAGESIZE),
            )
        };
        if let (Ok(pages), Ok(page)) = (u64::try_from(pages), u64::try_from(page)) {
            return pages.saturating_mul(page);
        }
    }
    UNKNOWN
}

impl std::fmt::Debug for SharedHeap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedHeap")
            .field("base", &self.base())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
