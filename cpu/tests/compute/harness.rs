//! A device, and kernels run on it in one call.

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
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            required_features: adapter.features(),
            required_limits: adapter.limits(),
            ..Default::default()
        }))
        .unwrap();
        Self { device, queue }
    }

    pub fn pipeline(&self, source: &str) -> wgpu::ComputePipeline {
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(source.into()),
            });
        self.device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: None,
                compilation_options: Default::default(),
                cache: None,
            })
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
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        })
    }

    pub fn dispatch(
        &self,
        pipeline: &wgpu::ComputePipeline,
        group: &wgpu::BindGroup,
        count: [u32; 3],
    ) {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, group, &[]);
        pass.dispatch_workgroups(count[0], count[1], count[2]);
        drop(pass);
        self.queue.submit([encoder.finish()]);
    }

    pub fn read<T: bytemuck::Pod>(&self, buffer: &wgpu::Buffer) -> Vec<T> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .unwrap();
        let bytes = staging.get_mapped_range(..).unwrap();
        bytemuck::pod_collect_to_vec(&bytes)
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
