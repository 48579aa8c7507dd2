//! The devices of the tests, and a kernel for them.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use crate::device::hooks::alone;
use crate::device::import::{ImportError, Opened, import_host, import_limits, request_device};
use crate::device::window::{Pinned, Window};

pub(super) const MIB: u64 = 1 << 20;

/// The adapters, and the right to use them: software drivers do not stand several tests at once.
pub(super) struct Machine {
    pub(super) adapters: Vec<wgpu::Adapter>,
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    pub(super) fn new() -> Self {
        let alone = alone();
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(descriptor);
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        assert!(
            !adapters.is_empty(),
            "no Vulkan driver: run `cargo xtask test`, which provides software drivers"
        );
        Self {
            adapters,
            _alone: alone,
        }
    }

    /// A device on each adapter with imports; the software drivers must be among them.
    pub(super) fn ports(&self) -> Vec<Port> {
        let opened = self
            .adapters
            .iter()
            .map(|adapter| (adapter, Port::open(adapter)));
        opened
            .filter_map(|(adapter, port)| match import_limits(&port.device) {
                Ok(_) => Some(port),
                Err(error) => {
                    let name = adapter.get_info().name;
                    let software = name.contains("llvmpipe") || name.contains("SwiftShader");
                    assert!(!software, "{name}: {error}");
                    eprintln!("{name} is left out: {error}");
                    None
                }
            })
            .collect()
    }
}

/// A device with a kernel that adds to words.
pub(super) struct Port {
    pub(super) name: String,
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) add: wgpu::ComputePipeline,
}

pub(super) fn descriptor(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    wgpu::DeviceDescriptor {
        label: Some("import test"),
        required_features: wgpu::Features::TIMESTAMP_QUERY & adapter.features(),
        required_limits: adapter.limits(),
        ..Default::default()
    }
}

impl Port {
    pub(super) fn open(adapter: &wgpu::Adapter) -> Self {
        let descriptor = descriptor(adapter);
        let opened = pollster::block_on(request_device(adapter, &descriptor, true));
        let Opened { device, queue, .. } = opened.unwrap();
        let add = pipeline(
            &device,
            "@group(0) @binding(0) var<storage, read_write> words: array<u32>;
             @group(0) @binding(1) var<uniform> by: u32;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                let i = id.x + id.y * 64u * 1024u;
                if i < arrayLength(&words) { words[i] = words[i] + by; }
             }",
        );
        Self {
            name: adapter.get_info().name,
            device,
            queue,
            add,
        }
    }

    pub(super) fn import(
        &self,
        window: &Arc<Window>,
        range: Range<u64>,
    ) -> Result<wgpu::Buffer, ImportError> {
        import_host(&self.device, window, range, "imported")
    }

    /// The commands that add `by` to the first `words` words at `offset` of a buffer.
    pub(super) fn adding(
        &self,
        buffer: &wgpu::Buffer,
        offset: u64,
        words: u64,
        by: u32,
    ) -> wgpu::CommandBuffer {
        let groups = u32::try_from(words.div_ceil(64)).unwrap();
        self.commands(&self.add, buffer, offset, words * 4, by, groups)
    }

    /// A launch on `bytes` at `offset` of a buffer, with `value` as its uniform.
    pub(super) fn commands(
        &self,
        pipeline: &wgpu::ComputePipeline,
        buffer: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        value: u32,
        groups: u32,
    ) -> wgpu::CommandBuffer {
        let uniform = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 4,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&uniform, 0, &value.to_le_bytes());
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[
                wgpu::BindGroupEntry {
                    binding: 0,
                    resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer,
                        offset,
                        size: Some(bytes.try_into().unwrap()),
                    }),
                },
                wgpu::BindGroupEntry {
                    binding: 1,
                    resource: uniform.as_entire_binding(),
                },
            ],
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(groups.min(1024), groups.div_ceil(1024), 1);
        }
        encoder.finish()
    }

    pub(super) fn add(&self, buffer: &wgpu::Buffer, offset: u64, words: u64, by: u32) {
        self.queue.submit([self.adding(buffer, offset, words, by)]);
        self.finish();
    }

    pub(super) fn finish(&self) {
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .unwrap();
    }
}

pub(super) fn pipeline(device: &wgpu::Device, source: &str) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    })
}

/// A window with memory in its first `bytes`, and a hold on the bytes for looking inside.
pub(super) fn window(bytes: u64) -> (Arc<Window>, Pinned) {
    let window = Window::reserve(Window::ALIGNMENT).unwrap();
    window.commit(0..bytes).unwrap();
    let pinned = window.pin(0..bytes).unwrap();
    (window, pinned)
}
