//! Filling ranges of buffers with a value of any size, at any alignment.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::MemoryRoom;
use super::buffer::{DeviceBuffer, MemoryError};
use crate::device::queue::{Bound, Dispatch, Recorder};
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
        self.needs(WHAT, usage(pattern, &range))?;
        let mut queue = device.queue.lock(device);
        fill_bytes(&mut queue, device, &self.shared.raw, pattern, &range)?;
        self.shared.overwritten(&range);
        let batch = queue.batch();
        queue.commit();
        Ok(Event::of_batch(device, batch))
    }
}

/// Whether wgpu itself can do it.
fn clears(pattern: &[u8], range: &Range<u64>) -> bool {
    let words = range.start.is_multiple_of(4) && range.end.is_multiple_of(4);
    words && pattern.iter().all(|&byte| byte == 0)
}

/// What [`fill_bytes`] needs of the buffer.
fn usage(pattern: &[u8], range: &Range<u64>) -> wgpu::BufferUsages {
    if clears(pattern, range) {
        wgpu::BufferUsages::COPY_DST
    } else {
        wgpu::BufferUsages::STORAGE
    }
}

/// Records the repetition of `pattern` over the bytes of `range`, which is not empty and lies in the
/// buffer.
///
/// # Errors
/// [`MemoryError::TooLarge`], [`MemoryError::Refused`].
pub(crate) fn fill_bytes(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    raw: &wgpu::Buffer,
    pattern: &[u8],
    range: &Range<u64>,
) -> Result<(), MemoryError> {
    if clears(pattern, range) {
        queue.encode(|encoder| {
            encoder.clear_buffer(raw, range.start, Some(range.end - range.start));
        });
        return Ok(());
    }
    let limit = device
        .limits
        .max_storage_buffer_binding_size
        .min(u64::from(u32::MAX));
    let bytes = raw.size();
    if bytes > limit {
        return Err(MemoryError::TooLarge {
            bytes,
            limit,
            device: device.capabilities.name.clone(),
        });
    }
    let ((), error) = capture(&device.raw, || {
        fill_by_kernel(queue, device, raw, pattern, range);
    });
    match error {
        None => Ok(()),
        Some(error) => Err(MemoryError::Refused {
            what: "fill",
            message: error.to_string(),
        }),
    }
}

fn fill_by_kernel(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    raw: &wgpu::Buffer,
    pattern: &[u8],
    range: &Range<u64>,
) {
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
            resource: raw.as_entire_binding(),
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
    queue.launch(pipeline, &[bound], &[], &Dispatch::Direct(groups));
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
