//! Counts the pauses of a device's servers, and the servers' launches.
//!
//! # How it works
//!
//! 1. A server counts each launch before recording, and the end of each launch. During a pause nothing is counted, and
//!    the server launches nothing.
//! 2. A pause is counted first, and waits then until no launch is left. One lock is around both counts: either the pause
//!    sees the launch, or the server sees the pause.
//! 3. The end of the last pause wakes sleeping servers.
//!
//! A launch counted before a pause may be granted its requests to leave after the pause has asked. So a server looks
//! once more for a pause behind the submission, and then asks for the pause (`persistent/relay.rs`).

use std::sync::PoisonError;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// The pauses of the servers of a device.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    pauses: usize,
    launches: usize,
}

impl Pauses {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a launch about to be recorded; `false`, and not counted, during a pause.
    pub fn begin_launch(&self) -> bool {
        let mut counts = self.lock();
        let may = counts.pauses == 0;
        counts.launches += usize::from(may);
        may
    }

    /// A counted launch has ended.
    pub fn end_launch(&self) {
        let mut counts = self.lock();
        counts.launches = counts.launches.saturating_sub(1);
        // Without a pause nobody waits.
        if counts.launches == 0 && counts.pauses > 0 {
            self.changed.notify_all();
        }
    }

    /// Begins a pause, beside others.
    pub fn begin(&self) {
        self.lock().pauses += 1;
    }

    /// Ends a pause.
    pub fn end(&self) {
        let mut counts = self.lock();
        counts.pauses = counts.pauses.saturating_sub(1);
        if counts.pauses == 0 {
            self.changed.notify_all();
        }
    }

    pub fn is_paused(&self) -> bool {
        self.lock().pauses > 0
    }

    /// Waits until no launch is left, as long as `left` says; returns the number of launches left.
    pub fn wait_for_launches(&self, left: impl Fn() -> Duration) -> usize {
        let mut counts = self.lock();
        loop {
            let left = left();
            if counts.launches == 0 || left.is_zero() {
                return counts.launches;
            }
            let woken = self.changed.wait_timeout(counts, left);
            counts = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps until the end of the last pause, or until `is_over`, whose change is followed by [`Pauses::look`].
    pub fn sleep(&self, is_over: impl Fn() -> bool) {
        let mut counts = self.lock();
        while counts.pauses > 0 && !is_over() {
            let woken = self.changed.wait(counts);
            counts = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has sleeping servers look at their stage.
    pub fn look(&self) {
        // With the lock: a server between look and sleep has the lock.
        let _counts = self.lock();
        self.changed.notify_all();
    }
}
