//! Servers on devices where running kernels see no writes of the host: calls are taken out of the ports, sent with a
//! launch, as many as there are, and answered at the launch's end. While a slice runs the next slice is gathered and
//! sent behind, to keep the device busy. [`super::driver`] names the threads at work.

mod flight;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::bulk::Bulk;
use super::core::{Core, Stage};
use super::error::ServerFailure;
use super::packed::Pack;
use super::statistics::Cause;
use super::suspicion::{BEGINS_WITHIN, Suspicion};
use crate::clock::Instant;
use crate::device::server_pause::ServerLaunch;
use crate::device::wait::lock;
use crate::device::{CallStatus, Device, Event, WaitError};
use crate::kernel::server::SliceShape;
use crate::launch::Launch;
use crate::memory::{DeviceBuffer, MemoryError, ReadBack};

/// A slice waits for further calls as long as each follows so soon, and so long at most.
const FOLLOWS: Duration = Duration::from_micros(2);
/// See [`FOLLOWS`].
const GATHERS: Duration = Duration::from_micros(100);
/// How often the relay looks for calls while a slice runs and another could be sent.
const LOOK: Duration = Duration::from_micros(50);
/// How often the relay looks after a slice when no other could be sent.
const WATCH: Duration = Duration::from_millis(5);

/// The buffers of a slice.
pub(super) struct Slot {
    pub requests: DeviceBuffer<u32>,
    /// Serves calls of all functions.
    pub launch: Launch,
    pub answers: Answering,
    /// The slices that have served calls of a single function, so far.
    pub packs: Vec<Pack>,
    /// Their memory: where others write, any value may lie that looks like a mark.
    pub packed: Answering,
}

/// Memory for answers.
pub(super) struct Answering {
    pub memory: DeviceBuffer<u32>,
    /// The same once more: writes of a failed launch are read all the same.
    read: DeviceBuffer<u32>,
}

impl Answering {
    pub fn new(device: &Device, words: usize) -> Result<Self, MemoryError> {
        let memory = device.zeroed::<u32>(words)?;
        let raw = memory.raw().clone();
        let read = DeviceBuffer::wrap(&device.shared, raw, words as u64);
        Ok(Self { memory, read })
    }

    /// Asks for words of the answers.
    pub fn read_back(&self, range: Range<u64>) -> Result<ReadBack<u32>, MemoryError> {
        self.read.read_back(range)
    }
}

/// A call in a slice.
#[derive(Clone, Copy)]
struct Taken {
    port: usize,
    request: u32,
}

/// The calls of a slice.
enum Calls {
    /// Out of the ports.
    Ports(Vec<Taken>),
    /// Written by the caller, all of the same function.
    Bulk(Arc<Bulk>),
}

impl Calls {
    fn len(&self) -> usize {
        match self {
            Self::Ports(calls) => calls.len(),
            Self::Bulk(bulk) => bulk.count,
        }
    }

    /// The serving kernel: of a single function, by number, or of all functions.
    fn kernel(&self) -> Option<u32> {
        match self {
            Self::Ports(_) => None,
            Self::Bulk(bulk) => Some(bulk.packed.opcode),
        }
    }
}

/// A slice under way.
struct Flight {
    slot: Slot,
    lease: u32,
    calls: Calls,
    event: Event,
    answers: ReadBack<u32>,
    counted: ServerLaunch,
    /// When the slice was sent, or became the oldest: only the oldest may run.
    since: Instant,
}

/// State that belongs to the current driver of slices.
pub(super) struct Slices {
    shape: SliceShape,
    free: Vec<Slot>,
    /// The oldest first.
    flights: VecDeque<Flight>,
    words: Vec<u32>,
    /// Calls that had been posted before the last look at all ports; none if another look is needed all the same.
    looked: Option<u64>,
    /// Slices without answers of a server about to fail: callers are told the reason, and not of a stop.
    unanswered: Vec<Calls>,
    /// The last slice was written by its caller: now the ports have their turn.
    was_bulk: bool,
    /// A sent slice without a way to ask for the answers.
    lost: Option<Event>,
    /// The case against the oldest slice.
    suspicion: Suspicion,
    /// The kernels with a slice served to the end: drivers compile a kernel at its first launch.
    compiled: Vec<Option<u32>>,
}

impl Slices {
    pub fn new(shape: SliceShape, slots: Vec<Slot>) -> Self {
        Self {
            shape,
            free: slots,
            flights: VecDeque::new(),
            words: Vec::new(),
            looked: None,
            unanswered: Vec::new(),
            was_bulk: false,
            lost: None,
            suspicion: Suspicion::default(),
            compiled: Vec::new(),
        }
    }

    /// Of a life before this one: their answers have no readers.
    pub fn reset(&mut self, core: &Core) {
        while let Some(flight) = self.flights.pop_front() {
            self.free.push(flight.slot);
        }
        core.set_batch(None);
        self.looked = None;
        self.suspicion = Suspicion::default();
    }

    /// Gives all memory back, for good.
    pub fn clear(&mut self) {
        self.flights.clear();
        self.free.clear();
    }

    /// Sends a slice, or looks after the oldest; `false` if there was nothing to do, or the server has failed.
    pub fn turn(&mut self, core: &Core) -> bool {
        // Whoever had the slices before may have ended the server.
        if matches!(core.stage(), Stage::Closed | Stage::Failed) {
            return false;
        }
        let turned = self.try_turn(core);
        self.end(core, turned)
    }

    /// Sends a slice written by a caller, if the device has room.
    pub fn send_bulk(&mut self, core: &Core) {
        if self.free.is_empty() || core.bulks.is_empty() {
            return;
        }
        let known = self.flights.len();
        let sent = self.send_next(core);
        if self.flights.len() != known {
            self.note_batch(core);
        }
        self.end(core, sent);
    }

    /// Tells everybody of a failure.
    fn end(&mut self, core: &Core, turned: Result<bool, ServerFailure>) -> bool {
        turned.unwrap_or_else(|failure| {
            // The last of them ends last.
            let flying = || self.flights.back().map(|flight| flight.event.clone());
            let last = self.lost.take().or_else(flying);
            *lock(&core.stuck) = last;
            for flight in &mut self.flights {
                // A pause waits for the slice, whose end nobody else looks for any more.
                let counted = std::mem::take(&mut flight.counted);
                flight.event.on_completion(move |_| drop(counted));
            }
            core.fail(failure);
            self.unanswered.clear();
            false
        })
    }

    fn note_batch(&self, core: &Core) {
        let oldest = self.flights.front();
        core.set_batch(oldest.and_then(|flight| flight.event.batch().cloned()));
    }

    fn try_turn(&mut self, core: &Core) -> Result<bool, ServerFailure> {
        let known = self.flights.len();
        let done = self.step(core);
        if self.flights.len() != known {
            self.note_batch(core);
        }
        done
    }

    /// Sends a slice, if there are calls and the device has room for them.
    fn send_next(&mut self, core: &Core) -> Result<bool, ServerFailure> {
        let Some(slot) = self.free.pop() else {
            return Ok(false);
        };
        let Some(counted) = core.begin_launch() else {
            self.free.push(slot);
            return Ok(false);
        };
        match self.next(core) {
            Some(calls) => self.send(core, slot, calls, counted),
            None => {
                self.free.push(slot);
                Ok(false)
            }
        }
    }

    fn step(&mut self, core: &Core) -> Result<bool, ServerFailure> {
        if self.send_next(core)? {
            return Ok(true);
        }
        let Some(oldest) = self.flights.front() else {
            return Ok(false);
        };
        let time = if self.free.is_empty() { WATCH } else { LOOK };
        let end = match oldest.event.wait_timeout(time) {
            Ok(()) => Ok(()),
            Err(WaitError::Failed(error)) => Err(error),
            Err(WaitError::Deadline) => {
                let waited = oldest.since.elapsed();
                let mut limit = core.policy.time.saturating_add(core.policy.stuck);
                if !self.compiled.contains(&oldest.calls.kernel()) {
                    limit = limit.max(BEGINS_WITHIN);
                }
                if !self.suspicion.confirms(waited, limit) {
                    return Ok(true);
                }
                core.counters.ended(Cause::Stuck);
                return Err(ServerFailure::LeaseStuck {
                    lease: oldest.lease,
                    device: core.place(),
                    waited,
                });
            }
        };
        if let Some(flight) = self.flights.pop_front() {
            self.note_end(&flight);
            let (slot, told) = self.land(core, flight, end);
            self.free.push(slot);
            told?;
        }
        Ok(true)
    }

    /// A slice has ended, and the next one may begin.
    fn note_end(&mut self, ended: &Flight) {
        let kernel = ended.calls.kernel();
        if !self.compiled.contains(&kernel) {
            self.compiled.push(kernel);
        }
        self.suspicion = Suspicion::default();
        if let Some(next) = self.flights.front_mut() {
            next.since = Instant::now();
        }
    }

    /// The calls of the next slice, by turns out of the ports and as callers have written them.
    fn next(&mut self, core: &Core) -> Option<Calls> {
        let bulk = || core.bulks.pop().map(Calls::Bulk);
        let next = match self.was_bulk {
            true => self.gather(core).or_else(bulk),
            false => bulk().or_else(|| self.gather(core)),
        };
        self.was_bulk = matches!(next, Some(Calls::Bulk(_)));
        next
    }

    /// The calls not yet taken, which are taken then.
    fn gather(&mut self, core: &Core) -> Option<Calls> {
        let posted = core.posted.load(Ordering::Acquire);
        if self.looked.replace(posted) == Some(posted) {
            return None;
        }
        let frame = &core.frame;
        let ports = frame.layout().ports;
        let untaken = |port| Some((port, frame.untaken(port)?));
        let first = (0..ports).position(|port| untaken(port).is_some())?;
        // More calls are on their way as long as each follows so soon.
        let begun = Instant::now();
        let (mut posts, mut since) = (posted, begun);
        loop {
            let now = Instant::now();
            let seen = core.posted.load(Ordering::Acquire);
            if seen != posts {
                (posts, since) = (seen, now);
            } else if now - since >= FOLLOWS || now - begun >= GATHERS {
                break;
            }
            std::hint::spin_loop();
        }
        #[cfg(test)]
        core.posts_meanwhile(&mut posts);
        // Calls arrived meanwhile are taken with the others, and may lie in front of the first.
        self.looked = Some(posts);
        let all = (if posts == posted { first } else { 0 }..ports).filter_map(untaken);
        let calls = all.map(|(port, request)| Taken { port, request });
        let calls = calls.inspect(|&Taken { port, request }| frame.take(port, request));
        let mut calls: Vec<Taken> = calls.collect();
        // Either the withdrawal is seen here, or its caller sees that the call is taken.
        fence(Ordering::SeqCst);
        calls.retain(|&Taken { port, request }| {
            let is_withdrawn = frame.is_withdrawn(port);
            if is_withdrawn {
                frame.answer(port, request, [CallStatus::Busy.code(), 0], &[]);
                core.landed.ring();
            }
            !is_withdrawn
        });
        (!calls.is_empty()).then_some(Calls::Ports(calls))
    }
}

#[cfg(test)]
mod tests;
