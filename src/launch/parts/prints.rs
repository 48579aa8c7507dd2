//! Prints: the record buffer of a launch whose kernel prints or asserts.

use std::sync::Arc;

use super::{Ending, Ground, Identity, Part, Parts, Rank, Resource, Stop, Submission};
use crate::device::DeviceShared;
use crate::device::prints::{Job, Memory};
use crate::device::queue::Recorder;
use crate::kernel::plan::Source;
use crate::launch::{Launch, LaunchError};
use crate::print::PrintOptions;
use crate::print::record::HEADER_WORDS;

/// Where and how the launch prints; the device's options by default.
pub(in crate::launch) type Setting = Option<PrintOptions>;

/// The records of a submission.
pub(in crate::launch) struct Prints<'s> {
    device: &'s DeviceShared,
    /// Gone once the launch is recorded.
    job: Option<Arc<Job>>,
    memory: Option<Arc<Memory>>,
}

impl Drop for Prints<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.device.prints.give_back(&job);
        }
    }
}

impl Prints<'_> {
    /// The buffer and its copy for the host, unless the host reads the records in place.
    fn mirrored(&self) -> Option<(&wgpu::Buffer, &wgpu::Buffer)> {
        self.memory.as_ref()?.mirrored()
    }
}

impl<'s> Part<'s> for Prints<'s> {
    const RANK: Rank = Rank::HeapTurn;

    fn check(launch: &mut Launch) -> Result<(), LaunchError> {
        if launch.kernel.shared.compiled.prints.is_none() {
            return Ok(());
        }
        let device = &launch.kernel.device;
        let capacity = launch.print_options().capacity;
        let limit = (device.limits.max_storage_buffer_binding_size)
            .min(device.limits.max_buffer_size)
            .min(u64::from(u32::MAX))
            .saturating_sub(HEADER_WORDS as u64 * 4);
        match capacity > limit {
            true => Err(LaunchError::PrintCapacity {
                kernel: launch.kernel.shared.name.to_string(),
                capacity,
                limit,
            }),
            false => Ok(()),
        }
    }

    /// Sinks may run.
    fn ready(launch: &Launch) -> Result<(), LaunchError> {
        if launch.kernel.shared.compiled.prints.is_some() {
            launch.kernel.device.limit_prints().map_err(Arc::new)?;
        }
        Ok(())
    }

    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        let kernel = earlier.kernel(launch);
        let Some(sites) = &kernel.compiled.prints else {
            return Ok(None);
        };
        let device: &DeviceShared = &ground.device;
        let options = launch.print_options();
        let words = (options.capacity / 4).max(1) as usize;
        let job = device.prints.take(device, sites, options, words);
        let job = job.map_err(|message| LaunchError::Refused {
            kernel: kernel.name.to_string(),
            message,
        })?;
        Ok(Some(Self {
            device,
            memory: job.memory(),
            job: Some(job),
        }))
    }

    fn follows(&self) -> bool {
        true
    }

    fn identity(&self, identity: &mut Identity) {
        identity.extend(self.memory.as_ref().map(|memory| memory.id));
    }

    fn bind<'a>(&'a self, _to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        let memory = self.memory.as_ref().filter(|_| source == Source::Print)?;
        Some(Resource::whole(memory.id, memory.buffer()))
    }

    fn before(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) {
        if let Some((buffer, _)) = self.mirrored() {
            queue.encode(|encoder| encoder.clear_buffer(buffer, 0, None));
        }
    }

    fn after(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        if let Some((buffer, copy)) = self.mirrored() {
            let bytes = buffer.size();
            queue.encode(|encoder| encoder.copy_buffer_to_buffer(buffer, 0, copy, 0, bytes));
        }
        Ok(())
    }

    fn recorded(&mut self, _to: &Submission<'_>, ending: &mut Ending) {
        if let Some(job) = self.job.take() {
            ending.hooks.push(self.device.prints.recorded(job));
        }
    }
}

impl Launch {
    /// Says where and how this launch prints, instead of
    /// [`DeviceOptions::print`](crate::DeviceOptions::print).
    pub fn print_to(mut self, options: PrintOptions) -> Self {
        self.settings.prints = Some(options);
        self.checked = false;
        self
    }

    fn print_options(&self) -> &PrintOptions {
        let options = &self.kernel.device.options.print;
        self.settings.prints.as_ref().unwrap_or(options)
    }
}
