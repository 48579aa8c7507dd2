//! External dependencies of a batch, to be completed before its submission. No interface of wgpu lets a device wait for
//! another, so the host holds back a batch that needs another device's bytes or order: the recording thread goes on,
//! and the batch is submitted by the first thread to ask for the batch, or by the thread completing the last
//! dependency.

use std::sync::Arc;
use std::task::Waker;

use super::DeviceShared;
use super::outcome::ExecutionError;
use super::submissions::Batch;
use crate::clock::Instant;

/// Something that has to be over before a batch is submitted.
pub(crate) trait ExternalDependency: Send + Sync {
    /// Completes the dependency, also by failure: the failure travels with everything dependent. Never asks for a
    /// queue, since the caller may hold one. False if `deadline` came first, or this thread serves the call of a kernel
    /// in front of the dependency.
    fn complete(&self, deadline: Option<Instant>) -> bool;
    /// Whether the dependency is complete.
    fn is_complete(&self) -> bool;
    /// Wakes `waker` when the dependency is complete and the batch was submitted, or now if already complete.
    fn wake(&self, waker: &Waker);
}

/// A batch waiting for another device may have this many times the commands of a batch without dependencies.
const MAX_HELD_MULTIPLE: u32 = 16;

/// The dependencies of a batch, open or in line.
#[derive(Default)]
pub(crate) struct ExternalDependencies {
    pending: Vec<Arc<dyn ExternalDependency>>,
    held: bool,
}

impl ExternalDependencies {
    /// Has the batch wait for `dependency`.
    pub(crate) fn hold_for(&mut self, dependency: Arc<dyn ExternalDependency>) {
        self.pending.push(dependency);
        self.held = true;
    }

    /// Whether the batch has ever waited, in which case no other thread may have submitted it yet.
    pub(crate) fn has_held(&self) -> bool {
        self.held
    }

    /// The remaining dependencies.
    pub(crate) fn pending(&mut self) -> &[Arc<dyn ExternalDependency>] {
        self.pending.retain(|dependency| !dependency.is_complete());
        &self.pending
    }

    /// Whether a batch with so many times the usual number of commands is better submitted now, behind batches with
    /// these incomplete dependencies.
    pub(super) fn may_go(&mut self, times: u32, earlier: &[Arc<dyn ExternalDependency>]) -> bool {
        times >= MAX_HELD_MULTIPLE || self.pending().is_empty() && earlier.is_empty()
    }

    /// Completes all dependencies, and makes a new beginning. False if this thread must not wait for a dependency.
    pub(super) fn complete(&mut self) -> bool {
        let pending = std::mem::take(self).pending;
        (pending.iter()).all(|dependency| dependency.complete(None))
    }
}

impl DeviceShared {
    /// Completes the dependencies of recorded commands, without the queue in hand, so others may go on recording. False
    /// if `deadline` came first, or this thread serves the call of a kernel in front of one.
    pub(crate) fn complete_dependencies(&self, deadline: Option<Instant>) -> bool {
        loop {
            let pending = self.queue.lock(self).pending();
            if pending.is_empty() {
                return true;
            }
            if !pending
                .iter()
                .all(|dependency| dependency.complete(deadline))
            {
                return false;
            }
        }
    }

    /// The incomplete dependencies of a batch, and of the batches before.
    pub(crate) fn pending_of(&self, batch: &Batch) -> Vec<Arc<dyn ExternalDependency>> {
        match batch.is_closed() {
            true => self.submissions.pending_until(batch),
            false => self.queue.lock(self).pending(),
        }
    }

    /// As [`Self::complete_dependencies`], of a batch and of the batches before.
    pub(crate) fn complete_dependencies_of(
        &self,
        batch: &Batch,
        deadline: Option<Instant>,
    ) -> bool {
        match batch.is_closed() {
            true => self.submissions.complete_until(batch, deadline),
            false => self.complete_dependencies(deadline),
        }
    }

    /// Submits a batch with complete dependencies, and waits for the verdict on the submission, possibly by another
    /// thread. There is no verdict inside a callback of that very submission, and for a batch without commands.
    pub(crate) fn submit(&self, batch: &Batch) {
        let mut queue = self.queue.lock(self);
        if !batch.is_closed() {
            // Errors are reported by the batch.
            let _ = queue.flush();
        }
        queue.submit_until(batch);
    }

    /// Submits the recorded commands, after their dependencies.
    pub(crate) fn flush(&self) -> Result<(), Arc<ExecutionError>> {
        self.complete_dependencies(None);
        self.queue.lock(self).flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Switch(AtomicBool);

    impl ExternalDependency for Switch {
        fn complete(&self, deadline: Option<Instant>) -> bool {
            // A patient caller completes the dependency.
            deadline.is_none() && !self.0.swap(true, Ordering::Relaxed) || self.is_complete()
        }

        fn is_complete(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn wake(&self, waker: &Waker) {
            waker.wake_by_ref();
        }
    }

    #[test]
    fn a_batch_is_held_until_all_its_gates_are_open() {
        let mut dependencies = ExternalDependencies::default();
        assert!(dependencies.may_go(1, &[]) && !dependencies.has_held());
        let switches = [Arc::new(Switch::default()), Arc::new(Switch::default())];
        for switch in &switches {
            dependencies.hold_for(Arc::clone(switch) as Arc<dyn ExternalDependency>);
        }
        assert!(!dependencies.may_go(1, &[]) && dependencies.may_go(MAX_HELD_MULTIPLE, &[]));
        assert!(!switches[0].complete(Some(Instant::now())));
        switches[0].complete(None);
        assert_eq!(dependencies.pending().len(), 1);
        assert!(!dependencies.may_go(1, &[]) && dependencies.has_held());
        assert!(dependencies.complete());
        assert!(switches[1].is_complete());
        // The next batch begins without any.
        assert!(dependencies.may_go(1, &[]) && !dependencies.has_held());
    }
}
