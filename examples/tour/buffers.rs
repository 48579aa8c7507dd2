//! Buffers that belong to the context, and are wherever they were last used.

use tombolo::{Buffer, Constants, Device, Launch, Program, device::Capability};

use crate::{Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "migration",
        shows: "halves of a buffer on two devices",
        capability: Capability::Buffers,
        run: halves,
    },
    Stop {
        name: "explanation",
        shows: "which bytes a launch moves, and why",
        capability: Capability::Buffers,
        run: explanation,
    },
];

const STEP: &str = "
@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@compute @workgroup_size(64) fn step_on(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&values) { values[id.x] = values[id.x] * 3u + 1u; }
}";

fn step(device: &Device, values: &Buffer<u32>) -> Result<Launch, Box<dyn std::error::Error>> {
    let program = Program::new("step.wgsl", STEP)?;
    let kernel = device.kernel(&program, "step_on", &Constants::new())?;
    let launch = kernel.launch().buffer("values", values);
    Ok(launch.invocations(values.len() as u32))
}

fn halves(stage: &Stage) -> Shown {
    let other = stage.context.device_named(stage.device.name())?;
    let values: Vec<u32> = (0..8192).collect();
    let buffer = stage.context.buffer_from(&values)?;
    let (left, right) = (buffer.slice(..4096)?, buffer.slice(4096..)?);
    for _ in 0..10 {
        step(&stage.device, &left)?.submit()?;
        step(&other, &right)?.submit()?;
    }
    let expected: Vec<u32> = values
        .iter()
        .map(|&value| (0..10).fold(value, |x: u32, _| x.wrapping_mul(3).wrapping_add(1)))
        .collect();
    let moved = buffer.statistics().moves.moved;
    expect("values", &buffer.read()?, &expected)?;
    expect("bytes moved", &moved, &32_768)?;
    held("20 launches; each half moved once")
}

fn explanation(stage: &Stage) -> Shown {
    let other = stage.context.device_named(stage.device.name())?;
    let buffer = stage.context.buffer_from_vec(vec![1u32; 8192])?;
    step(&stage.device, &buffer)?.submit()?;
    buffer.prefetch(&other)?;
    step(&stage.device, &buffer.slice(100..164)?)?.submit()?;
    let mut launch = step(&other, &buffer)?;
    let before = launch.explain()?;
    let event = launch.submit()?;
    expect("what was told before", &event.explanation(), &Some(&before))?;
    let mut expected = vec![4; 8192];
    expected[100..164].fill(13);
    let expected: Vec<u32> = expected.iter().map(|value| value * 3 + 1).collect();
    expect("values", &buffer.read()?, &expected)?;
    let mut ranges = before.buffers.iter().flat_map(|one| &one.moves.movements);
    let is_new = ranges.all(|step| step.range == (400..656));
    expect("that only new bytes moved", &is_new, &true)?;
    held(format!("256 of {} bytes", 4 * buffer.len()))
}
