//! Variables that live on the device and have names.

use std::error::Error;

use bytemuck::{Pod, Zeroable};
use tombolo::globals::scope::PerImage;
use tombolo::{
    Constants, DeviceGlobal, Program, Ptr,
    device::Capability,
    globals::{GlobalError, host_access::ReadWrite},
};

use crate::{Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "device globals",
        shows: "variables that kernels share by name",
        capability: Capability::DeviceGlobals,
        run: shared,
    },
    Stop {
        name: "addresses",
        shows: "of a variable, stored and followed",
        capability: Capability::DeviceGlobals,
        run: addresses,
    },
    Stop {
        name: "image scope",
        shows: "an instance for each program",
        capability: Capability::DeviceGlobals,
        run: image_scope,
    },
];

/// `Record` of `kernels/variables.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Record {
    steps: u32,
    _pad: u32,
    newest: Ptr<u32>,
}

static VISITS: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("visits");
static RECORD: DeviceGlobal<Record> = DeviceGlobal::new("record");
static STEP: DeviceGlobal<u32> = DeviceGlobal::new("step").initial(&1);

fn run(stage: &Stage, entry: &str, invocations: u32) -> Result<(), Box<dyn Error>> {
    let program = Program::new("variables.wgsl", include_str!("kernels/variables.wgsl"))?;
    let kernel = stage.device.kernel(&program, entry, &Constants::new())?;
    kernel.launch().invocations(invocations).submit()?;
    Ok(())
}

fn shared(stage: &Stage) -> Shown {
    let device = &stage.device;
    STEP.declare(device)?;
    run(stage, "visit", 64)?;
    STEP.on(device).write(&3)?;
    run(stage, "visit", 64)?;
    let visits = VISITS.on(device).read()?;
    expect("visits", &visits, &[64; 4])?;
    let beyond = VISITS.on(device).copy_in(&[0u32; 2], 3);
    let refused = beyond.err().is_some_and(|error| error.is_invalid());
    expect("a copy beyond the end is refused", &refused, &true)?;
    held("two launches, no buffer between them")
}

fn addresses(stage: &Stage) -> Shown {
    let device = &stage.device;
    STEP.declare(device)?;
    VISITS.on(device).write(&[1, 2, 3, 4])?;
    run(stage, "note", 1)?;
    run(stage, "follow", 1)?;
    let newest = RECORD.on(device).read()?.newest;
    let address = VISITS.on(device).address()?.cast::<u32>().add(2);
    expect("the kernel's address", &newest, &address)?;
    expect("visits", &VISITS.on(device).read()?, &[1, 2, 1003, 4])?;
    held("Rust and the kernel name the same one")
}

fn image_scope(stage: &Stage) -> Shown {
    static OWN: DeviceGlobal<u32, ReadWrite, PerImage> = DeviceGlobal::new("own").image_scope();
    let device = &stage.device;
    OWN.on(device).write(&40)?;
    let make = |name: &str| -> Result<_, Box<dyn Error>> {
        let text = "var<storage, read_write> own: u32;
            @compute @workgroup_size(1) fn main() { own += 2u; }";
        let kernel = device.kernel(&Program::new(name, text)?, "main", &Constants::new())?;
        kernel.launch().invocations(1).submit()?;
        Ok(kernel)
    };
    let _first = make("first.wgsl")?;
    expect("own", &OWN.on(device).read()?, &42)?;
    let _second = make("second.wgsl")?;
    let several = matches!(
        OWN.on(device).read(),
        Err(GlobalError::SeveralModules { .. })
    );
    expect("two programs have two", &several, &true)?;
    held("named in two programs, the host is told")
}
