//! Control flow.

use crate::harness::Cpu;

#[test]
fn loops_with_breaks_and_continues() {
    let cpu = Cpu::new();
    let body = "
        var sum = 0u;
        for (var k = 0u; k < i; k++) {
            if (k % 3u == 1u) { continue; }
            if (k > 20u) { break; }
            var m = k;
            loop {
                if (m == 0u) { break; }
                sum += m & 1u;
                continuing { m >>= 1u; break if m == 1u; }
            }
            sum += 1000u;
        }
        out[i] = sum;";
    let expected = |i: u32| {
        let mut sum = 0;
        for k in 0..i {
            if k % 3 == 1 {
                continue;
            }
            if k > 20 {
                break;
            }
            let mut m = k;
            loop {
                if m == 0 {
                    break;
                }
                sum += m & 1;
                m >>= 1;
                if m == 1 {
                    break;
                }
            }
            sum += 1000;
        }
        sum
    };
    assert_eq!(
        cpu.map("", body, 64),
        (0..64).map(expected).collect::<Vec<u32>>()
    );
}

#[test]
fn switches() {
    let cpu = Cpu::new();
    let body = "
        var x = 0u;
        for (var k = 0u; k < 4u; k++) {
            switch (i + k) {
                case 0u, 5u: { x += 1u; }
                case 1u: { if (i == 1u) { break; } x += 10u; }
                case 2u, default: { x += 100u; }
                case 7u: { continue; }
                case 9u: { x += 5000u; out[i] = x; return; }
            }
            x += 1000u;
        }
        out[i] = x;";
    let expected = |i: u32| {
        let mut x = 0;
        for k in 0..4 {
            match i + k {
                0 | 5 => x += 1,
                1 => {
                    if i != 1 {
                        x += 10;
                    }
                }
                7 => continue,
                9 => return x + 5000,
                _ => x += 100,
            }
            x += 1000;
        }
        x
    };
    assert_eq!(
        cpu.map("", body, 20),
        (0..20).map(expected).collect::<Vec<u32>>()
    );
}

#[test]
fn functions_return_from_anywhere_and_write_through_pointers() {
    let cpu = Cpu::new();
    let declarations = "
        struct Pair { a: u32, b: array<u32, 3> }
        fn find(limit: u32, step: u32) -> u32 {
            for (var k = 0u; k < 100u; k += step) {
                if (k * k > limit) { return k; }
            }
            return 12345u;
        }
        fn bump(p: ptr<function, u32>, by: u32) -> bool { *p += by; return *p > 10u; }
        fn fill(pair: ptr<function, Pair>, from_index: u32) {
            for (var k = 0u; k < 3u; k++) { (*pair).b[k] = from_index + k; }
        }
        fn both(x: u32) -> Pair { var pair: Pair; pair.a = find(x, 1u); fill(&pair, pair.a); return pair; }";
    let body = "
        var n = i;
        let big = bump(&n, 3u) && bump(&n, 1u);
        let pair = both(i * 7u);
        out[i] = n + select(0u, 1000u, big) + 10000u * find(i, 3u) + pair.b[i % 3u];";
    let find = |limit: u32, step: usize| {
        (0..100)
            .step_by(step)
            .find(|k| k * k > limit)
            .unwrap_or(12345)
    };
    let expected = |i: u32| {
        let mut n = i + 3;
        let mut big = n > 10;
        if big {
            n += 1;
            big = n > 10;
        }
        n + u32::from(big) * 1000 + 10000 * find(i, 3) + find(i * 7, 1) + i % 3
    };
    assert_eq!(
        cpu.map(declarations, body, 50),
        (0..50).map(expected).collect::<Vec<u32>>()
    );
}

#[test]
fn private_arrays_are_indexed_at_run_time_and_sorted() {
    let cpu = Cpu::new();
    let body = "
        var values: array<u32, 25>;
        for (var k = 0u; k < 25u; k++) { values[k] = (k * 37u + i * 11u) % 101u; }
        for (var a = 0u; a < 24u; a++) {
            for (var b = 0u; b < 24u - a; b++) {
                if (values[b] > values[b + 1u]) { let t = values[b]; values[b] = values[b + 1u]; values[b + 1u] = t; }
            }
        }
        out[i] = values[12] + 1000u * values[i % 25u];";
    let expected = |i: u32| {
        let mut values: Vec<u32> = (0..25).map(|k| (k * 37 + i * 11) % 101).collect();
        values.sort_unstable();
        values[12] + 1000 * values[i as usize % 25]
    };
    assert_eq!(
        cpu.map("", body, 60),
        (0..60).map(expected).collect::<Vec<u32>>()
    );
}

#[test]
fn private_variables_of_a_module_belong_to_an_invocation() {
    let cpu = Cpu::new();
    let declarations = "
        var<private> state: u32 = 5u;
        var<private> large: array<u32, 300>;
        fn next() -> u32 { state = state * 1664525u + 1013904223u; return state >> 24u; }";
    let body = "
        state += i;
        for (var k = 0u; k < 300u; k++) { large[k] += next(); }
        var sum = 0u;
        let copy = large;
        for (var k = 0u; k < 300u; k++) { sum = sum * 31u + copy[(k * 7u) % 300u]; }
        out[i] = sum;";
    let expected = |i: u32| {
        let mut state = 5u32.wrapping_add(i);
        let mut large = vec![0u32; 300];
        for value in &mut large {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value = state >> 24;
        }
        (0..300).fold(0u32, |sum, k| {
            sum.wrapping_mul(31).wrapping_add(large[k * 7 % 300])
        })
    };
    assert_eq!(
        cpu.map(declarations, body, 70),
        (0..70).map(expected).collect::<Vec<u32>>()
    );
}

#[test]
fn loops_that_are_written_out_do_the_same() {
    let cpu = Cpu::new();
    let body = "
        var table: array<u32, 8>;
        for (var k = 0; k < 8; k++) { table[k] = i * u32(k) + 1u; }
        for (var a = 7; a > 0; a--) {
            for (var b = 0; b < a; b++) { if (table[b] % 5u > table[b + 1] % 5u) { let t = table[b]; table[b] = table[b + 1]; table[b + 1] = t; } }
        }
        var packed = 0u;
        for (var k = 0; k < 8; k++) { if (k == 6) { break; } if (k == 2) { continue; } packed = packed * 7u + table[k]; }
        out[i] = packed;";
    let expected = |i: u32| {
        let mut table: Vec<u32> = (0..8).map(|k| i * k + 1).collect();
        for a in (1..8).rev() {
            for b in 0..a {
                if table[b] % 5 > table[b + 1] % 5 {
                    table.swap(b, b + 1);
                }
            }
        }
        [0, 1, 3, 4, 5].iter().fold(0u32, |packed, &k| {
            packed.wrapping_mul(7).wrapping_add(table[k])
        })
    };
    assert_eq!(
        cpu.map("", body, 40),
        (0..40).map(expected).collect::<Vec<u32>>()
    );
}

#[test]
fn what_is_assigned_behind_a_way_out_is_not_known_behind_the_scope() {
    let out = Cpu::new().map(
        "",
        "var x = 5u;
         switch (i & 7u) {
             default: {
                 if (i % 3u == 0u) { break; }
                 x = 9u;
             }
         }
         out[i] = x;",
        30,
    );
    let expected = |i: u32| if i.is_multiple_of(3) { 5 } else { 9 };
    assert_eq!(out, (0..30).map(expected).collect::<Vec<u32>>());
}

#[test]
fn what_one_branch_computes_is_read_behind_it_although_the_others_leave() {
    let out = Cpu::new().map(
        "",
        "var x = i;
         switch (i & 3u) {
             case 1u: { out[i] = 1u; return; }
             default: { x = i * out[0] + 3u; }
         }
         if (i > 20u) { out[i] = 2u; return; } else { x += x * x; }
         out[i] = x;",
        30,
    );
    // The first word may be poisoned still or be what the first invocation gives.
    for (i, &got) in out.iter().enumerate().map(|(i, got)| (i as u32, got)) {
        let of = |first: u32| {
            let x = i.wrapping_mul(first).wrapping_add(3);
            x.wrapping_add(x.wrapping_mul(x))
        };
        match i {
            _ if i & 3 == 1 => assert_eq!(got, 1),
            21.. => assert_eq!(got, 2),
            _ => assert!(got == of(0xdead_beef) || got == of(out[0]), "{i}: {got}"),
        }
    }
}

/// A variable that the loop does not change, and that nobody has read before the body goes past its `continue`.
#[test]
fn what_a_body_reads_behind_a_continue_is_read_again_before_the_next_pass() {
    let out = Cpu::new().map(
        "",
        "var x = 1u;
         for (var k = 0u; k < i; k++) { x = x * 3u + k; }
         var sum = 0u;
         var turn = 0u;
         loop {
             if (turn >= i) { break; }
             if ((turn & 1u) == 1u) { continue; }
             sum += x;
             continuing { turn++; sum = (sum ^ x) + turn; }
         }
         out[i] = sum;",
        30,
    );
    let expected = |i: u32| {
        let x = (0..i).fold(1u32, |x, k| x.wrapping_mul(3).wrapping_add(k));
        (0..i).fold(0u32, |sum, turn| {
            let sum = if turn & 1 == 1 {
                sum
            } else {
                sum.wrapping_add(x)
            };
            (sum ^ x).wrapping_add(turn + 1)
        })
    };
    assert_eq!(out, (0..30).map(expected).collect::<Vec<u32>>());
}
