//! The shared heap: memory in which a value has a single address, followed by Rust and WGSL alike.
//!
//! The heap is a span of host address space. Usually its base is a multiple of 4 GiB: the low word of a pointer is its
//! byte offset. Each device of the context *imports* the used part, and kernels on all devices see the same bytes.
//! Memory is added to the end of that part when needed, given back from there when not, and no address ever changes.
//! Where no device can import, the heap lies in memory mapped by a device ([`memory`]).
//!
//! Who may look when: a kernel following pointers may touch any byte of the heap, so the host looks through a
//! [`HostAccess`], which waits for the launches in flight and keeps new launches out. New allocations are still
//! private, and are filled without waiting. Words used by host and running kernels at the same time are seen through an
//! [`AtomicView`], and allocations with ordinary Rust values come from a [`HeapAllocator`]; a `HostAccess` stays out of
//! both.
//!
//! A device binds the part that is in use in segments as large as the adapter allows, usually one. Growing commits
//! more of the span and imports the longer part again, after the device has finished what it was doing: two buffers
//! over the same bytes are unrelated to wgpu. Arguments of launches made earlier follow to the new buffer, and a
//! launch that was overtaken by an import starts over. `docs/memory.md` has the map of the heap, `docs/pointers.md`
//! what kernels do with it.

mod access;
mod advice;
mod allocate;
pub(crate) mod allocation_table;
mod allocator;
mod atomics;
mod block;
pub(crate) mod copies;
pub(crate) mod device_memory;
mod devices;
mod entrance;
mod error;
mod lookup;
mod memory;
mod mirror;
mod serve;
mod size;
mod state;
#[cfg(test)]
mod tests;
#[cfg(all(test, target_os = "linux", feature = "vulkan"))]
mod tests_drop;
#[cfg(test)]
mod tests_limits;
#[cfg(test)]
mod tests_size;
mod transfer;
mod trim;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex};

pub use access::HostAccess;
pub use advice::HeapAdvice;
pub use allocator::HeapAllocator;
pub use atomics::{AtomicTarget, AtomicView};
pub(crate) use entrance::WaitingCommand;
pub use error::HeapError;
pub use mirror::MirrorStatistics;
pub use size::{HeapBound, HeapSize};

use super::pointer::Ptr;
use crate::addresses::region::{Region, RegionOptions, RegionStats};
use crate::clock::Instant;
use crate::device::wait::lock;
use crate::device::window::{Window, WindowError};
use crate::device::{Device, DeviceShared, Tier};
use allocate::zero;
use block::Block;
pub(crate) use devices::DeviceView;
use memory::{LiveMemory, Memory};
pub(crate) use mirror::{Choice, Measure, Task, Turn, Work, Writes};
pub(crate) use size::{ContextHeap, heap_of, known_heap};
use state::{Hold, InFlight, State};

/// Bytes at the start of the heap never handed out: null lies there, and so does everything reached through a null
/// pointer to a structure. Memory comes and goes in multiples of this, whole pages on every system.
pub(crate) const GUARD_BYTES: u64 = 64 << 10;
/// The first part of the heap backed by memory; doubled when full.
const FIRST_BYTES: u64 = 16 << 20;
/// The usual segment of a heap: the storage binding that WebGPU guarantees.
const SEGMENT_BYTES: u64 = 128 << 20;
/// The largest alignment that WebGPU allows an adapter to ask of a binding's offset.
const BINDABLE: u64 = 256;
/// The most that low words can address.
const WINDOW_BYTES: u64 = 4 << 30;
/// The most bytes of a heap: so the size fits a word, and the address behind the heap has the same upper word.
const MOST_BYTES: u64 = WINDOW_BYTES - GUARD_BYTES;

/// Memory shared by the host and every device of a context.
///
/// Handles are cheap to clone; the memory goes with the last handle and the last launch using the heap.
#[derive(Clone)]
pub struct SharedHeap {
    pub(crate) shared: Arc<HeapShared>,
}

type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

pub(crate) struct HeapShared {
    memory: Memory,
    size: HeapSize,
    /// The current time; tests have a clock of their own.
    clock: Clock,
    state: Mutex<State>,
    /// Wakes who waits for another thread's [`HostAccess`].
    released: Condvar,
    /// Commands of devices that an access of the host keeps out.
    entrance: entrance::Entrance,
    /// The imports of each device.
    views: Mutex<HashMap<u64, DeviceView>>,
    /// Counts how often a device was about to repeat an import.
    imports: AtomicU64,
    /// Counts how often memory came: a running kernel sees the memory at its launch.
    grown: AtomicU64,
    /// Copies of the heap on devices without imports.
    mirrors: mirror::Mirrors,
    /// The table for checked kernels, once there are any. No other lock is taken meanwhile.
    table: Mutex<Option<allocation_table::AllocationTable>>,
}

/// A live allocation, from [`SharedHeap::find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapAllocation {
    /// The address of its first byte.
    pub base: Ptr<u8>,
    /// Bytes that were asked for.
    pub size: u64,
}

impl SharedHeap {
    /// Reserves address space for a heap; memory comes as needed. A process whose address space is limited gets a heap
    /// of what is left, unless the size asks for more in bytes ([`SharedHeap::bound`]).
    ///
    /// # Errors
    /// [`HeapError::NoWindow`] where the system has no room in its address space, or no way to ask; [`HeapError::Size`].
    pub fn new(size: HeapSize) -> Result<Self, HeapError> {
        Self::with(size, size::system_memory(), Box::new(Instant::now))
    }

    /// As [`SharedHeap::new`], for devices with this working set, in bytes.
    fn with(size: HeapSize, working_set: u64, clock: Clock) -> Result<Self, HeapError> {
        size.check()?;
        if cfg!(web) {
            return Self::in_block(size, working_set);
        }
        let wanted = size.bound(working_set);
        let mut bytes = WINDOW_BYTES;
        let window = loop {
            match Window::reserve(bytes) {
                Ok(window) => break window,
                // Under a limit of the address space less may be had.
                Err(WindowError::Reserve { .. }) if bytes / 2 >= size.least_window() => bytes /= 2,
                Err(error) => return Err(HeapError::NoWindow(error.to_string())),
            }
        };
        if wanted > window.size() {
            let (left, wanted) = (window.size() >> 20, wanted >> 20);
            log::warn!(
                "the shared heap has {left} MiB at most and not {wanted}, which is all that the process has address space for"
            );
        }
        let bound = wanted.min(window.size());
        size.check_start(bound)?;
        Ok(Self::over(Memory::Window(window), size, bound, clock))
    }

    /// In mapped memory of a device that cannot import any.
    fn mapped(size: HeapSize, working_set: u64, device: &DeviceShared) -> Result<Self, HeapError> {
        size.check()?;
        let live = LiveMemory::new(device, size.bound(working_set))?;
        let memory = Memory::Live(live);
        let bound = memory.fixed().unwrap_or(0);
        size.check_start(bound)?;
        Ok(Self::over(memory, size, bound, Box::new(Instant::now)))
    }

    /// A heap in a block of ordinary memory, for devices that keep mirrors.
    pub(super) fn in_block(size: HeapSize, working_set: u64) -> Result<Self, HeapError> {
        size.check()?;
        let bound = size.bound(working_set);
        size.check_start(bound)?;
        let memory = Memory::Block(Block::new(bound)?);
        Ok(Self::over(memory, size, bound, Box::new(Instant::now)))
    }

    fn over(memory: Memory, size: HeapSize, bound: u64, clock: Clock) -> Self {
        Self {
            shared: Arc::new(HeapShared {
                memory,
                size,
                clock,
                state: Mutex::new(State {
                    region: Region::new(RegionOptions::default().with_lookup(true)),
                    bound,
                    part: SEGMENT_BYTES,
                    widest: None,
                    binders: Vec::new(),
                    laid_out: 0,
                    committed: 0,
                    backed: 0,
                    roomy_since: None,
                    host: None,
                    host_awaits: None,
                    in_flight: HashMap::new(),
                    waiting: HashMap::new(),
                    deferred: HashSet::new(),
                    holds: HashMap::new(),
                    outcomes: Vec::new(),
                    stale: HashMap::new(),
                    mirror_ahead: false,
                    fresh: Default::default(),
                }),
                released: Condvar::new(),
                entrance: entrance::Entrance::default(),
                views: Mutex::default(),
                imports: AtomicU64::new(0),
                grown: AtomicU64::new(0),
                mirrors: mirror::Mirrors::default(),
                table: Mutex::default(),
            }),
        }
    }

    /// In which form the heap works on a device of its context: [`Tier::FineGrained`] where host and kernels
    /// use the same memory, at least as long as anything needs that ([`SharedHeap::residence`]); [`Tier::CoarseGrained`] where
    /// the device keeps a copy in any case.
    pub fn tier(&self, device: &Device) -> Tier {
        match self.shared.is_mirrored(&device.shared) {
            true => Tier::CoarseGrained,
            false => Tier::FineGrained,
        }
    }

    /// The live allocation around the address; pointers into its middle are fine.
    pub fn find<T>(&self, ptr: Ptr<T>) -> Option<HeapAllocation> {
        let shared = &self.shared;
        let state = lock(&shared.state);
        let found = shared.find_live(&state, ptr.address())?;
        Some(HeapAllocation {
            base: Ptr::from_address(shared.base() + found.address),
            size: found.requested,
        })
    }

    /// The address at which the heap begins: a multiple of 4 GiB, unless the heap lies in memory that a device
    /// has mapped.
    pub fn base(&self) -> Ptr<u8> {
        Ptr::from_address(self.shared.base())
    }

    /// Bytes that the heap may grow to.
    pub fn bound(&self) -> u64 {
        lock(&self.shared.state).bound
    }

    /// Bytes at the start of the heap backed by memory and seen by devices: the current size.
    pub fn committed(&self) -> u64 {
        lock(&self.shared.state).committed
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

    /// How the heap is used now: bytes in use, the largest gap, fragmentation, the peak. Gaps count with or without
    /// memory behind them ([`SharedHeap::committed`]); the capacity is that of the segments begun, of 128 MiB or the
    /// devices' binding limit, if smaller, and of those that were made for larger allocations.
    pub fn statistics(&self) -> RegionStats {
        let mut state = lock(&self.shared.state);
        state.settle();
        state.region.stats()
    }
}

impl HeapShared {
    pub(crate) fn base(&self) -> u64 {
        self.memory.base()
    }

    /// The address as a pointer of this process. The range has to lie in the committed part.
    fn host_pointer(&self, address: u64) -> *mut u8 {
        self.memory.pointer(address - self.base())
    }
}

impl std::fmt::Debug for SharedHeap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedHeap")
            .field("base", &self.base())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
