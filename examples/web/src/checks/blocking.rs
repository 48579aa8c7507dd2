//! What blocks, and what becomes of a device that is gone: errors, and neither a panic nor a page that hangs.

use tombolo::buffers::ReadError;
use tombolo::device::{DeviceError, ExecutionError, WaitError};
use tombolo::heap::HeapError;
use tombolo::{Constants, Context, Device, Program};

use super::{Found, failure, same};

/// Every blocking form is refused with an error that names the other one, and the command goes on.
pub async fn blocking(context: &Context, device: &Device) -> Found {
    let mut told = Vec::new();
    for refused in [Context::new().map(drop), context.device().map(drop)] {
        match refused {
            Err(DeviceError::WouldBlock { instead, .. }) => told.push(instead),
            other => return Err(format!("opening is {other:?}").into()),
        }
    }
    let program = Program::new(
        "one.wgsl",
        "
        @group(0) @binding(0) var<storage, read_write> value: u32;
        @compute @workgroup_size(1) fn main() { value = 1u; }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let value = device.buffer(&[0u32])?;
    let event = kernel
        .launch()
        .buffer("value", &value)
        .workgroups(1)
        .submit()?;
    match event.wait() {
        Err(WaitError::Failed(error)) => told.push(would_block(&error)?),
        other => return Err(format!("a wait is {other:?}").into()),
    }
    match value.read() {
        Err(ReadError::Execution(error)) => told.push(would_block(&error)?),
        other => return Err(format!("a read is {other:?}").into()),
    }
    event.await?;
    same("the value", value.read_back(..)?.await?, vec![1])?;
    let heap = context.heap()?;
    let word = heap.alloc(5u32)?;
    let program = Program::new(
        "follow.wgsl",
        "
        @group(0) @binding(0) var<uniform> word: usm_ptr;
        @compute @workgroup_size(1) fn main() { let place = usm_u32(word); *place = *place + 1u; }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    kernel
        .launch()
        .value("word", &word)
        .workgroups(1)
        .submit()?;
    match heap.host() {
        Err(HeapError::Execution(error)) => told.push(would_block(&error)?),
        other => return Err(format!("an access is {other:?}").into()),
    }
    same("the word", *heap.host_async().await?.get(word)?, 6)?;
    heap.free(word)?;
    told.dedup();
    Ok(told.join("; "))
}

fn would_block(error: &ExecutionError) -> Result<&'static str, String> {
    match error {
        ExecutionError::WouldBlock { instead, .. } => Ok(instead),
        other => Err(format!("not the refusal of a wait: {other}")),
    }
}

/// A device that is destroyed: what is under way fails, and another device goes on.
pub async fn loss(context: &Context) -> Found {
    let device = context.device_async().await?;
    let program = Program::new(
        "one.wgsl",
        "
        @group(0) @binding(0) var<storage, read_write> value: u32;
        @compute @workgroup_size(1) fn main() { value = 1u; }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let value = device.buffer(&[0u32])?;
    device.raw().destroy();
    let launched = kernel
        .launch()
        .buffer("value", &value)
        .workgroups(1)
        .submit();
    let error = match launched {
        Ok(event) => failure(event.await)?.to_string(),
        Err(error) => error.to_string(),
    };
    same("the error", error.contains("lost"), true)?;
    Ok(error)
}
