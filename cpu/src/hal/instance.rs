//! The instance: where an adapter comes from.

use std::sync::Arc;

use raw_window_handle::{RawDisplayHandle, RawWindowHandle};
use wgpu_hal as hal;

use super::{Absent, Adapter, Api};
use crate::{jit::target, sanitizer::Checks};

/// How an instance runs kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Threads for the work-groups of a dispatch. `None`: as many as the process has processors.
    pub threads: Option<usize>,
    /// The most invocations of a work-group to run side by side, in vectors of four: 8 by default, 1 for none. Kernels unfit for
    /// vectors, or with work-groups of no whole number of vectors, run with fewer. Results are the same at any number: tests
    /// choose the number.
    #[doc(hidden)]
    pub lanes: u32,
    /// Checks of running kernels: `None` for none. [`Device::take_findings`](super::Device::take_findings) has the results.
    /// Dispatches run on one thread, many times slower.
    pub sanitizer: Option<Checks>,
    /// A seed for the order of the work-groups of a dispatch, and of the invocations of a work-group between barriers: the same
    /// seed, the same order and the same results, and every dispatch on one thread. `None` for the usual order. Correct programs
    /// have the same results with every seed, as far as WGSL defines results.
    pub schedule: Option<u64>,
    /// Whether executions of statements are counted, and their time taken: [`Device::coverage`](super::Device::coverage) has the
    /// results. Dispatches run on one thread, many times slower.
    pub coverage: bool,
    /// Whether kernels are listed for `perf`, in `/tmp/perf-<pid>.map`: samples in kernels have names then. On Linux; elsewhere
    /// the log has a warning for each kernel.
    pub perf_map: bool,
}

impl Default for Options {
    /// All processors, and up to eight invocations side by side on each.
    fn default() -> Self {
        Self {
            threads: None,
            lanes: 8,
            sanitizer: None,
            schedule: None,
            coverage: false,
            perf_map: false,
        }
    }
}

/// The CPU as an instance with one adapter.
///
/// `wgpu::Instance::from_hal::<tombolo_cpu::Api>` makes an instance of wgpu.
#[derive(Debug)]
pub struct Instance {
    options: Arc<Options>,
}

impl Instance {
    /// An instance that runs kernels by `options`.
    pub fn new(options: Options) -> Self {
        Self {
            options: Arc::new(options),
        }
    }
}

impl Default for Instance {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl hal::Instance for Instance {
    type A = Api;

    unsafe fn init(_desc: &hal::InstanceDescriptor<'_>) -> Result<Self, hal::InstanceError> {
        Ok(Self::default())
    }

    unsafe fn create_surface(
        &self,
        _display_handle: RawDisplayHandle,
        _window_handle: RawWindowHandle,
    ) -> Result<Absent, hal::InstanceError> {
        // `InstanceError` cannot be made outside wgpu-hal but by its own stub, reporting the stub as not enabled. SAFETY: `init`
        // of the stub has no preconditions.
        let refused = unsafe {
            <hal::noop::Context as hal::Instance>::init(&hal::InstanceDescriptor {
                name: "",
                flags: Default::default(),
                memory_budget_thresholds: Default::default(),
                backend_options: Default::default(),
                telemetry: None,
                display: None,
            })
        };
        match refused {
            Err(error) => Err(error),
            Ok(_) => unreachable!("the stub is off by default"),
        }
    }

    unsafe fn enumerate_adapters(
        &self,
        surface_hint: Option<&Absent>,
    ) -> Vec<hal::ExposedAdapter<Api>> {
        if let Some(surface) = surface_hint {
            match *surface {}
        }
        match target::isa() {
            Ok(_) => vec![Adapter::expose(self.options.clone())],
            Err(reason) => {
                log::warn!("there is no CPU adapter: {reason}");
                Vec::new()
            }
        }
    }
}
