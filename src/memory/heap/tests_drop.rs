//! Devices dropped by another thread while the host wants to look: an interleaving, held in place.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::device::hooks::{self, Point};
use crate::{Constants, Context, Device, DeviceOptions, Program};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 7u; }
}";

const LONG: Duration = Duration::from_secs(30);

/// Removes the hook, also where a test fails.
struct Unhook;

impl Drop for Unhook {
    fn drop(&mut self) {
        hooks::set(None);
    }
}

fn devices() -> Vec<(Context, Device)> {
    let mut devices = Vec::new();
    let count = Context::with_backends(wgpu::Backends::VULKAN)
        .expect("a Vulkan driver: run `cargo xtask test`, which provides software drivers")
        .adapters()
        .len();
    for index in 0..count {
        // In place, and with a copy.
        for live_memory in [true, false] {
            let size = HeapSize::Bytes(64 << 20);
            let context = Context::with_heap(wgpu::Backends::VULKAN, size).unwrap();
            let options = DeviceOptions {
                live_memory,
                ..DeviceOptions::default()
            };
            let device = context.device_at_with(index, options).unwrap();
            devices.push((context, device));
        }
    }
    devices
}

/// Records a launch, and drops the device's last handle on another thread. That thread is stopped before it submits
/// anything, and goes on when another thread has begun to wait, which `look` has to do.
fn look_while_dropped<T: Send>(
    device: Device,
    data: Ptr<u32>,
    look: impl FnOnce() -> T + Send,
) -> T {
    let program = Program::new("drop.wgsl", ADD).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let launch = kernel.launch().pointer("data", data, 64);
    launch.invocations(64).submit().unwrap();
    drop(kernel);

    let id = device.shared.id;
    let (dropped, is_dropped) = channel();
    let (awaited, is_awaited) = channel();
    let is_awaited = Mutex::new(is_awaited);
    let _unhook = Unhook;
    hooks::set(Some(Arc::new(move |point| match point {
        Point::DeviceDropped(dropping) if dropping == id => {
            dropped.send(()).unwrap();
            // A failure is the looking thread's to tell.
            let _ = lock(&is_awaited).recv_timeout(LONG);
        }
        Point::DeviceDropped(_) | Point::HopBegun | Point::HeapSent(_) | Point::Submitting => {}
        Point::EndAwaited => awaited.send(()).unwrap(),
    })));
    std::thread::scope(|scope| {
        scope.spawn(move || drop(device));
        is_dropped.recv_timeout(LONG).unwrap();
        look()
    })
}

#[test]
fn the_host_waits_for_what_a_device_that_is_being_dropped_has_recorded() {
    let _alone = hooks::alone();
    for (context, device) in devices() {
        let heap = context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 64]).unwrap();
        let name = format!("{} {:?}", device.name(), heap.mirror_statistics());
        look_while_dropped(device, data, || {
            let host = heap.host().unwrap();
            assert_eq!(host.slice(data, 64).unwrap(), [8; 64], "{name}");
        });
    }
}

#[test]
fn memory_is_kept_until_a_device_that_is_being_dropped_has_ended() {
    let _alone = hooks::alone();
    for (context, device) in devices() {
        let heap = context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 64]).unwrap();
        look_while_dropped(device, data, || {
            heap.free(data).unwrap();
            // The launch has not even been submitted: the place may have no other use.
            let other = heap.alloc_slice(&[5u32; 64]).unwrap();
            assert_ne!(other, data);
            assert_eq!(heap.read(other, 64).unwrap(), [5; 64]);
            // By then the launch has ended.
            assert_eq!(heap.statistics().in_use, 256);
        });
    }
}

#[test]
fn the_next_device_sees_what_one_that_is_being_dropped_has_done() {
    let _alone = hooks::alone();
    for (context, device) in devices() {
        let heap = context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 64]).unwrap();
        let index = (context.adapters().iter())
            .position(|adapter| adapter.name == device.name())
            .unwrap();
        // A copy, which takes turns with everybody.
        let options = DeviceOptions {
            live_memory: false,
            ..DeviceOptions::default()
        };
        let next = context.device_at_with(index, options).unwrap();
        look_while_dropped(device, data, || {
            let program = Program::new("drop.wgsl", ADD).unwrap();
            let kernel = next.kernel(&program, "main", &Constants::new()).unwrap();
            let launch = kernel.launch().pointer("data", data, 64);
            launch.invocations(64).submit().unwrap();
            assert_eq!(heap.read(data, 64).unwrap(), [15; 64]);
        });
    }
}

#[test]
fn a_deadline_ends_the_wait_for_a_device_that_is_being_dropped() {
    let _alone = hooks::alone();
    let (context, device) = devices().swap_remove(0);
    let heap = context.heap().unwrap();
    let data = heap.alloc_slice(&[1u32; 64]).unwrap();
    look_while_dropped(device, data, || {
        let late = heap.host_timeout(Duration::ZERO).map(|_| ());
        assert!(matches!(late.unwrap_err(), HeapError::Deadline));
        // The next wait covers the missing part.
        assert_eq!(heap.read(data, 64).unwrap(), [8; 64]);
    });
}
