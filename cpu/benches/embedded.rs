//! The adapter against the software drivers of the machine and against scalar Rust on all processors.
//!
//! Every kernel runs on each adapter in turn, in one process; a row is the median of the ratios of the pairs: this
//! adapter's time divided by the other's. The last lines are the rows:
//! `ratio <row>/<peer> = <median> (<min>..<max>) goal <= <limit>`. Arguments choose the rows that contain one of them;
//! `lanes=4` sets the most invocations that run side by side here.

use std::time::{Duration, Instant};

use wgpu::util::DeviceExt;

/// Pairs measured for each row.
const PAIRS: usize = 7;

/// The same in Rust, on so many threads.
type Rust = fn(&mut [Vec<u8>], usize);

/// A kernel, what it is given, and what is asked of it.
struct Row {
    name: &'static str,
    source: &'static str,
    /// Bytes of the buffers at bindings 0, 1, … of group 0
    buffers: Vec<Vec<u8>>,
    groups: [u32; 3],
    /// Dispatches of a measurement, each awaited
    repeats: u32,
    /// Against lavapipe, SwiftShader and Rust
    goals: [Option<f64>; 3],
    rust: Option<Rust>,
}

fn words(count: usize, f: impl Fn(u32) -> u32) -> Vec<u8> {
    (0..count as u32).flat_map(|i| f(i).to_ne_bytes()).collect()
}

fn floats(count: usize) -> Vec<u8> {
    words(count, |i| (i as f32 * 0.37 % 7.0 + 0.5).to_bits())
}

fn rows() -> Vec<Row> {
    let n = 4 << 20;
    vec![
        Row {
            name: "launch_wait",
            source: "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
                @compute @workgroup_size(1) fn main() { x[0] += 1u; }",
            buffers: vec![words(16, |_| 0)],
            groups: [1, 1, 1],
            repeats: 200,
            goals: [Some(0.15), Some(0.25), None],
            rust: None,
        },
        Row {
            name: "saxpy",
            source: "@group(0) @binding(0) var<storage, read> x: array<f32>;
                @group(0) @binding(1) var<storage, read_write> y: array<f32>;
                @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                    if (id.x < arrayLength(&y)) { y[id.x] = 1.5 * x[id.x] + y[id.x]; }
                }",
            buffers: vec![floats(n), floats(n)],
            groups: [n as u32 / 256, 1, 1],
            repeats: 1,
            goals: [Some(0.2), None, Some(1.5)],
            rust: Some(saxpy),
        },
        Row {
            name: "matmul",
            source: include_str!("matmul.wgsl"),
            buffers: vec![floats(256 * 256), floats(256 * 256), floats(256 * 256)],
            groups: [16, 16, 1],
            repeats: 1,
            goals: [Some(0.2), None, Some(1.5)],
            rust: Some(matmul),
        },
        Row {
            name: "reduce",
            source: include_str!("reduce.wgsl"),
            buffers: vec![floats(n), words(n / 256, |_| 0)],
            groups: [n as u32 / 256, 1, 1],
            repeats: 1,
            goals: [Some(0.2), None, Some(1.5)],
            rust: Some(reduce),
        },
        Row {
            name: "histogram",
            source: "@group(0) @binding(0) var<storage, read> x: array<u32>;
                @group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>, 256>;
                @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                    atomicAdd(&bins[x[id.x] & 255u], 1u);
                }",
            buffers: vec![
                words(1 << 20, |i| i.wrapping_mul(2_654_435_761) >> 7),
                words(256, |_| 0),
            ],
            groups: [(1 << 20) / 256, 1, 1],
            repeats: 1,
            goals: [Some(1.0 / 1.8), None, Some(1.5)],
            rust: Some(histogram),
        },
        Row {
            name: "mandelbrot",
            source: include_str!("mandelbrot.wgsl"),
            buffers: vec![words(512 * 512, |_| 0)],
            groups: [64, 64, 1],
            repeats: 1,
            goals: [Some(1.0), None, Some(1.5)],
            rust: Some(mandelbrot),
        },
        Row {
            name: "chase",
            source: "@group(0) @binding(0) var<storage, read> next: array<u32>;
                @group(0) @binding(1) var<storage, read_write> out: array<u32>;
                @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                    var at = id.x;
                    for (var k = 0u; k < 2000u; k++) { at = next[at]; }
                    out[id.x] = at;
                }",
            buffers: vec![
                words(1 << 16, |i| (i.wrapping_mul(40_503) + 12_345) & 0xffff),
                words(4096, |_| 0),
            ],
            groups: [64, 1, 1],
            repeats: 1,
            goals: [Some(1.0), None, Some(1.5)],
            rust: Some(chase),
        },
    ]
}

/// Splits what a function gives for each index over the processors.
fn spread<T: bytemuck::Pod + Send>(out: &mut [T], threads: usize, f: impl Fn(usize) -> T + Sync) {
    let share = out.len().div_ceil(threads.max(1));
    std::thread::scope(|scope| {
        for (part, out) in out.chunks_mut(share).enumerate() {
            let f = &f;
            scope.spawn(move || {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = f(part * share + i);
                }
            });
        }
    });
}

fn saxpy(buffers: &mut [Vec<u8>], threads: usize) {
    let [x, y] = buffers else { return };
    let x: &[f32] = bytemuck::cast_slice(x);
    let y: &mut [f32] = bytemuck::cast_slice_mut(y);
    let share = y.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (x, y) in x.chunks(share).zip(y.chunks_mut(share)) {
            scope.spawn(move || {
                for (x, y) in x.iter().zip(y) {
                    *y += 1.5 * x;
                }
            });
        }
    });
}

fn matmul(buffers: &mut [Vec<u8>], threads: usize) {
    let [a, b, c] = buffers else { return };
    let (a, b): (&[f32], &[f32]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
    spread(bytemuck::cast_slice_mut::<u8, f32>(c), threads, |i| {
        let (row, column) = (i / 256, i % 256);
        (0..256)
            .map(|k| a[row * 256 + k] * b[k * 256 + column])
            .sum()
    });
}

fn reduce(buffers: &mut [Vec<u8>], threads: usize) {
    let [x, sums] = buffers else { return };
    let x: &[f32] = bytemuck::cast_slice(x);
    spread(bytemuck::cast_slice_mut::<u8, f32>(sums), threads, |i| {
        x[i * 256..(i + 1) * 256].iter().sum()
    });
}

fn histogram(buffers: &mut [Vec<u8>], _threads: usize) {
    let [x, bins] = buffers else { return };
    let bins: &mut [u32] = bytemuck::cast_slice_mut(bins);
    for x in bytemuck::cast_slice::<u8, u32>(x) {
        bins[(x & 255) as usize] += 1;
    }
}

fn mandelbrot(buffers: &mut [Vec<u8>], threads: usize) {
    let out: &mut [u32] = bytemuck::cast_slice_mut(&mut buffers[0]);
    spread(out, threads, |i| {
        let (x, y) = ((i % 512) as f32, (i / 512) as f32);
        let c = (x / 512.0 * 3.0 - 2.0, y / 512.0 * 2.0 - 1.0);
        let (mut z, mut k) = ((0.0f32, 0.0f32), 0);
        while k < 256 && z.0 * z.0 + z.1 * z.1 <= 4.0 {
            z = (z.0 * z.0 - z.1 * z.1 + c.0, 2.0 * z.0 * z.1 + c.1);
            k += 1;
        }
        k
    });
}

fn chase(buffers: &mut [Vec<u8>], threads: usize) {
    let [next, out] = buffers else { return };
    let next: &[u32] = bytemuck::cast_slice(next);
    spread(bytemuck::cast_slice_mut::<u8, u32>(out), threads, |i| {
        (0..2000).fold(i as u32, |at, _| next[at as usize])
    });
}

/// A row on a device, ready to run.
struct Ready {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl Ready {
    fn new(adapter: &wgpu::Adapter, row: &Row) -> Result<Self, Box<dyn std::error::Error>> {
        let (device, queue) =
            pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
                required_limits: adapter.limits(),
                ..Default::default()
            }))?;
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(row.source.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
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

    fn run(&self, row: &Row) -> Result<Duration, Box<dyn std::error::Error>> {
        let begin = Instant::now();
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

fn print(row: &str, peer: &str, mut ratios: Vec<f64>, goal: Option<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    let goal = goal.map_or(String::new(), |goal| format!(" goal <= {goal:.2}"));
    format!(
        "ratio {row}/{peer} = {:.3} ({least:.3}..{most:.3}){goal}",
        ratios[ratios.len() / 2]
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut options = tombolo_cpu::Options::default();
    wanted.retain(|argument| match argument.strip_prefix("lanes=") {
        Some(lanes) => {
            options.lanes = lanes.parse().unwrap_or(options.lanes);
            false
        }
        None => true,
    });
    let instance = tombolo_cpu::Instance::new(options);
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    let own = unsafe { wgpu::Instance::from_hal::<tombolo_cpu::Api>(instance) };
    let own = pollster::block_on(own.request_adapter(&Default::default()))?;
    let drivers = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let drivers = pollster::block_on(drivers.enumerate_adapters(wgpu::Backends::all()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lines = Vec::new();
    for mut row in rows() {
        if !wanted.is_empty() && !wanted.iter().any(|part| row.name.contains(part.as_str())) {
            continue;
        }
        let here = Ready::new(&own, &row)?;
        here.run(&row)?;
        let mut best = Duration::MAX;
        for adapter in &drivers {
            let name = adapter.get_info().name;
            let (peer, goal) = match name.as_str() {
                name if name.contains("llvmpipe") => ("llvmpipe", row.goals[0]),
                name if name.contains("SwiftShader") => ("SwiftShader", row.goals[1]),
                _ => continue,
            };
            let there = Ready::new(adapter, &row)?;
            there.run(&row)?;
            let mut ratios = Vec::new();
            for _ in 0..PAIRS {
                let (mine, other) = (here.run(&row)?, there.run(&row)?);
                best = best.min(mine);
                ratios.push(mine.as_secs_f64() / other.as_secs_f64());
            }
            lines.push(print(row.name, peer, ratios, goal));
        }
        if let Some(rust) = row.rust {
            let mut ratios = Vec::new();
            for _ in 0..PAIRS {
                let mine = here.run(&row)?;
                best = best.min(mine);
                let mut buffers = std::mem::take(&mut row.buffers);
                let begin = Instant::now();
                rust(&mut buffers, threads);
                ratios.push(mine.as_secs_f64() / begin.elapsed().as_secs_f64());
                row.buffers = buffers;
            }
            lines.push(print(row.name, "rust", ratios, row.goals[2]));
        }
        eprintln!("{}: {:?} at best", row.name, best / row.repeats);
    }
    for line in lines {
        println!("{line}");
    }
    Ok(())
}
