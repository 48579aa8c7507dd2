//! Devices that cannot use the host's memory in place: each keeps a copy of the heap, a *mirror*.
//!
//! Kernels on such a device see the mirror under the same addresses, so nothing else is different for them. The host's
//! changes go up before a launch using the heap; the kernels' changes come down before another look: by the host, or
//! another device. Both ways only changes travel. Changes are found by comparison with a *shadow*, the last state
//! common to host and device: the host keeps a shadow and compares page by page; the device keeps another and a kernel
//! compares.
//!
//! No side has to declare its writes. This takes two rules:
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
//! A heap giving memory back has its mirrors give back as much ([`shrink`]).
//!
//! Locks are taken in this order: the turn, a device's queue, the heap's state.

mod buffers;
mod ranges;
mod shrink;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, Weak};

use super::device_memory::DeviceMemory;
use super::{DeviceView, HeapError, HeapShared, Hold, InFlight, Memory, SharedHeap, State};
use crate::device::submissions::Held;
use crate::device::wait::lock;
use crate::device::{Aspect, DeviceShared, HeapPlacement};
use crate::memory::buffer::BufferView;
use buffers::{CHUNK, MirrorBuffers};
use ranges::push;

pub(super) use ranges::RangeSet;

/// The unit in which changes are found, in bytes.
const PAGE: u64 = 4096;
const PAGE_WORDS: usize = (PAGE / 4) as usize;

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
    /// Bytes of the heap in mirrors now, all together; their devices hold as much again for comparison, and so does the
    /// host for each.
    pub held: u64,
}

/// The mirrors of a heap, and the holder of the turn.
#[derive(Default)]
pub(super) struct Mirrors {
    lock: RwLock<Table>,
}

#[derive(Default)]
pub(crate) struct Table {
    by_device: HashMap<u64, Mirror>,
    /// The device whose changes have not come down.
    ahead: Option<u64>,
    uploaded: u64,
    downloaded: u64,
}

struct Mirror {
    owner: Weak<DeviceShared>,
    buffers: MirrorBuffers,
    /// The device's bytes at the last agreement of host and device.
    shadow: Vec<u32>,
    /// The heap's version that the device has.
    version: Option<u64>,
}

/// Parts possibly missing on a device.
struct Wanted {
    /// All of the host's changes; if false, only fresh memory.
    everywhere: bool,
    /// Pages may be sent as a whole: the device has no changes of its own.
    whole_pages: bool,
    /// Sent regardless of the device's state.
    fresh: RangeSet,
}

/// The right to record launches using the heap; kept until the launch is recorded.
pub(crate) enum Turn<'h> {
    /// Of a device sharing the host's memory, beside others of its kind.
    Together {
        /// Keeps devices with mirrors out.
        _table: RwLockReadGuard<'h, Table>,
        _held: Held,
    },
    /// Of one device.
    Alone {
        table: RwLockWriteGuard<'h, Table>,
        _held: Held,
    },
}

impl Mirrors {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while held, possibly by this very thread.
    pub(super) fn try_write(&self) -> Option<RwLockWriteGuard<'_, Table>> {
        match self.lock.try_write() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl SharedHeap {
    /// Bytes moved between the heap and the devices that cannot use the heap in place.
    pub fn mirror_statistics(&self) -> MirrorStatistics {
        let table = self.shared.mirrors.read();
        MirrorStatistics {
            mirrors: table.by_device.len(),
            uploaded: table.uploaded,
            downloaded: table.downloaded,
            held: (table.by_device.values())
                .map(|mirror| mirror.buffers.covered)
                .sum(),
        }
    }
}

impl HeapShared {
    /// Whether the device needs a mirror.
    pub(crate) fn is_mirrored(&self, device: &DeviceShared) -> bool {
        match &self.memory {
            Memory::Window(_) => !device.capabilities.imports_heap(),
            Memory::Live(live) => !live.is_of(device),
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
            },
        })
    }

    /// Waits for the device's turn, and shows it all other writes. The launch is recorded while the
    /// turn is held.
    pub(crate) fn turn(&self, device: &Arc<DeviceShared>) -> Result<Turn<'_>, HeapError> {
        let held = Held::new("a launch that uses the heap").map_err(Arc::new)?;
        self.contract();
        if !self.is_mirrored(device) {
            let table = self.mirrors.read();
            if table.ahead.is_none() {
                return Ok(Turn::Together {
                    _table: table,
                    _held: held,
                });
            }
            drop(table);
            let mut table = self.mirrors.write();
            self.others_in_flight(device)?;
            self.bring_down(&mut table)?;
            return Ok(Turn::Alone { table, _held: held });
        }
        let mut table = self.mirrors.write();
        self.cover(&mut table, device)?;
        let others = self.others_in_flight(device)?;
        if table.ahead.is_some_and(|id| id != device.id) {
            self.bring_down(&mut table)?;
        }
        for batches in others {
            match batches.wait(None) {
                // A lost device with nothing running any more keeps its results: the host is told when it asks.
                Ok(()) => {}
                Err(error) if error.is_loss() => {}
                Err(error) => return Err(error),
            }
        }
        self.bring_up(&mut table, device)?;
        Ok(Turn::Alone { table, _held: held })
    }

    /// The device's view of the heap, during its turn.
    pub(crate) fn view_in(
        &self,
        turn: &Turn<'_>,
        device: &Arc<DeviceShared>,
    ) -> Result<DeviceView, HeapError> {
        if let Turn::Alone { table, .. } = turn
            && let Some(mirror) = table.by_device.get(&device.id)
        {
            return Ok(mirror.view(self.base(), device));
        }
        self.view(device)
    }

    /// The argument in the current heap, if its buffer was replaced meanwhile.
    pub(crate) fn renew(&self, turn: &Turn<'_>, argument: &BufferView) -> Option<BufferView> {
        let device = &argument.shared.device;
        let mirror = match turn {
            Turn::Alone { table, .. } => table.by_device.get(&device.id),
            Turn::Together { .. } => None,
        };
        let Some(mirror) = mirror else {
            return self.imported_anew(argument);
        };
        self.moved(argument, &mirror.buffers.segments())
    }

    /// The view of a device with a mirror, which is made or grown as needed.
    pub(super) fn mirror_view(&self, device: &Arc<DeviceShared>) -> Result<DeviceView, HeapError> {
        let mut table = self.mirrors.write();
        let mirror = self.cover(&mut table, device)?;
        Ok(mirror.view(self.base(), device))
    }

    /// Brings down the changes of a mirror, for the host: no use of the heap is in flight.
    pub(super) fn bring_down_for_host(&self) -> Result<(), HeapError> {
        if self.mirrors.read().ahead.is_none() {
            return Ok(());
        }
        self.bring_down(&mut self.mirrors.write())
    }

    /// The last batches of the other devices that used the heap. None may look while the host does.
    fn others_in_flight(&self, device: &DeviceShared) -> Result<Vec<InFlight>, HeapError> {
        let state = lock(&self.state);
        if state.host.is_some() {
            return Err(HeapError::HostAccess { what: "a launch" });
        }
        let others = state.in_flight.values();
        Ok(others
            .filter(|last| last.id != device.id)
            .cloned()
            .collect())
    }

    fn cover<'t>(
        &self,
        table: &'t mut Table,
        device: &Arc<DeviceShared>,
    ) -> Result<&'t mut Mirror, HeapError> {
        self.check_placement(device)?;
        let committed = self.committed()?;
        let ahead = table.ahead;
        table
            .by_device
            .retain(|id, mirror| mirror.owner.strong_count() > 0 || ahead == Some(*id));
        let mirror = match table.by_device.entry(device.id) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => free.insert(Mirror {
                owner: Arc::downgrade(device),
                buffers: MirrorBuffers::new(device)?,
                shadow: Vec::new(),
                version: None,
            }),
        };
        if mirror.buffers.covered < committed {
            self.check_parts(device)?;
            mirror.buffers.grow(device, committed)?;
            // Memory of the heap and of devices begins as zeros.
            mirror.shadow.resize((committed / 4) as usize, 0);
        }
        Ok(mirror)
    }

    /// Sends the missing parts to the device.
    fn bring_up(&self, table: &mut Table, device: &DeviceShared) -> Result<(), HeapError> {
        // Only a device that could use the heap in place can be advised to.
        let what = match device.capabilities.has(Aspect::HostImport) {
            true => {
                "a launch on a device that keeps a copy of the heap, and has none with HeapPlacement::InPlace"
            }
            false => "a launch on a device that keeps a copy of the heap",
        };
        // While the device's own changes are not known, pages may have words of either side.
        let whole_pages = table.ahead.is_none();
        let Some(mirror) = table.by_device.get_mut(&device.id) else {
            return Ok(());
        };
        let (version, wanted) = {
            let mut state = lock(&self.state);
            if let Some((&id, hold)) = state.holds.iter().next() {
                let address = self.base() + state.region.get(id).map_or(0, |found| found.address);
                return Err(match hold {
                    Hold::Atomics(_) => HeapError::AtomicView { what, address },
                    Hold::Owned => HeapError::Owned { what, address },
                });
            }
            table.ahead = Some(device.id);
            state.mirror_ahead = true;
            let everywhere = mirror.version != Some(state.version);
            if !everywhere && state.fresh.is_empty() {
                return Ok(());
            }
            let mut fresh = std::mem::take(&mut state.fresh);
            // An allocation may have come since the mirror was made to cover the heap: such bytes go up with the next
            // launch.
            state.fresh = fresh.split_off(mirror.buffers.covered);
            if !fresh.is_empty() {
                // Missing in other mirrors.
                state.version += 1;
            }
            let wanted = Wanted {
                everywhere,
                whole_pages,
                fresh,
            };
            (state.version, wanted)
        };
        let (mut runs, mut bytes) = (Vec::new(), Vec::new());
        let mut at = 0;
        loop {
            at = self.gather(mirror, at, &wanted, &mut runs, &mut bytes);
            if runs.is_empty() {
                break;
            }
            if let Err(error) = mirror.buffers.write(device, &runs, &bytes) {
                lock(&self.state).fresh.insert_all(&wanted.fresh);
                return Err(error);
            }
            let shadow: &mut [u8] = bytemuck::cast_slice_mut(&mut mirror.shadow);
            let mut rest = bytes.as_slice();
            for run in runs.drain(..) {
                let run = run.start as usize..run.end as usize;
                let (now, later) = rest.split_at(run.len());
                shadow[run].copy_from_slice(now);
                rest = later;
            }
            table.uploaded += bytes.len() as u64;
            bytes.clear();
            if at >= mirror.buffers.covered {
                break;
            }
            MirrorBuffers::flush(device)?;
        }
        mirror.version = Some(version);
        Ok(())
    }

    /// Collects the parts missing on the device, from byte `at` of the heap on, until a chunk is full. The answer is
    /// where to go on.
    fn gather(
        &self,
        mirror: &Mirror,
        mut at: u64,
        wanted: &Wanted,
        runs: &mut Vec<Range<u64>>,
        bytes: &mut Vec<u8>,
    ) -> u64 {
        let state = lock(&self.state);
        let end = state.committed.min(mirror.buffers.covered);
        let step = mirror.buffers.step;
        let fresh = &wanted.fresh;
        while at < end && (bytes.len() as u64) < CHUNK {
            if !wanted.everywhere {
                let next = fresh.within(at..end).next();
                at = next.map_or(end, |part| part.start / PAGE * PAGE);
                if at == end {
                    break;
                }
            }
            let memory = self.words(&state, at, PAGE_WORDS);
            let first = (at / 4) as usize;
            let known = &mirror.shadow[first..first + PAGE_WORDS];
            let page = at..at + PAGE;
            let has_fresh = fresh.within(page.clone()).next().is_some();
            if memory != known || has_fresh {
                if wanted.whole_pages {
                    push(runs, page.clone(), step);
                    bytes.extend_from_slice(bytemuck::cast_slice(memory));
                } else {
                    let mut goes = [false; PAGE_WORDS];
                    for ((goes, memory), known) in goes.iter_mut().zip(memory).zip(known) {
                        *goes = memory != known;
                    }
                    for part in fresh.within(page.clone()) {
                        let part = word_range(&part, at);
                        goes[part].fill(true);
                    }
                    for (index, word) in memory.iter().enumerate() {
                        if goes[index] {
                            let start = at + 4 * index as u64;
                            push(runs, start..start + 4, step);
                            bytes.extend_from_slice(&word.to_ne_bytes());
                        }
                    }
                }
            }
            at += PAGE;
        }
        if at < end { at } else { mirror.buffers.covered }
    }

    /// Brings down the changes of the device whose turn it was, once its launches are done.
    fn bring_down(&self, table: &mut Table) -> Result<(), HeapError> {
        let Some(id) = table.ahead else {
            return Ok(());
        };
        let Some(mirror) = table.by_device.get_mut(&id) else {
            table.ahead = None;
            return Ok(());
        };
        match self.download(mirror) {
            Ok(bytes) => {
                table.downloaded += bytes;
                table.ahead = None;
                Ok(())
            }
            Err(error) => {
                if matches!(error, HeapError::Execution(_)) {
                    // The device is lost together with its changes: the heap goes on without them.
                    table.by_device.remove(&id);
                    table.ahead = None;
                    let mut state = lock(&self.state);
                    state.mirror_ahead = false;
                    state.fresh = RangeSet::default();
                    state.version += 1;
                }
                Err(error)
            }
        }
    }

    /// The answer is how many bytes have travelled.
    fn download(&self, mirror: &mut Mirror) -> Result<u64, HeapError> {
        mirror.buffers.submit(mirror.owner.upgrade().as_deref());
        let (runs, mut travelled) = mirror.buffers.changes()?;
        let shadow = &mut mirror.shadow;
        mirror.buffers.read(&runs, |offset, bytes| {
            travelled += bytes.len() as u64;
            self.merge(shadow, offset, bytes);
        })?;
        mirror.buffers.forget_changes();
        let mut state = lock(&self.state);
        state.mirror_ahead = false;
        let fresh = std::mem::take(&mut state.fresh);
        if !runs.is_empty() || !fresh.is_empty() {
            let up_to_date = mirror.version == Some(state.version) && fresh.is_empty();
            state.version += 1;
            if up_to_date {
                mirror.version = Some(state.version);
            }
        }
        Ok(travelled)
    }

    /// Takes over the words that the device has changed.
    fn merge(&self, shadow: &mut [u32], offset: u64, bytes: &[u8]) {
        let state = lock(&self.state);
        let end = state.committed.min(offset + bytes.len() as u64);
        let range = offset..end;
        let count = (end.saturating_sub(offset) / 4) as usize;
        // Memory that was allocated since the device's turn began is the host's.
        let kept: Vec<(Range<usize>, Vec<u32>)> = state
            .fresh
            .within(range)
            .map(|part| word_range(&part, offset))
            .map(|part| {
                let words = self.words(&state, offset, count)[part.clone()].to_vec();
                (part, words)
            })
            .collect();
        let at = self.host_pointer(self.base() + offset).cast::<u32>();
        // SAFETY: the range is committed memory of the window, aligned to pages, and holds initialised
        // bytes. The turn is held alone and nothing is in flight but this device's own launches, so no
        // kernel reaches it; no `HostAccess` has been given out, so nobody borrows it; and memory is
        // handed out under the lock of the state, which is held.
        #[allow(unsafe_code)]
        let memory = unsafe { std::slice::from_raw_parts_mut(at, count) };
        let first = (offset / 4) as usize;
        let shadow = &mut shadow[first..first + count];
        for ((memory, known), now) in memory.iter_mut().zip(shadow).zip(bytes.chunks_exact(4)) {
            let now = u32::from_ne_bytes([now[0], now[1], now[2], now[3]]);
            if *known != now {
                *memory = now;
                *known = now;
            }
        }
        for (part, words) in kept {
            memory[part].copy_from_slice(&words);
        }
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
