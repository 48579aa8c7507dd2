//! Gates: what a batch waits for before it is submitted. No interface of wgpu lets one device wait for another, so a
//! batch that needs another device's bytes, or its order, is held back by the host instead: whoever recorded it goes on,
//! and the batch is submitted by the first who asks for it, or by the thread that has opened its last gate.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::DeviceShared;
use super::outcome::ExecutionError;
use super::submissions::Batch;

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

/// A batch that waits for another device may have this many times the commands of one that does not.
const PATIENCE: u32 = 16;

/// What the open batch of a queue waits for.
#[derive(Default)]
pub(crate) struct Gates {
    closed: Vec<Arc<dyn Gate>>,
    held: bool,
}

impl Gates {
    /// Has the batch wait for `gate`.
    pub(crate) fn hold_for(&mut self, gate: Arc<dyn Gate>) {
        self.closed.push(gate);
        self.held = true;
    }

    /// Whether the batch has ever waited, so that nobody else may have thought of submitting it.
    pub(crate) fn has_held(&self) -> bool {
        self.held
    }

    /// What it still waits for.
    pub(crate) fn closed(&mut self) -> &[Arc<dyn Gate>] {
        self.closed.retain(|gate| !gate.is_open());
        &self.closed
    }

    /// Whether a batch with so many times the commands that it should have is better submitted now.
    pub(super) fn may_go(&mut self, times: u32) -> bool {
        times >= PATIENCE || self.closed().is_empty()
    }

    /// Sees to it that nothing is waited for, and makes a new beginning.
    pub(super) fn open(&mut self) {
        for gate in std::mem::take(self).closed {
            gate.open(None);
        }
    }
}

impl DeviceShared {
    /// Opens the gates of what was recorded, without the queue in hand, so that others may go on recording. False if
    /// `deadline` came first.
    pub(crate) fn open_gates(&self, deadline: Option<Instant>) -> bool {
        loop {
            let closed = self.queue.lock(self).gates().closed().to_vec();
            if closed.is_empty() {
                return true;
            }
            if !closed.iter().all(|gate| gate.open(deadline)) {
                return false;
            }
        }
    }

    /// Submits a batch whose gates are open, and waits for the verdict on that: another thread may be at it. There is none
    /// inside a callback that its submission runs, and for a batch without commands.
    pub(crate) fn submit(&self, batch: &Batch) {
        // What goes wrong is what the batch says.
        let _ = self.queue.lock(self).flush();
        self.submissions.drive(&self.queue_raw, batch);
    }

    /// Submits what was recorded, after what it waits for.
    pub(crate) fn flush(&self) -> Result<(), Arc<ExecutionError>> {
        self.open_gates(None);
        self.queue.lock(self).flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Switch(AtomicBool);

    impl Gate for Switch {
        fn open(&self, deadline: Option<Instant>) -> bool {
            // Whoever is in no hurry opens it.
            deadline.is_none() && !self.0.swap(true, Ordering::Relaxed) || self.is_open()
        }

        fn is_open(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn wake(&self, waker: &Waker) {
            waker.wake_by_ref();
        }
    }

    #[test]
    fn a_batch_is_held_until_all_its_gates_are_open() {
        let mut gates = Gates::default();
        assert!(gates.may_go(1) && !gates.has_held());
        let switches = [Arc::new(Switch::default()), Arc::new(Switch::default())];
        for switch in &switches {
            gates.hold_for(Arc::clone(switch) as Arc<dyn Gate>);
        }
        assert!(!gates.may_go(1) && gates.may_go(PATIENCE));
        assert!(!switches[0].open(Some(Instant::now())));
        switches[0].open(None);
        assert_eq!(gates.closed().len(), 1);
        assert!(!gates.may_go(1) && gates.has_held());
        gates.open();
        assert!(switches[1].is_open());
        // The next batch begins without any.
        assert!(gates.may_go(1) && !gates.has_held());
    }
}
