//! Prints of kernels, and assertions.

use std::sync::{Arc, Mutex, PoisonError};

use tombolo::device::ExecutionError;
use tombolo::print::PrintRecord;
use tombolo::{Constants, Device, PrintOptions, Program};

use super::{Found, failure, same};
use crate::page::Page;

/// Lines with values, in the order of the launch.
pub async fn prints(page: &Page, device: &Device) -> Found {
    let program = Program::new(
        "roots.wgsl",
        r#"
        @compute @workgroup_size(8)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let root = sqrt(f32(id.x * id.x));
            print("{:>2}: {:.1} {}", id.x, root, vec2<i32>(-1, i32(id.x)));
        }"#,
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let options = PrintOptions::sink(move |line: &PrintRecord<'_>| {
        let mut lines = sink.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.to_string());
    });
    kernel
        .launch()
        .invocations(16)
        .print_to(options)
        .submit()?
        .await?;
    let mut got = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
    // Invocations print in no order.
    got.sort();
    got.iter().for_each(|line| page.print(line));
    let expected: Vec<String> = (0..16)
        .map(|x| format!("{x:>2}: {x}.0 [-1, {x}]"))
        .collect();
    same("what was printed", got, expected)?;
    Ok("16 lines, as expected".to_owned())
}

/// An assertion that fails is the launch's error, with its values.
pub async fn assertion(device: &Device) -> Found {
    let program = Program::new(
        "limits.wgsl",
        r#"
        @group(0) @binding(0) var<storage, read> values: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            assert(values[id.x] < 10u, "{} is too much", values[id.x]);
        }"#,
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let values = device.buffer(&[1u32, 2, 30, 4])?;
    let mut launch = kernel.launch().buffer("values", &values).invocations(4);
    let error = failure(launch.submit()?.await)?;
    match &*error {
        ExecutionError::Assertion {
            message,
            invocation: 2,
            ..
        } => {
            same("the message", &**message, "30 is too much")?;
            Ok(format!("invocation 2: {message}"))
        }
        other => Err(format!("not the assertion: {other}").into()),
    }
}
