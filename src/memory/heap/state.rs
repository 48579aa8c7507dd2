//! The state of a heap, behind its lock.

use std::collections::{HashMap, HashSet, VecDeque, hash_map::Entry};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use rangemap::RangeSet;
use smallvec::SmallVec;

use super::{HeapError, HeapShared, Turn, mirror, size};
use crate::addresses::region::{AllocationId, Region};
use crate::clock::Instant;
use crate::device::end::QueueEnd;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::submissions::{Progress, Standing, Submissions};
use crate::device::wait::{self, lock};
use crate::device::{DeviceShared, ExecutionError};
use crate::memory::ranges;

/// What does not block.
pub(super) const AWAIT_HOST: &str =
    "take the heap by `SharedHeap::host_async`, `.await` it, and use the access";

pub(super) struct State {
    pub(super) region: Region,
    /// Bytes that the heap may grow to.
    pub(super) bound: u64,
    /// Bytes of the segments for allocations, a power of two: the smallest binding of the heap among all devices that the
    /// context has had. One that binds little may come again, and then finds no more segments than it needs.
    pub(super) part: u64,
    /// The smallest binding among the devices that live, once one is known: the most for an allocation that no such
    /// segment holds.
    pub(super) widest: Option<u64>,
    /// The devices of the context, and how many bytes each binds at once.
    pub(super) binders: Vec<(size::Binder, u64)>,
    /// Bytes from the start handed out by the region: whole segments, or up to the bound.
    pub(super) laid_out: u64,
    /// Bytes from the start backed by memory and seen by devices.
    pub(super) committed: u64,
    /// Bytes from the start with memory in the window: more than `committed` while pages to be given back are still
    /// held.
    pub(super) backed: u64,
    /// Since when most of the heap is free.
    pub(super) roomy_since: Option<Instant>,
    /// The thread with a [`HostAccess`](super::HostAccess).
    pub(super) host: Option<ThreadId>,
    /// The batches awaited by the thread in `host`, which may not look earlier.
    pub(super) host_awaits: Option<Vec<InFlight>>,
    /// Batches with possible uses of the heap, by device.
    pub(super) in_flight: HashMap<u64, InFlight>,
    /// Batches whose kernels may wait for functions of the host, which may use the heap, by device.
    pub(super) waiting: HashMap<u64, InFlight>,
    /// Freed during a possible look.
    pub(super) deferred: HashSet<AllocationId>,
    /// Allocations with a separate claim.
    pub(super) holds: HashMap<AllocationId, Hold>,
    /// Launches with uses of the heap that may have failed, for a report to the host's next access.
    pub(super) outcomes: Vec<Arc<Outcome>>,
    /// Pages missing in each mirror, by device, without `fresh` and without unreported changes of the mirror ahead.
    pub(super) stale: HashMap<u64, mirror::PageSet>,
    /// A mirror has changes not yet copied to the host.
    pub(super) mirror_ahead: bool,
    /// Allocations made since the mirror ahead was brought up to date.
    pub(super) fresh: RangeSet<u64>,
}

/// Why the host may not simply borrow an allocation.
pub(super) enum Hold {
    /// So many [`AtomicView`](super::AtomicView)s exist, of atomics of so many bytes: the bytes may be seen as such atomics
    /// only, and stay in place. Overlapping atomics of two sizes would be a data race in Rust.
    Atomics { views: usize, bytes: usize },
    /// From a [`HeapAllocator`](super::HeapAllocator): Rust's own borrows rule there.
    Owned,
}

/// A device's batches with uses of the heap and without a known end, in the order of the queue.
#[derive(Clone)]
pub(super) struct InFlight {
    pub(super) id: u64,
    /// Weak, since devices know the heap.
    pub(super) device: Weak<DeviceShared>,
    /// The batch works on a copy of the heap, or on a device with caches blind to the host's writes meanwhile.
    pub(super) is_apart: bool,
    /// The device's name.
    name: Arc<str>,
    /// The witness of the ends: launches go on after the drop of a device.
    submissions: Arc<Submissions>,
    end: Arc<QueueEnd>,
    batches: VecDeque<Arc<Batch>>,
}

impl InFlight {
    pub(super) fn new(device: &Arc<DeviceShared>, is_apart: bool) -> Self {
        Self {
            id: device.id,
            device: Arc::downgrade(device),
            is_apart,
            name: device.capabilities.name.as_str().into(),
            submissions: Arc::clone(&device.submissions),
            end: Arc::clone(&device.queue_end),
            batches: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, batch: &Arc<Batch>) {
        if (self.batches.back()).is_some_and(|last| Arc::ptr_eq(last, batch)) {
            return;
        }
        self.forget_ended();
        self.batches.push_back(Arc::clone(batch));
    }

    /// Adds the batches of a device taken out of the books and put back.
    fn add_earlier(&mut self, earlier: Self) {
        for batch in earlier.batches.into_iter().rev() {
            if !self.batches.iter().any(|known| Arc::ptr_eq(known, &batch)) {
                self.batches.push_front(batch);
            }
        }
    }

    /// Removes ended batches; batches of a queue end in order.
    fn forget_ended(&mut self) {
        while let Some(first) = self.batches.front()
            && self.is_over(first)
        {
            self.batches.pop_front();
        }
    }

    /// Whether nothing of the batch runs, nor ever will.
    fn is_over(&self, batch: &Batch) -> bool {
        match self.submissions.standing(batch) {
            // The device was dropped, after its last submission.
            Standing::Recorded => self.end.is_reached() && batch.submission().is_none(),
            standing => standing.is_over(),
        }
    }

    /// Whether no batch runs any more, as far as is known. Asks wgpu nothing, so any lock may be held.
    pub(super) fn is_done(&mut self) -> bool {
        self.forget_ended();
        self.batches.is_empty()
    }

    /// The first submitted batch, and the witness of its end.
    fn first(&self) -> Option<(Arc<Submissions>, Arc<Batch>)> {
        let sent = |batch: &&Arc<Batch>| batch.submission().is_some();
        let first = self.batches.iter().find(sent)?;
        Some((Arc::clone(&self.submissions), Arc::clone(first)))
    }

    /// Refuses a wait on a thread that serves a call of the device, before any submission.
    fn may_wait(&mut self, what: &'static str) -> Result<(), ExecutionError> {
        match self.is_done() {
            true => Ok(()),
            false => self.submissions.may_wait(what, AWAIT_HOST),
        }
    }

    /// Sees to the submission of recorded commands.
    pub(super) fn submit(&self, deadline: Option<Instant>) -> Result<(), HeapError> {
        while let Some(unsent) = (self.batches.iter()).find(|batch| batch.submission().is_none()) {
            let Some(device) = self.device.upgrade() else {
                // Another thread has dropped the last handle, and is about to submit recorded commands.
                return match self.end.wait(deadline) {
                    true => Ok(()),
                    false => Err(HeapError::Deadline),
                };
            };
            if !device.complete_dependencies(deadline) {
                if deadline.is_none_or(|end| Instant::now() < end) {
                    let refused = self.submissions.refused("access to the heap", AWAIT_HOST);
                    return Err(Arc::new(refused).into());
                }
                return Err(HeapError::Deadline);
            }
            // Failures are reported by the events; the only need here is to leave no batch behind.
            device.submit(unsent);
            if !unsent.is_closed() {
                // The batch has no commands: their recording was refused.
                return Ok(());
            }
            if self.submissions.is_submitting_here(unsent) {
                return Err(Arc::new(ExecutionError::InCallback {
                    what: "access to the heap",
                })
                .into());
            }
        }
        Ok(())
    }

    /// Waits until no batch runs any more. A device lost meanwhile is an error only after the wait.
    ///
    /// # Errors
    /// [`HeapError::Deadline`]; [`HeapError::Execution`] when the device was lost before all had come to their end;
    /// [`HeapError::Unproven`] when the end of its kernels is unknown.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<(), HeapError> {
        self.submit(deadline)?;
        let mut lost = None;
        for batch in &self.batches {
            if batch.submission().is_none() {
                // The batch has no commands, or the device has ended without the batch.
                continue;
            }
            if let Some(device) = self.device.upgrade() {
                device.residents.awaited(batch);
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            match self.submissions.wait_over(batch, left) {
                Progress::Done => {}
                Progress::Pending => return Err(HeapError::Deadline),
                Progress::Refused => {
                    let error = self.submissions.refused("access to the heap", AWAIT_HOST);
                    return Err(Arc::new(error).into());
                }
                Progress::Lost(reason) if self.is_over(batch) => lost = Some(reason),
                Progress::Lost(reason) => {
                    let device = self.name.to_string();
                    return Err(HeapError::Unproven { device, reason });
                }
            }
        }
        match lost {
            Some(reason) => Err(Arc::new(ExecutionError::DeviceLost { reason }).into()),
            None => Ok(()),
        }
    }

    /// As [`Self::wait`] without a deadline, while the caller's thread does other things.
    pub(super) async fn ended(&self) -> Result<(), HeapError> {
        self.submit(None)?;
        let device = self.device.upgrade();
        for batch in &self.batches {
            if batch.submission().is_some() {
                if let Some(device) = &device {
                    device.residents.awaited(batch);
                }
                wait::ended(device.as_deref(), &self.submissions, batch).await;
            }
        }
        // All have ended, or the device is lost: this tells which, and does not wait.
        self.wait(Some(Instant::now()))
    }

    /// As [`Self::settle`], for these outcomes, while the caller's thread does other things.
    pub(super) async fn settled(&self, outcomes: &[Arc<Outcome>]) {
        if let (Some(device), Some(last)) = (self.device.upgrade(), self.batches.back()) {
            wait::settled(&device, last, outcomes).await;
        }
    }

    /// Resolves the outcomes of the device's launches, all of which have ended.
    pub(super) fn settle(&self) {
        if let Some(device) = self.device.upgrade() {
            device.settle();
        }
    }
}

impl State {
    /// Notes the host's write to a range of the heap, in offsets, without access to all of the heap: mirrors get the
    /// range in any case, and their own bytes there are void.
    pub(super) fn host_wrote(&mut self, range: std::ops::Range<u64>) {
        if self.mirror_ahead {
            ranges::insert(&mut self.fresh, range);
        } else {
            self.changed(&range);
        }
    }

    /// Notes changed bytes as missing in every mirror.
    pub(super) fn changed(&mut self, range: &std::ops::Range<u64>) {
        for pages in self.stale.values_mut() {
            pages.insert(range);
        }
    }

    /// Puts the unfinished batches back.
    pub(super) fn still_in_flight(&mut self, waited: Vec<InFlight>) {
        for mut batches in waited {
            if batches.is_done() {
                continue;
            }
            match self.in_flight.entry(batches.id) {
                Entry::Occupied(mut later) => later.get_mut().add_earlier(batches),
                Entry::Vacant(free) => {
                    free.insert(batches);
                }
            }
        }
    }

    /// Frees deferred allocations, once no reader is left, as far as known ([`HeapShared::look`]).
    pub(super) fn settle(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        self.in_flight.retain(|_, batches| !batches.is_done());
        if self.in_flight.is_empty() && self.host.is_none() {
            let Self { region, holds, .. } = self;
            self.deferred.retain(|&id| {
                let stays = holds.contains_key(&id);
                if !stays {
                    // The allocation was live when put off, and nothing else frees by id.
                    let _ = region.free(id);
                }
                stays
            });
        }
    }
}

impl HeapShared {
    /// Learns the ends of launches using the heap. May run callbacks of the program: no lock may be held.
    pub(super) fn look(&self) {
        let first: SmallVec<[_; 4]> = {
            let state = lock(&self.state);
            let first = state.in_flight.values().filter_map(InFlight::first);
            first.collect()
        };
        for (submissions, batch) in first {
            // The first to end: earlier ends are learnt along with it.
            let _ = submissions.wait_over(&batch, Some(Duration::ZERO));
        }
    }

    /// Refuses a wait for launches with uses of the heap, or for an access behind such launches, on a thread that
    /// serves a call of the device. May run callbacks of the program: no lock may be held.
    ///
    /// # Errors
    /// [`HeapError::Execution`] with [`ExecutionError::InHandler`].
    pub(super) fn may_wait(&self, what: &'static str) -> Result<(), HeapError> {
        let under_way: SmallVec<[InFlight; 4]> = {
            let state = lock(&self.state);
            let awaited = state.host_awaits.iter().flatten();
            awaited.chain(state.in_flight.values()).cloned().collect()
        };
        for mut batches in under_way {
            batches.may_wait(what).map_err(Arc::new)?;
        }
        Ok(())
    }

    /// As [`HeapShared::look`], if a freed allocation waits for an end.
    pub(super) fn look_for_freed(&self) {
        let waits = !lock(&self.state).deferred.is_empty();
        if waits {
            self.look();
        }
    }

    /// Notes that `batch` of `device`, the holder of the turn, uses the heap.
    pub(crate) fn enter(
        &self,
        turn: &Turn<'_>,
        device: &Arc<DeviceShared>,
        batch: &Arc<Batch>,
        outcome: Option<&Arc<Outcome>>,
    ) -> Result<(), HeapError> {
        let outcomes = outcome.map(std::slice::from_ref).unwrap_or_default();
        self.enter_for("a launch", turn, device, batch, outcomes)
    }

    pub(super) fn enter_for(
        &self,
        what: &'static str,
        turn: &Turn<'_>,
        device: &Arc<DeviceShared>,
        batch: &Arc<Batch>,
        outcomes: &[Arc<Outcome>],
    ) -> Result<(), HeapError> {
        let mut state = lock(&self.state);
        if state.host.is_some() {
            return Err(HeapError::HostAccess { what });
        }
        // Caches of a device with memory of its own do not follow the host's writes meanwhile.
        let is_apart = self.is_mirrored(device) || !device.capabilities.unified_memory;
        if !state.in_flight.contains_key(&device.id) {
            // Dropped devices leave no entry behind.
            let gone = |batches: &InFlight| batches.device.strong_count() == 0;
            (state.in_flight).retain(|_, batches| !gone(batches) || !batches.is_done());
        }
        (state.in_flight.entry(device.id))
            .or_insert_with(|| InFlight::new(device, is_apart))
            .add(batch);
        if let (Some(writes), false) = (turn.writes_in_place(), state.stale.is_empty()) {
            let stale = &mut state.stale;
            match writes.offsets(self.base()) {
                None => stale
                    .values_mut()
                    .for_each(mirror::PageSet::insert_everything),
                Some(ranges) => ranges.for_each(|range| {
                    stale.values_mut().for_each(|pages| pages.insert(&range));
                }),
            }
        }
        if !outcomes.is_empty() {
            // Now and then, so that a long batch does not look at all outcomes each time.
            if state.outcomes.len().is_power_of_two() {
                state.outcomes.retain(|known| !known.succeeded());
            }
            state.outcomes.extend_from_slice(outcomes);
        }
        Ok(())
    }
}
