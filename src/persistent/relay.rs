//! The relay: a thread launching lease after lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::core::{Core, Stage};
use super::corruption::{Corruption, Missed};
use super::error::ServerFailure;
use super::lease_clock::{self, Watched};
use super::port_client::ARRIVAL;
use super::settle::{self, Calls as _};
use super::statistics::Cause;
use super::suspicion::{BEGINS_WITHIN, Suspicion};
use super::yielding::Yielding;
use crate::clock::Instant;
use crate::device::resident::{self, Resident};
use crate::device::wait::lock;
use crate::device::{ExecutionError, WaitError};
use crate::kernel::server::FAILED;
use crate::launch::{Launch, LaunchError};
use crate::memory::HeapError;
use crate::rpc::port::protocol::CallStatus;
use crate::rpc::port::words::Words as _;
use crate::span::span;

/// Between two attempts to launch while the host has the heap.
const HELD: Duration = Duration::from_micros(200);
/// Leases that may leave a kernel's call behind others taking all turns, or a call whose caller was stopped while
/// posting.
const MISSES: u32 = if cfg!(test) { 40 } else { 1000 };
/// How often the relay looks after a lease.
const LOOK: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(5));
/// How much later than the relay another thread asks a lease to leave whose time is over.
const LATE: Duration = Duration::from_millis(20);

/// State of the relay thread alone.
pub(super) struct Relay {
    pub core: Arc<Core>,
    pub launch: Launch,
    /// Turns of a lease for beginning calls.
    pub most: u32,
    /// A driver ends loops, so a lease may end behind a few calls.
    pub has_loop_budget: bool,
    /// The port where the next lease may begin.
    pub next: usize,
    /// A lease has run to its end, and so the kernel is compiled.
    pub has_run: bool,
    /// A call of a kernel of another device, left by leases.
    pub missed: Missed<(usize, u32)>,
    /// A posted call, missing where leases look.
    pub hidden: Missed<(usize, u32)>,
    /// When somebody has called last.
    pub called: Instant,
    /// When the last lease has ended, unless the relay has slept since.
    pub left: Option<Instant>,
    pub yielding: Yielding,
}

/// How a lease ended.
enum End {
    Done(Cause),
    Faulty(Arc<ExecutionError>),
    Stuck(Duration),
}

/// The outcome of an attempt at a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// Somebody has the heap.
    Refused,
    /// Servers are to stay away.
    Paused,
    Over(Cause),
}

/// The calls found by a lease at its beginning: a lease that has taken none has not begun.
struct WaitingCalls {
    of_threads: Vec<(usize, u32)>,
    of_kernel: Option<(usize, u32)>,
}

impl WaitingCalls {
    fn of(core: &Core) -> Self {
        Self {
            of_threads: core.frame.all_untaken().collect(),
            of_kernel: core.frame.block().and_then(settle::first_awaited),
        }
    }

    /// Whether there are any calls, and none is taken.
    fn are_untaken(&self, core: &Core) -> bool {
        let is_left = |&(port, request): &(usize, u32)| core.frame.untaken(port) == Some(request);
        let is_left_by_kernel = |(port, request): (usize, u32)| {
            (core.frame.block()).is_some_and(|block| block.taken(port) != request)
        };
        (!self.of_threads.is_empty() || self.of_kernel.is_some())
            && self.of_threads.iter().all(is_left)
            && self.of_kernel.is_none_or(is_left_by_kernel)
    }
}

impl Relay {
    pub fn run(mut self) -> Self {
        resident::as_relay(self.core.id);
        let core = Arc::clone(&self.core);
        // Nobody has waited for a lease of a server started again.
        self.left = None;
        let mut renews = false;
        // Leases since the server was asked to stop.
        let mut last = 0;
        loop {
            match core.stage() {
                Stage::Running if renews || core.frame.is_awaited() => {}
                // The poster of a call wakes the relay, as does every other event for the relay.
                Stage::Running => {
                    self.left = None;
                    core.sleep(Duration::MAX);
                    continue;
                }
                Stage::Stopping if core.frame.is_awaited() && last <= core.frame.all_ports() => {
                    last += 1;
                }
                Stage::Stopping => break,
                Stage::Closed | Stage::Failed => return self,
            }
            let attempt = match self.lease() {
                Ok(attempt) => attempt,
                Err(failure) => {
                    core.fail(failure);
                    return self;
                }
            };
            renews = match attempt {
                Attempt::Over(cause) => {
                    if cause == Cause::Others {
                        self.yielding.give_way(&core);
                    }
                    self.renews(cause)
                }
                Attempt::Refused => false,
                Attempt::Paused => renews,
            };
            match attempt {
                // Posted calls are told of the end: whoever pauses may be the one to stop the server.
                Attempt::Paused if core.stage() == Stage::Stopping => break,
                Attempt::Paused => core.sleep_out_pause(),
                Attempt::Refused if core.stage() == Stage::Stopping => break,
                Attempt::Refused => {
                    core.held.store(true, Ordering::Release);
                    std::thread::sleep(HELD);
                }
                // All earlier posts have been served. A lease out of turns, or with a failed call, has served the first
                // of them.
                Attempt::Over(cause)
                    if last > 0 && cause != Cause::Fault && !self.has_loop_budget =>
                {
                    break;
                }
                Attempt::Over(_) => {}
            }
        }
        let stopped = CallStatus::Stopped.code();
        core.frame.give_up(false, stopped, 0);
        core.set_stage(Stage::Closed);
        // Posted by callers whose look came before.
        core.frame.give_up(false, stopped, 0);
        self
    }

    /// Whether another lease follows without a call. Others are not to make way again and again for a server without
    /// calls, unless the policy never lets the server leave.
    fn renews(&self, cause: Cause) -> bool {
        let idle = self.core.policy.idle;
        match cause {
            Cause::Turns | Cause::Time => self.called.elapsed() < idle,
            Cause::Others => idle == Duration::MAX,
            _ => false,
        }
    }

    /// One lease.
    fn lease(&mut self) -> Result<Attempt, ServerFailure> {
        let core = &self.core;
        // Before the grant: see `device::pauses`.
        let Some(_counted) = core.begin_launch() else {
            return Ok(Attempt::Paused);
        };
        let lease = match core.leases.fetch_add(1, Ordering::AcqRel).wrapping_add(1) {
            0 => core.leases.fetch_add(1, Ordering::AcqRel).wrapping_add(1),
            lease => lease,
        };
        // Where a lease may end behind a few calls each port has its turn to be the first.
        let awaited = settle::first_awaited_from(&core.frame, self.next);
        // The poster may not have finished posting.
        let first = awaited.filter(|&(port, _)| core.frame.is_shown(port));
        // Urgent calls may take all turns.
        let first = first.filter(|_| core.urgent == 0 || !self.has_loop_budget);
        let start = match awaited {
            Some((port, _)) if self.has_loop_budget => {
                self.next = (port + 1) % core.frame.layout().ports;
                port
            }
            _ => 0,
        };
        let remote = (core.frame.block()).and_then(settle::first_awaited);
        match awaited {
            Some(_) => self.called = Instant::now(),
            // Nobody waits for the next lease.
            None => self.left = None,
        }
        let granted = core.grant(lease, self.most, start);
        // Before the launch: the launch sees at least as much.
        let grown = core.heap.as_ref().map_or(0, |heap| heap.shared.grown());
        core.covered.store(grown, Ordering::SeqCst);
        core.admission.comes();
        let end = self.lease_on_device(lease, granted);
        if !matches!(end, Ok(Attempt::Refused)) {
            self.left = Some(Instant::now());
        }
        let core = &self.core;
        core.covered.store(u64::MAX, Ordering::SeqCst);
        core.admission.is_over();
        if let Ok(Attempt::Refused) = end {
            // There was none.
            core.leases.store(lease.wrapping_sub(1), Ordering::Relaxed);
            return end;
        }
        core.end_lease(lease, granted);
        if let Ok(Attempt::Over(cause)) = end {
            // A lease with a failed call looks at nothing more.
            let faultless = cause != Cause::Fault;
            let hidden = core.frame.first_hidden().filter(|_| faultless);
            let mut corruption = Self::corruption(core, first.filter(|_| faultless));
            if self.hidden.note(hidden) >= MISSES {
                corruption =
                    corruption.or(hidden.map(|(port, _)| (port, "a call was written over")));
            }
            if let Some((port, what)) = corruption {
                core.counters.ended(Cause::Failed);
                return Err(ServerFailure::Garbled {
                    lease,
                    device: core.place(),
                    port,
                    what,
                });
            }
            self.report_remote(remote.filter(|_| faultless));
            let core = &self.core;
            core.counters.ended(cause);
        }
        end
    }

    /// Gives up calls of kernels that the finished lease could have answered. Posts and missed answers of kernels may
    /// be their own doing: each kernel is told for itself.
    fn report_remote(&mut self, call: Option<(usize, u32)>) {
        let Some(block) = self.core.frame.block() else {
            return;
        };
        let call = call.filter(|&call| settle::is_left(block, call));
        let missed = self.missed.note(call);
        let Some(call) = call else {
            return;
        };
        // Other calls may have taken all turns.
        let most = if self.has_loop_budget { MISSES } else { 1 };
        if block.taken(call.0) == call.1 {
            settle::give_up_at(block, call, [FAILED, 0]);
        } else if missed >= most {
            // The lease looks at none of them.
            settle::give_up(block, false, [FAILED, 0]);
        }
    }

    /// Corruption left by the finished lease. Over a bus words may arrive behind the lease.
    fn corruption(core: &Core, first: Option<(usize, u32)>) -> Option<Corruption> {
        let begun = Instant::now();
        loop {
            let found = core.frame.corruption(first);
            if found.is_none() || !core.frame.is_sealed() || begun.elapsed() >= ARRIVAL {
                return found;
            }
            std::thread::sleep(HELD);
        }
    }

    fn lease_on_device(&mut self, lease: u32, granted: u32) -> Result<Attempt, ServerFailure> {
        let _span = span!("lease", number = lease);
        let core = &Arc::clone(&self.core);
        // A driver may keep this thread while the lease runs already.
        let is_late = Arc::new(AtomicBool::new(false));
        let _watched = self.ask_when_late(&is_late, granted);
        #[cfg(test)]
        let mut none = self.launch.clone().workgroups(0);
        #[cfg(test)]
        let submitted = match core.kill.swap(false, Ordering::AcqRel) {
            true => none.submit(),
            false => self.launch.submit(),
        };
        #[cfg(not(test))]
        let submitted = self.launch.submit();
        let event = match submitted {
            Ok(event) => event,
            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => return Ok(Attempt::Refused),
            Err(error) => {
                core.counters.ended(Cause::Failed);
                let error = Arc::new(error);
                return Err(ServerFailure::Launch { lease, error });
            }
        };
        core.held.store(false, Ordering::Release);
        let batch = event.batch().cloned();
        let is_out = (batch.as_ref()).is_some_and(|batch| batch.submission().is_some());
        core.set_batch(batch);
        if is_out {
            // Another thread has submitted the launch, and may have begun to wait before the owner was known.
            core.interrupt();
        }
        // The event tells of failures.
        if let Some(device) = &core.device {
            let _ = device.flush();
        }
        if (event.batch()).is_some_and(|batch| self.launch.is_followed_in(batch)) {
            // Calls of the recording threads are not for this lease.
            core.interrupt();
        }
        if core.is_paused() {
            // The lease may have been granted the request.
            core.interrupt();
        }
        core.admission.is_there(granted);
        if let Some(left) = self.left.take() {
            core.counters.lease_gaps.record(left.elapsed());
        }
        let end = self.watch(&event, granted, &is_late);
        core.set_batch(None);
        let done = core.frame.is_done(lease);
        match end {
            End::Stuck(waited) => {
                core.counters.ended(Cause::Stuck);
                *lock(&core.stuck) = Some(event);
                Err(ServerFailure::LeaseStuck {
                    lease,
                    device: core.place(),
                    waited,
                })
            }
            End::Faulty(error)
                if matches!(
                    *error,
                    ExecutionError::Assertion { .. } | ExecutionError::CallFailed { .. }
                ) =>
            {
                core.note_fault(lease, error);
                if !done {
                    core.frame.give_up(true, FAILED, lease);
                }
                Ok(Attempt::Over(Cause::Fault))
            }
            // The damage of another launch to the handler's data; this error hides the failure of a call.
            End::Faulty(error) if done && matches!(*error, ExecutionError::Inherited { .. }) => {
                core.note_fault(lease, error);
                Ok(Attempt::Over(Cause::Fault))
            }
            End::Faulty(error) => {
                core.counters.ended(Cause::Failed);
                Err(ServerFailure::LeaseFailed { lease, error })
            }
            End::Done(cause) if done => Ok(Attempt::Over(cause)),
            End::Done(_) => {
                core.counters.ended(Cause::Killed);
                Err(ServerFailure::LeaseKilled {
                    lease,
                    device: core.place(),
                })
            }
        }
    }

    /// Looks after a lease until it has ended.
    fn watch(&mut self, event: &crate::device::Event, granted: u32, is_late: &AtomicBool) -> End {
        let core = &Arc::clone(&self.core);
        let policy = core.policy;
        let begun = Instant::now();
        let mut asked: Option<Instant> = None;
        let mut own = None;
        let mut beats = core.frame.beats();
        // Kernels call without a word to the host.
        let mut served = beats;
        // Beats of a lease asked to leave: the lease looks at each port once more, and may be at a look just then.
        // Behind each of the calls there may be as many urgent ones as have ports.
        let mut more = 2 * core.frame.all_ports() * (1 + core.urgent);
        let slice = policy.idle.min(policy.time).clamp(LOOK.0, LOOK.1);
        let waiting = (!self.has_run).then(|| WaitingCalls::of(core));
        let (mut unbegun, mut unended) = (Suspicion::default(), Suspicion::default());
        loop {
            match event.wait_timeout(slice) {
                Ok(()) => {
                    self.has_run = true;
                    let late = is_late.load(Ordering::Acquire).then_some(Cause::Time);
                    return End::Done(self.cause(own.or(late), granted));
                }
                Err(WaitError::Failed(error)) => return End::Faulty(error),
                Err(WaitError::Deadline) => {}
            }
            let now = Instant::now();
            let calls = core.frame.beats();
            if calls != served {
                (served, self.called) = (calls, now);
            }
            if core.interrupts() == granted {
                own = if core.stage() != Stage::Running {
                    Some(Cause::Stop)
                } else if now - begun >= policy.time {
                    Some(Cause::Time)
                } else if now - self.called >= policy.idle && !core.frame.is_awaited() {
                    Some(Cause::Idle)
                } else {
                    None
                };
                if own.is_some() {
                    core.interrupt();
                }
                continue;
            }
            // A lease before its beginning is not stuck: drivers compile a kernel at its first launch.
            let is_compiled = || {
                waiting
                    .as_ref()
                    .is_none_or(|calls| !calls.are_untaken(core))
            };
            if !is_compiled() && !unbegun.confirms(now - begun, BEGINS_WITHIN) {
                asked = Some(now);
                continue;
            }
            let since = *asked.get_or_insert(now);
            let heard = core.frame.beats();
            if heard != beats && more > 0 {
                more -= 1;
                (beats, asked) = (heard, Some(now));
            } else if unended.confirms(now - since, policy.stuck) {
                return End::Stuck(now - since);
            }
        }
    }

    /// Has a lease about to be launched asked to leave, should this thread be held up in the driver until after the
    /// lease's time; `is_late` tells.
    fn ask_when_late(&self, is_late: &Arc<AtomicBool>, granted: u32) -> Option<Watched> {
        let (core, is_late) = (Arc::clone(&self.core), Arc::clone(is_late));
        lease_clock::ask_after(self.core.policy.time.saturating_add(LATE), move || {
            if core.interrupts() == granted {
                is_late.store(true, Ordering::Release);
                core.interrupt();
            }
        })
    }

    /// Why a well-ended lease has ended.
    fn cause(&self, own: Option<Cause>, granted: u32) -> Cause {
        let core = &self.core;
        match own {
            // Others have asked as well, before the lease has ended: the lease has made room for others.
            Some(Cause::Time) if core.interrupts().wrapping_sub(granted) > 1 => Cause::Others,
            Some(cause) => cause,
            None if core.interrupts() == granted => Cause::Turns,
            None if core.stage() != Stage::Running => Cause::Stop,
            None => Cause::Others,
        }
    }
}
