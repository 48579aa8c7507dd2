//! What a server thread does when there is nothing to do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How server threads wait for calls: they look again at once for a while, then let other threads run between two
/// looks, and then sleep, twice as long each time. A call that is served starts it all over, and so does a launch.
///
/// With the defaults a server that has nothing to do sleeps a millisecond at a time; a call that arrives then waits up
/// to that long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdlePolicy {
    /// Looks that follow each other at once (default 64).
    pub spins: u32,
    /// Looks with other threads in between (default 2,000).
    pub yields: u32,
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

    /// Replaces the first and the longest sleep.
    #[must_use]
    pub fn sleeps(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_sleep, self.longest_sleep) = (first, longest);
        self
    }

    /// What to do after `quiet` looks that found nothing.
    pub(crate) fn after(self, quiet: u32) -> Pause {
        if quiet <= self.spins {
            return Pause::Spin;
        }
        let quiet = quiet - self.spins;
        if quiet <= self.yields || self.longest_sleep.is_zero() {
            return Pause::Yield;
        }
        let doublings = (quiet - self.yields - 1).min(20);
        Pause::Sleep(
            self.first_sleep
                .saturating_mul(1 << doublings)
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
        let policy = IdlePolicy::new()
            .looks(2, 3)
            .sleeps(Duration::from_micros(10), Duration::from_micros(50));
        let sleep = |us| Pause::Sleep(Duration::from_micros(us));
        let expected = [
            Pause::Spin,
            Pause::Spin,
            Pause::Yield,
            Pause::Yield,
            Pause::Yield,
            sleep(10),
            sleep(20),
            sleep(40),
            sleep(50),
            sleep(50),
        ];
        for (quiet, pause) in (1..).zip(expected) {
            assert_eq!(policy.after(quiet), pause, "{quiet}");
        }
        assert_eq!(policy.after(u32::MAX), sleep(50));
        let awake = policy.sleeps(Duration::ZERO, Duration::ZERO);
        assert_eq!(awake.after(u32::MAX), Pause::Yield);
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
