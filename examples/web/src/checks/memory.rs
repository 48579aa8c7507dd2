//! Buffers of a context, and large transfers.

use tombolo::{Constants, Context, Device, Program};

use super::{Found, same};

const ADD: &str = "
    @group(0) @binding(0) var<storage, read_write> values: array<u32>;
    @group(0) @binding(1) var<uniform> more: u32;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&values) { values[id.x] += more; }
    }";

/// A buffer of the context: its bytes are where they are needed.
pub async fn buffers(context: &Context, device: &Device) -> Found {
    let program = Program::new("add.wgsl", ADD)?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let values = context.buffer_from(&(0..1000).collect::<Vec<u32>>())?;
    let launch = kernel
        .launch()
        .buffer("values", &values)
        .value("more", &5u32);
    launch.invocations(1000).submit()?.await?;
    let expected: Vec<u32> = (5..1005).collect();
    same("the values", values.read_async().await?, expected)?;
    // Half of it changes on the host, and all of it on the device.
    values.write(500, &vec![0u32; 500])?;
    let launch = kernel
        .launch()
        .buffer("values", &values)
        .value("more", &1u32);
    launch.invocations(1000).submit()?.await?;
    let expected: Vec<u32> = (6..506).chain((0..500).map(|_| 1)).collect();
    same("the values", values.read_async().await?, expected)?;
    let moved = context.buffer_statistics();
    Ok(format!("{} bytes moved to the device", moved.moves.moved))
}

/// Transfers of several pieces.
pub async fn large(device: &Device) -> Found {
    const WORDS: u32 = 5 << 20;
    let program = Program::new("add.wgsl", ADD)?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let before: Vec<u32> = (0..WORDS).collect();
    let values = device.buffer(&before)?;
    let launch = kernel
        .launch()
        .buffer("values", &values)
        .value("more", &1u32);
    launch.invocations(u64::from(WORDS)).submit()?;
    let after = values.read_back(..)?.await?;
    let wrong = (1..=WORDS)
        .zip(&after)
        .position(|(expected, got)| expected != *got);
    same("the first wrong word", wrong, None)?;
    Ok(format!("{} MiB there and back", WORDS >> 18))
}
