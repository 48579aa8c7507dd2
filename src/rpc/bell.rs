//! A bell: wakes sleeping threads, and threads about to sleep.

use std::sync::PoisonError;
use std::time::Duration;

use super::sync::atomic::{AtomicUsize, Ordering};
use super::sync::{Condvar, Mutex};

/// Wakes threads that sleep.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
    /// Threads that sleep, or are about to.
    sleepers: AtomicUsize,
}

impl Bell {
    /// Wakes everybody, and whoever goes to sleep knowing an older count.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Wakes the sleepers, if any: for callers who look again and again.
    pub fn ring_if_asleep(&self) {
        if self.sleepers.load(Ordering::Acquire) > 0 {
            self.ring();
        }
    }

    /// How often it was rung.
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
