//! What the runtime costs over hand-written wgpu, on every adapter of the machine.
//!
//! Both sides run on the same wgpu device, in turn, and each row is the median of the ratios of the
//! pairs. The last lines are the rows: `ratio <row> = <median> (<min>..<max>) goal <= <limit>`. Arguments choose the rows
//! whose names with their adapters (`launch_wait/llvmpipe`) contain one of them.

mod support;

use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Kernel, Program, device::WaitPolicy,
};

use support::{Error, Raw, ours, pairs, seconds, word};

/// Pairs measured for each row.
const PAIRS: usize = 15;

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let only: Vec<String> = (std::env::args().skip(1))
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let device = context.device_at(adapter.index)?;
        let name = word(&adapter.name);
        let mut row = |label: &str,
                       limit: f64,
                       measure: &dyn Fn() -> Result<Vec<f64>, Error>|
         -> Result<(), Error> {
            let whole = format!("{label}/{name}");
            if only.is_empty() || only.iter().any(|part| whole.contains(part)) {
                rows.push(support::row(label, name, limit, measure()?));
            }
            Ok(())
        };
        // A graphics processor works while the host records, and a thread that looks is back before one that is woken.
        let [waited, kept] = match device.capabilities().software {
            true => [1.03, 1.00],
            false => [0.6, 0.9],
        };
        row("launch_wait", waited, &|| launch_and_wait(&device))?;
        let options = DeviceOptions::default().wait(WaitPolicy::Park);
        let parked = context.device_at_with(adapter.index, options)?;
        row("launch_wait_parked", 1.10, &|| launch_and_wait(&parked))?;
        row("batch_1000", 1.00, &|| batch(&device))?;
        row("prepared", kept, &|| prepared(&device))?;
        row("kernel_untouched", 1.02, &|| {
            kernel_time(&device, SHORT_LOOPS)
        })?;
        // An adapter with a loop budget pays for the guard of loops that are not provably short.
        let limit = if device.capabilities().needs_loop_guard() {
            2.0
        } else {
            1.02
        };
        row("kernel_open_loop", limit, &|| {
            kernel_time(&device, OPEN_LOOP)
        })?;
        row("specialize_extra_microseconds", 2.0, &|| {
            specialize(&device)
        })?;
    }
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@group(0) @binding(1) var<uniform> n: u32;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += n; }
}";

const SHORT_LOOPS: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var x = data[id.x];
    for (var i = 0u; i < 2000u; i++) { x = (x ^ (x >> 7u)) * 1664525u + i; }
    data[id.x] = x;
}";

const OPEN_LOOP: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var x = data[id.x];
    let turns = 2000u + (arrayLength(&data) & 1u);
    for (var i = 0u; i < turns; i++) { x = (x ^ (x >> 7u)) * 1664525u + i; }
    data[id.x] = x;
}";

const SPECIALIZED: &str = "
override N: u32 = 4;
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var private_values: array<u32, N>;
    for (var i = 0u; i < N; i++) { private_values[i] = id.x * i; }
    data[id.x] = private_values[id.x % N];
}";

fn launch_and_wait(device: &Device) -> Result<Vec<f64>, Error> {
    let data: DeviceBuffer<u32> = device.zeroed(64)?;
    device.finish()?;
    let raw = Raw::new(device, INCREMENT, &[data.raw()]);
    let kernel = ours(device, INCREMENT)?;
    let mut launch = kernel.launch().buffer("data", &data).invocations(64);
    pairs(
        PAIRS,
        || {
            for _ in 0..500 {
                launch.submit()?.wait()?;
            }
            Ok(())
        },
        || {
            for _ in 0..500 {
                raw.run(device, 1, 1)?;
            }
            Ok(())
        },
    )
}

fn batch(device: &Device) -> Result<Vec<f64>, Error> {
    let data: DeviceBuffer<u32> = device.zeroed(64)?;
    device.finish()?;
    let raw = Raw::new(device, INCREMENT, &[data.raw()]);
    let kernel = ours(device, INCREMENT)?;
    let mut launch = kernel.launch().buffer("data", &data).invocations(64);
    pairs(
        PAIRS,
        || {
            for _ in 0..5 {
                for _ in 0..999 {
                    launch.submit()?;
                }
                launch.submit()?.wait()?;
            }
            Ok(())
        },
        || {
            for _ in 0..5 {
                raw.run(device, 1000, 1)?;
            }
            Ok(())
        },
    )
}

/// A launch that is kept, submitted with another value each time, beside a kept bind group at another offset each time.
fn prepared(device: &Device) -> Result<Vec<f64>, Error> {
    const LAUNCHES: u32 = 1000;
    let data: DeviceBuffer<u32> = device.zeroed(64)?;
    device.finish()?;
    let raw = device.raw();
    let stride = raw.limits().min_uniform_buffer_offset_alignment.max(16);
    let values = raw.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: u64::from(LAUNCHES * stride),
        usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let (pipeline, group) = support::at_offsets(device, ADD, data.raw(), &values);
    let kernel = ours(device, ADD)?;
    let launch = kernel.launch().buffer("data", &data).value("n", &0u32);
    let mut launch = launch.invocations(64);
    pairs(
        PAIRS,
        || {
            for n in 1..LAUNCHES {
                launch.set_value("n", &n)?;
                launch.submit()?;
            }
            Ok(launch.submit()?.wait()?)
        },
        || {
            let mut bytes = vec![0u8; (LAUNCHES * stride) as usize];
            for (n, place) in (0u32..).zip(bytes.chunks_mut(stride as usize)) {
                place[..4].copy_from_slice(&n.to_le_bytes());
            }
            device.raw_queue().write_buffer(&values, 0, &bytes);
            let mut encoder = raw.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            for n in 0..LAUNCHES {
                pass.set_bind_group(0, &group, &[n * stride]);
                pass.dispatch_workgroups(1, 1, 1);
            }
            drop(pass);
            let index = device.raw_queue().submit([encoder.finish()]);
            raw.poll(wgpu::PollType::Wait {
                submission_index: Some(index),
                timeout: None,
            })?;
            Ok(())
        },
    )
}

fn kernel_time(device: &Device, source: &str) -> Result<Vec<f64>, Error> {
    let data: DeviceBuffer<u32> = device.zeroed(1 << 16)?;
    device.finish()?;
    let raw = Raw::new(device, source, &[data.raw()]);
    let kernel = ours(device, source)?;
    let mut launch = kernel.launch().buffer("data", &data).workgroups(1 << 10);
    pairs(
        PAIRS,
        || Ok(launch.submit()?.wait()?),
        || raw.run(device, 1, 1 << 10),
    )
}

/// Microseconds that asking for a specialized kernel adds to a launch, once it is cached.
fn specialize(device: &Device) -> Result<Vec<f64>, Error> {
    const LAUNCHES: u32 = 1000;
    let data: DeviceBuffer<u32> = device.zeroed(64)?;
    let program = Program::new("bench.wgsl", SPECIALIZED)?;
    let sizes = [3u32, 5, 7, 9];
    let kernels: Vec<Kernel> = sizes
        .iter()
        .map(|&n| device.kernel(&program, "main", &Constants::new().set("N", n)))
        .collect::<Result<_, _>>()?;
    let mut extra = Vec::new();
    for _ in 0..=PAIRS {
        let plain = seconds(|| {
            for i in 0..LAUNCHES {
                let kernel = &kernels[i as usize % sizes.len()];
                kernel
                    .launch()
                    .buffer("data", &data)
                    .workgroups(1)
                    .submit()?;
            }
            Ok(())
        })?;
        device.finish()?;
        let specialized = seconds(|| {
            for i in 0..LAUNCHES {
                let constants = Constants::new().set("N", sizes[i as usize % sizes.len()]);
                let kernel = device.kernel(&program, "main", &constants)?;
                kernel
                    .launch()
                    .buffer("data", &data)
                    .workgroups(1)
                    .submit()?;
            }
            Ok(())
        })?;
        device.finish()?;
        extra.push((specialized - plain) / f64::from(LAUNCHES) * 1e6);
    }
    Ok(extra.split_off(1))
}
