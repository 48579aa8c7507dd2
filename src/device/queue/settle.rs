//! Settling: the outcomes of launches whose batches have ended.

use std::sync::Arc;

use super::super::DeviceShared;
use super::super::completion_hook::CompletionHooks;
use super::super::outcome::{ExecutionError, Outcome};
use super::super::pace::Pace;
use super::super::status::{Mirror, Reading, StatusPool};
use super::super::submissions::{Batch, Hook, Standing};
use super::{Recorder, Watch};

/// What waits while all status records are in flight, and what the program may do first.
const TOO_MANY: &str = "a launch behind too many others";
pub(in crate::device) const AWAIT_EARLIER: &str = "`.await` the event of an earlier launch first";

/// A launch whose outcome is not known yet.
pub(super) struct Unsettled {
    pub(super) batch: Arc<Batch>,
    outcome: Arc<Outcome>,
    pub(super) watch: Option<Watch>,
    pub(super) mirror: Option<Mirror>,
    hooks: CompletionHooks,
}

impl Unsettled {
    /// The hooks after the submission of the batch.
    pub(super) fn hooks(&self) -> impl Iterator<Item = Hook> {
        self.hooks.iter().map(|hook| {
            let hook = Arc::clone(hook);
            Box::new(move |device: &wgpu::Device| hook.submitted(device)) as Hook
        })
    }

    /// The launch's own report, after the end of its batch; `None` while copies for the host are not mapped.
    fn report(&self, status: Option<&StatusPool>) -> Option<Result<(), ExecutionError>> {
        let is_ready = self.hooks.iter().all(|hook| hook.is_readable());
        let (Some(watch), Some(pool)) = (&self.watch, status) else {
            return is_ready.then_some(Ok(()));
        };
        match pool.read(watch.record, self.mirror.as_ref()) {
            Reading::There(record) if is_ready => Some((watch.decode)(&record)),
            Reading::There(_) | Reading::Pending => None,
            Reading::Gone => Some(Err(ExecutionError::Refused {
                message: "the launch's status record could not be read back".into(),
            })),
        }
    }
}

impl Recorder<'_> {
    /// Remembers a launch whose outcome must be settled when its batch is done.
    pub(crate) fn watch(
        &mut self,
        outcome: &Arc<Outcome>,
        watch: Option<Watch>,
        hooks: CompletionHooks,
    ) {
        let batch = self.batch();
        self.state.unsettled.push_back(Unsettled {
            batch,
            outcome: Arc::clone(outcome),
            watch,
            mirror: None,
            hooks,
        });
    }

    /// Whether all launches are settled.
    #[cfg(embedded)]
    pub(crate) fn is_settled(&self) -> bool {
        self.state.unsettled.is_empty()
    }

    /// The batch of the first launch that is not settled.
    pub(crate) fn first_unsettled(&self) -> Option<Arc<Batch>> {
        self.state.unsettled.front().map(|u| Arc::clone(&u.batch))
    }

    /// The batch of the last launch that is not settled.
    pub(crate) fn last_unsettled(&self) -> Option<Arc<Batch>> {
        self.state.unsettled.back().map(|u| Arc::clone(&u.batch))
    }

    /// The batch of the first launch that holds a status record, when all records are in flight.
    fn oldest_record(&self) -> Option<Arc<Batch>> {
        let is_full = (self.state.status.as_ref()).is_some_and(StatusPool::is_empty);
        let mut unsettled = self.state.unsettled.iter();
        let oldest = unsettled.find(|unsettled| unsettled.watch.is_some());
        oldest
            .filter(|_| is_full)
            .map(|oldest| Arc::clone(&oldest.batch))
    }

    /// Settles the outcomes of all launches of ended batches, and returns whether any of their copies are not mapped
    /// yet. Asks wgpu nothing: a caller in need of an answer has waited, or polls ([`DeviceShared::settle`]).
    pub(crate) fn settle(&mut self) -> bool {
        let device = self.device;
        let state = &mut *self.state;
        let mut at = 0;
        while let Some(first) = state.unsettled.get(at) {
            let lost = || {
                let reason = device.lost.get();
                let reason = reason.unwrap_or_else(|| "its driver has lost it".to_owned());
                Err(ExecutionError::DeviceLost { reason })
            };
            let (own, done) = match (
                device.submissions.standing(&first.batch),
                first.batch.submission(),
            ) {
                (Standing::Ended, Some(Ok(()))) => match first.report(state.status.as_ref()) {
                    None if device.lost.is_raised() => (lost(), false),
                    None => return true,
                    Some(Err(_)) if device.lost.is_raised() => (lost(), false),
                    Some(own) => (own, true),
                },
                (Standing::Ended | Standing::Lost, Some(Err(error))) => {
                    (Err((**error).clone()), false)
                }
                (Standing::Lost, _) => (lost(), false),
                // Batches behind it were submitted by a callback inside its submission.
                (Standing::Recorded, None) if first.batch.is_closed() => {
                    at += 1;
                    continue;
                }
                _ => break,
            };
            // The finding of the status record comes first: wrong values are why assertions fail.
            let own = first
                .hooks
                .iter()
                .fold(own, |own, hook| own.and(hook.ended(done)));
            first.outcome.settle(own);
            if let Some(done) = state.unsettled.remove(at)
                && let (Some(watch), Some(pool)) = (done.watch, state.status.as_mut())
            {
                pool.release(watch.record);
            }
        }
        false
    }
}

impl DeviceShared {
    /// Settles the launches known to have ended, and delivers their prints. May run callbacks of the program.
    pub(crate) fn settle(&self) {
        self.settle_ended();
        self.prints.deliver();
    }

    /// Settles the launches known to have ended.
    pub(crate) fn settle_ended(&self) {
        let mut pace = Pace::default();
        while self.queue.lock(self).settle() {
            // Copies for the host are mapped by the first poll behind the end of their launch.
            self.submissions.collect();
            if self.submissions.never_blocks() {
                // What is not here yet wakes whoever awaits it.
                self.queue.lock(self).settle();
                return;
            }
            pace.rest(None);
        }
    }

    /// Waits while all status records are in flight. No lock may be held.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`].
    pub(crate) fn limit_records(&self) -> Result<(), ExecutionError> {
        loop {
            let oldest = self.queue.lock(self).oldest_record();
            let Some(oldest) = oldest else {
                return Ok(());
            };
            (self.submissions).may_wait_for(&oldest, None, TOO_MANY, AWAIT_EARLIER)?;
            if self.submissions.never_blocks() {
                self.settle();
                return match self.queue.lock(self).oldest_record() {
                    None => Ok(()),
                    Some(_) => Err(self.submissions.refused(TOO_MANY, AWAIT_EARLIER)),
                };
            }
            if oldest.submission().is_none() {
                self.complete_dependencies(None);
                self.submit(&oldest);
            }
            if oldest.submission().is_none() || self.lost.is_raised() {
                // Inside a callback of the batch's submission; and no launch goes to a lost device.
                return Ok(());
            }
            self.residents.awaited(&oldest);
            let _ = self.submissions.wait_over(&oldest, None);
            self.settle();
        }
    }
}
