//! Interleavings of a launch and of threads that allocate, held in place; and uploads failing for want of memory.

use std::sync::{Arc, Mutex};

use crate::device::hooks::{self, Point};
use crate::{
    Constants, Context, Device, DeviceOptions, Program, Ptr, SharedHeap,
    heap::{HeapError, HeapSize},
    launch::LaunchError,
};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 7u; }
}";

fn open() -> Context {
    Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(256 << 20)).unwrap()
}

/// A device with a copy of the context's heap.
fn mirrored(context: &Context, index: usize) -> Device {
    let options = DeviceOptions {
        live_memory: false,
        ..DeviceOptions::default()
    };
    context.device_at_with(index, options).unwrap()
}

/// Adds 7 to so many words.
fn add(device: &Device, data: Ptr<u32>, count: usize) -> Result<(), LaunchError> {
    let program = Program::new("add.wgsl", ADD).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let launch = kernel.launch().pointer("data", data, count);
    launch.invocations(count as u32).submit().map(drop)
}

/// A launch refused for want of memory for the device's missing parts.
fn add_without_memory(device: &Device, data: Ptr<u32>) {
    hooks::refuse(Point::HeapSent(device.shared.id));
    let error = add(device, data, 1024).unwrap_err();
    assert!(
        matches!(error, LaunchError::Heap(HeapError::Mirror { .. })),
        "{error}"
    );
}

fn assert_words(heap: &SharedHeap, data: Ptr<u32>, value: u32) {
    let seen = heap.read(data, 1024).unwrap();
    assert!(seen == [value; 1024], "{:?} for {value}", &seen[..4]);
}

/// Removes the hook, also where a test fails.
struct Unhook;

impl Drop for Unhook {
    fn drop(&mut self) {
        hooks::set(None);
    }
}

/// The bytes of a failed upload come with the next upload: to this device and to others.
#[test]
fn what_did_not_go_up_goes_up_with_the_next_launch() {
    let _alone = hooks::alone();
    for index in 0..open().adapters().len() {
        let context = open();
        let (device, other) = (mirrored(&context, index), mirrored(&context, index));
        let heap = context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 1024]).unwrap();
        for device in [&device, &other] {
            add(device, data, 1024).unwrap();
        }
        assert_words(&heap, data, 15);
        // The host's writes with an access.
        heap.host()
            .unwrap()
            .slice_mut(data, 1024)
            .unwrap()
            .fill(100);
        add_without_memory(&device, data);
        assert_words(&heap, data, 100);
        add(&device, data, 1024).unwrap();
        assert_words(&heap, data, 107);
        // The host's allocations while the device has changes: on a page without, and on a page with such changes.
        let small = heap.alloc_slice(&[3u32; 16]).unwrap();
        add(&device, small, 16).unwrap();
        let beside = heap.alloc_slice(&[5u32; 16]).unwrap();
        let fresh = heap.alloc_slice(&[200u32; 1024]).unwrap();
        add_without_memory(&device, data);
        add(&device, fresh, 1024).unwrap();
        assert_words(&heap, fresh, 207);
        assert_eq!(heap.read(small, 16).unwrap(), [10; 16]);
        assert_eq!(heap.read(beside, 16).unwrap(), [5; 16]);
        // The changes come down without another launch, and void nothing of the host's.
        add(&device, small, 16).unwrap();
        let after = heap.alloc_slice(&[6u32; 16]).unwrap();
        add_without_memory(&device, data);
        assert_eq!(heap.read(after, 16).unwrap(), [6; 16]);
        assert_eq!(heap.read(small, 16).unwrap(), [17; 16]);
        for device in [&other, &device] {
            add(device, fresh, 1024).unwrap();
            add(device, after, 16).unwrap();
        }
        assert_words(&heap, fresh, 221);
        assert_eq!(heap.read(after, 16).unwrap(), [20; 16]);
    }
}

/// Another thread allocates while an upload is under way that then fails: no device has the new memory.
#[test]
fn what_is_allocated_during_a_failed_upload_reaches_every_device() {
    let _alone = hooks::alone();
    let _unhook = Unhook;
    for index in 0..open().adapters().len() {
        let context = open();
        let (device, other) = (mirrored(&context, index), mirrored(&context, index));
        let heap = context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 1024]).unwrap();
        for device in [&device, &other] {
            add(device, data, 1024).unwrap();
        }
        heap.host()
            .unwrap()
            .slice_mut(data, 1024)
            .unwrap()
            .fill(100);
        let made: Arc<Mutex<Option<Ptr<u32>>>> = Arc::default();
        let (making, own) = (Arc::clone(&made), heap.clone());
        let id = device.shared.id;
        hooks::set(Some(Arc::new(move |point| {
            if point == Point::HeapSent(id) {
                let new = own.alloc_slice(&[9u32; 1024]).unwrap();
                making.lock().unwrap().get_or_insert(new);
            }
        })));
        add_without_memory(&device, data);
        hooks::set(None);
        let made = made.lock().unwrap().unwrap();
        assert_words(&heap, made, 9);
        for (device, expected) in [(&device, 16), (&other, 23)] {
            add(device, made, 1024).unwrap();
            assert_words(&heap, made, expected);
        }
        assert_words(&heap, data, 100);
    }
}

#[test]
fn what_is_allocated_while_a_launch_begins_goes_up_with_the_next() {
    let _alone = hooks::alone();
    let open = || Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(256 << 20)).unwrap();
    let count = open().adapters().len();
    assert!(count > 0);
    for index in 0..count {
        let context = open();
        let options = DeviceOptions {
            live_memory: false,
            ..DeviceOptions::default()
        };
        let device = context.device_at_with(index, options).unwrap();
        let heap = device.heap().unwrap();
        let known = heap.alloc(1u32).unwrap();
        let program = Program::new("add.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let add = |data, count: usize| {
            let launch = kernel.launch().pointer("data", data, count);
            launch.invocations(count as u32).submit().unwrap();
        };
        add(known, 1);
        let mut expected = Vec::new();
        for round in 1..4u32 {
            let shared = &heap.shared;
            assert!(shared.is_mirrored(&device.shared));
            // A launch: the mirror covers the heap, and has not been sent anything yet.
            let mut table = shared.mirrors.write();
            let covered = shared
                .cover(&mut table, &device.shared)
                .unwrap()
                .buffers
                .covered;
            let values: Vec<u32> = (0..(covered / 4) as u32).map(|i| i ^ round).collect();
            let data = heap.alloc_slice(&values).unwrap();
            assert!(shared.committed().unwrap() > covered);
            shared.bring_up(&mut table, &device.shared).unwrap();
            drop(table);
            add(data, values.len());
            let values: Vec<u32> = values.iter().map(|value| value.wrapping_add(7)).collect();
            expected.push((data, values));
        }
        for (data, values) in expected {
            assert!(heap.read(data, values.len()).unwrap() == values);
        }
    }
}
