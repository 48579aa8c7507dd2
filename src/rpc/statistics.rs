//! What the services count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of [`CallStatistics::latency`].
const BUCKETS: usize = 32;

/// Of how many calls one is timed: looking at a clock twice costs as much as a small call.
pub(crate) const TIMED: u64 = 8;

/// What happened to the calls of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallStatistics {
    /// The function's name.
    pub name: String,
    /// Calls that were served, those that panicked included.
    pub calls: u64,
    /// Calls in which the function panicked.
    pub panics: u64,
    /// Calls whose arguments had a wrong length; the function was not run.
    pub malformed: u64,
    /// Bytes of arguments.
    pub bytes_in: u64,
    /// Bytes of results.
    pub bytes_out: u64,
    /// How long the function ran, for every eighth call: entry `i` counts calls of at least 2^i and less than
    /// 2^(i+1) nanoseconds; the first also counts those below, the last those above.
    pub latency: [u64; BUCKETS],
}

impl CallStatistics {
    /// The time within which `share` (0 to 1) of the timed calls ended, as far as the buckets tell: the upper end
    /// of the bucket. `None` when no call was timed.
    pub fn latency_quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.latency.iter().sum();
        let wanted = (total as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.latency.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(2 << bucket))
    }
}

/// What the services have done so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceStatistics {
    /// For each function, in the order of registration.
    pub functions: Vec<CallStatistics>,
    /// Calls of functions that nobody registered.
    pub unknown: u64,
    /// Calls whose length did not even fit the port.
    pub oversize: u64,
    /// Bytes of memory that the ports take, on all devices together.
    pub port_bytes: u64,
}

/// The counters of one function.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub calls: AtomicU64,
    pub panics: AtomicU64,
    pub malformed: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Counters {
    pub fn time(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latency[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self, name: &str) -> CallStatistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CallStatistics {
            name: name.to_owned(),
            calls: get(&self.calls),
            panics: get(&self.panics),
            malformed: get(&self.malformed),
            bytes_in: get(&self.bytes_in),
            bytes_out: get(&self.bytes_out),
            latency: std::array::from_fn(|index| get(&self.latency[index])),
        }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    (nanoseconds.max(1).ilog2() as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_powers_of_two() {
        for (nanoseconds, expected) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 2),
            (1023, 9),
            (1024, 10),
            (u64::MAX, 31),
        ] {
            assert_eq!(bucket(nanoseconds), expected, "{nanoseconds}");
        }
    }

    #[test]
    fn quantiles_are_the_upper_end_of_their_bucket() {
        let counters = Counters::default();
        assert_eq!(counters.read("f").latency_quantile(0.5), None);
        for nanoseconds in [3, 3, 3, 1000] {
            counters.time(Duration::from_nanos(nanoseconds));
        }
        let read = counters.read("f");
        let at = |share| read.latency_quantile(share).unwrap().as_nanos();
        assert_eq!((at(0.0), at(0.75), at(0.76), at(1.0)), (4, 4, 1024, 1024));
    }
}
