//! Gates: what a batch waits for before it is submitted. No interface of wgpu lets one device wait for another, so a
//! batch that needs another device's bytes, or its order, is held back by the host instead: whoever recorded it goes on,
//! and the batch is submitted by the first who asks for it, or by the thread that has opened its last gate.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::DeviceShared;
use super::outcome::ExecutionError;

/// Something that has to be over before a batch is submitted.
pub(crate) trait Gate: Send + Sync {
    /// Sees to it that it is over, also when it has failed: the failure travels with what depends on it. Never asks for
    /// a queue, since who calls may hold one. False if `deadline` came first.
    fn open(&self, deadline: Option<Instant>) -> bool;
    /// Whether it is over.
    fn is_open(&self) -> bool;
    /// Wakes `waker` when it is over and the batch was submitted, or now if it is over already.
    fn wake(&self, waker: &Waker);
}

impl DeviceShared {
    /// Opens the gates of what was recorded, without the queue in hand, so that others may go on recording. False if
    /// `deadline` came first.
    pub(crate) fn open_gates(&self, deadline: Option<Instant>) -> bool {
        loop {
            let closed = self.queue.lock(self).closed_gates();
            if closed.is_empty() {
                return true;
            }
            if !closed.iter().all(|gate| gate.open(deadline)) {
                return false;
            }
        }
    }

    /// Submits what was recorded, after what it waits for.
    pub(crate) fn flush(&self) -> Result<(), Arc<ExecutionError>> {
        self.open_gates(None);
        self.queue.lock(self).flush()
    }
}
