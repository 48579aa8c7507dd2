//! The adapter: name, features, limits.

use std::sync::Arc;

use wgpu_hal as hal;
use wgpu_types as wgt;

use crate::compile::subgroup::SIZE as SUBGROUP_SIZE;

use super::{Absent, Api, Device, DeviceResult, Options, Queue, device::Shared};

/// The CPU.
#[derive(Debug)]
pub struct Adapter {
    options: Arc<Options>,
}

/// The alignment of bindings in bytes: the alignment of the largest scalar vector, `vec4<f64>`.
const BINDING_ALIGNMENT: u32 = 32;

/// Bytes of a uniform binding: naga lays out no type of 2 GiB, and uniform variables have no arrays sized at run time.
const UNIFORM_BYTES: u64 = 1 << 30;

impl Adapter {
    pub(super) fn expose(options: Arc<Options>) -> hal::ExposedAdapter<Api> {
        let info = wgt::AdapterInfo {
            name: "Tombolo embedded CPU".into(),
            driver: "tombolo-cpu".into(),
            driver_info: env!("CARGO_PKG_VERSION").into(),
            subgroup_min_size: SUBGROUP_SIZE,
            subgroup_max_size: SUBGROUP_SIZE,
            ..wgt::AdapterInfo::new(wgt::DeviceType::Cpu, wgt::Backend::Noop)
        };
        hal::ExposedAdapter {
            adapter: Self { options },
            info,
            features: features(),
            capabilities: hal::Capabilities {
                limits: limits(),
                alignments: alignments(),
                downlevel: wgt::DownlevelCapabilities {
                    flags: downlevel(),
                    limits: wgt::DownlevelLimits {},
                    shader_model: wgt::ShaderModel::Sm5,
                },
                cooperative_matrix_properties: Vec::new(),
            },
        }
    }
}

fn features() -> wgt::Features {
    wgt::Features::MAPPABLE_PRIMARY_BUFFERS
        | wgt::Features::IMMEDIATES
        | wgt::Features::SHADER_F16
        | wgt::Features::SHADER_F64
        | wgt::Features::SHADER_INT64
        | wgt::Features::SHADER_INT64_ATOMIC_ALL_OPS
        | wgt::Features::SHADER_INT64_ATOMIC_MIN_MAX
        | wgt::Features::SHADER_FLOAT32_ATOMIC
        | wgt::Features::PIPELINE_CACHE
        | wgt::Features::SUBGROUP
        | wgt::Features::SUBGROUP_BARRIER
        | wgt::Features::TIMESTAMP_QUERY
        | wgt::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | wgt::Features::TIMESTAMP_QUERY_INSIDE_PASSES
        | wgt::Features::FLOAT32_FILTERABLE
        | wgt::Features::TEXTURE_FORMAT_16BIT_NORM
        | wgt::Features::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES
        | wgt::Features::TEXTURE_ATOMIC
        | wgt::Features::BGRA8UNORM_STORAGE
        | wgt::Features::ADDRESS_MODE_CLAMP_TO_BORDER
        | wgt::Features::ADDRESS_MODE_CLAMP_TO_ZERO
        | wgt::Features::MEMORY_DECORATION_COHERENT
        | wgt::Features::MEMORY_DECORATION_VOLATILE
}

fn downlevel() -> wgt::DownlevelFlags {
    use wgt::DownlevelFlags as F;
    F::COMPUTE_SHADERS
        | F::INDIRECT_EXECUTION
        | F::BUFFER_BINDINGS_NOT_16_BYTE_ALIGNED
        | F::NONBLOCKING_QUERY_RESOLVE
        | F::SHADER_F16_IN_F32
        | F::CUBE_ARRAY_TEXTURES
        | F::COMPARISON_SAMPLERS
        | F::ANISOTROPIC_FILTERING
        | F::NON_POWER_OF_TWO_MIPMAPPED_TEXTURES
        | F::VIEW_FORMATS
        // Buffers and layouts may name stages without pipelines.
        | F::VERTEX_STORAGE
        | F::FRAGMENT_STORAGE
        | F::FRAGMENT_WRITABLE_STORAGE
        | F::UNRESTRICTED_INDEX_BUFFER
}

fn limits() -> wgt::Limits {
    // Half of the address space of processes on common systems, against overflow in sums of sizes and offsets.
    let bytes = 1 << 46;
    wgt::Limits {
        max_bind_groups: 8,
        max_dynamic_uniform_buffers_per_pipeline_layout: 64,
        max_dynamic_storage_buffers_per_pipeline_layout: 64,
        max_storage_buffers_per_shader_stage: 512,
        max_uniform_buffers_per_shader_stage: 512,
        max_buffers_and_acceleration_structures_per_shader_stage: 1024,
        max_uniform_buffer_binding_size: UNIFORM_BYTES,
        max_storage_buffer_binding_size: bytes,
        max_buffer_size: bytes,
        min_uniform_buffer_offset_alignment: BINDING_ALIGNMENT,
        min_storage_buffer_offset_alignment: BINDING_ALIGNMENT,
        max_compute_workgroup_storage_size: 1 << 20,
        max_compute_invocations_per_workgroup: 1024,
        max_compute_workgroup_size_x: 1024,
        max_compute_workgroup_size_y: 1024,
        max_compute_workgroup_size_z: 1024,
        max_immediate_size: 4 * super::encoder::IMMEDIATE_WORDS as u32,
        ..wgt::Limits::defaults()
    }
}

fn alignments() -> hal::Alignments {
    hal::Alignments {
        buffer_copy_offset: wgt::BufferSize::MIN,
        buffer_copy_pitch: wgt::BufferSize::MIN,
        uniform_bounds_check_alignment: wgt::BufferSize::MIN,
        raw_tlas_instance_size: 0,
        ray_tracing_scratch_buffer_alignment: 1,
        ray_tracing_pipeline_group_data_size: 1,
        ray_tracing_pipeline_group_data_alignment: 1,
        ray_tracing_pipeline_data_offset_alignment: 1,
    }
}

impl hal::Adapter for Adapter {
    type A = Api;

    unsafe fn open(
        &self,
        _features: wgt::Features,
        _limits: &wgt::Limits,
        _memory_hints: &wgt::MemoryHints,
    ) -> DeviceResult<hal::OpenDevice<Api>> {
        let shared = Arc::new(Shared::new(self.options.clone()));
        Ok(hal::OpenDevice {
            device: Device::new(shared.clone()),
            queue: Queue::new(shared),
        })
    }

    unsafe fn texture_format_capabilities(
        &self,
        format: wgt::TextureFormat,
    ) -> hal::TextureFormatCapabilities {
        super::texture::capabilities(format)
    }

    unsafe fn surface_capabilities(&self, surface: &Absent) -> Option<hal::SurfaceCapabilities> {
        match *surface {}
    }

    unsafe fn get_presentation_timestamp(&self) -> wgt::PresentationTimestamp {
        wgt::PresentationTimestamp::INVALID_TIMESTAMP
    }

    // Commands run one after the other, each seeing the effects of all commands before: no two usages need a barrier.
    fn get_ordered_buffer_usages(&self) -> wgt::BufferUses {
        wgt::BufferUses::INCLUSIVE | wgt::BufferUses::MAP_WRITE
    }

    fn get_ordered_texture_usages(&self) -> wgt::TextureUses {
        wgt::TextureUses::INCLUSIVE
    }
}
