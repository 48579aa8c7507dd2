//! Opening devices: from an adapter of a [`Context`](crate::Context), or around a wgpu device that the
//! program already has.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::capabilities::{Capabilities, names};
use super::event::CallbackQueue;
use super::heap_options::{HeapPlacement, HeapSizeError, HostAccessPolicy};
use super::import::{import_limits, request_device};
use super::pipeline_cache::DiskCache;
use super::probe::{Finding, NotProbed, ProbeOptions, ProbeReport, probe};
use super::queue::Queue;
use super::submissions::Submissions;
use super::wait::{LostFlag, Waiter};
use super::wait_policy::WaitPolicy;
use super::working_set::working_set;
use super::{Aspect, Device, DeviceShared, EmbeddedOptions, unique_id};
use crate::error_text::debug_by_text;
use crate::extensions::{ContextExtensions, DeviceExtensions};
use crate::print::PrintOptions;

/// How a device is opened. `DeviceOptions::default()` suits most programs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Name for the device in graphics debuggers and logs.
    pub label: Option<String>,
    /// Measure the adapter's real abilities with tiny kernels before the device is used (default: yes for opened
    /// devices, no for adopted ones). Without the probe everything that takes a measurement counts as absent, and loops
    /// are guarded.
    pub probe: Option<bool>,
    /// The longest time that probing may take (default: 30 s, which only a device that hangs needs; a usual probe takes some
    /// hundredths of a second). What the device did not answer in that time counts as absent for this handle, and is asked
    /// again when the adapter is opened next ([`Finding::TimedOut`](crate::device::Finding::TimedOut)).
    pub probe_deadline: Duration,
    /// Use live host memory where found by the probe (default: yes). `false` forces every capability down to its tier
    /// on strict WebGPU.
    pub live_memory: bool,
    /// Open the device for use of the host's memory in place, where the driver can
    /// ([`Aspect::HostImport`]; default: yes). `false` forces shared memory down to the device's
    /// own means: memory mapped for good where the device has live memory, and else a copy. See
    /// [`SharedHeap::tier`](crate::SharedHeap::tier).
    pub import_host_memory: bool,
    /// Where the device keeps the context's shared heap (default: [`HeapPlacement::Auto`]). On a card with memory of its own,
    /// [`HeapPlacement::Device`] has kernels follow pointers at the speed of that memory from the first launch on.
    pub heap_placement: HeapPlacement,
    /// Commands gathered in a submission before the submission is sent without a wait (default: 128; at least 1). A
    /// device works on one submission while the next is recorded: fewer commands keep it busy sooner, more cost less
    /// each.
    pub max_batch: u32,
    /// How threads wait for the device: for how long they look before they sleep (default: [`WaitPolicy::Auto`]).
    pub wait: WaitPolicy,
    /// Folder for compiled pipelines, on adapters with [`Aspect::PipelineCache`] (default: none). Drivers believe the file, and
    /// the embedded adapter executes what is in it: only a file written by this crate is used (a checksum shows that), but
    /// anyone with write access to the folder may write such a file, too. So give a folder with trusted writers only; on
    /// Unix a world-writable file is left alone.
    pub pipeline_cache: Option<PathBuf>,
    /// What the adapter that is compiled in does with kernels beside running them: checks, an order by a seed (default: as the
    /// environment says).
    pub embedded: EmbeddedOptions,
    /// Bytes of private arrays per invocation (default: the size known to be safe on the adapter, see
    /// [`Capabilities::private_memory_bytes`]).
    pub private_memory_bytes: Option<u32>,
    /// Whether private arrays move to scratch memory (default: [`SpillPolicy::Auto`](crate::kernel::SpillPolicy::Auto)).
    pub spill: crate::kernel::SpillPolicy,
    /// Bytes of scratch memory for spilled private arrays at most, allocated as launches need them (default: 256 MiB on
    /// adapters that are software, otherwise 1 GiB; in each case no more than a storage binding). Grids that need more
    /// run in parts, one after another; a kernel whose work-group needs more is refused.
    pub scratch_bytes: Option<u64>,
    /// Bytes of a single storage binding at most (default: the adapter's limit). A smaller number shows a program's
    /// behaviour on a smaller adapter: buffers bound at once are no longer than this, nor are the segments in which
    /// kernels reach shared memory and memory of the device ([`Device::malloc`]): the largest power of two within the
    /// number. Numbers above the adapter's limit mean the limit; less than 1 MiB is 1 MiB. The shared heap keeps its
    /// allocations within segments of less than 128 MiB only if the device is opened before the first allocation.
    pub storage_binding_bytes: Option<u64>,
    /// Whether host and device share all memory (default: by the adapter's kind, see
    /// [`Capabilities::unified_memory`]). `false` gives the device memory of its own behind
    /// [`Device::malloc`].
    pub unified_memory: Option<bool>,
    /// Bytes of memory that kernels of the device can reach at once (default: the interface's report, see
    /// [`Capabilities::working_set_bytes`]). The number sizes the context's heap.
    pub working_set_bytes: Option<u64>,
    /// Bytes of the device's memory that buffers of the context ([`Buffer`](crate::Buffer)) may have together (default:
    /// no limit but the driver's). Beyond the limit the least recently used buffers move to the host; a launch whose
    /// own buffers need more is refused. The limit counts memory given by the device: small buffers share blocks
    /// ([`BufferMemory::reserved`](crate::buffers::BufferMemory::reserved)).
    pub buffer_bytes: Option<u64>,
    /// The behaviour of launches and transfers of the device while another thread has the shared heap (default:
    /// waiting).
    pub host_access: HostAccessPolicy,
    /// Test every pointer followed by kernels, and fail the launch on a dangling one (default: in debug builds).
    /// Otherwise such a pointer reads or writes some other place of the shared heap.
    pub checked_pointers: bool,
    /// The tests of checked pointers: with this option (default: without), for a whole value inside a live allocation,
    /// and an index inside that allocation; so pointers to freed memory are found, as are pointers past an end and
    /// between allocations. The price is a load for each pointer, a quarter of the heap's bytes on the host, and as
    /// much on the device; and storage bindings, one for each segment of the heap and one for the device's own memory,
    /// so a kernel may need more than the device has ([`KernelError::Limit`](crate::kernel::KernelError::Limit)). Memory
    /// allocated by a host function for the calling kernel may be found freed, if other memory was freed at the same
    /// place before the launch. Not every driver copes: lavapipe of Mesa 22.3 crashes in its own code on a kernel with
    /// variables in two bind groups. Without the option, pointers are tested for the bounds of the grown heap.
    pub checked_allocations: bool,
    /// The policy for guarding loops against adapters that end loops silently.
    pub loop_guard: LoopGuardPolicy,
    /// Where and how kernels print, for launches without a setting of their own.
    pub print: PrintOptions,
    /// Features to ask for in addition to the runtime's own; opening fails where the adapter lacks a feature.
    pub features: wgpu::Features,
}

/// When kernels are checked for loops that the adapter ended before the kernel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoopGuardPolicy {
    /// On adapters whose probe found a loop budget, and on adapters without a probe, for kernels
    /// whose loops are not provably short.
    #[default]
    WhereNeeded,
    /// As if the adapter had this budget, in iterations for all loops of a group of lanes together.
    Budget(u32),
    /// Never: a loop that is cut short gives wrong results without an error.
    Off,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            label: None,
            probe: None,
            probe_deadline: ProbeOptions::default().deadline,
            live_memory: true,
            import_host_memory: true,
            heap_placement: HeapPlacement::Auto,
            max_batch: 128,
            wait: WaitPolicy::default(),
            pipeline_cache: None,
            embedded: EmbeddedOptions::default(),
            private_memory_bytes: None,
            spill: crate::kernel::SpillPolicy::Auto,
            scratch_bytes: None,
            storage_binding_bytes: None,
            unified_memory: None,
            working_set_bytes: None,
            buffer_bytes: None,
            host_access: HostAccessPolicy::default(),
            checked_pointers: cfg!(debug_assertions),
            checked_allocations: false,
            loop_guard: LoopGuardPolicy::WhereNeeded,
            print: PrintOptions::default(),
            features: wgpu::Features::empty(),
        }
    }
}

/// The minimum of [`DeviceOptions::storage_binding_bytes`]: room for the reserved part of the shared heap, and for a
/// good deal more.
const LEAST_BINDING_BYTES: u64 = 1 << 20;

impl DeviceOptions {
    /// The limits with which the device is used.
    fn lowered(&self, mut limits: wgpu::Limits) -> wgpu::Limits {
        if let Some(bytes) = self.storage_binding_bytes {
            let most = &mut limits.max_storage_buffer_binding_size;
            *most = bytes.max(LEAST_BINDING_BYTES).min(*most);
        }
        limits
    }
}

/// An adapter's description with a name: browsers keep the name to themselves.
pub(crate) fn named(mut info: wgpu::AdapterInfo) -> wgpu::AdapterInfo {
    if info.name.trim().is_empty() {
        info.name = format!("an adapter of {} without a name", info.backend);
    }
    info
}

/// What to do where there is no adapter.
const NO_ADAPTER: &str = if cfg!(web) {
    "this browser gives the page no WebGPU; take one that has it, turn on its switch, and serve the page by https or from \
     the machine itself, since pages of other origins get none"
} else {
    "compile in the adapter of the feature `embedded`, whose backend is `noop` in WGPU_BACKEND; install a Vulkan driver, for \
     example the software driver lavapipe (Debian and Ubuntu: apt-get install mesa-vulkan-drivers); or set WGPU_BACKEND to \
     a backend that this machine has"
};

/// Why there is no device.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The machine has no adapter that wgpu can use.
    #[error("no compute adapter found (backends searched: {}): {NO_ADAPTER}", names(.backends.iter_names()))]
    NoAdapter {
        /// The backends that were searched.
        backends: wgpu::Backends,
    },
    /// No adapter has the wanted name.
    #[error("no adapter's name contains `{wanted}`; there are: {}", available.join(", "))]
    UnknownAdapter {
        /// The wanted name, through [`Context::device_named`](crate::Context::device_named) or
        /// `WGPU_ADAPTER_NAME`.
        wanted: String,
        /// The adapters' names.
        available: Vec<String>,
    },
    /// The index is beyond the adapters that there are.
    #[error("adapter {index} does not exist: there are {count}, counted from 0")]
    AdapterIndex {
        /// The index asked for.
        index: usize,
        /// How many adapters there are.
        count: usize,
    },
    /// The adapter lacks features asked for.
    #[error("{adapter} lacks {}, asked for in DeviceOptions::features", names(.missing.iter_names()))]
    MissingFeatures {
        /// The adapter's name.
        adapter: String,
        /// The missing features.
        missing: wgpu::Features,
    },
    /// The driver refused to open the device.
    #[error("{adapter} could not be opened: {source}")]
    Open {
        /// The adapter's name.
        adapter: String,
        /// wgpu's error.
        source: wgpu::RequestDeviceError,
    },
    /// The device cannot use the shared heap in the place asked for with [`DeviceOptions::heap_placement`].
    #[error(
        "{adapter} cannot use the shared heap in place: {why}; open it with HeapPlacement::Auto or HeapPlacement::Device, \
         which keep a copy on the device"
    )]
    HeapPlacement {
        /// The adapter's name.
        adapter: String,
        /// Why not.
        why: String,
    },
    /// No heap can have the size that the context was given.
    #[error(transparent)]
    HeapSize(#[from] HeapSizeError),
    /// A variable of the environment has a value that an option of the embedded adapter cannot have.
    #[error("{variable}={value} is not {expected}: correct or unset the variable")]
    EmbeddedOption {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What the value may be.
        expected: &'static str,
    },
    /// Opening would block the thread, which a page of a browser may not.
    #[error("{what} would block the page, which no page may: `.await` {instead}")]
    WouldBlock {
        /// The attempted operation.
        what: &'static str,
        /// Its form that does not block.
        instead: &'static str,
    },
    /// An option of the embedded adapter for a device on another one.
    #[error(
        "{adapter} has no EmbeddedOptions::{option}: open the embedded adapter (WGPU_ADAPTER_NAME=embedded, or \
         Context::device_named_with(\"embedded\", …)), or leave the option out"
    )]
    NotEmbedded {
        /// The adapter.
        adapter: String,
        /// The option that is set.
        option: &'static str,
    },
    /// The environment asks for something that does not exist.
    #[error("{variable}={value} names no backend that wgpu knows: use vulkan, metal, dx12 or gl")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
}

debug_by_text!(DeviceError {
    HeapPlacement,
    NoAdapter,
    UnknownAdapter,
    AdapterIndex,
    MissingFeatures,
    Open,
    HeapSize,
    EmbeddedOption,
    NotEmbedded,
    WouldBlock,
    Environment,
});

/// The features the runtime asks for, where the adapter has them. Experimental ones are left out, and so is
/// `MAPPABLE_PRIMARY_BUFFERS`, which moves buffers of discrete GPUs to host memory.
fn wanted_features() -> wgpu::Features {
    use wgpu::Features as F;
    F::TIMESTAMP_QUERY
        | F::SHADER_F16
        | F::SHADER_F64
        | F::SHADER_I16
        | F::SHADER_INT64
        | F::SHADER_INT64_ATOMIC_MIN_MAX
        | F::SHADER_INT64_ATOMIC_ALL_OPS
        | F::SHADER_FLOAT32_ATOMIC
        | F::SUBGROUP
        | F::SUBGROUP_BARRIER
        | F::PIPELINE_CACHE
        | F::PASSTHROUGH_SHADERS
        | F::IMMEDIATES
        | F::FLOAT32_FILTERABLE
        | F::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES
        | F::MEMORY_DECORATION_COHERENT
        | F::MEMORY_DECORATION_VOLATILE
}

/// Opens a device on `adapter`; `probe` is an earlier measurement by a scratch device there.
pub(crate) async fn open(
    adapter: &wgpu::Adapter,
    options: DeviceOptions,
    context: Arc<ContextExtensions>,
    report: ProbeReport,
) -> Result<Device, DeviceError> {
    let info = named(adapter.get_info());
    let own = options.embedded.adapter(&info).await?;
    let adapter = own.as_ref().unwrap_or(adapter);
    let missing = options.features - adapter.features();
    if !missing.is_empty() {
        return Err(DeviceError::MissingFeatures {
            adapter: info.name,
            missing,
        });
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: options.label.as_deref(),
        required_features: (wanted_features() & adapter.features()) | options.features,
        required_limits: options.lowered(adapter.limits()),
        ..Default::default()
    };
    let (raw, queue) = request_device(
        adapter,
        &descriptor,
        options.live_memory && options.import_host_memory,
    )
    .await
    .map_err(|source| DeviceError::Open {
        adapter: info.name.clone(),
        source,
    })?;
    let lost = Arc::new(LostFlag::default());
    let flag = Arc::clone(&lost);
    raw.set_device_lost_callback(move |reason, message| match reason {
        // After the drop of the last handle there is no listener left.
        wgpu::DeviceLostReason::Destroyed => flag.raise("it was destroyed"),
        wgpu::DeviceLostReason::Unknown => flag.raise(message),
    });
    raw.on_uncaptured_error(Arc::new(|error: wgpu::Error| {
        log::error!("wgpu reported an error outside any call of ours: {error}");
    }));
    let downlevel = adapter.get_downlevel_capabilities().flags;
    let device = assemble(raw, queue, &info, options, context, report, lost, downlevel);
    let capabilities = device.capabilities();
    let in_place = [Aspect::HostImport, Aspect::LiveMemory];
    if capabilities.heap_placement == HeapPlacement::InPlace
        && !in_place.iter().any(|aspect| capabilities.has(*aspect))
    {
        return Err(DeviceError::HeapPlacement {
            adapter: info.name,
            why: capabilities.explain(Aspect::HostImport),
        });
    }
    Ok(device)
}

/// Builds a device around an existing one.
pub(crate) fn adopt(raw: wgpu::Device, queue: wgpu::Queue, options: DeviceOptions) -> Device {
    let info = named(raw.adapter_info());
    options.embedded.ignored();
    let report = if options.probe.unwrap_or(false) && cfg!(web) {
        let why = "an adopted device is not probed in a browser, where that would block";
        ProbeReport::not_probed(NotProbed::Unsupported(why.to_owned()))
    } else if options.probe.unwrap_or(false) {
        let wish = ProbeOptions {
            deadline: options.probe_deadline,
        };
        pollster::block_on(probe(&raw, &queue, info.backend, &wish, None))
    } else {
        ProbeReport::not_probed(NotProbed::TurnedOff)
    };
    let context = Arc::default();
    let lost = Arc::default();
    // Properties of a device that wgpu does not report are assumed: native backends have all
    // downlevel flags relevant to compute shaders.
    let downlevel = wgpu::DownlevelFlags::all();
    assemble(raw, queue, &info, options, context, report, lost, downlevel)
}

/// Why a device does not use the host's memory in place, if it does not.
fn why_no_import(raw: &wgpu::Device, options: &DeviceOptions) -> Option<String> {
    let off = |option: &str| {
        Some(format!(
            "importing host memory: DeviceOptions::{option} is off"
        ))
    };
    match import_limits(raw) {
        Err(error) => Some(error.to_string()),
        Ok(_) if !options.import_host_memory => off("import_host_memory"),
        Ok(_) if !options.live_memory => off("live_memory"),
        Ok(_) => None,
    }
}

#[allow(clippy::too_many_arguments)] // the parts of one construction, named at both call sites
fn assemble(
    raw: wgpu::Device,
    queue_raw: wgpu::Queue,
    info: &wgpu::AdapterInfo,
    mut options: DeviceOptions,
    context: Arc<ContextExtensions>,
    mut report: ProbeReport,
    lost: Arc<LostFlag>,
    downlevel: wgpu::DownlevelFlags,
) -> Device {
    options.max_batch = options.max_batch.max(1);
    if cfg!(web) {
        options.wait = WaitPolicy::Never;
    }
    // An adopted device may allow more than its options.
    let limits = options.lowered(raw.limits());
    let features = raw.features();
    // The report is the adapter's; this device may have been opened without the import, or is not to use it.
    if options.probe != Some(false)
        && let Some(why) = why_no_import(&raw, &options)
    {
        report.host_import = Finding::NotProbed(NotProbed::Unsupported(why));
    }
    if report.ran_out() {
        log::warn!(
            "{}: the probe had no answer to everything within {:?}; what it did not measure counts as absent until the \
             device is opened again",
            info.name,
            options.probe_deadline
        );
    }
    if !options.live_memory {
        let why = "DeviceOptions::live_memory is off".to_owned();
        report.live = Finding::NotProbed(NotProbed::Unsupported(why));
    }
    let mut capabilities = Capabilities::new(info, features, &limits, report);
    if let Some(unified) = options.unified_memory {
        capabilities.unified_memory = unified;
    }
    capabilities.heap_placement = options.heap_placement;
    capabilities.working_set_bytes = options.working_set_bytes.or_else(|| working_set(&raw));
    if let Some(bytes) = options.private_memory_bytes {
        capabilities.private_memory_bytes = bytes;
    }
    let pipeline_cache = match &options.pipeline_cache {
        Some(folder) if capabilities.has(Aspect::PipelineCache) => {
            DiskCache::open(&raw, info, folder)
        }
        Some(_) => {
            log::warn!(
                "{}: no pipeline cache on disk, {}",
                info.name,
                capabilities.explain(Aspect::PipelineCache)
            );
            None
        }
        None => None,
    };
    let shared = DeviceShared {
        id: unique_id(),
        shader_capabilities: wgpu_naga_bridge::features_to_naga_capabilities(features, downlevel),
        queue: Queue::new(&limits),
        residents: super::resident::Residents::default(),
        submissions: Submissions::new(&raw, &queue_raw, &lost, options.wait),
        prints: super::prints::Prints::default(),
        queue_end: Arc::default(),
        #[cfg(embedded)]
        findings: super::sanitizer::Findings::open(&raw),
        raw,
        queue_raw,
        capabilities,
        limits,
        options,
        lost,
        waiter: Waiter::default(),
        downloads: super::staging::Downloads::default(),
        callbacks: CallbackQueue::default(),
        pipeline_cache,
        context,
        extensions: DeviceExtensions::default(),
        buffer_gone: OnceLock::new(),
    };
    super::exit::watch();
    Device {
        shared: Arc::new(shared),
    }
}
