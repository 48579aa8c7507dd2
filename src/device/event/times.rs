//! When a command was submitted, began and ended.

use std::time::Duration;

use super::Event;
use crate::clock::Instant;
use crate::device::profile::{ProfilingError, TimingSlot};
use crate::device::{ExecutionError, WaitError};

/// When a device began and ended a profiled launch ([`Event::gpu_times`]).
///
/// The times come from the device's clock: nanoseconds since a moment known only to the driver. Times of launches on
/// the same device can be compared, to see the time between two launches, or whether they overlap; times of two
/// devices, or of a device and the host, cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuTimes {
    /// The beginning of the launch's first dispatch.
    pub started: Duration,
    /// The end of the last dispatch; never before the beginning.
    pub ended: Duration,
}

impl Event {
    /// When the host had handed the batch of the command to the driver, by the host's clock; `None` for a command not
    /// submitted, refused by wgpu, or with nothing to do. Never blocks.
    pub fn submitted_at(&self) -> Option<Instant> {
        let batch = self.batch.as_ref()?;
        match batch.submission()? {
            Ok(()) => batch.sent(),
            Err(_) => None,
        }
    }

    /// Waits for the command and returns the device time of all its dispatches together.
    ///
    /// # Errors
    /// [`ProfilingError`] when the launch was not submitted with
    /// [`profiled`](crate::Launch::profiled), or its timestamps did not come back.
    pub fn gpu_time(&self) -> Result<Duration, ProfilingError> {
        // A launch with nothing to do took no time.
        match self.gpu_times() {
            Ok(times) => Ok(times.ended.saturating_sub(times.started)),
            Err(ProfilingError::NothingRun) => Ok(Duration::ZERO),
            Err(error) => Err(error),
        }
    }

    /// Waits for the command and returns when the device began the first dispatch of the command, and ended the last.
    ///
    /// # Errors
    /// As [`Event::gpu_time`], and [`ProfilingError::NothingRun`] for a launch with nothing to do.
    pub fn gpu_times(&self) -> Result<GpuTimes, ProfilingError> {
        let Some(timing) = self.hook::<TimingSlot>() else {
            return Err(match self.batch() {
                None => ProfilingError::NothingRun,
                Some(_) => ProfilingError::NotProfiled,
            });
        };
        if let Err(WaitError::Failed(error)) = self.wait()
            && matches!(*error, ExecutionError::InHandler { .. })
        {
            return Err(ProfilingError::Unfinished {
                reason: error.to_string(),
            });
        }
        let device = self.device.as_ref();
        let times = device.and_then(|device| timing.times(&device.submissions));
        let (started, ended) = times.ok_or(ProfilingError::Unreadable)?;
        Ok(GpuTimes { started, ended })
    }
}
