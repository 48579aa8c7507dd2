//! Variables that stay on the device between launches.

use tombolo::{Constants, Device, DeviceGlobal, Program};

use super::{Found, same};

static TOTAL: DeviceGlobal<u32> = DeviceGlobal::new("total");

/// A kernel adds to a global over several launches, and the host writes it in between.
pub async fn global(device: &Device) -> Found {
    let program = Program::new(
        "total.wgsl",
        "
        var<storage, read_write> total: atomic<u32>;
        @compute @workgroup_size(64) fn main() { atomicAdd(&total, 1u); }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let total = TOTAL.on(device);
    same("the first value", total.read_back()?.await?, vec![0])?;
    for _ in 0..3 {
        kernel.launch().invocations(640).submit()?.await?;
    }
    same("the total", total.read_back()?.await?, vec![1920])?;
    total.write(&5)?.await?;
    kernel.launch().invocations(64).submit()?.await?;
    same("the total", total.read_back()?.await?, vec![69])?;
    Ok("kept over 4 launches and a write: 1920, then 5 + 64".to_owned())
}
