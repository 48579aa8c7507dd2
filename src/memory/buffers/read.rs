//! Reads of buffers by the host: copies of what the host has, and copies from the devices that have the rest.

use std::ops::Range;
use std::sync::Arc;

use super::download::Arriving;
use super::error::BufferError;
use super::evict::missed;
use super::root::{HostBytes, Locked, Root, State};
use crate::device::DeviceShared;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::wait::{Waits, settled};
use crate::memory::migrate::{Access, Content, Place, Step, Want};
use crate::span::span;

/// A read under way.
#[derive(Default)]
struct Started<'a> {
    arriving: Arriving<'a>,
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
        // The devices leave `bytes` alone when this returns: the future is run to its end.
        pollster::block_on(self.read_into_by(what, range, bytes, own, (waits, true)))
    }

    /// As [`Self::read_into`], waiting for a device as `waits` says. With `may_lend` devices may copy to `bytes` themselves; the
    /// future must not be forgotten then, whose drop ends that.
    pub(super) async fn read_into_by(
        &self,
        what: &'static str,
        range: Range<u64>,
        bytes: &mut [u8],
        own: Option<u64>,
        (waits, may_lend): (impl Fn(&Arc<DeviceShared>) -> Waits, bool),
    ) -> Result<(), BufferError> {
        if range.is_empty() {
            return Ok(());
        }
        loop {
            let begun = {
                let mut state = self.enter(what)?;
                state.check_maps(what, &range, false, own)?;
                state.notice_losses();
                if state.is_shared() {
                    return self.read_heap(state, range, bytes);
                }
                match self.start_read(&mut state, &range, bytes, may_lend) {
                    Ok(started) => Some(started),
                    Err(error) if !state.suspect_losses() => return Err(error),
                    // After the loss of a device, others may have the bytes.
                    Err(_) => None,
                }
            };
            let Some(started) = begun else {
                continue;
            };
            started.arriving.come(&waits).await.map_err(Arc::new)?;
            if let Err(why) = started.arriving.arrive() {
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

    /// Copies the host's bytes, and starts to bring the rest.
    fn start_read<'a>(
        &self,
        state: &mut State,
        range: &Range<u64>,
        bytes: &'a mut [u8],
        may_lend: bool,
    ) -> Result<Started<'a>, BufferError> {
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
        // Each byte comes from one place, so the steps are disjoint.
        let mut steps: Vec<&Step> = plan.steps.iter().collect();
        steps.sort_by_key(|step| step.range.start);
        let (mut rest, mut at) = (bytes, range.start);
        for step in steps {
            let (here, behind) = rest.split_at_mut((step.range.start - at) as usize);
            copy_here(state.host.as_deref(), at, here);
            let (part, behind) = behind.split_at_mut((step.range.end - step.range.start) as usize);
            (rest, at) = (behind, step.range.end);
            let arriving = &mut started.arriving;
            let exported = state.export_to(step.from, &step.range, part, may_lend, arriving)?;
            if let Some(exported) = exported {
                started.sources.extend(exported.source);
                started.outcomes.extend(exported.outcomes);
            }
        }
        copy_here(state.host.as_deref(), at, rest);
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

/// Copies the host's bytes from byte `start` of a buffer on; zeros for bytes never written.
fn copy_here(host: Option<&dyn HostBytes>, start: u64, to: &mut [u8]) {
    match host {
        Some(host) => to.copy_from_slice(&host.bytes()[start as usize..][..to.len()]),
        None => to.fill(0),
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
