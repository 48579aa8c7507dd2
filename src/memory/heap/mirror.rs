//! Mirrors: copies of the heap on devices that do not use the host's memory in place, because such use is impossible
//! there, was forbidden, or is slower ([`HeapPlacement`]).
//!
//! Kernels on such a device see the mirror under the same addresses, so nothing else is different for them. The host's
//! changes go up before a launch using the heap ([`up`]); the kernels' changes come down before another look: by the host,
//! or another device ([`down`]). Both ways only changes travel, by pages, and a launch with nothing new on either side costs
//! nothing:
//!
//! - The host's possible changes are known, not searched for: allocations are filled by the heap, borrows for writing
//!   come from a [`HostAccess`](super::HostAccess), and claims of allocations end. Each mirror has the set of its
//!   missing pages ([`PageSet`]).
//! - A launch's possible changes are known where the kernel reaches the heap through arguments only ([`Writes`]).
//! - Changes by kernels that follow pointers are found on the device, where each page's sums differ from the sums of
//!   the last agreement (`shaders/heap_diff.wgsl`, with the argument why no change is missed).
//! - Devices with the host's memory in place may have changed any page. Where such a device works beside a mirror, the
//!   host keeps a *shadow* for the mirror and compares.
//!
//! Neither side has to declare writes. Two rules make up for the missing declarations:
//!
//! - Devices take turns. At most one mirror has changes not yet brought down, and meanwhile no other device works on
//!   the heap. Devices sharing the host's memory work together as a single one ([`Turn`]).
//! - While a mirror has such changes, the host writes only freshly allocated memory: everything else needs a
//!   [`HostAccess`](super::HostAccess), which brings the changes down first. There the host's words win over any
//!   launch's earlier writes, from before the memory changed hands.
//!
//! Memory changed by the host at any time and without asking, behind an [`AtomicView`](super::AtomicView) or a
//! [`HeapAllocator`](super::HeapAllocator), cannot be followed in this way: while there is some, launches using the
//! heap on devices with mirrors are refused.
//!
//! A card that imports the heap besides has the choice at each launch ([`choice`], [`policy`], [`measure`]).
//!
//! A heap giving memory back has its mirrors give back as much ([`shrink`]).
//!
//! Locks are taken in this order: the turn, a device's queue, the heap's state.

mod buffers;
mod choice;
mod down;
mod measure;
mod pages;
mod policy;
mod runs;
mod search;
mod shrink;
#[cfg(test)]
mod tests;
#[cfg(all(test, not(web)))]
mod tests_choice;
mod turn;
mod up;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{
    Arc, LockResult, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
    TryLockResult, Weak,
};
use std::time::Duration;

use super::device_memory::DeviceMemory;
use super::{DeviceView, HeapError, HeapShared, InFlight, MOST_BYTES, Memory, SharedHeap, State};
use crate::addresses::page_search::PAGE;
use crate::clock::Instant;
use crate::device::wait::{Waits, lock};
use crate::device::{Aspect, DeviceShared, HeapPlacement};
use buffers::MirrorBuffers;

pub(crate) use measure::{Choice, Measure};
pub(super) use pages::PageSet;
pub(super) use policy::Place;
pub(crate) use turn::{Task, Turn, Work, Writes};

const PAGE_WORDS: usize = (PAGE / 4) as usize;

/// The longest wait for a turn by a thread serving a call, since the turn may be waiting for the thread's caller.
const HANDLER_WAIT: Duration = Duration::from_millis(10);
/// How long such a thread sleeps between two looks.
const HANDLER_PAUSE: Duration = Duration::from_millis(1);
/// A launch, where it waits for its turn.
const TURN: &str = "a launch that uses the heap";

/// The costs of a [`SharedHeap`]'s mirrors so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MirrorStatistics {
    /// Devices that have a mirror.
    pub mirrors: usize,
    /// Bytes that went from the heap to mirrors.
    pub uploaded: u64,
    /// Bytes from mirrors: changed pages, and a bit for each page with the answer.
    pub downloaded: u64,
    /// Bytes of the heap searched for changes, on devices and on the host.
    pub searched: u64,
    /// Bytes of the heap in mirrors now, all together. Their devices hold a hundredth of that besides; the host as much again
    /// for each device that works beside one with the heap in place.
    pub held: u64,
    /// How often a device that chooses ([`HeapPlacement::Auto`](crate::heap::HeapPlacement::Auto)) has moved to its mirror.
    pub moved_in: u64,
    /// How often such a device has gone back to the host's memory.
    pub moved_out: u64,
}

/// The mirrors of a heap, and the holder of the turn.
#[derive(Default)]
pub(super) struct Mirrors {
    lock: RwLock<Table>,
    /// Behind a lock of its own, the last one of all: holders of the turn may be waiting for the thread that asks.
    statistics: Mutex<MirrorStatistics>,
    /// A device that chooses between the two places uses the heap.
    has_choice: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Table {
    by_device: HashMap<u64, Mirror>,
    /// The device whose changes have not come down.
    ahead: Option<u64>,
    /// The possible writes of that device's launches.
    written: PageSet,
}

struct Mirror {
    owner: Weak<DeviceShared>,
    buffers: MirrorBuffers,
    shadow: Shadow,
}

/// The host's knowledge of a device's bytes at the last agreement of both.
enum Shadow {
    /// Zeros: memory of devices begins so, as the heap's does.
    Zeros,
    Unknown,
    Kept(Vec<u32>),
}

impl Mirrors {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while held, possibly by the asking thread.
    pub(super) fn try_write(&self) -> Option<RwLockWriteGuard<'_, Table>> {
        match self.lock.try_write() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Adds to the moved bytes.
    fn count(&self, add: impl FnOnce(&mut MirrorStatistics)) {
        add(&mut lock(&self.statistics));
    }

    /// Notes the present mirrors.
    fn take_stock(&self, table: &Table) {
        let held = table.by_device.values().map(|one| one.buffers.covered);
        let mut statistics = lock(&self.statistics);
        statistics.mirrors = table.by_device.len();
        statistics.held = held.sum();
    }
}

impl HeapShared {
    /// The table, which a thread may have in hand while it waits for launches. On a thread that serves a call of such a
    /// launch, that is waited for a short time only.
    ///
    /// # Errors
    /// [`HeapError::Execution`] with [`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler).
    fn take<'h, G>(
        &'h self,
        what: &'static str,
        attempt: impl Fn(&'h RwLock<Table>) -> TryLockResult<G>,
        wait: impl FnOnce(&'h RwLock<Table>) -> LockResult<G>,
    ) -> Result<G, HeapError> {
        let lock = &self.mirrors.lock;
        let deadline = Instant::now() + HANDLER_WAIT;
        loop {
            match attempt(lock) {
                Ok(table) => return Ok(table),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            self.check_held_here(what)?;
            match self.may_wait(what) {
                Ok(()) => return Ok(wait(lock).unwrap_or_else(PoisonError::into_inner)),
                // Whoever has the turn needs this very thread to go on.
                Err(error) if error.would_block() || Instant::now() >= deadline => {
                    return Err(error);
                }
                Err(_) => std::thread::sleep(HANDLER_PAUSE),
            }
        }
    }

    fn table_alone(&self, what: &'static str) -> Result<RwLockWriteGuard<'_, Table>, HeapError> {
        self.take(what, RwLock::try_write, RwLock::write)
    }

    fn table_together(&self, what: &'static str) -> Result<RwLockReadGuard<'_, Table>, HeapError> {
        self.take(what, RwLock::try_read, RwLock::read)
    }
}

impl SharedHeap {
    /// Bytes moved between the heap and the devices that cannot use the heap in place. Waits for nothing, whatever is under
    /// way on other threads.
    pub fn mirror_statistics(&self) -> MirrorStatistics {
        *lock(&self.shared.mirrors.statistics)
    }
}

impl HeapShared {
    /// Whether the device needs a mirror.
    pub(crate) fn is_mirrored(&self, device: &DeviceShared) -> bool {
        match &self.memory {
            Memory::Window(_) => !device.capabilities.imports_heap(),
            Memory::Live(live) => !live.is_of(device),
            Memory::Block(_) => true,
        }
    }

    /// Refuses devices that were to use the heap in place, and cannot.
    fn check_placement(&self, device: &DeviceShared) -> Result<(), HeapError> {
        let capabilities = &device.capabilities;
        if capabilities.heap_placement != HeapPlacement::InPlace || !self.is_mirrored(device) {
            return Ok(());
        }
        Err(HeapError::Placement {
            device: capabilities.name.clone(),
            why: match self.memory {
                Memory::Live(_) => "it lies in memory that another device has mapped".to_owned(),
                Memory::Window(_) => capabilities.explain(Aspect::HostImport),
                Memory::Block(_) => "it lies in memory of a page".to_owned(),
            },
        })
    }

    /// The view of a device with a mirror, which is made or grown as needed.
    pub(super) fn mirror_view(&self, device: &Arc<DeviceShared>) -> Result<DeviceView, HeapError> {
        let mut table = self.table_alone("a look at a copy of the heap")?;
        let mirror = self.cover(&mut table, device)?;
        Ok(mirror.view(self.base(), device))
    }

    /// Brings down the changes of a mirror, for the host: no use of the heap is in flight.
    pub(super) fn bring_down_for_host(&self) -> Result<(), HeapError> {
        if self.mirrors.read().ahead.is_none() {
            return Ok(());
        }
        let mut table = self.mirrors.write();
        pollster::block_on(self.bring_down(&mut table, Waits::Blocks))
    }

    /// As [`Self::bring_down_for_host`], while the caller's thread does other things.
    #[allow(clippy::await_holding_lock)] // The turn: the thread's own commands are refused meanwhile, and others wait.
    pub(super) async fn bring_down_for_host_async(&self) -> Result<(), HeapError> {
        let mut table = self.mirrors.write();
        let Some(id) = table.ahead else {
            return Ok(());
        };
        let owner = (table.by_device.get(&id)).and_then(|mirror| mirror.owner.upgrade());
        self.bring_down(&mut table, Waits::Awaits(owner)).await
    }

    fn cover<'t>(
        &self,
        table: &'t mut Table,
        device: &Arc<DeviceShared>,
    ) -> Result<&'t mut Mirror, HeapError> {
        self.check_placement(device)?;
        let committed = self.committed()?;
        self.forget_gone(table);
        let mirror = match table.by_device.entry(device.id) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                let mirror = free.insert(Mirror {
                    owner: Arc::downgrade(device),
                    buffers: MirrorBuffers::new(device)?,
                    shadow: Shadow::Zeros,
                });
                self.mirrors.count(|statistics| statistics.mirrors += 1);
                mirror
            }
        };
        (lock(&self.state).stale)
            .entry(device.id)
            .or_insert_with(PageSet::everything);
        let before = mirror.buffers.covered;
        if before < committed {
            self.check_parts(device)?;
            mirror.buffers.grow(device, committed)?;
            if let Shadow::Kept(words) = &mut mirror.shadow {
                // Memory of the heap and of devices begins as zeros.
                words.resize((committed / 4) as usize, 0);
            }
            (self.mirrors).count(|statistics| statistics.held += committed - before);
        }
        Ok(mirror)
    }

    /// Forgets the mirrors of devices that are gone, but for one with changes that have not come down.
    fn forget_gone(&self, table: &mut Table) {
        let ahead = table.ahead;
        let stays = |id: u64, mirror: &Mirror| mirror.owner.strong_count() > 0 || ahead == Some(id);
        if table
            .by_device
            .iter()
            .all(|(id, mirror)| stays(*id, mirror))
        {
            return;
        }
        table.by_device.retain(|id, mirror| stays(*id, mirror));
        self.mirrors.take_stock(table);
        let mut state = lock(&self.state);
        (state.stale).retain(|id, _| table.by_device.contains_key(id));
    }

    /// `count` words of the heap; the turn is held alone, and the other devices are done.
    fn words<'s>(&self, _state: &'s State, offset: u64, count: usize) -> &'s [u32] {
        let at = self.host_pointer(self.base() + offset).cast::<u32>();
        // SAFETY: callers ask for whole words of committed memory, which holds initialised bytes. The
        // only writers are kernels that share the host's memory, which have ended and cannot start
        // while the turn is held; the host through a `HostAccess`, which is not given out meanwhile;
        // and allocations, under the lock of the state, which is held as long as the borrow lives.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(at, count)
        }
    }
}

impl Mirror {
    fn view(&self, base: u64, device: &DeviceShared) -> DeviceView {
        DeviceView {
            owner: self.owner.clone(),
            base,
            front: 0,
            covered: self.buffers.covered,
            segments: self.buffers.segments(),
            own: DeviceMemory::segments(device),
            tables: Vec::new(),
            own_table: None,
        }
    }
}

/// The words that a range of bytes touches, counted from byte `base`.
fn word_range(bytes: &Range<u64>, base: u64) -> Range<usize> {
    ((bytes.start - base) / 4) as usize..(bytes.end - base).div_ceil(4) as usize
}
