//! Calls from kernels to Rust, which leave with a launch and are served behind it.

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
    Ok("3 launches posted 32 calls each, all served".to_owned())
}
