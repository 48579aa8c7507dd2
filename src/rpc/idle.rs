//! What a server thread does when there is nothing to do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How server threads wait for calls: they look again at once for a while, then let other threads run between two
/// looks, and then sleep, twice as long each time. A call that is served starts it all over, and so does a launch.
///
/// With the defaults a server that has nothing to do sleeps a millisecond at a time; a call that arrives then waits up
/// to that long. That costs one to three hundredths of a processor (the bench `rpc_host` measures it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdlePolicy {
    /// Looks that follow each other at once (default 64).
    pub spins: u32,
    /// Looks with other threads in between (default 2,000), or more …
    pub yields: u32,
    /// … until so much time has passed since the last call (default 2 ms).
    pub awake: Duration,
    /// The first sleep (default 20 µs).
    pub first_sleep: Duration,
    /// The longest sleep (default 1 ms); zero: never sleep.
    pub longest_sleep: Duration,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self {
            spins: 64,
            yields: 2_000,
            awake: Duration::from_millis(2),
            first_sleep: Duration::from_micros(20),
            longest_sleep: Duration::from_millis(1),
        }
    }
}

impl IdlePolicy {
    /// The default policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the number of looks at once, and with other threads in between.
    #[must_use]
    pub fn looks(mut self, spins: u32, yields: u32) -> Self {
        (self.spins, self.yields) = (spins, yields);
        self
    }

    /// Replaces the time for which servers stay awake at least.
    #[must_use]
    pub fn awake(mut self, time: Duration) -> Self {
        self.awake = time;
        self
    }

    /// Replaces the first and the longest sleep.
    #[must_use]
    pub fn sleeps(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_sleep, self.longest_sleep) = (first, longest);
        self
    }

    /// What to do after `quiet` looks that found nothing, and `naps` sleeps since the last that did, which was `idle`
    /// ago.
    pub(crate) fn after(self, quiet: u32, naps: u32, idle: impl FnOnce() -> Duration) -> Pause {
        if quiet <= self.spins {
            return Pause::Spin;
        }
        let is_awake = quiet - self.spins <= self.yields || self.longest_sleep.is_zero();
        if is_awake || naps == 0 && idle() < self.awake {
            return Pause::Yield;
        }
        Pause::Sleep(
            self.first_sleep
                .saturating_mul(1 << naps.min(20))
                .min(self.longest_sleep),
        )
    }
}

/// What a server thread does before it looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    Spin,
    Yield,
    Sleep(Duration),
}

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

    /// Wakes those who sleep, if any do: for callers who look again and again.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer() {
        let us = Duration::from_micros;
        let policy = IdlePolicy::new()
            .looks(2, 3)
            .awake(us(7))
            .sleeps(us(10), us(50));
        let after = |quiet, naps, idle| policy.after(quiet, naps, || us(idle));
        for quiet in [1, 2] {
            assert_eq!(after(quiet, 0, 100), Pause::Spin);
        }
        for (quiet, idle) in [(3, 100), (5, 100), (6, 6), (1000, 0)] {
            assert_eq!(after(quiet, 0, idle), Pause::Yield);
        }
        let sleeps = (0..5).map(|naps| after(6, naps, 7));
        let expected = [10, 20, 40, 50, 50].map(|time| Pause::Sleep(us(time)));
        assert!(sleeps.eq(expected));
        assert_eq!(after(u32::MAX, u32::MAX, 7), Pause::Sleep(us(50)));
        let awake = policy.sleeps(Duration::ZERO, Duration::ZERO);
        assert_eq!(awake.after(u32::MAX, 0, || us(100)), Pause::Yield);
    }

    #[test]
    fn a_bell_that_was_rung_lets_nobody_sleep() {
        let bell = Bell::default();
        let known = bell.count();
        bell.ring();
        // An hour, unless it returns at once.
        bell.sleep(known, Duration::from_secs(3600));
    }
}
