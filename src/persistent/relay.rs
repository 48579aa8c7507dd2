//! The relay: a thread that launches lease after lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::core::{Core, Stage};
use super::error::ServerFailure;
use crate::device::resident::{self, Resident};
use crate::device::wait::lock;
use crate::device::{ExecutionError, WaitError};
use crate::kernel::server::FAILED;
use crate::launch::{Launch, LaunchError};
use crate::memory::{DeviceBuffer, HeapError};
use crate::rpc::port::protocol::CallStatus;

/// The longest sleep of a relay that waits for calls.
const SLEEP: Duration = Duration::from_secs(1);
/// Between two attempts to launch while the host has the heap.
const HELD: Duration = Duration::from_micros(200);
/// How often the relay looks after a lease.
const LOOK: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(5));

/// What the relay thread has to itself.
pub(super) struct Relay {
    pub core: Arc<Core>,
    pub launch: Launch,
    /// The memory of the ports as the launch knows it.
    pub buffers: Vec<DeviceBuffer<u32>>,
    /// Turns that a lease may begin calls in.
    pub most: u32,
}

/// How a lease ended.
enum End {
    Done,
    Faulty(Arc<ExecutionError>),
    Stuck(Duration),
}

impl Relay {
    pub fn run(mut self) -> Self {
        resident::as_relay(self.core.id);
        let core = Arc::clone(&self.core);
        loop {
            match core.stage() {
                Stage::Running => {}
                Stage::Stopping if core.frame.is_awaited() => {}
                Stage::Stopping => break,
                Stage::Closed | Stage::Failed => return self,
            }
            if core.stage() == Stage::Running && !core.frame.is_awaited() {
                core.sleep(SLEEP);
                continue;
            }
            match self.lease() {
                Ok(true) => {}
                // Somebody has the heap.
                Ok(false) if core.stage() == Stage::Stopping => break,
                Ok(false) => {
                    core.held.store(true, Ordering::Release);
                    std::thread::sleep(HELD);
                }
                Err(failure) => {
                    core.fail(failure);
                    return self;
                }
            }
        }
        let stopped = CallStatus::Stopped.code();
        core.frame.give_up(false, stopped, 0);
        core.set_stage(Stage::Closed);
        // Posted by callers who had looked before that.
        core.frame.give_up(false, stopped, 0);
        self
    }

    /// One lease; `false` if it could not be launched now.
    fn lease(&mut self) -> Result<bool, ServerFailure> {
        let core = &self.core;
        let lease = match core.leases.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
            0 => core.leases.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            lease => lease,
        };
        // A lease that is asked to end before it begins looks at all ports once.
        let granted = core.interrupts();
        core.frame.grant(lease, granted, self.most);
        for buffer in &self.buffers {
            // Calls that failed are told by themselves.
            buffer.forgive();
        }
        // Before the launch, which sees at least as much.
        let grown = core.heap.as_ref().map_or(0, |heap| heap.shared.grown());
        core.covered.store(grown, Ordering::SeqCst);
        let end = self.lease_on_device(lease, granted);
        self.core.covered.store(u64::MAX, Ordering::SeqCst);
        end
    }

    fn lease_on_device(&mut self, lease: u32, granted: u32) -> Result<bool, ServerFailure> {
        let core = &self.core;
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
            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => return Ok(false),
            Err(error) => {
                let error = Arc::new(error);
                return Err(ServerFailure::Launch { lease, error });
            }
        };
        core.held.store(false, Ordering::Release);
        let batch = event.batch().cloned();
        let is_out = (batch.as_ref()).is_some_and(|batch| batch.submission().is_some());
        core.set_batch(batch);
        if is_out {
            // Somebody else has submitted it, and may have begun to wait before it was known whose it is.
            core.interrupt();
        }
        // What goes wrong is the event's to tell.
        if let Some(device) = &core.device {
            let _ = device.flush();
        }
        let end = self.watch(&event, granted);
        core.set_batch(None);
        let done = core.frame.is_done(lease);
        match end {
            End::Stuck(waited) => {
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
                Ok(true)
            }
            // What somebody else's launch has done to what a handler works on; it hides what a call has failed of.
            End::Faulty(error) if done && matches!(*error, ExecutionError::Inherited { .. }) => {
                core.note_fault(lease, error);
                Ok(true)
            }
            End::Faulty(error) => Err(ServerFailure::LeaseFailed { lease, error }),
            End::Done if done => Ok(true),
            End::Done => Err(ServerFailure::LeaseKilled {
                lease,
                device: core.place(),
            }),
        }
    }

    /// Looks after a lease until it has ended.
    fn watch(&self, event: &crate::device::Event, granted: u32) -> End {
        let core = &self.core;
        let policy = core.policy;
        let begun = Instant::now();
        let (mut posted, mut called) = (core.posted.load(Ordering::Relaxed), begun);
        let mut asked: Option<Instant> = None;
        let mut beats = core.frame.beats();
        // Kernels call without a word to the host.
        let mut served = beats;
        let slice = policy.idle.min(policy.time).clamp(LOOK.0, LOOK.1);
        loop {
            match event.wait_timeout(slice) {
                Ok(()) => return End::Done,
                Err(WaitError::Failed(error)) => return End::Faulty(error),
                Err(WaitError::Deadline) => {}
            }
            let now = Instant::now();
            let posts = core.posted.load(Ordering::Relaxed);
            let calls = core.frame.beats();
            if posts != posted || calls != served {
                (posted, served, called) = (posts, calls, now);
            }
            if core.interrupts() == granted {
                let is_idle = now - called >= policy.idle && !core.frame.is_awaited();
                if is_idle || now - begun >= policy.time || core.stage() != Stage::Running {
                    core.interrupt();
                }
                continue;
            }
            let since = *asked.get_or_insert(now);
            let heard = core.frame.beats();
            if heard != beats {
                (beats, asked) = (heard, Some(now));
            } else if now - since >= policy.stuck {
                return End::Stuck(now - since);
            }
        }
    }
}
