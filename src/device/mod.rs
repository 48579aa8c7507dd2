//! Devices: abilities, the in-order queue, events, and the propagation of failures after
//! submission. wgpu is used as published; wgpu-hal only in `live`, to obtain memory visible to
//! host and kernels at the same time.

pub(crate) mod aspect;
pub(crate) mod call_status;
pub(crate) mod call_words;
pub(crate) mod cancel;
pub(crate) mod capabilities;
pub(crate) mod completion_hook;
#[cfg(embedded)]
pub(crate) mod embedded;
pub(crate) mod embedded_options;
pub(crate) mod end;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod executed;
pub(crate) mod exit;
pub(crate) mod external_dependency;
pub(crate) mod fence;
pub(crate) mod heap_options;
pub(crate) mod heap_shape;
#[cfg(test)]
pub(crate) mod hooks;
pub(crate) mod import;
pub(crate) mod live;
pub(crate) mod mapping;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod pace;
pub(crate) mod pauses;
pub(crate) mod pinned;
pub(crate) mod pipeline_cache;
pub(crate) mod prints;
pub(crate) mod probe;
pub(crate) mod profile;
pub(crate) mod queue;
pub(crate) mod release;
pub(crate) mod resident;
pub(crate) mod sanitizer;
pub(crate) mod second_queue;
pub(crate) mod server_pause;
pub(crate) mod spill_policy;
pub(crate) mod staging;
pub(crate) mod status;
pub(crate) mod submissions;
#[cfg(test)]
mod tests_loom;
pub(crate) mod tier;
pub(crate) mod wait;
pub(crate) mod wait_policy;
pub(crate) mod window;
pub(crate) mod words;
pub(crate) mod working_set;

use std::sync::atomic::{AtomicU64, Ordering};
// Of which `pauses` is made; loom has another of the same names.
use std::sync::{self, Arc, OnceLock};
use std::time::Duration;

#[cfg(not(web))]
use futures::FutureExt;

pub use aspect::Aspect;
pub use call_status::CallStatus;
pub use cancel::{CancelError, Cancellation};
pub use capabilities::Capabilities;
pub use embedded_options::{EmbeddedOptions, SanitizerChecks};
pub use error::DeviceError;
pub use event::{Event, EventFuture, EventStatus, GpuTimes, WaitError};
pub use executed::{ExecutedLine, KernelLines};
pub use heap_options::{HeapPlacement, HeapSizeError, HostAccessPolicy};
pub use import::{ImportError, ImportFinding};
pub use live::LiveError;

pub use options::{DeviceOptions, LoopGuardPolicy};
pub use outcome::ExecutionError;
pub use pipeline_cache::PipelineCacheError;
pub use probe::{Finding, LiveFinding, NotProbed, ProbeOptions, ProbeReport};
pub use profile::ProfilingError;
pub use sanitizer::{DefectKind, KernelDefect, TextPosition};
pub use server_pause::{PauseError, ServerPause};
pub use tier::{Capability, Tier, TierReport};
pub use wait_policy::WaitPolicy;
pub use window::WindowError;

use crate::extensions::{ContextExtensions, DeviceExtensions};
use live::LiveBuffer;
use status::StatusPool;
use submissions::Submissions;
use wait::{LostFlag, Waiter};

/// A compute device: a wgpu device with its queue, its abilities, and its caches.
///
/// Cloning is cheap and gives another handle to the same device. Commands go to an in-order queue: commands are
/// recorded into an open *batch*, and submitted together on a wait, on [`Device::flush`], after
/// [`DeviceOptions::min_batch`] commands if the device has nothing else to do, or else after
/// [`DeviceOptions::max_batch`]. A device may be used from any number of threads.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<DeviceShared>,
}

/// State shared by all handles of a device.
pub(crate) struct DeviceShared {
    /// Identity, for keys of per-device state.
    pub(crate) id: u64,
    pub(crate) raw: wgpu::Device,
    /// The adapter, unless the program has opened the device.
    pub(crate) adapter: Option<wgpu::Adapter>,
    pub(crate) queue_raw: wgpu::Queue,
    pub(crate) capabilities: Capabilities,
    pub(crate) limits: wgpu::Limits,
    pub(crate) shader_capabilities: naga::valid::Capabilities,
    pub(crate) options: DeviceOptions,
    pub(crate) queue: queue::Queue,
    /// Kernels that make room for submissions.
    pub(crate) residents: resident::Residents,
    pub(crate) prints: prints::Prints,
    pub(crate) queue_end: Arc<end::QueueEnd>,
    pub(crate) lost: Arc<LostFlag>,
    /// What the sanitizer has found, on a device that has one.
    #[cfg(embedded)]
    pub(crate) findings: Option<sanitizer::Findings>,
    /// The submissions, and their ends.
    pub(crate) submissions: Arc<Submissions>,
    pub(crate) waiter: Waiter,
    /// Staging memory of copies to the host.
    pub(crate) downloads: staging::Downloads,
    #[cfg_attr(web, allow(dead_code))] // Tasks of the page call.
    pub(crate) callbacks: event::CallbackQueue,
    pub(crate) pipeline_cache: Option<pipeline_cache::DiskCache>,
    /// What rooms above keep for all devices of the context.
    pub(crate) context: Arc<ContextExtensions>,
    /// What rooms above keep for the device.
    pub(crate) extensions: DeviceExtensions,
    /// Whom to tell, in the launch room, that a buffer is gone.
    pub(crate) buffer_gone: OnceLock<fn(&DeviceShared, u64)>,
    /// Another queue of the same device of the driver.
    pub(crate) second_queue: second_queue::SecondQueue,
    /// Counts the drop of all fields: the last one.
    pub(crate) end: exit::DeviceEnd,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A number unique in this process: keys of caches must not be reused addresses.
pub(crate) fn unique_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Runs `work` and returns with the result the first wgpu error raised by `work`, of any kind.
///
/// wgpu reports errors to the innermost scope of the calling thread; without a scope errors would reach the device's
/// handler, which by default ends the process. In a browser errors are told of later (`submissions/late.rs`): there is none.
pub(crate) fn capture<T>(
    device: &wgpu::Device,
    work: impl FnOnce() -> T,
) -> (T, Option<wgpu::Error>) {
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let result = work();
    #[cfg(web)]
    let errors: [Option<wgpu::Error>; 0] = {
        submissions::late::note(device, internal.pop());
        submissions::late::note(device, memory.pop());
        submissions::late::note(device, validation.pop());
        []
    };
    // On wgpu-core the futures are ready at once.
    #[cfg(not(web))]
    let errors = [
        internal.pop().now_or_never().flatten(),
        memory.pop().now_or_never().flatten(),
        validation.pop().now_or_never().flatten(),
    ];
    (result, errors.into_iter().flatten().next())
}

impl DeviceShared {
    pub(crate) fn new_status_pool(&self) -> StatusPool {
        let stride = u64::from(self.limits.min_storage_buffer_offset_alignment)
            .max(status::RECORD_BYTES)
            .next_power_of_two();
        let live = if self.capabilities.has(Aspect::LiveMemory) {
            let bytes = StatusPool::bytes(stride);
            match LiveBuffer::new(
                &self.raw,
                self.capabilities.backend,
                live::Reader::Host,
                bytes,
                "tombolo status",
            ) {
                Ok(live) => Some(live),
                Err(error) => {
                    log::warn!("status records without live memory: {error}");
                    None
                }
            }
        } else {
            None
        };
        StatusPool::new(&self.raw, live, stride)
    }
}

impl DeviceShared {
    /// What textures of a format can do; `None` for an adopted device that may do more than wgpu guarantees.
    pub(crate) fn format_features(
        &self,
        format: wgpu::TextureFormat,
    ) -> Option<wgpu::TextureFormatFeatures> {
        let features = self.raw.features();
        let guaranteed = || format.guaranteed_format_features(features);
        let own = features.contains(wgpu::Features::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES);
        match &self.adapter {
            None => (!own).then(guaranteed),
            Some(adapter) => {
                let flags = adapter.get_downlevel_capabilities().flags;
                let usual = flags.contains(wgpu::DownlevelFlags::WEBGPU_TEXTURE_FORMAT_SUPPORT);
                Some(match own || !usual {
                    true => adapter.get_texture_format_features(format),
                    false => guaranteed(),
                })
            }
        }
    }

    /// Submits recorded commands and waits until the device is idle.
    pub(crate) fn finish(self: &Arc<Self>) -> Result<(), Arc<ExecutionError>> {
        self.submissions
            .may_wait("Device::finish", "`.await` the event of the last command")?;
        self.complete_dependencies(None);
        let batch = {
            let mut queue = self.queue.lock(self);
            // An empty encoder still gives an index for waiting on earlier submissions.
            queue.encode(|_| {});
            let batch = queue.batch();
            queue.flush()?;
            batch
        };
        let event = Event::of_batch(self, batch);
        let ended = match event.wait() {
            Ok(()) => Ok(()),
            Err(WaitError::Failed(error)) => Err(error),
            Err(WaitError::Deadline) => Ok(()),
        };
        if self.prints.in_flight() > 0 {
            self.settle();
        }
        ended
    }
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        #[cfg(test)]
        hooks::reach(hooks::Point::DeviceDropped(self.id));
        self.end.begins();
        // Commands recorded and never waited for still have their effect on exported buffers, and on the shared heap.
        let _ended = self.queue_end.approach();
        let _ = self.flush();
        self.end_prints();
        // Dropping the last handle of the queue waits, by wgpu's design: a thread that only asks must not be the last
        // holder.
        self.submissions.release_queue();
        #[cfg(embedded)]
        if let Some(findings) = &self.findings {
            findings.executed.write_report();
        }
        if let Some(cache) = &self.pipeline_cache
            && let Err(error) = cache.save()
        {
            log::warn!("{error}");
        }
    }
}

impl Device {
    /// The device's reports and the measurements of the start-up probe.
    pub fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    /// Whether the device has `aspect`; [`Capabilities::explain`] says why not.
    pub fn has(&self, aspect: Aspect) -> bool {
        self.shared.capabilities.has(aspect)
    }

    /// The adapter's name, given by its driver.
    pub fn name(&self) -> &str {
        &self.shared.capabilities.name
    }

    /// The wgpu device, for everything that tombolo does not do. Call [`Device::flush`] before
    /// submitting own work that depends on commands recorded here.
    ///
    /// Callbacks given to wgpu run inside the next call that polls or submits, calls of the runtime included, on the
    /// calling thread. Callbacks may record, launch and flush; resources held by the surrounding call are refused with
    /// [`ExecutionError::InCallback`]. A callback should not wait for other threads using the device. A panic in a
    /// callback is logged, and goes no further than the call running the callback. Poll with `PollType::Poll`: wgpu's
    /// own `PollType::Wait` panics in a race with other polls and submissions, which the runtime makes.
    pub fn raw(&self) -> &wgpu::Device {
        &self.shared.raw
    }

    /// The wgpu queue. Commands recorded here but not yet flushed come after commands submitted directly to the wgpu
    /// queue. A [`PersistentKernel`](crate::PersistentKernel) makes room once, when this is called; for several submissions,
    /// or through a clone of the queue, [`Device::pause_servers`] keeps servers away.
    ///
    /// Submit with [`wgpu::Queue::submit`] alone: a submission on the hal queue (`wgpu::Queue::as_hal`) that wgpu does not
    /// count is not allowed while the device is in use, since waits would take its end for that of a launch.
    pub fn raw_queue(&self) -> &wgpu::Queue {
        self.shared.residents.submitting();
        &self.shared.queue_raw
    }

    /// Has the servers of the device ([`PersistentKernel`](crate::PersistentKernel)) leave, and stay away until the guard
    /// is dropped: for submissions to wgpu's own queue, through [`Device::raw_queue`], a clone of it, or the program's
    /// queue of an adopted device. Returns when no launch of a server is on the device, at most `timeout` later.
    ///
    /// Of several guards the last to be dropped lets servers go on. Calls made meanwhile wait, and fail at their own
    /// deadline as ever; on the thread that has the guard, a call without a deadline would wait for ever. A server stopped
    /// meanwhile tells its callers so, and serves nothing more. Other work of the device goes on. Servers are not served in
    /// turn with pauses: pause upon pause, without time for a server's thread to wake in between, keeps calls waiting.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// let device = tombolo::Context::new()?.device()?;
    /// let queue = device.raw_queue().clone();
    /// let pause = device.pause_servers(Duration::from_secs(1))?;
    /// for _ in 0..100 {
    ///     queue.submit([]); // no server in between
    /// }
    /// drop(pause);
    /// # Ok::<(), tombolo::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`PauseError::Timeout`], when a handler takes longer than `timeout`, or a lease is stuck;
    /// [`PauseError::Refused`] where a wait would be one for itself. Servers go on then.
    pub fn pause_servers(&self, timeout: Duration) -> Result<ServerPause, PauseError> {
        ServerPause::begin(&self.shared, timeout)
    }

    /// The options that the device was opened with.
    pub fn options(&self) -> &DeviceOptions {
        &self.shared.options
    }

    /// Submits everything recorded so far. Waiting for an event flushes automatically.
    ///
    /// # Errors
    /// [`ExecutionError::Refused`] when wgpu refused the commands, [`ExecutionError::DeviceLost`]; the
    /// events of the batch report the same. [`ExecutionError::InHandler`] in a function of the host that serves a call of
    /// the device, since drivers may have a submission wait for the kernel that runs: what is recorded goes with the next
    /// submission of another thread, or when the kernel has ended.
    pub fn flush(&self) -> Result<(), Arc<ExecutionError>> {
        self.shared.submissions.may_submit("Device::flush")?;
        self.shared.flush()
    }

    /// Submits everything recorded so far and waits for the device to finish.
    ///
    /// # Errors
    /// As [`Device::flush`], and [`ExecutionError::InHandler`] in a function of the host that serves a call of the device;
    /// [`ExecutionError::WouldBlock`] where threads never wait.
    /// Failures of single launches are reported by their events, not here.
    pub fn finish(&self) -> Result<(), Arc<ExecutionError>> {
        self.shared.finish()
    }

    /// The lines of kernels that launches have executed, how often and for how long: of launches that have ended, on a device
    /// with [`EmbeddedOptions::coverage`]. Empty without.
    pub fn executed_lines(&self) -> Vec<KernelLines> {
        #[cfg(embedded)]
        if let Some(findings) = &self.shared.findings {
            return findings.executed.lines();
        }
        Vec::new()
    }

    /// Writes the pipelines compiled so far to the disk cache of [`DeviceOptions::pipeline_cache`].
    /// Also happens when the last handle of the device is dropped.
    ///
    /// # Errors
    /// [`PipelineCacheError`] when the device has no such cache or the file cannot be written.
    pub fn save_pipeline_cache(&self) -> Result<std::path::PathBuf, PipelineCacheError> {
        match &self.shared.pipeline_cache {
            Some(cache) => cache.save(),
            None => Err(PipelineCacheError::NotEnabled {
                device: self.name().to_string(),
            }),
        }
    }
}

impl DeviceShared {
    /// Has the threads on which kernels of the device run do `help` while kernels there wait, where they are the
    /// process's; whether they do so from now on.
    pub(crate) fn helps_kernels(&self, help: impl Fn() -> bool + Send + Sync + 'static) -> bool {
        #[cfg(embedded)]
        return embedded::help_while_waiting(&self.raw, help);
        #[cfg(not(embedded))]
        return {
            drop(help);
            false
        };
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("backend", &self.shared.capabilities.backend)
            .finish_non_exhaustive()
    }
}
