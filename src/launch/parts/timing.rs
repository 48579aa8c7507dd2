//! Timing: a profiled launch runs between two timestamps. So does, now and then, a launch using the heap on a device
//! free to choose the heap's place.

use std::sync::Arc;

use super::{Ending, Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::profile::TimingSlot;
use crate::device::queue::Recorder;
use crate::device::{Aspect, ProfilingError};
use crate::launch::{Launch, LaunchError};
use crate::memory::heap::Measure;

/// Whether the launch is measured.
pub(in crate::launch) type Setting = bool;

/// The timestamps of a submission.
pub(in crate::launch) struct Timing {
    /// The timestamps, once recorded.
    slot: Option<TimingSlot>,
    /// The program asks for the time.
    is_profiled: bool,
    /// The heap does.
    measure: Option<Measure>,
    /// A trace does.
    is_traced: bool,
}

/// Whether a trace with the times of this device is recorded.
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
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        let is_profiled = launch.settings.timing;
        let measure = earlier.heap.as_ref().and_then(|heap| heap.turn.measure());
        let is_traced = is_traced(launch);
        Ok(
            (is_profiled || measure.is_some() || is_traced).then_some(Self {
                slot: None,
                is_profiled,
                measure,
                is_traced,
            }),
        )
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
        let Some(slot) = self.slot.take() else { return };
        if let Some(measure) = self.measure {
            measure.recorded(to.device, &slot, &ending.batch);
        }
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
        if self.is_profiled {
            ending.hooks.push(Arc::new(slot));
        }
    }
}

impl Launch {
    /// Measures the device's time for the launch: [`Event::gpu_time`](crate::Event::gpu_time).
    pub fn profiled(mut self) -> Self {
        self.settings.timing = true;
        self.checked = false;
        self
    }
}
