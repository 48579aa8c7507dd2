//! A kernel on a device.

use std::time::Duration;

use wgpu::util::DeviceExt;

use crate::{Error, clock::Clock, rows::Row};

/// A row on a device, ready to run.
pub struct Ready {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

fn pipeline(device: &wgpu::Device, module: &wgpu::ShaderModule) -> wgpu::ComputePipeline {
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    })
}

impl Ready {
    pub fn new(adapter: &wgpu::Adapter, row: &Row) -> Result<Self, Error> {
        let (device, queue) =
            pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
                required_limits: adapter.limits(),
                ..Default::default()
            }))?;
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(row.source.into()),
        });
        let pipeline = pipeline(&device, &module);
        let buffers: Vec<_> = row
            .buffers
            .iter()
            .map(|contents| {
                device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
                    label: None,
                    contents,
                    usage: wgpu::BufferUsages::STORAGE,
                })
            })
            .collect();
        let entries: Vec<_> = (0..)
            .zip(&buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Ok(Self {
            device,
            queue,
            pipeline,
            group,
        })
    }

    /// The time from a text that wgpu has parsed to a pipeline.
    pub fn compile(&self, row: &Row, clock: Clock) -> Duration {
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(row.source.into()),
            });
        let begin = clock.now();
        let _pipeline = pipeline(&self.device, &module);
        begin.elapsed()
    }

    pub fn run(&self, row: &Row, clock: Clock) -> Result<Duration, Error> {
        let begin = clock.now();
        for _ in 0..row.repeats {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.group, &[]);
            let [x, y, z] = row.groups;
            pass.dispatch_workgroups(x, y, z);
            drop(pass);
            self.queue.submit([encoder.finish()]);
            self.device.poll(wgpu::PollType::wait_indefinitely())?;
        }
        Ok(begin.elapsed())
    }
}
