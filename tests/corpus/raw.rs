//! The reference: the shader run with wgpu alone, layout and all derived by wgpu.

use crate::interface::Binding;

/// A shader compiled by wgpu without tombolo.
pub struct Reference<'a> {
    device: &'a wgpu::Device,
    queue: &'a wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
}

impl<'a> Reference<'a> {
    /// Compiles; the error is what wgpu has against the shader.
    pub fn new(
        device: &'a wgpu::Device,
        queue: &'a wgpu::Queue,
        source: &str,
        entry: &str,
    ) -> Result<Self, String> {
        let pipeline = checked(device, || {
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(entry),
                source: wgpu::ShaderSource::Wgsl(source.into()),
            });
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout: None,
                module: &module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            })
        })?;
        Ok(Self {
            device,
            queue,
            pipeline,
        })
    }

    /// Runs the shader once on buffers of its own, and returns what each then holds.
    pub fn run(
        &self,
        bindings: &[Binding],
        contents: &[Vec<u32>],
        groups: [u32; 3],
    ) -> Result<Vec<Vec<u32>>, String> {
        let make = |usage, words: &Vec<u32>| {
            let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 4 * words.len() as u64,
                usage: usage | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            self.queue
                .write_buffer(&buffer, 0, bytemuck::cast_slice(words));
            buffer
        };
        let staging = checked(self.device, || {
            let buffers: Vec<wgpu::Buffer> = bindings
                .iter()
                .zip(contents)
                .map(|(binding, words)| {
                    let kind = if binding.uniform {
                        wgpu::BufferUsages::UNIFORM
                    } else {
                        wgpu::BufferUsages::STORAGE
                    };
                    make(kind | wgpu::BufferUsages::COPY_SRC, words)
                })
                .collect();
            let staging: Vec<wgpu::Buffer> = contents
                .iter()
                .map(|words| make(wgpu::BufferUsages::MAP_READ, words))
                .collect();
            let mut encoder = self.device.create_command_encoder(&Default::default());
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                pass.set_pipeline(&self.pipeline);
                let mut numbers: Vec<u32> = bindings.iter().map(|b| b.group).collect();
                numbers.dedup();
                for group in numbers {
                    let entries: Vec<wgpu::BindGroupEntry> = bindings
                        .iter()
                        .zip(&buffers)
                        .filter(|(binding, _)| binding.group == group)
                        .map(|(binding, buffer)| wgpu::BindGroupEntry {
                            binding: binding.binding,
                            resource: buffer.as_entire_binding(),
                        })
                        .collect();
                    let group_bound = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                        label: None,
                        layout: &self.pipeline.get_bind_group_layout(group),
                        entries: &entries,
                    });
                    pass.set_bind_group(group, &group_bound, &[]);
                }
                pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
            }
            for (from, to) in buffers.iter().zip(&staging) {
                encoder.copy_buffer_to_buffer(from, 0, to, 0, from.size());
            }
            self.queue.submit([encoder.finish()]);
            for buffer in &staging {
                buffer.map_async(wgpu::MapMode::Read, .., |_| {});
            }
            staging
        })?;
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|error| error.to_string())?;
        staging
            .iter()
            .map(|buffer| {
                let mapped = buffer.get_mapped_range(..).map_err(|e| e.to_string())?;
                Ok(bytemuck::pod_collect_to_vec(&mapped[..]))
            })
            .collect()
    }
}

/// Runs `work`, and gives the first error that wgpu has against it.
fn checked<T>(device: &wgpu::Device, work: impl FnOnce() -> T) -> Result<T, String> {
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let result = work();
    let errors = [
        pollster::block_on(internal.pop()),
        pollster::block_on(validation.pop()),
    ];
    match errors.into_iter().flatten().next() {
        None => Ok(result),
        Some(error) => Err(error.to_string()),
    }
}
