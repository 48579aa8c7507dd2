//! Recording commands.

use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;
use wgpu_hal as hal;
use wgpu_types as wgt;

use super::{
    Absent, Api, BindGroup, Buffer, CommandBuffer, ComputePipeline, DeviceResult, PipelineLayout,
    QuerySet, Texture, TextureView,
    at_once::{Encoding, Unsent},
    bind::Resource,
    command::{Bound, Command},
    stop::Marked,
    texture::{CopyRows, Rows},
};
use crate::compile::{BindingUse, abi::BoundResource};
use crate::exec::limit::Stoppable;

/// Words of immediates in a pass.
pub(super) const IMMEDIATE_WORDS: usize = 64;

/// Records commands.
#[derive(Debug, Default)]
pub struct CommandEncoder {
    commands: Vec<Command>,
    pass: Pass,
    /// The last debug marker
    marker: Option<Arc<str>>,
    /// What stops the dispatches behind that marker
    stop: Option<Arc<Stoppable>>,
    /// What stops dispatches among the commands
    stops: SmallVec<[Arc<Stoppable>; 1]>,
    marked: Marked,
    /// A dispatch was refused, and so are all commands
    refused: bool,
    unsent: Unsent,
    /// While the encoder is open
    encoding: Option<Arc<Encoding>>,
}

/// Settings for the dispatches of a pass.
#[derive(Debug, Default)]
struct Pass {
    pipeline: Option<ComputePipeline>,
    groups: Vec<Option<(BindGroup, Vec<wgt::DynamicOffset>)>>,
    immediates: Option<Arc<[u32]>>,
    /// The resources of the last dispatch, as long as nothing was set since
    bound: Option<Arc<Bound>>,
    /// A dispatch binds a buffer with gaps to a kernel with several lanes
    is_unsafe: bool,
    /// Where the end of the pass is to be noted
    end: Option<(QuerySet, u32)>,
}

impl Pass {
    /// The resources of a dispatch behind a debug marker, with what stops the dispatch.
    fn bound(
        &mut self,
        marker: Option<&Arc<str>>,
        stop: Option<&Arc<Stoppable>>,
    ) -> Option<Arc<Bound>> {
        if let Some(bound) = &self.bound {
            return Some(bound.clone());
        }
        let pipeline = self.pipeline.clone()?;
        let mut buffers = Vec::with_capacity(pipeline.kernel.bindings.len());
        let mut reduced = SmallVec::new();
        for used in &pipeline.kernel.bindings {
            let (group, offsets) = self.groups.get(used.group as usize)?.as_ref()?;
            let found = group.find(used.binding, used.element)?;
            let has_gaps = matches!(found, Resource::Buffer { buffer, .. } if buffer.has_gaps());
            self.is_unsafe |= has_gaps && pipeline.kernel.lanes > 1;
            let unseen = matches!(found, Resource::Buffer { buffer, .. } if !buffer.is_shared());
            if used.reduction.is_some() && unseen {
                reduced.push(buffers.len());
            }
            buffers.push(bound_resource(found, used, offsets)?);
        }
        reduced.retain(|&mut index| is_apart(&buffers, index));
        let zeros = || Arc::from([0; IMMEDIATE_WORDS]);
        let bound = Arc::new(Bound {
            pipeline,
            buffers,
            reduced,
            groups: self
                .groups
                .iter()
                .flatten()
                .map(|(group, _)| group.clone())
                .collect(),
            immediates: self.immediates.get_or_insert_with(zeros).clone(),
            marker: marker.cloned(),
            stop: stop.cloned(),
        });
        self.bound = Some(bound.clone());
        Some(bound)
    }
}

/// Whether a resource shares its bytes with no other.
fn is_apart(resources: &[BoundResource], index: usize) -> bool {
    let range = |resource: &BoundResource| {
        let start = resource.address.addr() as u64;
        start..start.saturating_add(resource.bytes)
    };
    let own = range(&resources[index]);
    let mut others = resources.iter().enumerate().filter(|&(at, _)| at != index);
    others.all(|(_, other)| {
        let other = range(other);
        other.end <= own.start || own.end <= other.start
    })
}

/// The description of a resource for a kernel.
fn bound_resource(
    found: &Resource,
    used: &BindingUse,
    offsets: &[wgt::DynamicOffset],
) -> Option<BoundResource> {
    let descriptor = |address: *const u8| BoundResource {
        address: address.cast_mut(),
        bytes: 0,
        length: 0,
        last: 0,
    };
    match found {
        Resource::Buffer {
            buffer,
            offset,
            bytes,
            dynamic,
        } => {
            let dynamic = dynamic.and_then(|index| offsets.get(index));
            let offset = offset + dynamic.copied().map_or(0, u64::from);
            let (address, _) = buffer.range(offset..offset + bytes)?;
            let length = used.array.map_or(0, |(start, stride)| {
                let bytes = bytes.saturating_sub(start.into());
                u32::try_from(bytes / u64::from(stride.max(1))).unwrap_or(u32::MAX)
            });
            Some(BoundResource {
                address,
                bytes: *bytes,
                length,
                last: length.saturating_sub(1),
            })
        }
        Resource::Texture(view) => Some(descriptor(Arc::as_ptr(&view.image).cast())),
        Resource::Sampler(sampler) => Some(descriptor(Arc::as_ptr(&sampler.state).cast())),
    }
}

impl CommandEncoder {
    /// Whose encodings are counted by `unsent`, and whose dispatches behind markers `marked` stops.
    pub(super) fn new(unsent: &Unsent, marked: &Marked) -> Self {
        Self {
            unsent: unsent.clone(),
            marked: marked.clone(),
            ..Self::default()
        }
    }

    /// Records a copy of rows. wgpu-core rules out missing levels.
    fn copy_rows(
        &mut self,
        from: Option<Rows>,
        to: Option<Rows>,
        row_bytes: u64,
        size: hal::CopyExtent,
    ) {
        if let (Some(from), Some(to)) = (from, to) {
            self.commands.push(Command::CopyRows(CopyRows {
                from,
                to,
                row_bytes,
                rows: size.height,
                slices: size.depth,
            }));
        }
    }

    fn timestamp(&mut self, set: &QuerySet, index: u32) {
        self.commands.push(Command::Timestamp(set.clone(), index));
    }

    /// The resources of a dispatch. wgpu-core rules out missing resources.
    fn bound(&mut self) -> Option<Arc<Bound>> {
        let bound = self.pass.bound(self.marker.as_ref(), self.stop.as_ref());
        if let Some(stop) = &self.stop
            && !self.stops.iter().any(|known| Arc::ptr_eq(known, stop))
        {
            self.stops.push(stop.clone());
        }
        if self.pass.is_unsafe {
            log::error!(
                "a kernel with several lanes is bound to a buffer that is not there as a whole"
            );
            self.refused = true;
            return None;
        }
        if bound.is_none() {
            log::error!("a dispatch without a pipeline or with a binding missing is left out");
        }
        bound
    }
}

impl hal::CommandEncoder for CommandEncoder {
    type A = Api;

    unsafe fn begin_encoding(&mut self, _label: hal::Label) -> DeviceResult<()> {
        self.commands.clear();
        self.stops.clear();
        self.pass = Pass::default();
        self.encoding = Some(self.unsent.begin());
        Ok(())
    }

    unsafe fn discard_encoding(&mut self) {
        self.commands.clear();
        self.stops.clear();
        self.pass = Pass::default();
        self.refused = false;
        self.encoding = None;
    }

    unsafe fn end_encoding(&mut self) -> DeviceResult<CommandBuffer> {
        self.pass = Pass::default();
        let encoding = self.encoding.take();
        if std::mem::take(&mut self.refused) {
            self.commands.clear();
            self.stops.clear();
            return Err(hal::DeviceError::Unexpected);
        }
        Ok(CommandBuffer {
            commands: Arc::new(std::mem::take(&mut self.commands)),
            stops: std::mem::take(&mut self.stops),
            encoding,
        })
    }

    unsafe fn reset_all<I>(&mut self, _command_buffers: I) {
        // Not where encoding begins: wgpu-core begins anew for each pass of an encoder.
        (self.marker, self.stop) = (None, None);
    }

    unsafe fn transition_buffers<'a, T>(&mut self, _barriers: T)
    where
        T: Iterator<Item = hal::BufferBarrier<'a, Buffer>>,
    {
    }

    unsafe fn transition_textures<'a, T>(&mut self, _barriers: T)
    where
        T: Iterator<Item = hal::TextureBarrier<'a, Texture>>,
    {
    }

    unsafe fn clear_buffer(&mut self, buffer: &Buffer, range: hal::MemoryRange) {
        self.commands.push(Command::Clear(buffer.clone(), range));
    }

    unsafe fn copy_buffer_to_buffer<T>(&mut self, src: &Buffer, dst: &Buffer, regions: T)
    where
        T: Iterator<Item = hal::BufferCopy>,
    {
        self.commands.extend(regions.map(|region| Command::Copy {
            from: src.clone(),
            to: dst.clone(),
            region,
        }));
    }

    unsafe fn copy_texture_to_texture<T>(
        &mut self,
        src: &Texture,
        _src_usage: wgt::TextureUses,
        dst: &Texture,
        regions: T,
    ) where
        T: Iterator<Item = hal::TextureCopy>,
    {
        for region in regions {
            let (from, to) = (src.rows(&region.src_base), dst.rows(&region.dst_base));
            self.copy_rows(from, to, src.row_bytes(region.size.width), region.size);
        }
    }

    unsafe fn copy_buffer_to_texture<T>(&mut self, src: &Buffer, dst: &Texture, regions: T)
    where
        T: Iterator<Item = hal::BufferTextureCopy>,
    {
        for region in regions {
            let bytes = dst.row_bytes(region.size.width);
            let from = Rows::of_buffer(src, &region.buffer_layout, bytes, region.size.height);
            let to = dst.rows(&region.texture_base);
            self.copy_rows(Some(from), to, bytes, region.size);
        }
    }

    unsafe fn copy_texture_to_buffer<T>(
        &mut self,
        src: &Texture,
        _src_usage: wgt::TextureUses,
        dst: &Buffer,
        regions: T,
    ) where
        T: Iterator<Item = hal::BufferTextureCopy>,
    {
        for region in regions {
            let bytes = src.row_bytes(region.size.width);
            let to = Rows::of_buffer(dst, &region.buffer_layout, bytes, region.size.height);
            let from = src.rows(&region.texture_base);
            self.copy_rows(from, Some(to), bytes, region.size);
        }
    }

    unsafe fn copy_acceleration_structure_to_acceleration_structure(
        &mut self,
        src: &Absent,
        _dst: &Absent,
        _copy: wgt::AccelerationStructureCopy,
    ) {
        match *src {}
    }

    unsafe fn set_bind_group(
        &mut self,
        _layout: &PipelineLayout,
        index: u32,
        group: &BindGroup,
        dynamic_offsets: &[wgt::DynamicOffset],
    ) {
        let index = index as usize;
        if self.pass.groups.len() <= index {
            self.pass.groups.resize_with(index + 1, || None);
        }
        self.pass.groups[index] = Some((group.clone(), dynamic_offsets.to_vec()));
        self.pass.bound = None;
    }

    unsafe fn set_immediates(&mut self, _layout: &PipelineLayout, offset_bytes: u32, data: &[u32]) {
        let mut words = [0; IMMEDIATE_WORDS];
        if let Some(set) = &self.pass.immediates {
            words.copy_from_slice(set);
        }
        let start = offset_bytes as usize / 4;
        if let Some(words) = words.get_mut(start..start + data.len()) {
            words.copy_from_slice(data);
        }
        self.pass.immediates = Some(Arc::from(words));
        self.pass.bound = None;
    }

    unsafe fn insert_debug_marker(&mut self, label: &str) {
        self.marker = Some(label.into());
        let stop = self.marked.find(label);
        let is_same = |a: &Arc<_>| stop.as_ref().is_some_and(|b| Arc::ptr_eq(a, b));
        if let Some(over) = self.stop.take().filter(|old| !is_same(old)) {
            // Whoever stops it later, in this submission, comes too late.
            self.commands.push(Command::Over(over));
        }
        self.stop = stop;
        self.pass.bound = None;
    }

    unsafe fn begin_debug_marker(&mut self, _group_label: &str) {}

    unsafe fn end_debug_marker(&mut self) {}

    // Only timestamps can be asked for: queries of other types need features missing from the adapter.
    unsafe fn begin_query(&mut self, _set: &QuerySet, _index: u32) {}

    unsafe fn end_query(&mut self, _set: &QuerySet, _index: u32) {}

    unsafe fn write_timestamp(&mut self, set: &QuerySet, index: u32) {
        self.timestamp(set, index);
    }

    unsafe fn reset_queries(&mut self, set: &QuerySet, range: Range<u32>) {
        self.commands
            .push(Command::ResetQueries(set.clone(), range));
    }

    unsafe fn copy_query_results(
        &mut self,
        set: &QuerySet,
        range: Range<u32>,
        buffer: &Buffer,
        offset: wgt::BufferAddress,
        stride: wgt::BufferSize,
    ) {
        self.commands.push(Command::CopyQueries {
            set: set.clone(),
            range,
            to: buffer.clone(),
            offset,
            stride: stride.get(),
        });
    }

    // Render passes need a texture to draw on, and there is no such texture. wgpu-core can begin an empty pass all the same,
    // without effect.
    unsafe fn begin_render_pass(
        &mut self,
        _desc: &hal::RenderPassDescriptor<QuerySet, TextureView>,
    ) -> DeviceResult<()> {
        Ok(())
    }

    unsafe fn end_render_pass(&mut self) {}

    unsafe fn set_render_pipeline(&mut self, pipeline: &Absent) {
        match *pipeline {}
    }

    unsafe fn set_index_buffer<'a>(
        &mut self,
        _binding: hal::BufferBinding<'a, Buffer>,
        _format: wgt::IndexFormat,
    ) {
    }

    unsafe fn set_vertex_buffer<'a>(
        &mut self,
        _index: u32,
        _binding: hal::BufferBinding<'a, Buffer>,
    ) {
    }

    unsafe fn set_viewport(&mut self, _rect: &hal::Rect<f32>, _depth_range: Range<f32>) {}

    unsafe fn set_scissor_rect(&mut self, _rect: &hal::Rect<u32>) {}

    unsafe fn set_stencil_reference(&mut self, _value: u32) {}

    unsafe fn set_blend_constants(&mut self, _color: &[f32; 4]) {}

    // Draws need a render pipeline, and there is none.
    unsafe fn draw(&mut self, _: u32, _: u32, _: u32, _: u32) {}

    unsafe fn draw_indexed(&mut self, _: u32, _: u32, _: i32, _: u32, _: u32) {}

    unsafe fn draw_indirect(&mut self, _: &Buffer, _: wgt::BufferAddress, _: u32) {}

    unsafe fn draw_indexed_indirect(&mut self, _: &Buffer, _: wgt::BufferAddress, _: u32) {}

    unsafe fn draw_indirect_count(
        &mut self,
        _: &Buffer,
        _: wgt::BufferAddress,
        _: &Buffer,
        _: wgt::BufferAddress,
        _: u32,
    ) {
    }

    unsafe fn draw_indexed_indirect_count(
        &mut self,
        _: &Buffer,
        _: wgt::BufferAddress,
        _: &Buffer,
        _: wgt::BufferAddress,
        _: u32,
    ) {
    }

    unsafe fn draw_mesh_tasks(&mut self, _: u32, _: u32, _: u32) {}

    unsafe fn draw_mesh_tasks_indirect(&mut self, _: &Buffer, _: wgt::BufferAddress, _: u32) {}

    unsafe fn draw_mesh_tasks_indirect_count(
        &mut self,
        _: &Buffer,
        _: wgt::BufferAddress,
        _: &Buffer,
        _: wgt::BufferAddress,
        _: u32,
    ) {
    }

    unsafe fn begin_compute_pass(&mut self, desc: &hal::ComputePassDescriptor<QuerySet>) {
        self.pass = Pass::default();
        let Some(writes) = &desc.timestamp_writes else {
            return;
        };
        if let Some(index) = writes.beginning_of_pass_write_index {
            self.timestamp(writes.query_set, index);
        }
        let end = writes.end_of_pass_write_index;
        self.pass.end = end.map(|index| (writes.query_set.clone(), index));
    }

    unsafe fn end_compute_pass(&mut self) {
        if let Some((set, index)) = self.pass.end.take() {
            self.timestamp(&set, index);
        }
        self.pass = Pass::default();
    }

    unsafe fn set_compute_pipeline(&mut self, pipeline: &ComputePipeline) {
        self.pass.pipeline = Some(pipeline.clone());
        self.pass.bound = None;
    }

    unsafe fn dispatch_workgroups(&mut self, count: [u32; 3]) {
        if let Some(bound) = self.bound() {
            self.commands.push(Command::Dispatch(bound, count));
        }
    }

    unsafe fn dispatch_workgroups_indirect(&mut self, buffer: &Buffer, offset: wgt::BufferAddress) {
        if let Some(bound) = self.bound() {
            self.commands
                .push(Command::DispatchIndirect(bound, buffer.clone(), offset));
        }
    }

    unsafe fn begin_ray_tracing_pass(&mut self, _desc: &hal::RayTracingPassDescriptor) {}

    unsafe fn end_ray_tracing_pass(&mut self) {}

    unsafe fn set_ray_tracing_pipeline(&mut self, pipeline: &Absent) {
        match *pipeline {}
    }

    unsafe fn trace_rays<'a>(
        &mut self,
        _count: [u32; 3],
        _ray_generation_group_data: hal::PipelineGroupData<'a, Buffer>,
        _miss_group_data: hal::PipelineGroupData<'a, Buffer>,
        _intersection_group_data: hal::PipelineGroupData<'a, Buffer>,
    ) {
    }

    unsafe fn build_acceleration_structures<'a, T>(
        &mut self,
        _descriptor_count: u32,
        _descriptors: T,
    ) where
        Api: 'a,
        T: IntoIterator<Item = hal::BuildAccelerationStructureDescriptor<'a, Buffer, Absent>>,
    {
    }

    unsafe fn place_acceleration_structure_barrier(
        &mut self,
        _barrier: hal::AccelerationStructureBarrier,
    ) {
    }

    unsafe fn read_acceleration_structure_compact_size(
        &mut self,
        acceleration_structure: &Absent,
        _buf: &Buffer,
    ) {
        match *acceleration_structure {}
    }

    unsafe fn set_acceleration_structure_dependencies(
        _command_buffers: &[&CommandBuffer],
        _dependencies: &[&Absent],
    ) {
    }
}
