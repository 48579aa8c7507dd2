//! Calls from kernels to Rust, which leave with a launch and are served by whoever awaits it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tombolo::{Constants, Device, HostServices, Program};

use super::{Found, same};

/// Posts of a launch are served when it is awaited, and answers reach the next launch.
pub async fn calls(device: &Device) -> Found {
    let sum = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&sum);
    let services = HostServices::builder()
        .call("fn note(x: u32)", move |x: u32| {
            seen.fetch_add(x, Ordering::Relaxed);
        })
        .call("fn square(x: u32) -> u32", |x: u32| x * x)
        .start()?;
    let program = Program::builder()
        .services(&services)
        .source(
            "notes.wgsl",
            "
            @compute @workgroup_size(8)
            fn main(@builtin(global_invocation_id) id: vec3<u32>) { note_post(id.x + 1u); }",
        )
        .build()?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    for _ in 0..3 {
        kernel
            .launch()
            .services(&services)
            .invocations(32)
            .submit()?
            .await?;
    }
    same("the sum", sum.load(Ordering::Relaxed), 3 * 528)?;
    answers(device, &services).await?;
    Ok(
        "3 launches posted 32 calls each, all served; 16 answers reached the next launch"
            .to_owned(),
    )
}

/// A launch begins calls, and the next one collects the answers.
async fn answers(device: &Device, services: &HostServices) -> Result<(), Box<dyn Error>> {
    let program = Program::builder()
        .services(services)
        .source(
            "squares.wgsl",
            "
            @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
            @group(0) @binding(1) var<storage, read_write> squares: array<u32>;
            @compute @workgroup_size(16) fn begin(@builtin(local_invocation_index) i: u32) {
                tickets[i] = square_begin(i);
            }
            @compute @workgroup_size(16) fn collect(@builtin(local_invocation_index) i: u32) {
                let reply = square_collect(tickets[i]);
                if reply.status == CALL_DONE { squares[i] = reply.value; }
            }",
        )
        .build()?;
    let tickets = device.buffer(&[u32::MAX; 16])?;
    let squares = device.buffer(&[u32::MAX; 16])?;
    let begin = device.kernel(&program, "begin", &Constants::new())?;
    let launch = begin
        .launch()
        .services(services)
        .buffer("tickets", &tickets);
    launch.workgroups(1).submit()?.await?;
    let collect = device.kernel(&program, "collect", &Constants::new())?;
    let launch = collect
        .launch()
        .services(services)
        .buffer("tickets", &tickets);
    launch
        .buffer("squares", &squares)
        .workgroups(1)
        .submit()?
        .await?;
    let expected: Vec<u32> = (0..16).map(|i| i * i).collect();
    Ok(same(
        "the squares",
        squares.read_back(..)?.await?,
        expected,
    )?)
}
