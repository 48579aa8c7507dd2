//! GPU time of launches: each profiled launch runs in a compute pass of its own, between two
//! timestamps at the pass's boundaries (the only place where every adapter with timestamps has them).
//!
//! lavapipe hands a timestamp to the threads that draw, which take it when something has them catch up: perhaps a
//! barrier behind the first dispatch, whose time is missing then. The next timestamp makes it wait for them. So there the
//! launch lies between two passes of nothing, each between two timestamps, the first of which counts.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::wait::{LostFlag, lock};

/// Timestamps in one query set; two for each launch, or four.
const QUERIES: u32 = 512;
/// How long timestamps may be on their way when their batch has completed.
const CALLBACK_TIME: Duration = Duration::from_secs(10);

/// Why a launch has no GPU time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// The timestamps did not come back.
    #[error("the timestamps of the launch could not be read back")]
    Unreadable,
}

/// The timestamps of one set of queries, on their way to the host.
#[derive(Debug, Default)]
struct Ticks {
    way: Mutex<Way>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
enum Way {
    /// Their batch is not submitted.
    #[default]
    Open,
    /// Mapped as soon as the batch has completed. The callback of that holds the other end.
    Mapping(wgpu::Buffer, Weak<()>),
    There(Vec<u64>),
    /// They could not be mapped.
    Gone,
}

impl Ticks {
    fn arrive(&self, way: Way) {
        *lock(&self.way) = way;
        self.arrived.notify_all();
    }

    /// The timestamps, whose batch has completed. Another thread's poll may have collected the callback and not yet run
    /// it; and wgpu drops the callbacks of a poll that another one has overtaken.
    fn wait(&self, lost: &LostFlag, at: [usize; 2]) -> Option<[u64; 2]> {
        let deadline = Instant::now() + CALLBACK_TIME;
        let mut way = lock(&self.way);
        loop {
            match &*way {
                Way::There(ticks) => return Some([*ticks.get(at[0])?, *ticks.get(at[1])?]),
                Way::Mapping(staging, callback) => {
                    if callback.strong_count() == 0 {
                        // With the way in hand: the callback is gone and has brought nothing.
                        let found = collect(staging);
                        *way = found;
                        continue;
                    }
                }
                Way::Open | Way::Gone => return None,
            }
            if lost.is_raised() || Instant::now() >= deadline {
                return None;
            }
            let waited = (self.arrived).wait_timeout(way, Duration::from_millis(1));
            way = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What stands in memory that should be mapped.
fn collect(staging: &wgpu::Buffer) -> Way {
    let way = match staging.get_mapped_range(..) {
        Ok(view) => Way::There(bytemuck::pod_collect_to_vec(&view[..])),
        Err(_) => Way::Gone,
    };
    staging.unmap();
    way
}

/// One set of queries, filled by at most one batch at a time.
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

impl TimingSlot {
    /// The timestamps of the launch's own pass, if it has any.
    pub(crate) fn of_launch(&self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        (!self.between).then(|| self.writes(self.first, self.first + 1))
    }

    /// Records the beginning of the launch in a pass of its own, where it needs one.
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
                label: None,
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

    /// The GPU time between the two timestamps, whose batch has completed; `None` where they do not come.
    pub(crate) fn duration(&self, lost: &LostFlag) -> Option<Duration> {
        let first = self.first as usize;
        let [begin, end] = self.ticks.wait(lost, [first, first + 1])?;
        let nanoseconds = end.saturating_sub(begin) as f64 * f64::from(self.period);
        Some(Duration::from_nanos(nanoseconds as u64))
    }
}

/// Hands out timestamps for the open batch.
#[derive(Debug)]
pub(crate) struct Profiler {
    period: f32,
    open: Vec<Set>,
    resolved: Vec<(wgpu::Buffer, Arc<Ticks>)>,
}

impl Profiler {
    pub(crate) fn new(_device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        Self {
            period: queue.get_timestamp_period(),
            open: Vec::new(),
            resolved: Vec::new(),
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

    /// Records the copies that bring the batch's timestamps home.
    pub(crate) fn resolve(&mut self, device: &wgpu::Device, encoder: &mut wgpu::CommandEncoder) {
        for set in self.open.drain(..) {
            let bytes = u64::from(set.used) * 8;
            let buffer = |label, usage| {
                device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some(label),
                    size: bytes,
                    usage,
                    mapped_at_creation: false,
                })
            };
            let resolve = buffer(
                "tombolo timestamps",
                wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            );
            let staging = buffer(
                "tombolo timestamps read-back",
                wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            );
            encoder.resolve_query_set(&set.queries, 0..set.used, &resolve, 0);
            encoder.copy_buffer_to_buffer(&resolve, 0, &staging, 0, bytes);
            self.resolved.push((staging, set.ticks));
        }
    }

    /// Maps the copies of the batch that was just submitted.
    pub(crate) fn submitted(&mut self) {
        for (staging, ticks) in self.resolved.drain(..) {
            let (mapped, callback) = (staging.clone(), Arc::new(()));
            ticks.arrive(Way::Mapping(staging.clone(), Arc::downgrade(&callback)));
            staging.map_async(wgpu::MapMode::Read, .., move |result| {
                ticks.arrive(match result {
                    Ok(()) => collect(&mapped),
                    Err(_) => Way::Gone,
                });
                drop(callback);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::device::hooks;

    #[test]
    fn timestamps_whose_callback_is_gone_are_collected() {
        let _alone = hooks::alone();
        let context = Context::new().unwrap();
        for adapter in context.adapters() {
            let device = context.device_at(adapter.index).unwrap();
            let staging = |mapped| {
                device.raw().create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: 32,
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: mapped,
                })
            };
            let lost = LostFlag::default();
            let mapped = staging(true);
            let words: [u64; 4] = [7, 8, 1 << 40, 3];
            let mut view = mapped.get_mapped_range_mut(..).unwrap();
            view.copy_from_slice(bytemuck::cast_slice(&words));
            drop(view);
            let ticks = Ticks::default();
            assert_eq!(ticks.wait(&lost, [0, 1]), None);
            ticks.arrive(Way::Mapping(mapped, Weak::new()));
            assert_eq!(ticks.wait(&lost, [2, 3]), Some([1 << 40, 3]));
            // And they stay; there are none behind the last.
            assert_eq!(ticks.wait(&lost, [0, 1]), Some([7, 8]));
            assert_eq!(ticks.wait(&lost, [3, 4]), None);
            // Memory that nobody mapped holds none.
            ticks.arrive(Way::Mapping(staging(false), Weak::new()));
            assert_eq!(ticks.wait(&lost, [0, 1]), None);
            // Nobody waits for those of a device that is gone.
            let callback = Arc::new(());
            ticks.arrive(Way::Mapping(staging(false), Arc::downgrade(&callback)));
            lost.raise("gone");
            assert_eq!(ticks.wait(&lost, [0, 1]), None);
        }
    }
}
