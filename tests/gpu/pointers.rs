//! Pointers: Rust and kernels follow, change and extend the same structures through the same addresses.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{Constants, Device, DeviceBuffer, Kernel, Program, Ptr, SharedHeap, device::Aspect};

cases![
    a_list_is_followed,
    a_list_is_changed_and_the_host_walks_it,
    a_kernel_builds_a_list_that_the_host_walks,
    two_devices_extend_one_list_in_turn,
    nested_structures_keep_their_layout,
    captured_pointers_are_valid_on_the_host,
    numbers_that_look_like_pointers_round_trip,
    atomics_behind_pointers,
    functions_take_and_return_pointers,
];

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    pub value: f32,
    pub tag: u32,
    pub next: Ptr<Node>,
}

pub const NODE: &str = "struct Node { value: f32, tag: u32, next: usm_ptr }\n";

pub fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("pointers.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

/// A list of `len` nodes with values 0, 1, 2…, not in the order of their addresses.
pub fn list(heap: &SharedHeap, len: u32) -> Ptr<Node> {
    let nodes: Vec<Ptr<Node>> = (0..len)
        .map(|i| {
            heap.alloc(Node {
                value: i as f32,
                tag: i,
                next: Ptr::null(),
            })
            .unwrap()
        })
        .collect();
    let order: Vec<usize> = (0..len as usize).map(|i| i * 7919 % len as usize).collect();
    let mut host = heap.host().unwrap();
    for pair in order.windows(2) {
        host.get_mut(nodes[pair[0]]).unwrap().next = nodes[pair[1]];
    }
    nodes[order[0]]
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

fn free_list(heap: &SharedHeap, first: Ptr<Node>) {
    let mut at = first;
    while !at.is_null() {
        let next = heap.host().unwrap().get(at).unwrap().next;
        heap.free(at).unwrap();
        at = next;
    }
}

fn a_list_is_followed(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let first = list(&heap, 101);
    let kernel = kernel(
        &f.device,
        &format!(
            "{NODE}
            @group(0) @binding(0) var<uniform> first: usm_ptr;
            @group(0) @binding(1) var<storage, read_write> sink: array<f32>;
            @compute @workgroup_size(1) fn main() {{
                var p = first; var sum = 0.0; var count = 0.0;
                while !usm_is_null(p) {{
                    let n = usm_Node(p);
                    sum += n.value * f32(n.tag);
                    count += 1.0;
                    p = n.next;
                }}
                sink[0] = sum; sink[1] = count;
            }}"
        ),
    );
    let sink: DeviceBuffer<f32> = f.device.zeroed(2).unwrap();
    kernel
        .launch()
        .value("first", &first)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    let sum: u32 = (0..101).map(|i| i * i).sum();
    assert_eq!(sink.read().unwrap(), [sum as f32, 101.0]);
    free_list(&heap, first);
}

fn a_list_is_changed_and_the_host_walks_it(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let first = list(&heap, 50);
    let before = walk(&heap, first);
    // Values are doubled, and every second node is taken out.
    let kernel = kernel(
        &f.device,
        &format!(
            "{NODE}
            @group(0) @binding(0) var<uniform> first: usm_ptr;
            @compute @workgroup_size(1) fn main() {{
                var p = first;
                while !usm_is_null(p) {{
                    let n = usm_Node(p);
                    n.value *= 2.0;
                    if !usm_is_null(n.next) {{ n.next = usm_Node(n.next).next; }}
                    p = n.next;
                }}
            }}"
        ),
    );
    kernel
        .launch()
        .value("first", &first)
        .workgroups(1)
        .submit()
        .unwrap();
    let after: Vec<f32> = walk(&heap, first).iter().map(|n| n.value).collect();
    let expected: Vec<f32> = before.iter().step_by(2).map(|n| n.value * 2.0).collect();
    assert_eq!(after, expected);
}

/// Each invocation takes a node of an arena and pushes it onto a list, with atomics alone.
const PUSH: &str = "
struct Node { value: f32, tag: u32, next: usm_ptr }
struct List { lock: atomic<u32>, count: atomic<u32>, first_low: atomic<u32>, first_high: atomic<u32> }
@group(0) @binding(0) var<uniform> list: usm_ptr;
@group(0) @binding(1) var<uniform> arena: usm_ptr;
@group(0) @binding(2) var<uniform> start: u32;
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let l = usm_List(list);
    let p = usm_add(arena, (start + id.x) * 16u);
    let n = usm_Node(p);
    n.value = f32(start + id.x) + 0.5;
    n.tag = start + id.x;
    // All nodes lie in one window, so that the low word alone tells them apart.
    loop {
        let old = atomicLoad(&l.first_low);
        n.next = vec2<u32>(old, select(p.y, 0u, old == 0u));
        let swapped = atomicCompareExchangeWeak(&l.first_low, old, p.x);
        if swapped.exchanged { break; }
    }
    atomicStore(&l.first_high, p.y);
    atomicAdd(&l.count, 1u);
}";

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct List {
    lock: u32,
    count: u32,
    first: [u32; 2],
}

fn a_kernel_builds_a_list_that_the_host_walks(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let head = heap.alloc(List::zeroed()).unwrap();
    let arena = heap.alloc_zeroed::<Node>(300).unwrap();
    push(&f.device, head, arena, 0, 300);
    let mut tags: Vec<u32> = walk(&heap, first_of(&heap, head))
        .iter()
        .map(|n| n.tag)
        .collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..300).collect::<Vec<_>>());
    heap.free(head).unwrap();
    heap.free(arena).unwrap();
}

fn push(device: &Device, head: Ptr<List>, arena: Ptr<Node>, start: u32, count: u32) {
    kernel(device, PUSH)
        .launch()
        .value("list", &head)
        .value("arena", &arena)
        .value("start", &start)
        .workgroups(count)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
}

fn first_of(heap: &SharedHeap, head: Ptr<List>) -> Ptr<Node> {
    let host = heap.host().unwrap();
    let [low, high] = host.get(head).unwrap().first;
    Ptr::from_address(u64::from(low) | u64::from(high) << 32)
}

fn two_devices_extend_one_list_in_turn(f: &Fixture) {
    // All adapters of the machine work on one structure, through the same pointers, with no copy.
    let heap = f.context.heap().unwrap();
    let devices: Vec<Device> = (f.context.adapters().iter())
        .map(|adapter| f.context.device_at(adapter.index).unwrap())
        .collect();
    let no_copy = devices.iter().all(|d| d.has(Aspect::HostImport));
    assert!(no_copy || !f.device.capabilities().software);
    let copied = heap.mirror_statistics();
    let head = heap.alloc(List::zeroed()).unwrap();
    let arena = heap.alloc_zeroed::<Node>(150 * devices.len()).unwrap();
    let mut start = 0;
    for _ in 0..3 {
        for device in &devices {
            push(device, head, arena, start, 50);
            start += 50;
        }
    }
    let nodes = walk(&heap, first_of(&heap, head));
    let mut tags: Vec<u32> = nodes.iter().map(|n| n.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..start).collect::<Vec<_>>());
    assert!(nodes.iter().all(|n| n.value == n.tag as f32 + 0.5));
    assert_eq!(heap.host().unwrap().get(head).unwrap().count, start);
    if no_copy {
        assert_eq!(heap.mirror_statistics(), copied);
    }
    heap.free(head).unwrap();
    heap.free(arena).unwrap();
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Inner {
    at: [f32; 3],
    weight: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Outer {
    inner: [Inner; 3],
    matrix: [[f32; 4]; 3],
    pair: [i32; 2],
    link: Ptr<Inner>,
}

fn nested_structures_keep_their_layout(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let mut outer = Outer::zeroed();
    for (i, inner) in outer.inner.iter_mut().enumerate() {
        inner.at = [i as f32, i as f32 * 10.0, i as f32 * 100.0];
        inner.weight = 0.25 * i as f32;
    }
    outer.matrix = [
        [1.0, 2.0, 3.0, 0.0],
        [4.0, 5.0, 6.0, 0.0],
        [7.0, 8.0, 9.0, 0.0],
    ];
    outer.pair = [-5, 9];
    let inner = heap
        .alloc(Inner {
            at: [9.0, 8.0, 7.0],
            weight: 6.0,
        })
        .unwrap();
    outer.link = inner;
    let ptr = heap.alloc(outer).unwrap();
    let kernel = kernel(
        &f.device,
        "struct Inner { at: vec3<f32>, weight: f32 }
        struct Outer { inner: array<Inner, 3>, matrix: mat3x3<f32>, pair: vec2<i32>, link: usm_ptr }
        @group(0) @binding(0) var<uniform> outer: usm_ptr;
        @compute @workgroup_size(1) fn main() {
            let o = usm_Outer(outer);
            var k = 2;
            let copy = o.inner[k];
            o.inner[0].at = copy.at.zyx + vec3(1.0);
            o.inner[k].weight = copy.weight * 4.0;
            o.inner[1].at.y = -3.0;
            o.matrix[1] = o.matrix * vec3(1.0, 0.0, 0.0);
            o.matrix[2][1] = 42.0;
            o.pair.x += 100;
            let i = usm_Inner(o.link);
            i.at.z = f32(o.pair.y);
            let whole = *o;
            i.weight = whole.inner[1].at.y + whole.matrix[0].x;
        }",
    );
    kernel
        .launch()
        .value("outer", &ptr)
        .workgroups(1)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    let mut expected = outer;
    expected.inner[0].at = [201.0, 21.0, 3.0];
    expected.inner[2].weight = 2.0;
    expected.inner[1].at[1] = -3.0;
    expected.matrix[1][..3].copy_from_slice(&[1.0, 2.0, 3.0]);
    expected.matrix[2][1] = 42.0;
    expected.pair[0] = 95;
    let host = heap.host().unwrap();
    assert_eq!(*host.get(ptr).unwrap(), expected);
    assert_eq!(
        *host.get(inner).unwrap(),
        Inner {
            at: [9.0, 8.0, 9.0],
            weight: -2.0
        }
    );
}

fn captured_pointers_are_valid_on_the_host(f: &Fixture) {
    // The problem of changing addresses: a pointer that a kernel stores is one that Rust can follow.
    let heap = f.context.heap().unwrap();
    let target = heap.alloc([1234u32; 4]).unwrap();
    let cell = heap.alloc(Ptr::<[u32; 4]>::null()).unwrap();
    let kernel = kernel(
        &f.device,
        "alias Cell = usm_ptr;
        @group(0) @binding(0) var<uniform> cell: usm_ptr;
        @group(0) @binding(1) var<uniform> captured: usm_ptr;
        @compute @workgroup_size(1) fn main() { let c = usm_Cell(cell); *c = captured; }",
    );
    kernel
        .launch()
        .value("cell", &cell)
        .value("captured", &target)
        .workgroups(1)
        .submit()
        .unwrap();
    let host = heap.host().unwrap();
    let stored = *host.get(cell).unwrap();
    assert_eq!(stored, target);
    assert_eq!(*host.get(stored).unwrap(), [1234; 4]);
}

fn numbers_that_look_like_pointers_round_trip(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let values: Vec<Ptr<u8>> = [0, 1, u64::MAX, 1 << 47, 0xdead_beef_0bad_f00d, 4096]
        .map(Ptr::from_address)
        .to_vec();
    let from = heap.alloc_slice(&values).unwrap();
    let to = heap.alloc_zeroed::<Ptr<u8>>(values.len()).unwrap();
    let kernel = kernel(
        &f.device,
        "alias Cells = array<usm_ptr>;
        @group(0) @binding(0) var<uniform> source: usm_ptr;
        @group(0) @binding(1) var<uniform> sink: usm_ptr;
        @compute @workgroup_size(6) fn main(@builtin(local_invocation_index) i: u32) {
            let to = usm_Cells(sink);
            to[i] = usm_Cells(source)[i];
        }",
    );
    kernel
        .launch()
        .value("source", &from)
        .value("sink", &to)
        .workgroups(1)
        .submit()
        .unwrap();
    let host = heap.host().unwrap();
    assert_eq!(host.slice(to, values.len()).unwrap(), values);
}

fn atomics_behind_pointers(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let counters = heap.alloc_zeroed::<u32>(8).unwrap();
    let kernel = kernel(
        &f.device,
        "alias Counters = array<atomic<u32>>;
        @group(0) @binding(0) var<uniform> counters: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let c = &usm_Counters(counters)[id.x % 4u];
            atomicAdd(c, 1u);
            atomicMax(&usm_Counters(counters)[4], id.x);
            atomicXor(&usm_Counters(counters)[5], id.x);
        }",
    );
    kernel
        .launch()
        .value("counters", &counters)
        .workgroups(16)
        .submit()
        .unwrap();
    let host = heap.host().unwrap();
    let xor = (0..1024u32).fold(0, |x, i| x ^ i);
    assert_eq!(
        host.slice(counters, 8).unwrap(),
        [256, 256, 256, 256, 1023, xor, 0, 0]
    );
}

fn functions_take_and_return_pointers(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let first = list(&heap, 20);
    let kernel = kernel(
        &f.device,
        &format!(
            "{NODE}
            @group(0) @binding(0) var<uniform> first: usm_ptr;
            fn bump(node: ptr<storage, Node, read_write>, by: f32) {{ (*node).value += by; }}
            fn scale(value: ptr<storage, f32, read_write>) {{ *value = *value * 3.0; }}
            fn last(start: usm_ptr) -> ptr<storage, Node, read_write> {{
                var p = start;
                while !usm_is_null(usm_Node(p).next) {{ p = usm_Node(p).next; }}
                return usm_Node(p);
            }}
            @compute @workgroup_size(1) fn main() {{
                bump(usm_Node(first), 0.5);
                let end = last(first);
                bump(end, 100.0);
                scale(&end.value);
            }}"
        ),
    );
    let before = walk(&heap, first);
    kernel
        .launch()
        .value("first", &first)
        .workgroups(1)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    let after = walk(&heap, first);
    assert_eq!(after[0].value, before[0].value + 0.5);
    assert_eq!(after[19].value, (before[19].value + 100.0) * 3.0);
    assert_eq!(after[1..19], before[1..19]);
}
