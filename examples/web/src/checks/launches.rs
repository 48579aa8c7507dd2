//! Launches, read-backs, and arrays in private memory.

use tombolo::device::Aspect;
use tombolo::{Constants, Device, Program};

use super::{Found, same};

/// What the probe found.
pub async fn device(device: &Device) -> Found {
    let capabilities = device.capabilities();
    let probe = &capabilities.probe;
    if probe.loop_budget.measured().is_none() {
        return Err(format!("loops were not measured: {:?}", probe.loop_budget).into());
    }
    same("live memory", device.has(Aspect::LiveMemory), false)?;
    Ok(format!(
        "{}; loops {}; {}",
        device.name(),
        match capabilities.loop_budget() {
            Some(budget) => format!("end after {budget} turns"),
            None => "go on".to_owned(),
        },
        capabilities.explain(Aspect::LiveMemory)
    ))
}

/// A typed launch, and its results by a read-back.
pub async fn launch(device: &Device) -> Found {
    let program = Program::new(
        "scale.wgsl",
        "
        @group(0) @binding(0) var<storage, read_write> values: array<f32>;
        @group(0) @binding(1) var<uniform> factor: f32;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&values) { values[id.x] *= factor; }
        }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let before: Vec<f32> = (0..10_000u16).map(f32::from).collect();
    let values = device.buffer(&before)?;
    let event = kernel
        .launch()
        .buffer("values", &values)
        .value("factor", &3.0f32)
        .invocations(before.len() as u64)
        .submit()?;
    event.await?;
    let after = values.read_back(..)?.await?;
    let expected: Vec<f32> = before.iter().map(|value| value * 3.0).collect();
    same("the result", after == expected, true)?;
    Ok(format!("{} values scaled, all as expected", after.len()))
}

/// An array in private memory, sized by an override when the kernel is made.
pub async fn private_array(device: &Device) -> Found {
    let program = Program::new(
        "window.wgsl",
        "
        override N: u32 = 5;
        @group(0) @binding(0) var<storage, read_write> sums: array<u32>;
        fn fill(window: ptr<function, array<u32, N>>, seed: u32) {
            for (var i = 0u; i < N; i++) { (*window)[i] = seed * i + 1u; }
        }
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var window: array<u32, N>;
            fill(&window, id.x);
            var sum = 0u;
            for (var i = 0u; i < N; i++) { sum += window[N - 1u - i] * i; }
            sums[id.x] = sum;
        }",
    )?;
    for n in [1u32, 7, 100] {
        let kernel = device.kernel(&program, "main", &Constants::new().set("N", n))?;
        let sums = device.buffer(&[u32::MAX; 64])?;
        let mut launch = kernel.launch().buffer("sums", &sums).invocations(64);
        launch.submit()?.await?;
        let expected: Vec<u32> = (0..64)
            .map(|id| (0..n).map(|i| (id * (n - 1 - i) + 1) * i).sum())
            .collect();
        same("the sums", sums.read_back(..)?.await?, expected)?;
    }
    Ok("arrays of 1, 7 and 100 words".to_owned())
}

/// Many launches in a batch, one after the other on one buffer.
pub async fn batch(device: &Device) -> Found {
    const LAUNCHES: u32 = 1_000;
    let program = Program::new(
        "step.wgsl",
        "
        @group(0) @binding(0) var<storage, read_write> state: array<u32>;
        @group(0) @binding(1) var<uniform> step: u32;
        @compute @workgroup_size(32)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            state[id.x] = state[id.x] * 1664525u + 1013904223u + step;
        }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let state = device.buffer(&(0..32).collect::<Vec<u32>>())?;
    let mut last = None;
    for step in 0..LAUNCHES {
        let launch = kernel.launch().buffer("state", &state).value("step", &step);
        last = Some(launch.invocations(32).submit()?);
    }
    if let Some(last) = last {
        last.await?;
    }
    let next = |state: u32, step: u32| {
        let scaled = state.wrapping_mul(1_664_525);
        scaled.wrapping_add(1_013_904_223).wrapping_add(step)
    };
    let expected: Vec<u32> = (0..32).map(|x| (0..LAUNCHES).fold(x, next)).collect();
    same("the state", state.read_back(..)?.await?, expected)?;
    Ok(format!("{LAUNCHES} launches in order"))
}
