//! Private arrays in scratch memory: the same results as in private memory, for arrays of any size.

use crate::cases;
use crate::harness::Fixture;
use crate::private_arrays;
use tombolo::device::Aspect;
use tombolo::kernel::{KernelError, KernelOptions, SpillPolicy};
use tombolo::launch::{Extent, LaunchError};
use tombolo::{Constants, Device, Kernel, Program, Ptr};

cases![
    every_private_array_test_with_all_arrays_spilled,
    arrays_from_one_kib_to_one_mib,
    grids_larger_than_scratch_memory,
    frames_of_nested_functions_keep_apart,
    structures_vectors_and_matrices,
    halves_and_wide_scalars,
    pointers_to_elements_and_whole_arrays,
    whole_values_are_copies,
    a_variable_begins_anew_each_time,
    indices_beyond_an_array_stay_inside,
    arrays_beside_pointers_globals_and_prints,
    only_the_largest_arrays_are_spilled,
    what_cannot_be_spilled_is_refused,
];

const POISON: u32 = 0xdead_beef;

fn always() -> KernelOptions {
    let mut options = KernelOptions::default();
    options.spill = Some(SpillPolicy::Always);
    options
}

fn kernel(device: &Device, source: &str, constants: &Constants, options: KernelOptions) -> Kernel {
    let program = Program::new("spill.wgsl", source).unwrap();
    let kernel = device.kernel_with(&program, "main", constants, options);
    kernel.unwrap_or_else(|error| panic!("{error}"))
}

/// The words that a kernel leaves in `sink`.
fn words(kernel: &Kernel, grid: impl Into<Extent>, len: usize) -> Vec<u32> {
    let sink = kernel.device().buffer(&vec![POISON; len]).unwrap();
    let mut launch = kernel.launch().buffer("sink", &sink).invocations(grid);
    launch.submit().unwrap().wait().unwrap();
    sink.read().unwrap()
}

/// Runs `source` with all arrays spilled, and compares with `expected` for each of the invocations.
fn check(f: &Fixture, source: &str, invocations: u32, expected: impl Fn(u32) -> u32) {
    let kernel = kernel(&f.device, source, &Constants::new(), always());
    assert!(kernel.scratch_bytes() > 0);
    let expected: Vec<u32> = (0..invocations).map(expected).collect();
    let found = words(&kernel, invocations, invocations as usize);
    assert_eq!(found, expected, "{source}");
}

fn every_private_array_test_with_all_arrays_spilled(f: &Fixture) {
    let device = f.open(|options| options.spill = SpillPolicy::Always);
    let spilling = Fixture {
        context: f.context.clone(),
        index: f.index,
        device,
    };
    for case in private_arrays::CASES {
        if !case.name.contains("impossible") {
            (case.run)(&spilling);
        }
    }
}

/// Writes and reads at places that hashes choose, so that most words are only ever zero.
const HASHED: &str = "
    override N: u32;
    @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
    fn hash(x: u32) -> u32 { var h = x * 2654435761u; h ^= h >> 15u; return h * 2246822519u; }
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        var table: array<u32, N>;
        for (var i = 0u; i < 300u; i++) { table[hash(i + id.x) % N] += i ^ id.x; }
        var sum = 0u;
        for (var i = 0u; i < 600u; i++) { sum = sum * 31u + table[hash(i + id.x) % N]; }
        sink[id.x] = sum + table[N - 1u];
    }";

fn hashed(n: u32, id: u32) -> u32 {
    let hash = |x: u32| {
        let h = x.wrapping_mul(2_654_435_761);
        (h ^ (h >> 15)).wrapping_mul(2_246_822_519)
    };
    let mut table = vec![0u32; n as usize];
    for i in 0..300u32 {
        let at = (hash(i + id) % n) as usize;
        table[at] = table[at].wrapping_add(i ^ id);
    }
    let step = |sum: u32, i: u32| {
        let value = table[(hash(i + id) % n) as usize];
        sum.wrapping_mul(31).wrapping_add(value)
    };
    (0..600).fold(0, step).wrapping_add(table[n as usize - 1])
}

fn arrays_from_one_kib_to_one_mib(f: &Fixture) {
    for n in [1 << 8, 1 << 10, 12_345, 1 << 14, 1 << 16, 1 << 18] {
        let constants = Constants::new().set("N", n);
        // Twice: what the first launch has left must not be seen.
        for policy in [SpillPolicy::Always, SpillPolicy::Auto] {
            if policy == SpillPolicy::Auto && n < 1 << 16 {
                continue;
            }
            let mut options = KernelOptions::default();
            options.spill = Some(policy);
            let kernel = kernel(&f.device, HASHED, &constants, options);
            assert_eq!(kernel.scratch_bytes(), 4 * u64::from(n));
            assert!(kernel.private_arrays()[0].spilled);
            let expected: Vec<u32> = (0..24).map(|id| hashed(n, id)).collect();
            assert_eq!(words(&kernel, 24u32, 24), expected, "{n} words, {policy:?}");
        }
    }
}

fn grids_larger_than_scratch_memory(f: &Fixture) {
    let source = "
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(2, 3, 1) fn main(
            @builtin(global_invocation_id) id: vec3<u32>,
            @builtin(workgroup_id) group: vec3<u32>,
            @builtin(num_workgroups) groups: vec3<u32>,
        ) {
            var own: array<u32, 64>;
            for (var i = 0u; i < 64u; i++) { own[i] = i * (id.x + 100u * id.y + 10000u * id.z); }
            let at = id.x + 10u * (id.y + 9u * id.z);
            sink[at] = own[at % 64u] * 8u + (group.x + group.y + group.z) % 3u + 3u * u32(groups.x == 5u && groups.z == 4u);
        }";
    let expected: Vec<u32> = (0..360u32)
        .map(|at| {
            let (x, y, z) = (at % 10, at / 10 % 9, at / 90);
            let group = (x / 2 + y / 3 + z) % 3;
            (at % 64) * (x + 100 * y + 10_000 * z) * 8 + group + 3
        })
        .collect();
    // One work-group takes 64 * 4 * 6 bytes.
    for groups in [1u64, 2, 5, 7, 15, 59, 60] {
        let device = f.open(|options| {
            options.spill = SpillPolicy::Always;
            options.scratch_bytes = Some(1536 * groups + 5);
        });
        let kernel = kernel(&device, source, &Constants::new(), KernelOptions::default());
        assert_eq!(
            words(&kernel, [10, 9, 4], 360),
            expected,
            "{groups} at once"
        );
    }
}

fn frames_of_nested_functions_keep_apart(f: &Fixture) {
    let source = "
        var<private> calls: array<u32, 3>;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        fn leaf(seed: u32) -> u32 {
            calls[0] += 1u;
            var own: array<u32, 17>;
            for (var i = 0u; i < 17u; i++) { own[i] += seed + i; }
            return own[seed % 17u];
        }
        fn middle(seed: u32) -> u32 {
            calls[1] += 1u;
            var own: array<u32, 9>;
            for (var i = 0u; i < 9u; i++) { own[i] = leaf(seed + i); }
            let before = leaf(seed);
            var sum = 0u;
            for (var i = 0u; i < 9u; i++) { sum += own[i]; }
            return sum + before;
        }
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var own: array<u32, 5>;
            for (var i = 0u; i < 5u; i++) { own[i] = middle(id.x + i) + leaf(i); }
            var sum = calls[0] * 1000000u + calls[1] * 100000u + calls[2];
            for (var i = 0u; i < 5u; i++) { sum += own[i]; }
            sink[id.x] = sum;
        }";
    let leaf = |seed: u32| seed + seed % 17;
    let middle = |seed: u32| (0..9).map(|i| leaf(seed + i)).sum::<u32>() + leaf(seed);
    check(f, source, 32, |id| {
        let sum: u32 = (0..5).map(|i| middle(id + i) + leaf(i)).sum();
        sum + 5 * 11 * 1_000_000 + 5 * 100_000
    });
    let program = kernel(&f.device, source, &Constants::new(), always());
    assert_eq!(program.scratch_bytes(), 4 * (3 + 5 + 9 + 17));
}

fn structures_vectors_and_matrices(f: &Fixture) {
    let source = "
        struct Inner { flags: vec3<bool>, on: bool, weights: array<vec3<f32>, 3> }
        struct Outer { m: mat3x2<f32>, inner: array<Inner, 2>, count: vec2<i32>, tail: u32 }
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var all: array<Outer, 3>;
            for (var k = 0u; k < 3u; k++) {
                all[k].m[k][id.x % 2u] = f32(k + 1u);
                all[k].m[2] += vec2(10.0, 20.0);
                all[k].inner[k % 2u].flags[id.x % 3u] = true;
                all[k].inner[1].on = k == 1u;
                all[k].inner[0].weights[k].y = f32(id.x);
                all[k].inner[0].weights[k] *= 2.0;
                all[k].count -= vec2<i32>(i32(k), -3);
                all[k].tail = k * 7u;
            }
            let k = (id.x + 1u) % 3u;
            let whole = all[k].inner[k % 2u];
            let m = all[k].m * vec3(1.0, 1.0, 1.0);
            var sum = u32(m.x) + 10u * u32(m.y);
            sum += select(0u, 1000u, all[k].inner[k % 2u].flags[id.x % 3u]) + select(0u, 2000u, any(whole.flags));
            sum += select(0u, 4000u, all[k].inner[1].on) + 10000u * u32(all[k].inner[0].weights[k].y);
            sum += 1000000u * u32(all[k].count.y - all[k].count.x) + all[k].tail;
            sink[id.x] = sum;
        }";
    check(f, source, 24, |id| {
        let k = (id + 1) % 3;
        let mut rows = [10, 20];
        rows[(id % 2) as usize] += k + 1;
        let flags = 1000 + 2000;
        let on = if k == 1 { 4000 } else { 0 };
        rows[0] + 10 * rows[1] + flags + on + 10_000 * 2 * id + 1_000_000 * (3 + k) + 7 * k
    });
}

/// Each type on the adapters that have it.
fn halves_and_wide_scalars(f: &Fixture) {
    let source = |enable: &str, ty: &str, from: &str, to: &str| {
        format!(
            "{enable}
            struct Part {{ a: {ty}, b: array<vec3<{ty}>, 3> }}
            @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
            fn fill(values: ptr<function, array<{ty}, 50>>, x: u32) {{
                for (var i = 0u; i < 50u; i++) {{ values[i] = {from}(i + x); }}
            }}
            @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                var own: array<{ty}, 50>;
                var parts: array<Part, 5>;
                fill(&own, id.x);
                for (var i = 0u; i < 5u; i++) {{
                    parts[i].a = own[i * 7u];
                    parts[i].b[i % 3u] = vec3(own[i], own[i + 1u], own[i + 2u]);
                    parts[i].b[(i + 1u) % 3u].y += {from}(1);
                }}
                let kept = parts;
                parts[2] = Part();
                let k = id.x % 5u;
                let v = kept[k].b[k % 3u];
                sink[id.x] = {to}(kept[k].a) + {to}(v.z) * 100u + {to}(kept[k].b[(k + 1u) % 3u].y) * 10000u
                    + {to}(parts[2].a) * 100000u + {to}(own[49]) * 1000000u;
            }}"
        )
    };
    let expected = |id: u32| {
        let k = id % 5;
        (7 * k + id) + (k + 2 + id) * 100 + 10_000 + (49 + id) * 1_000_000
    };
    for (aspect, enable, ty) in [
        (Aspect::Fp16, "enable f16;", "f16"),
        (Aspect::Fp64, "", "f64"),
        (Aspect::Int64, "", "i64"),
        (Aspect::Int64, "", "u64"),
    ] {
        if f.device.has(aspect) {
            check(f, &source(enable, ty, ty, "u32"), 20, expected);
        }
    }
}

fn pointers_to_elements_and_whole_arrays(f: &Fixture) {
    let source = "
        struct Pair { key: u32, values: array<u32, 6> }
        var<private> shared_row: array<u32, 6>;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        fn add(to: ptr<function, u32>, n: u32) { *to += n; }
        fn add_private(to: ptr<private, u32>, n: u32) { *to += n; }
        fn sum(row: ptr<function, array<u32, 6>>) -> u32 {
            var all = 0u;
            for (var i = 0u; i < 6u; i++) { all += (*row)[i]; }
            return all;
        }
        fn raise(row: ptr<function, array<u32, 6>>, at: u32) { add(&(*row)[at], 5u); row[at] += 1u; }
        fn both(first: ptr<function, array<u32, 6>>, second: ptr<function, array<u32, 6>>) -> u32 {
            raise(first, 2u);
            *second = *first;
            return sum(second);
        }
        fn of_pair(pair: ptr<function, Pair>, other: ptr<function, array<u32, 6>>) -> u32 {
            add(&pair.key, 3u);
            return both(&pair.values, other) + pair.key;
        }
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var lone = id.x;
            var row: array<u32, 6>;
            var pairs: array<Pair, 3>;
            add(&lone, 1u);
            add(&row[lone % 6u], 4u);
            let third = &pairs[id.x % 3u];
            (*third).values[1] = 7u;
            let a = of_pair(third, &row);
            raise(&row, id.x % 6u);
            add_private(&shared_row[id.x % 6u], 9u);
            shared_row[0] += sum(&row);
            sink[id.x] = a * 1000u + lone * 100u + shared_row[0] + pairs[(id.x + 1u) % 3u].key;
        }";
    check(f, source, 40, |id| {
        let lone = id + 1;
        let a = (7 + 6) + 3;
        let row = 13 + 6;
        let own = if id % 6 == 0 { 9 } else { 0 };
        a * 1000 + lone * 100 + own + row
    });
}

fn whole_values_are_copies(f: &Fixture) {
    let source = "
        struct Box { a: array<u32, 7>, b: array<u32, 7> }
        const TABLE = array<u32, 7>(10u, 20u, 30u, 40u, 50u, 60u, 70u);
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @group(0) @binding(1) var<storage, read_write> boxes: array<Box, 8>;
        var<workgroup> shared_box: Box;
        fn changed(by_value: array<u32, 7>) -> array<u32, 7> {
            var own = by_value;
            own[0] += 1u;
            return own;
        }
        fn swapped(it: Box) -> Box { return Box(it.b, it.a); }
        fn table() -> array<u32, 7> { return TABLE; }
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var x = table();
            let snapshot = x;
            x[1] = 5u;
            var y = snapshot;
            y[2] = x[1] + snapshot[1];
            x = changed(y);
            var it = Box(x, y);
            it = swapped(it);
            it = Box(it.b, it.a);
            it.a = it.b;
            it.b[6] = TABLE[id.x % 7u];
            shared_box = it;
            var z = shared_box;
            z.a[3] = 4u;
            boxes[id.x % 8u] = z;
            let back = boxes[id.x % 8u].a;
            var none = Box();
            none.a[id.x % 7u] = 1u;
            let last = array<u32, 3>(back[0], back[2], none.a[id.x % 7u]);
            var w = last;
            sink[id.x] = w[0] + w[1] * 10u + w[2] * 1000u + z.b[6] * 10000u + z.a[3] + none.b[3] + it.a[3] * 1000000u;
        }";
    let kernel = kernel(&f.device, source, &Constants::new(), always());
    for id in 0..8u32 {
        let sink = f.device.buffer(&[POISON; 9]).unwrap();
        let boxes = f.device.buffer(&[POISON; 14 * 8]).unwrap();
        let mut launch = kernel.launch();
        launch = launch.buffer("sink", &sink).buffer("boxes", &boxes);
        launch.invocations(id + 1).submit().unwrap().wait().unwrap();
        // x after changed(y): y is [10, 20, 25, 40, …], x[0] one more; it.a = y.
        let expected = 10 + 250 + 1000 + 10_000 * 10 * (id % 7 + 1) + 4 + 40_000_000;
        assert_eq!(sink.read().unwrap()[id as usize], expected, "{id}");
        let kept = boxes.read().unwrap();
        let from = (id * 14) as usize;
        let tail = 10 * (id % 7 + 1);
        let row = [10, 20, 25, 4, 50, 60, 70, 10, 20, 25, 40, 50, 60, tail];
        assert_eq!(kept[from..from + 14], row, "{id}");
    }
}

fn a_variable_begins_anew_each_time(f: &Fixture) {
    let source = "
        var<private> start: array<u32, 4> = array(3u, 1u, 4u, 1u);
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        fn fresh(at: u32) -> u32 {
            var own: array<u32, 40>;
            let before = own[at];
            for (var i = 0u; i < 40u; i++) { own[i] = 77u; }
            return before;
        }
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var sum = 0u;
            for (var k = 0u; k < 5u; k++) {
                var zero: array<u32, 50>;
                var given = array<u32, 3>(k, k + 1u, k + 2u);
                sum += zero[k * 7u] + given[id.x % 3u];
                for (var i = 0u; i < 50u; i++) { zero[i] = 1000u; }
                given[id.x % 3u] = 999u;
                sum += fresh(k);
            }
            var fixed = array(5u, 6u, 7u, 8u);
            sink[id.x] = sum * 10000u + start[id.x % 4u] * 100u + fixed[id.x % 4u];
            start[id.x % 4u] = 50u;
        }";
    check(f, source, 52, |id| {
        let sum: u32 = (0..5).map(|k| k + id % 3).sum();
        sum * 10_000 + [3, 1, 4, 1][(id % 4) as usize] * 100 + 5 + id % 4
    });
}

fn indices_beyond_an_array_stay_inside(f: &Fixture) {
    let source = "
        struct Guarded { before: array<u32, 3>, own: array<u32, 5>, after: array<u32, 3> }
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var it: Guarded;
            var signed: array<u32, 3>;
            it.own[5u + id.x * 1000003u] = 7u;
            signed[-1 - i32(id.x)] = 8u;
            var others = 0u;
            for (var i = 0u; i < 3u; i++) { others += it.before[i] + it.after[i]; }
            for (var i = 0u; i < 4u; i++) { others += it.own[i]; }
            sink[id.x] = others * 1000u + it.own[4] + it.own[id.x + 900u] * 10u + signed[2] * 100u;
        }";
    check(f, source, 32, |_| 7 + 70 + 800);
}

fn arrays_beside_pointers_globals_and_prints(f: &Fixture) {
    let source = "
        var<storage, read_write> spill_total: atomic<u32>;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @group(0) @binding(1) var<storage, read> starts: array<vec2<u32>>;
        struct Item { value: u32, row: array<u32, 8> }
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let item = usm_Item(starts[id.x]);
            var row = (*item).row;
            var own: array<u32, 8>;
            for (var i = 0u; i < 8u; i++) { own[7u - i] = row[i] + (*item).value; }
            assert(own[0] < 1000u, \"{} is too large\", own[0]);
            (*item).row = own;
            atomicAdd(&spill_total, own[id.x % 8u]);
            sink[id.x] = own[id.x % 8u];
        }";
    let device = f.open_alone(|options| options.spill = SpillPolicy::Always);
    let program = Program::new("beside.wgsl", source).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let heap = device.heap().unwrap();
    let items: Vec<Ptr<u32>> = (0..8u32)
        .map(|k| {
            let words: Vec<u32> = std::iter::once(k * 10)
                .chain((0..8).map(|i| i * k))
                .collect();
            heap.alloc_slice(&words).unwrap()
        })
        .collect();
    let starts = device.buffer(&items).unwrap();
    let sink = device.buffer(&[POISON; 8]).unwrap();
    let launch = kernel
        .launch()
        .buffer("sink", &sink)
        .buffer("starts", &starts);
    launch.invocations(8).submit().unwrap().wait().unwrap();
    let expected: Vec<u32> = (0..8).map(|k| (7 - k % 8) * k + k * 10).collect();
    assert_eq!(sink.read().unwrap(), expected);
}

fn only_the_largest_arrays_are_spilled(f: &Fixture) {
    let source = "
        override LARGE: u32;
        override SMALL: u32;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var large: array<u32, LARGE>;
            var small: array<u32, SMALL>;
            for (var i = 0u; i < SMALL; i++) { small[i] = id.x + i; large[i * 3u] = i; }
            sink[id.x] = small[id.x % SMALL] + large[3u * (id.x % SMALL)] * 1000u;
        }";
    let device = f.open(|options| options.private_memory_bytes = Some(256));
    let constants = Constants::new().set("LARGE", 500u32).set("SMALL", 16u32);
    let made = kernel(&device, source, &constants, KernelOptions::default());
    let spilled: Vec<_> = made.private_arrays().iter().map(|a| a.spilled).collect();
    assert_eq!((spilled, made.scratch_bytes()), (vec![true, false], 2000));
    let expected: Vec<u32> = (0..20).map(|id| id + id % 16 + 1000 * (id % 16)).collect();
    assert_eq!(words(&made, 20u32, 20), expected);
    // What fits stays where it is.
    let constants = Constants::new().set("LARGE", 46u32).set("SMALL", 16u32);
    let made = kernel(&device, source, &constants, KernelOptions::default());
    assert_eq!(made.scratch_bytes(), 0);
    assert_eq!(words(&made, 20u32, 20), expected);
    // Arrays that the text fixes count, too.
    let fixed = source.replace(
        "var small",
        "var fixed: array<u32, 20>; fixed[id.x % 20u] = 1u; var small",
    );
    let made = kernel(&device, &fixed, &constants, KernelOptions::default());
    assert!(made.scratch_bytes() > 0);
    assert_eq!(words(&made, 20u32, 20), expected);
}

fn what_cannot_be_spilled_is_refused(f: &Fixture) {
    let program = Program::new("spill.wgsl", HASHED).unwrap();
    let device = f.open(|options| options.scratch_bytes = Some(1 << 20));
    let many = Constants::new().set("N", 1u32 << 15);
    assert!(
        device
            .kernel_with(&program, "main", &many, always())
            .is_ok()
    );
    let more = Constants::new().set("N", (1u32 << 15) + 1);
    match device.kernel_with(&program, "main", &more, always()) {
        Err(KernelError::PrivateArrayTooLarge {
            array,
            function,
            bytes,
            total,
            limit,
            diagnostic,
        }) => {
            assert_eq!(
                (array.as_str(), function.as_deref()),
                ("table", Some("main"))
            );
            assert_eq!((bytes, total, limit), (131_076, 131_076, 131_072));
            assert_eq!(diagnostic.line, 6, "{diagnostic}");
            assert!(
                diagnostic.to_string().contains("scratch_bytes"),
                "{diagnostic}"
            );
        }
        other => panic!("{other:?}"),
    }
    let never = f.open(|options| options.spill = SpillPolicy::Never);
    let refused = never.kernel(&program, "main", &many);
    let limit = u64::from(f.device.capabilities().private_memory_bytes);
    match refused {
        Err(KernelError::PrivateArrayTooLarge { limit: told, .. }) => assert_eq!(told, limit),
        // Devices where so much is private memory.
        Ok(_) => assert!(limit >= 1 << 17),
        Err(other) => panic!("{other}"),
    }
    let kernel = device
        .kernel_with(&program, "main", &many, always())
        .unwrap();
    let counts = device.buffer(&[1u32, 1, 1]).unwrap();
    let sink = device.zeroed::<u32>(8).unwrap();
    let mut launch = kernel.launch().buffer("sink", &sink).indirect(&counts, 0);
    match launch.submit() {
        Err(LaunchError::SpilledIndirect { kernel }) => assert_eq!(kernel, "main"),
        other => panic!("{other:?}"),
    }
}
