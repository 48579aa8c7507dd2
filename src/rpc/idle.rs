//! What a server thread does when there is nothing to do.
//!
//! A thread looks again for 50 µs and then sleeps, and never yields: on Linux a yield gave away a slice of 4 ms at
//! each look, also where another processor was free, and ten calls in a row then outlasted lavapipe's ration. A server
//! that nobody calls sleeps a millisecond at a time, which costs 13 to 29 ms of processor time a second (bench
//! `rpc_host`).

use std::time::Duration;

/// How server threads wait for calls: they look again at once for a while, and then sleep, twice as long each time. A
/// served call restarts the count, and so does a launch.
///
/// Server threads never yield: yielding on Linux gives away a whole slice of time (4 ms, at 250 ticks a second) to
/// another thread of the same processor, even when another processor is free, and a kernel of a software adapter
/// calling ten times in a row has then waited longer than its loops may take. A woken thread is put on a free
/// processor.
///
/// With the defaults an idle server sleeps a millisecond at a time; a call arriving meanwhile waits up to that long.
/// The price is one to three hundredths of a processor (measured by the bench `rpc_host`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdlePolicy {
    /// Looks that follow each other at once (default 64), or more …
    pub looks: u32,
    /// … until so much time has passed since the last call (default 50 µs).
    pub awake: Duration,
    /// The first sleep (default 20 µs).
    pub first_sleep: Duration,
    /// The longest sleep (default 1 ms); zero: never sleep.
    pub longest_sleep: Duration,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self {
            looks: 64,
            awake: Duration::from_micros(50),
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

    /// Replaces the number of looks that follow each other at once.
    #[must_use]
    pub fn looks(mut self, looks: u32) -> Self {
        self.looks = looks;
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

    /// The time to sleep after `quiet` looks in vain, and `naps` sleeps since the last success, `idle` ago; `None`: not
    /// at all.
    pub(crate) fn after(
        self,
        quiet: u32,
        naps: u32,
        idle: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        if quiet <= self.looks || self.longest_sleep.is_zero() || naps == 0 && idle() < self.awake {
            return None;
        }
        let time = self.first_sleep.saturating_mul(1 << naps.min(20));
        Some(time.min(self.longest_sleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer() {
        let us = Duration::from_micros;
        let policy = IdlePolicy::new()
            .looks(2)
            .awake(us(7))
            .sleeps(us(10), us(50));
        let after = |quiet, naps, idle| policy.after(quiet, naps, || us(idle));
        for (quiet, idle) in [(1, 100), (2, 100), (3, 6), (1000, 0)] {
            assert_eq!(after(quiet, 0, idle), None);
        }
        let sleeps = (0..5).map(|naps| after(3, naps, 7));
        let expected = [10, 20, 40, 50, 50].map(|time| Some(us(time)));
        assert!(sleeps.eq(expected));
        assert_eq!(after(u32::MAX, u32::MAX, 7), Some(us(50)));
        let awake = policy.sleeps(Duration::ZERO, Duration::ZERO);
        assert_eq!(awake.after(u32::MAX, 0, || us(100)), None);
    }

    #[test]
    fn a_bell_that_was_rung_lets_nobody_sleep() {
        let bell = crate::rpc::Bell::default();
        let known = bell.count();
        bell.ring();
        // An hour, unless it returns at once.
        bell.sleep(known, Duration::from_secs(3600));
    }
}
