//! Devices that keep a copy of the heap: transfers that they make, and memory that nobody can follow.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::cases;
use crate::harness::Fixture;
use tombolo::allocator_api2::vec::Vec as HeapVec;
use tombolo::{
    Constants, Context, Device, DeviceOptions, Program,
    heap::{HeapError, HeapSize},
    launch::LaunchError,
};

cases![
    transfers_of_a_device_see_and_are_seen,
    views_and_mirrors_keep_out_of_each_others_way,
    owned_memory_keeps_mirrors_out,
];

fn mirrored(f: &Fixture) -> (Context, Device) {
    let heap = HeapSize::Bytes(256 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
    let mut options = DeviceOptions::default();
    options.live_memory = false;
    let device = context.device_named_with(f.device.name(), options).unwrap();
    (context, device)
}

fn transfers_of_a_device_see_and_are_seen(f: &Fixture) {
    const LEN: usize = 5000;
    let (context, device) = mirrored(f);
    let heap = context.heap().unwrap();
    let values: Vec<u32> = (0..LEN as u32).map(|i| i * i).collect();
    let from = heap.alloc_slice(&values).unwrap();
    let to = heap.alloc_slice(&[0xdead_beef_u32; LEN]).unwrap();
    device.heap_copy(from.add(10), to.add(3), 4000).unwrap();
    device.heap_fill(to.add(4100), 7u32, 100).unwrap();
    let mut expected = vec![0xdead_beef; LEN];
    expected[3..4003].copy_from_slice(&values[10..4010]);
    expected[4100..4200].fill(7);
    assert_eq!(heap.read(to, LEN).unwrap(), expected);

    // What the host changes in between goes up, and what a buffer brings comes down.
    heap.write(from, &[1u32, 2, 3]).unwrap();
    let buffer = device.buffer(&[0u32; LEN]).unwrap();
    buffer.copy_from_heap(0, from, LEN as u64).unwrap();
    let mut changed = values.clone();
    changed[..3].copy_from_slice(&[1, 2, 3]);
    assert_eq!(buffer.read().unwrap(), changed);
    buffer.copy_to_heap(0, to, 100).unwrap();
    expected[..100].copy_from_slice(&changed[..100]);
    assert_eq!(heap.read(to, LEN).unwrap(), expected);
    device.heap_prefetch(to, LEN).unwrap().wait().unwrap();

    let _host = heap.host().unwrap();
    let refused = device.heap_fill(to, 1u32, 1).unwrap_err();
    assert!(matches!(refused, HeapError::HostAccess { .. }), "{refused}");
}

/// Adds one to the words at the pointer.
const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn increment(device: &Device, data: tombolo::Ptr<u32>, len: u32) -> Result<(), LaunchError> {
    let program = Program::new("increment.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let launch = kernel.launch().pointer("data", data, len as usize);
    launch.invocations(len).submit().map(|_| ())
}

fn refused_with(error: &HeapError, address: u64, why: &str) {
    let what = "a launch on a device that keeps a copy of the heap";
    assert_eq!(error.to_string(), format!("{what} at {address:#x}, {why}"));
}

fn views_and_mirrors_keep_out_of_each_others_way(f: &Fixture) {
    let (context, device) = mirrored(f);
    let heap = context.heap().unwrap();
    let words = heap.alloc_slice(&[5u32; 8]).unwrap();
    let other = heap.alloc_slice(&[1u32; 8]).unwrap();
    increment(&device, words, 8).unwrap();
    // The launch has not been waited for: the view does, and sees what it wrote.
    let view = heap.atomic_u32_slice(words, 8).unwrap();
    assert_eq!(view[3].load(Acquire), 6);
    view[3].store(70, Release);
    match increment(&device, other, 8).unwrap_err() {
        LaunchError::Heap(error @ HeapError::AtomicView { .. }) => {
            refused_with(
                &error,
                words.address(),
                "of which an AtomicView exists: use the view, or drop it first",
            );
        }
        refused => panic!("{refused}"),
    }
    // Transfers and prefetches on the device need the same turn.
    for refused in [
        device.heap_copy(other, other.add(4), 4),
        device.heap_fill(other, 9, 8),
        device.heap_prefetch(other, 8),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, HeapError::AtomicView { .. }), "{refused}");
    }
    // Kernels without memory of the heap, and devices that have the heap itself, are not affected.
    let apart = device.buffer(&[1u32; 8]).unwrap();
    let program = Program::new("increment.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let mut launch = kernel.launch().buffer("data", &apart).invocations(8);
    launch.submit().unwrap();
    assert_eq!(apart.read().unwrap(), [2; 8]);
    let importing = context.device_named(f.device.name()).unwrap();
    increment(&importing, other, 8).unwrap();
    assert_eq!(heap.read(other, 8).unwrap(), [2; 8]);
    heap.write(other, &[1; 8]).unwrap();
    drop(view);
    increment(&device, words, 8).unwrap();
    increment(&device, other, 8).unwrap();
    assert_eq!(heap.read(words, 8).unwrap(), [7, 7, 7, 71, 7, 7, 7, 7]);
    assert_eq!(heap.read(other, 8).unwrap(), [2; 8]);
}

fn owned_memory_keeps_mirrors_out(f: &Fixture) {
    let (context, device) = mirrored(f);
    let heap = context.heap().unwrap();
    let words = heap.alloc_slice(&[5u32; 8]).unwrap();
    increment(&device, words, 8).unwrap();
    // SAFETY: no launch touches its memory: all are refused while there is some.
    #[allow(unsafe_code)]
    let allocator = unsafe { heap.allocator() };
    let mut owned = HeapVec::new_in(allocator);
    owned.extend(0..1000u32);
    match increment(&device, words, 8).unwrap_err() {
        LaunchError::Heap(error @ HeapError::Owned { .. }) => {
            let address = owned.as_ptr() as u64;
            refused_with(
                &error,
                address,
                "which a HeapAllocator has handed out: use the Rust value that owns it",
            );
        }
        refused => panic!("{refused}"),
    }
    assert!(owned.iter().copied().eq(0..1000));
    drop(owned);
    increment(&device, words, 8).unwrap();
    assert_eq!(heap.read(words, 8).unwrap(), [7; 8]);
}
