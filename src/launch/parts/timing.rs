//! Timing: a profiled launch runs between two timestamps.

use std::sync::Arc;

use super::{Ending, Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::profile::TimingSlot;
use crate::device::queue::Recorder;
use crate::device::{Aspect, ProfilingError};
use crate::launch::{Launch, LaunchError};

/// Whether the launch is measured.
pub(in crate::launch) type Setting = bool;

/// The timestamps of a submission, once recorded.
#[derive(Default)]
pub(in crate::launch) struct Timing(Option<TimingSlot>);

impl<'s> Part<'s> for Timing {
    const RANK: Rank = Rank::Queue;

    fn check(launch: &mut Launch) -> Result<(), LaunchError> {
        let capabilities = &launch.kernel.device.capabilities;
        if launch.settings.timing && !capabilities.has(Aspect::TimestampQueries) {
            return Err(ProfilingError::Unsupported {
                device: capabilities.name.clone(),
            }
            .into());
        }
        Ok(())
    }

    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        Ok(launch.settings.timing.then(Self::default))
    }

    fn before(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) {
        self.0 = Some(queue.begin_timed());
    }

    fn after(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        if let Some(slot) = &self.0 {
            queue.end_timed(slot);
        }
        Ok(())
    }

    fn recorded(&mut self, _to: &Submission<'_>, ending: &mut Ending) {
        if let Some(slot) = self.0.take() {
            ending.hooks.push(Arc::new(slot));
        }
    }
}

impl Launch {
    /// Measures the time that the device spends on the launch: [`Event::gpu_time`](crate::Event::gpu_time).
    pub fn profiled(mut self) -> Self {
        self.settings.timing = true;
        self.checked = false;
        self
    }
}
