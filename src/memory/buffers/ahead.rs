//! Bytes sent ahead: what a device has fetched from another one launch after launch is copied to where both see it,
//! or to where the host does, right behind the launch that writes it, in the batch of that launch unless the launch
//! fills it.
//!
//! Two devices that exchange edges ask for an edge when the next step is recorded. By then the source may have its own
//! next step in its queue, and a copy out would come behind that step: the devices would work in turns. Sent ahead, the
//! edge is out when the step that makes it ends, and needs no submission of its own.
//!
//! What is sent is decided by habit: a range that another device has fetched [`OFTEN`] times, when a launch has written it
//! as a whole. Bytes that are written again before anybody has fetched them were sent in vain; a habit that is
//! in vain [`VAIN`] times in a row is given up. A wrong guess costs a copy, and never a byte: bytes sent ahead are those
//! of the memory until the next write there ([`DeviceAllocation::used`]), which drops them.
//!
//! [`DeviceAllocation::used`]: super::device_allocation::DeviceAllocation::used

use std::ops::Range;
use std::sync::Arc;

use super::download;
use super::exchange::Crate;
use super::root::{Root, State};
use crate::device::DeviceShared;
use crate::device::queue::Batch;
use crate::device::staging::Lent;
use crate::memory::migrate::{Place, Route};
use crate::memory::staging;

/// Fetches of a range before it is sent.
const OFTEN: u32 = 2;
/// Times in a row that a range is sent in vain before it is sent no more.
const VAIN: u32 = 2;
/// Habits of one memory; the oldest goes.
const MOST: usize = 8;
/// Larger ranges are fetched when they are needed: their way takes longer than a step that is in front of them.
const MOST_BYTES: u64 = 4 << 20;

/// A range that another place fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Habit {
    to: Place,
    range: Range<u64>,
    fetched: u32,
    /// Times in a row that the range was sent and not fetched.
    vain: u32,
}

/// Where bytes lie that were sent ahead.
pub(super) enum Landing {
    /// In memory that both devices see.
    Slot(Crate),
    /// In staging memory of the source, from which the host takes them on.
    Staging(Lent),
}

impl Landing {
    /// The memory that the source copies to.
    fn memory(&self, source: &DeviceShared) -> Option<wgpu::Buffer> {
        match self {
            Self::Slot(slot) => slot.seen_by(source),
            Self::Staging(memory) => Some(memory.buffer().clone()),
        }
    }

    /// Whether the bytes get to `target` from there.
    pub(super) fn is_in_reach_of(&self, target: &DeviceShared) -> bool {
        match self {
            Self::Slot(slot) => slot.seen_by(target).is_some(),
            Self::Staging(_) => true,
        }
    }
}

/// Bytes sent and not fetched yet.
pub(super) struct Sent<S = (Landing, Arc<Batch>)> {
    to: Place,
    range: Range<u64>,
    /// Where the bytes are, and the batch that brings them there.
    pub(super) what: S,
}

/// What was fetched from one memory, and what was sent from there.
pub(super) struct SentAhead<S = (Landing, Arc<Batch>)> {
    habits: Vec<Habit>,
    sent: Vec<Sent<S>>,
}

impl<S> Default for SentAhead<S> {
    fn default() -> Self {
        Self {
            habits: Vec::new(),
            sent: Vec::new(),
        }
    }
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<S> SentAhead<S> {
    /// Notes that `to` needs `range`, and returns the bytes if they were sent; and what was sent by a habit that goes.
    pub(super) fn fetch(&mut self, to: Place, range: &Range<u64>) -> (Option<S>, Option<S>) {
        if range.end - range.start > MOST_BYTES {
            return (None, None);
        }
        let mut dropped = None;
        match self.habit(to, range) {
            Some(habit) => (habit.fetched, habit.vain) = (habit.fetched.saturating_add(1), 0),
            None => {
                if self.habits.len() == MOST {
                    let Habit { to, range, .. } = self.habits.remove(0);
                    dropped = self.take(to, &range);
                }
                self.habits.push(Habit {
                    to,
                    range: range.clone(),
                    fetched: 1,
                    vain: 0,
                });
            }
        }
        (self.take(to, range), dropped)
    }

    fn take(&mut self, to: Place, range: &Range<u64>) -> Option<S> {
        let at = (self.sent.iter()).position(|sent| sent.to == to && sent.range == *range)?;
        Some(self.sent.swap_remove(at).what)
    }

    /// Drops what was sent of `written`, which is written anew, and returns it.
    pub(super) fn written(&mut self, written: &Range<u64>) -> Vec<S> {
        let mut dropped = Vec::new();
        while let Some(at) = (self.sent.iter()).position(|sent| meet(&sent.range, written)) {
            let Sent { to, range, what } = self.sent.swap_remove(at);
            if let Some(habit) = self.habit(to, &range) {
                habit.vain += 1;
            }
            dropped.push(what);
        }
        self.habits.retain(|habit| habit.vain < VAIN);
        dropped
    }

    /// What to send of `written`, now that it is written.
    pub(super) fn wanted(&self, written: &Range<u64>) -> Vec<(Place, Range<u64>)> {
        let within = |range: &Range<u64>| written.start <= range.start && range.end <= written.end;
        let due =
            (self.habits.iter()).filter(|habit| habit.fetched >= OFTEN && within(&habit.range));
        due.map(|habit| (habit.to, habit.range.clone())).collect()
    }

    /// Notes bytes that were sent.
    pub(super) fn send(&mut self, to: Place, range: Range<u64>, what: S) {
        self.sent.push(Sent { to, range, what });
    }

    /// All that was sent and not fetched.
    pub(super) fn take_all(&mut self) -> Vec<S> {
        self.sent.drain(..).map(|sent| sent.what).collect()
    }

    fn habit(&mut self, to: Place, range: &Range<u64>) -> Option<&mut Habit> {
        (self.habits.iter_mut()).find(|habit| habit.to == to && habit.range == *range)
    }
}

impl Root {
    /// Records copies of what other devices are going to fetch of `written`, which a command at `place` has just written.
    /// Returns whether other devices are about to ask for the bytes, and so for the end of the command.
    pub(super) fn send_ahead(&self, state: &mut State, place: Place, written: &Range<u64>) -> bool {
        let Some(copy) = state.copy(place) else {
            return false;
        };
        if copy.is_common() {
            return true;
        }
        let wanted = copy.ahead.wanted(written);
        if wanted.is_empty() {
            return false;
        }
        let mut has_sent = false;
        let (source, base) = (Arc::clone(&copy.shared), copy.base);
        let owner = &source.device;
        for (to, range) in wanted {
            let Some(device) = state.copy(to).map(|copy| Arc::clone(&copy.shared.device)) else {
                continue;
            };
            let words = range.start / 4 * 4..range.end.next_multiple_of(4);
            let bytes = words.end - words.start;
            // Without memory there, the bytes are fetched when they are needed.
            let Some(landing) = self.landing(state, (place, to), (owner, &device), bytes) else {
                return has_sent;
            };
            has_sent = true;
            let mut queue = owner.queue.lock(owner);
            if let Some(seen) = landing.memory(owner) {
                queue.encode(|encoder| {
                    let from = &source.raw;
                    encoder.copy_buffer_to_buffer(from, base + words.start, &seen, 0, bytes);
                });
            }
            let batch = queue.batch();
            queue.commit();
            drop(queue);
            let now = self.context().tick();
            if let Some(copy) = state.copy_mut(place) {
                copy.used(&batch, None, now);
                copy.ahead.send(to, range, (landing, batch));
            }
            state.statistics.sent_ahead += 1;
            self.context().count(|totals| totals.sent_ahead += 1);
        }
        has_sent
    }

    /// Memory for bytes on the way by which they are fetched.
    fn landing(
        &self,
        state: &State,
        (from, to): (Place, Place),
        (owner, device): (&Arc<DeviceShared>, &Arc<DeviceShared>),
        bytes: u64,
    ) -> Option<Landing> {
        match state.routes.route(from, to).0 {
            Route::SharedHost => {
                let slot = self.context().exchange.take_ahead(bytes, owner, device);
                slot.ok().map(Landing::Slot)
            }
            _ => {
                let memory = staging::download(owner, download::WHAT, bytes);
                memory.ok().map(Landing::Staging)
            }
        }
    }
}

#[cfg(test)]
mod tests;
