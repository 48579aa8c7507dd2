//! The shared heap: one address for host and devices.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Context, DeviceBuffer, Kernel, Program, Ptr,
    device::LoopGuardPolicy,
    heap::{HeapError, HeapSize},
    launch::LaunchError,
};

cases![
    pointer_arguments_reach_the_heap,
    arguments_beside_each_other,
    overlapping_arguments_are_refused,
    pointer_arguments_are_checked,
    pointer_arguments_at_any_address,
    a_heap_larger_than_one_binding,
    growth_keeps_pointers_valid,
    trimming_keeps_pointers_valid,
    the_host_waits_for_launches,
    launches_are_refused_while_the_host_looks,
    freed_during_execution,
    several_devices_see_one_heap,
    failed_launches_are_told,
    devices_without_import_work_on_a_copy,
    eight_threads_share_the_heap,
];

const SCALE: &str = "
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&sink) { sink[id.x] = source[id.x] * 3u; }
}";

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn kernel(device: &tombolo::Device, source: &str) -> Kernel {
    let program = Program::new("heap.wgsl", source).unwrap();
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

fn pointer_arguments_reach_the_heap(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    let values: Vec<u32> = (0..1000).collect();
    let data = heap.alloc_slice(&values).unwrap();
    kernel
        .launch()
        .pointer("data", data, 1000)
        .invocations(1000)
        .submit()
        .unwrap();
    let host = heap.host().unwrap();
    let expected: Vec<u32> = (1..1001).collect();
    assert_eq!(host.slice(data, 1000).unwrap(), expected);
    drop(host);
    heap.free(data).unwrap();
}

fn arguments_beside_each_other(f: &Fixture) {
    // Both lie in one buffer of the device, one is read and the other written.
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, SCALE);
    let values: Vec<u32> = (0..500).collect();
    let source = heap.alloc_slice(&values).unwrap();
    let sink = heap.alloc_slice(&[u32::MAX; 500]).unwrap();
    let mut launch = kernel
        .launch()
        .pointer("source", source, 500)
        .pointer("sink", sink, 500)
        .invocations(500);
    for _ in 0..3 {
        launch.submit().unwrap();
    }
    let host = heap.host().unwrap();
    let expected: Vec<u32> = values.iter().map(|x| x * 3).collect();
    assert_eq!(host.slice(sink, 500).unwrap(), expected);
    assert_eq!(host.slice(source, 500).unwrap(), values);
    drop(host);
    // A grid of several dispatches needs both variants at once.
    let n = 70_000 * 64u32;
    let big = heap.alloc_zeroed::<u32>(n as usize).unwrap();
    let out: DeviceBuffer<u32> = f.device.zeroed(n as usize).unwrap();
    kernel
        .launch()
        .pointer("source", big, n as usize)
        .buffer("sink", &out)
        .invocations(n)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    for ptr in [source, sink, big] {
        heap.free(ptr).unwrap();
    }
}

fn overlapping_arguments_are_refused(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, SCALE);
    let data = heap.alloc_zeroed::<u32>(1000).unwrap();
    let error = kernel
        .launch()
        .pointer("source", data, 600)
        .pointer("sink", data.add(512), 400)
        .invocations(400)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::Aliased { .. }), "{error}");
    heap.free(data).unwrap();
}

fn pointer_arguments_are_checked(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    let data = heap.alloc_zeroed::<u32>(1000).unwrap();
    let refused = |ptr: Ptr<u32>, len| {
        let launch = kernel.launch().pointer("data", ptr, len).invocations(1);
        launch.clone().submit().unwrap_err()
    };
    for (ptr, len) in [(Ptr::null(), 1), (data, 1001), (data.add(2000), 1)] {
        match refused(ptr, len) {
            LaunchError::Heap(HeapError::Null { .. } | HeapError::NotAllocated { .. }) => {}
            other => panic!("{other}"),
        }
    }
    let wide = u64::from(f.device.capabilities().storage_offset_alignment / 4);
    kernel
        .launch()
        .pointer("data", data.add(wide), 3)
        .invocations(3)
        .submit()
        .unwrap();
    let host = heap.host().unwrap();
    let seen = host.slice(data, 1000).unwrap();
    let changed: Vec<usize> = (0..1000).filter(|&i| seen[i] == 1).collect();
    let wide = wide as usize;
    assert_eq!(changed, [wide, wide + 1, wide + 2]);
    drop(host);
    heap.free(data).unwrap();
}

fn pointer_arguments_at_any_address(f: &Fixture) {
    // Neither source nor sink starts where any adapter could bind it.
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, SCALE);
    let values: Vec<u32> = (0..500).collect();
    let source = heap.alloc_slice(&values).unwrap();
    let sink = heap.alloc_slice(&[7u32; 500]).unwrap();
    for (from, to) in [(1, 3), (0, 1), (13, 0), (64, 9)] {
        let event = kernel
            .launch()
            .pointer("source", source.add(from), 100)
            .pointer("sink", sink.add(to), 100)
            .invocations(100)
            .submit()
            .unwrap();
        event.wait().unwrap();
        let mut host = heap.host().unwrap();
        let expected: Vec<u32> = (0..500)
            .map(|i| match (i as u64).checked_sub(to) {
                Some(k) if k < 100 => values[(from + k) as usize] * 3,
                _ => 7,
            })
            .collect();
        assert_eq!(host.slice(sink, 500).unwrap(), expected, "{from} {to}");
        host.slice_mut(sink, 500).unwrap().fill(7);
    }
    let error = kernel
        .launch()
        .pointer("source", source.add(1), 100)
        .pointer("sink", source.add(99), 100)
        .invocations(100)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::Aliased { .. }), "{error}");
    heap.free(source).unwrap();
    heap.free(sink).unwrap();
}

fn a_heap_larger_than_one_binding(f: &Fixture) {
    // A list whose nodes lie in two segments of lavapipe's 128 MiB; the kernel is made before the heap
    // outgrows the first.
    let size = HeapSize::Bytes(320 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
    let device = context.device_named(f.device.name()).unwrap();
    let heap = context.heap().unwrap();
    let kernel = kernel(
        &device,
        "struct Node { value: vec2<u32>, next: usm_ptr }
         @group(0) @binding(0) var<uniform> first: usm_ptr;
         @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size(1) fn main() {
            var p = first; var sum = 0u;
            for (var i = 0u; i < 20u; i++) {
                if usm_is_null(p) { break; }
                let n = usm_Node(p);
                sum = sum * 3u + n.value.x;
                n.value.y = sum;
                p = n.next;
            }
            sink[0] = sum;
         }",
    );
    let sink: DeviceBuffer<u32> = device.zeroed(1).unwrap();
    let mut first = Ptr::<Node>::null();
    for value in 0..16u64 {
        // Each node heads an allocation of 12 MiB.
        let place = heap.alloc_zeroed::<Node>(12 << 16).unwrap();
        *heap.host().unwrap().get_mut(place).unwrap() = Node { value, next: first };
        first = place;
        kernel
            .launch()
            .value("first", &first)
            .buffer("sink", &sink)
            .workgroups(1)
            .submit()
            .unwrap();
        let expected = (0..=value as u32)
            .rev()
            .fold(0u32, |sum, v| sum.wrapping_mul(3).wrapping_add(v));
        assert_eq!(sink.read().unwrap(), [expected], "after {value}");
    }
    let last = heap.find(first).unwrap().base.address() - heap.base().address();
    assert!(last > 128 << 20, "{last}");
    let host = heap.host().unwrap();
    let (mut at, mut sum) = (first, 0u32);
    while !at.is_null() {
        let node = host.get(at).unwrap();
        sum = sum.wrapping_mul(3).wrapping_add(node.value as u32);
        assert_eq!((node.value >> 32) as u32, sum);
        at = node.next;
    }
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: u64,
    next: Ptr<Node>,
}

fn growth_keeps_pointers_valid(f: &Fixture) {
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(96 << 20)).unwrap();
    let device = context.device_named(f.device.name()).unwrap();
    let heap = context.heap().unwrap();
    let kernel = kernel(&device, INCREMENT);
    let mut list = Ptr::<Node>::null();
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    let mut blocks = Vec::new();
    // Each round outgrows what the device has imported so far, with launches before and after.
    for round in 0..5u64 {
        list = heap
            .alloc(Node {
                value: round,
                next: list,
            })
            .unwrap();
        let block = heap.alloc_zeroed::<u32>(3 << 20).unwrap();
        blocks.push(block);
        for pointer in [data, block] {
            kernel
                .launch()
                .pointer("data", pointer, 64)
                .invocations(64)
                .submit()
                .unwrap();
        }
    }
    let host = heap.host().unwrap();
    assert_eq!(host.slice(data, 64).unwrap(), [5; 64]);
    for &block in &blocks {
        assert_eq!(host.slice(block, 64).unwrap(), [1; 64]);
    }
    let mut values = Vec::new();
    while !list.is_null() {
        let node = host.get(list).unwrap();
        values.push(node.value);
        list = node.next;
    }
    assert_eq!(values, [4, 3, 2, 1, 0]);
    assert!(heap.committed() > 60 << 20);
    drop(host);
    assert!(matches!(
        heap.alloc_zeroed::<u8>(96 << 20).unwrap_err(),
        HeapError::TooLarge { .. }
    ));
    assert!(matches!(
        heap.alloc_zeroed::<u8>(40 << 20).unwrap_err(),
        HeapError::OutOfMemory { .. }
    ));
}

fn trimming_keeps_pointers_valid(f: &Fixture) {
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(96 << 20)).unwrap();
    let device = context.device_named(f.device.name()).unwrap();
    let heap = context.heap().unwrap();
    let kernel = kernel(&device, INCREMENT);
    let run = |ptr: Ptr<u32>| {
        let mut launch = kernel.launch().pointer("data", ptr, 64).invocations(64);
        launch.submit().unwrap().wait().unwrap();
    };
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    run(data);
    for round in 0..3 {
        let big = heap.alloc_zeroed::<u32>(5 << 20).unwrap();
        run(big);
        run(data);
        heap.free(big).unwrap();
        let given = heap.trim();
        assert!(given > 0, "round {round}");
        run(data);
    }
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [7; 64]);
}

fn the_host_waits_for_launches(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(
        &f.device,
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var x = data[id.x];
            for (var i = 0u; i < 2000u; i++) { x = x * 1664525u + 1013904223u; }
            data[id.x] = x;
         }",
    );
    let data = heap.alloc_zeroed::<u32>(65_536).unwrap();
    kernel
        .launch()
        .pointer("data", data, 65_536)
        .invocations(65_536)
        .submit()
        .unwrap();
    let expected = (0..2000).fold(0u32, |x, _| {
        x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
    });
    // Nobody has waited for the launch, not even submitted it.
    let host = heap.host_timeout(Duration::from_secs(60)).unwrap();
    assert!(
        host.slice(data, 65_536)
            .unwrap()
            .iter()
            .all(|&x| x == expected)
    );
    drop(host);
    heap.free(data).unwrap();
}

fn launches_are_refused_while_the_host_looks(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    let mut launch = kernel.launch().pointer("data", data, 64).invocations(64);
    let host = heap.host().unwrap();
    assert!(matches!(
        launch.submit().unwrap_err(),
        LaunchError::Heap(HeapError::HostAccess { .. })
    ));
    assert_eq!(host.slice(data, 64).unwrap(), [0; 64]);
    drop(host);
    launch.submit().unwrap();
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [1; 64]);
    heap.free(data).unwrap();
}

fn freed_during_execution(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    let kept = heap.alloc_zeroed::<u32>(64).unwrap();
    for round in 0..1000u32 {
        let data = heap.alloc_slice(&[round; 64]).unwrap();
        kernel
            .launch()
            .pointer("data", data, 64)
            .invocations(64)
            .submit()
            .unwrap();
        heap.free(data).unwrap();
        assert!(heap.find(data).is_none());
        // What is allocated now must not be where the launch still writes.
        let other = heap.alloc_slice(&[7u32; 64]).unwrap();
        kernel
            .launch()
            .pointer("data", kept, 64)
            .invocations(64)
            .submit()
            .unwrap();
        if round % 10 == 9 {
            let host = heap.host().unwrap();
            assert_eq!(host.slice(other, 64).unwrap(), [7; 64]);
            assert_eq!(host.slice(kept, 64).unwrap(), [round + 1; 64]);
        }
        heap.free(other).unwrap();
    }
    heap.free(kept).unwrap();
}

fn several_devices_see_one_heap(f: &Fixture) {
    // Every adapter of the machine, and a second device on this one, take turns on the same bytes.
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_zeroed::<u32>(300).unwrap();
    let mut devices = vec![f.open(|_| {}), f.device.clone()];
    for adapter in f.context.adapters() {
        devices.push(f.context.device_at(adapter.index).unwrap());
    }
    let mut expected = 0;
    for round in 0..3 {
        for device in &devices {
            kernel(device, INCREMENT)
                .launch()
                .pointer("data", data, 300)
                .invocations(300)
                .submit()
                .unwrap()
                .wait()
                .unwrap();
            expected += 1;
        }
        let mut host = heap.host().unwrap();
        assert_eq!(host.slice(data, 300).unwrap(), vec![expected; 300]);
        host.slice_mut(data, 300).unwrap().fill(100 * round);
        expected = 100 * round;
    }
    heap.free(data).unwrap();
}

fn failed_launches_are_told(f: &Fixture) {
    let context = Context::new().unwrap();
    let device = context.device_named(f.device.name()).unwrap();
    let heap = context.heap().unwrap();
    let kernel = kernel(
        &device,
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main() {
            let turns = data[0]; var n = 0u;
            for (var i = 0u; i < turns; i++) { n += 1u; }
            data[1] = n;
         }",
    );
    let data = heap.alloc_slice(&[200_000u32, 0]).unwrap();
    kernel
        .launch()
        .pointer("data", data, 2)
        .workgroups(1)
        .submit()
        .unwrap();
    if f.is_lavapipe() {
        assert!(matches!(
            heap.host().map(|_| ()).unwrap_err(),
            HeapError::Execution(_)
        ));
        // Told once; the heap itself is as usable as before.
        heap.host().unwrap();
    } else {
        let host = heap.host().unwrap();
        assert_eq!(host.slice(data, 2).unwrap(), [200_000, 200_000]);
    }
}

fn devices_without_import_work_on_a_copy(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    kernel(&device, INCREMENT)
        .launch()
        .pointer("data", data, 64)
        .invocations(64)
        .submit()
        .unwrap();
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [1; 64]);
    assert!(heap.mirror_statistics().mirrors > 0);
    heap.free(data).unwrap();
}

fn eight_threads_share_the_heap(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let device = f.open(|options| options.loop_guard = LoopGuardPolicy::Off);
    let before = heap.allocations().len();
    let kernel = kernel(&device, INCREMENT);
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            let (heap, kernel) = (&heap, &kernel);
            scope.spawn(move || {
                for i in 0..40u32 {
                    let len = 16 + (t * 37 + i * 11) % 500;
                    let data = heap.alloc_slice(&vec![t; len as usize]).unwrap();
                    let event = loop {
                        let mut launch = kernel
                            .launch()
                            .pointer("data", data, len as usize)
                            .invocations(len);
                        match launch.submit() {
                            Ok(event) => break event,
                            // Another thread is looking.
                            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => {
                                std::thread::yield_now();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    event.wait().unwrap();
                    let host = heap.host().unwrap();
                    let seen = host.slice(data, len as usize).unwrap();
                    assert!(seen.iter().all(|&x| x == t + 1));
                    drop(host);
                    heap.free(data).unwrap();
                }
            });
        }
    });
    assert_eq!(heap.allocations().len(), before);
}
