//! Calls that travel in slices, as on devices without live memory, against a loop of dispatches in raw wgpu that is made
//! for one function: the same number of calls at a time, and one batch on its way while the next is filled. Each row is
//! the ratio of the calls in a second, ours to theirs, in turn on the same adapter.

mod support;

use std::sync::mpsc::{Receiver, channel};

use support::{Error, Raw, seconds, spread, word};
use tombolo::{Context, Device, DeviceOptions, PersistentKernel, Program, server::DeviceFunction};

const ROUNDS: usize = 9;
/// Calls at a time.
const BATCHES: [usize; 3] = [64, 512, 4096];
/// Batches of one measurement.
const COUNT: usize = 100;

const SERVER: &str =
    "fn mix(x: u32, y: u32) -> u32 { return (x ^ 0x9e3779b9u) * 0x85ebca6bu ^ y; }";
const RAW: &str = "
@group(0) @binding(0) var<storage, read> arguments: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&results) {
        let call = arguments[id.x];
        results[id.x] = (call.x ^ 0x9e3779b9u) * 0x85ebca6bu ^ call.y;
    }
}";

fn mix([x, y]: [u32; 2]) -> u32 {
    (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B) ^ y
}

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    for adapter in context.adapters() {
        let name = word(&adapter.name);
        for batch in BATCHES {
            let options = DeviceOptions::default().live_memory(false);
            let device = context.device_at_with(adapter.index, options.clone())?;
            let program = Program::new("server.wgsl", SERVER)?;
            let server = PersistentKernel::builder(&device, &program)
                .handler("mix")
                .ports(2 * batch)
                .start()?;
            let function = server.function::<(u32, u32), u32>("mix")?;
            let raw = Loop::new(context.device_at_with(adapter.index, options)?, batch);
            let calls: Vec<[u32; 2]> = (0..(batch * COUNT) as u32)
                .map(|i| [i, i.rotate_left(7)])
                .collect();
            let tuples: Vec<(u32, u32)> = calls.iter().map(|&[x, y]| (x, y)).collect();
            let mut ratios = Vec::new();
            let mut rates = Vec::new();
            for round in 0..=ROUNDS {
                let leases = server.leases();
                let ours = seconds(|| many(&function, &tuples, &calls))?;
                let theirs = seconds(|| raw.run(&calls))?;
                if round > 0 {
                    ratios.push(theirs / ours);
                    rates.push(calls.len() as f64 / ours / 1e3);
                } else {
                    eprintln!("{name} {batch}: {} slices", server.leases() - leases);
                }
            }
            let (ratios, rates) = (spread(ratios, 3), spread(rates, 1));
            println!("ratio sliced_{batch}/{name} = {ratios} goal >= 0.8");
            println!("rate sliced_{batch}_k/{name} = {rates}");
        }
    }
    Ok(())
}

fn many(
    function: &DeviceFunction<(u32, u32), u32>,
    tuples: &[(u32, u32)],
    calls: &[[u32; 2]],
) -> Result<(), Error> {
    for (result, &call) in function.call_all(tuples)?.into_iter().zip(calls) {
        assert_eq!(result, mix(call));
    }
    Ok(())
}

/// The hand-written side.
struct Loop {
    device: Device,
    slots: [Slot; 2],
    batch: usize,
}

struct Slot {
    kernel: Raw,
    arguments: wgpu::Buffer,
    results: wgpu::Buffer,
    back: wgpu::Buffer,
}

/// A batch on its way.
struct Flight {
    index: wgpu::SubmissionIndex,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

impl Loop {
    fn new(device: Device, batch: usize) -> Self {
        use wgpu::BufferUsages as Usage;
        let raw = device.raw();
        let slots = std::array::from_fn(|_| {
            let make = |words: usize, usage| {
                raw.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: words as u64 * 4,
                    usage,
                    mapped_at_creation: false,
                })
            };
            let arguments = make(2 * batch, Usage::STORAGE | Usage::COPY_DST);
            let results = make(batch, Usage::STORAGE | Usage::COPY_SRC);
            Slot {
                kernel: Raw::new(&device, RAW, &[&arguments, &results]),
                arguments,
                back: make(batch, Usage::MAP_READ | Usage::COPY_DST),
                results,
            }
        });
        Self {
            slots,
            batch,
            device,
        }
    }

    fn send(&self, slot: &Slot, calls: &[[u32; 2]]) -> Flight {
        let (raw, queue) = (self.device.raw(), self.device.raw_queue());
        queue.write_buffer(&slot.arguments, 0, bytemuck::cast_slice(calls));
        let mut encoder = raw.create_command_encoder(&Default::default());
        let groups = self.batch.div_ceil(64) as u32;
        slot.kernel.encode(&mut encoder, 1, groups);
        let bytes = slot.back.size();
        encoder.copy_buffer_to_buffer(&slot.results, 0, &slot.back, 0, bytes);
        let index = queue.submit([encoder.finish()]);
        let (sender, mapped) = channel();
        slot.back.map_async(wgpu::MapMode::Read, .., move |result| {
            let _ = sender.send(result);
        });
        Flight { index, mapped }
    }

    fn collect(&self, slot: &Slot, flight: Flight, results: &mut Vec<u32>) -> Result<(), Error> {
        self.device.raw().poll(wgpu::PollType::Wait {
            submission_index: Some(flight.index),
            timeout: None,
        })?;
        flight.mapped.recv()??;
        {
            let view = slot.back.get_mapped_range(..)?;
            results.extend_from_slice(bytemuck::cast_slice(&view));
        }
        slot.back.unmap();
        Ok(())
    }

    fn run(&self, calls: &[[u32; 2]]) -> Result<(), Error> {
        let mut results = Vec::with_capacity(calls.len());
        let mut flying: Option<(usize, Flight)> = None;
        for (index, calls) in calls.chunks(self.batch).enumerate() {
            let slot = index % 2;
            let flight = self.send(&self.slots[slot], calls);
            if let Some((slot, flight)) = flying.replace((slot, flight)) {
                self.collect(&self.slots[slot], flight, &mut results)?;
            }
        }
        if let Some((slot, flight)) = flying {
            self.collect(&self.slots[slot], flight, &mut results)?;
        }
        for (result, &call) in results.into_iter().zip(calls) {
            assert_eq!(result, mix(call));
        }
        Ok(())
    }
}
