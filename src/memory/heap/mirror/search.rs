//! The search for changed pages on a device: `shaders/heap_diff.wgsl`, and what it needs.

use std::ops::Range;

use super::PAGE;
use super::buffers::CHUNK;
use super::down::FEW;
pub(super) use crate::addresses::page_search::Mode;
use crate::addresses::page_search::{self, ROW, TOGETHER};
use crate::device::DeviceShared;
use crate::memory::heap::HeapError;

/// The most pages of an upload: as many as a chunk has, and at most so many work-groups are in a row of a grid.
pub(super) const LISTED: usize = (CHUNK / PAGE) as usize;
/// Bytes of a page's sums.
pub(super) const SUMS: u64 = 16;
/// Keys of the sums: one for each half word of a page, and one more for each further sum.
const KEYS: usize = PAGE as usize / 2 + 4;

/// Words of a segment's list: the mode and the pages.
pub(super) const LISTED_WORDS: u64 = 1 + LISTED as u64;

/// A device's side of the search.
pub(super) struct Search {
    pipeline: wgpu::ComputePipeline,
    keys: wgpu::Buffer,
    /// The modes and the list of a download.
    pub(super) asked: wgpu::Buffer,
}

/// Keys that no kernel knows.
pub(super) fn random_keys(device: &str) -> Result<[u32; KEYS], HeapError> {
    let mut keys = [0; KEYS];
    match getrandom::fill(bytemuck::cast_slice_mut(&mut keys)) {
        Ok(()) => Ok(keys),
        Err(error) => Err(HeapError::Mirror {
            device: device.to_owned(),
            message: format!("the system gives no random numbers: {error}"),
        }),
    }
}

impl Search {
    pub(super) fn new(device: &DeviceShared, keys: &[u32]) -> Self {
        let buffer = |label, size, usage| {
            device.raw.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage: usage | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        };
        let bytes = bytemuck::cast_slice(keys);
        let usage = wgpu::BufferUsages::STORAGE;
        let keys = buffer("shared heap keys", bytes.len() as u64, usage);
        device.queue_raw.write_buffer(&keys, 0, bytes);
        // Each of these pages may be in another segment.
        let bytes = (2 + FEW * TOGETHER) * 4;
        let usage = wgpu::BufferUsages::COPY_SRC;
        let asked = buffer("shared heap pages asked for", bytes, usage);
        Self {
            pipeline: diff_pipeline(&device.raw),
            keys,
            asked,
        }
    }

    /// The bindings for a segment: the mirror, its sums, the bits of changed pages, and the list.
    pub(super) fn group(&self, raw: &wgpu::Device, of: [&wgpu::Buffer; 4]) -> wgpu::BindGroup {
        let [heap, known, changed, listed] = of;
        let buffers = [heap, known, changed, &self.keys, listed];
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("shared heap diff"),
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &entries,
        })
    }

    pub(super) fn pass<'e>(&self, encoder: &'e mut wgpu::CommandEncoder) -> wgpu::ComputePass<'e> {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("shared heap diff"),
            timestamp_writes: None,
        });
        pass.set_pipeline(&self.pipeline);
        pass
    }
}

/// The listed pages of each part with some, as a range of words of the second: the two modes, and the lists.
pub(super) fn lists(step: u64, pages: &[u64]) -> (Vec<(usize, Range<u64>)>, Vec<u32>) {
    let mut words = vec![Mode::Find as u32, Mode::Learn as u32];
    let mut lists = Vec::new();
    let in_step = step / PAGE;
    for pages in pages.chunk_by(|a, b| a / in_step == b / in_step) {
        let start = words.len() as u64;
        words.extend(pages.iter().map(|page| (page % in_step) as u32));
        let behind = (pages.len() as u64).next_multiple_of(TOGETHER) - pages.len() as u64;
        words.extend((0..behind).map(|_| u32::MAX));
        lists.push(((pages[0] / in_step) as usize, start..words.len() as u64));
    }
    (lists, words)
}

fn diff_pipeline(device: &wgpu::Device) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("tombolo heap diff"),
        source: wgpu::ShaderSource::Wgsl(page_search::source().into()),
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("tombolo heap diff"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

/// The work-groups for so many pages of a segment.
pub(super) fn grid(pages: u64) -> [u32; 2] {
    // A segment has at most 2^31 bytes: 2^19 pages, 4 rows.
    let groups = pages.div_ceil(TOGETHER);
    [groups.min(ROW) as u32, groups.div_ceil(ROW) as u32]
}
