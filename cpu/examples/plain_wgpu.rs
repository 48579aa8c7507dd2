//! The adapter with nothing but wgpu: an instance, a buffer, a dispatch, the results read back and compared with the host's own.
//!
//! ```sh
//! cargo run -p tombolo-cpu --example plain_wgpu
//! ```

use std::error::Error;

/// Collatz: how many steps a number takes to 1.
const SOURCE: &str = "
    @group(0) @binding(0) var<storage, read_write> numbers: array<u32>;

    @compute @workgroup_size(64)
    fn steps(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&numbers) { return; }
        var n = numbers[id.x];
        var count = 0u;
        while n > 1u {
            n = select(n / 2u, 3u * n + 1u, n % 2u == 1u);
            count++;
        }
        numbers[id.x] = count;
    }";

/// The same on the host.
fn steps(mut n: u32) -> u32 {
    let mut count = 0;
    while n > 1 {
        n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
        count += 1;
    }
    count
}

fn main() -> Result<(), Box<dyn Error>> {
    // 1. An instance of wgpu with this adapter and no other. From here on, everything is wgpu's.
    let instance = tombolo_cpu::Instance::default();
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    let instance = unsafe { wgpu::Instance::from_hal::<tombolo_cpu::Api>(instance) };
    let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
    let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
    println!("{}", adapter.get_info().name);

    // 2. A pipeline: WGSL becomes machine code here.
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("collatz"),
        source: wgpu::ShaderSource::Wgsl(SOURCE.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("steps"),
        layout: None,
        module: &module,
        entry_point: Some("steps"),
        compilation_options: Default::default(),
        cache: None,
    });

    // 3. Buffers: one for the kernel, one for the host to read.
    let numbers: Vec<u32> = (1..=10_000).collect();
    let size = (numbers.len() * size_of::<u32>()) as u64;
    let buffer = |label, usage| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage,
            mapped_at_creation: false,
        })
    };
    let usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
    let storage = buffer("numbers", usage);
    let readable = buffer(
        "results",
        wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
    );
    queue.write_buffer(&storage, 0, bytemuck::cast_slice(&numbers));
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: storage.as_entire_binding(),
        }],
    });

    // 4. A dispatch, and a copy of what it wrote.
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups((numbers.len() as u32).div_ceil(64), 1, 1);
    drop(pass);
    encoder.copy_buffer_to_buffer(&storage, 0, &readable, 0, size);
    queue.submit([encoder.finish()]);

    // 5. The results, beside the host's.
    readable.map_async(wgpu::MapMode::Read, .., |_| {});
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let found: Vec<u32> = bytemuck::pod_collect_to_vec(&readable.get_mapped_range(..)?);
    let expected: Vec<u32> = numbers.iter().map(|&n| steps(n)).collect();
    if found != expected {
        return Err("the kernel and the host do not agree".into());
    }
    let longest = (numbers.iter().zip(&found)).max_by_key(|(_, count)| **count);
    if let Some((n, count)) = longest {
        println!("{n} takes {count} steps to 1, more than any other number up to 10,000");
    }
    Ok(())
}
