//! What it costs to move buffers between devices, against reading them back and uploading them by hand in raw wgpu, on
//! the same devices and in turn; and what it costs to find out that nothing has to move.
//!
//! Pairs are two devices of each adapter, the first adapter and the last, two cards that are neighbours, and two adapters
//! that share no memory (`_copies`). The last lines are the rows: `ratio <row>/<pair> = <median> (<min>..<max>) goal <= <limit>`,
//! in time or in bytes moved, and `time <row> = ...` in microseconds.
//!
//! Arguments choose the pairs whose names contain one of them.
//!
//! `cargo test --bench migrate` measures nothing: it checks the planner's decisions.

mod byhand;
mod plan;
#[path = "../support/mod.rs"]
mod support;

use std::time::Instant;

use tombolo::{Buffer, Context, Device, DeviceOptions, Kernel, buffers::Placement};

use byhand::{Halos, Whole};
use support::{Error, ours, pairs, row, spread, words};

/// Bytes of a buffer that moves whole, and how often it goes to and fro in a measurement.
const BYTES: u64 = 16 << 20;
const TURNS: u32 = 3;

/// Rows of a plate and bytes of each; half of the rows are on each device, and both read one row of the other's.
const ROWS: u64 = 1024;
const ROW_BYTES: u64 = 4096;
const STEPS: u32 = 20;

/// Pairs of measurements of a row; few, since each moves many bytes.
const PAIRS: usize = 31;

/// Launches in a measurement of what a launch costs, and such measurements.
const LAUNCHES: u32 = 200;
const ROUNDS: usize = 201;

/// All of `data` counts as written, and nearly nothing is done.
pub const TOUCH: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1) fn main() {
    data[0] = data[0] * 3u + 1u;
    data[arrayLength(&data) - 1u] += data[0];
}";

/// A row from another one.
pub const EDGE: &str = "
@group(0) @binding(0) var<storage, read> now: array<u32>;
@group(0) @binding(1) var<storage, read_write> next: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    next[id.x] = now[id.x] * 3u + id.x;
}";

const LOOK: &str = "
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(1) fn main() { sink[0] += source[0]; }";

fn main() -> Result<(), Error> {
    plan::check()?;
    // `cargo bench` passes it and `cargo test` does not.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let context = Context::new()?;
    let mut rows = Vec::new();
    let only: Vec<String> = (std::env::args().skip(1))
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for (name, [one, other], is_one) in two(&context)? {
        if !only.is_empty() && !only.iter().any(|part| name.contains(part)) {
            continue;
        }
        eprintln!("{name}");
        let devices = [&one, &other];
        for (label, placement) in [("whole", Placement::Device), ("handed", Placement::Auto)] {
            let ratios = whole(&context, devices, placement)?;
            rows.push(row(label, &name, 1.10, ratios));
        }
        let [bytes, times] = halos(&context, devices)?;
        rows.push(row("halo_bytes", &name, 0.05, bytes));
        rows.push(row("halo_time", &name, 1.10, times));
        let bytes = unchanged(&context, devices)?;
        rows.push(row("unchanged_bytes", &name, 0.0, bytes));
        if is_one {
            let label = format!("launch_of_100_ranges_us/{name}");
            rows.push(time(&label, 2.0, decision(&context, &one, &other)?));
        }
    }
    rows.extend(plan::measure()?);
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

/// The pairs, what to call them, and whether they are of one adapter and share memory.
fn two(context: &Context) -> Result<Vec<(String, [Device; 2], bool)>, Error> {
    let adapters = context.adapters();
    let words = words(adapters.iter().map(|adapter| adapter.name.as_str()));
    let mut pairs = Vec::new();
    let mut open = |one: usize, other: usize, import: bool| -> Result<(), Error> {
        let options = DeviceOptions::default().import_host_memory(import);
        let devices = [
            context.device_at_with(one, options.clone())?,
            context.device_at_with(other, options)?,
        ];
        let suffix = if import { "" } else { "_copies" };
        let name = format!("{}_{}{suffix}", words[one], words[other]);
        pairs.push((name, devices, one == other && import));
        Ok(())
    };
    for adapter in &adapters {
        open(adapter.index, adapter.index, true)?;
    }
    let last = adapters.len() - 1;
    if last > 0 {
        open(0, last, true)?;
    }
    // Two cards, and not one card of two backends.
    for pair in adapters.windows(2) {
        let [one, other] = [pair[0].index, pair[1].index];
        let are_cards = pair.iter().all(|adapter| adapter.pci_address.is_some())
            && pair[0].pci_address != pair[1].pci_address;
        if are_cards && (one, other) != (0, last) {
            open(one, other, true)?;
        }
    }
    open(0, last, false)?;
    Ok(pairs)
}

/// A buffer that both devices write in turns.
fn whole(
    context: &Context,
    devices: [&Device; 2],
    placement: Placement,
) -> Result<Vec<f64>, Error> {
    let words = (BYTES / 4) as usize;
    let buffer = context.buffer_from_vec_with(vec![1u32; words], placement)?;
    let launch = |device| -> Result<_, Error> {
        let kernel = ours(device, TOUCH)?;
        Ok(kernel.launch().buffer("data", &buffer).workgroups(1u32))
    };
    let mut launches = [launch(devices[0])?, launch(devices[1])?];
    let mut by_hand = Whole::new(devices, &vec![1u32; words])?;
    let before = buffer.statistics().moves.moved;
    let ratios = pairs(
        PAIRS,
        || {
            for _ in 0..TURNS {
                for launch in &mut launches {
                    launch.submit()?;
                }
            }
            Ok(devices[1].finish()?)
        },
        || by_hand.run(TURNS),
    )?;
    let moves = u64::from(2 * TURNS) * (PAIRS as u64 + 1);
    let moved = (buffer.statistics().moves.moved - before) as f64;
    let hops = moved / (moves * BYTES) as f64;
    eprintln!("  {placement:?}: {hops:.2} bytes moved for each, 2 by hand");
    if buffer.read()? != by_hand.read()? {
        return Err("what moved by itself and what was moved by hand differ".into());
    }
    Ok(ratios)
}

/// Bytes and times of halves that read a row of each other in every step: bytes against halves moved by hand, times
/// against rows moved by hand.
fn halos(context: &Context, devices: [&Device; 2]) -> Result<[Vec<f64>; 2], Error> {
    let words = ROW_BYTES / 4;
    let first: Vec<u32> = (0..(ROWS * words) as u32).collect();
    let plates = [context.buffer_from(&first)?, context.buffer_from(&first)?];
    let half = ROWS / 2;
    let rows = |plate: &Buffer<u32>, from: u64, to: u64| plate.slice(from * words..to * words);
    let launch = |at: usize, kernel: &Kernel, step: usize| -> Result<_, Error> {
        let (now, next) = (&plates[step % 2], &plates[(step + 1) % 2]);
        // The upper device reads the first row of the lower half, and the lower device the last one of the upper.
        let (now, next) = match at {
            0 => (rows(now, half, half + 1)?, rows(next, half - 1, half)?),
            _ => (rows(now, half - 1, half)?, rows(next, half, half + 1)?),
        };
        let launch = kernel.launch().buffer("now", now).buffer("next", next);
        Ok(launch.invocations(words as u32))
    };
    let mut launches = Vec::new();
    for (at, device) in devices.into_iter().enumerate() {
        let kernel = ours(device, EDGE)?;
        launches.push([launch(at, &kernel, 0)?, launch(at, &kernel, 1)?]);
        // As after a step of all rows.
        for plate in &plates {
            let own = at as u64 * half;
            plate
                .slice(own * words..(own + half) * words)?
                .prefetch(device)?;
        }
    }
    let mut by_hand = Halos::new(devices, &first)?;
    let mut step = 0;
    let mut bytes = Vec::new();
    let ratios = pairs(
        PAIRS,
        || {
            let before = context.buffer_statistics().moves.moved;
            for _ in 0..STEPS {
                for launches in &mut launches {
                    launches[step % 2].submit()?;
                }
                step += 1;
            }
            devices[0].finish()?;
            devices[1].finish()?;
            let moved = context.buffer_statistics().moves.moved - before;
            // Down and up again, for both.
            let halves = u64::from(STEPS) * 2 * half * ROW_BYTES * 2;
            bytes.push(moved as f64 / halves as f64);
            Ok(())
        },
        || by_hand.run(STEPS),
    )?;
    // The first one brings what was nowhere yet, and does not count in time either.
    bytes.remove(0);
    let mid = (half * words) as usize;
    let read = plates[step % 2].read()?;
    let seam = &read[mid - words as usize..mid + words as usize];
    if seam != by_hand.read()? {
        return Err("rows that moved by themselves and those moved by hand differ".into());
    }
    Ok([bytes, ratios])
}

/// Bytes moved for a buffer that both devices read in turns, against moving it each time.
fn unchanged(context: &Context, devices: [&Device; 2]) -> Result<Vec<f64>, Error> {
    let buffer = context.buffer_from_vec(vec![7u32; (BYTES / 4) as usize])?;
    let mut launches = Vec::new();
    for device in devices {
        let launch = ours(device, LOOK)?.launch().buffer("source", &buffer);
        let sink = device.zeroed::<u32>(1)?;
        launches.push(launch.buffer("sink", &sink).workgroups(1u32));
    }
    let mut ratios = Vec::new();
    for round in 0..=PAIRS {
        let before = buffer.statistics().moves.moved;
        for launch in &mut launches {
            launch.submit()?.wait()?;
        }
        let moved = buffer.statistics().moves.moved - before;
        // The first time it is brought there.
        if round > 0 {
            ratios.push(moved as f64 / (4 * BYTES) as f64);
        }
    }
    Ok(ratios)
}

/// Microseconds that a launch takes longer to submit with a buffer of the context in 100 ranges, all of which are there,
/// than with a buffer of the device.
fn decision(context: &Context, one: &Device, other: &Device) -> Result<Vec<f64>, Error> {
    const RANGES: u64 = 100;
    const WORDS: u64 = 1024;
    let buffer = context.buffer_from_vec(vec![3u32; (RANGES * WORDS) as usize])?;
    let touch = ours(one, TOUCH)?;
    let touch = touch.launch().buffer("data", &buffer).workgroups(1u32);
    { touch }.submit()?.wait()?;
    for range in (0..RANGES).step_by(2) {
        let part = buffer.slice(range * WORDS..(range + 1) * WORDS)?;
        part.prefetch(other)?.wait()?;
    }
    if buffer.whereabouts().len() as u64 != RANGES {
        return Err("the buffer is not in 100 ranges".into());
    }
    let sink = one.zeroed::<u32>(1)?;
    let there = one.buffer(&vec![3u32; (RANGES * WORDS) as usize])?;
    let look = ours(one, LOOK)?;
    let mut launches = [
        look.launch()
            .buffer("source", &buffer)
            .buffer("sink", &sink)
            .workgroups(1u32),
        look.launch()
            .buffer("source", &there)
            .buffer("sink", &sink)
            .workgroups(1u32),
    ];
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let mut spent = [0.0; 2];
        for turn in 0..2 {
            let at = (turn + round) % 2;
            let begun = Instant::now();
            for _ in 0..LAUNCHES {
                launches[at].submit()?;
            }
            spent[at] = begun.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES);
            one.finish()?;
        }
        if round > 0 {
            times.push(spent[0] - spent[1]);
        }
    }
    Ok(times)
}

/// The line of a row in microseconds.
pub fn time(label: &str, limit: f64, times: Vec<f64>) -> String {
    let spread = spread(times, 3);
    format!("time {label} = {spread} goal <= {limit:.2}")
}
