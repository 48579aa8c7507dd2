//! Elements of the heap loaded once for several loads, and the reasons for loading again: the pass's output, as text.

use super::super::tests_support::occurrences;
use super::options::{HeapElement, PointerOptions};
use super::tests::{checked, kernel, lowered, segmented, unified};

/// Pairs of words: `mass` and `reach` share a pair, and so do `bodies` and `tag`.
const CELL: &str = "
struct Cell { centre: vec2f, mass: f32, reach: f32, next: usm_ptr, bodies: u32, tag: u32 }
alias Cells = array<Cell>;
fn touch() { o[7] = 1u; }
";

/// Loads of elements, and of single words, behind the load of `centre`, a whole element.
fn loads_of(items: &str, body: &str) -> (usize, usize) {
    let body = format!("let c = usm_Cell(p); let v = c.centre; o[9] = u32(v.x + v.y); {body}");
    let (text, facts) = lowered(&kernel(&format!("{CELL}{items}"), &body), &unified());
    assert_eq!(facts.element, HeapElement::Pair, "{text}");
    let all = occurrences(&text, " = tombolo_heap[");
    let words = (text.lines())
        .filter(|line| line.contains(" = tombolo_heap["))
        .filter(|line| line.ends_with("].x;") || line.ends_with("].y;"))
        .count();
    (all - words - 1, words)
}

fn loads(body: &str) -> (usize, usize) {
    loads_of("", body)
}

#[test]
fn members_that_share_an_element_are_loaded_with_the_first() {
    assert_eq!(
        loads("let m = c.mass; if m < 1.0 { o[0] = u32(c.reach); }"),
        (1, 0)
    );
    // Nothing else is wanted of what only one load reads.
    assert_eq!(loads("o[0] = c.bodies;"), (0, 1));
    assert_eq!(loads("o[0] = c.bodies + u32(c.mass);"), (0, 2));
    // At known indices.
    let cells = "let all = usm_Cells(p); o[0] = all[3].bodies; o[1] = all[3].tag + all[2].tag;";
    assert_eq!(loads(cells), (1, 1));
    // The same word, again.
    assert_eq!(loads("o[0] = c.bodies; o[1] = c.bodies;"), (1, 0));
}

#[test]
fn what_may_have_changed_is_loaded_again() {
    let twice = |between: &str| {
        loads(&format!(
            "let a = c.bodies; o[0] = a; {between} let b = c.tag; o[1] = b;"
        ))
    };
    for harmless in [
        "",
        "var x = 1u; x += a;",
        "o[2] = 3u;",
        "if a > 3u { o[3] = a; }",
        "if a > 3u { return; }",
        "switch a { case 1u: { o[3] = 1u; } default: {} }",
    ] {
        assert_eq!(twice(harmless), (1, 0), "{harmless}");
    }
    for change in [
        "c.mass = 2.0;",
        "storageBarrier();",
        "workgroupBarrier();",
        "touch();",
        "if a > 3u { c.mass = 2.0; }",
        "if a > 3u { touch(); } else { o[3] = 1u; }",
        "switch a { case 1u: { c.mass = 1.0; } default: {} }",
        "for (var i = 0u; i < a; i++) { o[4] = i; }",
        "{ c.mass = 1.0; }",
    ] {
        assert_eq!(twice(change), (2, 0), "{change}");
    }
}

#[test]
fn loops_begin_with_nothing_and_sides_of_branches_share_nothing() {
    let before = "o[0] = c.bodies;
        for (var i = 0u; i < 9u; i++) { o[1] += c.tag; o[2] += c.bodies; c.mass = 1.0; }";
    assert_eq!(loads(before), (2, 0));
    let sides = "if id.x > 3u { o[0] = c.bodies; } else { o[1] = c.tag; }";
    assert_eq!(loads(sides), (2, 0));
    let behind = "if id.x > 3u { o[0] = c.bodies; } o[1] = c.tag;";
    assert_eq!(loads(behind), (2, 0));
}

#[test]
fn kernels_that_may_wait_for_others_load_each_word() {
    let flag = "@group(0) @binding(2) var<storage, read_write> flag: atomic<u32>;";
    let body = "o[0] = c.bodies; while atomicLoad(&flag) == 0u {} o[1] = c.tag;";
    assert_eq!(loads_of(flag, body), (0, 2));
}

#[test]
fn each_segment_and_each_test_has_loads_of_its_own() {
    let body = "let c = usm_Cell(p); let v = c.centre; let a = c.bodies; let b = c.tag;
        o[0] = a + b + u32(v.x + v.y); o[1] = c.tag;";
    // Of both segments, together and once more.
    let (text, _) = lowered(&kernel(CELL, body), &segmented(2));
    assert_eq!(occurrences(&text, " = tombolo_heap"), 4 + 2, "{text}");
    let (text, _) = lowered(&kernel(CELL, body), &checked(unified()));
    assert_eq!(occurrences(&text, " = tombolo_heap["), 2, "{text}");
}

#[test]
fn where_pointers_are_read_apart_each_word_is_loaded_alone() {
    let body =
        "let c = usm_Cell(p); let v = c.centre; o[0] = c.bodies + u32(v.x + v.y); o[1] = c.tag;";
    let element_loads = |pointers_apart| {
        let options = PointerOptions {
            pointers_apart,
            ..unified()
        };
        let (text, _) = lowered(&kernel(CELL, body), &options);
        occurrences(&text, " = tombolo_heap[")
    };
    assert_eq!((element_loads(false), element_loads(true)), (2, 3));
}
