//! The bound for back-edges. Expected: for each loop by itself, passes + 1, counted by hand or by running the
//! same loop in Rust.

use super::tests_support::{kernel, parse};
use super::trip_count::{UNBOUNDED, entry_cost, every_loop_ends};

fn cost_of(items: &str, body: &str) -> u64 {
    let module = parse(&kernel(items, body));
    entry_cost(&module, &module.entry_points[0].function)
}

fn cost(body: &str) -> u64 {
    cost_of("const N = 10;\nconst M: u32 = 3u;\nconst Z = u32();", body)
}

#[test]
fn counted_loops_cost_their_passes_and_one() {
    let cases: &[(&str, u64)] = &[
        ("for (var i = 0; i < N; i++) {}", 10),
        ("for (var i = 0; i < 10; i++) {}", 10),
        ("for (var i = 0u; i <= M; i += 2u) {}", 2),
        ("for (var i = 3; i <= 17; i += 4) {}", 4),
        ("for (var i = 0; i < 1; i += 5) {}", 1),
        ("for (var i = 10; i > 0; i--) {}", 10),
        ("for (var i = 10; i >= 0; i -= 3) {}", 4),
        ("for (var i = 10u; i != 0u; i--) {}", 10),
        ("for (var i = 1; i != 10; i += 3) {}", 3),
        ("for (var i = Z; i < 5u; i = i + 1u) {}", 5),
        ("for (var i = 0; i < 5; i = 1 + i) {}", 5),
        ("for (var i = 0; 5 > i; i++) {}", 5),
        ("for (var i = 5; i < 5; i++) {}", 0),
        ("for (var i = 9; i < 5; i--) {}", 0),
        ("for (var i = -3; i < 3; i++) {}", 6),
        ("for (var i = 0; !(i >= 6); i++) {}", 6),
        (
            "var i = 0; loop { if i >= 6 { break; } continuing { i++; } }",
            6,
        ),
        ("var i: i32; while (i < 5) { o[0] = 1u; i = i + 1; }", 5),
        (
            "for (var i = 0; i < 9; i++) { if n == 3u { continue; } if n == 4u { break; } }",
            9,
        ),
        ("for (var i = 2147483646; i < 2147483647; i++) {}", 1),
        ("for (var i = 4294967293u; i < 4294967295u; i++) {}", 2),
    ];
    for &(body, passes) in cases {
        assert_eq!(cost(body), passes + 1, "{body}");
    }
}

#[test]
fn what_is_not_proved_is_unbounded() {
    let cases = [
        // The bound, the start or the step is not known.
        "for (var i = 0u; i < n; i++) {}",
        "for (var i = n; i < 10u; i++) {}",
        "for (var i = 0u; i < 10u; i += n) {}",
        // The counter wraps around before the test fails, or never gets there.
        "for (var i = 0u; i <= 4294967295u; i++) {}",
        "for (var i = 0u; i < 4294967295u; i += 2u) {}",
        "for (var i = 0; i <= 2147483647; i++) {}",
        "for (var i = 10u; i >= 0u; i--) {}",
        "for (var i = 0; i < 10; i += 0) {}",
        "for (var i = 0; i < 10; i--) {}",
        "for (var i = 0; i > -10; i++) {}",
        "for (var i = 0; i != 10; i += 3) {}",
        "for (var i = 10; i != 0; i++) {}",
        "for (var i = 0; i == 0; i += 0) {}",
        // Something else writes the counter.
        "for (var i = 0; i < 10; i++) { i = 0; }",
        "for (var i = 0; i < 10; i++) { if n == 1u { i--; } }",
        "for (var i = 0; i < 10; i++) { let p = &i; *p = 3; }",
        "for (var i = 0; i < 10; i++) { touch(&i); }",
        // The step can be left out.
        "for (var i = 0; i < 10; ) { if n == 1u { i++; } }",
        "var i = 0; while (i < 10) { if n == 1u { continue; } i++; }",
        "var i = 0; loop { if i >= 9 { break; } continuing { if n == 1u { i++; } } }",
        // The sum was computed before the loop, and so never changes.
        "var i = 0; let next = i + 1; while (i < 10) { i = next; }",
        "var i = 0; let small = i < 10; loop { if !small { break; } continuing { i++; } }",
        "var i = 0; let was = i; loop { if was > 9 { break; } continuing { i++; } }",
        // The test is not in front, or does more than leave.
        "var i = 0; loop { if n == 0u { continue; } if i > 9 { break; } continuing { i++; } }",
        "var i = 0; loop { if i > 9 { if n == 0u { continue; } break; } continuing { i++; } }",
        "loop { if n == 3u { break; } }",
        "for (var i = 0f; i < 10f; i += 1f) {}",
        "loop { continuing { break if o[0] == 1u; } }",
    ];
    for body in cases {
        let touch = "fn touch(p: ptr<function, i32>) { *p = 0; }";
        assert_eq!(cost_of(touch, body), UNBOUNDED, "{body}");
    }
}

#[test]
fn nests_multiply_and_sequences_add() {
    let one = "for (var i = 0; i < 9; i++) {}";
    assert_eq!(cost(&format!("{one} {one}")), 20);
    assert_eq!(
        cost("for (var i = 0; i < 9; i++) { for (var j = 0; j < 4; j++) {} }"),
        10 * (1 + 5)
    );
    // In a loop, the inner counter starts by a store rather than by its initial value.
    assert_eq!(
        cost("for (var i = 0; i < 9; i++) { for (var j = 2; j < 4; j++) {} }"),
        10 * (1 + 5)
    );
    assert_eq!(
        cost(&format!("if n == 1u {{ {one} }} else {{ {one} }}")),
        20
    );
    assert_eq!(
        cost(&format!(
            "switch n {{ case 1u {{ {one} }} default {{ {one} }} }}"
        )),
        21
    );
    assert_eq!(cost("o[0] = 1u;"), 0);
}

#[test]
fn calls_cost_what_is_called() {
    let items = "fn a() { for (var i = 0; i < 9; i++) {} }\n\
                 fn b() { for (var i = 0; i < 4; i++) { a(); } }\n\
                 fn c() { loop { if o[0] == 1u { break; } } }";
    assert_eq!(cost_of(items, "a();"), 10);
    assert_eq!(cost_of(items, "b(); a();"), 5 * (1 + 10) + 10);
    assert_eq!(cost_of(items, "if n == 0u { c(); }"), UNBOUNDED);
}

#[test]
fn deep_nests_saturate() {
    let body = (0..8).fold(String::new(), |inner, k| {
        format!("for (var i{k} = 0; i{k} < 1000000; i{k}++) {{ {inner} }}")
    });
    assert_eq!(cost(&body), UNBOUNDED);
}

#[test]
fn one_loop_without_a_known_end_is_enough() {
    let ends = |items: &str, body: &str| every_loop_ends(&parse(&kernel(items, body)));
    let counted = "for (var i = 0; i < 10; i++) {}";
    assert!(ends("", ""), "no loop at all");
    assert!(ends("", counted));
    assert!(ends(
        "",
        "for (var i = 0; i < 10; i++) { for (var j = 0u; j < 7u; j++) {} }"
    ));
    assert!(!ends("", &format!("{counted} while o[0] == 0u {{}}")));
    assert!(!ends(
        "",
        "for (var i = 0; i < 10; i++) { loop { if o[0] == 1u { break; } } }"
    ));
    assert!(!ends(
        "fn wait() { while o[0] == 0u {} }",
        &format!("{counted} wait();")
    ));
    assert!(
        !ends("", "for (var i = 0u; i < o[0]; i++) {}"),
        "a bound that is read"
    );
    assert!(
        !ends("", "for (var i = 0; i != 5; i += 2) {}"),
        "a bound that is jumped over"
    );
}
