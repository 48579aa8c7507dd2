//! A device, and kernels run on it in one call.

use crate::kernel;
use tombolo_cpu::{Api, Instance, Options};
use wgpu::util::DeviceExt;

/// A device of the adapter.
pub struct Cpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
}

/// An instance of wgpu that has nothing but the adapter.
pub fn instance(options: Options) -> wgpu::Instance {
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    unsafe { wgpu::Instance::from_hal::<Api>(Instance::new(options)) }
}

impl Cpu {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let instance = instance(options);
        let adapter = pollster::block_on(instance.request_adapter(&Default::default())).unwrap();
        let (device, queue) = kernel::open(&adapter, wgpu::Features::all());
        Self { device, queue }
    }

    pub fn pipeline(&self, source: &str) -> wgpu::ComputePipeline {
        kernel::pipeline(&self.device, source)
    }

    pub fn buffer(&self, contents: &[u8]) -> wgpu::Buffer {
        self.device
            .create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::INDIRECT,
            })
    }

    pub fn uniform(&self, contents: &[u8]) -> wgpu::Buffer {
        self.device
            .create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents,
                usage: wgpu::BufferUsages::UNIFORM,
            })
    }

    /// A group of buffers at bindings 0, 1, … of group 0.
    pub fn group(
        &self,
        pipeline: &wgpu::ComputePipeline,
        buffers: &[&wgpu::Buffer],
    ) -> wgpu::BindGroup {
        let resources = buffers.iter().map(|buffer| buffer.as_entire_binding());
        kernel::bind(&self.device, pipeline, resources)
    }

    pub fn dispatch(
        &self,
        pipeline: &wgpu::ComputePipeline,
        group: &wgpu::BindGroup,
        count: [u32; 3],
    ) {
        kernel::dispatch((&self.device, &self.queue), pipeline, group, count);
    }

    pub fn read<T: bytemuck::Pod>(&self, buffer: &wgpu::Buffer) -> Vec<T> {
        bytemuck::pod_collect_to_vec(&kernel::read((&self.device, &self.queue), buffer))
    }

    /// What the sanitizer has found.
    pub fn findings(&self) -> Vec<tombolo_cpu::sanitizer::Finding> {
        // SAFETY: the device is only asked.
        unsafe { self.device.as_hal::<Api>() }
            .unwrap()
            .take_findings()
    }

    /// Runs a kernel with storage buffers at bindings 0, 1, … of group 0. Returns what the last one holds then.
    pub fn run<T: bytemuck::Pod>(
        &self,
        source: &str,
        count: [u32; 3],
        buffers: &[&[u8]],
    ) -> Vec<T> {
        let pipeline = self.pipeline(source);
        let buffers: Vec<_> = buffers
            .iter()
            .map(|contents| self.buffer(contents))
            .collect();
        let group = self.group(&pipeline, &buffers.iter().collect::<Vec<_>>());
        self.dispatch(&pipeline, &group, count);
        self.read(buffers.last().unwrap())
    }

    /// Runs `body` once in each of `count` invocations, with its index as `i`, and returns what it gives for `out[i]`,
    /// poisoned before. The declarations stand before the kernel.
    pub fn map(&self, declarations: &str, body: &str, count: usize) -> Vec<u32> {
        let source = format!(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
             {declarations}
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                 let i = id.x;
                 if (i >= {count}u) {{ return; }}
                 {body}
             }}"
        );
        let poison = vec![0xdead_beef_u32; count];
        let groups = (count as u32).div_ceil(64);
        self.run(&source, [groups, 1, 1], &[bytemuck::cast_slice(&poison)])
    }
}
