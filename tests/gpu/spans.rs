//! Helpers that take pointers to arrays of any length.

use crate::cases;
use crate::harness::Fixture;
use tombolo::device::ExecutionError;
use tombolo::kernel::{KernelError, KernelOptions, SpillPolicy};
use tombolo::{Constants, Kernel, Program, Ptr};

cases![
    one_helper_serves_arrays_of_every_length,
    spans_in_every_address_space,
    spans_are_passed_on,
    spans_of_spilled_arrays,
    spans_beside_pointers_and_prints,
    arguments_that_are_no_spans_are_refused,
    indices_beyond_a_span_fail_a_checked_launch,
];

const POISON: u32 = 0xdead_beef;

fn run(f: &Fixture, kernel: &Kernel, len: usize) -> Vec<u32> {
    let sink = f.device.buffer(&vec![POISON; len]).unwrap();
    let mut launch = kernel.launch().buffer("sink", &sink);
    launch = launch.invocations(len);
    launch.submit().unwrap().wait().unwrap();
    sink.read().unwrap()
}

fn made(f: &Fixture, source: &str, constants: &Constants, spill: SpillPolicy) -> Kernel {
    let program = Program::new("spans.wgsl", source).unwrap_or_else(|error| panic!("{error}"));
    let mut options = KernelOptions::default();
    options.spill = Some(spill);
    let kernel = f.device.kernel_with(&program, "main", constants, options);
    kernel.unwrap_or_else(|error| panic!("{error}"))
}

const SORT: &str = "
    override N: u32;
    @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
    fn sort(values: ptr<function, array<u32>>) {
        for (var i = 1u; i < arrayLength(values); i++) {
            for (var j = i; j > 0u && values[j] < values[j - 1u]; j--) {
                let other = values[j];
                values[j] = values[j - 1u];
                values[j - 1u] = other;
            }
        }
    }
    fn weigh(values: ptr<function, array<u32>>) -> u32 {
        var sum = arrayLength(values);
        for (var i = 0u; i < arrayLength(values); i++) { sum = sum * 3u + (*values)[i]; }
        return sum;
    }
    @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        var chosen: array<u32, N>;
        var fixed = array(id.x, 5u, 1u);
        for (var i = 0u; i < N; i++) { chosen[i] = (id.x * 7u + i * 5u) % 11u; }
        sort(&chosen);
        sort(&fixed);
        sink[id.x] = weigh(&chosen) + weigh(&fixed) * 1000u;
    }";

fn sorted(n: u32, id: u32) -> u32 {
    let weigh = |mut values: Vec<u32>| {
        values.sort_unstable();
        let start = values.len() as u32;
        let step = |sum: u32, value: u32| sum.wrapping_mul(3).wrapping_add(value);
        values.into_iter().fold(start, step)
    };
    let chosen = (0..n).map(|i| (id * 7 + i * 5) % 11).collect();
    weigh(chosen).wrapping_add(weigh(vec![id, 5, 1]).wrapping_mul(1000))
}

fn one_helper_serves_arrays_of_every_length(f: &Fixture) {
    for n in [1u32, 2, 9, 24] {
        let constants = Constants::new().set("N", n);
        let kernel = made(f, SORT, &constants, SpillPolicy::Never);
        let expected: Vec<u32> = (0..12).map(|id| sorted(n, id)).collect();
        assert_eq!(run(f, &kernel, 12), expected, "{n}");
    }
}

fn spans_of_spilled_arrays(f: &Fixture) {
    for n in [1u32, 9, 24] {
        let constants = Constants::new().set("N", n);
        let kernel = made(f, SORT, &constants, SpillPolicy::Always);
        assert_eq!(kernel.scratch_bytes(), 4 * (u64::from(n) + 3));
        let expected: Vec<u32> = (0..12).map(|id| sorted(n, id)).collect();
        assert_eq!(run(f, &kernel, 12), expected, "{n}");
    }
}

fn spans_in_every_address_space(f: &Fixture) {
    let source = "
        override N: u32 = 6;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        var<private> own: array<vec2<u32>, 5>;
        var<workgroup> shared_words: array<u32, N>;
        fn fill_own(values: ptr<private, array<vec2<u32>>>, seed: u32) {
            for (var i = 0u; i < arrayLength(values); i++) { values[i] = vec2(seed, i); }
        }
        fn fill_shared(before: u32, values: ptr<workgroup, array<u32>>, seed: u32) {
            for (var i = before; i < arrayLength(values); i++) { values[i] = seed * i; }
        }
        fn fill_more(values: ptr<workgroup, array<u32>>, seed: u32) { fill_shared(0u, values, seed); }
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            fill_own(&own, id.x);
            fill_more(&shared_words, id.x + 1u);
            sink[id.x] = own[4].x * 100u + own[3].y + 10000u * shared_words[N - 1u];
        }";
    for n in [2u32, 6] {
        let constants = Constants::new().set("N", n);
        let kernel = made(f, source, &constants, SpillPolicy::Auto);
        let expected: Vec<u32> = (0..7)
            .map(|id| id * 100 + 3 + 10_000 * (id + 1) * (n - 1))
            .collect();
        assert_eq!(run(f, &kernel, 7), expected, "{n}");
    }
}

fn spans_are_passed_on(f: &Fixture) {
    let source = "
        struct Pair { rows: array<array<u32, 3>, 2>, tail: array<u32, 5> }
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        fn length(values: ptr<function, array<u32>>) -> u32 { return arrayLength(values); }
        fn put(values: ptr<function, array<u32>>, at: u32, value: u32) -> u32 {
            let same = values;
            (*same)[at] = value;
            return length(same);
        }
        fn twice(values: ptr<function, array<u32>>, others: ptr<function, array<u32>>) -> u32 {
            return put(values, 1u, 40u) * 10u + put(others, arrayLength(others) - 1u, 2u);
        }
        fn rows(all: ptr<function, array<array<u32, 3>>>) -> u32 {
            var sum = 0u;
            for (var i = 0u; i < arrayLength(all); i++) { sum += length(&(*all)[i]) + (*all)[i][1]; }
            return sum;
        }
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var pair: Pair;
            let lengths = twice(&pair.rows[id.x % 2u], &pair.tail);
            // Beyond the array: its last element.
            let beyond = put(&pair.tail, 7u + id.x, 6u);
            sink[id.x] = lengths * 1000u + rows(&pair.rows) * 10u + pair.tail[4] + beyond * 100000u;
        }";
    // naga's writer of SPIR-V takes no pointers to parts of variables as arguments; spilled, such a pointer is an index.
    let kernel = made(f, source, &Constants::new(), SpillPolicy::Always);
    for (id, found) in (0u32..4).zip(run(f, &kernel, 4)) {
        assert_eq!(found, 35_000 + (6 + 40) * 10 + 6 + 500_000, "{id}");
    }
}

fn spans_beside_pointers_and_prints(f: &Fixture) {
    let source = "
        struct Item { row: array<u32, 4> }
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @group(0) @binding(1) var<storage, read> starts: array<vec2<u32>>;
        fn total(values: ptr<function, array<u32>>) -> u32 {
            var sum = 0u;
            for (var i = 0u; i < arrayLength(values); i++) {
                assert(values[i] < 100u, \"{} of {}\", values[i], arrayLength(values));
                sum += values[i];
            }
            return sum;
        }
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var row = (*usm_Item(starts[id.x])).row;
            var two = array(id.x, 1u);
            sink[id.x] = total(&row) * 100u + total(&two);
        }";
    let program = Program::new("spans.wgsl", source).unwrap_or_else(|error| panic!("{error}"));
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let heap = f.context.heap().unwrap();
    let rows: Vec<Ptr<u32>> = (0..5u32)
        .map(|k| heap.alloc_slice(&[k, 2 * k, 3 * k, 1]).unwrap())
        .collect();
    let starts = f.device.buffer(&rows).unwrap();
    let sink = f.device.buffer(&[POISON; 5]).unwrap();
    let launch = kernel
        .launch()
        .buffer("sink", &sink)
        .buffer("starts", &starts);
    let mut launch = launch.invocations(5);
    launch.submit().unwrap().wait().unwrap();
    let expected: Vec<u32> = (0..5).map(|k| (6 * k + 1) * 100 + k + 1).collect();
    assert_eq!(sink.read().unwrap(), expected);
}

fn arguments_that_are_no_spans_are_refused(_: &Fixture) {
    for (argument, found) in [
        (
            "&floats",
            "a pointer to `array<f32, 4>` in the function space",
        ),
        ("&own", "a pointer to `array<u32, 3>` in the private space"),
        ("&lone", "a pointer to `u32` in the function space"),
        ("&sink", "a pointer to `array<u32>` in the storage space"),
    ] {
        let source = format!(
            "@group(0) @binding(0) var<storage, read_write> sink: array<u32>;
            var<private> own: array<u32, 3>;
            fn sum(values: ptr<function, array<u32>>) -> u32 {{ return values[0]; }}
            @compute @workgroup_size(1) fn main() {{
                var floats: array<f32, 4>;
                var lone = 1u;
                sink[0] = sum({argument}) + lone + own[0] + u32(floats[0]);
            }}"
        );
        match Program::new("spans.wgsl", source) {
            Err(KernelError::Type(diagnostic)) => {
                assert_eq!(diagnostic.line, 7, "{diagnostic}");
                assert!(diagnostic.message.contains(found), "{diagnostic}");
                assert!(
                    diagnostic.message.contains("argument 1 of `sum`"),
                    "{diagnostic}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// With the line, the index and the length of what the helper was given, whatever it was; unchecked, the last element is meant.
fn indices_beyond_a_span_fail_a_checked_launch(f: &Fixture) {
    let source = "
        override N: u32;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @group(0) @binding(1) var<uniform> at: vec2<u32>;
        var<private> kept: array<u32, 5>;
        var<workgroup> words: array<u32, 6>;
        fn read(values: ptr<function, array<u32>>, at: u32) -> u32 {
            return values[at];
        }
        fn passed_on(values: ptr<function, array<u32>>, at: u32) -> u32 { return read(values, at) + 1u; }
        fn write(values: ptr<private, array<u32>>, at: i32) {
            (*values)[at] = 9u;
        }
        fn of_group(values: ptr<workgroup, array<u32>>, at: u32) -> u32 {
            return values[at] + arrayLength(values);
        }
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var three = array(1u, 2u, 3u);
            var sized: array<u32, N>;
            sized[N - 1u] = 4u;
            var found = 0u;
            switch at.x {
                case 0u: { found = read(&three, at.y); }
                case 1u: { found = passed_on(&sized, at.y); }
                case 2u: { write(&kept, i32(at.y)); found = kept[4]; }
                default: { found = of_group(&words, at.y); }
            }
            sink[id.x] = found;
        }";
    let program = Program::new("spans.wgsl", source).unwrap();
    let constants = Constants::new().set("N", 8u32);
    for (checked, spill) in [
        (false, SpillPolicy::Never),
        (true, SpillPolicy::Never),
        (true, SpillPolicy::Always),
    ] {
        let mut options = KernelOptions::default();
        options.checked_pointers = Some(checked);
        options.spill = Some(spill);
        let kernel = f.device.kernel_with(&program, "main", &constants, options);
        let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
        // What is asked for, the line, the length, and what is found at the end and beyond it.
        for (what, line, length, last) in
            [(0u32, 8, 3, 3), (1, 8, 8, 5), (2, 12, 5, 9), (3, 15, 6, 6)]
        {
            for index in [length - 1, length, length + 1000, u32::MAX] {
                let sink = f.device.buffer(&[POISON]).unwrap();
                let launch = kernel.launch().buffer("sink", &sink);
                let mut launch = launch.value("at", &[what, index]).workgroups(1);
                let ended = launch.submit().unwrap().wait();
                if !checked || index < length {
                    ended.unwrap();
                    let found = sink.read().unwrap()[0];
                    assert_eq!(found, last, "{what} at {index}");
                    continue;
                }
                let error = ended.unwrap_err();
                let tombolo::device::WaitError::Failed(error) = error else {
                    panic!("{error}");
                };
                let ExecutionError::SpanIndex {
                    line: at,
                    index: found,
                    length: known,
                    ..
                } = &*error
                else {
                    panic!("{error}");
                };
                assert_eq!((*at, *found, *known), (line, index, length), "{error}");
                assert!(error.to_string().contains("spans.wgsl"), "{error}");
            }
        }
    }
}
