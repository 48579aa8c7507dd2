//! GPU time of launches: each profiled launch runs in a compute pass of its own, between two
//! timestamps at the pass's boundaries (the only place where every adapter with timestamps has them).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::wait::lock;

/// Timestamps in one query set; two for each launch.
const QUERIES: u32 = 512;

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

type Ticks = Arc<Mutex<Option<Vec<u64>>>>;

/// One set of queries, filled by at most one batch at a time.
#[derive(Debug)]
struct Set {
    queries: wgpu::QuerySet,
    used: u32,
    ticks: Ticks,
}

/// A launch's pair of timestamps.
#[derive(Debug, Clone)]
pub(crate) struct TimingSlot {
    queries: wgpu::QuerySet,
    first: u32,
    ticks: Ticks,
    period: f32,
}

impl TimingSlot {
    pub(crate) fn writes(&self) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(self.first),
            end_of_pass_write_index: Some(self.first + 1),
        }
    }

    /// The GPU time between the two timestamps; `None` until the batch has completed and the device
    /// has been polled.
    pub(crate) fn duration(&self) -> Option<Duration> {
        let guard = lock(&self.ticks);
        let ticks = guard.as_ref()?;
        let begin = ticks.get(self.first as usize)?;
        let end = ticks.get(self.first as usize + 1)?;
        let nanoseconds = end.saturating_sub(*begin) as f64 * f64::from(self.period);
        Some(Duration::from_nanos(nanoseconds as u64))
    }
}

/// Hands out timestamps for the open batch.
#[derive(Debug)]
pub(crate) struct Profiler {
    period: f32,
    open: Vec<Set>,
    resolved: Vec<(wgpu::Buffer, Ticks)>,
}

impl Profiler {
    pub(crate) fn new(_device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        Self {
            period: queue.get_timestamp_period(),
            open: Vec::new(),
            resolved: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, device: &wgpu::Device) -> TimingSlot {
        if self.open.last().is_none_or(|set| set.used + 2 > QUERIES) {
            self.open.push(Set {
                queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("tombolo timestamps"),
                    ty: wgpu::QueryType::Timestamp,
                    count: QUERIES,
                }),
                used: 0,
                ticks: Ticks::default(),
            });
        }
        let last = self.open.len() - 1;
        let set = &mut self.open[last];
        let first = set.used;
        set.used += 2;
        TimingSlot {
            queries: set.queries.clone(),
            first,
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
            let mapped = staging.clone();
            staging.map_async(wgpu::MapMode::Read, .., move |result| {
                if result.is_ok()
                    && let Ok(view) = mapped.get_mapped_range(..)
                {
                    *lock(&ticks) = Some(bytemuck::pod_collect_to_vec(&view[..]));
                }
                mapped.unmap();
            });
        }
    }
}
