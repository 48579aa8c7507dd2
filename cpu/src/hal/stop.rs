//! Stopping single dispatches: a stop belongs to a debug marker, and the dispatches behind that marker to the stop.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::Device;
use crate::exec::{limit::Stoppable, stop::StopState};

/// The stops of a device, by their debug markers.
#[derive(Clone, Debug, Default)]
pub(super) struct Marked(Arc<Markers>);

#[derive(Debug, Default)]
struct Markers {
    stops: Mutex<HashMap<Arc<str>, Weak<Stoppable>>>,
    /// How many stops there are: without any, a marker costs no lock
    count: AtomicUsize,
}

impl Marked {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Stoppable>>> {
        self.0.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stops the dispatches behind a marker.
    pub(super) fn find(&self, marker: &str) -> Option<Arc<Stoppable>> {
        if self.0.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(marker)?.upgrade()
    }

    fn insert(&self, marker: &Arc<str>, stop: &Arc<Stoppable>) {
        let mut stops = self.lock();
        stops.insert(marker.clone(), Arc::downgrade(stop));
        self.0.count.store(stops.len(), Ordering::Release);
    }

    fn remove(&self, marker: &str, stop: &Arc<Stoppable>) {
        let mut stops = self.lock();
        // A later stop may have the marker.
        let is_own = |of: &Weak<Stoppable>| std::ptr::eq(of.as_ptr(), Arc::as_ptr(stop));
        if stops.get(marker).is_some_and(is_own) {
            stops.remove(marker);
            self.0.count.store(stops.len(), Ordering::Release);
        }
    }
}

/// Stops dispatches by themselves: [`Device::stop_behind`]. Once the dispatches are submitted, a stop may be dropped: a time limit
/// stays in force.
#[derive(Debug)]
pub struct Stop {
    stop: Arc<Stoppable>,
    marker: Arc<str>,
    marked: Marked,
}

impl Stop {
    /// Has the dispatches stop, or never begin. Returns `false` if they have ended already, or were stopped before:
    /// [`Self::state`] says which.
    ///
    /// Kernels look in loops without a known number of passes, and threads between work-groups: so a dispatch ends soon, but not
    /// at once, and a work-group without such a loop comes to its end. Memory keeps what was written until then. Everything else
    /// goes on as if the dispatches had ended by themselves: fences, copies, later dispatches, other submissions.
    pub fn stop(&self) -> bool {
        self.stop.word.ask()
    }

    /// What has become of the dispatches.
    pub fn state(&self) -> StopState {
        self.stop.word.state()
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.marked.remove(&self.marker, &self.stop);
    }
}

impl Device {
    /// A stop for the dispatches behind a debug marker (`insert_debug_marker` of wgpu's passes and encoders), up to the next
    /// marker of the same encoder. Each use needs a marker of its own, and the stop must live until the encoder's commands are
    /// submitted.
    ///
    /// With a `limit`, dispatches that run for longer are stopped as by [`Stop::stop`]. The time begins with the first work-group,
    /// and is the time of all dispatches behind the marker together.
    ///
    /// Dispatches have ended when the next marker, or the end of the submission, is reached.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let instance = unsafe { wgpu::Instance::from_hal::<tombolo_cpu::Api>(tombolo_cpu::Instance::default()) };
    /// # let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
    /// # let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
    /// # let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
    /// #     label: None,
    /// #     source: wgpu::ShaderSource::Wgsl(
    /// #         "@group(0) @binding(0) var<storage, read_write> n: u32;
    /// #         @compute @workgroup_size(1) fn main() { loop { n++; if n == 0u { break; } n |= 1u; } }".into()),
    /// # });
    /// # let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
    /// #     label: None, layout: None, module: &module, entry_point: None,
    /// #     compilation_options: Default::default(), cache: None,
    /// # });
    /// # let n = device.create_buffer(&wgpu::BufferDescriptor {
    /// #     label: None, size: 4, usage: wgpu::BufferUsages::STORAGE, mapped_at_creation: false,
    /// # });
    /// # let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
    /// #     label: None, layout: &pipeline.get_bind_group_layout(0),
    /// #     entries: &[wgpu::BindGroupEntry { binding: 0, resource: n.as_entire_binding() }],
    /// # });
    /// use tombolo_cpu::{Api, StopState};
    /// // SAFETY: the hal device is only asked.
    /// let hal = unsafe { device.as_hal::<Api>() }.ok_or("another adapter")?;
    /// let stop = hal.stop_behind("search", Some(Duration::from_millis(10)))?;
    /// let mut encoder = device.create_command_encoder(&Default::default());
    /// let mut pass = encoder.begin_compute_pass(&Default::default());
    /// pass.insert_debug_marker("search");
    /// # pass.set_pipeline(&pipeline);
    /// # pass.set_bind_group(0, &group, &[]);
    /// pass.dispatch_workgroups(1, 1, 1); // a kernel without an end
    /// drop(pass);
    /// queue.submit([encoder.finish()]);
    /// device.poll(wgpu::PollType::wait_indefinitely())?;
    /// assert_eq!(stop.state(), StopState::TimeLimit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the system has no thread to watch a limit.
    pub fn stop_behind(&self, marker: &str, limit: Option<Duration>) -> std::io::Result<Stop> {
        let shared = self.shared();
        if limit.is_some() {
            shared.timeline.stops().watch_limits()?;
        }
        let stop = Arc::new(Stoppable::new(limit));
        let marker: Arc<str> = marker.into();
        shared.marked.insert(&marker, &stop);
        Ok(Stop {
            stop,
            marker,
            marked: shared.marked.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_belongs_to_its_last_stop_as_long_as_that_lives() {
        let marked = Marked::default();
        let make = || {
            let stop = Arc::new(Stoppable::new(None));
            let marker: Arc<str> = "one".into();
            marked.insert(&marker, &stop);
            Stop {
                stop,
                marker,
                marked: marked.clone(),
            }
        };
        let (first, second) = (make(), make());
        let found = marked.find("one").unwrap();
        assert!(Arc::ptr_eq(&found, &second.stop));
        assert!(marked.find("other").is_none());
        drop(first);
        assert!(marked.find("one").is_some());
        drop(second);
        assert!(marked.find("one").is_none());
        assert_eq!(marked.0.count.load(Ordering::Relaxed), 0);
    }
}
