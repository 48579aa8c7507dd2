//! Carries plans out: copies from the places with the bytes to the place in want of the bytes.
//!
//! Copies out of a device ([`fetch`](super::fetch)) are submitted at once, in front of the open batch unless that writes the
//! bytes, and behind the batches that are closed. Copies into a device are recorded in its open batch, which waits for bytes
//! still on their way ([`Hop`]); earlier commands are submitted first, and so wait for nothing.
//!
//! Copies out go first because two devices exchanging edges would otherwise each send the edge behind the *next* step,
//! and work in turns.
//!
//! A transfer has an outcome, which inherits the outcomes of the bytes on the source. The source's launches are settled
//! by the source's queue, and a settling thread holds a queue already; so the transfer's outcome is resolved by
//! readers, not by the settling thread (`Outcome::resolve`).

use std::ops::Range;
use std::sync::Arc;

use super::device_allocation::DeviceAllocation;
use super::download::PIECE;
use super::error::BufferError;
use super::exchange::Crate;
use super::hop::{End, Hop};
#[cfg(embedded)]
use super::lent;
use super::root::{Root, State};
use super::uploads::{Way, uploads};
use crate::device::DeviceShared;
use crate::device::outcome::Outcome;
use crate::device::queue::{Batch, Recorder};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::migrate::{Access, Place, Plan};
use crate::memory::places::{Place as Spot, copy};
use crate::memory::staging;

/// The name of a transfer to a device in errors.
pub(super) const WHAT: &str = "a copy to a device";

/// Bytes to be recorded as a copy into the device.
pub(super) struct Load {
    pub(super) range: Range<u64>,
    /// The source of the copy, with the offset `at`; `None` for the host's own memory.
    pub(super) memory: Option<wgpu::Buffer>,
    pub(super) at: u64,
    pub(super) outcomes: Vec<Arc<Outcome>>,
    /// The device that the bytes come from; `None` for the host's own memory.
    pub(super) source: Option<Arc<DeviceShared>>,
    /// The transfer that fills `memory`, unless it is over. One for all pieces, at the first.
    pub(super) hop: Option<Arc<Hop>>,
    /// The slot to give back, and the batch of the source that fills it.
    pub(super) used: Option<(Crate, Arc<Batch>)>,
}

impl Root {
    /// Makes a plan's copies to `device`, which has memory. The caller commits the plan.
    pub(super) fn carry(
        &self,
        state: &mut State,
        plan: &Plan,
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> Result<Option<Arc<Batch>>, BufferError> {
        let loads = self.loads(state, plan, device, place)?;
        let mut others = loads.iter();
        let waited =
            others.try_for_each(|load| state.after_others(place, &load.range, Access::Overwrite));
        if let Err(error) = waited {
            self.give_back(loads, None);
            return Err(error);
        }
        let Some(copy) = state.copy(place).filter(|_| !loads.is_empty()) else {
            return Ok(None);
        };
        let target = (Arc::clone(&copy.shared), copy.base);
        #[cfg(embedded)]
        let (loads, last) = self.lend_loads(state, device, place, &target, loads)?;
        #[cfg(embedded)]
        if loads.is_empty() {
            return Ok(last);
        }
        let mut queue = device.queue.lock(device);
        // Staging memory for reuse after the end of the batch.
        let mut emptied = Vec::new();
        let recorded = self.record_loads(&mut queue, state, device, &target, &loads, &mut emptied);
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        self.book(state, device, place, &loads, &batch);
        self.give_back(loads, Some((device, &batch)));
        for memory in emptied {
            staging::of(device).give_upload(memory, End::of(device, Arc::clone(&batch)));
        }
        recorded?;
        Ok(Some(batch))
    }

    /// Starts the transfers of a plan to memory from which `device` can copy.
    fn loads(
        &self,
        state: &mut State,
        plan: &Plan,
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> Result<Vec<Load>, BufferError> {
        let mut loads = Vec::new();
        for upload in uploads(plan, state.residency.memory_of(place)) {
            let made = match upload.way {
                Way::Host => {
                    loads.push(Load {
                        outcomes: state.host_depends_on(&upload.range),
                        at: upload.range.start % 4,
                        range: upload.range,
                        memory: None,
                        source: None,
                        hop: None,
                        used: None,
                    });
                    Ok(())
                }
                Way::Through(from) => {
                    self.load_through(state, device, (from, place), upload.range, &mut loads)
                }
                Way::Exchange(from) => {
                    self.load_exchange(state, device, (from, place), upload.range, &mut loads)
                }
            };
            if let Err(error) = made {
                self.give_back(loads, None);
                return Err(error);
            }
        }
        Ok(loads)
    }

    /// Records all copies into the device's memory, also after a refusal. Returns the first error.
    fn record_loads(
        &self,
        queue: &mut Recorder<'_>,
        state: &mut State,
        device: &Arc<DeviceShared>,
        (target, base): &(Arc<BufferShared>, u64),
        loads: &[Load],
        emptied: &mut Vec<wgpu::Buffer>,
    ) -> Result<(), MemoryError> {
        let target = (&**target, *base);
        let is_foreign = loads.iter().any(|load| load.source.is_some());
        if is_foreign && queue.has_commands() {
            // Earlier commands need not wait for the bytes, and others may wait for what they have sent.
            queue.pass_on();
        }
        let mut all = Ok(());
        for load in loads {
            let recorded = match &load.memory {
                Some(memory) => {
                    if load.used.is_none() {
                        emptied.push(memory.clone());
                    }
                    self.record(queue, device, target, load, memory)
                }
                None => {
                    let part = load.range.start as usize..load.range.end as usize;
                    let bytes = state.host_bytes(WHAT, self.bytes).map(|bytes| &bytes[part]);
                    bytes.and_then(|bytes| self.upload(queue, device, target, load, bytes, emptied))
                }
            };
            all = all.and(recorded);
            if let Some(hop) = &load.hop {
                queue.dependencies().hold_for(Arc::clone(hop) as _);
            }
        }
        all
    }

    /// Has an idle device copy from the host's memory where it lies. Returns the other loads, and the last batch.
    #[cfg(embedded)]
    fn lend_loads(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
        (target, base): &(Arc<BufferShared>, u64),
        loads: Vec<Load>,
    ) -> Result<(Vec<Load>, Option<Arc<Batch>>), BufferError> {
        let (mut rest, mut last) = (Vec::new(), None);
        let mut loads = loads.into_iter();
        while let Some(load) = loads.next() {
            let sent = match &load.memory {
                Some(_) => Ok(None),
                None => {
                    let part = load.range.start as usize..load.range.end as usize;
                    let range = base + load.range.start..base + load.range.end;
                    let bytes = state.host_bytes(WHAT, self.bytes).map(|bytes| &bytes[part]);
                    bytes.and_then(|bytes| lent::upload(target, range, bytes))
                }
            };
            match sent {
                Ok(Some(batch)) => {
                    self.book(state, device, place, &[load], &batch);
                    last = Some(batch);
                }
                Ok(None) => rest.push(load),
                Err(error) => {
                    rest.extend(loads);
                    self.give_back(rest, None);
                    return Err(error.into());
                }
            }
        }
        Ok((rest, last))
    }

    /// Enters the recorded copies into the books of the device's memory, and starts the transfers through the host.
    fn book(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
        loads: &[Load],
        batch: &Arc<Batch>,
    ) {
        let is_common = state.copy(place).is_some_and(DeviceAllocation::is_common);
        let now = self.context().tick();
        for load in loads {
            if let Some(copy) = state.copy_mut(place) {
                copy.filled(&load.range, &load.outcomes);
                copy.used(batch, Some(load.range.clone()), now);
            }
            if is_common {
                state.begin(device, place, &load.range, Access::Overwrite, batch, true);
            }
            // A load with memory has at most one outcome, the outcome of its transfer.
            if let (Some(_), [outcome]) = (&load.memory, &load.outcomes[..])
                && outcome.went_wrong() != Some(false)
            {
                let arrival = (Arc::clone(outcome), place, load.range.clone());
                state.arrivals.push(arrival);
            }
            if let (Some(hop), Some(source)) = (&load.hop, &load.source) {
                self.context().transfer_threads.send(hop, source, device);
            }
        }
    }

    fn record(
        &self,
        queue: &mut Recorder<'_>,
        device: &Arc<DeviceShared>,
        (target, base): (&BufferShared, u64),
        load: &Load,
        memory: &wgpu::Buffer,
    ) -> Result<(), MemoryError> {
        let from = Spot::in_buffer(memory, load.at, true);
        let is_last = load.range.end == self.bytes;
        let to = Spot::in_buffer(&target.raw, base + load.range.start, is_last);
        copy(queue, device, &from, &to, load.range.end - load.range.start)
    }

    /// Records a copy from the host's memory, in pieces, so that all uploads share staging memory of one size.
    fn upload(
        &self,
        queue: &mut Recorder<'_>,
        device: &Arc<DeviceShared>,
        (target, base): (&BufferShared, u64),
        load: &Load,
        bytes: &[u8],
        emptied: &mut Vec<wgpu::Buffer>,
    ) -> Result<(), MemoryError> {
        let mut start = load.range.start;
        let mut rest = bytes;
        while !rest.is_empty() {
            // All pieces but the last end with a word.
            let most = (PIECE - start % 4).min(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at(most);
            let memory = staging::of(device).filled(device, WHAT, start % 4, piece)?;
            let from = Spot::in_buffer(&memory, start % 4, true);
            emptied.push(memory);
            let end = start + piece.len() as u64;
            let to = Spot::in_buffer(&target.raw, base + start, end == self.bytes);
            copy(queue, device, &from, &to, end - start)?;
            (start, rest) = (end, later);
        }
        Ok(())
    }

    fn give_back(&self, loads: Vec<Load>, user: Option<(&Arc<DeviceShared>, &Arc<Batch>)>) {
        for load in loads {
            let (Some((slot, filled)), Some(source)) = (load.used, &load.source) else {
                continue;
            };
            // Also behind the source's batch: the user's may be refused, and says nothing of the source then.
            let mut ends = vec![End::of(source, filled)];
            ends.extend(user.map(|(device, batch)| End::of(device, Arc::clone(batch))));
            self.context().exchange.give(slot, ends);
        }
    }
}
