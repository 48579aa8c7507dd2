//! Submitting: the open batch is closed and stands in line, and the line is handed to wgpu without the queue in hand.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::Recorder;
use super::settle::Unsettled;
use crate::device::capture;
use crate::device::external_dependency::ExternalDependency;
use crate::device::outcome::ExecutionError;
use crate::device::status::PendingMirror;
use crate::device::submissions::{Batch, ClosedBatch, Commands};

/// Commands of a usual batch: the measure for batches waiting for other devices.
const USUAL: u32 = 128;

/// Batches in line waiting for other devices, before a thread recording more waits as well.
const MOST_IN_LINE: usize = 4;

/// How long such a thread leaves the others' work to others.
const TURN_TIMEOUT: Duration = Duration::from_millis(2);

impl Recorder<'_> {
    /// Ends a command: submits the batch when full, or when the device needs more work
    /// ([`Submissions::needs_more`](crate::device::submissions::Submissions::needs_more)), unless the batch has pending
    /// dependencies and is not far too full, or this thread serves a call of a kernel on the device, behind which drivers
    /// may have a submission wait. The last step with a recorder, since the queue may be released.
    pub(crate) fn commit(&mut self) {
        let submissions = &self.device.submissions;
        if submissions.is_served_here() && !submissions.is_idle() {
            return;
        }
        if self.is_due() {
            // The batch's events carry the error.
            let _ = self.flush();
        } else if self.device.submissions.last_in_line().is_some() {
            // Batches closed for having too many values, or for their dependencies.
            self.submit_ready();
            self.keep_line_short();
        }
    }

    /// Whether the batch is better submitted than left open.
    fn is_due(&mut self) -> bool {
        let (submissions, options) = (&self.device.submissions, &self.device.options);
        let state = &mut *self.state;
        let (commands, few) = (state.commands, options.min_batch);
        if commands < few {
            return false;
        }
        if commands < options.max_batch {
            // The driver is asked now and then.
            if commands < state.next_look {
                return false;
            }
            state.next_look = commands + few;
            if !submissions.needs_more() {
                return false;
            }
        }
        let in_line = submissions.pending();
        let usual = options.max_batch.min(USUAL);
        state.dependencies.may_go(commands / usual, &in_line)
    }

    /// Closes the open batch, waiting for other devices, so that later commands do not wait as well. The batch is
    /// submitted by the thread completing the batch's dependencies; without dependencies, now.
    pub(crate) fn pass_on(&mut self) {
        if self.pending().is_empty() {
            // Failures are reported by the batches' events.
            let _ = self.flush();
            return;
        }
        self.line_up([]);
        self.keep_line_short();
    }

    /// Waits while more batches than a few are in line for other devices. Releases the queue meanwhile.
    fn keep_line_short(&mut self) {
        let submissions = &self.device.submissions;
        while let Some(oldest) = submissions.in_line_before(MOST_IN_LINE) {
            let mut may_wait = !submissions.never_blocks();
            MutexGuard::unlocked(&mut self.state, || {
                // The thread that completes dependencies is not helped while the work gets on: a thread waiting for
                // another thread's work is woken late.
                if may_wait && !submissions.await_turn_of(&oldest, TURN_TIMEOUT) {
                    may_wait = submissions.complete_until(&oldest, None);
                }
            });
            if !may_wait {
                // Threads serving calls of kernels are refused.
                return;
            }
            self.submit_ready();
        }
    }

    /// Submits the batches in line whose dependencies are complete.
    pub(crate) fn submit_ready(&mut self) {
        if let Some(ready) = self.device.submissions.last_ready() {
            self.submit_until(&ready);
        }
    }

    /// The incomplete dependencies of everything recorded and not submitted.
    pub(crate) fn pending(&mut self) -> Vec<Arc<dyn ExternalDependency>> {
        let mut pending = self.device.submissions.pending();
        pending.extend_from_slice(self.state.dependencies.pending());
        pending
    }

    /// Submits the open batch, if there are commands, after its dependencies: other dependencies are better completed
    /// before a thread takes the queue ([`DeviceShared::complete_dependencies`]). Releases the queue meanwhile: wgpu
    /// runs callbacks of the program during a submission. Inside a callback run by a submission, the batch is submitted
    /// at once, too.
    pub(crate) fn flush(&mut self) -> Result<(), Arc<ExecutionError>> {
        self.complete_dependencies(true)?;
        let own = self.close();
        if own.is_none() {
            // Values of refused launches, unused by recorded commands.
            self.state.uniforms.clear();
        }
        let Some(last) = own
            .clone()
            .or_else(|| self.device.submissions.last_in_line())
        else {
            return Ok(());
        };
        self.submit_until(&last);
        let verdict = match own.as_ref().and_then(|own| own.submission()) {
            Some(Err(error)) => Err(Arc::clone(error)),
            _ => {
                self.prepare_encoder();
                Ok(())
            }
        };
        self.settle();
        verdict
    }

    /// Completes the dependencies of the line, and those of the open batch, without the queue in hand.
    fn complete_dependencies(&mut self, with_open: bool) -> Result<(), Arc<ExecutionError>> {
        loop {
            let mut pending = self.device.submissions.pending();
            if with_open && self.state.encoder.is_some() {
                pending.extend_from_slice(self.state.dependencies.pending());
            }
            if pending.is_empty() {
                return Ok(());
            }
            let mut are_complete = false;
            MutexGuard::unlocked(&mut self.state, || {
                are_complete = (pending.iter()).all(|dependency| dependency.complete(None));
            });
            if !are_complete {
                // The batches stay, and go when their dependencies are complete.
                let what = "a batch that comes behind what another device does";
                return Err(Arc::new(self.device.submissions.in_handler(what)));
            }
        }
    }

    /// Submits `commands` in front of the open batch, and at once, behind the dependencies of the line. Commands
    /// recorded meanwhile by other threads come behind.
    pub(crate) fn submit_now(
        &mut self,
        commands: wgpu::CommandBuffer,
    ) -> Result<Arc<Batch>, Arc<ExecutionError>> {
        let batch = self.send_now(commands)?;
        match batch.submission() {
            Some(Err(error)) => Err(Arc::clone(error)),
            _ => Ok(batch),
        }
    }

    /// As [`Self::submit_now`], with the batch of refused commands, too: the memory of refused commands may be in use
    /// nevertheless. After an error the commands stay unsubmitted.
    pub(crate) fn send_now(
        &mut self,
        commands: wgpu::CommandBuffer,
    ) -> Result<Arc<Batch>, Arc<ExecutionError>> {
        self.complete_dependencies(false)?;
        let closed = ClosedBatch::of(commands);
        let batch = Arc::clone(&closed.batch);
        self.device.submissions.enqueue(closed);
        self.submit_until(&batch);
        Ok(batch)
    }

    /// Closes the open batch, and puts others in line right behind: no recorded command comes between. A thread asking
    /// for one of the batches, or for something behind, submits them.
    pub(crate) fn line_up(&mut self, followers: impl IntoIterator<Item = ClosedBatch>) {
        if self.close().is_none() {
            self.state.uniforms.clear();
        }
        for closed in followers {
            self.device.submissions.enqueue(closed);
        }
    }

    /// Submits the line, up to this batch. Lets go of the queue meanwhile.
    pub(crate) fn submit_until(&mut self, batch: &Batch) {
        if batch.submission().is_some() {
            return;
        }
        let device = self.device;
        device.residents.submitting();
        MutexGuard::unlocked(&mut self.state, || {
            device.submissions.drive(&device.queue_raw, batch);
        });
    }

    /// Puts the open batch in line, if there are commands.
    pub(super) fn close(&mut self) -> Option<Arc<Batch>> {
        self.end_pass();
        let device = self.device;
        let state = &mut *self.state;
        let mut encoder = state.encoder.take()?;
        let batch = std::mem::take(&mut state.batch);
        batch.holds(state.commands, std::mem::take(&mut state.held));
        (state.commands, state.next_look) = (0, 0);
        state.submissions += 1;
        let own = |unsettled: &&mut Unsettled| Arc::ptr_eq(&unsettled.batch, &batch);
        let records_used = (state.unsettled.iter_mut().filter(own)).any(|one| one.watch.is_some());
        let mut mirrors = Vec::new();
        let mut refused = None;
        if records_used || state.profiler.is_some() {
            ((), refused) = capture(&device.raw, || {
                if let (Some(pool), true) = (&state.status, records_used) {
                    mirrors.extend(pool.collect(&device.raw, &device.downloads, &mut encoder));
                }
                if let Some(profiler) = state.profiler.as_mut() {
                    profiler.resolve(&device.raw, &device.downloads, &mut encoder, &mut mirrors);
                }
            });
        }
        let mirror = mirrors.first().filter(|_| records_used);
        let mirror = mirror.map(PendingMirror::mirror);
        let mut hooks = Vec::new();
        for unsettled in state.unsettled.iter_mut().filter(own) {
            unsettled.mirror.clone_from(&mirror);
            hooks.extend(unsettled.hooks());
        }
        let uniforms = state.uniforms.take(device.submissions.spare());
        device.submissions.enqueue(ClosedBatch {
            batch: Arc::clone(&batch),
            commands: Commands::Recorded(encoder),
            uniforms,
            dependencies: std::mem::take(&mut state.dependencies),
            mirrors,
            hooks,
            refused,
        });
        Some(batch)
    }
}
