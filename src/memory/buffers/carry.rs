//! Carries plans out: copies from the places with the bytes to the place in want of the bytes.
//!
//! Copies out of a device are submitted at once, in front of the open batch unless that writes the bytes, and behind the
//! batches that are closed; bytes that were sent ahead ([`ahead`](super::ahead)) need no copy out. Copies into a device are recorded in its open batch, which waits for bytes still on their way ([`Hop`]);
//! earlier commands are submitted first, and so wait for nothing.
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
use super::download::{self, PIECE};
use super::error::BufferError;
use super::exchange::Crate;
use super::hop::{End, Hop, Piece, has_come};
#[cfg(embedded)]
use super::lent;
use super::root::{Root, State};
use super::uploads::{Way, uploads};
use crate::clock::Instant;
use crate::device::external_dependency::ExternalDependency;
use crate::device::outcome::Outcome;
use crate::device::queue::{Batch, Recorder};
use crate::device::{DeviceShared, capture};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::migrate::{Access, Place, Plan, Route};
use crate::memory::places::{Place as Spot, copy};
use crate::memory::staging;

/// The most bytes that the recording thread copies itself if they have come to the host already: to wake another thread
/// takes longer.
const FEW_BYTES: u64 = 64 << 10;

/// The name of a transfer to a device in errors.
const WHAT: &str = "a copy to a device";

/// Bytes to be recorded as a copy into the device.
struct Load {
    range: Range<u64>,
    /// The source of the copy, with the offset `at`; `None` for the host's own memory.
    memory: Option<wgpu::Buffer>,
    at: u64,
    outcomes: Vec<Arc<Outcome>>,
    /// The device that the bytes come from; `None` for the host's own memory.
    source: Option<Arc<DeviceShared>>,
    /// The transfer that fills `memory`, unless it is over. One for all pieces, at the first.
    hop: Option<Arc<Hop>>,
    /// The slot to give back, and the batch of the source that fills it.
    used: Option<(Crate, Arc<Batch>)>,
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
                    self.load_through(state, device, from, upload.range, &mut loads)
                }
                Way::Exchange(from) => {
                    self.load_exchange(state, device, from, place, upload.range, &mut loads)
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

    /// Through one memory from the source to the host, and another from the host to the target.
    fn load_through(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        from: Place,
        range: Range<u64>,
        loads: &mut Vec<Load>,
    ) -> Result<(), BufferError> {
        let Some((source, depends_on, pieces)) = state.export(from, &range)? else {
            return Ok(());
        };
        let owner = Arc::clone(&source.device);
        let outcome = Outcome::of_transfer(&owner, depends_on);
        let are_few = range.end - range.start <= FEW_BYTES;
        let last = pieces.last().map(|last| Arc::clone(last.batch()));
        let mut parts = Vec::with_capacity(pieces.len());
        let mut memories = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let at = piece.range.start % 4;
            let bytes = (at + piece.range.end - piece.range.start).next_multiple_of(4);
            let memory = staging::of(device).upload(device, WHAT, bytes)?;
            memories.push((piece.range.clone(), memory.clone(), at));
            parts.push(Piece::Bytes {
                from: Box::new(piece),
                device: device.raw.clone(),
                to: memory,
            });
        }
        let hop = Hop::new(parts, Arc::clone(&outcome));
        if are_few && last.is_some_and(|last| has_come(&owner, &last, device)) {
            hop.complete(Some(Instant::now()));
        }
        let is_over = hop.is_complete();
        for (index, (range, memory, at)) in memories.into_iter().enumerate() {
            loads.push(Load {
                range,
                memory: Some(memory),
                at,
                outcomes: vec![Arc::clone(&outcome)],
                source: Some(Arc::clone(&owner)),
                hop: (index == 0 && !is_over).then(|| Arc::clone(&hop)),
                used: None,
            });
        }
        Ok(())
    }

    /// Through memory seen by both devices.
    fn load_exchange(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        from: Place,
        place: Place,
        range: Range<u64>,
        loads: &mut Vec<Load>,
    ) -> Result<(), BufferError> {
        state.may_submit_at(from, "a transfer from there")?;
        state.after_others(from, &range, Access::Read)?;
        let Some(copy) = state.copy(from) else {
            return Ok(());
        };
        let (source, base) = (Arc::clone(&copy.shared), copy.base);
        let owner = Arc::clone(&source.device);
        owner.lost.check().map_err(Arc::new)?;
        let (sent, dropped) =
            (state.copy_mut(from)).map_or((None, None), |copy| copy.ahead.fetch(place, &range));
        if let (Some(copy), Some(dropped)) = (state.copy(from), dropped) {
            copy.take_back(vec![dropped]);
        }
        if let Some((slot, batch)) = sent {
            if !batch.is_closed() {
                owner.queue.lock(&owner).pass_on();
            }
            let is_coming = batch.is_closed() && !matches!(batch.submission(), Some(Err(_)));
            if is_coming && slot.seen_by(device).is_some() {
                let depends_on = state.depends_on(from, &range);
                loads.extend(arriving(&owner, device, range, (slot, batch), depends_on));
                state.statistics.fetched_ahead += 1;
                self.context().count(|totals| totals.fetched_ahead += 1);
                return Ok(());
            }
            (self.context().exchange).give(slot, vec![End::of(&owner, batch)]);
        }
        if state
            .copy_mut(from)
            .is_some_and(|copy| copy.is_unsent(&range))
        {
            owner.flush()?;
        }
        let words = range.start / 4 * 4..range.end.next_multiple_of(4);
        let bytes = words.end - words.start;
        // From here on there is a slot to give back.
        let exchange = &self.context().exchange;
        let Some(taken) = exchange.take(bytes, &owner, device) else {
            // Without a slot, bytes go through the host from now on.
            self.context().close_route(&owner, device);
            (state.routes).set_both(from, place, Route::ThroughHost, 0);
            return self.load_through(state, device, from, range, loads);
        };
        let Some(seen) = taken.seen_by(&owner).cloned() else {
            return Ok(());
        };
        let depends_on = state.depends_on(from, &range);
        // The lock is kept, so that no unseen command is recorded in between.
        let mut queue = owner.queue.lock(&owner);
        let (commands, error) = capture(&owner.raw, || {
            let mut encoder =
                (owner.raw).create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
            encoder.copy_buffer_to_buffer(&source.raw, base + words.start, &seen, 0, bytes);
            encoder.finish()
        });
        let sent = match error {
            None => queue.send_now(commands).map_err(MemoryError::from),
            Some(error) => Err(staging::refusal(&owner, download::WHAT, bytes, &error)),
        };
        drop(queue);
        let batch = match sent {
            Ok(batch) => batch,
            Err(error) => {
                exchange.give(taken, Vec::new());
                return Err(error.into());
            }
        };
        if let Some(Err(error)) = batch.submission() {
            // Behind the batch: a loss told by the submission says nothing of what the driver has got.
            exchange.give(taken, vec![End::of(&owner, Arc::clone(&batch))]);
            return Err(MemoryError::from(Arc::clone(error)).into());
        }
        state.begin_reading(from, &range, &batch);
        loads.extend(arriving(&owner, device, range, (taken, batch), depends_on));
        Ok(())
    }
}

/// Bytes on their way from `owner` through a slot that both devices see, which the batch fills. The batch is closed.
fn arriving(
    owner: &Arc<DeviceShared>,
    device: &Arc<DeviceShared>,
    range: Range<u64>,
    (slot, batch): (Crate, Arc<Batch>),
    depends_on: Vec<Arc<Outcome>>,
) -> Option<Load> {
    let memory = slot.seen_by(device)?.clone();
    let has_come = has_come(owner, &batch, device);
    // What has come is as good as the source's own bytes: no outcome of its own, no batch held back, and no thread.
    let outcome =
        (!has_come || !depends_on.is_empty()).then(|| Outcome::of_transfer(owner, depends_on));
    let hop = match &outcome {
        Some(outcome) if !has_come => Some(Hop::of_sent(owner, &batch, Arc::clone(outcome))),
        Some(outcome) => {
            outcome.settle(Ok(()));
            None
        }
        None => None,
    };
    Some(Load {
        at: range.start % 4,
        range,
        memory: Some(memory),
        outcomes: outcome.into_iter().collect(),
        source: Some(Arc::clone(owner)),
        hop,
        used: Some((slot, batch)),
    })
}
