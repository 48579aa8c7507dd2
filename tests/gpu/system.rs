//! System allocations: kernels follow pointers into memory that Rust has allocated as it likes.

use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};
use tombolo::kernel::{KernelOptions, TranslationMode};
use tombolo::system::{SystemError, SystemMemory};
use tombolo::{
    Constants, Context, Device, DeviceBuffer, Kernel, Program, Ptr, launch::LaunchError,
};

use crate::cases;
use crate::harness::Fixture;

cases![
    boxes_are_walked_and_changed,
    boxes_are_linked_anew_by_a_kernel,
    a_vector_goes_in_and_out,
    words_that_a_kernel_leaves_alone_stay,
    structures_lie_over_borders_of_pages,
    atomics_work_within_a_launch,
    functions_take_and_return_pointers,
    wide_types_are_moved,
    bytes_in_a_word_belong_to_their_owners,
    a_mapped_file_is_searched,
    memory_of_all_kinds_is_lent_together,
    the_heap_is_lent_like_any_memory,
    eight_threads_lend_at_once,
    two_devices_work_on_the_same_memory_in_turn,
    a_launch_needs_memory,
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

/// Nodes in boxes of their own, in a list that visits them in another order.
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
const BOTH: [bool; 2] = [true, false];

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
    let is_used_in_place = in_place && is_host(f);
    assert_eq!(run.pages == 0, is_used_in_place, "{run:?}");
    assert_eq!(run.pages_in_place > 0, is_used_in_place, "{run:?}");
    // 0 is 0 when it is doubled.
    assert_eq!(run.words_written, if is_used_in_place { 0 } else { 210 });
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

const DOUBLE: &str = "
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
            let words = if in_place && is_host(f) {
                0
            } else {
                count as u64
            };
            assert_eq!((run.launches, run.words_written), (1, words));
        }
        drop(memory);
        let twice = |i: usize| (i as f32 * 2.0 + 1.0) * 2.0 + 1.0;
        for (i, value) in values.iter().enumerate() {
            assert_eq!(*value, twice(i), "{i} of {count}");
        }
    }
}

/// What lies beside a lent slice, in the same pages, is not touched, not even by writing the same again.
fn words_that_a_kernel_leaves_alone_stay(f: &Fixture) {
    let kernel = kernel(&f.device, DOUBLE);
    let mut values: Vec<f32> = (0..5000).map(|i| i as f32).collect();
    let beside = AtomicU32::new(0);
    let (front, rest) = values.split_at_mut(1001);
    let (middle, back) = rest.split_at_mut(1500);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Another thread owns what lies on both sides.
            while beside.load(Ordering::Acquire) == 0 {
                front
                    .iter_mut()
                    .chain(back.iter_mut())
                    .for_each(|value| *value += 1.0);
                std::thread::yield_now();
            }
            front
                .iter_mut()
                .chain(back.iter_mut())
                .for_each(|value| *value = -1.0);
        });
        let mut memory = SystemMemory::new();
        let pointer = memory.lend_mut(middle);
        let run = (kernel.launch().value("values", &pointer))
            .value("count", &1500u32)
            .invocations(1500u32)
            .run_system(&mut memory);
        beside.store(1, Ordering::Release);
        let words = if is_host(f) { 0 } else { 1500 };
        assert_eq!(run.unwrap().words_written, words);
    });
    for (i, value) in values.iter().enumerate() {
        let expected = match (1001..2501).contains(&i) {
            true => i as f32 * 2.0 + 1.0,
            false => -1.0,
        };
        assert_eq!(*value, expected, "{i}");
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
    let skip = usize::from(values.as_ptr() as usize % 32 == 0);
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
        let odd = usize::from(values.as_ptr() as usize % 4 == 0);
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

/// Where a slice begins or ends inside a word, kernels see zeros instead of others' bytes, and change none of these.
fn bytes_in_a_word_belong_to_their_owners(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @group(0) @binding(1) var<uniform> count: u32;
        @group(0) @binding(2) var<storage, read_write> seen: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < count { let w = usm_Words(first); seen[id.x] = w[id.x]; w[id.x] = 0x77777777u; }
        }";
    let kernel = kernel(&f.device, source);
    for in_place in BOTH {
        for (from, to) in [
            (1usize, 3usize),
            (3, 6),
            (4, 9),
            (2, 9001),
            (4095, 4097),
            (7, 8192),
        ] {
            let mut words = vec![0x1111_1111u32; 3000];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            let first = from / 4;
            let count = to.div_ceil(4) - first;
            let start = bytes.as_ptr() as u64 + 4 * first as u64;
            let seen: DeviceBuffer<u32> = f.device.buffer(&vec![0; count]).unwrap();
            let mut memory = SystemMemory::new();
            memory.set_in_place(in_place);
            memory.lend_mut(&mut bytes[from..to]);
            (kernel
                .launch()
                .value("first", &Ptr::<u32>::from_address(start)))
            .value("count", &(count as u32))
            .buffer("seen", &seen)
            .invocations(count as u32)
            .run_system(&mut memory)
            .unwrap();
            drop(memory);
            let seen = seen.read().unwrap();
            let seen: &[u8] = bytemuck::cast_slice(&seen);
            for (at, byte) in bytes.iter().enumerate() {
                let is_lent = (from..to).contains(&at);
                assert_eq!(
                    *byte,
                    if is_lent { 0x77 } else { 0x11 },
                    "{at} of {from}..{to}"
                );
                if let Some(seen) = at.checked_sub(4 * first).and_then(|at| seen.get(at)) {
                    assert_eq!(
                        *seen,
                        if is_lent { 0x11 } else { 0 },
                        "{at} of {from}..{to}"
                    );
                }
            }
        }
    }
}

/// Bytes of a file that the system has mapped.
#[cfg(unix)]
pub fn mapped(file: &std::fs::File, bytes: usize) -> &'static [u8] {
    use std::os::fd::AsRawFd;
    // SAFETY: a new private mapping of a file that nobody else changes, never unmapped.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts(at.cast(), bytes)
    }
}

#[cfg(unix)]
fn a_mapped_file_is_searched(f: &Fixture) {
    use std::io::Write;
    let mut text = String::new();
    for i in 0..20_000u32 {
        text.push_str(&format!(
            "line {i}: {}\n",
            i.wrapping_mul(0x9e37_79b9) % 1000
        ));
    }
    let needle = b": 77";
    let expected = text.as_bytes().windows(4).filter(|w| w == needle).count();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let bytes = mapped(&file, text.len());
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> text: usm_ptr;
        @group(0) @binding(1) var<uniform> bytes: u32;
        @group(0) @binding(2) var<storage, read_write> found: atomic<u32>;
        fn byte(i: u32) -> u32 {
            let words = usm_Words(text);
            return (words[i / 4u] >> (i % 4u * 8u)) & 0xffu;
        }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x + 4u > bytes { return; }
            if byte(id.x) == 58u && byte(id.x + 1u) == 32u && byte(id.x + 2u) == 55u && byte(id.x + 3u) == 55u {
                atomicAdd(&found, 1u);
            }
        }";
    let kernel = kernel(&f.device, source);
    let found: DeviceBuffer<u32> = f.device.buffer(&[0]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend(bytes);
    let run = (kernel.launch().value("text", &pointer))
        .value("bytes", &(bytes.len() as u32))
        .buffer("found", &found)
        .invocations(bytes.len() as u32)
        .run_system(&mut memory)
        .unwrap();
    assert_eq!(found.read().unwrap(), [expected as u32]);
    assert_eq!((run.launches, run.words_written), (1, 0));
}

#[cfg(not(unix))]
fn a_mapped_file_is_searched(_: &Fixture) {}

/// On the stack, in the heap of the process, in mappings of its own and of a file, far from each other.
#[cfg(unix)]
fn memory_of_all_kinds_is_lent_together(f: &Fixture) {
    use std::io::Write;
    static FIXED: [u32; 300] = [4; 300];
    let source = "
        alias Words = array<u32>;
        alias Pointers = array<usm_ptr>;
        @group(0) @binding(0) var<uniform> pointers: usm_ptr;
        @group(0) @binding(1) var<uniform> sums: usm_ptr;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            if i >= 5u { return; }
            let p = usm_Pointers(pointers);
            let w = usm_Words(p[i]);
            var sum = 0u;
            for (var at = 0u; at < 300u; at++) { sum += w[at]; }
            let s = usm_Words(sums);
            s[i] = sum;
        }";
    let kernel = kernel(&f.device, source);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[3; 10_000]).unwrap();
    let bytes = mapped(&file, 10_000);
    let large = vec![2u32; 4 << 20];
    for in_place in BOTH {
        let on_stack = [1u32; 300];
        let boxed: Box<[u32; 300]> = Box::new([5; 300]);
        let mut sums = [0u32; 5];
        let mut memory = SystemMemory::new();
        memory.set_in_place(in_place);
        let pointers = [
            memory.lend(&on_stack),
            memory.lend(&large),
            memory.lend(bytes).cast(),
            memory.lend(&FIXED),
            memory.lend(&*boxed),
        ];
        let list = memory.lend(&pointers);
        let kept = memory.lend_mut(&mut sums);
        let run = (kernel
            .launch()
            .value("pointers", &list)
            .value("sums", &kept))
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap();
        drop(memory);
        assert_eq!(run.launches, 1);
        assert_eq!(
            sums,
            [300, 600, 300u32.wrapping_mul(0x0303_0303), 1200, 1500]
        );
        assert_eq!(
            run.pages_in_place >= 4096,
            in_place && is_host(f),
            "{run:?}"
        );
    }
}

#[cfg(not(unix))]
fn memory_of_all_kinds_is_lent_together(_: &Fixture) {}

fn the_heap_is_lent_like_any_memory(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let pointer = heap.alloc_slice(&[1.0f32; 2000]).unwrap();
    let kernel = kernel(&f.device, DOUBLE);
    let mut host = heap.host().unwrap();
    let mut memory = SystemMemory::new();
    let lent = memory.lend_mut(host.slice_mut(pointer, 2000).unwrap());
    assert_eq!(lent, pointer);
    (kernel
        .launch()
        .value("values", &pointer)
        .value("count", &2000u32))
    .invocations(2000u32)
    .run_system(&mut memory)
    .unwrap();
    drop(memory);
    assert!(
        host.slice(pointer, 2000)
            .unwrap()
            .iter()
            .all(|value| *value == 3.0)
    );
    drop(host);
    heap.free(pointer).unwrap();
}

fn eight_threads_lend_at_once(f: &Fixture) {
    let kernel = kernel(&f.device, DOUBLE);
    std::thread::scope(|threads| {
        for thread in 0..8u32 {
            let kernel = &kernel;
            threads.spawn(move || {
                for round in 0..5u32 {
                    let count = 700 * (thread + 1) + round;
                    let mut values: Vec<f32> = (0..count).map(|i| (i ^ thread) as f32).collect();
                    let mut memory = SystemMemory::new();
                    let pointer = memory.lend_mut(&mut values);
                    (kernel
                        .launch()
                        .value("values", &pointer)
                        .value("count", &count))
                    .invocations(count)
                    .run_system(&mut memory)
                    .unwrap();
                    drop(memory);
                    for (i, value) in (0..count).zip(values) {
                        assert_eq!(value, (i ^ thread) as f32 * 2.0 + 1.0);
                    }
                }
            });
        }
    });
}

fn two_devices_work_on_the_same_memory_in_turn(f: &Fixture) {
    // The next adapter of the machine, and another device of this one.
    let others: Context = Context::new().unwrap();
    let next = (f.index + 1) % others.adapters().len();
    let devices = [
        f.device.clone(),
        others.device_at(next).unwrap(),
        f.open(|_| {}),
    ];
    let kernels = devices.each_ref().map(|device| kernel(device, DOUBLE));
    let mut values = vec![1.0f32; 3000];
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(&mut values);
    for _ in 0..2 {
        for kernel in &kernels {
            (kernel
                .launch()
                .value("values", &pointer)
                .value("count", &3000u32))
            .invocations(3000u32)
            .run_system(&mut memory)
            .unwrap();
        }
    }
    drop(memory);
    let expected = (0..6).fold(1.0, |value, _| value * 2.0 + 1.0);
    assert!(values.iter().all(|value| *value == expected));
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
