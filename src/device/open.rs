//! Opening devices: from an adapter of a [`Context`](crate::Context), or around a wgpu device that the
//! program already has.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::capabilities::{Capabilities, names};
use super::heap_options::{HeapSizeError, HostAccessPolicy};
use super::import::{import_limits, request_device};
use super::pipeline_cache::DiskCache;
use super::probe::{Finding, NotProbed, ProbeOptions, ProbeReport, probe};
use super::queue::Queue;
use super::room::Room;
use super::submissions::Submissions;
use super::wait::{LostFlag, Waiter};
use super::working_set::working_set;
use super::{Aspect, Device, DeviceShared, unique_id};
use crate::print::PrintOptions;

/// How a device is opened. `DeviceOptions::default()` suits most programs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Name for the device in graphics debuggers and logs.
    pub label: Option<String>,
    /// Measure what the adapter really does with tiny kernels before the device is used (default: yes
    /// for devices that are opened, no for devices that are adopted). Without it everything that only
    /// measurement can show counts as absent, and loops are guarded.
    pub probe: Option<bool>,
    /// The longest time that probing may take (default: 2 s). Reached, the rest counts as absent.
    pub probe_deadline: Duration,
    /// Use live host memory where the probe found it (default: yes). `false` forces every capability
    /// down to the tier it has on strict WebGPU.
    pub live_memory: bool,
    /// Open the device so that it can use the host's memory in place, where its driver can
    /// ([`Aspect::HostImport`]; default: yes). `false` forces shared memory down to what the device
    /// has of its own: memory that it maps for good where it has live memory, and else a copy. See
    /// [`SharedHeap::tier`](crate::SharedHeap::tier).
    pub import_host_memory: bool,
    /// Commands gathered in one submission before it is sent by itself (default: 1,024; at least 1).
    pub max_batch: u32,
    /// Folder for compiled pipelines, on adapters with [`Aspect::PipelineCache`] (default: none). Drivers believe what they
    /// find there: a file is used only as this crate has written it (it carries a checksum), but whoever may write to the
    /// folder may write that, too. So give a folder that only trusted programs write to; on Unix a file that everybody may
    /// write is left alone.
    pub pipeline_cache: Option<PathBuf>,
    /// Bytes of private arrays that one invocation may have (default: what is known to be safe on the
    /// adapter, see [`Capabilities::private_memory_bytes`]).
    pub private_memory_bytes: Option<u32>,
    /// Bytes that one storage binding may have (default: what the adapter allows). A smaller number shows
    /// how a program fares on a smaller adapter: buffers bound at once are no longer than this, nor are the
    /// segments in which kernels reach shared memory and memory of the device ([`Device::malloc`]): the
    /// largest power of two in it. More than the adapter allows is what the adapter allows; less than 1 MiB
    /// is 1 MiB. The shared heap keeps its allocations within segments of less than 128 MiB only if the
    /// device is opened before the first of them.
    pub storage_binding_bytes: Option<u64>,
    /// Whether host and device share all memory (default: what the adapter's kind says, see
    /// [`Capabilities::unified_memory`]). `false` gives the device memory of its own behind
    /// [`Device::malloc`].
    pub unified_memory: Option<bool>,
    /// Bytes that kernels of the device can have in memory at once (default: what its interface says, see
    /// [`Capabilities::working_set_bytes`]). The context's heap is sized by it.
    pub working_set_bytes: Option<u64>,
    /// Bytes of the device's memory that buffers of the context ([`Buffer`](crate::Buffer)) may have together (default:
    /// no limit but the driver's). Beyond it buffers that were not used for longest move to the host; a launch whose own
    /// buffers need more is refused. What counts is what the device has given: small buffers share blocks
    /// ([`BufferMemory::reserved`](crate::BufferMemory::reserved)).
    pub buffer_bytes: Option<u64>,
    /// What launches and transfers of the device do while another thread has the shared heap (default: they wait).
    pub host_access: HostAccessPolicy,
    /// Test every pointer that kernels follow, and fail the launch where one leads nowhere (default: in
    /// debug builds). Without it such a pointer reads or writes some other place of the shared heap.
    pub checked_pointers: bool,
    /// What pointers are tested for, where they are tested: with it (default: without), that the whole value lies in one live
    /// allocation, and an index behind a pointer within the allocation; so pointers to freed memory are found, those past
    /// an end, and those between allocations. It costs a load for each pointer, a quarter of the heap's bytes on the host,
    /// and as much on the device; and storage bindings, one for each segment of the heap and one for the device's own memory,
    /// so that a kernel may need more than the device has ([`KernelError::Limit`](crate::KernelError::Limit)). Memory that a
    /// host function allocates and hands to the kernel that called it may be found freed, if other memory was freed there
    /// before the launch. Not every driver bears with it: lavapipe of Mesa 22.3 crashes in its own code on a kernel with
    /// variables in two bind groups. Without it, that the value lies in what the heap has grown to.
    pub checked_allocations: bool,
    /// When loops are guarded against adapters that end them silently.
    pub loop_guard: LoopGuardPolicy,
    /// Where and how kernels print, for launches that do not say it themselves.
    pub print: PrintOptions,
    /// Features to ask for beyond those that the runtime asks for by itself; opening fails where the
    /// adapter lacks one.
    pub features: wgpu::Features,
}

/// When kernels are checked for loops that the adapter ended before the kernel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoopGuardPolicy {
    /// On adapters whose probe found a loop budget, and on those that were not probed, for kernels
    /// whose loops are not provably short.
    #[default]
    WhereNeeded,
    /// As if the adapter had this budget, in iterations for all loops of one group of lanes together.
    Budget(u32),
    /// Never: a loop that is cut short gives wrong results without an error.
    Off,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            label: None,
            probe: None,
            probe_deadline: Duration::from_secs(2),
            live_memory: true,
            import_host_memory: true,
            max_batch: 1024,
            pipeline_cache: None,
            private_memory_bytes: None,
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

/// The least that [`DeviceOptions::storage_binding_bytes`] may be: room for the part of the shared heap
/// that is never handed out, and for a good deal more.
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

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The machine has no adapter that wgpu can use.
    #[error(
        "no compute adapter found (backends searched: {}): install a Vulkan driver, for \
         example the software driver lavapipe (Debian and Ubuntu: apt-get install \
         mesa-vulkan-drivers), or set WGPU_BACKEND to a backend that this machine has",
        names(.backends.iter_names())
    )]
    NoAdapter {
        /// The backends that were searched.
        backends: wgpu::Backends,
    },
    /// No adapter has the wanted name.
    #[error("no adapter's name contains `{wanted}`; there are: {}", available.join(", "))]
    UnknownAdapter {
        /// What was asked for, through [`Context::device_named`](crate::Context::device_named) or
        /// `WGPU_ADAPTER_NAME`.
        wanted: String,
        /// The adapters' names.
        available: Vec<String>,
    },
    /// The index is beyond the adapters that there are.
    #[error("adapter {index} does not exist: there are {count}, counted from 0")]
    AdapterIndex {
        /// The index that was asked for.
        index: usize,
        /// How many adapters there are.
        count: usize,
    },
    /// The adapter lacks features that were asked for.
    #[error("{adapter} lacks {}, asked for in DeviceOptions::features", names(.missing.iter_names()))]
    MissingFeatures {
        /// The adapter's name.
        adapter: String,
        /// What it lacks.
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
    /// No heap can have the size that the context was given.
    #[error(transparent)]
    HeapSize(#[from] HeapSizeError),
    /// The environment asks for something that does not exist.
    #[error("{variable}={value} names no backend that wgpu knows: use vulkan, metal, dx12 or gl")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
}

/// The features that the runtime asks for by itself, where the adapter has them. Experimental ones are
/// left out, and so is `MAPPABLE_PRIMARY_BUFFERS`, which moves buffers of discrete GPUs to host memory.
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

/// What rooms above keep for all devices of a context.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContextRooms {
    pub(crate) kernel: Arc<Room>,
    pub(crate) heap: Arc<Room>,
    pub(crate) globals: Arc<Room>,
    pub(crate) buffers: Arc<Room>,
}

/// Opens a device on `adapter`; `probe` is what an earlier scratch device measured there.
pub(crate) fn open(
    adapter: &wgpu::Adapter,
    options: DeviceOptions,
    rooms: ContextRooms,
    report: ProbeReport,
) -> Result<Device, DeviceError> {
    let info = adapter.get_info();
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
    .map_err(|source| DeviceError::Open {
        adapter: info.name.clone(),
        source,
    })?;
    let lost = Arc::new(LostFlag::default());
    let flag = Arc::clone(&lost);
    raw.set_device_lost_callback(move |reason, message| match reason {
        // Nobody is left to tell when that is because its last handle was dropped.
        wgpu::DeviceLostReason::Destroyed => flag.raise("it was destroyed"),
        wgpu::DeviceLostReason::Unknown => flag.raise(message),
    });
    raw.on_uncaptured_error(Arc::new(|error: wgpu::Error| {
        log::error!("wgpu reported an error outside any call of ours: {error}");
    }));
    let downlevel = adapter.get_downlevel_capabilities().flags;
    Ok(assemble(
        raw, queue, &info, options, rooms, report, lost, downlevel,
    ))
}

/// Builds a device around one that exists.
pub(crate) fn adopt(raw: wgpu::Device, queue: wgpu::Queue, options: DeviceOptions) -> Device {
    let info = raw.adapter_info();
    let report = if options.probe.unwrap_or(false) {
        let wish = ProbeOptions {
            deadline: options.probe_deadline,
        };
        probe(&raw, &queue, info.backend, &wish)
    } else {
        ProbeReport::not_probed(NotProbed::TurnedOff)
    };
    let rooms = ContextRooms::default();
    let lost = Arc::default();
    // What wgpu does not tell of a device is assumed: native backends have all downlevel flags that
    // matter to compute shaders.
    let downlevel = wgpu::DownlevelFlags::all();
    assemble(raw, queue, &info, options, rooms, report, lost, downlevel)
}

/// Why a device does not use the host's memory in place, if it does not.
fn why_no_import(raw: &wgpu::Device, options: &DeviceOptions) -> Option<String> {
    let off = |option: &str| Some(format!("importing host memory: DeviceOptions::{option} is off"));
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
    rooms: ContextRooms,
    mut report: ProbeReport,
    lost: Arc<LostFlag>,
    downlevel: wgpu::DownlevelFlags,
) -> Device {
    options.max_batch = options.max_batch.max(1);
    // An adopted device may allow more than it is to use.
    let limits = options.lowered(raw.limits());
    let features = raw.features();
    // The report is the adapter's; this device may have been opened without the import, or is not to use it.
    if options.probe != Some(false)
        && let Some(why) = why_no_import(&raw, &options)
    {
        report.host_import = Finding::NotProbed(NotProbed::Unsupported(why));
    }
    if !options.live_memory {
        let why = "DeviceOptions::live_memory is off".to_owned();
        report.live = Finding::NotProbed(NotProbed::Unsupported(why));
    }
    let mut capabilities = Capabilities::new(info, features, &limits, report);
    if let Some(unified) = options.unified_memory {
        capabilities.unified_memory = unified;
    }
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
        submissions: Submissions::new(&raw, &queue_raw, &lost),
        prints: super::prints::Prints::default(),
        queue_end: Arc::default(),
        raw,
        queue_raw,
        capabilities,
        limits,
        options,
        lost,
        waiter: Waiter::default(),
        pipeline_cache,
        memory_room: Room::default(),
        kernel_room: Room::default(),
        context_room: rooms.kernel,
        heap_room: rooms.heap,
        global_names: rooms.globals,
        buffers_room: rooms.buffers,
        globals_room: Room::default(),
        launch_room: Room::default(),
        calls_room: Room::default(),
        buffer_gone: OnceLock::new(),
    };
    super::exit::watch();
    Device {
        shared: Arc::new(shared),
    }
}
