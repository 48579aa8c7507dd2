//! Kernels that compute, beside the same kernels in CUDA: as many invocations as threads, in groups of the same size.
//!
//! Numbers are small whole numbers, so that every order of additions gives the same sum, and the host knows each result
//! without computing all of them.

use tombolo::{Constants, Device, DeviceBuffer, Launch, Program};

use crate::support::Error;
use crate::support::cuda::Peer;

/// Numbers of `saxpy` and `reduce`, the edge of the matrices, and the pixels of a side of the picture: as in `kernels.wgsl` and in `peer.cu`.
const NUMBERS: usize = 64 << 20;
const EDGE: usize = 2048;
const PIXELS: usize = 4096;
/// Work-groups of 256 invocations in a row of the grid, which limits of devices hold below 65,536.
const ROW_OF_GROUPS: u32 = 1 << 12;
/// Launches in a measurement.
const TIMES: u32 = 20;
/// The most of CUDA's time that is wanted.
const GOAL: f64 = 1.05;

/// Gives `row` the label, the goal and the ratios of every kernel.
pub fn measure(
    device: &Device,
    peer: &mut Peer,
    row: &mut impl FnMut(&str, Option<f64>, Vec<f64>),
) -> Result<(), Error> {
    let program = Program::new("kernels.wgsl", include_str!("kernels.wgsl"))?;
    let mut pairs = |label: &str, launch: &mut Launch| {
        let ratios = peer.pairs(label, TIMES, || {
            for _ in 1..TIMES {
                launch.submit()?;
            }
            Ok(launch.submit()?.wait()?)
        })?;
        row(label, Some(GOAL), ratios);
        Ok::<_, Error>(())
    };
    let kernel = |entry| device.kernel(&program, entry, &Constants::new());
    let groups = [ROW_OF_GROUPS, (NUMBERS / 256) as u32 / ROW_OF_GROUPS, 1];

    let x = device.buffer(&numbers(NUMBERS))?;
    let out: DeviceBuffer<f32> = device.zeroed(NUMBERS)?;
    let mut saxpy = kernel("saxpy")?.launch().workgroups(groups);
    saxpy = saxpy.buffer("x", &x).buffer("out", &out);
    saxpy.submit()?.wait()?;
    all("saxpy", &out.read()?, |i| 1.5 * number(i))?;
    pairs("saxpy", &mut saxpy)?;

    let sums: DeviceBuffer<f32> = device.zeroed(NUMBERS / 256)?;
    let mut reduce = kernel("reduce")?.launch().workgroups(groups);
    reduce = reduce.buffer("x", &x).buffer("out", &sums);
    pairs("reduce", &mut reduce)?;
    all("reduce", &sums.read()?, |w| {
        (0..256).map(|i| number(w * 256 + i)).sum()
    })?;

    let x = device.buffer(&numbers(EDGE * EDGE))?;
    let out: DeviceBuffer<f32> = device.zeroed(EDGE * EDGE)?;
    let groups = EDGE as u32 / 16;
    let mut matmul = kernel("matmul")?.launch().workgroups([groups, groups, 1]);
    matmul = matmul.buffer("x", &x).buffer("y", &x).buffer("out", &out);
    pairs("matmul", &mut matmul)?;
    // One row: all of them would take the host minutes.
    all("matmul", &out.read()?[..EDGE], |column| {
        (0..EDGE)
            .map(|k| number(k) * number(k * EDGE + column))
            .sum()
    })?;

    let steps: DeviceBuffer<u32> = device.zeroed(PIXELS * PIXELS)?;
    let groups = PIXELS as u32 / 16;
    let mut mandelbrot = kernel("mandelbrot")?
        .launch()
        .workgroups([groups, groups, 1]);
    mandelbrot = mandelbrot.buffer("steps", &steps);
    pairs("mandelbrot", &mut mandelbrot)?;
    // In the middle c is -0.5, and z stays near; from the corner z is away after one step.
    let steps = steps.read()?;
    let middle = PIXELS / 2 * PIXELS + PIXELS / 2;
    match (steps[middle], steps[0]) {
        (256, 1) => Ok(()),
        (inside, outside) => Err(format!(
            "mandelbrot: {inside} steps inside, {outside} at the corner, and not 256 and 1"
        )
        .into()),
    }
}

/// Small whole numbers, as in `peer.cu`.
fn number(i: usize) -> f32 {
    (i % 7) as f32
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(number).collect()
}

fn all(kernel: &str, found: &[f32], expected: impl Fn(usize) -> f32) -> Result<(), Error> {
    match (0..).zip(found).find(|(i, found)| **found != expected(*i)) {
        None => Ok(()),
        Some((i, found)) => {
            let expected = expected(i);
            Err(format!("{kernel}: {found} at {i}, and not {expected}").into())
        }
    }
}
