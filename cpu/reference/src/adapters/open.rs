//! Adapters and devices with everything that the table and the generator can use.

use wgpu::Features;

use crate::conformance::Needs;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("no device of {adapter}: {source}")]
pub struct OpenError {
    /// The adapter's name.
    pub adapter: String,
    pub source: wgpu::RequestDeviceError,
}

/// A device, and what it provides.
pub struct Opened {
    pub info: wgpu::AdapterInfo,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// What rows may need of it.
    pub provides: Needs,
}

/// All adapters of the system's drivers, on every backend.
pub fn system_adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()))
}

/// This project's own adapter, which runs kernels on the CPU. `None` on processors that it makes no code for.
pub fn embedded_adapter() -> Option<wgpu::Adapter> {
    embedded_adapter_with(tombolo_cpu::Options::default())
}

/// This project's own adapter, run by `options`. `None` on processors that it makes no code for.
pub fn embedded_adapter_with(options: tombolo_cpu::Options) -> Option<wgpu::Adapter> {
    let instance = tombolo_cpu::Instance::new(options);
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    let instance = unsafe { wgpu::Instance::from_hal::<tombolo_cpu::Api>(instance) };
    pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).ok()
}

/// The adapters of the system's drivers, and this project's own.
pub fn all_adapters() -> Vec<wgpu::Adapter> {
    let mut adapters = system_adapters();
    adapters.extend(embedded_adapter());
    adapters
}

/// Opens a device with all features that rows and programs can use, and all limits of the adapter.
///
/// # Errors
/// If the adapter refuses.
pub fn open(adapter: &wgpu::Adapter) -> Result<Opened, OpenError> {
    let info = adapter.get_info();
    let wanted = Features::SHADER_F16
        | Features::SHADER_F64
        | Features::SHADER_INT64
        | Features::SHADER_INT64_ATOMIC_ALL_OPS
        | Features::SHADER_FLOAT32_ATOMIC
        | Features::SUBGROUP
        | Features::SUBGROUP_BARRIER
        | Features::IMMEDIATES
        | Features::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES;
    let features = adapter.features() & wanted;
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("reference"),
        required_features: features,
        required_limits: adapter.limits(),
        ..Default::default()
    };
    let (device, queue) =
        pollster::block_on(adapter.request_device(&descriptor)).map_err(|source| OpenError {
            adapter: info.name.clone(),
            source,
        })?;
    let provides = Needs {
        float16: features.contains(Features::SHADER_F16),
        float64: features.contains(Features::SHADER_F64),
        int64: features.contains(Features::SHADER_INT64),
        int64_atomics: features.contains(Features::SHADER_INT64_ATOMIC_ALL_OPS),
        float_atomics: features.contains(Features::SHADER_FLOAT32_ATOMIC),
        subgroups: features.contains(Features::SUBGROUP),
        subgroup_barrier: features.contains(Features::SUBGROUP_BARRIER),
        immediates: features.contains(Features::IMMEDIATES),
        read_write_textures: features.contains(Features::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES),
    };
    Ok(Opened {
        info,
        device,
        queue,
        provides,
    })
}
