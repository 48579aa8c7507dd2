//! How long the work-groups of a kernel took, for the choice of threads: work that takes less time than waking a thread runs on
//! the thread at hand.
//!
//! *How it works.* Before the first run, the number of operations tells little: a load from a far line of the cache takes a
//! hundred times as long as an addition. So a dispatch of moderate size runs on one thread at first, under a clock, and again from
//! time to time. Only kernels whose loops have known ends are asked about, so that a wrong guess costs a bounded time.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Time of one thread about as long as waking another and waiting for its end.
pub(crate) const SHORT: Duration = Duration::from_micros(30);

/// Operations that take less time than a look at the clock is worth.
const FEW: u64 = 32 * 1024;

/// The most operations of a first run on one thread: two milliseconds if all of them are slow.
const MODERATE: u64 = 2 << 20;

/// Runs under a clock at first, and after a surprise.
const FIRST: u32 = 4;

/// Later runs, one of which is under a clock.
const LATER: u32 = 64;

/// Dispatches that took up to so many times [`SHORT`] are tried again on one thread, by turns with [`LATER`].
const RETRIED: f32 = 8.0;

/// Where a dispatch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// On one thread
    Alone,
    /// On one thread, under a clock
    Timed,
    /// On all threads
    Spread,
}

/// The times of a kernel on one thread.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Nanoseconds of a work-group, as the bits of an `f32`; 0 before the first time
    group: AtomicU32,
    /// Runs since the last surprise
    runs: AtomicU32,
}

impl Times {
    /// The time of a dispatch on one thread; `None` if nothing is known.
    pub(crate) fn estimate(&self, groups: u64, operations: u64) -> Option<Duration> {
        if operations <= FEW {
            return Some(Duration::from_nanos(200 + operations / 32));
        }
        let group = f32::from_bits(self.group.load(Ordering::Relaxed));
        (group > 0.0).then(|| Duration::from_nanos((groups as f32 * group) as u64))
    }

    /// Where a dispatch runs now.
    pub(crate) fn choose(&self, groups: u64, operations: u64) -> Choice {
        if operations <= FEW {
            return Choice::Alone;
        }
        let Some(time) = self.estimate(groups, operations) else {
            return match operations <= MODERATE {
                true => Choice::Timed,
                false => Choice::Spread,
            };
        };
        let runs = self.runs.fetch_add(1, Ordering::Relaxed);
        let is_due = runs.is_multiple_of(LATER);
        match time <= SHORT {
            true if runs < FIRST || is_due => Choice::Timed,
            true => Choice::Alone,
            false if is_due && time <= SHORT.mul_f32(RETRIED) => Choice::Timed,
            false => Choice::Spread,
        }
    }

    /// Notes the time of a dispatch on one thread.
    pub(crate) fn note(&self, groups: u64, time: Duration) {
        let new = (time.as_nanos() as f32 / groups.max(1) as f32).max(f32::MIN_POSITIVE);
        let old = f32::from_bits(self.group.load(Ordering::Relaxed));
        let is_surprise = old <= 0.0 || new > old * 2.0 || new < old / 2.0;
        if is_surprise {
            self.runs.store(1, Ordering::Relaxed);
        }
        // A thread may have been interrupted, which makes times longer and none shorter.
        let weight = match new < old {
            _ if old <= 0.0 => 1.0,
            true => 0.5,
            false => 0.125,
        };
        let mean = old + (new - old) * weight;
        self.group.store(mean.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: u64 = 100;
    const SOME: u64 = FEW + 1;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Where so many dispatches run.
    fn chosen(times: &Times, dispatches: usize) -> Vec<Choice> {
        (0..dispatches)
            .map(|_| times.choose(GROUPS, SOME))
            .collect()
    }

    #[test]
    fn few_operations_are_done_by_one_thread_without_a_clock() {
        let times = Times::default();
        assert_eq!(times.choose(GROUPS, FEW), Choice::Alone);
        assert!(times.estimate(GROUPS, FEW).unwrap() < micros(2));
        times.note(GROUPS, Duration::from_secs(1));
        assert_eq!(times.choose(GROUPS, FEW), Choice::Alone);
    }

    #[test]
    fn nothing_is_known_before_the_first_time() {
        let times = Times::default();
        assert_eq!(times.estimate(GROUPS, SOME), None);
        assert_eq!(times.choose(GROUPS, MODERATE), Choice::Timed);
        assert_eq!(times.choose(GROUPS, MODERATE + 1), Choice::Spread);
        times.note(GROUPS, micros(20));
        let estimate = times.estimate(2 * GROUPS, SOME).unwrap();
        assert!(estimate.abs_diff(micros(40)) < micros(1), "{estimate:?}");
    }

    #[test]
    fn short_dispatches_stay_on_one_thread_and_long_ones_on_all() {
        let times = Times::default();
        times.note(GROUPS, micros(20));
        let choices = chosen(&times, 2 * LATER as usize);
        assert!(!choices.contains(&Choice::Spread));
        let timed = choices.iter().filter(|&&c| c == Choice::Timed).count();
        assert_eq!(timed, FIRST as usize - 1 + 2, "{choices:?}");
        assert_eq!(times.choose(10 * GROUPS, MODERATE + 1), Choice::Spread);

        let times = Times::default();
        times.note(GROUPS, SHORT * (RETRIED as u32 + 1));
        let choices = chosen(&times, 2 * LATER as usize);
        assert!(choices.iter().all(|&choice| choice == Choice::Spread));
    }

    #[test]
    fn a_dispatch_that_was_long_once_is_tried_again() {
        let times = Times::default();
        times.note(GROUPS, SHORT * 2);
        let choices = chosen(&times, LATER as usize);
        let timed = choices.iter().filter(|&&c| c == Choice::Timed).count();
        assert_eq!(timed, 1, "{choices:?}");
        assert!(!choices.contains(&Choice::Alone));
        times.note(GROUPS, micros(1));
        times.note(GROUPS, micros(1));
        assert_eq!(times.choose(GROUPS, SOME), Choice::Timed);
        times.note(GROUPS, micros(1));
        assert!(!chosen(&times, LATER as usize).contains(&Choice::Spread));
    }

    #[test]
    fn an_interruption_weighs_little() {
        let times = Times::default();
        for _ in 0..8 {
            times.note(GROUPS, micros(10));
        }
        times.note(GROUPS, micros(100));
        assert!(times.estimate(GROUPS, SOME).unwrap() < SHORT);
        // Not by turns, but at the next dispatches.
        assert_eq!(times.choose(GROUPS, SOME), Choice::Timed);
    }

    #[test]
    fn a_time_too_short_for_the_clock_is_a_time() {
        let times = Times::default();
        times.note(u64::MAX, Duration::ZERO);
        assert_eq!(times.estimate(GROUPS, SOME), Some(Duration::ZERO));
    }
}
