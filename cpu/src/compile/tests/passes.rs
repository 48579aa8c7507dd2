//! The effect of the passes on programs.

use super::{lowered, optimized, run};
use crate::compile::{
    ir::{Combine, Comparison, Op, Program, Reduction, Statement, visit},
    passes::{
        live,
        trips::{self, Poll},
        uniform::{self, Shape},
    },
};

fn count(program: &Program, mut f: impl FnMut(&Statement) -> bool) -> usize {
    let mut count = 0;
    visit::statements(&program.body, &mut |statement| {
        count += usize::from(f(statement))
    });
    count
}

fn kernel(body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(1) fn main() {{ {body} }}"
    )
}

#[test]
fn short_loops_over_private_arrays_leave_no_memory_and_no_loop() {
    let program = optimized(&kernel(
        "var a: array<u32, 9>;
         for (var i = 0u; i < 9u; i++) { a[i] = out[i]; }
         for (var i = 0; i < 8; i++) { for (var j = 0; j < 8 - i; j++) {
             let low = min(a[j], a[j + 1]); a[j + 1] = max(a[j], a[j + 1]); a[j] = low; } }
         out[0] = a[4];",
    ));
    assert_eq!(
        count(&program, |s| matches!(s, Statement::Loop { .. })),
        0,
        "{program}"
    );
    assert!(program.slots.values().all(|&bytes| bytes == 0), "{program}");
    let mut words: Vec<u32> = vec![5, 3, 9, 1, 7, 2, 8, 6, 4];
    run(&program, &mut [bytemuck::cast_slice_mut(&mut words)]);
    assert_eq!(words[0], 5);
}

/// A loop of 40 passes, with some 1,500 statements in all, is written out only if writing out makes registers of the array.
#[test]
fn long_loops_over_arrays_that_stay_memory_are_not_written_out() {
    let step = "x = (x * 3u) ^ (x >> 1u);".repeat(10);
    let fill = format!(
        "var a: array<u32, 40>;
         for (var i = 0u; i < 40u; i++) {{ var x = out[i]; {step} a[i] = x; }}"
    );
    let loops = |program: &Program| count(program, |s| matches!(s, Statement::Loop { .. }));
    let registers = optimized(&kernel(&format!("{fill} out[0] = a[7] + a[39];")));
    assert_eq!(loops(&registers), 0, "{registers}");
    let memory = optimized(&kernel(&format!(
        "{fill} for (var k = 41u; k < out[40]; k++) {{ a[out[k] % 40u] += k; }} out[0] = a[7] + a[39];"
    )));
    assert_eq!(loops(&memory), 2, "{memory}");
    let given: Vec<u32> = (0..40).map(|i| i * 77 + 5).chain([44, 7, 39, 7]).collect();
    let filled = |i: usize| (0..10).fold(given[i], |x, _| x.wrapping_mul(3) ^ (x >> 1));
    let sum = filled(7).wrapping_add(filled(39));
    for (program, expected) in [(registers, sum), (memory, sum.wrapping_add(41 + 42 + 43))] {
        let mut words = given.clone();
        words.push(0);
        run(&program, &mut [bytemuck::cast_slice_mut(&mut words)]);
        assert_eq!(words[0], expected, "{program}");
    }
}

#[test]
fn what_is_known_is_not_computed() {
    let program = optimized(&kernel(
        "var x = 3u; var y = x * 2u;
         if (y == 6u) { y += 4u; } else { y = out[7]; }
         switch y { case 10u: { x = y; } default: { x = out[8]; } }
         out[0] = x + y;",
    ));
    assert_eq!(program.body.len(), 1, "{program}");
    let mut words = [0u32];
    run(&program, &mut [bytemuck::cast_slice_mut(&mut words)]);
    assert_eq!(words, [20]);
}

#[test]
fn short_branches_become_selections() {
    let program = optimized(&kernel(
        "let a = out[0]; let b = out[1];
         var x = 5u; var y = 0u;
         if (a > 3u && a < 9u || b == 2u) { x = a + 1u; y = x; } else { y = x ^ b; }
         out[2] = x; out[3] = y;",
    ));
    let branches = count(&program, |s| matches!(s, Statement::If { .. }));
    assert_eq!(branches, 0, "{program}");
    for (a, b, x, y) in [(4, 0, 5, 5), (9, 2, 10, 10), (9, 3, 5, 6), (3, 7, 5, 2)] {
        let mut words: Vec<u32> = vec![a, b, 0, 0];
        run(&program, &mut [bytemuck::cast_slice_mut(&mut words)]);
        assert_eq!(words[2..], [x, y]);
    }
}

#[test]
fn counters_of_loops_that_lanes_leave_apart_are_the_same_for_all() {
    let program = optimized(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
             var x = out[i]; var k = 0u;
             while (k < 90u && x != 1u) { x = x * 5u + 1u; k++; }
             out[i] = k;
         }",
    );
    let lives = live::lives(&program);
    let uniformity = uniform::analyze(&program, &lives, 8);
    let mut tests = 0;
    visit::statements(&program.body, &mut |statement| {
        if let Statement::Let(value) = statement
            && let Op::Compare(Comparison::LtU, a, _) = program.values[*value].op
        {
            tests += 1;
            assert_eq!(uniformity.value(&program, a), Shape::Uniform, "{program}");
        }
    });
    assert_eq!(tests, 1, "{program}");
}

#[test]
fn functions_that_return_once_leave_no_scope() {
    let source = "fn f(x: u32) -> u32 { let y = x * 3u; return y + 1u; }\n".to_owned()
        + &kernel("out[0] = f(out[1]) + f(out[2]);");
    let program = optimized(&source);
    assert_eq!(
        count(&program, |s| matches!(s, Statement::Scope { .. })),
        0,
        "{program}"
    );
}

#[test]
fn values_cross_barriers_in_variables_only() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<workgroup> shared_word: u32;
        @compute @workgroup_size(4) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(global_invocation_id) id: vec3<u32>
        ) {
            let kept = out[i] * 3u;
            if (i == 0u) { shared_word = kept; }
            workgroupBarrier();
            out[id.x] = kept + shared_word;
        }";
    let program = optimized(source);
    // Behind the barrier, the index is computed again, and the value is read from a variable.
    let barrier = program
        .body
        .iter()
        .position(|s| matches!(s, Statement::Barrier(_)))
        .unwrap();
    let behind = &program.body[barrier + 1..];
    let gets = |s: &Statement| matches!(s, Statement::Let(v) if matches!(program.values[*v].op, Op::Get(_)));
    assert_eq!(behind.iter().filter(|s| gets(s)).count(), 1, "{program}");
    let mut words = [1u32, 2, 3, 4];
    run(&program, &mut [bytemuck::cast_slice_mut(&mut words)]);
    assert_eq!(words, [6, 9, 12, 15]);
}

#[test]
fn loops_poll_unless_they_are_known_to_be_short() {
    for (body, polls) in [
        ("for (var i = 0u; i < 200u; i++) { out[i] = i; }", 0),
        ("for (var i = 0; i <= 1000; i += 3) { out[i] = 1u; }", 0),
        ("for (var i = 1000; i > 0; i--) { out[i] = 1u; }", 0),
        ("for (var i = 0; i != 300; i++) { out[i] = 1u; }", 0),
        ("for (var i = 0u; i < out[0]; i++) { out[i] = i; }", 1),
        (
            "for (var i = 0u; i < 1000u; i++) { for (var j = 0u; j < 200u; j++) { out[j] = i; } }",
            0,
        ),
        (
            "for (var i = 0u; i < 9000u; i++) { for (var j = 0u; j < 2000u; j++) { out[j] = i; } }",
            1,
        ),
        ("loop { if (out[0] == 1u) { break; } }", 1),
        (
            "var i = 0u; loop { if (i >= 500u) { break; } i += out[2]; }",
            1,
        ),
        (
            "var i = 0u; while (i < 500u) { i++; if (out[i] == 2u) { continue; } out[i] = 1u; }",
            1,
        ),
        ("for (var i = 0u; i < 500u; i++) { i -= out[1]; }", 1),
        (
            "for (var i = 4294967290u; i <= 4294967295u; i++) { out[0] = i; }",
            1,
        ),
        ("for (var i = 0; i < 500; i--) { out[0] = 1u; }", 1),
        ("var i = 0u; while (i < 500u) { out[i] = i; i++; }", 0),
        (
            "let a = out[0]; var i = 0u; while (i < 500u && i != a) { out[i] = i; i++; }",
            0,
        ),
        (
            "let a = out[0]; for (var i = 0u; ; i++) { if (a == i || i >= 9u) { break; } out[i] = i; }",
            0,
        ),
        (
            "let a = out[0]; for (var i = 0u; i < 500u || i != a; i++) { out[i] = i; }",
            1,
        ),
        (
            "for (var i = 0; i - 2000000000 < 10; i++) { out[0] = 1u; }",
            1,
        ),
        ("for (var i = 0; i != 301; i += 2) { out[0] = 1u; }", 1),
        // The way out leads back into the loop.
        (
            "for (var i = 0u; ; i++) { if (i >= 10u) { if (out[0] == 1u) { continue; } break; } out[i] = i; }",
            1,
        ),
        // The tested value is two further, and never 1.
        (
            "var i = 0u; loop { out[3] = i; i += 1u; continuing { break if i + 1u == 1u; } }",
            1,
        ),
        (
            "let a = out[0]; for (var i = 4000000000u; i > 0u && i != a; i >>= 1u) { out[0] = i; }",
            0,
        ),
        (
            "let a = out[0]; for (var i = 4000000000u; i != 0u && i != a; i /= 3u) { out[0] = i; }",
            0,
        ),
        (
            "let a = out[0]; for (var i = 4000000000u; i != 1u && i != a; i >>= 1u) { out[0] = i; }",
            1,
        ),
        (
            "let a = out[0]; for (var i = -8; i != 0 && i != i32(a); i >>= 1u) { out[0] = 1u; }",
            1,
        ),
    ] {
        let program = optimized(&kernel(body));
        assert_eq!(trips::polling(&program).len(), polls, "{body}\n{program}");
    }
}

/// Any number of 32 bits halves 32 times at most, and a last pass finds nothing left.
#[test]
fn loops_that_halve_what_nobody_knows_do_not_poll() {
    for (body, polls) in [
        ("for (var i = out[0]; i > 0u; i >>= 1u) { out[i] = i; }", 0),
        ("for (var i = out[0]; i != 0u; i /= 2u) { out[i] = i; }", 0),
        (
            "var i = out[0]; loop { i /= 7u; if (i == 0u) { break; } out[i] = i; }",
            0,
        ),
        (
            "var i = out[0]; while (3u < i) { out[i] = i; i = i >> 31u; }",
            0,
        ),
        // Towards zero: from either side, zero is left.
        (
            "for (var i = i32(out[0]); i > 0; i /= 2) { out[i] = 1u; }",
            0,
        ),
        (
            "for (var i = i32(out[0]); i != 0; i /= -2) { out[0] = 1u; }",
            0,
        ),
        (
            "for (var i = i32(out[0]); i < 0; i /= 2) { out[0] = 1u; }",
            0,
        ),
        // Rounded down: a negative number ends as -1.
        (
            "for (var i = i32(out[0]); i > 0; i >>= 1u) { out[i] = 1u; }",
            0,
        ),
        (
            "for (var i = i32(out[0]); i < -1; i >>= 1u) { out[0] = 1u; }",
            0,
        ),
        (
            "for (var i = i32(out[0]); i != 0; i >>= 1u) { out[0] = 1u; }",
            1,
        ),
        (
            "for (var i = i32(out[0]); i < 0; i >>= 1u) { out[0] = 1u; }",
            1,
        ),
        (
            "for (var i = i32(out[0]); i > -1; i /= 2) { out[0] = 1u; }",
            1,
        ),
        ("for (var i = out[0]; i != 1u; i >>= 1u) { out[0] = i; }", 1),
        ("for (var i = out[0]; i >= 0u; i /= 2u) { out[0] = i; }", 1),
        // Values that do not become less.
        (
            "for (var i = out[0]; i > 0u; i >>= out[1]) { out[i] = i; }",
            1,
        ),
        (
            "for (var i = out[0]; i > 0u; i >>= 32u + out[1]) { out[i] = i; }",
            1,
        ),
        (
            "for (var i = out[0]; i > 0u; i = out[1] >> 1u) { out[i] = i; }",
            1,
        ),
        (
            "for (var i = out[0]; i > 0u; i >>= 1u) { if (out[i] == 3u) { i = out[1]; } }",
            1,
        ),
        (
            "var i = out[0]; while (i > 0u) { if (out[i] == 3u) { continue; } out[i] = 1u; i >>= 1u; }",
            1,
        ),
    ] {
        let program = optimized(&kernel(body));
        assert_eq!(trips::polling(&program).len(), polls, "{body}\n{program}");
    }
}

/// A value read before a loop is the same in each pass, even if the loop assigns the variable.
#[test]
fn counters_that_are_read_before_a_loop_do_not_end_it() {
    // Behind a branch with a store in it nothing is known of `x`, so that `before` stays a read of the variable.
    let unknown = "var x = 0u; if (out[0] == 1u) { x = out[1]; out[5] = 1u; } let before = x;";
    for body in [
        "x = 5u; loop { if (x >= 100u) { break; } x = before + 1u; out[3] = x; }",
        "x = 0u; loop { if (before >= 100u) { break; } x += 1u; out[3] = x; }",
        "loop { if (x == 0u) { break; } x = before >> 1u; out[3] = x; }",
    ] {
        let program = optimized(&kernel(&format!("{unknown} {body}")));
        assert_eq!(trips::polling(&program).len(), 1, "{body}\n{program}");
    }
}

#[test]
fn loops_that_wait_are_told_from_loops_that_work() {
    let source = |body: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
             @group(0) @binding(1) var<storage, read_write> word: atomic<u32>;
             @compute @workgroup_size(1) fn main() {{ {body} }}"
        )
    };
    for (body, poll) in [
        ("while (atomicLoad(&word) == 0u) {}", Poll::Waits),
        (
            "var n = 0u; loop { if (atomicLoad(&word) == 5u) { out[0] = n; break; } n++; }",
            Poll::Waits,
        ),
        (
            "loop { if (atomicCompareExchangeWeak(&word, 0u, 1u).exchanged) { break; } }",
            Poll::Waits,
        ),
        ("while (atomicOr(&word, 0u) == 0u) {}", Poll::Waits),
        (
            "let wants = out[0] == 1u; var n = 0u;
             loop { if (wants) { if (atomicLoad(&word) == 0u) { continue; } break; } n++; out[0] = n; }",
            Poll::Shares,
        ),
        (
            "let wants = out[0] == 1u;
             loop { if (wants) { if (atomicLoad(&word) == 0u) { continue; } break; } if (out[1] == 1u) { break; } }",
            Poll::Waits,
        ),
        ("while (out[0] == 0u) { out[1] += 1u; }", Poll::Stop),
        (
            "loop { let i = atomicAdd(&word, 1u); if (i > 9u) { break; } out[i] = 1u; }",
            Poll::Shares,
        ),
        (
            "while (atomicLoad(&word) == 0u) { out[0] += 1u; }",
            Poll::Shares,
        ),
    ] {
        let program = optimized(&source(body));
        let polls: Vec<_> = trips::polling(&program).into_values().collect();
        assert_eq!(polls, [poll], "{body}\n{program}");
    }
}

#[test]
fn passes_keep_the_meaning_of_what_the_front_wrote() {
    let source = kernel(
        "var seed = out[0];
         var table: array<u32, 5>;
         var total = 0u;
         for (var i = 0u; i < 6u; i++) {
             seed = seed * 1664525u + 1013904223u;
             if ((seed >> 30u) == 1u) { continue; }
             table[i % 5u] += seed >> 28u;
             var k = i;
             while (k > 0u) { total ^= table[k % 5u] << k; k = k / 2u; if (total % 7u == 3u) { break; } }
             switch (seed >> 29u) {
                 case 0u, 1u: { total += 17u; }
                 case 2u: { if (i == 3u) { out[1] = total; return; } total *= 3u; }
                 default: { total -= i; }
             }
         }
         out[1] = total;",
    );
    for seed in 0..50u32 {
        let results = [lowered(&source), optimized(&source)].map(|program| {
            let mut words = [seed.wrapping_mul(0x9e37_79b9), 0];
            run(&program, &mut [bytemuck::cast_slice_mut(&mut words)]);
            words[1]
        });
        assert_eq!(results[0], results[1], "of seed {seed}");
    }
}

#[test]
fn nothing_is_added_without_instruments() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<workgroup> tile: array<u32, 8>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            tile[i] = i;
            workgroupBarrier();
            out[i] = tile[i ^ 1u];
        }";
    let calls = |program: &Program| {
        visit::any(&program.body, &mut |statement| {
            matches!(statement, Statement::Call(_))
        })
    };
    let plain = lowered(source);
    assert!(plain.sites.is_empty() && !calls(&plain));
    let instruments = crate::sanitizer::Instruments {
        checks: Some(Default::default()),
        coverage: false,
    };
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let info = naga::valid::Validator::new(Default::default(), naga::valid::Capabilities::all())
        .validate(&module)
        .unwrap();
    let checked = super::front::lower(&module, &info, 0, instruments).unwrap();
    // Two writes, a read, the barrier and the end.
    assert_eq!(checked.sites.len(), 5);
    let checked = super::all_passes::run(checked).unwrap();
    assert!(calls(&checked), "{checked}");
}

/// The reduction that each binding is used for, in the order of the bindings.
fn reductions(declarations: &str, body: &str) -> Vec<Option<(Combine, u8)>> {
    let program = optimized(&format!(
        "{declarations}
         @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}"
    ));
    let of = |reduction: Reduction| (reduction.combine, reduction.word_bytes);
    let bindings = program.bindings.values();
    bindings.map(|used| used.reduction.map(of)).collect()
}

#[test]
fn buffers_that_are_only_added_to_are_reductions() {
    let bins = "@group(0) @binding(0) var<storage, read_write> bins: array<atomic<u32>>;";
    let add = Some((Combine::Add, 4));
    let cases = [
        ("atomicAdd(&bins[i], 1u); atomicSub(&bins[i + 1], i);", add),
        (
            "if i < arrayLength(&bins) { atomicAdd(&bins[i], 1u); }",
            add,
        ),
        ("atomicOr(&bins[0], i);", Some((Combine::Or, 4))),
        ("atomicXor(&bins[0], i);", Some((Combine::Xor, 4))),
        ("atomicMax(&bins[0], i);", Some((Combine::Max, 4))),
        ("let unneeded = atomicAdd(&bins[i], 1u);", add),
        // An operation needs the old value.
        ("atomicAdd(&bins[atomicAdd(&bins[0], 1u)], 1u);", None),
        // Zero is not the start value of these operations.
        ("atomicMin(&bins[0], i);", None),
        ("atomicAnd(&bins[0], i);", None),
        // The order shows.
        ("atomicAdd(&bins[0], i); atomicMax(&bins[0], i);", None),
        ("atomicStore(&bins[0], i);", None),
        ("atomicExchange(&bins[0], i);", None),
        // Somebody looks.
        (
            "atomicAdd(&bins[0], 1u); while atomicLoad(&bins[0]) < 4u {}",
            None,
        ),
        ("_ = 1u;", None),
    ];
    for (body, expected) in cases {
        let found = reductions(bins, body);
        assert_eq!(found.first().copied().flatten(), expected, "{body}");
    }
    let wide = "@group(0) @binding(0) var<storage, read_write> sum: atomic<u64>;
        @group(0) @binding(1) var<storage, read_write> signed: atomic<i32>;
        @group(0) @binding(2) var<storage, read_write> sums: array<atomic<f32>>;
        @group(0) @binding(3) var<storage, read> by: array<u32>;";
    let body = "atomicAdd(&sum, u64(by[i])); atomicAdd(&signed, -1); atomicAdd(&sums[i], 1.0);";
    assert_eq!(
        reductions(wide, body),
        [Some((Combine::Add, 8)), add, None, None]
    );
    let signed = "atomicAdd(&sum, 1lu); atomicMax(&signed, -1); atomicAdd(&sums[i], f32(by[i]));";
    assert_eq!(reductions(wide, signed)[1], None, "signs matter");
}
