//! The status record: a few words for a failing kernel's reason.

use std::sync::Arc;

use super::{Ending, Ground, Part, Parts, Places, Rank, Resource, Stop, Submission};
use crate::device::DeviceShared;
use crate::device::queue::{Decoder, Recorder, Watch};
use crate::kernel::plan::Source;
use crate::launch::{Launch, LaunchError};

/// The record of a submission.
pub(in crate::launch) struct Status<'s> {
    device: &'s DeviceShared,
    decode: Option<Decoder>,
    /// Gone once the launch is recorded.
    record: Option<u32>,
}

impl Drop for Status<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.device.queue.lock(self.device).give_back_record(record);
        }
    }
}

impl<'s> Part<'s> for Status<'s> {
    const RANK: Rank = Rank::Queue;

    /// All records may be in flight.
    fn ready(launch: &Launch) -> Result<(), LaunchError> {
        if launch.kernel.shared.compiled.report.is_some() {
            launch.kernel.device.limit_records().map_err(Arc::new)?;
        }
        Ok(())
    }

    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        let kernel = earlier.kernel(launch);
        let Some(report) = &kernel.compiled.report else {
            return Ok(None);
        };
        let asked = earlier.heap.as_ref().filter(|_| kernel.asks_allocations());
        let decode = match asked {
            Some(heap) => heap.shared.shared.explained(&ground.device, &report.0),
            None => Arc::clone(&report.0),
        };
        Ok(Some(Self {
            device: &ground.device,
            decode: Some(decode),
            record: None,
        }))
    }

    fn follows(&self) -> bool {
        true
    }

    fn place(
        &mut self,
        _to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        places: &mut Places,
    ) -> Result<(), Stop> {
        // Others may have taken the last one.
        let (record, offset) = queue.take_record().ok_or(Stop::Overtaken)?;
        self.record = Some(record);
        places.set(Source::Status, offset);
        Ok(())
    }

    fn bind<'a>(&'a self, _to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        (source == Source::Status).then_some(Resource::Status)
    }

    fn recorded(&mut self, _to: &Submission<'_>, ending: &mut Ending) {
        let record = self.record.take().zip(self.decode.take());
        ending.watch = record.map(|(record, decode)| Watch { record, decode });
    }
}
