//! Devices that cannot use the host's memory in place: the same program, with copies underneath.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Kernel, Program, Ptr, SharedHeap,
    device::{Aspect, Capability, ExecutionError, Tier, WaitError},
    heap::{HeapError, HeapSize},
    launch::LaunchError,
};

cases![
    the_device_has_no_import,
    a_list_is_changed_and_the_host_walks_it,
    a_kernel_builds_a_list_that_the_host_walks,
    devices_of_both_tiers_extend_one_list_in_turn,
    devices_of_both_tiers_take_turns_on_recorded_launches,
    host_writes_between_launches,
    launches_are_refused_while_the_host_looks,
    bad_pointers_fail_the_launch,
    threads_take_turns,
];

/// A context of its own, so that nobody else moves bytes, and a device of the lower tier.
pub fn open(f: &Fixture) -> (Context, Device, SharedHeap) {
    let heap = HeapSize::Bytes(512 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
    let device = mirrored(&context, f);
    let heap = context.heap().unwrap();
    (context, device, heap)
}

pub fn mirrored(context: &Context, f: &Fixture) -> Device {
    mirrored_with(context, f, |_| {})
}

pub fn mirrored_with(
    context: &Context,
    f: &Fixture,
    change: impl FnOnce(&mut DeviceOptions),
) -> Device {
    let mut options = DeviceOptions::default();
    options.live_memory = false;
    change(&mut options);
    context.device_named_with(f.device.name(), options).unwrap()
}

pub fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("mirror.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

pub const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

pub fn increment(device: &Device, data: Ptr<u32>, len: u32) {
    kernel(device, INCREMENT)
        .launch()
        .pointer("data", data, len as usize)
        .invocations(len)
        .submit()
        .unwrap();
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    pub value: f32,
    pub tag: u32,
    pub next: Ptr<Node>,
}

pub fn list(heap: &SharedHeap, len: u32) -> Ptr<Node> {
    let mut first = Ptr::null();
    for tag in (0..len).rev() {
        let node = Node {
            value: tag as f32,
            tag,
            next: first,
        };
        first = heap.alloc(node).unwrap();
    }
    first
}

pub fn walk(heap: &SharedHeap, first: Ptr<Node>) -> Vec<Node> {
    let host = heap.host().unwrap();
    let (mut at, mut seen) = (first, Vec::new());
    while !at.is_null() {
        let node = *host.get(at).unwrap();
        seen.push(node);
        at = node.next;
    }
    seen
}

/// Follows a list, adds its values up, doubles them and takes every second node out.
pub const THIN: &str = "
struct Node { value: f32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> first: usm_ptr;
@group(0) @binding(1) var<storage, read_write> sum: array<f32>;
@compute @workgroup_size(1) fn main() {
    var p = first;
    var total = 0.0;
    while !usm_is_null(p) { total += usm_Node(p).value; p = usm_Node(p).next; }
    sum[0] = total;
    p = first;
    while !usm_is_null(p) {
        let n = usm_Node(p);
        n.value *= 2.0;
        if !usm_is_null(n.next) { n.next = usm_Node(n.next).next; }
        p = n.next;
    }
}";

fn the_device_has_no_import(f: &Fixture) {
    let (_context, device, _) = open(f);
    assert!(!device.has(Aspect::HostImport));
    let report = device.capabilities().tier(Capability::Pointers);
    assert_eq!(report.tier, Tier::CoarseGrained, "{report}");
}

fn a_list_is_changed_and_the_host_walks_it(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let kernel = kernel(&device, THIN);
    let first = list(&heap, 1000);
    let before = walk(&heap, first);
    let sum: DeviceBuffer<f32> = device.zeroed(1).unwrap();
    kernel
        .launch()
        .value("first", &first)
        .buffer("sum", &sum)
        .workgroups(1)
        .submit()
        .unwrap();
    let after = walk(&heap, first);
    let expected: Vec<(u32, f32)> = (before.iter().step_by(2))
        .map(|n| (n.tag, n.value * 2.0))
        .collect();
    let after: Vec<(u32, f32)> = after.iter().map(|n| (n.tag, n.value)).collect();
    assert_eq!(after, expected);
    assert_eq!(sum.read().unwrap(), [499_500.0]);
}

const PUSH: &str = "
struct Node { value: f32, tag: u32, next: usm_ptr }
struct List { count: atomic<u32>, pad: u32, low: atomic<u32>, high: atomic<u32> }
@group(0) @binding(0) var<uniform> list: usm_ptr;
@group(0) @binding(1) var<uniform> arena: usm_ptr;
@group(0) @binding(2) var<uniform> start: u32;
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let l = usm_List(list);
    let p = usm_add(arena, (start + id.x) * 16u);
    let n = usm_Node(p);
    n.value = f32(start + id.x) + 0.5;
    n.tag = start + id.x;
    loop {
        let old = atomicLoad(&l.low);
        n.next = vec2<u32>(old, select(p.y, 0u, old == 0u));
        if atomicCompareExchangeWeak(&l.low, old, p.x).exchanged { break; }
    }
    atomicStore(&l.high, p.y);
    atomicAdd(&l.count, 1u);
}";

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct List {
    count: u32,
    pad: u32,
    first: Ptr<Node>,
}

fn push(device: &Device, head: Ptr<List>, arena: Ptr<Node>, start: u32, count: u32) {
    kernel(device, PUSH)
        .launch()
        .value("list", &head)
        .value("arena", &arena)
        .value("start", &start)
        .workgroups(count)
        .submit()
        .unwrap();
}

fn check_list(heap: &SharedHeap, head: Ptr<List>, count: u32) {
    let List {
        first, count: n, ..
    } = *heap.host().unwrap().get(head).unwrap();
    assert_eq!(n, count);
    let nodes = walk(heap, first);
    assert!(nodes.iter().all(|n| n.value == n.tag as f32 + 0.5));
    let mut tags: Vec<u32> = nodes.iter().map(|n| n.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..count).collect::<Vec<_>>());
}

fn a_kernel_builds_a_list_that_the_host_walks(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let head = heap.alloc(List::zeroed()).unwrap();
    let arena = heap.alloc_zeroed::<Node>(700).unwrap();
    push(&device, head, arena, 0, 300);
    push(&device, head, arena, 300, 400);
    check_list(&heap, head, 700);
}

/// Two devices of the lower tier, and every adapter with the heap in place.
fn devices(context: &Context, f: &Fixture) -> Vec<Device> {
    let mut devices = vec![mirrored(context, f)];
    for adapter in context.adapters() {
        devices.push(context.device_at(adapter.index).unwrap());
        let mut options = DeviceOptions::default();
        options.import_host_memory = false;
        devices.push(context.device_at_with(adapter.index, options).unwrap());
    }
    devices
}

fn devices_of_both_tiers_extend_one_list_in_turn(f: &Fixture) {
    let (context, _, heap) = open(f);
    let devices = devices(&context, f);
    let head = heap.alloc(List::zeroed()).unwrap();
    let arena = heap.alloc_zeroed::<Node>(2000).unwrap();
    let mut start = 0;
    for _ in 0..3 {
        for device in &devices {
            push(device, head, arena, start, 40);
            device.finish().unwrap();
            start += 40;
        }
    }
    check_list(&heap, head, start);
}

fn devices_of_both_tiers_take_turns_on_recorded_launches(f: &Fixture) {
    let (context, _, heap) = open(f);
    let devices = devices(&context, f);
    let data = heap.alloc_zeroed::<u32>(3000).unwrap();
    let mut expected = 0;
    for round in 0..3 {
        for device in &devices {
            // Nobody waits, and nobody submits: the next device has to see to that.
            increment(device, data, 3000);
            increment(device, data, 3000);
            expected += 2;
        }
        let mut host = heap.host().unwrap();
        assert_eq!(host.slice(data, 3000).unwrap(), vec![expected; 3000]);
        host.slice_mut(data, 3000).unwrap().fill(100 * round);
        expected = 100 * round;
    }
}

fn host_writes_between_launches(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    let mut expected = [0u32; 64];
    for round in 0..5 {
        increment(&device, data, 64);
        expected.iter_mut().for_each(|x| *x += 1);
        let mut host = heap.host().unwrap();
        assert_eq!(host.slice(data, 64).unwrap(), expected);
        host.slice_mut(data, 64).unwrap()[round * 7] = 1000;
        expected[round * 7] = 1000;
    }
}

fn launches_are_refused_while_the_host_looks(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    let kernel = kernel(&device, INCREMENT);
    let host = heap.host().unwrap();
    let mut launch = kernel.launch().pointer("data", data, 64).invocations(64);
    assert!(matches!(
        launch.submit().unwrap_err(),
        LaunchError::Heap(HeapError::HostAccess { .. })
    ));
    drop(host);
    launch.submit().unwrap();
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [1; 64]);
}

fn bad_pointers_fail_the_launch(f: &Fixture) {
    let (context, _, heap) = open(f);
    let device = mirrored_with(&context, f, |options| options.checked_pointers = true);
    let good = heap.alloc([5u32, 6]).unwrap();
    let kernel = kernel(
        &device,
        "@group(0) @binding(0) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() { let word = usm_u32(at); *word += 1u; }",
    );
    let run = |at: Ptr<[u32; 2]>| kernel.launch().value("at", &at).workgroups(1).submit();
    let beyond = heap.base().byte_add((4 << 30) - 64).cast();
    for bad in [Ptr::null(), good.byte_add(2), beyond] {
        match run(bad).unwrap().wait() {
            Err(WaitError::Failed(error)) => match &*error {
                ExecutionError::Pointer { address, .. } => assert_eq!(*address, bad.address()),
                other => panic!("{other}"),
            },
            other => panic!("{bad:?}: {other:?}"),
        }
        assert!(matches!(
            heap.host().map(|_| ()).unwrap_err(),
            HeapError::Execution(_)
        ));
    }
    assert_eq!(*heap.host().unwrap().get(good).unwrap(), [5, 6]);
    run(good).unwrap().wait().unwrap();
    assert_eq!(*heap.host().unwrap().get(good).unwrap(), [6, 6]);
}

fn threads_take_turns(f: &Fixture) {
    let (context, _, heap) = open(f);
    let devices = [
        mirrored(&context, f),
        context.device_named(f.device.name()).unwrap(),
        mirrored(&context, f),
    ];
    std::thread::scope(|scope| {
        for t in 0..6u32 {
            let (heap, device) = (&heap, &devices[t as usize % 3]);
            scope.spawn(move || {
                let kernel = kernel(device, INCREMENT);
                for i in 0..8u32 {
                    let len = 16 + (t * 37 + i * 11) % 500;
                    let data = heap.alloc_slice(&vec![t; len as usize]).unwrap();
                    loop {
                        let mut launch = kernel
                            .launch()
                            .pointer("data", data, len as usize)
                            .invocations(len);
                        match launch.submit() {
                            Ok(_) => break,
                            // Another thread is looking.
                            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => {
                                std::thread::yield_now();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    let host = heap.host().unwrap();
                    let seen = host.slice(data, len as usize).unwrap();
                    assert!(seen.iter().all(|&x| x == t + 1));
                    drop(host);
                    heap.free(data).unwrap();
                }
            });
        }
    });
    assert!(heap.allocations().is_empty());
}
