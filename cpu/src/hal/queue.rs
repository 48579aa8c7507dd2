//! The queue.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use wgpu_hal as hal;

use super::{Absent, Api, CommandBuffer, DeviceResult, Fence, command::Submission, device::Shared};

/// How long a dropped queue waits for running work before telling the work to stop.
const FINISH_LIMIT: Duration = Duration::from_secs(5);

/// The queue of a device.
pub struct Queue {
    shared: Arc<Shared>,
    /// Signals of the next submission beside wgpu's own fence
    staged: Mutex<Vec<(Fence, hal::FenceValue)>>,
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            staged: Mutex::default(),
        }
    }

    /// Has the next submission raise a fence to `value` at its end, after wgpu's own fence. A submission given up does so as
    /// well: [`Device::loss`](super::Device::loss) has the reason then.
    ///
    /// The next submission is the first to come, of any thread. A lost device takes none.
    pub fn signal_with_next(&self, fence: &Fence, value: hal::FenceValue) {
        self.staged().push((fence.clone(), value));
    }

    /// Takes back the [`Self::signal_with_next`] of a fence. Returns whether no submission has taken the signal.
    pub fn take_back(&self, fence: &Fence) -> bool {
        let mut staged = self.staged();
        let before = staged.len();
        staged.retain(|(other, _)| !other.is(fence));
        staged.len() < before
    }

    fn staged(&self) -> MutexGuard<'_, Vec<(Fence, hal::FenceValue)>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.shared.timeline.loss().is_some() {
            return Err(hal::DeviceError::Lost);
        }
        let staged = std::mem::take(&mut *self.staged());
        let submission = Submission {
            buffers: command_buffers
                .iter()
                .map(|&buffer| buffer.clone())
                .collect(),
            // A caller seeing another fence raised asks wgpu, and wgpu asks its own fence.
            fences: std::iter::once((fence.clone(), value))
                .chain(staged)
                .collect(),
        };
        let submitted = self.shared.timeline.submit(submission);
        for encoding in command_buffers.iter().filter_map(|b| b.encoding.as_ref()) {
            encoding.sent();
        }
        submitted.map_err(|_| hal::DeviceError::Lost)
    }

    unsafe fn present(&self, surface: &Absent, _texture: Absent) -> Result<(), hal::SurfaceError> {
        match *surface {}
    }

    /// Waits until everything has run. wgpu-core asks for the wait when the queue is dropped, and only then: nobody can submit
    /// any more, and an endless kernel would keep the process for ever. So kernels still running after a while are told to stop.
    unsafe fn wait_for_idle(&self) -> DeviceResult<()> {
        self.shared.timeline.finish(FINISH_LIMIT);
        match self.shared.timeline.loss() {
            None => Ok(()),
            Some(_) => Err(hal::DeviceError::Lost),
        }
    }

    unsafe fn get_timestamp_period(&self) -> f32 {
        1.0
    }
}
