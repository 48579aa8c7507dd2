//! A bell: wakes sleeping threads, and threads about to sleep.

use std::sync::PoisonError;
use std::time::Duration;

use super::sync::atomic::{AtomicUsize, Ordering};
use super::sync::{Condvar, Mutex};

/// Wakes sleeping threads.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
    /// Sleeping threads, and threads about to sleep.
    sleepers: AtomicUsize,
}

impl Bell {
    /// Wakes everybody, and any thread going to sleep with an older count.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Wakes the sleepers, if any: for callers looking again and again.
    pub fn ring_if_asleep(&self) {
        if self.sleepers.load(Ordering::Acquire) > 0 {
            self.ring();
        }
    }

    /// How often the bell was rung.
    pub fn count(&self) -> u64 {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, unless the bell was rung since `known`.
    pub fn sleep(&self, known: u64, time: Duration) {
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if *rung == known {
            // Woken for nothing is woken early: the caller looks, and comes back.
            drop(self.changed.wait_timeout(rung, time));
        }
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
    }
}
