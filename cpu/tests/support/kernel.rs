//! Kernels run on a device of wgpu, and memory read back: for tests of this adapter and of others.

/// A device with all limits of an adapter and those of `features` that it has.
pub fn open(adapter: &wgpu::Adapter, features: wgpu::Features) -> (wgpu::Device, wgpu::Queue) {
    pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_features: adapter.features() & features,
        required_limits: adapter.limits(),
        ..Default::default()
    }))
    .unwrap()
}

/// The one entry point of a text, with the layout that its bindings have.
pub fn pipeline(device: &wgpu::Device, source: &str) -> wgpu::ComputePipeline {
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

/// A group of resources at bindings 0, 1, … of group 0.
pub fn bind<'a>(
    device: &wgpu::Device,
    pipeline: &wgpu::ComputePipeline,
    resources: impl IntoIterator<Item = wgpu::BindingResource<'a>>,
) -> wgpu::BindGroup {
    let entries: Vec<_> = (0..)
        .zip(resources)
        .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
        .collect();
    device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    })
}

/// Submits a dispatch of `count` work-groups.
pub fn dispatch(
    (device, queue): (&wgpu::Device, &wgpu::Queue),
    pipeline: &wgpu::ComputePipeline,
    group: &wgpu::BindGroup,
    count: [u32; 3],
) {
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(pipeline);
    pass.set_bind_group(0, group, &[]);
    pass.dispatch_workgroups(count[0], count[1], count[2]);
    drop(pass);
    queue.submit([encoder.finish()]);
}

/// What a buffer holds once all that was submitted has ended.
pub fn read((device, queue): (&wgpu::Device, &wgpu::Queue), buffer: &wgpu::Buffer) -> Vec<u8> {
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: buffer.size(),
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
    queue.submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    staging.get_mapped_range(..).unwrap().to_vec()
}
