//! The end of a device's queue: commands recorded when the last handle of the device went are submitted by the thread
//! dropping that handle, and other threads may have to wait for this.
//!
//! What the device has submitted runs on. Whoever waits for the heap therefore waits for the end of that queue, and
//! then for the submission, which [`Submissions`](super::submissions::Submissions) sees without the device: nothing is
//! taken for over because a handle is gone. Tests hold the dropping thread at that very place
//! (`memory/heap/tests_drop.rs`).

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::wait::lock;
use crate::clock::Instant;

/// Whether the queue of a device has submitted its last batch.
#[derive(Debug, Default)]
pub(crate) struct QueueEnd {
    reached: Mutex<bool>,
    changed: Condvar,
}

impl QueueEnd {
    pub(crate) fn is_reached(&self) -> bool {
        *lock(&self.reached)
    }

    /// Waits for the end; `false` when the deadline passes before. Only for devices whose last handle is
    /// gone: nothing else brings the end.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        #[cfg(test)]
        super::hooks::reach(super::hooks::Point::EndAwaited);
        let mut reached = lock(&self.reached);
        while !*reached {
            let slice = match deadline {
                Some(end) => end.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(1),
            };
            if slice.is_zero() {
                return false;
            }
            (reached, _) = self
                .changed
                .wait_timeout(reached, slice)
                .unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// The end is reached when the result is dropped, in any case.
    pub(super) fn approach(self: &Arc<Self>) -> Approach {
        Approach(Arc::clone(self))
    }
}

pub(super) struct Approach(Arc<QueueEnd>);

impl Drop for Approach {
    fn drop(&mut self) {
        *lock(&self.0.reached) = true;
        self.0.changed.notify_all();
    }
}
