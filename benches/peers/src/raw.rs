//! wgpu by hand, as a careful program has it: pipelines, bind groups and buffers are kept, and a run is one encoder with one
//! pass, submitted and waited for.
//!
//! Kernels in plain WGSL are the same text as the runtime's. Kernels over pointers are the same work over indices, which is all
//! that plain WGSL has. Modules are made by wgpu's `create_shader_module`, with all checks that wgpu makes by default: bounds of
//! indices, and a bound on the passes of loops.

use bytemuck::{Pod, Zeroable};
use wgpu::util::{BufferInitDescriptor, DeviceExt};

use crate::Error;
use crate::side::Side;
use crate::tree::Tree;
use crate::work::Work;

/// A device of wgpu's, as a program asks for one: no features, and all limits of the adapter.
pub struct Raw {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Raw {
    pub fn new(adapter: &wgpu::Adapter) -> Result<Self, Error> {
        let (device, queue) =
            pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
                required_limits: adapter.limits(),
                ..Default::default()
            }))?;
        Ok(Self { device, queue })
    }

    pub fn module(&self, wgsl: &str) -> wgpu::ShaderModule {
        (self.device).create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(wgsl.into()),
        })
    }

    pub fn pipeline(&self, module: &wgpu::ShaderModule, entry: &str) -> wgpu::ComputePipeline {
        (self.device).create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module,
            entry_point: Some(entry),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        })
    }

    pub fn buffer(&self, bytes: &[u8], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        (self.device).create_buffer_init(&BufferInitDescriptor {
            label: None,
            contents: bytes,
            usage: usage | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        })
    }

    /// A dispatch with the given buffers at the given bindings of group 0.
    pub fn dispatch(
        &self,
        pipeline: &wgpu::ComputePipeline,
        bindings: Vec<(u32, wgpu::BindingResource)>,
        groups: [u32; 3],
    ) -> Dispatch {
        let entries: Vec<_> = (bindings.into_iter())
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        let bindings = (self.device).create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Dispatch {
            pipeline: pipeline.clone(),
            bindings,
            groups,
        }
    }

    fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<(), Error> {
        let index = self.queue.submit([encoder.finish()]);
        self.device.poll(wgpu::PollType::Wait {
            submission_index: Some(index),
            timeout: None,
        })?;
        Ok(())
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        (self.device).create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }
}

/// A pipeline with its bind group and grid.
pub struct Dispatch {
    pipeline: wgpu::ComputePipeline,
    bindings: wgpu::BindGroup,
    groups: [u32; 3],
}

/// Dispatches that are ready, and the buffer of their results.
pub struct Ready<'a> {
    raw: &'a Raw,
    dispatches: Vec<Dispatch>,
    result: wgpu::Buffer,
}

impl<'a> Ready<'a> {
    pub fn new(raw: &'a Raw, work: &Work) -> Result<Self, Error> {
        let (wgsl, inputs) = plain(work);
        let storage = |bytes: &Vec<u8>| raw.buffer(bytes, wgpu::BufferUsages::STORAGE);
        let mut buffers: Vec<_> = inputs.iter().map(storage).collect();
        buffers.push(storage(&work.results.before));
        let pipeline = raw.pipeline(&raw.module(wgsl), "main");
        let whole = buffers.iter().map(|buffer| buffer.as_entire_binding());
        let dispatch = raw.dispatch(&pipeline, (0..).zip(whole).collect(), work.groups);
        let result = buffers.pop().ok_or("a kernel has no buffers")?;
        Self::of(raw, vec![dispatch], result)
    }

    /// A side of dispatches in a row.
    pub fn of(
        raw: &'a Raw,
        dispatches: Vec<Dispatch>,
        result: wgpu::Buffer,
    ) -> Result<Self, Error> {
        // What creating the buffers has left to be copied is no part of the first run.
        raw.submit(raw.encoder())?;
        Ok(Self {
            raw,
            dispatches,
            result,
        })
    }
}

/// A work's kernel in plain WGSL, and what the buffers of its inputs hold.
fn plain(work: &Work) -> (&str, Vec<Vec<u8>>) {
    match (work.name, &work.inputs[..]) {
        ("chase", inputs) => (include_str!("kernels/chase_by_index.wgsl"), inputs.to_vec()),
        ("barnes_hut", [.., bodies]) => (
            include_str!("kernels/walk_by_index.wgsl"),
            vec![cells(), bodies.clone()],
        ),
        (_, inputs) => (work.wgsl, inputs.to_vec()),
    }
}

/// A cell of the bodies' tree, as in `kernels/walk_by_index.wgsl`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Cell {
    centre: [f32; 3],
    mass: f32,
    reach: f32,
    first: u32,
    next: u32,
    padding: u32,
}

fn cells() -> Vec<u8> {
    let cell = |from: &crate::tree::Cell| Cell {
        centre: from.centre,
        mass: from.mass,
        reach: from.reach,
        first: from.first,
        next: from.next,
        padding: 0,
    };
    let cells: Vec<Cell> = Tree::new().cells.iter().map(cell).collect();
    bytemuck::cast_slice(&cells).to_vec()
}

impl Side for Ready<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let mut encoder = self.raw.encoder();
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for dispatch in &self.dispatches {
            let [x, y, z] = dispatch.groups;
            pass.set_pipeline(&dispatch.pipeline);
            pass.set_bind_group(0, &dispatch.bindings, &[]);
            pass.dispatch_workgroups(x, y, z);
        }
        drop(pass);
        self.raw.submit(encoder)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.raw.queue.write_buffer(&self.result, 0, bytes);
        self.raw.submit(self.raw.encoder())
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        let bytes = self.result.size();
        let staging = self.raw.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.raw.encoder();
        encoder.copy_buffer_to_buffer(&self.result, 0, &staging, 0, bytes);
        let (sender, mapped) = std::sync::mpsc::channel();
        encoder.map_buffer_on_submit(&staging, wgpu::MapMode::Read, .., move |result| {
            // The receiver waits below.
            let _ = sender.send(result);
        });
        self.raw.submit(encoder)?;
        mapped.recv()??;
        Ok(staging.get_mapped_range(..)?.to_vec())
    }
}
