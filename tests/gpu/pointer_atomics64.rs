//! Atomics of 64 bits behind pointers, against computations by Rust. Adapters without them say so.

use std::collections::HashSet;

use crate::cases;
use crate::harness::Fixture;
use crate::pointer_helpers::noise;
use bytemuck::{Pod, Zeroable};
use tombolo::device::Aspect;
use tombolo::heap::HeapError;
use tombolo::{Constants, Device, Kernel, Program, Ptr, kernel::KernelError};

cases![
    every_operation_of_one_invocation,
    sums_beyond_32_bits,
    signed_maxima_and_exchanges,
    lists_are_pushed_without_locks,
    beside_other_accesses_in_several_segments,
    minima_of_both_kinds_are_refused,
    faults_are_told,
];

/// The kernel; `None` on a device without such atomics, which has named `operation` then.
pub fn kernel(device: &Device, text: &str, operation: &str) -> Option<Kernel> {
    let program = Program::new("atomics64.wgsl", text).unwrap_or_else(|e| panic!("{e}"));
    let made = device.kernel(&program, "main", &Constants::new());
    if device.has(Aspect::Atomic64) {
        return Some(made.unwrap_or_else(|e| panic!("{e}")));
    }
    match made.unwrap_err() {
        KernelError::Atomics64 {
            program,
            entry,
            operation: told,
            diagnostic,
        } => {
            let names = (program.as_str(), entry.as_str(), told.as_str());
            assert_eq!(names, ("atomics64.wgsl", "main", operation));
            let text = diagnostic.to_string();
            for part in ["`main`", operation, "Aspect::Atomic64", "tombolo-cpu"] {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert!(diagnostic.line > 0, "{text}");
        }
        other => panic!("{other}"),
    }
    None
}

/// Every atomic built-in of WGSL on cells of `scalar`, with what each returns.
fn every_operation(scalar: &str) -> String {
    let suffix = if scalar == "i64" { "li" } else { "lu" };
    let one = |text: &str| text.replace('#', suffix);
    let mut text = format!(
        "struct Cells {{ before: u32, cells: array<atomic<{scalar}>, 16>, after: u32 }}
        alias Results = array<{scalar}>;
        @group(0) @binding(0) var<uniform> cells: usm_ptr;
        @group(0) @binding(1) var<uniform> results: usm_ptr;
        @group(0) @binding(2) var<uniform> k: u32;
        @compute @workgroup_size(1) fn main() {{
            let c = usm_Cells(cells);
            let r = usm_Results(results);\n"
    );
    for (i, line) in [
        "atomicAdd(&c.cells[0], 1000000000000#)",
        "atomicSub(&c.cells[1], 7#)",
        "atomicMax(&c.cells[k], 5#)",
        "atomicMin(&c.cells[3], 5#)",
        "atomicAnd(&c.cells[4], 0xff00ff0000#)",
        "atomicOr(&c.cells[5], 0xf0f0f0f0f0#)",
        "atomicXor(&c.cells[k + 4u], 0xffffffffff#)",
        "atomicExchange(&c.cells[7], 77#)",
        "atomicLoad(&c.cells[8])",
    ]
    .iter()
    .enumerate()
    {
        text += &one(&format!("r[{i}] = {line};\n"));
    }
    text += &one("
            atomicStore(&c.cells[9], 0x123456789abcdef#);
            // One that holds, one that does not; the weak one may fail without cause, and is tried again.
            var turns = 0u;
            var x = atomicCompareExchangeWeak(&c.cells[10], 0x1000000010#, 1010#);
            while !x.exchanged && x.old_value == 0x1000000010# && turns < 1000u {
                x = atomicCompareExchangeWeak(&c.cells[10], 0x1000000010#, 1010#);
                turns += 1u;
            }
            r[9] = x.old_value;
            r[10] = select(0#, 1#, x.exchanged);
            // The low words are alike.
            let y = atomicCompareExchangeWeak(&c.cells[11], 0x2000000011#, 1111#);
            r[11] = y.old_value;
            r[12] = select(0#, 1#, y.exchanged);
            c.after = c.before + 1u;
        }");
    text
}

/// The cells behind `before`, as words: `before`, its padding, 16 cells, `after` and padding.
const CELLS: usize = 18;

fn every_operation_of_one_invocation(f: &Fixture) {
    for (unified, checked) in [(None, false), (None, true), (Some(false), true)] {
        let device = f.open(|options| {
            options.unified_memory = unified;
            options.checked_pointers = checked;
        });
        let heap = device.heap().unwrap();
        for signed in [false, true] {
            let scalar = if signed { "i64" } else { "u64" };
            let Some(kernel) = kernel(&device, &every_operation(scalar), "atomicAdd") else {
                continue;
            };
            // The high bit tells signed from unsigned.
            let mut cells: Vec<u64> = (0..CELLS as u64)
                .map(|i| 0xffff_0000_ffff_0000 + i)
                .collect();
            cells[0] = 41;
            cells[11] = 0x10_0000_0010;
            cells[12] = 0x10_0000_0011;
            let mut expected = cells.clone();
            let mut results = vec![0xaaaa_aaaa_aaaa_aaaa_u64; 16];
            let less = |a: u64, b: u64| match signed {
                true => (a as i64) < b as i64,
                false => a < b,
            };
            let lesser = |a, b| if less(a, b) { a } else { b };
            let greater = |a, b| if less(a, b) { b } else { a };
            let mut step = |result: usize, cell: usize, f: &dyn Fn(u64) -> u64| {
                results[result] = expected[1 + cell];
                expected[1 + cell] = f(expected[1 + cell]);
            };
            step(0, 0, &|x| x.wrapping_add(1_000_000_000_000));
            step(1, 1, &|x| x.wrapping_sub(7));
            step(2, 2, &|x| greater(x, 5));
            step(3, 3, &|x| lesser(x, 5));
            step(4, 4, &|x| x & 0xff_00ff_0000);
            step(5, 5, &|x| x | 0xf0_f0f0_f0f0);
            step(6, 6, &|x| x ^ 0xff_ffff_ffff);
            step(7, 7, &|_| 77);
            step(8, 8, &|x| x);
            step(9, 10, &|_| 1010);
            step(11, 11, &|x| x);
            results[10] = 1;
            results[12] = 0;
            expected[1 + 9] = 0x0123_4567_89ab_cdef;
            // Of the last, the low half is written.
            expected[17] = expected[17] >> 32 << 32 | 42;
            let at = heap.alloc_slice(&cells).unwrap();
            let to = heap.alloc_slice(&[0u64; 16]).unwrap();
            // In memory of the device's own, too, where that is apart.
            let own = device.malloc::<u64>(CELLS).unwrap();
            for place in [at, own] {
                heap.write(at, &cells).unwrap();
                heap.fill(to, 0xaaaa_aaaa_aaaa_aaaa, 16).unwrap();
                device.heap_copy(at, own, CELLS).unwrap();
                kernel
                    .launch()
                    .value("cells", &place)
                    .value("results", &to)
                    .value("k", &2u32)
                    .workgroups(1)
                    .submit()
                    .unwrap();
                if place == own {
                    device.heap_copy(own, at, CELLS).unwrap();
                }
                let what = format!("{scalar} {unified:?} {checked} {}", place == at);
                assert_eq!(heap.read(at, CELLS).unwrap(), expected, "{what}");
                assert_eq!(heap.read(to, 16).unwrap(), results, "{what}");
            }
            heap.free(at).unwrap();
            heap.free(to).unwrap();
            device.free(own).unwrap();
        }
    }
}

/// Numbers whose sums exceed 32 bits.
pub fn numbers(count: usize) -> Vec<u64> {
    let mut state = 0x1234_5678_9abc_def1;
    (0..count).map(|_| noise(&mut state) >> 20).collect()
}

fn sums_beyond_32_bits(f: &Fixture) {
    const N: usize = 4096;
    const BINS: usize = 16;
    let text = "
        alias Bins = array<atomic<u64>, 16>;
        alias Numbers = array<u64>;
        @group(0) @binding(0) var<uniform> bins: usm_ptr;
        @group(0) @binding(1) var<uniform> numbers: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let number = usm_Numbers(numbers)[id.x];
            atomicAdd(&usm_Bins(bins)[u32(number & 15lu)], number);
        }";
    let Some(kernel) = kernel(&f.device, text, "atomicAdd") else {
        return;
    };
    let heap = f.context.heap().unwrap();
    let numbers = numbers(N);
    let mut expected = vec![u64::from(u32::MAX); BINS];
    for number in &numbers {
        let bin = &mut expected[(number & 15) as usize];
        *bin = bin.wrapping_add(*number);
    }
    assert!(expected.iter().all(|sum| *sum > 1 << 33));
    let bins = heap.alloc_slice(&[u64::from(u32::MAX); BINS]).unwrap();
    let given = heap.alloc_slice(&numbers).unwrap();
    kernel
        .launch()
        .value("bins", &bins)
        .value("numbers", &given)
        .invocations(N as u32)
        .submit()
        .unwrap();
    assert_eq!(heap.read(bins, BINS).unwrap(), expected);
    heap.free(bins).unwrap();
    heap.free(given).unwrap();
}

fn signed_maxima_and_exchanges(f: &Fixture) {
    const N: u32 = 4096;
    let text = "
        struct Cells { most: atomic<i64>, least: atomic<i64>, steps: atomic<i64>, first: atomic<i64>, firsts: atomic<i64> }
        @group(0) @binding(0) var<uniform> cells: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let c = usm_Cells(cells);
            // From about -2^44 to just below zero.
            let n = (i64(id.x) - 4096li) * 4294967297li;
            atomicMax(&c.most, n);
            atomicMin(&c.least, n);
            var old = atomicLoad(&c.steps);
            for (var i = 0u; i < 100000u; i++) {
                let x = atomicCompareExchangeWeak(&c.steps, old, old * 3li + 1li);
                if x.exchanged { break; }
                old = x.old_value;
            }
            if atomicExchange(&c.first, 0x100000000li) == 0li { atomicAdd(&c.firsts, 1li); }
        }";
    let Some(kernel) = kernel(&f.device, text, "atomicMax") else {
        return;
    };
    let heap = f.context.heap().unwrap();
    let cells = heap.alloc_slice(&[i64::MIN, i64::MAX, 1, 0, 0, 9]).unwrap();
    let mut launch = kernel.launch().value("cells", &cells).invocations(N);
    launch.submit().unwrap();
    let factor = (1i64 << 32) + 1;
    let expected = [
        -factor,
        -4096 * factor,
        (0..N).fold(1i64, |x, _| x.wrapping_mul(3).wrapping_add(1)),
        1 << 32,
        1,
        9,
    ];
    assert_eq!(heap.read(cells, 6).unwrap(), expected);
    heap.free(cells).unwrap();
}

/// A node of a list, and its list's head, a pointer in an atomic.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Node {
    next: Ptr<Node>,
    value: u32,
    pushed_by: u32,
}

fn lists_are_pushed_without_locks(f: &Fixture) {
    const N: usize = 2048;
    let text = "
        struct Node { next: usm_ptr, value: u32, pushed_by: u32 }
        struct List { head: atomic<u64>, count: atomic<u32> }
        @group(0) @binding(0) var<uniform> list: usm_ptr;
        @group(0) @binding(1) var<uniform> nodes: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let l = usm_List(list);
            let p = usm_element(nodes, id.x, 16u);
            let node = usm_Node(p);
            node.value = node.value * 3u;
            node.pushed_by = id.x;
            var head = atomicLoad(&l.head);
            for (var i = 0u; i < 100000u; i++) {
                node.next = usm_from_bits(head);
                let x = atomicCompareExchangeWeak(&l.head, head, usm_bits(p));
                if x.exchanged { break; }
                head = x.old_value;
            }
            atomicAdd(&l.count, 1u);
        }";
    for checked in [false, true] {
        let device = f.open(|options| options.checked_pointers = checked);
        let Some(kernel) = kernel(&device, text, "atomicLoad") else {
            return;
        };
        let heap = device.heap().unwrap();
        let nodes: Vec<_> = (0..N as u32)
            .map(|value| Node {
                next: Ptr::null(),
                value,
                pushed_by: u32::MAX,
            })
            .collect();
        let nodes = heap.alloc_slice(&nodes).unwrap();
        let list = heap.alloc_slice(&[0u64, 0xffff_ffff_0000_0000]).unwrap();
        kernel
            .launch()
            .value("list", &list)
            .value("nodes", &nodes)
            .invocations(N as u32)
            .submit()
            .unwrap();
        let words = heap.read(list, 2).unwrap();
        // The padding behind the counter stays.
        assert_eq!(words[1], 0xffff_ffff_0000_0000 | N as u64);
        let host = heap.host().unwrap();
        let mut seen = HashSet::new();
        let mut at = Ptr::<Node>::from_address(words[0]);
        while !at.is_null() {
            let node = *host.get(at).unwrap();
            assert_eq!(node.value, node.pushed_by * 3);
            assert!(seen.insert(node.pushed_by), "{node:?} twice");
            at = node.next;
        }
        assert_eq!(seen.len(), N);
        drop(host);
        heap.free(nodes).unwrap();
        heap.free(list).unwrap();
    }
}

fn beside_other_accesses_in_several_segments(f: &Fixture) {
    // Vectors of four words beside: the heap's elements are wider than the atomics.
    const TEXT: &str = "
        struct Cell { corner: vec4<u32>, sum: atomic<u64>, plain: u64, words: atomic<u32>, old: vec2<u32> }
        alias Cells = array<Cell>;
        alias Pointers = array<usm_ptr>;
        @group(0) @binding(0) var<uniform> cells: usm_ptr;
        @group(0) @binding(1) var<uniform> count: u32;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            for (var i = 0u; i < count; i++) {
                let c = &usm_Cells(usm_Pointers(cells)[i])[1];
                let corner = c.corner;
                atomicAdd(&c.sum, u64(corner.w) << 32u);
                WORDS
                if id.x == 0u { c.plain = 0x123456789lu; c.old = corner.xy + corner.zw; }
            }
        }";
    const CELL: usize = 12;
    const N: u32 = 256;
    // With atomic words in the kernel, and without.
    for (words, added) in [("atomicAdd(&c.words, corner.x);", true), ("", false)] {
        let context = tombolo::Context::new().unwrap();
        let device = context
            .device_named_with(f.device.name(), {
                let mut options = tombolo::DeviceOptions::default();
                options.storage_binding_bytes = Some(1 << 20);
                options.checked_pointers = added;
                options.unified_memory = Some(false);
                options
            })
            .unwrap();
        let text = TEXT.replace("WORDS", words);
        if !device.has(Aspect::Atomic64) {
            assert!(kernel(&device, &text, "atomicAdd").is_none());
            continue;
        }
        let heap = device.heap().unwrap();
        let mut cells = vec![0xaaaa_aaaa_u32; 2 * CELL];
        cells[CELL..CELL + 4].copy_from_slice(&[3, 5, 7, 11]);
        cells[CELL + 4..CELL + 6].copy_from_slice(&[0xffff_fff0, 0]);
        cells[CELL + 8] = 100;
        // Nearly a segment each, and so in several segments; and in the device's own memory.
        let filler = (1 << 18) - 4096;
        let mut places = Vec::new();
        for _ in 0..3 {
            let at = heap.alloc_zeroed::<u32>(filler).unwrap();
            heap.write(at, &cells).unwrap();
            places.push(at);
        }
        let own = device.malloc::<u32>(2 * CELL).unwrap();
        device.heap_copy(places[0], own, 2 * CELL).unwrap();
        places.push(own);
        let pointers = heap.alloc_slice(&places).unwrap();
        let Some(kernel) = kernel(&device, &text, "atomicAdd") else {
            return;
        };
        kernel
            .launch()
            .value("cells", &pointers)
            .value("count", &(places.len() as u32))
            .invocations(N)
            .submit()
            .unwrap();
        let mut expected = cells.clone();
        expected[CELL + 5] = 11 * N;
        expected[CELL + 6..CELL + 8].copy_from_slice(&[0x2345_6789, 1]);
        if added {
            expected[CELL + 8] = 100 + 3 * N;
        }
        expected[CELL + 10..CELL + 12].copy_from_slice(&[10, 16]);
        for place in &places {
            let seen = heap.alloc_zeroed::<u32>(2 * CELL).unwrap();
            device.heap_copy(*place, seen, 2 * CELL).unwrap();
            let found = heap.read(seen, 2 * CELL).unwrap();
            assert_eq!(found, expected, "{added} {place:?}");
        }
    }
}

fn minima_of_both_kinds_are_refused(f: &Fixture) {
    let source = |signed: &str, unsigned: &str| {
        format!(
            "struct Cells {{ a: atomic<i64>, b: atomic<u64>, c: atomic<u32> }}
            @group(0) @binding(0) var<uniform> cells: usm_ptr;
            @compute @workgroup_size(1) fn main() {{
                let c = usm_Cells(cells);
                {signed}(&c.a, -3li);
                {unsigned}(&c.b, 4lu);
                atomicMax(&c.c, 9u);
            }}"
        )
    };
    let heap = f.context.heap().unwrap();
    for (signed, unsigned, expected) in [
        ("atomicMin", "atomicAdd", Some([-3i64, 4, 9])),
        ("atomicAdd", "atomicMax", Some([-3, 4, 9])),
        ("atomicMin", "atomicMax", None),
    ] {
        let text = source(signed, unsigned);
        let Some(expected) = expected else {
            let program = Program::new("atomics64.wgsl", text);
            let made = program.and_then(|p| f.device.kernel(&p, "main", &Constants::new()));
            match made.unwrap_err() {
                KernelError::Pointer(told) => {
                    assert!(told.message.contains("i64 and u64"), "{told}");
                }
                KernelError::Atomics64 { .. } => assert!(!f.device.has(Aspect::Atomic64)),
                other => panic!("{other}"),
            }
            continue;
        };
        let Some(kernel) = kernel(&f.device, &text, signed) else {
            continue;
        };
        let cells = heap.alloc_slice(&[0i64; 3]).unwrap();
        let mut launch = kernel.launch().value("cells", &cells).workgroups(1);
        launch.submit().unwrap();
        assert_eq!(heap.read(cells, 3).unwrap(), expected);
        heap.free(cells).unwrap();
    }
}

fn faults_are_told(f: &Fixture) {
    let text = "
        alias Sum = atomic<u64>;
        @group(0) @binding(0) var<uniform> sum: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> seen: array<u64>;
        @compute @workgroup_size(1) fn main() {
            seen[0] = atomicAdd(usm_Sum(sum), 1lu);
            seen[1] = atomicLoad(usm_Sum(sum));
            atomicStore(usm_Sum(sum), 9lu);
            seen[2] = 3lu;
        }";
    let device = f.open_alone(|options| options.checked_pointers = true);
    let Some(kernel) = kernel(&device, text, "atomicAdd") else {
        return;
    };
    let heap = device.heap().unwrap();
    let words = heap.alloc_slice(&[1u64, 2]).unwrap();
    for (at, told) in [
        (words.byte_add(4), "a misaligned pointer"),
        (Ptr::null(), "a null pointer"),
        (Ptr::from_address(u64::MAX - 7), "`Sum`"),
    ] {
        let seen = device.buffer(&[7u64; 3]).unwrap();
        let launch = kernel.launch().value("sum", &at);
        let mut launch = launch.buffer("seen", &seen).workgroups(1);
        let error = launch.submit().unwrap().wait().unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
        match heap.read(words, 2) {
            Ok(found) => assert_eq!(found, [1, 2]),
            // The heap remembers the launch.
            Err(error) => assert!(matches!(error, HeapError::Execution { .. }), "{error}"),
        }
    }
}
