//! Devices that bind no more than 1 MiB at once, and lists that lie in many such segments.

use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Kernel, Program, Ptr, SharedHeap,
    device::Aspect,
    heap::HeapSize,
    kernel::{KernelError, KernelOptions, TranslationMode},
};

pub const SEGMENT: u64 = 1 << 20;
/// More than half a segment, so that each arena has one for itself.
pub const ARENA: usize = 700 << 10;
/// Nodes of a list; each arena has more.
pub const NODES: u32 = 240;

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    pub value: u32,
    pub tag: u32,
    pub next: Ptr<Node>,
}

/// How a device is opened.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Shared memory is a copy.
    pub mirrored: bool,
    pub checked: bool,
    /// Device memory is apart from shared memory.
    pub split: bool,
}

pub const TIERS: [bool; 2] = [false, true];
/// Numbers of segments, and whether pointers are checked.
pub const COUNTS: [(usize, bool); 4] = [(2, false), (2, true), (5, true), (8, false)];

pub fn open(f: &Fixture, setup: Setup) -> (Context, Device, SharedHeap) {
    let heap = HeapSize::Bytes(24 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
    let mut options = DeviceOptions::default();
    options.storage_binding_bytes = Some(SEGMENT);
    options.checked_pointers = setup.checked;
    options.live_memory = !setup.mirrored;
    options.unified_memory = setup.split.then_some(false);
    let device = context.device_named_with(f.device.name(), options).unwrap();
    let imported = f.device.has(Aspect::HostImport) && !setup.mirrored;
    assert_eq!(device.has(Aspect::HostImport), imported);
    let heap = context.heap().unwrap();
    (context, device, heap)
}

/// The segment of the heap that an address lies in.
pub fn segment<T>(heap: &SharedHeap, ptr: Ptr<T>) -> u64 {
    (ptr.address() - heap.base().address()) / SEGMENT
}

/// Arenas in that many segments of the heap, each in another one, full of poison.
pub fn shared_arenas(heap: &SharedHeap, count: usize) -> Vec<Ptr<Node>> {
    let poison = vec![0xee_u8; ARENA];
    let arenas: Vec<Ptr<Node>> = (0..count)
        .map(|_| heap.alloc_slice(&poison).unwrap().cast())
        .collect();
    let mut segments: Vec<u64> = arenas.iter().map(|&ptr| segment(heap, ptr)).collect();
    segments.sort_unstable();
    assert_eq!(segments, (0..count as u64).collect::<Vec<_>>());
    arenas
}

/// Arenas in that many segments of the device's own memory, each under another tag, full of poison.
pub fn own_arenas(device: &Device, count: usize) -> Vec<Ptr<Node>> {
    let arenas: Vec<Ptr<Node>> = (0..count)
        .map(|_| device.malloc::<u8>(ARENA).unwrap().cast())
        .collect();
    let mut tags: Vec<u64> = arenas.iter().map(|ptr| ptr.address() >> 48).collect();
    assert!(!tags.contains(&0));
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), count);
    for arena in &arenas {
        device
            .heap_fill(arena.cast::<u8>(), 0xee, ARENA)
            .unwrap()
            .wait()
            .unwrap();
    }
    arenas
}

/// The bytes of an arena, by a copy where the host cannot look.
pub fn bytes(device: &Device, heap: &SharedHeap, arena: Ptr<Node>) -> Vec<u8> {
    if heap.find(arena).is_some() {
        return heap.read(arena.cast::<u8>(), ARENA).unwrap();
    }
    let buffer: DeviceBuffer<u8> = device.zeroed(ARENA).unwrap();
    buffer
        .copy_from_heap(0, arena.cast(), ARENA as u64)
        .unwrap();
    buffer.read().unwrap()
}

pub fn kernel_with(
    device: &Device,
    source: &str,
    entry: &str,
    mode: TranslationMode,
) -> Result<Kernel, KernelError> {
    let program = Program::new("segments.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    let mut options = KernelOptions::default();
    options.pointers = mode;
    device.kernel_with(&program, entry, &Constants::new(), options)
}

pub fn kernel(device: &Device, source: &str, entry: &str, mode: TranslationMode) -> Kernel {
    kernel_with(device, source, entry, mode).unwrap_or_else(|e| panic!("{e}"))
}

/// Node `i` is number `i` of an arena that changes from node to node.
pub fn place(arenas: &[Ptr<Node>], i: u32) -> Ptr<Node> {
    match i {
        NODES => Ptr::null(),
        i => arenas[(i * 7 + i / 5) as usize % arenas.len()].add(i.into()),
    }
}

pub const LINK: &str = "
struct Node { value: u32, tag: u32, next: usm_ptr }
alias Arenas = array<usm_ptr>;
@group(0) @binding(0) var<uniform> arenas: usm_ptr;
@group(0) @binding(1) var<uniform> count: u32;
fn place(i: u32) -> usm_ptr {
    if i == 240u { return usm_null(); }
    return usm_element(usm_Arenas(arenas)[(i * 7u + i / 5u) % count], i, 16u);
}
@compute @workgroup_size(8) fn link(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < 240u {
        let n = usm_Node(place(id.x));
        n.value = id.x * id.x;
        n.tag = 7u;
        n.next = place(id.x + 1u);
    }
}
// Every node's value becomes its rank from the end; its tag a running sum of the values there were.
@compute @workgroup_size(1) fn follow() {
    var p = place(0u); var sum = 0u; var rank = 240u;
    while !usm_is_null(p) {
        let n = usm_Node(p);
        sum = sum * 3u + n.value;
        n.value = rank;
        n.tag = sum;
        rank -= 1u;
        p = n.next;
    }
}";

/// Every lane counts in each arena, with atomics of several kinds.
pub const COUNT: &str = "
struct Counters { sum: atomic<u32>, most: atomic<u32>, last: atomic<u32>, lock: atomic<u32> }
alias Arenas = array<usm_ptr>;
@group(0) @binding(0) var<uniform> arenas: usm_ptr;
@group(0) @binding(1) var<uniform> count: u32;
@compute @workgroup_size(16) fn count_all(@builtin(global_invocation_id) id: vec3<u32>) {
    for (var i = 0u; i < count; i++) {
        // Behind the nodes.
        let c = usm_Counters(usm_add(usm_Arenas(arenas)[i], 4096u));
        atomicAdd(&c.sum, id.x + i);
        atomicMax(&c.most, id.x * (i + 1u));
        var old = atomicLoad(&c.last);
        for (var turn = 0u; turn < 1000u; turn++) {
            let swapped = atomicCompareExchangeWeak(&c.last, old, old + 2u);
            if swapped.exchanged { break; }
            old = swapped.old_value;
        }
    }
}";

/// Links a list through the arenas, follows it and counts in every arena; then compares every byte.
pub fn exercise(device: &Device, heap: &SharedHeap, arenas: &[Ptr<Node>], mode: TranslationMode) {
    let table = heap.alloc_slice(arenas).unwrap();
    let count = arenas.len() as u32;
    for arena in arenas {
        let counters = arena.byte_add(4096).cast::<u8>();
        device.heap_fill(counters, 0, 16).unwrap();
    }
    for (source, entry, groups) in [
        (LINK, "link", NODES / 8),
        (LINK, "follow", 1),
        (COUNT, "count_all", 4),
    ] {
        let event = kernel(device, source, entry, mode)
            .launch()
            .value("arenas", &table)
            .value("count", &count)
            .workgroups(groups)
            .submit()
            .unwrap_or_else(|e| panic!("{entry} in {count} segments: {e}"));
        event.wait().unwrap_or_else(|e| panic!("{entry}: {e}"));
    }
    let mut expected: Vec<Vec<u8>> = vec![vec![0xee; ARENA]; arenas.len()];
    let mut sum = 0u32;
    for i in 0..NODES {
        sum = sum.wrapping_mul(3).wrapping_add(i * i);
        let node = Node {
            value: NODES - i,
            tag: sum,
            next: place(arenas, i + 1),
        };
        let at = place(arenas, i);
        let inside = |arena: &Ptr<Node>| at.address().wrapping_sub(arena.address());
        let arena = (arenas.iter())
            .position(|a| inside(a) < ARENA as u64)
            .unwrap();
        let start = inside(&arenas[arena]) as usize;
        expected[arena][start..start + 16].copy_from_slice(bytemuck::bytes_of(&node));
    }
    for (i, expected) in expected.iter_mut().enumerate() {
        let i = i as u32;
        let counters = [(0..64).map(|k| k + i).sum::<u32>(), 63 * (i + 1), 128, 0];
        expected[4096..4112].copy_from_slice(bytemuck::bytes_of(&counters));
    }
    for (i, (&arena, expected)) in arenas.iter().zip(&expected).enumerate() {
        let seen = bytes(device, heap, arena);
        let wrong = seen.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "arena {i} of {count}");
    }
    heap.free(table).unwrap();
}
