//! Reads of buffers by the host: copies of what the host has, and copies from the devices that have the rest.

use std::ops::Range;
use std::sync::Arc;

use rangemap::RangeSet;

use super::download::{Download, take_all};
use super::error::BufferError;
use super::evict::missed;
use super::root::{Locked, Root, State};
use crate::device::DeviceShared;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::wait::{Waits, settled};
use crate::memory::migrate::{Access, Content, Place, Want};
use crate::span::span;

/// A read under way.
#[derive(Default)]
struct Started {
    pieces: Vec<Download>,
    outcomes: Vec<Arc<Outcome>>,
    /// The devices that resolve the outcomes, each with the last batch of its copies.
    sources: Vec<(Arc<DeviceShared>, Arc<Batch>)>,
}

/// The first failure among launches, after all outcomes are resolved.
pub(super) fn failure_of(outcomes: &[Arc<Outcome>]) -> Result<(), BufferError> {
    for outcome in outcomes {
        outcome.resolve();
    }
    match outcomes.iter().find_map(|outcome| outcome.failure()) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

impl Root {
    /// Reads bytes; waits with the buffer unlocked, except in common memory.
    pub(super) fn read_into(
        &self,
        what: &'static str,
        range: Range<u64>,
        bytes: &mut [u8],
        own: Option<u64>,
    ) -> Result<(), BufferError> {
        let _span = span!("read", bytes = range.end - range.start);
        let waits = |_: &Arc<DeviceShared>| Waits::Blocks;
        pollster::block_on(self.read_into_by(what, range, bytes, own, waits))
    }

    /// As [`Self::read_into`], waiting for a device as `waits` says.
    pub(super) async fn read_into_by(
        &self,
        what: &'static str,
        range: Range<u64>,
        bytes: &mut [u8],
        own: Option<u64>,
        waits: impl Fn(&Arc<DeviceShared>) -> Waits,
    ) -> Result<(), BufferError> {
        if range.is_empty() {
            return Ok(());
        }
        loop {
            let started = match self.begin_read(what, &range, bytes, own)? {
                Some(started) => started,
                None => return Ok(()),
            };
            for piece in &started.pieces {
                piece.come(&waits).await.map_err(Arc::new)?;
            }
            if let Err(why) = take_all(started.pieces, range.start, bytes) {
                // After a loss on the way, others may have the bytes; or a new plan names the lost ranges.
                if self.lock().suspect_losses() {
                    continue;
                }
                return Err(missed(why));
            }
            for (device, batch) in &started.sources {
                match waits(device) {
                    Waits::Blocks => device.settle(),
                    Waits::Awaits(_) => settled(device, batch, &started.outcomes).await,
                }
            }
            return failure_of(&started.outcomes);
        }
    }

    /// Begins a read of bytes that are not all on the host; `None` where they were in the heap, and have been read.
    fn begin_read(
        &self,
        what: &'static str,
        range: &Range<u64>,
        bytes: &mut [u8],
        own: Option<u64>,
    ) -> Result<Option<Started>, BufferError> {
        let mut state = self.enter(what)?;
        state.check_maps(what, range, false, own)?;
        state.notice_losses();
        if state.is_shared() {
            self.read_heap(state, range.clone(), bytes)?;
            return Ok(None);
        }
        loop {
            match self.start_read(&mut state, range, bytes) {
                Ok(started) => return Ok(Some(started)),
                // After the loss of a device, others may have the bytes.
                Err(error) if !state.suspect_losses() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Copies the host's bytes, and starts to bring the rest.
    fn start_read(
        &self,
        state: &mut State,
        range: &Range<u64>,
        bytes: &mut [u8],
    ) -> Result<Started, BufferError> {
        let want = Want {
            place: Place::HOST,
            range: range.clone(),
            access: Access::Read,
        };
        let plan = state.residency.plan(&[want], &state.routes);
        let plan = plan.map_err(|error| state.refusal(error))?;
        let mut started = Started {
            outcomes: state.host_depends_on(range),
            ..Started::default()
        };
        let part = |part: &Range<u64>| {
            (part.start - range.start) as usize..(part.end - range.start) as usize
        };
        match &state.host {
            Some(host) => {
                bytes.copy_from_slice(&host.bytes()[range.start as usize..range.end as usize]);
            }
            // Zeros for bytes never written.
            None => {
                let coming: RangeSet<u64> = plan.steps.iter().map(|s| s.range.clone()).collect();
                let gaps = coming.gaps(range);
                gaps.for_each(|gap| bytes[part(&gap)].fill(0));
            }
        }
        for step in &plan.steps {
            if let Some((source, depends_on, pieces)) = state.export(step.from, &step.range)? {
                if let (false, Some(last)) = (depends_on.is_empty(), pieces.last()) {
                    let batch = Arc::clone(last.batch());
                    started.sources.push((Arc::clone(&source.device), batch));
                }
                started.outcomes.extend(depends_on);
                started.pieces.extend(pieces);
            }
        }
        self.commit(state, &plan)?;
        for step in &plan.steps {
            let dropped = state.residency.evicted(Place::HOST, step.range.clone());
            dropped.map_err(|error| state.refusal(error))?;
        }
        Ok(started)
    }

    /// Reads from the heap, after all writes there. The buffer is unlocked during the wait for the heap, since holders
    /// of the heap may ask for the buffer.
    fn read_heap(
        &self,
        mut state: Locked<'_>,
        range: Range<u64>,
        bytes: &mut [u8],
    ) -> Result<(), BufferError> {
        let Some((heap, ptr)) = state.in_heap() else {
            // Before the first use: the initial values, or zeros.
            match &state.host {
                Some(host) => {
                    bytes.copy_from_slice(&host.bytes()[range.start as usize..range.end as usize]);
                }
                None => bytes.fill(0),
            }
            return Ok(());
        };
        // The address is fixed while the buffer lives.
        let heap = heap.clone();
        // Outcomes from before and after the wait: bytes overwritten meanwhile may have been read before.
        let mut outcomes = state.host_taint.touching(&range);
        drop(state);
        let host = heap.host()?;
        bytes.copy_from_slice(host.slice(ptr.byte_add(range.start), bytes.len())?);
        drop(host);
        outcomes.extend(self.lock().host_taint.touching(&range));
        failure_of(&outcomes)
    }
}

impl State {
    /// The outcomes of a range for bytes with the host among the latest places.
    pub(super) fn host_depends_on(&mut self, range: &Range<u64>) -> Vec<Arc<Outcome>> {
        if self.host_taint.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<Arc<Outcome>> = Vec::new();
        for (part, content) in self.residency.contents() {
            let part = part.start.max(range.start)..part.end.min(range.end);
            let here = matches!(content, Content::At(places) if places.contains(Place::HOST));
            if here && part.start < part.end {
                found.extend(self.host_taint.touching(&part));
            }
        }
        found
    }
}
