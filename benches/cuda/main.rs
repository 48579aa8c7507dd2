//! What the runtime costs beside CUDA, on the NVIDIA adapters of a machine that has CUDA's compiler.
//!
//! The peer (`peer.cu`) is compiled by `nvcc` when the bench starts, and runs as a process of its own that does a row's work when
//! asked; both sides go in turn on the same card, and each row is the median of the ratios of the pairs. Transfers go between
//! the card and memory that is used again and again: ordinary memory, and pinned memory in rows that end with `_pinned`. `copy_kernel_heap` follows pointers into the shared heap, against CUDA's kernel
//! over memory of the card. `saxpy`, `reduce`, `matmul` and `mandelbrot` are the same kernels on both sides. Adapters that CUDA does not drive have no rows. The last lines are the rows:
//! `ratio <row> = <median> (<min>..<max>) goal <= <limit>`.

mod kernels;
#[path = "../support/mod.rs"]
mod support;

use tombolo::buffers::PinnedVec;
use tombolo::{Context, Device, DeviceBuffer, Launch};

use support::cuda::{self, Peer};
use support::{Error, ours, spread, word};

/// Pairs measured for each row.
const PAIRS: usize = 11;
const SMALL: usize = 4 << 10;
const LARGE: usize = 256 << 20;
/// What a copy kernel copies: enough that what stands between two launches counts little beside the memory.
const COPIED: usize = 512 << 20;

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let nvidia: Vec<_> = (context.adapters().into_iter())
        .filter(|adapter| adapter.name.contains("NVIDIA"))
        .collect();
    if nvidia.is_empty() {
        eprintln!("no adapter here is one that CUDA drives");
        return Ok(());
    }
    let Some(mut peer) = Peer::start(include_str!("peer.cu"), &[], PAIRS)? else {
        eprintln!("{}", cuda::ABSENT);
        return Ok(());
    };
    let mut rows = Vec::new();
    for adapter in nvidia {
        eprintln!("{}", adapter.name);
        // With a heap of its own, which another card's may have filled.
        let device = Context::new()?.device_at(adapter.index)?;
        let name = word(&adapter.name);
        measure(&device, &mut peer, |label, goal, ratios| {
            let goal = goal.map_or(String::new(), |goal: f64| format!(" goal <= {goal}"));
            rows.push(format!(
                "ratio {label}/{name} = {}{goal}",
                spread(ratios, 3)
            ));
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

const COPY: &str = "
@group(0) @binding(0) var<storage, read> input: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<u32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&output); i += groups.x * 256u) { output[i] = input[i]; }
}";

const COPY_HEAP: &str = "
alias Items = array<vec4<u32>>;
@group(0) @binding(0) var<uniform> input: usm_ptr;
@group(0) @binding(1) var<uniform> output: usm_ptr;
@group(0) @binding(2) var<uniform> len: u32;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let read = usm_Items(input);
    let written = usm_Items(output);
    for (var i = id.x; i < len; i += groups.x * 256u) { written[i] = read[i]; }
}";

/// Work-groups of the copy kernels: each invocation copies four elements, as those of the peer do.
const COPY_GROUPS: u32 = (COPIED / 16 / 256 / 4) as u32;
/// Launches of a copy kernel in a measurement.
const COPIES: u32 = 20;

/// Gives `row` the label, the goal and the ratios of every row.
fn measure(
    device: &Device,
    peer: &mut Peer,
    mut row: impl FnMut(&str, Option<f64>, Vec<f64>),
) -> Result<(), Error> {
    let data: DeviceBuffer<u32> = device.zeroed(SMALL / 4)?;
    let increment = ours(device, INCREMENT)?;
    let mut launch = increment.launch().buffer("data", &data).invocations(64);
    let ratios = peer.pairs("launch_wait", 500, || {
        (0..500).try_for_each(|_| Ok(launch.submit()?.wait()?))
    })?;
    row("launch_wait", None, ratios);
    let ratios = peer.pairs("batch_1000", 5, || {
        for _ in 0..5 {
            for _ in 0..999 {
                launch.submit()?;
            }
            launch.submit()?.wait()?;
        }
        Ok(())
    })?;
    row("batch_1000", None, ratios);
    let mut values = vec![0u32; SMALL / 4];
    let mut launch = increment
        .launch()
        .buffer("data", &data)
        .invocations(SMALL as u32 / 4);
    let mut launch_and_read = |peer: &mut Peer| {
        peer.pairs("launch_read_4k", 200, || {
            for _ in 0..200 {
                launch.submit()?;
                data.read_into(0, &mut values)?;
            }
            Ok(())
        })
    };
    row("launch_read_4k", None, launch_and_read(peer)?);
    // What came before must not show.
    let bytes: DeviceBuffer<u8> = device.zeroed(LARGE)?;
    large(peer, &mut row, ["read_256m", "read_256m_pinned"], |host| {
        Ok(bytes.read_into(0, host)?)
    })?;
    row("launch_read_4k_after_reads", None, launch_and_read(peer)?);
    large(
        peer,
        &mut row,
        ["write_256m", "write_256m_pinned"],
        |host| Ok(bytes.write(0, host)?.wait()?),
    )?;
    row("launch_read_4k_after_writes", None, launch_and_read(peer)?);
    copies(device, peer, &mut row)?;
    kernels::measure(device, peer, &mut row)
}

/// Large transfers, between the card and memory that is there: ordinary memory and pinned memory, on both sides.
fn large(
    peer: &mut Peer,
    row: &mut impl FnMut(&str, Option<f64>, Vec<f64>),
    [ordinary, pinned]: [&str; 2],
    transfer: impl Fn(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut host = vec![3u8; LARGE];
    row(
        ordinary,
        Some(1.11),
        peer.pairs(ordinary, 1, || transfer(&mut host))?,
    );
    drop(host);
    let mut host = PinnedVec::<u8>::zeroed(LARGE)?;
    host.fill(3);
    row(
        pinned,
        Some(1.11),
        peer.pairs(pinned, 1, || transfer(&mut host))?,
    );
    Ok(())
}

/// The copy kernel, over buffers of the device and over the shared heap.
fn copies(
    device: &Device,
    peer: &mut Peer,
    row: &mut impl FnMut(&str, Option<f64>, Vec<f64>),
) -> Result<(), Error> {
    let input: DeviceBuffer<u8> = device.zeroed(COPIED)?;
    let output: DeviceBuffer<u8> = device.zeroed(COPIED)?;
    let copy = ours(device, COPY)?;
    let mut launch = (copy.launch().buffer("input", &input))
        .buffer("output", &output)
        .workgroups(COPY_GROUPS);
    row(
        "copy_kernel",
        Some(1.05),
        peer.pairs("copy_kernel", COPIES, || repeat(&mut launch))?,
    );
    let heap = device.heap()?;
    let bytes = COPIED as u64;
    let (input, output) = (heap.alloc_bytes(bytes, 16)?, heap.alloc_bytes(bytes, 16)?);
    let copy = ours(device, COPY_HEAP)?;
    let mut launch = (copy.launch().value("input", &input))
        .value("output", &output)
        .value("len", &(COPIED as u32 / 16))
        .workgroups(COPY_GROUPS);
    row(
        "copy_kernel_heap",
        Some(1.11),
        peer.pairs("copy_kernel", COPIES, || repeat(&mut launch))?,
    );
    Ok(())
}

fn repeat(launch: &mut Launch) -> Result<(), Error> {
    for _ in 1..COPIES {
        launch.submit()?;
    }
    Ok(launch.submit()?.wait()?)
}
