//! Filling ranges of buffers with a value of any size, at any alignment.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::MemoryRoom;
use super::buffer::{DeviceBuffer, MemoryError};
use crate::device::queue::{Bound, Dispatch};
use crate::device::{DeviceShared, Event, capture};

const SOURCE: &str = include_str!("../../shaders/fill.wgsl");
/// Words that one row of work-groups covers: 65,535 groups are the least that WebGPU allows.
const WORDS_PER_ROW: u32 = 64 * 32_768;

/// `Fill` of `shaders/fill.wgsl`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Fill {
    first: u32,
    end: u32,
    pattern_bytes: u32,
    words_per_row: u32,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Sets `count` elements from element `start` on to `value`. Works for every element size and
    /// alignment.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::TooLarge`] where the buffer is larger than one
    /// binding or 4 GiB and the value is not all zero.
    pub fn fill(&self, value: T, start: u64, count: u64) -> Result<Event, MemoryError> {
        const WHAT: &str = "fill";
        let range = self.byte_range(WHAT, start, count)?;
        let device = &self.shared.device;
        if range.is_empty() {
            return Ok(Event::complete(device));
        }
        let pattern = bytemuck::bytes_of(&value);
        let words = range.start % 4 == 0 && range.end % 4 == 0;
        let batch = if words && pattern.iter().all(|&byte| byte == 0) {
            self.needs(WHAT, wgpu::BufferUsages::COPY_DST)?;
            let mut queue = device.queue.lock(device);
            queue.encode(|encoder| {
                let length = range.end - range.start;
                encoder.clear_buffer(&self.shared.raw, range.start, Some(length));
            });
            let batch = queue.batch();
            queue.commit();
            batch
        } else {
            self.needs(WHAT, wgpu::BufferUsages::STORAGE)?;
            let limit = device
                .limits
                .max_storage_buffer_binding_size
                .min(u64::from(u32::MAX));
            let size = self.shared.raw.size();
            if size > limit {
                return Err(MemoryError::TooLarge {
                    bytes: size,
                    limit,
                    device: device.capabilities.name.clone(),
                });
            }
            let (batch, error) =
                capture(&device.raw, || self.fill_by_kernel(device, pattern, &range));
            if let Some(error) = error {
                return Err(MemoryError::Refused {
                    what: WHAT,
                    message: error.to_string(),
                });
            }
            batch
        };
        self.shared.overwritten(&range);
        Ok(Event::of_batch(device, batch))
    }

    fn fill_by_kernel(
        &self,
        device: &DeviceShared,
        pattern: &[u8],
        range: &std::ops::Range<u64>,
    ) -> Arc<crate::device::queue::Batch> {
        let pipeline = device
            .memory_room
            .get::<MemoryRoom>()
            .fill
            .get_or_init(|| fill_pipeline(&device.raw));
        let parameters = Fill {
            // Both fit: the caller has checked the buffer's size against 4 GiB.
            first: range.start as u32,
            end: range.end as u32,
            pattern_bytes: pattern.len() as u32,
            words_per_row: WORDS_PER_ROW,
        };
        let mut padded = pattern.to_vec();
        padded.resize(pattern.len().next_multiple_of(4), 0);
        let filled = |label, usage, bytes: &[u8]| {
            let buffer = device.raw.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: bytes.len() as u64,
                usage,
                mapped_at_creation: true,
            });
            if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
                view.slice(..).copy_from_slice(bytes);
            }
            buffer.unmap();
            buffer
        };
        let pattern = filled("fill pattern", wgpu::BufferUsages::STORAGE, &padded);
        let parameters = bytemuck::bytes_of(&parameters);
        let parameters = filled("fill parameters", wgpu::BufferUsages::UNIFORM, parameters);
        let entries = [
            wgpu::BindGroupEntry {
                binding: 0,
                resource: self.shared.raw.as_entire_binding(),
            },
            wgpu::BindGroupEntry {
                binding: 1,
                resource: pattern.as_entire_binding(),
            },
            wgpu::BindGroupEntry {
                binding: 2,
                resource: parameters.as_entire_binding(),
            },
        ];
        let group = device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("fill"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let words = range.end.div_ceil(4) - range.start / 4;
        let row = u64::from(WORDS_PER_ROW);
        // Below 2^32 bytes there are at most 2^30 words: 512 rows.
        let groups = [
            words.min(row).div_ceil(64) as u32,
            words.div_ceil(row) as u32,
            1,
        ];
        let bound = Bound {
            index: 0,
            group: &group,
            offsets: &[],
        };
        let mut queue = device.queue.lock(device);
        queue.launch(pipeline, &[bound], &[], &Dispatch::Direct(groups));
        let batch = queue.batch();
        queue.commit();
        batch
    }
}

fn fill_pipeline(device: &wgpu::Device) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("tombolo fill"),
        source: wgpu::ShaderSource::Wgsl(SOURCE.into()),
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("tombolo fill"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}
