//! The adapter in the form of wgpu-hal: an [`Api`] outside wgpu.
//!
//! wgpu-core validates every call on the way here. Everything missing from a compute adapter (surfaces, render pipelines,
//! acceleration structures) is [`Absent`]: a type without values, so that nothing of the kind can ever be passed in.

mod absent;
mod adapter;
mod at_once;
mod bind;
mod buffer;
mod command;
mod device;
mod encoder;
mod fence;
mod instance;
mod pipeline;
mod query;
mod queue;
mod stop;
mod texture;

use std::any::Any;

use wgpu_hal as hal;
use wgpu_types as wgt;

pub use absent::Absent;
pub use adapter::Adapter;
pub use bind::{BindGroup, BindGroupLayout, PipelineLayout};
pub use buffer::{Buffer, Loan};
pub use command::CommandBuffer;
pub use device::Device;
pub use encoder::CommandEncoder;
pub use fence::Fence;
pub use instance::{Instance, Options};
pub use pipeline::{ComputePipeline, PipelineCache, ShaderModule};
pub use query::QuerySet;
pub use queue::Queue;
pub use stop::Stop;
pub use texture::{Sampler, Texture, TextureView};

/// The CPU as an API of wgpu-hal, to be named where wgpu asks for an API: `wgpu::Instance::from_hal::<tombolo_cpu::Api>`.
#[derive(Clone, Debug)]
pub struct Api;

impl hal::Api for Api {
    // wgpu has no name for backends from outside. The name taken belongs to wgpu's stub, never built beside the adapter.
    const VARIANT: wgt::Backend = wgt::Backend::Noop;

    type Instance = Instance;
    type Surface = Absent;
    type Adapter = Adapter;
    type Device = Device;
    type Queue = Queue;
    type CommandEncoder = CommandEncoder;
    type CommandBuffer = CommandBuffer;
    type Buffer = Buffer;
    type Texture = Texture;
    type SurfaceTexture = Absent;
    type TextureView = TextureView;
    type Sampler = Sampler;
    type QuerySet = QuerySet;
    type Fence = Fence;
    type BindGroupLayout = BindGroupLayout;
    type BindGroup = BindGroup;
    type PipelineLayout = PipelineLayout;
    type ShaderModule = ShaderModule;
    type RenderPipeline = Absent;
    type ComputePipeline = ComputePipeline;
    type RayTracingPipeline = Absent;
    type PipelineCache = PipelineCache;
    type AccelerationStructure = Absent;
}

/// The result of a question to a device.
type DeviceResult<T> = Result<T, hal::DeviceError>;

macro_rules! resources {
    ($($resource:ty),* $(,)?) => {
        $(impl hal::DynResource for $resource {
            fn as_any(&self) -> &dyn Any {
                self
            }

            fn as_any_mut(&mut self) -> &mut dyn Any {
                self
            }
        })*
    };
}

resources!(
    Absent,
    Adapter,
    BindGroup,
    BindGroupLayout,
    Buffer,
    CommandBuffer,
    CommandEncoder,
    ComputePipeline,
    Device,
    Fence,
    Instance,
    PipelineCache,
    PipelineLayout,
    QuerySet,
    Queue,
    Sampler,
    ShaderModule,
    Texture,
    TextureView,
);

impl hal::DynBindGroup for BindGroup {}
impl hal::DynBindGroupLayout for BindGroupLayout {}
impl hal::DynBuffer for Buffer {}
impl hal::DynCommandBuffer for CommandBuffer {}
impl hal::DynComputePipeline for ComputePipeline {}
impl hal::DynFence for Fence {}
impl hal::DynPipelineCache for PipelineCache {}
impl hal::DynPipelineLayout for PipelineLayout {}
impl hal::DynQuerySet for QuerySet {}
impl hal::DynShaderModule for ShaderModule {}
