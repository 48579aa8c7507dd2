//! The device: makes resources.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use wgpu_hal as hal;
use wgpu_types as wgt;

use super::{
    Absent, Api, BindGroup, BindGroupLayout, Buffer, CommandEncoder, ComputePipeline, DeviceResult,
    Fence, Options, PipelineCache, PipelineLayout, QuerySet, Queue, Sampler, ShaderModule, Texture,
    TextureView, at_once::Unsent, command::Submission, stop::Marked,
};
use crate::{
    compile::store::{KernelCounts, KernelDataError, Store},
    exec::{loss::Loss, pool::Pool, timeline::Timeline},
    sanitizer::{Coverage, Finding, Ledger},
};

/// State shared by a device and its queue.
pub(super) struct Shared {
    pub(super) timeline: Timeline<Submission>,
    /// Commands encoded and not in line
    pub(super) unsent: Unsent,
    /// What stops dispatches behind debug markers
    pub(super) marked: Marked,
    options: Arc<Options>,
    /// Compiled kernels
    store: Store,
    /// Findings and counts of instrumented kernels
    ledger: Arc<Ledger>,
}

impl Shared {
    pub(super) fn new(options: Arc<Options>) -> Self {
        let threads = options.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        Self {
            timeline: Timeline::new(Arc::new(Pool::new(threads))),
            unsent: Unsent::default(),
            marked: Marked::default(),
            options,
            store: Store::default(),
            ledger: Arc::default(),
        }
    }
}

/// A device on the CPU.
pub struct Device {
    shared: Arc<Shared>,
}

impl Device {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The reason for the loss of the device, if lost.
    pub fn loss(&self) -> Option<Loss> {
        self.shared.timeline.loss().cloned()
    }

    /// Has threads of the device do `help` while work-groups on them wait; `help` returns whether anything was done. Waiting
    /// kernels may wait for work within reach of their own thread. Returns `false`, and drops `help`, if the device has a helper
    /// already.
    ///
    /// Called often, on several threads at once, and on the thread's own stack: the work-groups of the thread wait meanwhile. A
    /// panic counts as nothing done. The device keeps `help` until its own end.
    pub fn help_while_waiting(&self, help: impl Fn() -> bool + Send + Sync + 'static) -> bool {
        self.shared.timeline.pool().help_by(Arc::new(help))
    }

    /// The options of the instance.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The sanitizer's findings since the last call, in the order of dispatches; empty without [`Options::sanitizer`]. Findings
    /// of a submission are there when the submission has ended.
    pub fn take_findings(&self) -> Vec<Finding> {
        self.shared.ledger.take()
    }

    /// Executions of the statements of kernels so far, for dispatched kernels; empty without [`Options::coverage`].
    pub fn coverage(&self) -> Vec<Coverage> {
        self.shared.ledger.coverage()
    }

    /// As [`Self::coverage`], for executions since the last call, by the debug markers before dispatches. Executions taken here
    /// are no longer in `coverage`.
    pub fn take_coverage(&self) -> Vec<Coverage> {
        self.shared.ledger.take_coverage()
    }

    /// The kernels of pipelines created with a pipeline cache of wgpu, as bytes: code for the present processor, for
    /// [`Self::import_kernels`] in a process with the same build of the crate. wgpu's `PipelineCache::get_data` has nothing,
    /// since wgpu knows the data of Vulkan alone.
    ///
    /// With [`Options::sanitizer`] or [`Options::coverage`], kernels are not kept.
    pub fn export_kernels(&self) -> Vec<u8> {
        self.shared.store.export()
    }

    /// Takes over kernels exported by a device, and returns their number. Pipelines created from here on, with a pipeline cache
    /// of wgpu, use these kernels.
    ///
    /// # Errors
    /// [`KernelDataError`] for damaged bytes, and for anything but kernels of the same build for the same processor. Nothing is
    /// taken over then, and no such byte is ever executed.
    ///
    /// # Safety
    /// The bytes are code to be executed. The bytes must come from [`Self::export_kernels`], or at least not be forged to look
    /// so: the checks find damage, and no intent. So write access to the bytes is only for parties allowed by the program to
    /// execute code.
    pub unsafe fn import_kernels(&self, data: &[u8]) -> Result<usize, KernelDataError> {
        // SAFETY: by contract.
        unsafe { self.shared.store.import(data) }
    }

    /// How many kernels were compiled, and how many were found instead.
    pub fn kernel_counts(&self) -> KernelCounts {
        self.shared.store.counts()
    }

    /// Whether the device still runs submissions.
    ///
    /// Submissions given up look finished to wgpu: a failing wait is a panic there. So every other fallible operation, above all
    /// the mapping of results, reports the loss of the device, and wgpu tells the program.
    fn check(&self) -> DeviceResult<()> {
        match self.shared.timeline.loss() {
            None => Ok(()),
            Some(_) => Err(hal::DeviceError::Lost),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}

impl hal::Device for Device {
    type A = Api;

    unsafe fn create_buffer(&self, desc: &hal::BufferDescriptor) -> DeviceResult<Buffer> {
        self.check()?;
        let maps = wgt::BufferUses::MAP_READ | wgt::BufferUses::MAP_WRITE;
        let buffer = Buffer::new(desc.size, desc.usage.intersects(maps))?;
        Ok(buffer.labelled(desc.label))
    }

    unsafe fn destroy_buffer(&self, _buffer: Buffer) {}

    unsafe fn add_raw_buffer(&self, _buffer: &Buffer) {}

    unsafe fn map_buffer(
        &self,
        buffer: &Buffer,
        range: hal::MemoryRange,
    ) -> DeviceResult<hal::BufferMapping> {
        self.check()?;
        let (start, _) = buffer.range(range).ok_or(hal::DeviceError::Unexpected)?;
        Ok(hal::BufferMapping {
            ptr: std::ptr::NonNull::new(start).ok_or(hal::DeviceError::Unexpected)?,
            is_coherent: true,
        })
    }

    unsafe fn unmap_buffer(&self, _buffer: &Buffer) {}

    unsafe fn flush_mapped_ranges<I>(&self, _buffer: &Buffer, _ranges: I) {}

    unsafe fn invalidate_mapped_ranges<I>(&self, _buffer: &Buffer, _ranges: I) {}

    unsafe fn create_texture(&self, desc: &hal::TextureDescriptor) -> DeviceResult<Texture> {
        self.check()?;
        Texture::new(desc)
    }

    unsafe fn destroy_texture(&self, _texture: Texture) {}

    unsafe fn add_raw_texture(&self, _texture: &Texture) {}

    unsafe fn create_texture_view(
        &self,
        texture: &Texture,
        desc: &hal::TextureViewDescriptor,
    ) -> DeviceResult<TextureView> {
        TextureView::new(texture, desc)
    }

    unsafe fn destroy_texture_view(&self, _view: TextureView) {}

    unsafe fn create_sampler(&self, desc: &hal::SamplerDescriptor) -> DeviceResult<Sampler> {
        Ok(Sampler::new(desc))
    }

    unsafe fn destroy_sampler(&self, _sampler: Sampler) {}

    unsafe fn create_command_encoder(
        &self,
        _desc: &hal::CommandEncoderDescriptor<Queue>,
    ) -> DeviceResult<CommandEncoder> {
        self.check()?;
        Ok(CommandEncoder::new(
            &self.shared.unsent,
            &self.shared.marked,
        ))
    }

    unsafe fn create_bind_group_layout(
        &self,
        desc: &hal::BindGroupLayoutDescriptor,
    ) -> DeviceResult<BindGroupLayout> {
        Ok(BindGroupLayout::new(desc))
    }

    unsafe fn destroy_bind_group_layout(&self, _layout: BindGroupLayout) {}

    unsafe fn create_pipeline_layout(
        &self,
        _desc: &hal::PipelineLayoutDescriptor<BindGroupLayout>,
    ) -> DeviceResult<PipelineLayout> {
        Ok(PipelineLayout)
    }

    unsafe fn destroy_pipeline_layout(&self, _layout: PipelineLayout) {}

    unsafe fn create_bind_group(
        &self,
        desc: &hal::BindGroupDescriptor<BindGroupLayout, Buffer, Sampler, TextureView, Absent>,
    ) -> DeviceResult<BindGroup> {
        self.check()?;
        BindGroup::new(desc)
    }

    unsafe fn destroy_bind_group(&self, _group: BindGroup) {}

    unsafe fn create_shader_module(
        &self,
        desc: &hal::ShaderModuleDescriptor,
        shader: hal::ShaderInput,
    ) -> Result<ShaderModule, hal::ShaderError> {
        ShaderModule::new(desc, shader, &self.shared.options)
    }

    unsafe fn destroy_shader_module(&self, _module: ShaderModule) {}

    unsafe fn create_render_pipeline(
        &self,
        _desc: &hal::RenderPipelineDescriptor<PipelineLayout, ShaderModule, PipelineCache>,
    ) -> Result<Absent, hal::PipelineError> {
        Err(hal::PipelineError::Linkage(
            wgt::ShaderStages::VERTEX,
            "the CPU adapter runs compute shaders only; draw on an adapter of the system".into(),
        ))
    }

    unsafe fn destroy_render_pipeline(&self, pipeline: Absent) {
        match pipeline {}
    }

    unsafe fn create_compute_pipeline(
        &self,
        desc: &hal::ComputePipelineDescriptor<PipelineLayout, ShaderModule, PipelineCache>,
    ) -> Result<ComputePipeline, hal::PipelineError> {
        let store = (&self.shared.store, desc.cache.is_some());
        ComputePipeline::new(&desc.stage, store, &self.shared.ledger)
    }

    unsafe fn destroy_compute_pipeline(&self, _pipeline: ComputePipeline) {}

    unsafe fn create_ray_tracing_pipeline(
        &self,
        _desc: &hal::RayTracingPipelineDescriptor<PipelineLayout, ShaderModule, PipelineCache>,
    ) -> Result<Absent, hal::PipelineError> {
        Err(hal::PipelineError::Linkage(
            wgt::ShaderStages::empty(),
            "the CPU adapter traces no rays".into(),
        ))
    }

    unsafe fn destroy_ray_tracing_pipeline(&self, pipeline: Absent) {
        match pipeline {}
    }

    unsafe fn get_raytracing_pipeline_group_data(
        &self,
        pipeline: &Absent,
        _groups: Range<u32>,
    ) -> DeviceResult<Vec<u8>> {
        match *pipeline {}
    }

    unsafe fn create_pipeline_cache(
        &self,
        _desc: &hal::PipelineCacheDescriptor<'_>,
    ) -> Result<PipelineCache, hal::PipelineCacheError> {
        Ok(PipelineCache)
    }

    unsafe fn destroy_pipeline_cache(&self, _cache: PipelineCache) {}

    unsafe fn create_query_set(
        &self,
        desc: &wgt::QuerySetDescriptor<hal::Label>,
    ) -> DeviceResult<QuerySet> {
        QuerySet::new(desc.count)
    }

    unsafe fn destroy_query_set(&self, _set: QuerySet) {}

    unsafe fn create_fence(&self) -> DeviceResult<Fence> {
        Ok(Fence::default())
    }

    unsafe fn destroy_fence(&self, _fence: Fence) {}

    unsafe fn get_fence_value(&self, fence: &Fence) -> DeviceResult<hal::FenceValue> {
        Ok(fence.value())
    }

    unsafe fn wait(
        &self,
        fence: &Fence,
        value: hal::FenceValue,
        timeout: Option<Duration>,
    ) -> DeviceResult<bool> {
        Ok(fence.wait(value, timeout))
    }

    unsafe fn start_graphics_debugger_capture(&self) -> bool {
        false
    }

    unsafe fn stop_graphics_debugger_capture(&self) {}

    unsafe fn create_acceleration_structure(
        &self,
        _desc: &hal::AccelerationStructureDescriptor,
    ) -> DeviceResult<Absent> {
        Err(hal::DeviceError::Unexpected)
    }

    unsafe fn get_acceleration_structure_build_sizes(
        &self,
        _desc: &hal::GetAccelerationStructureBuildSizesDescriptor<Buffer>,
    ) -> hal::AccelerationStructureBuildSizes {
        Default::default()
    }

    unsafe fn get_acceleration_structure_device_address(
        &self,
        acceleration_structure: &Absent,
    ) -> wgt::BufferAddress {
        match *acceleration_structure {}
    }

    unsafe fn destroy_acceleration_structure(&self, acceleration_structure: Absent) {
        match acceleration_structure {}
    }

    fn tlas_instance_to_bytes(&self, _instance: hal::TlasInstance) -> Vec<u8> {
        Vec::new()
    }

    fn get_internal_counters(&self) -> wgt::HalCounters {
        Default::default()
    }

    fn check_if_oom(&self) -> DeviceResult<()> {
        Ok(())
    }
}
