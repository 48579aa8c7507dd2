//! The queue.

use std::{fmt, sync::Arc, time::Duration};

use wgpu_hal as hal;

use super::{Absent, Api, CommandBuffer, DeviceResult, Fence, command::Submission, device::Shared};

/// How long a queue that is dropped waits for what still runs, before it is told to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// The queue of a device.
pub struct Queue {
    shared: Arc<Shared>,
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.timeline.close();
    }
}

impl hal::Queue for Queue {
    type A = Api;

    unsafe fn submit(
        &self,
        command_buffers: &[&CommandBuffer],
        surface_textures: &[&Absent],
        (fence, value): (&Fence, hal::FenceValue),
    ) -> DeviceResult<()> {
        if let Some(texture) = surface_textures.first() {
            match **texture {}
        }
        let submission = Submission {
            buffers: command_buffers
                .iter()
                .map(|&buffer| buffer.clone())
                .collect(),
            fence: fence.clone(),
            value,
        };
        self.shared
            .timeline
            .submit(submission)
            .map_err(|_| hal::DeviceError::Lost)
    }

    unsafe fn present(&self, surface: &Absent, _texture: Absent) -> Result<(), hal::SurfaceError> {
        match *surface {}
    }

    /// Waits until everything has run. wgpu-core asks for it when the queue is dropped, and only then: nobody can submit
    /// any more, and a kernel that does not end would keep the process for ever. So what still runs after a while is
    /// told to stop.
    unsafe fn wait_for_idle(&self) -> DeviceResult<()> {
        self.shared.timeline.finish(PATIENCE);
        match self.shared.timeline.loss() {
            None => Ok(()),
            Some(_) => Err(hal::DeviceError::Lost),
        }
    }

    unsafe fn get_timestamp_period(&self) -> f32 {
        1.0
    }
}
