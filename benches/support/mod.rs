//! What the benches share: the hand-written side on raw wgpu; pairs of measurements and the rows' lines; and CUDA as a peer.

#![allow(dead_code)] // Each bench uses its part.

pub mod cuda;
pub mod measure;

use tombolo::{Constants, Device, Kernel, Program};

pub use measure::*;

/// The hand-written side: a pipeline with the layout that wgpu derives, and its bind group.
pub struct Raw {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl Raw {
    /// The buffers are those of bindings 0, 1, ... of group 0.
    pub fn new(device: &Device, source: &str, buffers: &[&wgpu::Buffer]) -> Self {
        let whole = |buffer: &&wgpu::Buffer| ((*buffer).clone(), 0, buffer.size());
        let ranges: Vec<_> = buffers.iter().map(whole).collect();
        Self::with_ranges(device, source, &ranges)
    }

    /// As [`Raw::new`], with the first byte of each buffer and how many are bound.
    pub fn with_ranges(
        device: &Device,
        source: &str,
        buffers: &[(wgpu::Buffer, u64, u64)],
    ) -> Self {
        let raw = device.raw();
        let pipeline = pipeline(device, source);
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, (buffer, offset, bytes))| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: *offset,
                    size: wgpu::BufferSize::new(*bytes),
                }),
            })
            .collect();
        let group = raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Self { pipeline, group }
    }

    /// One submission of `launches` dispatches, waited for.
    pub fn run(&self, device: &Device, launches: u32, groups: u32) -> Result<(), Error> {
        let mut encoder = device
            .raw()
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.encode(&mut encoder, launches, groups);
        let index = device.raw_queue().submit([encoder.finish()]);
        device.raw().poll(wgpu::PollType::Wait {
            submission_index: Some(index),
            timeout: None,
        })?;
        Ok(())
    }

    /// Dispatches in one pass.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder, launches: u32, groups: u32) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        for _ in 0..launches {
            pass.dispatch_workgroups(groups, 1, 1);
        }
    }
}

/// A pipeline of raw wgpu over a storage buffer and a uniform word at a dynamic offset, and its bind group.
pub fn at_offsets(
    device: &Device,
    source: &str,
    data: &wgpu::Buffer,
    values: &wgpu::Buffer,
) -> (wgpu::ComputePipeline, wgpu::BindGroup) {
    let raw = device.raw();
    let entry = |binding, ty, dynamic| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: dynamic,
            min_binding_size: wgpu::BufferSize::new(4),
        },
        count: None,
    };
    let storage = wgpu::BufferBindingType::Storage { read_only: false };
    let layout = raw.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &[
            entry(0, storage, false),
            entry(1, wgpu::BufferBindingType::Uniform, true),
        ],
    });
    let group = raw.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &layout,
        entries: &[
            wgpu::BindGroupEntry {
                binding: 0,
                resource: data.as_entire_binding(),
            },
            wgpu::BindGroupEntry {
                binding: 1,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: values,
                    offset: 0,
                    size: wgpu::BufferSize::new(4),
                }),
            },
        ],
    });
    let layout = raw.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        ..Default::default()
    });
    let module = raw.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    let pipeline = raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    (pipeline, group)
}

/// A pipeline of raw wgpu, with the layout that wgpu derives.
pub fn pipeline(device: &Device, source: &str) -> wgpu::ComputePipeline {
    let raw = device.raw();
    let module = raw.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

pub fn ours(device: &Device, source: &str) -> Result<Kernel, Error> {
    let program = Program::new("bench.wgsl", source)?;
    Ok(device.kernel(&program, "main", &Constants::new())?)
}
