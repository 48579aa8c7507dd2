//! What a heap knows at one moment, behind its lock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::{HeapError, HeapShared, mirror};
use crate::device::end::QueueEnd;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::wait::{LostFlag, Progress, lock, wait_for};
use crate::device::{DeviceShared, ExecutionError};
use crate::memory::region::{AllocationId, Region};

pub(super) struct State {
    pub(super) region: Region,
    /// Bytes that the heap may grow to.
    pub(super) bound: u64,
    /// Bytes of the segments within which allocations stay, a power of two: the smallest in which a device of
    /// the context binds the heap.
    pub(super) part: u64,
    /// Bytes from the start that the region hands out: whole segments, or up to the bound.
    pub(super) laid_out: u64,
    /// Bytes from the start that are backed by memory, and that devices see.
    pub(super) committed: u64,
    /// Bytes from the start that the window has memory for: more than `committed` while somebody still holds
    /// what should have been given back.
    pub(super) backed: u64,
    /// Since when most of the heap is free.
    pub(super) roomy_since: Option<Instant>,
    /// The thread that holds a [`HostAccess`](super::HostAccess).
    pub(super) host: Option<ThreadId>,
    /// What that thread still waits for, and so may not look yet.
    pub(super) host_awaits: Option<Vec<InFlight>>,
    /// The last batch of each device that used the heap; queues are in order.
    pub(super) in_flight: HashMap<u64, InFlight>,
    /// Freed while somebody might still look.
    pub(super) deferred: HashSet<AllocationId>,
    /// Allocations to which somebody has a claim of their own.
    pub(super) holds: HashMap<AllocationId, Hold>,
    /// Launches that used the heap and may have failed: the next access of the host is told.
    pub(super) outcomes: Vec<Arc<Outcome>>,
    /// Counts whatever may have changed the heap's bytes, but for kernels on mirrors and `fresh`.
    pub(super) version: u64,
    /// A mirror has changes that did not come down.
    pub(super) mirror_ahead: bool,
    /// What was allocated since the mirror that is ahead was brought up to date.
    pub(super) fresh: mirror::RangeSet,
}

/// Why the host may not simply borrow an allocation.
pub(super) enum Hold {
    /// This many [`AtomicView`](super::AtomicView)s exist: the bytes may be seen as atomics only, and stay where they are.
    Atomics(usize),
    /// A [`HeapAllocator`](super::HeapAllocator) has handed it out: Rust's own borrows rule there.
    Owned,
}

/// The last batch of a device that used the heap.
#[derive(Clone)]
pub(super) struct InFlight {
    pub(super) id: u64,
    /// Weak, since devices know the heap.
    pub(super) device: Weak<DeviceShared>,
    /// It works on a copy of the heap, or has caches that do not follow what the host writes meanwhile.
    pub(super) is_apart: bool,
    /// What its end can be seen by: launches go on when their device is dropped.
    raw: wgpu::Device,
    lost: Arc<LostFlag>,
    end: Arc<QueueEnd>,
    batch: Arc<Batch>,
}

impl InFlight {
    fn new(device: &Arc<DeviceShared>, is_apart: bool, batch: &Arc<Batch>) -> Self {
        Self {
            id: device.id,
            device: Arc::downgrade(device),
            is_apart,
            raw: device.raw.clone(),
            lost: Arc::clone(&device.lost),
            end: Arc::clone(&device.queue_end),
            batch: Arc::clone(batch),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self.batch.submission() {
            None => self.end.is_reached(),
            Some(Err(_)) => true,
            Some(Ok(index)) => {
                let now = Some(Duration::ZERO);
                wait_for(&self.raw, &self.lost, index, now) != Progress::Pending
            }
        }
    }

    /// Sees to it that what was recorded is submitted.
    pub(super) fn submit(&self, deadline: Option<Instant>) -> Result<(), HeapError> {
        if self.batch.submission().is_some() {
            return Ok(());
        }
        match self.device.upgrade() {
            // Failures are the events' to tell; what matters here is that nothing stays behind.
            Some(device) => {
                if !device.open_gates(deadline) {
                    return Err(HeapError::Deadline);
                }
                let _ = device.queue.lock(&device).flush();
                Ok(())
            }
            // Another thread has dropped the last handle, and is about to submit what was recorded.
            None if self.end.wait(deadline) => Ok(()),
            None => Err(HeapError::Deadline),
        }
    }

    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<(), HeapError> {
        self.submit(deadline)?;
        let Some(Ok(index)) = self.batch.submission() else {
            return Ok(());
        };
        if let Some(device) = self.device.upgrade() {
            device.residents.awaited(&self.batch);
        }
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        match wait_for(&self.raw, &self.lost, index, left) {
            Progress::Done => Ok(()),
            Progress::Pending => Err(HeapError::Deadline),
            Progress::Lost(reason) => Err(Arc::new(ExecutionError::DeviceLost { reason }).into()),
        }
    }

    /// Settles the outcomes of the device's launches, which have all ended.
    pub(super) fn settle(&self) {
        if let Some(device) = self.device.upgrade() {
            device.queue.lock(&device).settle();
        }
    }
}

impl State {
    /// Notes that the host has written a range of the heap, given by its offsets, without having had
    /// access to all of it: mirrors get it whatever they hold, and their own bytes there are void.
    pub(super) fn host_wrote(&mut self, range: std::ops::Range<u64>) {
        if self.mirror_ahead {
            self.fresh.insert(range);
        } else {
            self.version += 1;
        }
    }

    /// Frees what was put off, once nobody can look any more.
    pub(super) fn settle(&mut self) {
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

impl HeapShared {
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

    pub(super) fn enter_for(
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
        // Where the device has memory of its own, its caches do not follow what the host writes meanwhile.
        let is_apart = self.is_mirrored(device) || !device.capabilities.unified_memory;
        let last = InFlight::new(device, is_apart, batch);
        if state.in_flight.insert(last.id, last).is_none() {
            // Devices that come and go leave nothing behind.
            let gone = |last: &InFlight| last.device.strong_count() == 0;
            state
                .in_flight
                .retain(|_, last| !gone(last) || !last.is_done());
        }
        if !self.is_mirrored(device) {
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
