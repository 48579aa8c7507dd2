//! How long calls take and how long calls find no lease: histograms for many counting threads, without a lock.
//!
//! A bucket is a quarter of a power of two wide, so a quantile is at most a quarter too high. Threads count in stripes
//! of their own, each on cache lines of its own; a reader adds the stripes up. A count costs a look at the clock and
//! one addition to a word shared by few threads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The first power of two, in nanoseconds: shorter times are in the first bucket.
const FIRST: u32 = 6;
/// The last: longer times (two minutes) are in the last bucket.
const LAST: u32 = 37;
/// Buckets of a power of two.
const PARTS: u32 = 4;
const BUCKETS: usize = 1 + ((LAST - FIRST) * PARTS) as usize;
/// Stripes shared by threads.
const STRIPES: usize = 16;

/// The bucket of so many nanoseconds.
fn bucket(nanoseconds: u64) -> usize {
    let Some(power) = nanoseconds.checked_ilog2().filter(|&power| power >= FIRST) else {
        return 0;
    };
    let part = (nanoseconds >> (power - PARTS.ilog2())) as u32 % PARTS;
    let index = 1 + (power - FIRST) * PARTS + part;
    (index as usize).min(BUCKETS - 1)
}

/// The nanoseconds from which on the next bucket counts.
fn end(bucket: usize) -> u64 {
    let (power, part) = (bucket as u32 / PARTS + FIRST, bucket as u32 % PARTS);
    (1 << power) + (u64::from(part) << (power - PARTS.ilog2()))
}

/// Times, counted by their length; from [`ServerStatistics`](super::ServerStatistics).
///
/// A time is known to a quarter of itself: [`LatencyHistogram::quantile`] is the upper end of the bucket, never longer than
/// [`LatencyHistogram::longest`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: [u64; BUCKETS],
    /// Nanoseconds.
    longest: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            longest: 0,
        }
    }
}

impl LatencyHistogram {
    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A time not exceeded by the share `quantile` (0 to 1) of all: 0.5 for the median, 0.99 for one in a hundred. None
    /// before anything was counted.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let all = self.count();
        if all == 0 {
            return None;
        }
        // The smallest rank that covers the share, from 1.
        let rank = (quantile.clamp(0.0, 1.0) * all as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        let end = found.map_or(self.longest, end);
        Some(Duration::from_nanos(end.min(self.longest)))
    }

    /// The longest time, exactly. None before anything was counted.
    pub fn longest(&self) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_nanos(self.longest))
    }
}

impl std::fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatencyHistogram")
            .field("count", &self.count())
            .field("median", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("longest", &self.longest())
            .finish()
    }
}

/// A stripe of the counters, on cache lines of its own.
#[repr(align(128))]
struct Stripe {
    counts: [AtomicU64; BUCKETS],
    longest: AtomicU64,
}

/// The counters behind a [`LatencyHistogram`].
pub(super) struct Latencies(Box<[Stripe]>);

impl Default for Latencies {
    fn default() -> Self {
        let stripe = |_| Stripe {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            longest: AtomicU64::new(0),
        };
        Self((0..STRIPES).map(stripe).collect())
    }
}

thread_local! {
    /// The stripe for this thread's counts.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl Latencies {
    pub fn record(&self, time: Duration) {
        // At the very end of a thread the thread's own stripe is gone.
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        let Some(stripe) = self.0.get(stripe) else {
            return;
        };
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = stripe.counts.get(bucket(nanoseconds)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // Records are rare: most calls only look.
        if nanoseconds > stripe.longest.load(Ordering::Relaxed) {
            stripe.longest.fetch_max(nanoseconds, Ordering::Relaxed);
        }
    }

    pub fn histogram(&self) -> LatencyHistogram {
        let mut all = LatencyHistogram::default();
        for stripe in &self.0 {
            for (sum, count) in all.counts.iter_mut().zip(&stripe.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
            all.longest = all.longest.max(stripe.longest.load(Ordering::Relaxed));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_that_ends_at_most_a_quarter_later() {
        let mut times: Vec<u64> = (0..5000).collect();
        times.extend((0..64).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]));
        for time in times {
            let found = bucket(time);
            assert!(found < BUCKETS, "{time}");
            if time < 64 {
                assert_eq!(found, 0, "{time}");
            } else if time < 1 << LAST {
                assert!(time < end(found), "{time}: {found}");
                assert!(end(found) <= time + time / 4 + 1, "{time}: {found}");
                assert!(time >= end(found - 1), "{time}: {found}");
            } else {
                assert_eq!(found, BUCKETS - 1, "{time}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let latencies = Latencies::default();
        let empty = latencies.histogram();
        assert_eq!(
            (empty.count(), empty.quantile(0.5), empty.longest()),
            (0, None, None)
        );
        let mut times: Vec<u64> = (1..=4000u64).map(|i| i * i % 7919 * 1000 + 100).collect();
        std::thread::scope(|scope| {
            for part in times.chunks(500) {
                let latencies = &latencies;
                scope.spawn(move || {
                    for &time in part {
                        latencies.record(Duration::from_nanos(time));
                    }
                });
            }
        });
        times.sort_unstable();
        let found = latencies.histogram();
        assert_eq!(found.count(), 4000);
        let longest = Duration::from_nanos(times[3999]);
        assert_eq!(found.longest(), Some(longest));
        for (quantile, rank) in [
            (0.0, 0),
            (0.25, 999),
            (0.5, 1999),
            (0.99, 3959),
            (1.0, 3999),
        ] {
            let exact = times[rank];
            let told = found.quantile(quantile).unwrap().as_nanos() as u64;
            assert!(
                (exact..=exact + exact / 4 + 1).contains(&told),
                "{quantile}: {told} for {exact}"
            );
        }
        assert_eq!(found.quantile(1.0), Some(longest));
    }
}
