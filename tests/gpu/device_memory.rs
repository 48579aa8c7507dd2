//! A device's own memory behind pointers: stored in shared structures, followed by kernels, resolved by
//! the host only through copies. Every case runs with the memory that the adapter has, and with host
//! and device memory apart.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Device, DeviceBuffer, Kernel, Program, Ptr,
    heap::{HeapError, PointerKind},
    kernel::{KernelOptions, TranslationMode},
};

cases![
    pointers_carry_a_tag,
    lists_of_device_and_shared_nodes,
    device_pointers_are_arguments,
    memory_is_reused_and_grows,
    a_chain_leads_through_many_segments,
    a_segment_is_as_long_as_a_binding,
    memory_of_another_device_is_not_ones_own,
    wrong_pointers_are_refused,
];

fn both(f: &Fixture, test: impl Fn(&Device)) {
    for unified in [None, Some(false)] {
        for checked in [false, true] {
            test(&f.open(|options| {
                options.unified_memory = unified;
                options.checked_pointers = checked;
            }));
        }
    }
}

fn pointers_carry_a_tag(f: &Fixture) {
    both(f, |device| {
        let ptr = device.malloc::<u32>(100).unwrap();
        assert_eq!(ptr.kind(), PointerKind::Device);
        assert_ne!(ptr.address() >> 48, 0);
        let heap = device.heap().unwrap();
        assert!(heap.find(ptr).is_none());
        assert!(matches!(
            heap.host().unwrap().get(ptr).unwrap_err(),
            HeapError::DeviceMemory { .. }
        ));
        device.free(ptr).unwrap();
    });
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: u32,
    tag: u32,
    next: Ptr<Node>,
}

const LIST: &str = "
struct Node { value: u32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> shared_nodes: usm_ptr;
@group(0) @binding(1) var<uniform> own_nodes: usm_ptr;
@group(0) @binding(2) var<storage, read_write> sink: array<u32>;
fn place(i: u32) -> usm_ptr {
    if i == 20u { return usm_null(); }
    if i % 3u == 1u { return usm_add(own_nodes, i * 16u); }
    return usm_add(shared_nodes, i * 16u);
}
@compute @workgroup_size(4) fn link(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < 20u {
        let n = usm_Node(place(id.x));
        n.value = id.x * id.x;
        n.tag = 7u;
        n.next = place(id.x + 1u);
    }
}
@compute @workgroup_size(1) fn follow() {
    var p = place(0u); var sum = 0u; var count = 0u;
    for (var i = 0u; i < 100u; i++) {
        if usm_is_null(p) { break; }
        let n = usm_Node(p);
        sum += n.value; count += n.tag; p = n.next;
    }
    sink[0] = sum; sink[1] = count;
}";

fn kernel(device: &Device, entry: &str, mode: TranslationMode) -> Kernel {
    let program = Program::new("list.wgsl", LIST).unwrap_or_else(|e| panic!("{e}"));
    let mut options = KernelOptions::default();
    options.pointers = mode;
    device
        .kernel_with(&program, entry, &Constants::new(), options)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn lists_of_device_and_shared_nodes(f: &Fixture) {
    both(f, |device| {
        let heap = device.heap().unwrap();
        let shared = heap.alloc_zeroed::<Node>(20).unwrap();
        let own = device.malloc::<Node>(20).unwrap();
        for mode in [
            TranslationMode::DeviceFavored,
            TranslationMode::SharedFavored,
        ] {
            kernel(device, "link", mode)
                .launch()
                .value("shared_nodes", &shared)
                .value("own_nodes", &own)
                .invocations(20)
                .submit()
                .unwrap()
                .wait()
                .unwrap();
            let sink: DeviceBuffer<u32> = device.zeroed(2).unwrap();
            kernel(device, "follow", mode)
                .launch()
                .value("shared_nodes", &shared)
                .value("own_nodes", &own)
                .buffer("sink", &sink)
                .workgroups(1)
                .submit()
                .unwrap()
                .wait()
                .unwrap();
            let squares: u32 = (0..20).map(|i| i * i).sum();
            assert_eq!(sink.read().unwrap(), [squares, 140]);
        }
        // The shared half is the host's to read, and says where the other half is.
        let host = heap.host().unwrap();
        let nodes = host.slice(shared, 20).unwrap();
        assert_eq!(nodes[0].next, own.add(1));
        assert_eq!(nodes[2].next, shared.add(3));
        assert_eq!(nodes[18].value, 18 * 18);
        drop(host);
        heap.free(shared).unwrap();
        device.free(own).unwrap();
    });
}

fn device_pointers_are_arguments(f: &Fixture) {
    let source = "
        @group(0) @binding(0) var<storage, read> source: array<u32>;
        @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&sink) { sink[id.x] = source[id.x] * 2u + 1u; }
        }";
    both(f, |device| {
        let program = Program::new("double.wgsl", source).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let heap = device.heap().unwrap();
        let values: Vec<u32> = (0..300).collect();
        let shared = heap.alloc_slice(&values).unwrap();
        let first = device.malloc::<u32>(300).unwrap();
        let second = device.malloc::<u32>(300).unwrap();
        let out = heap.alloc_zeroed::<u32>(300).unwrap();
        for (from, to) in [(shared, first), (first, second), (second, out)] {
            kernel
                .launch()
                .pointer("source", from, 300)
                .pointer("sink", to, 300)
                .invocations(300)
                .submit()
                .unwrap();
        }
        let host = heap.host().unwrap();
        let expected: Vec<u32> = values
            .iter()
            .map(|x| ((x * 2 + 1) * 2 + 1) * 2 + 1)
            .collect();
        assert_eq!(host.slice(out, 300).unwrap(), expected);
        drop(host);
        for ptr in [first, second] {
            device.free(ptr).unwrap();
        }
        for ptr in [shared, out] {
            heap.free(ptr).unwrap();
        }
    });
}

fn memory_is_reused_and_grows(f: &Fixture) {
    let device = f.open(|options| options.unified_memory = Some(false));
    let a = device.malloc::<u8>(40 << 20).unwrap();
    device.free(a).unwrap();
    assert_eq!(device.malloc::<u8>(40 << 20).unwrap(), a);
    // A second segment, with another tag; and lists go through it.
    let b = device.malloc::<u8>(40 << 20).unwrap();
    assert_ne!(b.address() >> 48, a.address() >> 48);
    let heap = device.heap().unwrap();
    let shared = heap.alloc_zeroed::<Node>(20).unwrap();
    let own = b.byte_add(1 << 20).cast::<Node>();
    let sink: DeviceBuffer<u32> = device.zeroed(2).unwrap();
    for entry in ["link", "follow"] {
        let kernel = kernel(&device, entry, TranslationMode::DeviceFavored);
        let mut launch = kernel
            .launch()
            .value("shared_nodes", &shared)
            .value("own_nodes", &own)
            // One invocation walks the list, or several would write the sums.
            .workgroups(if entry == "link" { 5 } else { 1 });
        if entry == "follow" {
            launch = launch.buffer("sink", &sink);
        }
        launch.submit().unwrap().wait().unwrap();
    }
    assert_eq!(sink.read().unwrap()[1], 140);
    assert!(matches!(
        device.malloc::<u64>(usize::MAX).unwrap_err(),
        HeapError::TooLarge { .. }
    ));
}

/// Follows six pointers, and notes in each node what has been seen.
const CHAIN: &str = "
struct Node { value: u32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> first: usm_ptr;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
@compute @workgroup_size(1) fn main() {
    var p = first;
    var sum = 0u;
    for (var i = 0u; i < 6u; i++) {
        let n = usm_Node(p);
        sum = sum * 3u + n.value;
        n.tag = sum;
        p = n.next;
    }
    sums[0] = sum;
}";

fn set(device: &Device, node: Ptr<Node>, value: u32, next: Ptr<Node>) {
    let value = Node {
        value,
        tag: 0,
        next,
    };
    let words: &[u32] = bytemuck::cast_slice(std::slice::from_ref(&value));
    let buffer = device.buffer(words).unwrap();
    buffer.copy_to_heap(0, node.cast::<u32>(), 4).unwrap();
}

/// As many segments as every adapter binds at once, and a node in each: kernels find the segment by halving.
fn a_chain_leads_through_many_segments(f: &Fixture) {
    const SEGMENT: u64 = 1 << 20;
    const SEGMENTS: usize = 6;
    for checked in [false, true] {
        // In a context of its own, whose heap is laid out for segments so small.
        let device = f.open_alone(|options| {
            options.unified_memory = Some(false);
            options.checked_pointers = checked;
            options.storage_binding_bytes = Some(SEGMENT);
        });
        // A block fills a segment, so that each has another tag; the node lies at the end.
        let blocks: Vec<Ptr<u8>> = (0..SEGMENTS)
            .map(|_| device.malloc(SEGMENT as usize).unwrap())
            .collect();
        let mut tags: Vec<u64> = blocks.iter().map(|block| block.address() >> 48).collect();
        tags.dedup();
        assert_eq!(tags.len(), SEGMENTS);
        let nodes: Vec<Ptr<Node>> = (blocks.iter())
            .map(|block| block.byte_add(SEGMENT - size_of::<Node>() as u64).cast())
            .collect();
        let shared = device.heap().unwrap().alloc(Ptr::<Node>::null()).unwrap();
        let chain = [3, 0, 5, 2, 4, 1];
        let next = |at: usize| chain.get(at + 1).map_or(shared.cast(), |&next| nodes[next]);
        for (at, &node) in chain.iter().enumerate() {
            set(&device, nodes[node], 1 << (4 * node), next(at));
        }
        let program = Program::new("chain.wgsl", CHAIN);
        let kernel = device.kernel(&program.unwrap(), "main", &Constants::new());
        let sums: DeviceBuffer<u32> = device.buffer(&[u32::MAX; 2]).unwrap();
        let launch = kernel.as_ref().unwrap().launch();
        let launch = launch
            .value("first", &nodes[chain[0]])
            .buffer("sums", &sums);
        { launch.workgroups(1) }.submit().unwrap().wait().unwrap();
        let mut sum = 0u32;
        for node in chain {
            sum = sum.wrapping_mul(3).wrapping_add(1 << (4 * node));
            let seen: DeviceBuffer<u32> = device.zeroed(2).unwrap();
            seen.copy_from_heap(0, nodes[node].cast::<u32>(), 2)
                .unwrap();
            assert_eq!(seen.read().unwrap(), [1 << (4 * node), sum]);
        }
        assert_eq!(sums.read().unwrap(), [sum, u32::MAX]);
        blocks
            .into_iter()
            .for_each(|block| device.free(block).unwrap());
    }
}

/// Nodes at both ends of the longest segment, and not a page more.
fn a_segment_is_as_long_as_a_binding(f: &Fixture) {
    let device = f.open_alone(|options| options.unified_memory = Some(false));
    let limits = device.raw().limits();
    let binding = limits.max_storage_buffer_binding_size;
    let buffer = limits.max_buffer_size - limits.max_buffer_size / 1024;
    let most = binding.min(buffer).min(2 << 30) & !4095;
    match device.malloc_bytes(most + 4096, 4096).unwrap_err() {
        HeapError::TooLarge { bytes, limit, .. } => assert_eq!((bytes, limit), (most + 4096, most)),
        other => panic!("{other}"),
    }
    let block = device.malloc_bytes(most, 4096).unwrap();
    let ends = [0, most - size_of::<Node>() as u64].map(|at| block.byte_add(at).cast::<Node>());
    set(&device, ends[0], 1, ends[1]);
    set(&device, ends[1], 5, ends[0]);
    let program = Program::new("chain.wgsl", CHAIN).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let sums: DeviceBuffer<u32> = device.buffer(&[u32::MAX; 2]).unwrap();
    let launch = kernel
        .launch()
        .value("first", &ends[1])
        .buffer("sums", &sums);
    { launch.workgroups(1) }.submit().unwrap().wait().unwrap();
    let sum = [5, 1, 5, 1, 5, 1]
        .iter()
        .fold(0, |sum, value| sum * 3 + value);
    assert_eq!(sums.read().unwrap(), [sum, u32::MAX]);
    device.free(block).unwrap();
}

fn memory_of_another_device_is_not_ones_own(f: &Fixture) {
    // In contexts of their own: what follows fails a launch.
    let open = || {
        f.open_alone(|options| {
            options.unified_memory = Some(false);
            options.checked_pointers = true;
        })
    };
    let (device, other) = (open(), open());
    let own = [&device, &other].map(|device| device.malloc::<u32>(4).unwrap());
    assert_ne!(own[0], own[1]);
    assert_eq!(device.find(own[1]), None);
    assert!(matches!(
        device.free(own[1]).unwrap_err(),
        HeapError::NotAllocated { .. }
    ));
    let source = "@group(0) @binding(0) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() { let n = usm_Number(at); n.value += 1u; }
        struct Number { value: u32 }";
    let program = Program::new("tags.wgsl", source).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let run = |at: Ptr<u32>| {
        let mut launch = kernel.launch().value("at", &at).workgroups(1);
        launch.submit().unwrap().wait()
    };
    device.heap_fill(own[0], 5u32, 1).unwrap().wait().unwrap();
    run(own[0]).unwrap();
    let value: DeviceBuffer<u32> = device.zeroed(1).unwrap();
    value.copy_from_heap(0, own[0], 1).unwrap();
    assert_eq!(value.read().unwrap(), [6]);
    assert!(run(own[1]).is_err());
}

fn wrong_pointers_are_refused(f: &Fixture) {
    both(f, |device| {
        let heap = device.heap().unwrap();
        let shared = heap.alloc(5u32).unwrap();
        let own = device.malloc::<u32>(100).unwrap();
        // A tag does not make an allocation of the heap the device's.
        for tag in [1u64, 7] {
            let tagged = Ptr::<u32>::from_address(shared.address() | tag << 48);
            assert!(matches!(
                device.free(tagged).unwrap_err(),
                HeapError::NotAllocated { .. }
            ));
        }
        assert_eq!(heap.read(shared, 1).unwrap(), [5]);
        assert!(matches!(
            device.free(shared).unwrap_err(),
            HeapError::NotAllocated { .. }
        ));
        assert!(matches!(
            device.free(own.add(1)).unwrap_err(),
            HeapError::Interior { .. }
        ));
        assert!(matches!(
            device.free(Ptr::<u32>::null()).unwrap_err(),
            HeapError::Null { .. }
        ));
        assert!(matches!(
            heap.free(own).unwrap_err(),
            HeapError::DeviceMemory { .. }
        ));
        device.free(own).unwrap();
        assert!(device.free(own).is_err());
        assert!(matches!(
            device.malloc::<u32>(0).unwrap_err(),
            HeapError::Layout { .. }
        ));
    });
}
