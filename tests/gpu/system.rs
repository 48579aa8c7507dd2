//! System allocations: kernels follow pointers into memory that Rust has allocated as it likes.

use bytemuck::{Pod, Zeroable};
use tombolo::kernel::{KernelOptions, TranslationMode};
use tombolo::server::ServerError;
use tombolo::system::{SystemError, SystemMemory, SystemRun};
use tombolo::{Constants, Device, DeviceBuffer, Kernel, Program, Ptr, launch::LaunchError};

use crate::cases;
use crate::harness::Fixture;

cases![
    boxes_are_walked_and_changed,
    boxes_are_linked_anew_by_a_kernel,
    a_vector_goes_in_and_out,
    structures_lie_over_borders_of_pages,
    atomics_work_within_a_launch,
    functions_take_and_return_pointers,
    wide_types_are_moved,
    a_launch_needs_memory,
    a_server_has_no_lent_memory,
    kernels_of_other_modes_carry_no_code_for_it,
];

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    pub value: f32,
    pub tag: u32,
    pub next: Ptr<Node>,
}

pub const NODE: &str = "struct Node { value: f32, tag: u32, next: usm_ptr }\n";

pub fn try_kernel(
    device: &Device,
    source: &str,
    mode: TranslationMode,
) -> Result<Kernel, tombolo::kernel::KernelError> {
    let program = Program::new("system.wgsl", source)?;
    let mut options = KernelOptions::default();
    options.pointers = mode;
    device.kernel_with(&program, "main", &Constants::new(), options)
}

pub fn kernel(device: &Device, source: &str) -> Kernel {
    try_kernel(device, source, TranslationMode::System).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether the device uses lent memory where it is.
pub fn is_host(f: &Fixture) -> bool {
    f.is_embedded() && cfg!(unix)
}

/// Checks where a run has used lent memory, of which the kernel changes `words` words. The host's own processor uses memory
/// where it is as long as the system has free addresses in front, and copies it otherwise.
pub fn check_place(f: &Fixture, asked: bool, run: &SystemRun, words: u64) {
    if run.pages_in_place == 0 {
        assert_eq!(run.words_written, words, "{run:?}");
    } else {
        assert!(asked && is_host(f), "{run:?}");
        assert_eq!((run.pages, run.words_written), (0, 0), "{run:?}");
    }
}

/// As [`check_place`], of memory that the allocator may have put anywhere: of boxes that lie further apart than one
/// binding reaches, some are copied.
pub fn check_places(f: &Fixture, asked: bool, run: &SystemRun, nodes: &[Box<Node>], words: u64) {
    const NEAR: usize = 3 << 30;
    let addresses = || nodes.iter().map(|node| std::ptr::from_ref(&**node).addr());
    let apart = addresses().max().unwrap() - addresses().min().unwrap();
    if apart < NEAR {
        check_place(f, asked, run, words);
    } else if run.pages_in_place == 0 {
        assert_eq!(run.words_written, words, "{run:?}");
    } else {
        assert!(asked && is_host(f), "{run:?}");
        assert!(run.words_written <= words, "{run:?}");
    }
}

/// Nodes in boxes of their own, in a list that visits them in another order.
// Each node has an allocation of its own, which is what is tested.
#[allow(clippy::vec_box)]
pub fn boxes(count: usize) -> (Vec<Box<Node>>, Ptr<Node>) {
    let mut nodes: Vec<Box<Node>> = (0..count)
        .map(|i| {
            Box::new(Node {
                value: i as f32,
                tag: i as u32,
                next: Ptr::null(),
            })
        })
        .collect();
    let order: Vec<usize> = (0..count).map(|i| i * 7919 % count).collect();
    let address = |node: &Node| Ptr::from_address(std::ptr::from_ref(node) as u64);
    for pair in order.windows(2) {
        nodes[pair[0]].next = address(&nodes[pair[1]]);
    }
    let first = address(&nodes[order[0]]);
    (nodes, first)
}

const WALK: &str = "
    @group(0) @binding(0) var<uniform> first: usm_ptr;
    @group(0) @binding(1) var<storage, read_write> sink: array<f32>;
    @compute @workgroup_size(1) fn main() {
        var p = first; var sum = 0.0; var count = 0.0;
        while !usm_is_null(p) {
            let n = usm_Node(p);
            sum += n.value * f32(n.tag);
            count += 1.0;
            n.value = n.value * 2.0;
            p = n.next;
        }
        sink[0] = sum; sink[1] = count;
    }";

/// Whether memory is used in place where it can be: both ways.
pub const BOTH: [bool; 2] = [true, false];

fn boxes_are_walked_and_changed(f: &Fixture) {
    BOTH.into_iter()
        .for_each(|in_place| walk_boxes(f, in_place));
}

fn walk_boxes(f: &Fixture, in_place: bool) {
    let (mut nodes, first) = boxes(211);
    let kernel = kernel(&f.device, &format!("{NODE}{WALK}"));
    let sink: DeviceBuffer<f32> = f.device.buffer(&[-1.0; 2]).unwrap();
    let mut memory = SystemMemory::new();
    memory.set_in_place(in_place);
    for node in &mut nodes {
        memory.lend_value_mut(&mut **node);
    }
    assert_eq!(memory.lent_bytes(), 211 * 16);
    let run = (kernel.launch().value("first", &first))
        .buffer("sink", &sink)
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap();
    drop(memory);
    assert_eq!(run.launches, 1);
    let sum: f32 = (0..211).map(|i| (i * i) as f32).sum();
    assert_eq!(sink.read().unwrap(), [sum, 211.0]);
    for (i, node) in nodes.iter().enumerate() {
        assert_eq!((node.value, node.tag), (2.0 * i as f32, i as u32));
    }
    // 0 is 0 when it is doubled.
    check_places(f, in_place, &run, &nodes, 210);
}

fn boxes_are_linked_anew_by_a_kernel(f: &Fixture) {
    // Every second node is taken out, and the nodes that were taken out make a list of their own.
    let (mut nodes, first) = boxes(101);
    let mut head = Box::new(Ptr::<Node>::null());
    let source = format!(
        "{NODE}
        alias Pointer = usm_ptr;
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @group(0) @binding(1) var<uniform> head: usm_ptr;
        @compute @workgroup_size(1) fn main() {{
            var p = first;
            let other = usm_Pointer(head);
            while !usm_is_null(p) {{
                let n = usm_Node(p);
                let out = n.next;
                if !usm_is_null(out) {{
                    n.next = usm_Node(out).next;
                    let o = usm_Node(out);
                    o.next = *other;
                    *other = usm_address(&o.value);
                }}
                p = n.next;
            }}
        }}"
    );
    let expected: Vec<u32> = (0..101).map(|i| i * 7919 % 101).collect();
    let kernel = kernel(&f.device, &source);
    let mut memory = SystemMemory::new();
    let head_pointer = memory.lend_value_mut(&mut *head);
    for node in &mut nodes {
        memory.lend_value_mut(&mut **node);
    }
    (kernel.launch().value("first", &first))
        .value("head", &head_pointer)
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap();
    drop(memory);
    let walk = |mut at: Ptr<Node>| {
        let mut seen = Vec::new();
        while !at.is_null() {
            let found = nodes
                .iter()
                .find(|node| std::ptr::from_ref(&***node) as u64 == at.address());
            let node = found.expect("an address of a node");
            seen.push(node.tag);
            at = node.next;
        }
        seen
    };
    let kept: Vec<u32> = expected.iter().step_by(2).copied().collect();
    let mut out: Vec<u32> = expected.iter().skip(1).step_by(2).copied().collect();
    out.reverse();
    assert_eq!(walk(first), kept);
    assert_eq!(walk(*head), out);
}

pub const DOUBLE: &str = "
    alias Floats = array<f32>;
    @group(0) @binding(0) var<uniform> values: usm_ptr;
    @group(0) @binding(1) var<uniform> count: u32;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < count { let v = usm_Floats(values); v[id.x] = v[id.x] * 2.0 + 1.0; }
    }";

fn a_vector_goes_in_and_out(f: &Fixture) {
    let kernel = kernel(&f.device, DOUBLE);
    for (count, in_place) in [1usize, 1000, 100_003]
        .into_iter()
        .flat_map(|count| BOTH.map(|both| (count, both)))
    {
        let mut values: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let mut memory = SystemMemory::new();
        memory.set_in_place(in_place);
        let pointer = memory.lend_mut(&mut values);
        let mut launch = kernel.launch();
        launch = launch
            .value("values", &pointer)
            .value("count", &(count as u32));
        launch = launch.invocations(count as u32);
        for _ in 0..2 {
            let run = launch.run_system(&mut memory).unwrap();
            assert_eq!(run.launches, 1);
            check_place(f, in_place, &run, count as u64);
        }
        drop(memory);
        let twice = |i: usize| (i as f32 * 2.0 + 1.0) * 2.0 + 1.0;
        for (i, value) in values.iter().enumerate() {
            assert_eq!(*value, twice(i), "{i} of {count}");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Big {
    matrix: [[f32; 4]; 3],
    at: [f32; 3],
    count: u32,
    inner: [[i32; 2]; 3],
    next: Ptr<Big>,
}

fn structures_lie_over_borders_of_pages(f: &Fixture) {
    assert_eq!(size_of::<Big>(), 96);
    let source = "
        struct Big { matrix: mat3x3<f32>, at: vec3<f32>, count: u32, inner: array<vec2<i32>, 3>, next: usm_ptr }
        alias Bigs = array<Big>;
        @group(0) @binding(0) var<uniform> values: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x >= 500u { return; }
            let all = usm_Bigs(values);
            let one = &all[id.x];
            let copy = *one;
            one.at = copy.matrix * copy.at;
            one.matrix[1] = copy.at;
            one.inner[id.x % 3u].y -= 7;
            one.count += u32(usm_Big(one.next).inner[2].x);
        }";
    let kernel = kernel(&f.device, source);
    // At an odd multiple of 16, so that pages end in all members.
    let mut values: Vec<[f32; 4]> = vec![[0.0; 4]; 500 * 6 + 1];
    let skip = usize::from((values.as_ptr() as usize).is_multiple_of(32));
    let bigs: &mut [Big] = bytemuck::cast_slice_mut(&mut values[skip..skip + 3000]);
    let start = bigs.as_ptr() as u64;
    for (i, big) in bigs.iter_mut().enumerate() {
        let v = i as f32;
        *big = Big {
            matrix: [[1.0, 0.0, v, 9.0], [0.0, 2.0, 0.0, 9.0], [v, 0.0, 3.0, 9.0]],
            at: [v, v + 1.0, 2.0],
            count: i as u32,
            inner: [[1, 2], [3, 4], [i as i32, 6]],
            next: Ptr::from_address(start + ((i * 37) % 500 * 96) as u64),
        };
    }
    let mut expected = bigs.to_vec();
    for (i, big) in expected.iter_mut().enumerate() {
        let (v, at) = (i as f32, big.at);
        big.at = [at[0] + v * at[2], 2.0 * at[1], v * at[0] + 3.0 * at[2]];
        big.matrix[1] = [at[0], at[1], at[2], 9.0];
        big.inner[i % 3][1] -= 7;
        big.count += (i * 37 % 500) as u32;
    }
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(&mut *bigs);
    let launch = kernel
        .launch()
        .value("values", &pointer)
        .invocations(500u32);
    let run = { launch }.run_system(&mut memory).unwrap();
    drop(memory);
    assert_eq!(run.launches, 1);
    assert_eq!(bigs, expected);
}

fn atomics_work_within_a_launch(f: &Fixture) {
    let source = "
        struct Counts { sum: atomic<u32>, least: atomic<i32>, last: atomic<i32>, exchanged: u32, slots: array<u32> }
        @group(0) @binding(0) var<uniform> counts: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let c = usm_Counts(counts);
            let slot = atomicAdd(&c.sum, 1u);
            c.slots[slot] = id.x;
            atomicMin(&c.least, -i32(id.x));
            loop {
                let old = atomicLoad(&c.last);
                if atomicCompareExchangeWeak(&c.last, old, old + 2).exchanged { break; }
            }
        }";
    let kernel = kernel(&f.device, source);
    let mut counts = vec![0u32; 4 + 2048];
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(&mut counts);
    (kernel.launch().value("counts", &pointer))
        .invocations(2048u32)
        .run_system(&mut memory)
        .unwrap();
    drop(memory);
    assert_eq!(counts[..4], [2048, -2047i32 as u32, 4096, 0]);
    counts[4..].sort_unstable();
    assert!(counts[4..].iter().copied().eq(0..2048));
}

fn functions_take_and_return_pointers(f: &Fixture) {
    let source = format!(
        "{NODE}
        alias Floats = array<f32>;
        fn bump(q: ptr<storage, f32, read_write>, by: f32) {{ *q += by; }}
        fn next(q: ptr<storage, Node, read_write>) -> ptr<storage, Node, read_write> {{ return usm_Node(q.next); }}
        fn value(q: ptr<storage, Node, read_write>) -> ptr<storage, f32, read_write> {{ return &q.value; }}
        fn total(q: ptr<storage, Floats, read_write>, n: u32) -> f32 {{
            var sum = 0.0;
            for (var i = 0u; i < n; i++) {{ sum += q[i]; }}
            return sum;
        }}
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @group(0) @binding(1) var<uniform> floats: usm_ptr;
        @compute @workgroup_size(1) fn main() {{
            let n = usm_Node(first);
            bump(&n.value, total(usm_Floats(floats), 3000u));
            bump(value(next(next(n))), 0.5);
        }}"
    );
    let kernel = kernel(&f.device, &source);
    let (mut nodes, first) = boxes(5);
    let floats: Vec<f32> = (0..3000).map(|i| (i % 7) as f32).collect();
    let mut memory = SystemMemory::new();
    for node in &mut nodes {
        memory.lend_value_mut(&mut **node);
    }
    let pointer = memory.lend(&floats);
    (kernel
        .launch()
        .value("first", &first)
        .value("floats", &pointer))
    .workgroups(1)
    .run_system(&mut memory)
    .unwrap();
    drop(memory);
    let third = 2 * 7919 % 5;
    for (i, node) in nodes.iter().enumerate() {
        let expected = match i {
            0 => floats.iter().sum::<f32>(),
            i if i == third => i as f32 + 0.5,
            i => i as f32,
        };
        assert_eq!(node.value, expected, "{i}");
    }
}

/// 64-bit integers and halves, on devices that have them.
fn wide_types_are_moved(f: &Fixture) {
    use tombolo::device::Aspect;
    if f.device.has(Aspect::Int64) {
        let source = "
            alias Wide = array<u64>;
            @group(0) @binding(0) var<uniform> values: usm_ptr;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                let w = usm_Wide(values); w[id.x] = w[id.x] * 3lu + 1lu;
            }";
        let mut values: Vec<u64> = (0..640).map(|i| i << 31 | 5).collect();
        let mut memory = SystemMemory::new();
        let pointer = memory.lend_mut(&mut values);
        (kernel(&f.device, source).launch().value("values", &pointer))
            .invocations(640u32)
            .run_system(&mut memory)
            .unwrap();
        drop(memory);
        for (i, value) in values.into_iter().enumerate() {
            assert_eq!(value, ((i as u64) << 31 | 5) * 3 + 1);
        }
    }
    if f.device.has(Aspect::Fp16) {
        let source = "enable f16;
            alias Halves = array<f16>;
            @group(0) @binding(0) var<uniform> values: usm_ptr;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if id.x >= 3001u { return; }
                let h = usm_Halves(values); h[id.x] = h[id.x] * 2.0h;
            }";
        // From the second half of a word to the first of another.
        let mut values: Vec<u16> = vec![0x3c00; 3004];
        let odd = usize::from((values.as_ptr() as usize).is_multiple_of(4));
        let mut memory = SystemMemory::new();
        let pointer = memory.lend_mut(&mut values[odd..odd + 3001]);
        (kernel(&f.device, source).launch().value("values", &pointer))
            .invocations(3001u32)
            .run_system(&mut memory)
            .unwrap();
        drop(memory);
        for (i, value) in values.into_iter().enumerate() {
            let is_lent = (odd..odd + 3001).contains(&i);
            assert_eq!(value, if is_lent { 0x4000 } else { 0x3c00 }, "{i}");
        }
    }
}

fn a_launch_needs_memory(f: &Fixture) {
    let kernel = kernel(&f.device, DOUBLE);
    let pointer = Ptr::<f32>::null();
    let mut launch = kernel
        .launch()
        .value("values", &pointer)
        .value("count", &1u32);
    launch = launch.invocations(1u32);
    let refused = launch.submit().unwrap_err();
    assert!(
        matches!(refused, LaunchError::NoSystemMemory { .. }),
        "{refused}"
    );
    let mut without = kernel.launch().value("values", &pointer).invocations(1u32);
    let refused = without.run_system(&mut SystemMemory::new()).unwrap_err();
    assert!(
        matches!(
            refused,
            SystemError::Launch(LaunchError::MissingArguments { .. })
        ),
        "{refused}"
    );
    // Nothing is followed, and nothing lent.
    let mut launch = launch.clone();
    launch.set_value("count", &0u32).unwrap();
    assert_eq!(
        launch.run_system(&mut SystemMemory::new()).unwrap().pages,
        0
    );
}

fn a_server_has_no_lent_memory(f: &Fixture) {
    let source = "alias Words = array<u32>; fn first(p: usm_ptr) -> u32 { return usm_Words(p)[0]; }
        fn same(x: u32) -> u32 { return x; }";
    let mut options = KernelOptions::default();
    options.pointers = TranslationMode::System;
    let server = |handler: &str| {
        let builder = crate::persistent::builder(&f.device, source);
        builder.handler(handler).options(options)
    };
    match server("first").start().map(|_| ()).unwrap_err() {
        ServerError::LentMemory { program } => assert_eq!(program, "server.wgsl"),
        other => panic!("{other}"),
    }
    // Handlers that follow no pointer need none.
    server("same").start().unwrap();
}

fn kernels_of_other_modes_carry_no_code_for_it(f: &Fixture) {
    let source = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() { o[0] = 7u; }";
    let kernel = kernel(&f.device, source);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0]).unwrap();
    let run = (kernel.launch().buffer("o", &o).workgroups(1))
        .run_system(&mut SystemMemory::new())
        .unwrap();
    assert_eq!(
        (run.launches, run.pages, o.read().unwrap()),
        (1, 0, vec![7])
    );
}
