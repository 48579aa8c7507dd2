//! The work of the threads. Each knows what it has to see, and stops at the first thing that is not so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tombolo::{
    Constants, Device, Kernel, PersistentKernel, PrintOptions, Program, heap::HeapError,
    print::PrintRecord, server::DeviceFunction,
};

type Error = Box<dyn std::error::Error + Send + Sync>;

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += id.x + 1u; }
}";

const FOLLOW: &str = "
struct Cell { value: u32, turns: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> first: usm_ptr;
@compute @workgroup_size(1) fn main() {
    let cell = usm_Cell(first);
    let next = usm_Cell(cell.next);
    for (var i = 0u; i < cell.turns; i++) { next.value += cell.value; }
}";

const SAY: &str = "
@group(0) @binding(0) var<uniform> round: u32;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lane: u32) {
    print(\"{} {}\", round, lane);
}";

const MIX: &str = "fn mix(x: u32, y: u32) -> u32 { return (x * 0x85ebca6bu) ^ y; }";

fn mix(x: u32, y: u32) -> u32 {
    x.wrapping_mul(0x85EB_CA6B) ^ y
}

/// As `Cell` of the kernel.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Cell {
    value: u32,
    turns: u32,
    next: u64,
}

fn kernel(device: &Device, source: &str) -> Result<Kernel, Error> {
    let program = Program::new("stress.wgsl", source)?;
    Ok(device.kernel(&program, "main", &Constants::new())?)
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Result<(), Error> {
    match seen == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {seen:?} instead of {wanted:?}").into()),
    }
}

/// Lets all kinds of work meet on one device, `rounds` times each.
pub fn run(device: &Device, rounds: u32) -> Result<(), Error> {
    let server = PersistentKernel::builder(device, &Program::new("server.wgsl", MIX)?)
        .handler("mix")
        .start()?;
    let function: DeviceFunction<(u32, u32), u32> = server.function("mix")?;
    std::thread::scope(|scope| {
        let function = &function;
        let threads = [
            scope.spawn(move || calls(function, 4 * rounds)),
            scope.spawn(move || launches(device, rounds)),
            scope.spawn(move || futures(device, rounds)),
            scope.spawn(move || programs_own(device, rounds)),
            scope.spawn(move || pointers(device, rounds)),
            scope.spawn(move || lines(device, rounds)),
        ];
        let mut ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(_) => Err("a thread has panicked".into()),
        });
        ends.by_ref().find(Result::is_err).unwrap_or(Ok(()))
    })?;
    server.stop();
    Ok(())
}

/// Calls a server on the device.
fn calls(function: &DeviceFunction<(u32, u32), u32>, calls: u32) -> Result<(), Error> {
    for i in 0..calls {
        expect("a call", &function.call(&(i, 7))?, &mix(i, 7))?;
    }
    Ok(())
}

/// Launches, waits, and reads now and then.
fn launches(device: &Device, rounds: u32) -> Result<(), Error> {
    let data = device.zeroed::<u32>(100)?;
    let mut launch = kernel(device, ADD)?
        .launch()
        .buffer("data", &data)
        .invocations(100);
    for round in 1..=rounds {
        launch.submit()?.wait()?;
        if round % 8 == 0 {
            let wanted: Vec<u32> = (1..=100).map(|i| i * round).collect();
            expect("a read", &data.read()?, &wanted)?;
        }
    }
    Ok(())
}

/// Launches and read-backs that are awaited.
fn futures(device: &Device, rounds: u32) -> Result<(), Error> {
    let data = device.zeroed::<u32>(64)?;
    let mut launch = kernel(device, ADD)?
        .launch()
        .buffer("data", &data)
        .invocations(64);
    for round in 1..=rounds {
        let event = launch.submit()?;
        let values = data.read_back(..)?;
        let values = pollster::block_on(async {
            event.await?;
            Ok::<_, Error>(values.await?)
        })?;
        let wanted: Vec<u32> = (1..=64).map(|i| i * round).collect();
        expect("awaited values", &values, &wanted)?;
    }
    Ok(())
}

/// What a program does with wgpu beside the runtime: it submits, polls, and has callbacks, which use the runtime.
fn programs_own(device: &Device, rounds: u32) -> Result<(), Error> {
    let (raw, seen) = (device.raw(), Arc::new(AtomicU32::new(0)));
    for _ in 0..rounds {
        let buffer = raw.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 256,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.clear_buffer(&buffer, 0, None);
        device.raw_queue().submit([encoder.finish()]);
        let (told, own) = (Arc::clone(&seen), device.clone());
        let before = seen.load(Ordering::Acquire);
        buffer.map_async(wgpu::MapMode::Read, .., move |mapped| {
            let flushed = own.flush().is_ok();
            told.fetch_add(u32::from(mapped.is_ok() && flushed), Ordering::Release);
        });
        while seen.load(Ordering::Acquire) == before {
            raw.poll(wgpu::PollType::Poll)?;
            std::thread::yield_now();
        }
    }
    expect("callbacks", &seen.load(Ordering::Acquire), &rounds)
}

/// Kernels that follow pointers, and a host that looks when they have ended.
fn pointers(device: &Device, rounds: u32) -> Result<(), Error> {
    let heap = device.heap()?;
    let cell = |value, turns, next| Cell { value, turns, next };
    let last = heap.alloc(cell(0, 0, 0))?;
    let first = heap.alloc(cell(3, 500, last.address()))?;
    let mut launch = kernel(device, FOLLOW)?
        .launch()
        .value("first", &first)
        .workgroups(1);
    for round in 1..=rounds {
        launch.submit()?;
        let host = heap.host()?;
        expect("behind a pointer", &host.get(last)?.value, &(1500 * round))?;
        drop(host);
        // Freed while a launch may look, and not used again before that is over.
        let short = heap.alloc(round)?;
        launch.submit()?;
        heap.free(short)?;
        match heap.free(short) {
            Err(HeapError::NotAllocated { .. }) => {}
            freed => return Err(format!("freed twice: {freed:?}").into()),
        }
        let mut host = heap.host()?;
        host.get_mut(last)?.value = 1500 * round;
    }
    Ok(())
}

/// Kernels that print.
fn lines(device: &Device, rounds: u32) -> Result<(), Error> {
    let sum = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&sum);
    let sink = PrintOptions::sink(move |line: &PrintRecord<'_>| {
        let numbers = line.to_string();
        let numbers = numbers.split(' ').filter_map(|n| n.parse::<u64>().ok());
        told.fetch_add(numbers.sum(), Ordering::Relaxed);
    });
    let kernel = kernel(device, SAY)?;
    let mut wanted = 0;
    for round in 0..rounds {
        let launch = kernel.launch().value("round", &round).workgroups(1);
        launch.print_to(sink.clone()).submit()?.wait()?;
        wanted += 8 * u64::from(round) + 28;
        expect("lines", &sum.load(Ordering::Relaxed), &wanted)?;
    }
    Ok(())
}
