//! The loop guard, by the pass's output as text, and by spans.

use super::loop_guard::{self, LoopGuard};
use super::status::status_global;
use super::tests_support::{BINDING, kernel, occurrences, parse, text};

const BUDGET: u32 = 65_535;

fn guarded(items: &str, body: &str) -> (String, LoopGuard, String) {
    let source = kernel(items, body);
    let mut module = parse(&source);
    let guard = loop_guard::run(&mut module, 0, BUDGET, BINDING).expect("is guarded");
    (text(&module, &source), guard, source)
}

/// How often mark `number` is set to `value`: `tombolo_loop[zero + number] = value`.
fn stores(written: &str, number: u32, value: &str) -> usize {
    let pointers: Vec<String> = (written.lines())
        .filter_map(|line| line.trim().strip_prefix("tombolo_loop[("))
        .map(str::to_owned)
        .collect();
    let wanted = format!("+ {number}u)] = {value};");
    pointers.iter().filter(|p| p.ends_with(&wanted)).count()
}

#[test]
fn a_loop_is_marked_on_entry_unmarked_on_exit_and_tested_behind() {
    let (written, guard, source) = guarded("", "for (var i = 0u; i < n; i++) { o[0] += i; }");
    assert_eq!(guard.sites.len(), 1);
    assert_eq!(stores(&written, 1, "1u"), 1, "{written}");
    assert_eq!(stores(&written, 1, "0u"), 1, "{written}");
    assert!(
        written.contains("atomicMax((&tombolo_status[0]), 1u);"),
        "{written}"
    );
    assert!(
        written.contains("tombolo_status: array<atomic<u32>, 16>"),
        "{written}"
    );
    let entered = written.find(")] = 1u;").expect("mark");
    let looped = written.find("loop {").expect("loop");
    let left = written.find(")] = 0u;").expect("unmark");
    let tested = written.find("== 1u").expect("test");
    assert!(
        entered < looped && looped < left && left < tested,
        "{written}"
    );
    let range = guard.sites[0].span.to_range().expect("span");
    assert_eq!(
        &source[range],
        "for (var i = 0u; i < n; i++) { o[0] += i; }"
    );
    assert_eq!(guard.sites[0].function.as_deref(), Some("main"));
}

#[test]
fn the_index_of_the_marks_is_never_a_constant() {
    let (written, ..) = guarded("", "for (var i = 0u; i < n; i++) { }");
    assert!(
        written.contains("atomicLoad((&tombolo_status[15]))"),
        "{written}"
    );
    let constant = |c: char| c.is_ascii_digit();
    let used = written.matches("tombolo_loop[").count();
    assert!(used >= 4, "{written}");
    assert!(!(written.split("tombolo_loop[").skip(1)).any(|rest| rest.starts_with(constant)));
}

#[test]
fn a_break_in_a_switch_leaves_only_the_switch() {
    let (written, ..) = guarded(
        "",
        "loop { switch n { case 1u { break; } case 2u { if o[1] == 1u { break; } } default { continue; } } }",
    );
    assert_eq!(stores(&written, 1, "0u"), 0, "{written}");
}

#[test]
fn a_break_leaves_the_innermost_loop() {
    let (written, guard, source) = guarded(
        "",
        "loop { loop { if o[0] == n { break; } } if o[1] == n { break; } }",
    );
    // Marks are numbered from the outside in, sites from the inside out.
    assert_eq!(stores(&written, 1, "0u"), 1, "{written}");
    assert_eq!(stores(&written, 2, "0u"), 1, "{written}");
    let texts: Vec<_> = (guard.sites.iter())
        .map(|s| &source[s.span.to_range().expect("span")])
        .collect();
    assert_eq!(texts[0], "loop { if o[0] == n { break; } }");
    assert!(texts[1].starts_with("loop { loop {"));
    assert_eq!(guard.site_for_code(2), guard.sites.first());
    assert_eq!(guard.site_for_code(1), guard.sites.get(1));
    assert_eq!(guard.site_for_code(0), None);
    assert_eq!(guard.site_for_code(3), None);
    assert_eq!(guard.site_for_code(u32::MAX), None);
}

#[test]
fn break_if_clears_the_mark_by_its_condition() {
    let (written, ..) = guarded(
        "",
        "var i = 0u; loop { i++; continuing { o[0] = i; break if i == n; } } \
         loop { continuing { break if true; } }",
    );
    assert_eq!(occurrences(&written, "select(1u, 0u, "), 2, "{written}");
    assert_eq!(occurrences(&written, "break if"), 2, "{written}");
}

#[test]
fn loops_in_continuing_have_their_own_exits() {
    let (written, guard, _) = guarded(
        "",
        "var i = 0u; loop { i++; continuing { for (var j = 0u; j < n; j++) { if j == 3u { break; } } break if i == n; } }",
    );
    assert_eq!(guard.sites.len(), 2);
    assert_eq!(stores(&written, 2, "0u"), 2, "{written}");
    assert_eq!(stores(&written, 1, "0u"), 0, "{written}");
}

#[test]
fn a_return_in_a_function_leaves_every_loop_and_is_tested_by_the_caller() {
    let items = "fn find(n: u32) -> u32 {\n\
        loop { loop { if o[0] == n { return 1u; } } }\n\
        return 0u; }\n\
        fn plain(n: u32) -> u32 { loop { if o[0] == n { break; } } return 0u; }";
    let (written, guard, _) = guarded(items, "o[1] = find(n); o[2] = plain(n);");
    assert_eq!(guard.sites.len(), 3);
    assert_eq!(stores(&written, 1, "0u"), 1, "{written}");
    assert_eq!(stores(&written, 2, "0u"), 1, "{written}");
    // `find` tests its two loops and so does the caller; `plain` needs no more than its own test.
    assert_eq!(occurrences(&written, "atomicMax("), 2 + 2 + 1, "{written}");
    assert_eq!(guard.sites[0].function.as_deref(), Some("find"));
    assert_eq!(guard.sites[2].function.as_deref(), Some("plain"));
}

#[test]
fn loops_that_cannot_be_reached_are_not_touched() {
    let items = "fn unused(n: u32) { loop { if o[0] == n { break; } } }";
    let (written, guard, _) = guarded(items, "for (var i = 0u; i < n; i++) { }");
    assert_eq!(guard.sites.len(), 1);
    let unused = &written[written.find("fn unused").expect("unused")..];
    let unused = &unused[..unused.find("\n}").expect("end")];
    assert!(!unused.contains("tombolo"), "{written}");
}

#[test]
fn provably_short_kernels_stay_as_they_are() {
    let unchanged = |body: &str, budget: u32| {
        let source = kernel("fn f() { for (var i = 0; i < 9; i++) {} }", body);
        let mut module = parse(&source);
        let before = format!("{module:?}");
        let guard = loop_guard::run(&mut module, 0, budget, BINDING);
        assert_eq!(guard.is_none(), before == format!("{module:?}"), "{body}");
        guard.is_none()
    };
    assert!(unchanged("o[0] = 1u;", 0));
    assert!(unchanged("f();", BUDGET));
    assert!(unchanged(
        "for (var i = 0; i < 255; i++) { for (var j = 0; j < 200; j++) {} }",
        BUDGET
    ));
    assert!(!unchanged(
        "for (var i = 0; i < 255; i++) { for (var j = 0; j < 256; j++) {} }",
        BUDGET
    ));
    // 65,470 passes plus 1 are the budget less its reserve of 64.
    assert!(unchanged("for (var i = 0; i < 65470; i++) {}", BUDGET));
    assert!(!unchanged("for (var i = 0; i < 65471; i++) {}", BUDGET));
    assert!(!unchanged("for (var i = 0; i < 9; i++) {}", 73));
    assert!(unchanged("for (var i = 0; i < 9; i++) {}", 74));
}

#[test]
fn one_unknown_loop_puts_the_short_ones_under_guard_too() {
    let (_, guard, _) = guarded(
        "fn f() { for (var i = 0; i < 9; i++) {} }",
        "for (var i = 0u; i < n; i++) {} for (var i = 0; i < 3; i++) { f(); }",
    );
    assert_eq!(guard.sites.len(), 3);
}

#[test]
fn barriers_behind_and_inside_loops_still_validate() {
    let items = "var<workgroup> s: array<u32, 8>;\nvar<workgroup> u: u32;\n\
        fn step(i: u32) { workgroupBarrier(); s[i] = i; storageBarrier(); }";
    let (written, ..) = guarded(
        items,
        "let limit = workgroupUniformLoad(&u);\n\
         for (var i = 0u; i < limit; i++) { step(i); workgroupBarrier(); let q = workgroupUniformLoad(&u); if q == 3u { break; } }\n\
         workgroupBarrier(); o[0] = s[1] + workgroupUniformLoad(&u);",
    );
    assert!(written.contains("workgroupBarrier"), "{written}");
}

#[test]
fn statements_of_the_user_keep_their_spans_and_added_ones_have_those_of_the_loop() {
    let source = kernel(
        "",
        "for (var i = 0u; i < n; i++) { o[0] += i; }\no[3] = 4u;",
    );
    let mut module = parse(&source);
    loop_guard::run(&mut module, 0, BUDGET, BINDING).expect("is guarded");
    let body = &module.entry_points[0].function.body;
    let spans: Vec<_> = (body.span_iter())
        .filter_map(|(_, span)| span.to_range())
        .map(|range| &source[range])
        .collect();
    assert!(spans.contains(&"o[3] = 4u"), "{spans:?}");
    let of_loop = spans.iter().filter(|s| s.starts_with("for (")).count();
    // Mark (two statements), loop, test (two statements).
    assert_eq!(of_loop, 5, "{spans:?}");
}

#[test]
fn only_the_entry_point_asked_for_is_guarded_and_a_wrong_one_is_no_panic() {
    let source = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;\n\
        @compute @workgroup_size(1) fn a() { loop { if o[0] == 1u { break; } } }\n\
        @compute @workgroup_size(1) fn b() { loop { if o[0] == 2u { break; } } }";
    let mut module = parse(source);
    assert_eq!(loop_guard::run(&mut module, 2, BUDGET, BINDING), None);
    let guard = loop_guard::run(&mut module, 1, BUDGET, BINDING).expect("is guarded");
    assert_eq!(guard.sites[0].function.as_deref(), Some("b"));
    assert_eq!(module.entry_points[0].function.body.len(), 2);
    text(&module, source);
}

#[test]
fn the_status_record_is_added_once_under_a_free_name() {
    let source = kernel(
        "var<private> tombolo_status: u32;\nconst tombolo_status_1 = 3u;",
        "o[0] = n + tombolo_status_1;",
    );
    let mut module = parse(&source);
    let first = status_global(&mut module, BINDING);
    let globals = module.global_variables.len();
    assert_eq!(status_global(&mut module, BINDING), first);
    assert_eq!(module.global_variables.len(), globals);
    let name = module.global_variables[first].name.as_deref();
    assert_eq!(name, Some("tombolo_status_2"));
    let written = text(&module, &source);
    assert!(written.contains("@group(3) @binding(7)"), "{written}");
}
