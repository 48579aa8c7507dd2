//! A single call at a single port: the post, and the wait for the answer.
//!
//! Callers look for some microseconds, as many at once as leave a processor to the server, and then sleep, twice as
//! long each time. A dropped call leaves its port to the server, by the same rule as on the other side: the port is
//! free when the mailboxes agree. No call is posted behind an unposted call of the same thread: the later call would be
//! answered, keep its port, and be asked for after the earlier call.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::bulk::{Answers, Bulk};
use super::core::Core;
use super::error::CallError;
use super::frame::Frame;
use super::urgent::Priority;
use crate::clock::Instant;
use crate::device::CallStatus;
use crate::device::pace::Pace;
use crate::kernel::server::{FAILED, HandlerDeclaration, TOO_LONG};
use crate::rpc::port::client::{Client, Posted};
use crate::rpc::port::layout::LINE;
use crate::rpc::port::words::Words as _;

/// The answer to a call withdrawn before its beginning.
const WITHDRAWN: u32 = CallStatus::Busy.code();
/// Looks at an answer in direct succession: some microseconds.
const LOOKS: u32 = 20_000;
/// Between two looks at the state of the server.
const ROUND: u32 = 64;
/// Looks of a caller across a bus before the caller asks whether to go on looking, through a word written by all
/// callers: most calls are answered by then.
const UNASKED: u32 = 2 * ROUND;
/// The longest sleep of a caller with a slice on its way, woken by the answer.
const LANDING: Duration = Duration::from_millis(20);

thread_local! {
    /// The number of this thread among the calling threads.
    static NUMBER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    /// The port used last by this thread.
    static LAST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Where the thread of the given number begins to look for one of `ports` ports. Threads with neighbouring numbers
/// begin in different lines of mailboxes: each answer would take the line from the caches of all readers of the line.
fn first_port(thread: usize, ports: usize) -> usize {
    let lines = ports.div_ceil(LINE).max(1);
    (thread % lines * LINE + thread / lines % LINE) % ports.max(1)
}

/// A caller's time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    begun: Instant,
    time: Option<Duration>,
    /// A call without an answer by then is withdrawn, instead of left.
    withdraws: bool,
}

impl Deadline {
    pub fn after(time: Option<Duration>) -> Self {
        Self {
            begun: Instant::now(),
            time,
            withdraws: false,
        }
    }

    /// The same, and a call is withdrawn behind the deadline.
    pub fn withdrawing_after(time: Duration) -> Self {
        Self {
            withdraws: true,
            ..Self::after(Some(time))
        }
    }

    /// How long the caller has waited so far.
    pub fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The time left; the error when nothing is left.
    fn left(&self, handler: &str) -> Result<Option<Duration>, CallError> {
        let Some(time) = self.time else {
            return Ok(None);
        };
        let waited = self.begun.elapsed();
        match time.checked_sub(waited) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ if self.withdraws => Err(CallError::Withdrawn {
                handler: handler.to_owned(),
            }),
            _ => Err(CallError::TimedOut {
                handler: handler.to_owned(),
                waited,
            }),
        }
    }
}

/// The right to look again and again: such threads must leave a processor to the server.
struct Spinner<'c>(&'c AtomicUsize);

impl<'c> Spinner<'c> {
    fn take(core: &'c Core) -> Option<Self> {
        let most = core.processors.saturating_sub(1).max(1);
        let taken = core.spinners.fetch_add(1, Ordering::Relaxed);
        let spinner = Self(&core.spinners);
        (taken < most).then_some(spinner)
    }
}

impl Drop for Spinner<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time for words to arrive after the end of the writing lease: over a bus words come in any order.
pub(super) const ARRIVAL: Duration = Duration::from_millis(100);

/// How many leases had ended when an answer with inconsistent words was first seen, and since when the writing lease is
/// over.
#[derive(Debug, Default)]
pub(super) struct PendingVerification {
    ended: Option<u32>,
    over: Option<Instant>,
}

/// A caller's end of the ports.
pub(super) struct PortClient<'c> {
    core: &'c Core,
    handler: &'c HandlerDeclaration,
    priority: Priority,
}

impl<'c> PortClient<'c> {
    pub fn new(core: &'c Core, handler: &'c HandlerDeclaration) -> Self {
        Self {
            core,
            handler,
            priority: Priority::Ordinary,
        }
    }

    /// The same for calls of the given priority.
    pub fn at(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    fn name(&self) -> &'c str {
        &self.handler.signature.name
    }

    fn client(&self) -> Client<&'c Frame> {
        let (frame, urgent) = (&self.core.frame, self.core.urgent);
        let ports = match self.priority {
            Priority::Ordinary => urgent..frame.layout().ports,
            Priority::Urgent => 0..urgent,
        };
        let first = || ports.start + first_port(Self::thread(), ports.len());
        let start = LAST.get().filter(|last| ports.contains(last));
        let start = start.unwrap_or_else(first);
        Client::within(frame, frame.layout(), ports, start)
    }

    /// The number of this thread among the calling threads.
    pub fn thread() -> usize {
        // At the very end of a thread any will do.
        NUMBER.try_with(|&number| number).unwrap_or(0)
    }

    /// Has this thread look first at a port just given back: threads with several calls on their way keep to the same
    /// ports, instead of looking at the ports of others.
    pub fn prefer(port: usize) {
        // At the very end of a thread there is nothing to remember.
        let _ = LAST.try_with(|last| last.set(Some(port)));
    }

    /// Posts a call, if a port is free.
    pub fn try_post(&self, arguments: &[u32]) -> Result<Option<Posted>, CallError> {
        if let Some(refusal) = self.core.refusal(self.name()) {
            return Err(refusal);
        }
        let posted = self.try_post_silently(arguments);
        if let Some(posted) = &posted {
            self.core.rung(posted.port, 1);
        }
        Ok(posted)
    }

    /// Posts a call, if a port is free; the server has yet to be told.
    pub fn try_post_silently(&self, arguments: &[u32]) -> Option<Posted> {
        // Pointers into memory not seen by the current lease are for the next lease.
        if !self.core.is_up_to_date() {
            return None;
        }
        let posted = self.client().try_post(self.handler.opcode(), arguments);
        if let Some(posted) = &posted {
            // Many calls at a time take port after port, without looking at earlier ones.
            LAST.set(Some(posted.port));
        }
        posted
    }

    /// Leaves a call alone: the port is free after the answer.
    pub fn leave(&self, posted: Posted) {
        self.client().leave(posted);
    }

    /// Takes a call back, whose answer is still waited for.
    pub fn withdraw(&self, posted: Posted) {
        self.client().withdraw(posted);
    }

    /// The error for a call past its time; the call is withdrawn then.
    fn overdue(&self, error: CallError, posted: Posted, deadline: Deadline) -> CallError {
        if !deadline.withdraws {
            return error;
        }
        self.withdraw(posted);
        match self.core.frame.may_be_begun(posted.port, posted.request) {
            // From here on every look at the call sees the withdrawal.
            false => error,
            true => CallError::Cancelled {
                handler: self.name().to_owned(),
                waited: deadline.waited(),
            },
        }
    }

    /// Why no call can be posted now.
    pub fn refusal(&self) -> Option<CallError> {
        self.core.refusal(self.name())
    }

    /// Why a posted call will have no answer, unless there is an answer already.
    pub fn loss(&self) -> Option<CallError> {
        self.core.loss(self.name())
    }

    /// Posts a call as soon as a port is free.
    pub fn post(&self, arguments: &[u32], deadline: Deadline) -> Result<Posted, CallError> {
        let mut pace = Pace::asleep();
        loop {
            let landed = self.landed();
            if let Some(posted) = self.try_post(arguments)? {
                return Ok(posted);
            }
            if let Some(hindrance) = self.hindrance() {
                return Err(hindrance);
            }
            self.rest(&mut pace, landed, deadline.left(self.name())?);
        }
    }

    /// Why a call cannot be served as long as this thread waits.
    pub fn hindrance(&self) -> Option<CallError> {
        self.core.hindrance(self.name())
    }

    /// The outcome of a call, if known; the port is given back then.
    pub fn try_take(&self, posted: Posted, results: &mut [u32]) -> Option<Result<(), CallError>> {
        let [status, word] = self.client().try_take(posted, results)?;
        Some(self.judge(status, word))
    }

    /// Whether all words of the answer have arrived, if there is an answer: an answer not to be taken then never can
    /// be. Before the look.
    pub fn is_whole(&self, verification: &mut PendingVerification, posted: Posted) -> bool {
        let core = self.core;
        if !core.frame.is_sealed() || !self.client().is_answered(posted) {
            return false;
        }
        let ended = core.ended.load(Ordering::Acquire);
        let known = *verification.ended.get_or_insert(ended);
        let is_over = ended != known || ended == core.leases.load(Ordering::Relaxed);
        if is_over && verification.over.is_none() {
            verification.over = Some(Instant::now());
        }
        verification
            .over
            .is_some_and(|over| over.elapsed() >= ARRIVAL)
    }

    /// The outcome of a call whose answer cannot be taken; the port is given back.
    pub fn garbled(&self, posted: Posted) -> CallError {
        self.leave(posted);
        CallError::Garbled {
            handler: self.name().to_owned(),
        }
    }

    /// Why the server has left a call without an answer.
    fn stopped(&self) -> CallError {
        let handler = self.name();
        // It may have been started again meanwhile.
        (self.core.refusal(handler)).unwrap_or_else(|| CallError::Stopped {
            handler: handler.to_owned(),
        })
    }

    /// The meaning of a status.
    pub fn judge(&self, status: u32, word: u32) -> Result<(), CallError> {
        let handler = self.name();
        match status {
            1 => return Ok(()),
            FAILED => {
                if let Some(error) = self.core.fault(word) {
                    let handler = handler.to_owned();
                    return Err(CallError::Failed { handler, error });
                }
            }
            TOO_LONG => {
                return Err(CallError::TooManyTurns {
                    handler: handler.to_owned(),
                    limit: self.core.turns,
                });
            }
            WITHDRAWN => {
                return Err(CallError::Withdrawn {
                    handler: handler.to_owned(),
                });
            }
            6 => {
                return Err(CallError::Panicked {
                    handler: handler.to_owned(),
                });
            }
            3 => {
                return Err(self.stopped());
            }
            _ => {}
        }
        Err((self.core.loss(handler)).unwrap_or(CallError::Malformed {
            handler: handler.to_owned(),
            status,
        }))
    }

    /// Waits for the answer to a call. A caller giving up leaves the call to the server: the port is free after the
    /// answer.
    pub fn wait(
        &self,
        posted: Posted,
        results: &mut [u32],
        deadline: Deadline,
    ) -> Result<(), CallError> {
        let client = self.client();
        // Calls in slices take their time, and a spinning caller would take the processor from the relay.
        let spins = !self.core.is_sliced();
        let is_far = self.core.frame.is_sealed();
        let unasked = if is_far { UNASKED } else { 0 };
        let mut spinner = None;
        let mut looks = 0u32;
        let mut pace = Pace::asleep();
        let mut verification = PendingVerification::default();
        loop {
            if spins && looks == unasked {
                spinner = Spinner::take(self.core);
            }
            // Before the look: a call without an answer then gets none.
            let loss = self.loss();
            let whole = self.is_whole(&mut verification, posted);
            let landed = self.landed();
            for _ in 0..ROUND {
                if let Some([status, word]) = client.try_take(posted, results) {
                    drop(spinner);
                    return self.judge(status, word);
                }
                std::hint::spin_loop();
            }
            if whole {
                return Err(self.garbled(posted));
            }
            let left = match loss.or_else(|| self.hindrance()) {
                Some(loss) => Err(loss),
                None => (deadline.left(self.name()))
                    .map_err(|error| self.overdue(error, posted, deadline)),
            };
            let left = left.inspect_err(|_| client.leave(posted))?;
            looks += ROUND;
            if self.core.others_first.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let may_look = spinner.is_some() || spins && looks <= unasked;
            if !may_look || looks > LOOKS {
                spinner = None;
                self.rest(&mut pace, landed, left);
            }
        }
    }

    /// Waits for the answers of a slice written by the caller.
    pub fn wait_bulk(&self, bulk: &Arc<Bulk>) -> Result<Answers, CallError> {
        let mut pace = Pace::asleep();
        loop {
            // Before the look: a call without an answer then gets none.
            let is_dropped = Bulk::is_dropped(bulk);
            let loss = self.loss();
            let landed = self.landed();
            if let Some(answers) = bulk.take_answers() {
                return Ok(answers);
            }
            if let Some(loss) = loss.or_else(|| self.hindrance()) {
                return Err(loss);
            }
            if is_dropped {
                return Err(self.stopped());
            }
            if !self.core.drive() {
                self.rest(&mut pace, landed, None);
            }
        }
    }

    /// Slices answered so far, where calls travel in slices.
    fn landed(&self) -> Option<u64> {
        self.core.is_sliced().then(|| self.core.landed.count())
    }

    /// Sleeps for a while, or until a further slice has been answered.
    fn rest(&self, pace: &mut Pace, landed: Option<u64>, left: Option<Duration>) {
        match landed {
            Some(known) => {
                let time = left.map_or(LANDING, |left| LANDING.min(left));
                self.core.landed.sleep(known, time);
            }
            None => pace.rest(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn threads_begin_in_lines_of_their_own_as_long_as_there_are_some() {
        for ports in [1usize, 2, 15, 16, 17, 40, 64, 256, 1000] {
            let lines = ports.div_ceil(LINE);
            for begun in [0, 1, 7] {
                let threads = begun * lines..(begun + 1) * lines;
                let first: Vec<_> = threads.map(|thread| first_port(thread, ports)).collect();
                assert!(first.iter().all(|&port| port < ports), "{ports}");
                if ports.is_multiple_of(LINE) {
                    let seen: HashSet<_> = first.iter().map(|port| port / LINE).collect();
                    assert_eq!(seen.len(), lines, "{ports}");
                }
            }
            // No port is left out.
            if ports.is_multiple_of(LINE) {
                let all: HashSet<_> = (0..ports).map(|thread| first_port(thread, ports)).collect();
                assert_eq!(all.len(), ports);
            }
        }
    }
}
