//! How large the shared heap grows, and when it gives memory back.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Context, Device, DeviceOptions, Kernel, Program, Ptr, SharedHeap,
    heap::{HeapBound, HeapError, HeapSize},
    launch::LaunchError,
};

cases![
    the_working_set_is_told_and_sizes_the_heap,
    launches_contract_an_adaptive_heap,
    an_adaptive_heap_ends_at_its_bound,
    one_argument_lies_in_one_binding,
    devices_that_are_gone_limit_no_allocation,
    kernels_go_on_in_a_heap_that_has_shrunk,
    arguments_that_were_given_back_are_refused,
];

const MIB: u64 = 1 << 20;

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

/// Both tiers: with the heap in place, and with a copy of it.
fn both(f: &Fixture, heap: HeapSize, test: impl Fn(&SharedHeap, &Device)) {
    for live in [true, false] {
        let mut options = DeviceOptions::default();
        options.live_memory = live;
        let (context, device) = with(f, heap, options);
        test(&context.heap().unwrap(), &device);
    }
}

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
            start: 0,
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
        start: 0,
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

fn devices_that_are_gone_limit_no_allocation(f: &Fixture) {
    let mut narrow = DeviceOptions::default();
    narrow.storage_binding_bytes = Some(MIB);
    let (context, device) = with(f, HeapSize::Bytes(64 * MIB), narrow);
    let heap = context.heap().unwrap();
    let small = heap.alloc_slice(&[1u32; 64]).unwrap();
    increment(&kernel(&device), small, 64).wait().unwrap();
    match heap.alloc_bytes(2 * MIB, 16).unwrap_err() {
        HeapError::TooLarge { limit, .. } => assert_eq!(limit, MIB),
        other => panic!("{other}"),
    }
    drop(device);
    let wide = context.device_named_with(f.device.name(), DeviceOptions::default());
    let kernel = kernel(&wide.unwrap());
    let len = (2 * MIB / 4) as u32;
    let large = heap.alloc_zeroed::<u32>(len as usize).unwrap();
    // Also those that lie where the segments of the other one were.
    for (data, len, expected) in [(small, 64, 3), (large, len, 1)] {
        increment(&kernel, data, len).wait().unwrap();
        let host = heap.host().unwrap();
        let seen = host.slice(data, len as usize).unwrap();
        assert!(seen.iter().all(|&x| x == expected));
    }
}

fn one_argument_lies_in_one_binding(f: &Fixture) {
    let (context, device) = with(f, HeapSize::Bytes(400 * MIB), DeviceOptions::default());
    let heap = context.heap().unwrap();
    // The largest allocation is exactly what the device can bind, and is bound as a whole; or more than usual.
    let binds = device.capabilities().storage_binding_bytes;
    let binds = (1 << binds.ilog2()).min(512 * MIB);
    let most = binds.min(400 * MIB - (64 << 10));
    let len = (most.min(136 * MIB) / 4) as usize;
    let data = heap.alloc_zeroed::<u32>(len).unwrap();
    increment(&kernel(&device), data, len as u32)
        .wait()
        .unwrap();
    let host = heap.host().unwrap();
    let seen = host.slice(data, len).unwrap();
    assert!(seen.iter().all(|&x| x == 1));
    drop(host);
    match heap.alloc_bytes(most + 1, 16).unwrap_err() {
        HeapError::TooLarge { limit, .. } => assert_eq!(limit, most),
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

/// Adds one to a word behind a pointer that is behind a pointer.
const FOLLOW: &str = "
alias Cell = usm_ptr;
@group(0) @binding(0) var<uniform> cell: usm_ptr;
@compute @workgroup_size(1) fn main() {
    let next = usm_Cell(cell);
    let word = usm_u32(*next);
    *word += 1u;
}";

fn kernels_go_on_in_a_heap_that_has_shrunk(f: &Fixture) {
    // Two blocks are more than lavapipe binds at once.
    const WORDS: u64 = 17 << 20;
    both(f, HeapSize::Bytes(300 * MIB), |heap, device| {
        let made = |name| {
            let program = Program::new(name, FOLLOW).unwrap();
            device.kernel(&program, "main", &Constants::new()).unwrap()
        };
        let early = made("early.wgsl");
        let cells = [(); 3].map(|()| heap.alloc(Ptr::<u32>::null()).unwrap());
        // All launches, then all results: between a launch and a read, copies of the heap are searched for what has changed.
        let follow = |kernel: &Kernel, to: &[Ptr<u32>]| {
            for (&cell, &to) in cells.iter().zip(to) {
                heap.write(cell, &[to]).unwrap();
            }
            for cell in &cells[..to.len()] {
                let mut launch = kernel.launch().value("cell", cell).workgroups(1);
                launch.submit().unwrap();
            }
            let found = to.iter().map(|&to| heap.read(to, 1).unwrap()[0]);
            found.collect::<Vec<_>>()
        };
        let near = heap.alloc(100u32).unwrap();
        assert_eq!(follow(&early, &[near]), [101]);
        for round in 0..2 {
            // The kernel is made anew for two segments.
            let blocks = [(); 2].map(|()| heap.alloc_zeroed::<u32>(WORDS as usize).unwrap());
            let [one, other] = blocks.map(|block| block.add(WORDS - 1));
            // Another one has never known less.
            let late = made(["late.wgsl", "later.wgsl"][round as usize]);
            for (done, kernel) in [(0, &early), (1, &late)] {
                let found = follow(kernel, &[one, other, near]);
                assert_eq!(found, [done + 1, done + 1, 102 + 4 * round + done]);
            }
            for block in blocks {
                heap.free(block).unwrap();
            }
            assert!(heap.trim() > 100 * MIB);
            assert_eq!(heap.committed(), 16 * MIB);
            for (done, kernel) in [(0, &early), (1, &late)] {
                assert_eq!(follow(kernel, &[near]), [104 + 4 * round + done]);
            }
        }
    });
}

fn arguments_that_were_given_back_are_refused(f: &Fixture) {
    both(f, HeapSize::Bytes(96 * MIB), |heap, device| {
        let kernel = kernel(device);
        let kept = heap.alloc_zeroed::<u32>(64).unwrap();
        let block = heap.alloc_zeroed::<u32>(10 << 20).unwrap();
        let at = block.add((10 << 20) - 64);
        let mut launch = kernel.launch().pointer("data", at, 64).invocations(64);
        launch.submit().unwrap().wait().unwrap();
        heap.free(block).unwrap();
        heap.trim();
        increment(&kernel, kept, 64);
        // Wherever its memory is now, the launch harms nobody and nothing.
        let late = launch.submit().unwrap_err();
        let is_told = matches!(late, LaunchError::Heap(HeapError::NotAllocated { .. }));
        assert!(is_told, "{late}");
        increment(&kernel, kept, 64).wait().unwrap();
        assert_eq!(heap.host().unwrap().slice(kept, 64).unwrap(), [2; 64]);
        drop(launch);
    });
}
