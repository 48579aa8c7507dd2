//! Loads of bytes that other devices have: through memory that both see, or through the host.
//!
//! Bytes that were sent ahead ([`ahead`](super::ahead)) need no copy out of the source. Others are copied out by a
//! submission of their own, in front of the open batch unless that writes the bytes.

use std::ops::Range;
use std::sync::Arc;

use super::ahead::Landing;
use super::carry::{Load, WHAT};
use super::download::{self, Download};
use super::error::BufferError;
use super::exchange::{Crate, NoSlot};
use super::hop::{End, Hop, Piece, has_come};
use super::root::{Root, State};
use crate::clock::Instant;
use crate::device::external_dependency::ExternalDependency;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::{DeviceShared, capture};
use crate::memory::MemoryError;
use crate::memory::migrate::{Access, Place, Route};
use crate::memory::staging;

/// The most bytes that the recording thread copies itself if they have come to the host already: to wake another thread
/// takes longer.
const FEW_BYTES: u64 = 64 << 10;

impl Root {
    /// Through one memory from the source to the host, and another from the host to the target.
    pub(super) fn load_through(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        (from, place): (Place, Place),
        range: Range<u64>,
        loads: &mut Vec<Load>,
    ) -> Result<(), BufferError> {
        match self.load_sent(state, device, (from, place), &range, loads)? {
            true => Ok(()),
            false => self.load_exported(state, device, from, range, loads),
        }
    }

    fn load_exported(
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
        let outcome = Outcome::of_transfer(&source.device, depends_on);
        let hop = |pieces| Hop::new(pieces, Arc::clone(&outcome));
        loads.extend(staged(
            (&source.device, device),
            pieces,
            Vec::new(),
            &outcome,
            hop,
        )?);
        Ok(())
    }

    /// Loads `range` if it was sent ahead.
    fn load_sent(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        (from, place): (Place, Place),
        range: &Range<u64>,
        loads: &mut Vec<Load>,
    ) -> Result<bool, BufferError> {
        state.may_submit_at(from, "a transfer from there")?;
        state.after_others(from, range, Access::Read)?;
        let Some(copy) = state.copy_mut(from) else {
            return Ok(false);
        };
        let owner = Arc::clone(&copy.shared.device);
        owner.lost.check().map_err(Arc::new)?;
        let (sent, dropped) = copy.ahead.fetch(place, range);
        copy.take_back(dropped.into_iter().collect());
        let Some((landing, batch)) = sent else {
            return Ok(false);
        };
        if !batch.is_closed() {
            owner.queue.lock(&owner).pass_on();
        }
        let is_coming = batch.is_closed() && !matches!(batch.submission(), Some(Err(_)));
        if !is_coming || !landing.is_in_reach_of(device) {
            if let Some(copy) = state.copy(from) {
                copy.take_back(vec![(landing, batch)]);
            }
            return Ok(false);
        }
        let depends_on = state.depends_on(from, range);
        match landing {
            Landing::Slot(slot) => {
                loads.extend(arriving(
                    &owner,
                    device,
                    range.clone(),
                    (slot, batch),
                    depends_on,
                ));
            }
            Landing::Staging(memory) => {
                let outcome = Outcome::of_transfer(&owner, depends_on);
                let end = Piece::End(End::of(&owner, Arc::clone(&batch)));
                let hop = |pieces| Hop::of_sent(&owner, &batch, pieces, Arc::clone(&outcome));
                let sent = Download::sent(&owner, Arc::clone(&batch), memory, range.clone());
                loads.extend(staged(
                    (&owner, device),
                    vec![sent],
                    vec![end],
                    &outcome,
                    hop,
                )?);
            }
        }
        state.statistics.fetched_ahead += 1;
        self.context().count(|totals| totals.fetched_ahead += 1);
        Ok(true)
    }

    /// Through memory seen by both devices.
    pub(super) fn load_exchange(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        (from, place): (Place, Place),
        range: Range<u64>,
        loads: &mut Vec<Load>,
    ) -> Result<(), BufferError> {
        if self.load_sent(state, device, (from, place), &range, loads)? {
            return Ok(());
        }
        let Some(copy) = state.copy(from) else {
            return Ok(());
        };
        let (source, base) = (Arc::clone(&copy.shared), copy.base);
        let owner = Arc::clone(&source.device);
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
        let taken = match exchange.take(bytes, &owner, device) {
            Ok(taken) => taken,
            Err(why) => {
                if why == NoSlot::Refused {
                    // Bytes go through the host from now on.
                    self.context().close_route(&owner, device);
                    (state.routes).set_both(from, place, Route::ThroughHost, 0);
                }
                return self.load_exported(state, device, from, range, loads);
            }
        };
        let Some(seen) = taken.seen_by(&owner) else {
            exchange.give(taken, Vec::new());
            return Ok(());
        };
        let depends_on = state.depends_on(from, &range);
        // The lock is kept, so that no unseen command is recorded in between.
        let mut queue = owner.queue.lock(&owner);
        let (commands, error) = capture(&owner.raw, || {
            let mut encoder = (owner.raw).create_command_encoder(&wgpu::CommandEncoderDescriptor {
                label: Some("tombolo copy to a transfer slot"),
            });
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

/// Bytes on their way from one device to the other through the host, whose pieces arrive behind `first`.
pub(super) fn staged(
    (owner, device): (&Arc<DeviceShared>, &Arc<DeviceShared>),
    downloads: Vec<Download>,
    first: Vec<Piece>,
    outcome: &Arc<Outcome>,
    hop: impl FnOnce(Vec<Piece>) -> Arc<Hop>,
) -> Result<Vec<Load>, MemoryError> {
    let last = downloads.last().map(|last| Arc::clone(last.batch()));
    let bytes: u64 = (downloads.iter())
        .map(|piece| piece.range.end - piece.range.start)
        .sum();
    let mut pieces = first;
    let mut memories = Vec::with_capacity(downloads.len());
    for piece in downloads {
        let at = piece.range.start % 4;
        let bytes = (at + piece.range.end - piece.range.start).next_multiple_of(4);
        let memory = staging::of(device).upload(device, WHAT, bytes)?;
        memories.push((piece.range.clone(), memory.clone(), at));
        pieces.push(Piece::Bytes {
            from: Box::new(piece),
            device: device.raw.clone(),
            to: memory,
        });
    }
    let hop = hop(pieces);
    if bytes <= FEW_BYTES && last.is_some_and(|last| has_come(owner, &last, device)) {
        hop.complete(Some(Instant::now()));
    }
    let is_over = hop.is_complete();
    let load = |(index, (range, memory, at))| Load {
        range,
        memory: Some(memory),
        at,
        outcomes: vec![Arc::clone(outcome)],
        source: Some(Arc::clone(owner)),
        hop: (index == 0 && !is_over).then(|| Arc::clone(&hop)),
        used: None,
    };
    Ok(memories.into_iter().enumerate().map(load).collect())
}

/// Bytes on their way from `owner` through a slot that both devices see, which the batch fills. The batch is closed.
fn arriving(
    owner: &Arc<DeviceShared>,
    device: &Arc<DeviceShared>,
    range: Range<u64>,
    (slot, batch): (Crate, Arc<Batch>),
    depends_on: Vec<Arc<Outcome>>,
) -> Option<Load> {
    let memory = slot.seen_by(device)?;
    let has_come = has_come(owner, &batch, device);
    // What has come is as good as the source's own bytes: no outcome of its own, no batch held back, and no thread.
    let outcome =
        (!has_come || !depends_on.is_empty()).then(|| Outcome::of_transfer(owner, depends_on));
    let hop = match &outcome {
        Some(outcome) if !has_come => {
            let end = Piece::End(End::of(owner, Arc::clone(&batch)));
            Some(Hop::of_sent(owner, &batch, vec![end], Arc::clone(outcome)))
        }
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
