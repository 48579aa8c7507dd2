//! Devices whose memory is used up: in a program that has little address space, which software adapters take their memory
//! from. What needs memory of the device then gets an error that says so, and goes on when there is memory again.

use std::error::Error;
use std::process::{Command, ExitCode};

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix};
use crate::rpc::HEAD;
use tombolo::{
    Context, Device, DeviceBuffer, DeviceOptions, HostServices, buffers::MemoryError,
    calls::PortsError, device::LiveError, heap::HeapSize, launch::LaunchError,
};

cases![memory_that_is_used_up_is_an_error];

/// Has the program use up the memory of the adapter of that name instead of testing.
const ADAPTER: &str = "TOMBOLO_TEST_EXHAUSTED";

/// KiB of address space: more than drivers take for themselves, and less than any adapter's limit of one buffer.
const SPACE: u64 = 3 << 20;

/// The behaviour with little memory, in a process of its own.
pub fn as_another_program() -> Option<ExitCode> {
    let adapter = std::env::var(ADAPTER).ok()?;
    Some(match exhaust(&adapter) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn memory_that_is_used_up_is_an_error(f: &Fixture) {
    // Memory of a card is not counted as the process's, and other programs on the card would miss it.
    let device_type = f.context.adapters()[f.index].device_type;
    if !cfg!(target_os = "linux") || device_type != wgpu::DeviceType::Cpu {
        return;
    }
    let output = Command::new("sh")
        .args(["-c", "ulimit -v $0 && exec \"$@\""])
        .arg(SPACE.to_string())
        .arg(std::env::current_exe().unwrap())
        .env(ADAPTER, f.device.name())
        // On a busy machine with many processors arenas of 64 MiB each would be most of it.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
}

/// Buffers until there is no room for one of `least` bytes more.
fn all_memory(device: &Device, least: usize) -> Result<Vec<DeviceBuffer<u8>>, Box<dyn Error>> {
    let mut all = Vec::new();
    let mut len = 256 << 20;
    while len >= least {
        match device.zeroed::<u8>(len) {
            Ok(buffer) => all.push(buffer),
            Err(MemoryError::OutOfMemory {
                bytes,
                device: name,
            }) => {
                if (bytes, name.as_str()) != (len as u64, device.name()) {
                    return Err(format!("{bytes} bytes of {name}").into());
                }
                len /= 2;
            }
            Err(other) => return Err(other.into()),
        }
        if all.len() > 10_000 {
            return Err("there is no limit".into());
        }
    }
    Ok(all)
}

fn exhaust(adapter: &str) -> Result<(), Box<dyn Error>> {
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(4 << 20))?;
    let open = |live| {
        let mut options = DeviceOptions::default();
        options.live_memory = live;
        context.device_named_with(adapter, options)
    };
    let services = |ports: usize| {
        HostServices::builder()
            .call("fn mix(x: u32) -> u32", mix)
            .ports(ports)
            .payload(1 << 12)
            .start()
    };
    let (few, many) = (services(4)?, services(1 << 13)?);
    let devices = [open(true)?, open(false)?];
    let mut launches = Vec::new();
    for (device, call) in devices.iter().zip(["mix(id.x)", "mix_post(id.x)"]) {
        let kernel = kernel_of(device, &few, &format!("{HEAD} out[id.x] = {call}; }}"));
        let out = device.buffer(&[7u32; 64])?;
        let submit = move |services: &HostServices| {
            let launch = kernel.launch().services(services).buffer("out", &out);
            launch.invocations(64).submit()
        };
        // Compiled, and with all that calls need beside their ports, before memory is short.
        submit(&few)?.wait()?;
        launches.push(submit);
    }
    let all = all_memory(&devices[0], 8 << 20)?;
    for (live, submit) in [true, false].into_iter().zip(&launches) {
        match (live, submit(&many).map(|_| ())) {
            (true, Err(LaunchError::Ports(PortsError::Live(LiveError::OutOfMemory { size })))) => {
                assert_eq!(size, many.port_bytes(1 << 13));
            }
            (
                false,
                Err(LaunchError::Ports(PortsError::Memory(MemoryError::OutOfMemory {
                    bytes, ..
                }))),
            ) => {
                assert_eq!(bytes, many.port_bytes(1 << 13));
            }
            (_, other) => return Err(format!("ports, live: {live}: {other:?}").into()),
        }
        // What has its memory goes on.
        submit(&few)?.wait()?;
    }
    drop(all);
    for (device, submit) in devices.iter().zip(&launches) {
        device.finish()?;
        submit(&many)?.wait()?;
    }
    Ok(())
}
