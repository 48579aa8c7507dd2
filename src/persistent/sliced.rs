//! Servers on devices where running kernels see no writes of the host: calls are taken out of the ports, sent with a
//! launch, as many as there are, and answered at the launch's end. While a slice runs the next slice is gathered and
//! sent behind, to keep the device busy. [`super::driver`] names the threads at work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::bulk::{Answers, Bulk};
use super::core::{Core, Stage};
use super::error::ServerFailure;
use super::packed::{Pack, Packed};
use super::statistics::Cause;
use super::suspicion::{BEGINS_WITHIN, Suspicion};
use crate::clock::Instant;
use crate::device::wait::lock;
use crate::device::{CallStatus, Device, Event, ExecutionError, WaitError};
use crate::kernel::server::packing::mark;
use crate::kernel::server::{FAILED, SLICE_ENTRY, SLICE_HEADER, SLICE_PREFIX, SliceShape};
use crate::launch::{Launch, LaunchError};
use crate::memory::{DeviceBuffer, HeapError, MemoryError, ReadBack};

/// Between two attempts to launch while the host has the heap.
const HELD: Duration = Duration::from_micros(200);
/// A slice waits for further calls as long as each follows so soon, and so long at most.
const FOLLOWS: Duration = Duration::from_micros(2);
/// See [`FOLLOWS`].
const GATHERS: Duration = Duration::from_micros(100);
/// How often the relay looks for calls while a slice runs and another could be sent.
const LOOK: Duration = Duration::from_micros(50);
/// How often the relay looks after a slice when no other could be sent.
const WATCH: Duration = Duration::from_millis(5);
/// How long answers of an ended slice may take.
const ARRIVAL: Duration = Duration::from_secs(10);

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
        match self.next(core) {
            Some(calls) => self.send(core, slot, calls),
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

    /// Sends a slice; `false` if the device could not be had now.
    fn send(&mut self, core: &Core, mut slot: Slot, calls: Calls) -> Result<bool, ServerFailure> {
        // 0 stands for an answer that was never given.
        let lease = match core.leases.load(Ordering::Relaxed).wrapping_add(1) {
            0 => 1,
            lease => lease,
        };
        core.leases.store(lease, Ordering::Relaxed);
        let mut words = match &calls {
            Calls::Ports(calls) => self.written(core, calls),
            Calls::Bulk(bulk) => bulk.take_words(),
        };
        if let [count, number, ..] = &mut words[..] {
            let is_packed = matches!(calls, Calls::Bulk(_));
            let word = if is_packed { mark(lease) } else { lease };
            (*count, *number) = (calls.len() as u32, word);
        }
        let submitted = self.submit(core, &mut slot, &calls, &words);
        match &calls {
            Calls::Ports(_) => self.words = words,
            // For another attempt.
            Calls::Bulk(bulk) if submitted.is_err() => bulk.put_words(words),
            Calls::Bulk(_) => {}
        }
        match submitted {
            Ok((event, answers)) => {
                core.held.store(false, Ordering::Release);
                self.flights.push_back(Flight {
                    slot,
                    lease,
                    calls,
                    event,
                    answers,
                    since: Instant::now(),
                });
                Ok(true)
            }
            // Nothing was sent.
            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => {
                self.free.push(slot);
                if core.stage() != Stage::Running {
                    // Taken for good: such calls get the news of the stop.
                    return Ok(false);
                }
                match calls {
                    Calls::Ports(calls) => {
                        for call in calls {
                            core.frame.take(call.port, call.request.wrapping_sub(1));
                        }
                        self.looked = None;
                    }
                    Calls::Bulk(bulk) => core.bulks.put_back(bulk),
                }
                // There was none.
                core.leases.store(lease.wrapping_sub(1), Ordering::Relaxed);
                core.held.store(true, Ordering::Release);
                core.landed.ring();
                // Slices on their way land meanwhile.
                let waits = self.flights.is_empty();
                if waits {
                    std::thread::sleep(HELD);
                }
                Ok(waits)
            }
            Err(error) => {
                self.free.push(slot);
                self.unanswered.push(calls);
                let error = Arc::new(error);
                Err(ServerFailure::Launch { lease, error })
            }
        }
    }

    /// Calls as they travel, with room for the header.
    fn written(&mut self, core: &Core, calls: &[Taken]) -> Vec<u32> {
        let mut words = std::mem::take(&mut self.words);
        let given = self.shape.given;
        words.clear();
        words.resize(SLICE_HEADER + calls.len() * given, 0);
        let rest = words[SLICE_HEADER..].chunks_exact_mut(given);
        for (call, words) in calls.iter().zip(rest) {
            core.frame.posted(call.port, words);
        }
        words
    }

    /// Answers the calls of a slice that has ended.
    fn land(
        &mut self,
        core: &Core,
        flight: Flight,
        end: Result<(), Arc<ExecutionError>>,
    ) -> (Slot, Result<(), ServerFailure>) {
        let Flight {
            slot,
            lease,
            calls,
            answers,
            ..
        } = flight;
        match end {
            Ok(()) => {}
            // The failure of a call, or the damage of another launch to the handler's data, which hides the failure.
            Err(error)
                if matches!(
                    *error,
                    ExecutionError::Assertion { .. }
                        | ExecutionError::CallFailed { .. }
                        | ExecutionError::Inherited { .. }
                ) =>
            {
                core.note_fault(lease, error);
            }
            Err(error) => {
                core.counters.ended(Cause::Failed);
                self.unanswered.push(calls);
                return (slot, Err(ServerFailure::LeaseFailed { lease, error }));
            }
        }
        let words = answers.wait_timeout(ARRIVAL).unwrap_or_else(|error| {
            log::error!("the answers of lease {lease} could not be read back: {error}");
            Vec::new()
        });
        let missing = match &calls {
            Calls::Ports(calls) => self.answer(core, calls, lease, &words),
            Calls::Bulk(bulk) => {
                let packing = bulk.packed.packing;
                let missing = packing.split(&words, bulk.count, lease).is_none();
                if !missing {
                    bulk.answer(Answers { lease, words });
                }
                missing
            }
        };
        core.ended.store(lease, Ordering::Release);
        if missing {
            core.counters.ended(Cause::Killed);
            self.unanswered.push(calls);
            let device = core.place();
            return (slot, Err(ServerFailure::LeaseKilled { lease, device }));
        }
        core.landed.ring();
        (slot, Ok(()))
    }

    /// Answers calls out of the ports; whether an answer was missing.
    fn answer(&self, core: &Core, calls: &[Taken], lease: u32, words: &[u32]) -> bool {
        let mut missing = false;
        let mut answers = words.chunks_exact(self.shape.taken);
        for &Taken { port, request } in calls {
            let answer = answers.next().filter(|answer| answer[1] == lease);
            let Some(answer) = answer else {
                missing = true;
                continue;
            };
            // The lease leads a caller to the message of a failed call.
            let word = if answer[0] == FAILED { lease } else { 0 };
            let head = [answer[0], word];
            (core.frame).answer(port, request, head, &answer[SLICE_PREFIX..]);
        }
        missing
    }

    /// Sends `words` with a launch that serves `calls`, and asks for the answers.
    fn submit(
        &mut self,
        core: &Core,
        slot: &mut Slot,
        calls: &Calls,
        words: &[u32],
    ) -> Result<(Event, ReadBack<u32>), LaunchError> {
        let refused = |error: MemoryError| LaunchError::from(error);
        let count = calls.len();
        let (launch, answers, range) = match calls {
            Calls::Ports(_) => {
                let range = 0..(count * self.shape.taken) as u64;
                (&mut slot.launch, &slot.answers, range)
            }
            Calls::Bulk(bulk) => {
                let at = Self::pack(core, slot, &bulk.packed)?;
                let pack = &mut slot.packs[at];
                let range = pack.packing.answers(count);
                (&mut pack.launch, &slot.packed, range)
            }
        };
        slot.requests.write(0, words).map_err(refused)?;
        let groups = self.shape.groups(count);
        #[cfg(test)]
        // The part left out by a driver that cuts a dispatch.
        let groups = groups - u32::from(core.kill.swap(false, Ordering::AcqRel));
        launch.set_workgroups(groups);
        let event = launch.submit()?;
        #[cfg(test)]
        let range = match core.deaf.swap(false, Ordering::AcqRel) {
            true => u64::MAX - 1..u64::MAX,
            false => range,
        };
        match answers.read.read_back(range) {
            Ok(answers) => Ok((event, answers)),
            Err(error) => {
                self.lost = Some(event);
                Err(refused(error))
            }
        }
    }

    /// The place of the slot's launch of that kernel.
    fn pack(core: &Core, slot: &mut Slot, packed: &Packed) -> Result<usize, LaunchError> {
        let known = |pack: &Pack| pack.opcode == packed.opcode;
        if let Some(known) = slot.packs.iter().position(known) {
            return Ok(known);
        }
        let Some(packer) = &core.packer else {
            return Err(LaunchError::Refused {
                kernel: SLICE_ENTRY.to_owned(),
                message: "the server sends no slices of one function".to_owned(),
            });
        };
        let pack = packer.pack(packed, &slot.requests, &slot.packed.memory);
        slot.packs.push(pack);
        Ok(slot.packs.len() - 1)
    }
}

#[cfg(test)]
mod tests;
