//! Atomics behind pointers: every function, of one invocation and of many, against a computation by Rust.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{Constants, Program, kernel::KernelError};

cases![
    atomics_of_one_invocation,
    atomics_of_many_invocations,
    minima_of_both_kinds_are_refused,
];

/// Every atomic built-in of WGSL on words `at` of `T`, with what each returns.
fn every_atomic(scalar: &str) -> String {
    let one = |text: &str| text.replace("#", if scalar == "i32" { "i" } else { "u" });
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
        "atomicAdd(&c.cells[0], 1000000000#)",
        "atomicSub(&c.cells[1], 7#)",
        "atomicMax(&c.cells[k], 5#)",
        "atomicMin(&c.cells[3], 5#)",
        "atomicAnd(&c.cells[4], 0xff00#)",
        "atomicOr(&c.cells[5], 0xf0f0#)",
        "atomicXor(&c.cells[k + 4u], 0xffff#)",
        "atomicExchange(&c.cells[7], 77#)",
        "atomicLoad(&c.cells[8])",
    ]
    .iter()
    .enumerate()
    {
        text += &one(&format!("r[{i}] = {line};\n"));
    }
    text += &one("
            atomicStore(&c.cells[9], 99#);
            // One that holds, one that does not; the weak one may fail without cause, and is tried again.
            var turns = 0u;
            var x = atomicCompareExchangeWeak(&c.cells[10], 10#, 1010#);
            while !x.exchanged && x.old_value == 10# && turns < 1000u {
                x = atomicCompareExchangeWeak(&c.cells[10], 10#, 1010#);
                turns += 1u;
            }
            r[9] = x.old_value;
            r[10] = select(0#, 1#, x.exchanged);
            let y = atomicCompareExchangeWeak(&c.cells[11], 12#, 1111#);
            r[11] = y.old_value;
            r[12] = select(0#, 1#, y.exchanged);
            // The largest and the smallest.
            r[13] = atomicMax(&c.cells[12], 1#);
            r[14] = atomicMin(&c.cells[13], 1#);
            c.after = c.before + 1u;
        }");
    text
}

fn atomics_of_one_invocation(f: &Fixture) {
    for (unified, checked) in [(None, false), (None, true), (Some(false), true)] {
        let device = f.open(|options| {
            options.unified_memory = unified;
            options.checked_pointers = checked;
        });
        let heap = device.heap().unwrap();
        for signed in [false, true] {
            let scalar = if signed { "i32" } else { "u32" };
            // The high bit tells signed from unsigned.
            let mut cells: Vec<u32> = (0..18).map(|i| 0xffff_0000 + i).collect();
            cells[0] = 41;
            cells[11] = 10;
            cells[12] = 11;
            let mut expected = cells.clone();
            let mut results = vec![0xaaaa_aaaa_u32; 16];
            let less = |a: u32, b: u32| match signed {
                true => (a as i32) < b as i32,
                false => a < b,
            };
            let lesser = |a, b| if less(a, b) { a } else { b };
            let greater = |a, b| if less(a, b) { b } else { a };
            let mut step = |result: usize, cell: usize, f: &dyn Fn(u32) -> u32| {
                results[result] = expected[1 + cell];
                expected[1 + cell] = f(expected[1 + cell]);
            };
            step(0, 0, &|x| x.wrapping_add(1_000_000_000));
            step(1, 1, &|x| x.wrapping_sub(7));
            step(2, 2, &|x| greater(x, 5));
            step(3, 3, &|x| lesser(x, 5));
            step(4, 4, &|x| x & 0xff00);
            step(5, 5, &|x| x | 0xf0f0);
            step(6, 6, &|x| x ^ 0xffff);
            step(7, 7, &|_| 77);
            step(8, 8, &|x| x);
            step(9, 10, &|_| 1010);
            step(11, 11, &|x| x);
            step(13, 12, &|x| greater(x, 1));
            step(14, 13, &|x| lesser(x, 1));
            results[10] = 1;
            results[12] = 0;
            expected[1 + 9] = 99;
            expected[17] = 42;
            let at = heap.alloc_slice(&cells).unwrap();
            let to = heap.alloc_slice(&[0xaaaa_aaaa_u32; 16]).unwrap();
            // In memory of the device's own, too, where that is apart.
            let own = device.malloc::<u32>(18).unwrap();
            let text = every_atomic(scalar);
            let program = Program::new("atomics.wgsl", &*text).unwrap_or_else(|e| panic!("{e}"));
            let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
            for place in [at, own] {
                if place == own {
                    heap.write(at, &cells).unwrap();
                    heap.fill(to, 0xaaaa_aaaa, 16).unwrap();
                    device.heap_copy(at, own, 18).unwrap();
                }
                kernel
                    .launch()
                    .value("cells", &place)
                    .value("results", &to)
                    .value("k", &2u32)
                    .workgroups(1)
                    .submit()
                    .unwrap();
                device
                    .heap_copy(place, at.add(0), if place == at { 0 } else { 18 })
                    .unwrap();
                assert_eq!(
                    heap.read(at, 18).unwrap(),
                    expected,
                    "{scalar} {unified:?} {checked}"
                );
                assert_eq!(
                    heap.read(to, 16).unwrap(),
                    results,
                    "{scalar} {unified:?} {checked}"
                );
            }
            heap.free(at).unwrap();
            heap.free(to).unwrap();
            device.free(own).unwrap();
        }
    }
}

fn atomics_of_many_invocations(f: &Fixture) {
    // 4,096 invocations on a handful of words; what order they come in makes no difference.
    const N: u32 = 4096;
    let run = |scalar: &str, body: &str, cells: &[u32]| {
        let heap = f.context.heap().unwrap();
        let text = format!(
            "alias Cells = array<atomic<{scalar}>>;
            @group(0) @binding(0) var<uniform> cells: usm_ptr;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                let n = {scalar}(id.x);
                let c = usm_Cells(cells);
                {body}
            }}"
        );
        let at = heap.alloc_slice(cells).unwrap();
        let program = Program::new("atomics.wgsl", text).unwrap_or_else(|e| panic!("{e}"));
        let kernel = f
            .device
            .kernel(&program, "main", &Constants::new())
            .unwrap();
        let mut launch = kernel.launch().value("cells", &at).invocations(N);
        launch.submit().unwrap();
        let seen = heap.read(at, cells.len()).unwrap();
        heap.free(at).unwrap();
        seen
    };
    let sum = (0..N).sum::<u32>();
    let all_ones = u32::MAX;
    assert_eq!(
        run(
            "u32",
            "atomicAdd(&c[0], n); atomicSub(&c[1], n); atomicMax(&c[2], n * 3u); atomicMin(&c[3], n + 9u);
             atomicAnd(&c[4], ~(1u << (n % 31u))); atomicOr(&c[5], 1u << (n % 31u)); atomicXor(&c[6], n);
             var old = atomicLoad(&c[7]);
             for (var i = 0u; i < 100000u; i++) {
                let x = atomicCompareExchangeWeak(&c[7], old, old * 3u + 1u);
                if x.exchanged { break; }
                old = x.old_value;
             }
             if atomicExchange(&c[8], 1u) == 0u { atomicAdd(&c[9], 1u); }",
            &[5, 5, 0, all_ones, all_ones, 0, 0, 1, 0, 0, 123],
        ),
        [
            5 + sum,
            5u32.wrapping_sub(sum),
            (N - 1) * 3,
            9,
            1 << 31,
            all_ones >> 1,
            (0..N).fold(0, |x, n| x ^ n),
            (0..N).fold(1u32, |x, _| x.wrapping_mul(3).wrapping_add(1)),
            1,
            1,
            123,
        ]
    );
    let minus = |x: u32| 0u32.wrapping_sub(x);
    assert_eq!(
        run(
            "i32",
            "atomicMax(&c[0], n - 4000); atomicMin(&c[1], 10 - n); atomicAdd(&c[2], -n); atomicSub(&c[3], -n);",
            &[minus(5000), 20, 0, 0, 7],
        ),
        [95, 10u32.wrapping_sub(N - 1), minus(sum), sum, 7]
    );
}

fn minima_of_both_kinds_are_refused(f: &Fixture) {
    let source = |signed: &str, unsigned: &str| {
        format!(
            "struct Cells {{ a: atomic<i32>, b: atomic<u32> }}
            @group(0) @binding(0) var<uniform> cells: usm_ptr;
            @compute @workgroup_size(1) fn main() {{
                let c = usm_Cells(cells);
                {signed}(&c.a, -3);
                {unsigned}(&c.b, 4u);
            }}"
        )
    };
    let heap = f.context.heap().unwrap();
    for (signed, unsigned, result) in [
        ("atomicMin", "atomicAdd", Some([-3i32, 4])),
        ("atomicAdd", "atomicMax", Some([-3, 4])),
        ("atomicMin", "atomicMax", None),
    ] {
        let program = Program::new("mixed.wgsl", source(signed, unsigned));
        let kernel = match program {
            Err(error) => Err(error),
            Ok(program) => f.device.kernel(&program, "main", &Constants::new()),
        };
        match (kernel, result) {
            (Ok(kernel), Some(result)) => {
                let cells = heap.alloc([0i32; 2]).unwrap();
                let mut launch = kernel.launch().value("cells", &cells).workgroups(1);
                launch.submit().unwrap();
                assert_eq!(
                    heap.read(cells, 1).unwrap(),
                    [result],
                    "{signed} {unsigned}"
                );
                heap.free(cells).unwrap();
            }
            (Err(error), None) => {
                assert!(matches!(error, KernelError::Pointer(_)), "{error}");
                assert!(
                    error.to_string().contains("atomicCompareExchangeWeak"),
                    "{error}"
                );
            }
            (Ok(_), None) => panic!("minima of both kinds were taken"),
            (Err(error), Some(_)) => panic!("{error}"),
        }
    }
}
