//! Plans become commands: copies out of the places that have the bytes, and into the one that wants them.
//!
//! Copies out of a device are submitted at once, in front of what is recorded there and not submitted, unless that
//! writes the bytes. Copies into a device are recorded in its open batch, which waits for what is still on its way
//! ([`Hop`]); what was recorded there before is submitted first, so that it waits for nothing.
//!
//! Copies out go first because two devices exchanging edges would otherwise each send the edge behind the *next* step,
//! and work in turns.
//!
//! A transfer has an outcome, which inherits the outcomes of the bytes on the source. The source's launches are
//! settled by the source's queue, and a settling thread holds a queue already; so the transfer's outcome is resolved
//! by readers, not by the thread that settles (`Outcome::resolve`).

use std::ops::Range;
use std::sync::Arc;

use super::download::Download;
use super::error::BufferError;
use super::exchange::{Crate, MOST_BYTES};
use super::hop::{End, Hop, Piece};
use super::root::{Root, State};
use crate::device::outcome::Outcome;
use crate::device::queue::{Batch, Recorder};
use crate::device::{DeviceShared, capture};
use crate::memory::buffer::{BufferShared, MemoryError};
use crate::memory::migrate::{Access, Place, Places, Plan, Route};
use crate::memory::places::{Place as Spot, copy};
use crate::memory::staging;

/// What transfers to a device call themselves.
const WHAT: &str = "a copy to a device";
/// Bytes that go through one piece of staging memory: enough that what a piece costs by itself does not show.
const PIECE: u64 = 8 << 20;

/// Bytes of one buffer that go to one device in one way.
struct Upload {
    way: Way,
    range: Range<u64>,
}

#[derive(PartialEq, Clone, Copy)]
enum Way {
    /// The host has them.
    Host,
    /// A device has them; through copies of the host.
    Through(Place),
    /// A device has them; through memory that both see.
    Exchange(Place),
}

/// Bytes that are to be recorded, or that wait for the host.
struct Load {
    range: Range<u64>,
    /// Where they lie, and where in it; `None` for the host's own memory.
    memory: Option<wgpu::Buffer>,
    at: u64,
    outcomes: Vec<Arc<Outcome>>,
    /// Made when they have arrived.
    hop: Option<(Arc<Hop>, Arc<DeviceShared>)>,
    /// Given back when the batch has ended.
    used: Option<Crate>,
}

/// What the plan brings to a memory, which may be that of several places, in pieces as long as can be.
fn uploads(plan: &Plan, memory: Places) -> Vec<Upload> {
    let mut uploads: Vec<Upload> = Vec::new();
    for step in &plan.steps {
        if !memory.contains(step.to) {
            continue;
        }
        let way = match (step.after, step.route) {
            (Some(earlier), _) => Way::Through(plan.steps[earlier].from),
            _ if step.from.is_host() => Way::Host,
            (None, Route::SharedHost) => Way::Exchange(step.from),
            (None, _) => Way::Through(step.from),
        };
        let most = match way {
            Way::Exchange(_) => MOST_BYTES,
            _ => u64::MAX,
        };
        match uploads.last_mut() {
            Some(last)
                if last.way == way
                    && last.range.end == step.range.start
                    && step.range.end - last.range.start <= most =>
            {
                last.range.end = step.range.end;
            }
            _ => {
                let mut start = step.range.start;
                while start < step.range.end {
                    let end = (step.range.end).min(start.saturating_add(most) / 4 * 4);
                    let end = if end <= start { step.range.end } else { end };
                    uploads.push(Upload {
                        way,
                        range: start..end,
                    });
                    start = end;
                }
            }
        }
    }
    uploads
}

impl Root {
    /// Makes the copies of a plan that bring bytes to `device`, whose memory is there. Not yet in the books.
    pub(super) fn carry(
        &self,
        state: &mut State,
        plan: &Plan,
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> Result<Option<Arc<Batch>>, BufferError> {
        let mut loads = Vec::new();
        for upload in uploads(plan, state.residency.memory_of(place)) {
            let made = match upload.way {
                Way::Host => {
                    loads.push(Load {
                        outcomes: state.host_depends_on(&upload.range),
                        at: upload.range.start % 4,
                        range: upload.range,
                        memory: None,
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
        if loads.is_empty() {
            return Ok(None);
        }
        for load in &loads {
            state.after_others(place, &load.range, Access::Overwrite);
        }
        let Some(copy) = state.copy(place) else {
            return Ok(None);
        };
        let is_common = copy.is_common();
        let (shared, base) = (Arc::clone(&copy.shared), copy.base);
        let target = (&*shared, base);
        let mut queue = device.queue.lock(device);
        let waits = loads.iter().any(|load| load.hop.is_some());
        if waits && queue.has_commands() && !queue.dependencies().has_held() {
            // What was recorded before does not wait.
            let _ = queue.flush();
        }
        let mut failed = None;
        // What the device copies out of, and may be filled again when the batch has ended.
        let mut emptied = Vec::new();
        for load in &loads {
            let recorded = match &load.memory {
                Some(memory) => {
                    if load.used.is_none() {
                        emptied.push(memory.clone());
                    }
                    self.record(&mut queue, device, target, load, memory)
                }
                None => {
                    let part = load.range.start as usize..load.range.end as usize;
                    let bytes = state.host_bytes(WHAT, self.bytes).map(|bytes| &bytes[part]);
                    bytes.and_then(|bytes| {
                        self.upload(&mut queue, device, target, load, bytes, &mut emptied)
                    })
                }
            };
            if let Err(error) = recorded {
                failed.get_or_insert(error);
            }
            if let Some((hop, _)) = &load.hop {
                queue.dependencies().hold_for(Arc::clone(hop) as _);
            }
        }
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        let now = self.context().tick();
        for load in &loads {
            if let Some(copy) = state.copy_mut(place) {
                copy.filled(&load.range, &load.outcomes);
                copy.used(&batch, Some(load.range.clone()), now);
            }
            if is_common {
                state.begin(device, place, &load.range, Access::Overwrite, &batch, true);
            }
            // The outcome of a load is that of its transfer, where it waits for one.
            if let (Some(_), [outcome]) = (&load.memory, &load.outcomes[..]) {
                let arrival = (Arc::clone(outcome), place, load.range.clone());
                state.arrivals.push(arrival);
            }
            if let Some((hop, source)) = &load.hop {
                self.context().transfer_thread.send(hop, source, device);
            }
        }
        self.give_back(loads, Some((device, &batch)));
        for memory in emptied {
            staging::of(device).give_upload(memory, End::of(device, Arc::clone(&batch)));
        }
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(Some(batch)),
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

    /// Records the copy of what the host has, in pieces, so that staging memory of one size serves for all.
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
            // All pieces but the last one end with a word.
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
            // Where nothing was recorded the source may still write there, and nobody sees when it has ended.
            if let (Some(used), Some((device, batch))) = (load.used, user) {
                let end = End::of(device, Arc::clone(batch));
                self.context().exchange.give(used, vec![end]);
            }
        }
    }

    /// Through memory that the source writes and the host reads, and memory that the host writes and the target reads.
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
        let mut parts = Vec::with_capacity(pieces.len());
        let mut memories = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let at = piece.range.start % 4;
            let bytes = (at + piece.range.end - piece.range.start).next_multiple_of(4);
            let memory = staging::of(device).upload(device, WHAT, bytes)?;
            memories.push((piece.range.clone(), memory.clone(), at));
            parts.push(Piece::Bytes {
                from: piece,
                to: memory,
            });
        }
        let hop = Hop::new(parts, Arc::clone(&outcome));
        for (index, (range, memory, at)) in memories.into_iter().enumerate() {
            loads.push(Load {
                range,
                memory: Some(memory),
                at,
                outcomes: vec![Arc::clone(&outcome)],
                // One dependency for all of them.
                hop: (index == 0).then(|| (Arc::clone(&hop), Arc::clone(&owner))),
                used: None,
            });
        }
        Ok(())
    }

    /// Through memory that both devices see.
    fn load_exchange(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        from: Place,
        place: Place,
        range: Range<u64>,
        loads: &mut Vec<Load>,
    ) -> Result<(), BufferError> {
        state.after_others(from, &range, Access::Read);
        let Some(copy) = state.copy(from) else {
            return Ok(());
        };
        let (source, base) = (Arc::clone(&copy.shared), copy.base);
        let owner = Arc::clone(&source.device);
        owner.lost.check().map_err(Arc::new)?;
        if state
            .copy_mut(from)
            .is_some_and(|copy| copy.is_unsent(&range))
        {
            owner.flush()?;
        }
        let words = range.start / 4 * 4..range.end.next_multiple_of(4);
        let bytes = words.end - words.start;
        // From here on there is a crate to give back.
        let exchange = &self.context().exchange;
        let Some(taken) = exchange.take(bytes, &owner, device) else {
            // It is not to be had: from now on bytes go the other way.
            self.context().close_route(from, place);
            return self.load_through(state, device, from, range, loads);
        };
        let (Some(seen), Some(memory)) = (taken.seen_by(&owner), taken.seen_by(device)) else {
            return Ok(());
        };
        let (seen, memory) = (seen.clone(), memory.clone());
        let depends_on = state.depends_on(from, &range);
        // Held, so that nothing is recorded in between that was not looked at.
        let mut queue = owner.queue.lock(&owner);
        let (commands, error) = capture(&owner.raw, || {
            let mut encoder =
                (owner.raw).create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
            encoder.copy_buffer_to_buffer(&source.raw, base + words.start, &seen, 0, bytes);
            encoder.finish()
        });
        let sent = match error {
            None => queue.submit_now(commands).map_err(MemoryError::from),
            Some(error) => Err(super::download::refused(&owner, &error)),
        };
        drop(queue);
        let batch = match sent {
            Ok(batch) => batch,
            Err(error) => {
                exchange.give(taken, Vec::new());
                return Err(error.into());
            }
        };
        state.begin_reading(from, &range, &batch);
        let outcome = Outcome::of_transfer(&owner, depends_on);
        let piece = Piece::End(End::of(&owner, batch));
        let hop = Hop::new(vec![piece], Arc::clone(&outcome));
        loads.push(Load {
            at: range.start % 4,
            range,
            memory: Some(memory),
            outcomes: vec![outcome],
            hop: Some((hop, owner)),
            used: Some(taken),
        });
        Ok(())
    }
}

/// A buffer, the outcomes that decide about a range of it, and that range on its way to the host.
type Export = (Arc<BufferShared>, Vec<Arc<Outcome>>, Vec<Download>);

impl State {
    /// Starts to bring `range` down from a device.
    pub(super) fn export(
        &mut self,
        from: Place,
        range: &Range<u64>,
    ) -> Result<Option<Export>, BufferError> {
        self.after_others(from, range, Access::Read);
        let Some(copy) = self.copy_mut(from) else {
            return Ok(None);
        };
        let unsent = copy.is_unsent(range);
        let shared = Arc::clone(&copy.shared);
        let pieces = Download::start(&shared, copy.base, range.clone(), unsent)?;
        if let Some(last) = pieces.last() {
            self.begin_reading(from, range, last.batch());
        }
        let depends_on = self.depends_on(from, range);
        Ok(Some((shared, depends_on, pieces)))
    }
}
