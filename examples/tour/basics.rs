//! Kernels, what they are specialized with, and what they are given.

use bytemuck::{Pod, Zeroable};
use tombolo::{Constants, Program, device::Capability, kernel::KernelError, launch::LaunchError};

use crate::{Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "kernels",
        shows: "entry points and arguments by name",
        capability: Capability::Launches,
        run: kernels,
    },
    Stop {
        name: "layouts",
        shows: "Rust values in the layout of WGSL",
        capability: Capability::Launches,
        run: layouts,
    },
    Stop {
        name: "constants",
        shows: "specialization by name or id",
        capability: Capability::Specialization,
        run: constants,
    },
    Stop {
        name: "private arrays",
        shows: "lengths chosen when the program runs",
        capability: Capability::PrivateArrays,
        run: private_arrays,
    },
];

fn kernels(stage: &Stage) -> Shown {
    let device = &stage.device;
    let program = Program::new("saxpy.wgsl", include_str!("kernels/saxpy.wgsl"))?;
    let saxpy = device.kernel(&program, "saxpy", &Constants::new())?;
    let x: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let y = vec![1.0f32; x.len()];
    let (dx, dy) = (device.buffer(&x)?, device.buffer(&y)?);
    saxpy
        .launch()
        .buffer("x", &dx)
        .buffer("y", &dy)
        .value("a", &2.0f32)
        .invocations(x.len())
        .submit()?
        .wait()?;
    // Small whole numbers: exact in `f32`, with fused operations or without.
    let expected: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
    expect("saxpy", &dy.read()?, &expected)?;

    let misnamed = saxpy.launch().buffer("z", &dy).invocations(1).submit();
    match misnamed {
        Err(LaunchError::UnknownArgument { .. }) => held("1,000 sums, wrong name refused"),
        Err(other) => Err(other.into()),
        Ok(_) => Err("a buffer was taken for an argument that does not exist".into()),
    }
}

/// WGSL aligns a vec3 to 16 bytes, and puts what fits behind it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Motion {
    axis: [f32; 3],
    angle: f32,
    shift: [f32; 3],
    _padding: f32,
}

fn layouts(stage: &Stage) -> Shown {
    let device = &stage.device;
    let program = Program::new("rotate.wgsl", include_str!("kernels/rotate.wgsl"))?;
    let rotate = device.kernel(&program, "main", &Constants::new())?;
    let points: Vec<[f32; 4]> = (0..100u8).map(|i| [f32::from(i), 1.0, 0.0, 0.0]).collect();
    let buffer = device.buffer(&points)?;
    let unpadded = device.buffer(&[[0.0f32; 3]; 100])?;
    let motion = Motion {
        axis: [0.0, 0.0, 1.0],
        angle: std::f32::consts::FRAC_PI_2,
        shift: [0.0, 0.0, 3.0],
        _padding: 0.0,
    };
    let mut launch = rotate
        .launch()
        .buffer("points", &buffer)
        .value("motion", &motion)
        .invocations(points.len());
    launch.submit()?.wait()?;
    for (from, to) in points.iter().zip(buffer.read()?) {
        // A quarter turn about z takes (x, y) to (-y, x).
        let expected = [-from[1], from[0], 3.0];
        let far = (0..3).any(|i| (to[i] - expected[i]).abs() > 1e-3 * (1.0 + expected[i].abs()));
        if far {
            return Err(format!("{from:?} went to {to:?} instead of {expected:?}").into());
        }
    }
    launch.set_buffer("points", &unpadded)?;
    match launch.submit() {
        Err(LaunchError::ElementMismatch { .. }) => held("vec3 without padding refused"),
        Err(other) => Err(other.into()),
        Ok(_) => Err("vec3 without its padding was accepted".into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Values {
    enabled: u32,
    offset: i32,
    factor: u32,
    ratio: f32,
}

fn constants(stage: &Stage) -> Shown {
    let device = &stage.device;
    let program = Program::new("constants.wgsl", include_str!("kernels/constants.wgsl"))?;
    let values = device.zeroed::<Values>(1)?;
    let run = |constants: &Constants| -> Result<Values, Box<dyn std::error::Error>> {
        let kernel = device.kernel(&program, "main", constants)?;
        kernel
            .launch()
            .buffer("values", &values)
            .workgroups(1)
            .submit()?
            .wait()?;
        values
            .read()?
            .first()
            .copied()
            .ok_or_else(|| "nothing was read".into())
    };
    let some = Values {
        enabled: 1,
        offset: -5,
        factor: 3,
        ratio: 0.5,
    };
    expect(
        "defaults",
        &run(&Constants::new().set("offset", -5))?,
        &some,
    )?;
    let all = Constants::new()
        .set("enabled", false)
        .set("offset", 40)
        .set_id(7, 9u32)
        .set("ratio", 0.25f32);
    let every = Values {
        enabled: 0,
        offset: 40,
        factor: 9,
        ratio: 0.25,
    };
    expect("all set", &run(&all)?, &every)?;
    match device.kernel(&program, "main", &Constants::new()) {
        Err(KernelError::MissingConstant { .. }) => held("a missing value refused"),
        Err(other) => Err(other.into()),
        Ok(_) => Err("a constant without value or default was accepted".into()),
    }
}

fn private_arrays(stage: &Stage) -> Shown {
    let device = &stage.device;
    let program = Program::new("reverse.wgsl", include_str!("kernels/reverse.wgsl"))?;
    let runs = 24;
    let mut bytes = Vec::new();
    for n in [1u32, 7, 64] {
        let kernel = device.kernel(&program, "main", &Constants::new().set("N", n))?;
        let data: Vec<u32> = (0..runs * n).collect();
        let buffer = device.buffer(&data)?;
        kernel
            .launch()
            .buffer("data", &buffer)
            .invocations(runs)
            .submit()?
            .wait()?;
        let expected: Vec<u32> = data
            .chunks_exact(n as usize)
            .flat_map(|run| run.iter().rev().copied())
            .collect();
        expect("reversed", &buffer.read()?, &expected)?;
        bytes.push(
            kernel
                .private_arrays()
                .iter()
                .map(|array| array.bytes)
                .sum::<u64>(),
        );
    }
    expect("bytes", &bytes, &vec![8, 32, 260])?;
    let huge = Constants::new().set("N", 100_000_000u32);
    match device.kernel(&program, "main", &huge) {
        Err(KernelError::PrivateArrayTooLarge { .. }) => held("1, 7, 64; 400 MB refused"),
        Err(other) => Err(other.into()),
        Ok(_) => Err("an array of 400 MB was accepted".into()),
    }
}
