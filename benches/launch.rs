//! What the runtime costs over hand-written wgpu, on every adapter of the machine.
//!
//! Both sides run on the same wgpu device, in turn, and each row is the median of the ratios of the
//! pairs. The last lines are the rows: `ratio <row> = <median> (<min>..<max>) goal <= <limit>`.

use std::time::Instant;

use tombolo::{Constants, Context, Device, DeviceBuffer, Kernel, Program};

type Error = Box<dyn std::error::Error>;

/// Pairs measured for each row; the first is a warm-up and does not count.
const PAIRS: usize = 15;

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let device = context.device_at(adapter.index)?;
        let name = adapter.name.split([' ', '(']).next().unwrap_or("adapter");
        let mut row = |label: &str, limit: f64, mut pairs: Vec<f64>| {
            pairs.remove(0);
            pairs.sort_by(f64::total_cmp);
            rows.push(format!(
                "ratio {label}/{name} = {:.3} ({:.3}..{:.3}) goal <= {limit}",
                pairs[pairs.len() / 2],
                pairs[0],
                pairs[pairs.len() - 1],
            ));
        };
        row("launch_wait", 1.10, launch_and_wait(&device)?);
        row("batch_1000", 1.05, batch(&device)?);
        row("kernel_untouched", 1.02, kernel_time(&device, SHORT_LOOPS)?);
        // An adapter with a loop budget pays for the guard of loops that are not provably short.
        let limit = if device.capabilities().needs_loop_guard() {
            2.0
        } else {
            1.02
        };
        row("kernel_open_loop", limit, kernel_time(&device, OPEN_LOOP)?);
        row("specialize_extra_microseconds", 2.0, specialize(&device)?);
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

/// The hand-written side: a pipeline with the layout that wgpu derives, and its bind group.
struct Raw {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl Raw {
    fn new(device: &Device, source: &str, data: &DeviceBuffer<u32>) -> Self {
        let raw = device.raw();
        let module = raw.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        let pipeline = raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let group = raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: data.raw().as_entire_binding(),
            }],
        });
        Self { pipeline, group }
    }

    /// One submission of `launches` dispatches, waited for.
    fn run(&self, device: &Device, launches: u32, groups: u32) -> Result<(), Error> {
        let mut encoder = device
            .raw()
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.group, &[]);
            for _ in 0..launches {
                pass.dispatch_workgroups(groups, 1, 1);
            }
        }
        let index = device.raw_queue().submit([encoder.finish()]);
        device.raw().poll(wgpu::PollType::Wait {
            submission_index: Some(index),
            timeout: None,
        })?;
        Ok(())
    }
}

fn ours(device: &Device, source: &str) -> Result<Kernel, Error> {
    let program = Program::new("bench.wgsl", source)?;
    Ok(device.kernel(&program, "main", &Constants::new())?)
}

/// Seconds that `work` takes.
fn seconds(work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Ratios of ours to theirs, run in turn.
fn pairs(
    mut ours: impl FnMut() -> Result<(), Error>,
    mut theirs: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<f64>, Error> {
    (0..=PAIRS)
        .map(|i| {
            // Whoever goes second finds warmer caches: take turns.
            if i % 2 == 0 {
                let a = seconds(&mut ours)?;
                Ok(a / seconds(&mut theirs)?)
            } else {
                let b = seconds(&mut theirs)?;
                Ok(seconds(&mut ours)? / b)
            }
        })
        .collect()
}

fn launch_and_wait(device: &Device) -> Result<Vec<f64>, Error> {
    let data: DeviceBuffer<u32> = device.zeroed(64)?;
    device.finish()?;
    let raw = Raw::new(device, INCREMENT, &data);
    let kernel = ours(device, INCREMENT)?;
    let mut launch = kernel.launch().buffer("data", &data).invocations(64);
    pairs(
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
    let raw = Raw::new(device, INCREMENT, &data);
    let kernel = ours(device, INCREMENT)?;
    let mut launch = kernel.launch().buffer("data", &data).invocations(64);
    pairs(
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

fn kernel_time(device: &Device, source: &str) -> Result<Vec<f64>, Error> {
    let data: DeviceBuffer<u32> = device.zeroed(1 << 16)?;
    device.finish()?;
    let raw = Raw::new(device, source, &data);
    let kernel = ours(device, source)?;
    let mut launch = kernel.launch().buffer("data", &data).workgroups(1 << 10);
    pairs(
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
    Ok(extra)
}
