//! Events: handles, telling a program the end of a command and the command's result.

use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::completion_hook::{CompletionHook, CompletionHooks};
use super::outcome::{ExecutionError, Outcome};
use super::submissions::{Batch, Progress};
use super::{Device, DeviceShared};
use crate::clock::Instant;
use crate::error_text::debug_by_text;
use crate::span::span;

mod callbacks;
mod several;
mod times;

pub(crate) use callbacks::CallbackQueue;
pub use times::GpuTimes;

/// Where a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventStatus {
    /// Recorded; its batch has not been submitted.
    Recorded,
    /// Submitted, and not finished by the device.
    Submitted,
    /// Finished, with success.
    Complete,
    /// Finished, or given up, with an error: see [`Event::wait`].
    Failed,
}

/// For people: the variant in words.
impl fmt::Display for EventStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recorded => "recorded",
            Self::Submitted => "submitted",
            Self::Complete => "complete",
            Self::Failed => "failed",
        })
    }
}

/// Why a wait did not end with success.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed first. The command goes on: wait again to see its end, or stop it by [`Event::cancel`].
    #[error(
        "the deadline passed before the command was done; it goes on: wait again to see its end, or cancel a launch"
    )]
    Deadline,
    /// The command failed.
    #[error(transparent)]
    Failed(#[from] Arc<ExecutionError>),
}

debug_by_text!(WaitError { Deadline, Failed });

/// A wait for an event, as errors name the operation.
const WAIT: &str = "a wait for an event";
/// The way to wait without blocking.
const AWAIT: &str = "`.await` the event";

/// The end of a command, as a value: wait, ask for the status, or `.await`.
///
/// Waiting for an event first submits the batch of its command. Events are cheap to clone and may outlive everything
/// but the device, kept alive by events. [`Event::cancel`] stops a launch. An event may be ignored: a failure of the command is
/// also the answer of every read of the command's results.
#[derive(Clone)]
pub struct Event {
    /// `None` for what the host has done by itself.
    pub(crate) device: Option<Arc<DeviceShared>>,
    /// `None` for commands with nothing to do. There is a device wherever there is a batch.
    batch: Option<Arc<Batch>>,
    outcome: Option<Arc<Outcome>>,
    hooks: CompletionHooks,
}

/// The device of a command, and the batch that has it.
pub(super) type Command<'e> = (&'e Arc<DeviceShared>, &'e Arc<Batch>);

impl Event {
    /// The event of a command of `batch`; without a batch, of a command with nothing to do, such as a launch of zero
    /// invocations.
    pub(crate) fn of(device: Arc<DeviceShared>, batch: Option<Arc<Batch>>) -> Self {
        Self {
            device: Some(device),
            batch,
            outcome: None,
            hooks: CompletionHooks::new(),
        }
    }

    /// The event of a command that the host has done, for which no device has anything to do.
    pub(crate) fn of_host() -> Self {
        Self {
            device: None,
            batch: None,
            outcome: None,
            hooks: CompletionHooks::new(),
        }
    }

    /// The command, if a device has something to do.
    pub(super) fn command(&self) -> Option<Command<'_>> {
        self.device.as_ref().zip(self.batch.as_ref())
    }

    pub(crate) fn of_batch(device: &Arc<DeviceShared>, batch: Arc<Batch>) -> Self {
        Self::of(Arc::clone(device), Some(batch))
    }

    /// The batch of the command.
    pub(crate) fn batch(&self) -> Option<&Arc<Batch>> {
        self.batch.as_ref()
    }

    /// The event of a command with nothing to do.
    pub(crate) fn complete(device: &Arc<DeviceShared>) -> Self {
        Self::of(Arc::clone(device), None)
    }

    pub(crate) fn with_outcome(mut self, outcome: Option<Arc<Outcome>>) -> Self {
        self.outcome = outcome;
        self
    }

    /// With hooks following the command to the end.
    pub(crate) fn with_hooks(mut self, hooks: CompletionHooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// The hook of this type, if the command has one.
    pub(crate) fn hook<T: CompletionHook>(&self) -> Option<&T> {
        let mut hooks = self.hooks.iter();
        hooks.find_map(|hook| (&**hook as &dyn Any).downcast_ref())
    }

    /// Waits until the command is done, its printed lines are delivered, and its posted calls of the host are served,
    /// where calls are served after a launch. The batch with the command is submitted first.
    ///
    /// # Errors
    /// [`WaitError::Failed`] with the command's own failure, or the loss of the device; with
    /// [`ExecutionError::InHandler`] in a function of the host serving a call of the device, and with
    /// [`ExecutionError::WouldBlock`] where threads never wait: `.await` the event there.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_at_most(None)
    }

    /// As [`Event::wait`], giving up after `timeout`. The command goes on then: [`Event::cancel`] stops it, where the device can,
    /// and [`Launch::deadline`](crate::Launch::deadline) does so by itself.
    ///
    /// # Errors
    /// [`WaitError::Deadline`] when the command was not done in time; the command goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_at_most(Some(timeout))
    }

    fn wait_at_most(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let _span = span!("wait");
        let begun = Instant::now();
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        self.may_wait(timeout)?;
        let Some((device, batch)) = self.submitted(deadline)? else {
            return Ok(());
        };
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        match self.end_of(device, batch, left) {
            Progress::Done => {
                let left = || timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
                let never_blocks = device.submissions.never_blocks();
                let is_over = |hook: &Arc<dyn CompletionHook>| match never_blocks {
                    true => hook.poll(Waker::noop()),
                    false => hook.wait(left()),
                };
                match self.verdict(device) {
                    Some(verdict) if verdict.is_err() || self.hooks.iter().all(is_over) => {
                        verdict.map_err(WaitError::Failed)
                    }
                    _ if never_blocks && timeout != Some(Duration::ZERO) => Err(refused(device)),
                    _ => Err(WaitError::Deadline),
                }
            }
            Progress::Pending => Err(WaitError::Deadline),
            Progress::Refused => Err(refused(device)),
            Progress::Lost(reason) => Err(lost(reason)),
        }
    }

    /// Waits for the end of the command's batch.
    fn end_of(&self, device: &DeviceShared, batch: &Batch, timeout: Option<Duration>) -> Progress {
        let submissions = &device.submissions;
        // A launch's report, and results coming back with the launch, are only to be had by asking wgpu.
        match self.outcome.is_none() && self.hooks.is_empty() {
            true => submissions.wait_signalled(batch, timeout),
            false => submissions.wait(batch, timeout),
        }
    }

    /// Refuses the wait before any submission for the wait: some drivers keep a submitting thread while a kernel runs.
    fn may_wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let Some((device, batch)) = self.command() else {
            return Ok(());
        };
        let may = (device.submissions).may_wait_for(batch, timeout, WAIT, AWAIT);
        may.map_err(|error| WaitError::Failed(Arc::new(error)))
    }

    /// The batch of the command and its device, after flushing; `None` when there was none.
    fn submitted(&self, deadline: Option<Instant>) -> Result<Option<Command<'_>>, WaitError> {
        let Some((device, batch)) = self.command() else {
            return Ok(None);
        };
        if batch.submission().is_none() {
            if !device.complete_dependencies_of(batch, deadline) {
                let is_late = deadline.is_some_and(|end| Instant::now() >= end);
                return Err(if is_late {
                    WaitError::Deadline
                } else {
                    refused(device)
                });
            }
            device.submit(batch);
        }
        device.residents.awaited(batch);
        match batch.submission() {
            Some(Ok(())) => Ok(Some((device, batch))),
            Some(Err(error)) => Err(WaitError::Failed(Arc::clone(error))),
            None if device.submissions.is_submitting_here(batch) => {
                Err(WaitError::Failed(Arc::new(ExecutionError::InCallback {
                    what: "a wait for a batch that is just being submitted",
                })))
            }
            None => Err(lost("its batch was dropped without being submitted".into())),
        }
    }

    /// The command's own result, once its batch has completed; `None` where copies of the result are still on their
    /// way, and threads may not wait.
    fn verdict(&self, device: &Arc<DeviceShared>) -> Option<Result<(), Arc<ExecutionError>>> {
        let Some(outcome) = &self.outcome else {
            return Some(Ok(()));
        };
        if !outcome.is_settled() {
            device.settle_ended();
            outcome.resolve();
        }
        self.hooks.iter().for_each(|hook| hook.deliver());
        match outcome.failure() {
            Some(error) => Some(Err(error)),
            None if device.submissions.never_blocks() && !outcome.is_settled() => None,
            None => Some(Ok(())),
        }
    }

    /// Where the command stands now. Never blocks and submits nothing.
    pub fn status(&self) -> EventStatus {
        let Some((device, batch)) = self.command() else {
            return EventStatus::Complete;
        };
        match batch.submission() {
            None => EventStatus::Recorded,
            Some(Err(_)) => EventStatus::Failed,
            Some(Ok(())) => match self.end_of(device, batch, Some(Duration::ZERO)) {
                Progress::Pending | Progress::Refused => EventStatus::Submitted,
                Progress::Lost(_) => EventStatus::Failed,
                Progress::Done => match self.verdict(device) {
                    None => EventStatus::Submitted,
                    Some(Ok(())) => EventStatus::Complete,
                    Some(Err(_)) => EventStatus::Failed,
                },
            },
        }
    }

    /// The command's error, if known to have failed. Never blocks.
    pub fn error(&self) -> Option<Arc<ExecutionError>> {
        match self.status() {
            EventStatus::Failed => match self.wait_timeout(Duration::ZERO) {
                Err(WaitError::Failed(error)) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Device {
    /// Orders everything recorded on this device from now on behind `events`, of any device, and returns the device, so
    /// a command can follow: `device.after(&[&upload])?.heap_copy(from, to, len)?`.
    ///
    /// Events of this device cost nothing, since the queue is in order. No interface of wgpu makes a device wait for
    /// another: the batches of other devices' events are submitted first, all together, and the calling thread waits
    /// for their end.
    ///
    /// # Errors
    /// [`WaitError::Failed`] with the failure of the first failed event of another device; the others have ended all
    /// the same. Failures of this device's own commands travel with the memory written by those commands.
    pub fn after(&self, events: &[&Event]) -> Result<&Self, WaitError> {
        let foreign = |event: &&&Event| {
            let owner = event.device.as_ref();
            owner.is_some_and(|owner| !Arc::ptr_eq(owner, &self.shared))
        };
        for event in events.iter().filter(foreign) {
            // Errors found here are reported by the wait.
            let _ = event.submitted(None);
        }
        let ends: Vec<_> = events.iter().filter(foreign).map(|e| e.wait()).collect();
        ends.into_iter().collect::<Result<(), _>>()?;
        Ok(self)
    }
}

/// Why this thread may not wait.
fn refused(device: &DeviceShared) -> WaitError {
    let refused = device.submissions.refused(WAIT, AWAIT);
    WaitError::Failed(Arc::new(refused))
}

fn lost(reason: String) -> WaitError {
    WaitError::Failed(Arc::new(ExecutionError::DeviceLost { reason }))
}

/// The future of an [`Event`], from `event.await` or `event.into_future()`.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct EventFuture(Event);

impl IntoFuture for Event {
    type Output = Result<(), WaitError>;
    type IntoFuture = EventFuture;

    fn into_future(self) -> EventFuture {
        EventFuture(self)
    }
}

impl Future for EventFuture {
    type Output = Result<(), WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let event = &self.0;
        let Some((device, batch)) = event.command() else {
            return Poll::Ready(Ok(()));
        };
        // A thread driving a future there keeps the kernel waiting for the same thread.
        let may = device.submissions.may_submit_behind(batch, WAIT);
        may.map_err(|error| WaitError::Failed(Arc::new(error)))?;
        let is_unsent = batch.submission().is_none();
        if is_unsent && let Some(dependency) = device.pending_of(batch).pop() {
            dependency.wake(context.waker());
            return Poll::Pending;
        }
        if let Err(error) = event.submitted(None) {
            return Poll::Ready(Err(error));
        }
        match event.end_of(device, batch, Some(Duration::ZERO)) {
            Progress::Done => {
                let is_over = |hook: &Arc<dyn CompletionHook>| hook.poll(context.waker());
                match event.verdict(device) {
                    None => {
                        let waker = context.waker();
                        (device.waiter).wake_after(&device.submissions, batch, waker);
                        Poll::Pending
                    }
                    Some(Ok(())) if !event.hooks.iter().all(is_over) => Poll::Pending,
                    Some(verdict) => Poll::Ready(verdict.map_err(WaitError::Failed)),
                }
            }
            Progress::Lost(reason) => Poll::Ready(Err(lost(reason))),
            Progress::Pending | Progress::Refused => {
                let waker = context.waker();
                (device.waiter).wake_after(&device.submissions, batch, waker);
                Poll::Pending
            }
        }
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
