//! Private arrays that are sized when the program runs.

use crate::cases;
use crate::harness::Fixture;
use crate::kernels::{MEDIAN, medians, noise, run};
use tombolo::kernel::{KernelError, KernelOptions, SpillPolicy};
use tombolo::{Constants, DeviceBuffer, Kernel, Program, device::Aspect};

cases![
    private_arrays_of_every_length,
    private_arrays_of_one_device_at_once,
    private_arrays_in_structs_nested_and_by_pointer,
    private_arrays_in_private_space,
    private_arrays_sized_by_bool_and_derived_constants,
    aligned_private_arrays,
    pointers_to_parts_are_passed_to_functions,
    impossible_private_arrays_are_refused,
];

fn median_kernel(f: &Fixture, n: Option<u32>) -> Kernel {
    let program = Program::new("median.wgsl", MEDIAN).unwrap();
    let constants = match n {
        Some(n) => Constants::new().set("N", n),
        None => Constants::new(),
    };
    f.device.kernel(&program, "main", &constants).unwrap()
}

fn private_arrays_of_every_length(f: &Fixture) {
    assert!(f.device.has(Aspect::PrivateAlloca));
    for n in [None, Some(1), Some(3), Some(8), Some(31)] {
        let length = n.unwrap_or(5) as usize;
        let source = noise(100 + length - 1);
        let input = f.device.buffer(&source).unwrap();
        let output = f.device.buffer(&[u32::MAX; 100]).unwrap();
        let kernel = median_kernel(f, n);
        assert_eq!(kernel.private_arrays()[0].bytes, 4 * length as u64);
        kernel
            .launch()
            .buffer("source", &input)
            .buffer("sink", &output)
            .invocations(100)
            .submit()
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(output.read().unwrap(), medians(&source, length));
    }
}

fn private_arrays_of_one_device_at_once(f: &Fixture) {
    // Several specializations in one batch must not get in each other's way.
    let source = noise(140);
    let input = f.device.buffer(&source).unwrap();
    let outputs: Vec<(usize, DeviceBuffer<u32>)> = (1..=9)
        .map(|n| (n, f.device.zeroed(100).unwrap()))
        .collect();
    for (n, output) in &outputs {
        median_kernel(f, Some(*n as u32))
            .launch()
            .buffer("source", &input)
            .buffer("sink", output)
            .invocations(100)
            .submit()
            .unwrap();
    }
    for (n, output) in &outputs {
        assert_eq!(output.read().unwrap(), medians(&source, *n)[..100]);
    }
}

fn private_arrays_in_structs_nested_and_by_pointer(f: &Fixture) {
    let source = "
        override N: u32;
        override M: u32 = N * 2u;
        struct Pair { keys: array<u32, N>, values: array<array<u32, 3>, M> }
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        fn fill(p: ptr<function, array<u32, N>>, seed: u32) {
            for (var i = 0u; i < N; i++) { (*p)[i] = seed + i; }
        }
        fn total(p: ptr<function, array<u32, N>>) -> u32 {
            var sum = 0u;
            for (var i = 0u; i < N; i++) { sum += (*p)[i]; }
            return sum;
        }
        @compute @workgroup_size(1) fn main() {
            var pair = Pair();
            var row = array<u32, N>();
            fill(&row, 100u);
            pair.keys = row;
            for (var i = 0u; i < M; i++) { pair.values[i][i % 3u] = i; }
            sink[0] = total(&row);
            var copy = pair.keys;
            copy[0] += 1u;
            sink[1] = total(&copy);
            var sum = 0u;
            for (var i = 0u; i < M; i++) { for (var k = 0u; k < 3u; k++) { sum += pair.values[i][k]; } }
            sink[2] = sum;
            sink[3] = N * 1000u + M;
        }";
    for n in [1u32, 4, 7] {
        let total: u32 = (0..n).map(|i| 100 + i).sum();
        let expected = [total, total + 1, (0..2 * n).sum(), n * 1000 + 2 * n];
        assert_eq!(
            run(f, source, &Constants::new().set("N", n), 4),
            expected,
            "N = {n}"
        );
    }
}

fn private_arrays_in_private_space(f: &Fixture) {
    let source = "
        override N: i32 = 3;
        var<private> a: array<f32, N>;
        var<private> b: array<u32, N + 2>;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() {
            for (var i = 0; i < N; i++) { a[i] = f32(i) * 0.5; }
            for (var i = 0; i < N + 2; i++) { b[i] = u32(i * i); }
            var x = 0.0;
            for (var i = 0; i < N; i++) { x += a[i]; }
            sink[0] = u32(x * 2.0);
            sink[1] = b[N + 1];
        }";
    assert_eq!(run(f, source, &Constants::new(), 2), [3, 16]);
    let nine = Constants::new().set("N", 9i32);
    assert_eq!(run(f, source, &nine, 2), [36, 100]);
}

fn private_arrays_sized_by_bool_and_derived_constants(f: &Fixture) {
    let source = "
        override B: bool = true;
        override BIG: bool = false;
        const SIZE = select(2u, 6u, BIG);
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() {
            var one: array<u32, B>;
            var some: array<u32, SIZE>;
            one[0] = 7u;
            for (var i = 0u; i < SIZE; i++) { some[i] = i + 1u; }
            var sum = one[0];
            for (var i = 0u; i < SIZE; i++) { sum += some[i]; }
            sink[0] = sum;
        }";
    assert_eq!(run(f, source, &Constants::new(), 1), [10]);
    assert_eq!(
        run(f, source, &Constants::new().set("BIG", true), 1),
        [7 + 21]
    );
}

fn aligned_private_arrays(f: &Fixture) {
    let source = "
        override N: u32 = 3;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() {
            @align(64) var tmp: array<u32, N>;
            for (var i = 0u; i < N; i++) { tmp[i] = i * 3u; }
            sink[0] = tmp[N - 1u];
        }";
    let program = Program::new("aligned.wgsl", source).unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new().set("N", 5u32))
        .unwrap();
    let array = &kernel.private_arrays()[0];
    assert_eq!((array.align, array.bytes, array.length), (64, 64, 5));
    assert_eq!(run(f, source, &Constants::new(), 1), [6]);
    for bad in ["0", "6", "268435456"] {
        let source = source.replace("64", bad);
        let error = Program::new("aligned.wgsl", source)
            .and_then(|p| f.device.kernel(&p, "main", &Constants::new()))
            .unwrap_err();
        assert!(
            matches!(error, KernelError::PrivateAlignment { .. }),
            "{bad}: {error}"
        );
    }
}

fn impossible_private_arrays_are_refused(f: &Fixture) {
    let program = Program::new("median.wgsl", MEDIAN).unwrap();
    let device = f.open(|options| options.spill = SpillPolicy::Never);
    let refuse = |n: u32| {
        device
            .kernel(&program, "main", &Constants::new().set("N", n))
            .unwrap_err()
    };
    match refuse(0) {
        KernelError::PrivateArrayLength {
            array,
            length,
            diagnostic,
            ..
        } => {
            assert_eq!((array.as_str(), length), ("window", Some(0)));
            assert_eq!(diagnostic.line, 7);
        }
        other => panic!("{other}"),
    }
    let limit = u64::from(f.device.capabilities().private_memory_bytes);
    let over = (limit / 4 + 1) as u32;
    match refuse(over) {
        KernelError::PrivateArrayTooLarge {
            array,
            bytes,
            limit: told,
            ..
        } => {
            assert_eq!(array, "window");
            assert_eq!((bytes, told), (u64::from(over) * 4, limit));
        }
        other => panic!("{other}"),
    }
    let text = refuse(over).to_string();
    for part in [
        "window",
        &(u64::from(over) * 4).to_string(),
        &limit.to_string(),
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The limit is the device's, and can be set.
    let small = f.open(|options| {
        options.private_memory_bytes = Some(64);
        options.spill = SpillPolicy::Never;
    });
    let constants = Constants::new().set("N", 17u32);
    assert!(small.kernel(&program, "main", &constants).is_err());
    let constants = Constants::new().set("N", 16u32);
    assert!(small.kernel(&program, "main", &constants).is_ok());
}

/// Elements and members, in both spaces, through functions that pass them on, spilled and not.
fn pointers_to_parts_are_passed_to_functions(f: &Fixture) {
    const SOURCE: &str = "
        override N: u32 = 5;
        struct Pair { x: u32, rows: array<vec2<u32>, N> }
        @group(0) @binding(0) var<storage, read_write> o: array<u32>;
        var<private> own: array<array<u32, 3>, 2>;
        fn grow(p: ptr<function, u32>, by: u32) -> u32 { let old = *p; *p = old * 2u + by; return old; }
        fn take(p: ptr<function, vec2<u32>>, q: ptr<function, u32>) { (*p).y += *q; *q = (*p).x; }
        fn row(p: ptr<private, array<u32, 3>>, k: u32) { cell(&(*p)[k % 3u]); cell(&(*p)[2]); }
        fn cell(p: ptr<private, u32>) { *p += 1u; }
        fn middle(p: ptr<function, array<u32, N>>, k: u32) -> u32 { return grow(&(*p)[k % N], k); }
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let k = id.x;
            var pair: Pair;
            var words: array<u32, N>;
            var sum = grow(&pair.x, k);
            for (var i = 0u; i < N; i++) {
                pair.rows[i] = vec2(i, k);
                let word = &words[i];
                sum = sum * 3u + grow(word, i) + grow(word, k);
                if i % 2u == 0u { take(&pair.rows[i], &words[(i + k) % N]); }
                row(&own[i % 2u], k);
            }
            sum = sum * 3u + middle(&words, k);
            for (var i = 0u; i < N; i++) { sum = sum * 3u + words[i] + pair.rows[i].y; }
            for (var i = 0u; i < 3u; i++) { sum = sum * 3u + own[0][i] + own[1][i] * 5u; }
            o[k] = sum + pair.x;
        }";
    let expected = |k: u32| {
        let n = 5;
        let grow = |word: &mut u32, by: u32| {
            let old = *word;
            *word = old * 2 + by;
            old
        };
        let (mut x, mut rows, mut words) = (0, [[0u32; 2]; 5], [0u32; 5]);
        let mut own = [[0u32; 3]; 2];
        let mut sum = grow(&mut x, k);
        for i in 0..n {
            rows[i] = [i as u32, k];
            let word = &mut words[i];
            sum = sum * 3 + grow(word, i as u32) + grow(word, k);
            if i % 2 == 0 {
                let other = (i + k as usize) % n;
                rows[i][1] += words[other];
                words[other] = rows[i][0];
            }
            own[i % 2][k as usize % 3] += 1;
            own[i % 2][2] += 1;
        }
        sum = sum * 3 + grow(&mut words[k as usize % n], k);
        sum = (0..n).fold(sum, |sum, i| sum * 3 + words[i] + rows[i][1]);
        (0..3).fold(sum, |sum, i| sum * 3 + own[0][i] + own[1][i] * 5) + x
    };
    let program = Program::new("parts.wgsl", SOURCE).unwrap();
    for policy in [SpillPolicy::Never, SpillPolicy::Always] {
        let mut options = KernelOptions::default();
        options.spill = Some(policy);
        let kernel = (f.device)
            .kernel_with(&program, "main", &Constants::new(), options)
            .unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        let o = f.device.buffer(&[u32::MAX; 16]).unwrap();
        let launch = kernel.launch().buffer("o", &o).invocations(16).submit();
        launch.unwrap().wait().unwrap();
        let expected: Vec<u32> = (0..16).map(expected).collect();
        assert_eq!(o.read().unwrap(), expected, "{policy:?}");
    }
}
