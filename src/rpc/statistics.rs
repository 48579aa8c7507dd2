//! The counts of the services.
//!
//! Counters belong to one thread each, so that counting shares no cache line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of [`CallStatistics::latency`].
const BUCKETS: usize = 32;

/// Of how many packets one is timed: looking at a clock twice costs more than a small call.
pub(crate) const TIMED: u64 = 32;

/// Counts of the calls of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallStatistics {
    /// The function's name.
    pub name: String,
    /// Calls served, panicking ones included.
    pub calls: u64,
    /// Packets in which these calls came: fewer where a work-group calls as one, or invocations of a subgroup share packets.
    pub packets: u64,
    /// Calls with a panic of the function.
    pub panics: u64,
    /// Calls whose arguments had a wrong length; the function was not run.
    pub malformed: u64,
    /// Bytes of arguments.
    pub bytes_in: u64,
    /// Bytes of results.
    pub bytes_out: u64,
    /// The running time of the function, for every 32nd packet of each server thread, and for one call where there were
    /// several in the packet: entry `i` counts calls of at least 2^i and less than 2^(i+1) nanoseconds; the first also
    /// counts shorter calls, the last longer ones.
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

/// The services' work so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceStatistics {
    /// For each function, in the order of registration.
    pub functions: Vec<CallStatistics>,
    /// Calls of unregistered functions.
    pub unknown: u64,
    /// Calls whose length did not even fit the port.
    pub oversize: u64,
    /// Looks at calls with missing words, on devices writing over a bus. The server looks again until all words have
    /// arrived; a call incomplete after a second is answered as malformed, and counted nowhere else. Looks, not calls:
    /// one call may add many.
    pub late: u64,
    /// Bytes of memory of the ports, for all devices together: memory of the host and of the devices.
    pub port_bytes: u64,
}

/// A counter with a single writing thread, and others reading.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; returns the old value. Only the owner thread of the counter.
    pub fn add(&self, more: u64) -> u64 {
        let was = self.0.load(Ordering::Relaxed);
        self.0.store(was.wrapping_add(more), Ordering::Relaxed);
        was
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a function on a server thread, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub calls: Counter,
    pub packets: Counter,
    pub panics: Counter,
    pub malformed: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    latency: [Counter; BUCKETS],
}

impl Counters {
    pub fn time(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latency[bucket(nanoseconds)].add(1);
    }

    /// The counts of all threads.
    pub fn read(threads: &[Self], name: &str) -> CallStatistics {
        let sum = |counter: &dyn Fn(&Self) -> u64| threads.iter().map(counter).sum();
        CallStatistics {
            name: name.to_owned(),
            calls: sum(&|own| own.calls.get()),
            packets: sum(&|own| own.packets.get()),
            panics: sum(&|own| own.panics.get()),
            malformed: sum(&|own| own.malformed.get()),
            bytes_in: sum(&|own| own.bytes_in.get()),
            bytes_out: sum(&|own| own.bytes_out.get()),
            latency: std::array::from_fn(|index| sum(&|own| own.latency[index].get())),
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
        assert_eq!(
            Counters::read(std::slice::from_ref(&counters), "f").latency_quantile(0.5),
            None
        );
        for nanoseconds in [3, 3, 3, 1000] {
            counters.time(Duration::from_nanos(nanoseconds));
        }
        let read = Counters::read(&[counters, Counters::default()], "f");
        let at = |share| read.latency_quantile(share).unwrap().as_nanos();
        assert_eq!((at(0.0), at(0.75), at(0.76), at(1.0)), (4, 4, 1024, 1024));
    }
}
