//! Opening devices: from an adapter of a [`Context`](crate::Context), or around a wgpu device already in the program.

use std::sync::{Arc, OnceLock};

use super::capabilities::Capabilities;
use super::event::CallbackQueue;
use super::heap_options::HeapPlacement;
use super::import::{Opened, import_limits, request_device};
use super::pipeline_cache::DiskCache;
use super::probe::{Finding, NotProbed, ProbeOptions, ProbeReport, probe};
use super::queue::Queue;
use super::second_queue::{self, Origin, SecondQueue};
use super::submissions::Submissions;
use super::wait::{LostFlag, Waiter};
use super::wait_policy::WaitPolicy;
use super::working_set::working_set;
use super::{Aspect, Device, DeviceError, DeviceOptions, DeviceShared, unique_id};
use crate::extensions::{ContextExtensions, DeviceExtensions};

/// An adapter's description with a name: browsers keep the name to themselves.
pub(crate) fn named(mut info: wgpu::AdapterInfo) -> wgpu::AdapterInfo {
    if info.name.trim().is_empty() {
        info.name = format!("an adapter of {} without a name", info.backend);
    }
    info
}

/// The address of the adapter on the PCI bus, where the backend tells.
pub(crate) fn pci_address(info: &wgpu::AdapterInfo) -> Option<String> {
    Some(info.device_pci_bus_id.clone()).filter(|address| !address.is_empty())
}

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

/// How much memory wgpu takes from a driver at once. SwiftShader fills all of the memory with zeros, so the usual 128
/// MiB for the first small buffer would take up a short program's time.
fn memory_hints(device_type: wgpu::DeviceType) -> wgpu::MemoryHints {
    match device_type {
        wgpu::DeviceType::Cpu => wgpu::MemoryHints::MemoryUsage,
        _ => wgpu::MemoryHints::Performance,
    }
}

/// Notes the loss of a device, and logs errors outside of calls.
fn listen(raw: &wgpu::Device) -> Arc<LostFlag> {
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
    lost
}

/// Opens the second queue of the driver's device under `first` as a device of its own.
pub(crate) fn open_second(first: &DeviceShared, origin: &Origin) -> Result<Device, DeviceError> {
    let options = first.options.clone();
    let info = named(origin.adapter.get_info());
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("tombolo second queue"),
        required_features: first.raw.features(),
        required_limits: first.raw.limits(),
        memory_hints: memory_hints(info.device_type),
        ..Default::default()
    };
    let (raw, queue) = second_queue::open(&first.raw, origin, &descriptor)?;
    let lost = listen(&raw);
    let downlevel = origin.adapter.get_downlevel_capabilities().flags;
    let context = Arc::clone(&first.context);
    let report = first.capabilities.probe.clone();
    let adapter = Some(origin.adapter.clone());
    let device = assemble(
        raw, queue, adapter, &info, options, context, report, lost, downlevel,
    );
    let shared = &device.shared;
    shared.submissions.learn_order(&shared.queue_raw);
    Ok(device)
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
        label: options.label.as_deref().or(Some("tombolo device")),
        required_features: (wanted_features() & adapter.features()) | options.features,
        required_limits: options.lowered(adapter.limits()),
        memory_hints: memory_hints(info.device_type),
        ..Default::default()
    };
    let Opened {
        device: raw,
        queue,
        second_family,
    } = request_device(
        adapter,
        &descriptor,
        options.live_memory && options.import_host_memory,
    )
    .await
    .map_err(|source| DeviceError::Open {
        adapter: info.name.clone(),
        source,
    })?;
    let lost = listen(&raw);
    let downlevel = adapter.get_downlevel_capabilities().flags;
    let adapter = Some(adapter.clone());
    let device = assemble(
        raw, queue, adapter, &info, options, context, report, lost, downlevel,
    );
    device
        .shared
        .submissions
        .learn_order(&device.shared.queue_raw);
    if let (Some(family), Some(adapter)) = (second_family, &device.shared.adapter) {
        device.shared.second_queue.is_of(adapter, family);
    }
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
    assemble(
        raw, queue, None, &info, options, context, report, lost, downlevel,
    )
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
    adapter: Option<wgpu::Adapter>,
    info: &wgpu::AdapterInfo,
    mut options: DeviceOptions,
    context: Arc<ContextExtensions>,
    mut report: ProbeReport,
    lost: Arc<LostFlag>,
    downlevel: wgpu::DownlevelFlags,
) -> Device {
    options.max_batch = options.max_batch.max(1);
    options.min_batch = options.min_batch.clamp(1, options.max_batch);
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
        adapter,
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
        second_queue: SecondQueue::default(),
        end: super::exit::DeviceEnd::default(),
    };
    super::exit::watch();
    Device {
        shared: Arc::new(shared),
    }
}
