//! GPU time of launches: each profiled launch runs in a separate compute pass, between two timestamps at the pass's
//! boundaries (the only place for timestamps on every adapter with timestamps).
//!
//! lavapipe hands a timestamp to the drawing threads, which take the time when something has them catch up: perhaps a
//! barrier behind the first dispatch, whose time is missing then. The next timestamp makes lavapipe wait for the
//! threads. So there the launch lies between two passes of nothing, each between two timestamps, the first of which
//! counts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::completion_hook::CompletionHook;
use super::staging::Downloads;
use super::status::{Mirror, PendingMirror, Reading};
use super::submissions::Submissions;
use crate::error_text::debug_by_text;

/// Timestamps in one query set; two for each launch, or four.
const QUERIES: u32 = 512;

/// Why a launch has no GPU time.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfilingError {
    /// The device has no timestamp queries.
    #[error(
        "{device} has no timestamp queries: see Aspect::TimestampQueries; measure on the host instead"
    )]
    Unsupported {
        /// The device's name.
        device: String,
    },
    /// The launch was not submitted with `.profiled()`.
    #[error("the launch was not profiled: add `.profiled()` to it")]
    NotProfiled,
    /// The launch has not ended, and must not be waited for here.
    #[error("the launch has not ended: {reason}")]
    Unfinished {
        /// Why it is not waited for.
        reason: String,
    },
    /// The launch had nothing to do, and so neither began nor ended.
    #[error("the launch had nothing to do: its grid has no invocations")]
    NothingRun,
    /// The timestamps did not come back.
    #[error("the timestamps of the launch could not be read back")]
    Unreadable,
}

debug_by_text!(ProfilingError {
    Unsupported,
    NotProfiled,
    Unfinished,
    NothingRun,
    Unreadable,
});

/// The timestamps of a set of queries, on their way to the host: the place where the batch will put them when closed.
type Ticks = OnceLock<Mirror>;

/// A set of queries, filled by at most one batch at a time.
#[derive(Debug)]
struct Set {
    queries: wgpu::QuerySet,
    used: u32,
    ticks: Arc<Ticks>,
}

/// A launch's pair of timestamps.
#[derive(Debug, Clone)]
pub(crate) struct TimingSlot {
    queries: wgpu::QuerySet,
    first: u32,
    /// The launch lies between two passes of nothing.
    between: bool,
    ticks: Arc<Ticks>,
    period: f32,
}

/// The event finds the timestamps here.
impl CompletionHook for TimingSlot {}

impl TimingSlot {
    /// The timestamps of the launch's own pass, if any.
    pub(crate) fn of_launch(&self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        (!self.between).then(|| self.writes(self.first, self.first + 1))
    }

    /// Records the beginning of the launch in a separate pass, where needed.
    pub(crate) fn begin(&self, encoder: &mut wgpu::CommandEncoder) {
        self.mark(self.first, encoder);
    }

    /// The same for its end.
    pub(crate) fn end(&self, encoder: &mut wgpu::CommandEncoder) {
        self.mark(self.first + 1, encoder);
    }

    fn mark(&self, query: u32, encoder: &mut wgpu::CommandEncoder) {
        if self.between {
            drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: Some("tombolo timestamp"),
                timestamp_writes: Some(self.writes(query, query + 2)),
            }));
        }
    }

    fn writes(&self, begin: u32, end: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(begin),
            end_of_pass_write_index: Some(end),
        }
    }

    /// The two timestamps, whose batch has ended, as times of the device's clock; `None` for missing timestamps.
    pub(crate) fn times(&self, submissions: &Submissions) -> Option<(Duration, Duration)> {
        let mirror = self.ticks.get()?;
        self.times_in(&mirror.wait(submissions)?)
    }

    /// As [`Self::times`], without a wait: `Some(None)` for timestamps that are on their way.
    pub(crate) fn times_now(&self) -> Option<Option<(Duration, Duration)>> {
        match self.ticks.get()?.words() {
            Reading::There(words) => self.times_in(&words).map(Some),
            Reading::Pending => Some(None),
            Reading::Gone => None,
        }
    }

    fn times_in(&self, words: &[u32]) -> Option<(Duration, Duration)> {
        let tick = |at: usize| {
            let [low, high] = [*words.get(2 * at)?, *words.get(2 * at + 1)?];
            Some(u64::from(low) | u64::from(high) << 32)
        };
        let first = self.first as usize;
        Some(times(tick(first)?, tick(first + 1)?, self.period))
    }
}

/// The times at these ticks of so many nanoseconds. The difference is exact however long the clock has been running.
fn times(first: u64, last: u64, period: f32) -> (Duration, Duration) {
    let time = |ticks: u64| Duration::from_nanos((ticks as f64 * f64::from(period)) as u64);
    let started = time(first);
    (started, started + time(last.saturating_sub(first)))
}

/// Hands out timestamps for the open batch.
#[derive(Debug)]
pub(crate) struct Profiler {
    period: f32,
    open: Vec<Set>,
}

impl Profiler {
    pub(crate) fn new(_device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        Self {
            period: queue.get_timestamp_period(),
            open: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, device: &wgpu::Device, between: bool) -> TimingSlot {
        let wanted = if between { 4 } else { 2 };
        if (self.open.last()).is_none_or(|set| set.used + wanted > QUERIES) {
            self.open.push(Set {
                queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("tombolo timestamps"),
                    ty: wgpu::QueryType::Timestamp,
                    count: QUERIES,
                }),
                used: 0,
                ticks: Arc::default(),
            });
        }
        let last = self.open.len() - 1;
        let set = &mut self.open[last];
        let first = set.used;
        set.used += wanted;
        TimingSlot {
            queries: set.queries.clone(),
            first,
            between,
            ticks: Arc::clone(&set.ticks),
            period: self.period,
        }
    }

    /// Records the copies of the batch's timestamps for the host, to be mapped after submission.
    pub(crate) fn resolve(
        &mut self,
        device: &wgpu::Device,
        downloads: &Downloads,
        encoder: &mut wgpu::CommandEncoder,
        mirrors: &mut Vec<PendingMirror>,
    ) {
        for set in self.open.drain(..) {
            let bytes = u64::from(set.used) * 8;
            let resolve = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("tombolo timestamps"),
                size: bytes,
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            });
            let memory = downloads.take(device, bytes, bytes);
            encoder.resolve_query_set(&set.queries, 0..set.used, &resolve, 0);
            encoder.copy_buffer_to_buffer(&resolve, 0, memory.buffer(), 0, bytes);
            let pending = PendingMirror::of(memory, bytes);
            // One batch fills a set, and is closed once.
            let _ = set.ticks.set(pending.mirror());
            mirrors.push(pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_takes_the_time_of_its_ticks_however_long_the_clock_has_run() {
        for begun in [0, 1 << 40, (1 << 60) + 1] {
            let (started, ended) = times(begun, begun + 1000, 1.5);
            assert_eq!(ended - started, Duration::from_nanos(1500));
        }
        let nanoseconds = |times: (Duration, Duration)| (times.0.as_nanos(), times.1.as_nanos());
        assert_eq!(nanoseconds(times(10, 20, 2.0)), (20, 40));
        // Clocks of some drivers go back by a tick.
        assert_eq!(nanoseconds(times(10, 9, 2.0)), (20, 20));
        // A clock without a period, and one at its end, are no panic.
        assert_eq!(nanoseconds(times(10, 20, 0.0)), (0, 0));
        let (started, ended) = times(0, u64::MAX, f32::MAX);
        assert!(started < ended);
    }
}
