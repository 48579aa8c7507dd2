//! How large the shared heap grows, and when it gives memory back.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Context, Device, DeviceOptions, HeapBound, HeapError, HeapSize, Kernel, LaunchError,
    Program, Ptr,
};

cases![
    the_working_set_is_told_and_sizes_the_heap,
    launches_contract_an_adaptive_heap,
    an_adaptive_heap_ends_at_its_bound,
    one_argument_lies_in_one_binding,
];

const MIB: u64 = 1 << 20;

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn kernel(device: &Device) -> Kernel {
    let program = Program::new("heap_size.wgsl", INCREMENT).unwrap();
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

fn increment(kernel: &Kernel, data: Ptr<u32>, len: u32) -> tombolo::Event {
    let launch = kernel.launch().pointer("data", data, len as usize);
    launch.invocations(len).submit().unwrap()
}

fn with(f: &Fixture, heap: HeapSize, options: DeviceOptions) -> (Context, Device) {
    let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
    let device = context.device_named_with(f.device.name(), options);
    (context, device.unwrap())
}

fn the_working_set_is_told_and_sizes_the_heap(f: &Fixture) {
    // Both software adapters are Vulkan drivers, which tell.
    let told = f.device.capabilities().working_set_bytes.unwrap();
    assert!(told >= 64 * MIB, "{told}");
    let (context, _device) = with(f, HeapSize::Fraction(0.5), DeviceOptions::default());
    let bound = context.heap().unwrap().bound();
    let most = (told / 2).min(4 << 30);
    // The machine may have less, which counts as well.
    assert!(bound <= most.next_multiple_of(64 << 10), "{bound} {told}");
    // Forced down; one of a device that keeps a copy does not count.
    let mut options = DeviceOptions::default();
    options.working_set_bytes = Some(200 * MIB);
    let (context, device) = with(f, HeapSize::Fraction(0.5), options.clone());
    options.working_set_bytes = Some(100 * MIB);
    options.live_memory = false;
    let other = context.device_named_with(f.device.name(), options).unwrap();
    assert_eq!(
        device.capabilities().working_set_bytes,
        Some(200 * MIB),
        "what was forced is what is told"
    );
    assert_eq!(other.heap().unwrap().bound(), 100 * MIB);
}

fn launches_contract_an_adaptive_heap(f: &Fixture) {
    for live in [true, false] {
        let size = HeapSize::Adaptive {
            bound: HeapBound::Bytes(256 * MIB),
            contract_after: Duration::ZERO,
        };
        let mut options = DeviceOptions::default();
        options.live_memory = live;
        let (context, device) = with(f, size, options);
        let heap = context.heap().unwrap();
        let kernel = kernel(&device);
        let data = heap.alloc_zeroed::<u32>(64).unwrap();
        let big = heap.alloc_zeroed::<u32>(10 << 20).unwrap();
        let event = increment(&kernel, big, 64);
        // Put off: the launch may be looking.
        heap.free(big).unwrap();
        assert!(heap.committed() >= 40 * MIB);
        event.wait().unwrap();
        assert!(heap.committed() >= 40 * MIB);
        increment(&kernel, data, 64).wait().unwrap();
        assert_eq!(heap.committed(), 16 * MIB, "live memory: {live}");
        increment(&kernel, data, 64);
        assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [2; 64]);
    }
}

fn an_adaptive_heap_ends_at_its_bound(f: &Fixture) {
    let size = HeapSize::Adaptive {
        bound: HeapBound::Bytes(48 * MIB),
        contract_after: Duration::from_secs(3600),
    };
    let (context, device) = with(f, size, DeviceOptions::default());
    let heap = context.heap().unwrap();
    let kernel = kernel(&device);
    let held: Vec<Ptr<u32>> = (0..4)
        .map(|i| {
            let data = heap.alloc_zeroed::<u32>(10 << 18).unwrap();
            increment(&kernel, data, 1 + i);
            data
        })
        .collect();
    match heap.alloc_zeroed::<u32>(10 << 18).unwrap_err() {
        HeapError::OutOfMemory { bound, .. } => assert_eq!(bound, 48 * MIB),
        other => panic!("{other}"),
    }
    // Nothing is lost by that.
    let host = heap.host().unwrap();
    for (i, &data) in held.iter().enumerate() {
        let seen = host.slice(data, 10 << 18).unwrap();
        assert_eq!(seen.iter().sum::<u32>(), 1 + i as u32);
    }
}

fn one_argument_lies_in_one_binding(f: &Fixture) {
    let (context, device) = with(f, HeapSize::Bytes(400 * MIB), DeviceOptions::default());
    let heap = context.heap().unwrap();
    // The largest allocation is exactly what every device can bind, and is bound as a whole.
    let len = 128 << 18;
    let data = heap.alloc_zeroed::<u32>(len).unwrap();
    increment(&kernel(&device), data, len as u32)
        .wait()
        .unwrap();
    let host = heap.host().unwrap();
    let seen = host.slice(data, len).unwrap();
    assert!(seen.iter().all(|&x| x == 1));
    drop(host);
    match heap.alloc_zeroed::<u32>(len + 1).unwrap_err() {
        HeapError::TooLarge { limit, .. } => assert_eq!(limit, 128 * MIB),
        other => panic!("{other}"),
    }
    // Two allocations are two arguments, however they lie.
    let error = kernel(&device)
        .launch()
        .pointer("data", data, len + 1)
        .invocations(1)
        .submit()
        .unwrap_err();
    let expected =
        |error: &LaunchError| matches!(error, LaunchError::Heap(HeapError::NotAllocated { .. }));
    assert!(expected(&error), "{error}");
}
