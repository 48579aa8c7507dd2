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
pub(in crate::launch) struct Timing {
    slot: Option<TimingSlot>,
    /// The times are a trace's as well, whether the program asks for them or not.
    is_traced: bool,
}

/// Whether a trace is recorded that has the times of this device.
fn is_traced(launch: &Launch) -> bool {
    #[cfg(feature = "trace")]
    return launch
        .kernel
        .device
        .capabilities
        .has(Aspect::TimestampQueries)
        && crate::trace::device_times::current().is_some();
    #[cfg(not(feature = "trace"))]
    {
        let _ = launch;
        false
    }
}

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
        Ok((launch.settings.timing || is_traced(launch)).then(|| Self {
            is_traced: is_traced(launch),
            ..Self::default()
        }))
    }

    fn follows(&self) -> bool {
        self.is_traced
    }

    fn before(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) {
        self.slot = Some(queue.begin_timed());
    }

    fn after(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        if let Some(slot) = &self.slot {
            queue.end_timed(slot);
        }
        Ok(())
    }

    fn recorded(&mut self, to: &Submission<'_>, ending: &mut Ending) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        #[cfg(feature = "trace")]
        if let (true, Some(trace)) = (self.is_traced, crate::trace::device_times::current()) {
            ending
                .hooks
                .push(Arc::new(crate::trace::device_times::TracedLaunch {
                    recording: Arc::downgrade(&trace),
                    slot: slot.clone(),
                    device: to.device.capabilities.name.clone(),
                    kernel: to.kernel.name.to_string(),
                }));
        }
        if to.launch.settings.timing {
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
