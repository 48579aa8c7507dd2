//! Translations kept for several accesses of a pointee.

use super::super::tests_support::occurrences;
use super::tests::{EVERY_BODY, EVERYTHING, NODE, at, kernel, lowered};
use super::tests_system::{system, waiting};
use super::*;

fn hoisting(options: PointerOptions) -> PointerOptions {
    PointerOptions {
        hoists: Hoists::First,
        ..options
    }
}

/// With the pages of pointees looked up ahead.
fn ahead() -> PointerOptions {
    PointerOptions {
        hoists: Hoists::Pages,
        ..system()
    }
}

/// Accesses with a kept translation, and others, of the kernel's own functions.
fn accesses(items: &str, body: &str) -> (usize, usize) {
    let (text, _) = lowered(&kernel(items, body), &hoisting(system()));
    let once = occurrences(&text, "= tombolo_system_find_once(");
    let finds = occurrences(&text, "= tombolo_system_find(");
    // The translation inside the keeping function.
    (once, finds - usize::from(once > 0))
}

#[test]
fn every_form_is_valid() {
    let halves =
        "struct H { a: f16, b: vec2<f16>, c: vec3<f16>, d: vec4<f16>, e: array<f16, 5>, w: u32 }";
    let half_body =
        "let h = usm_H(p); h.a += 1.0h; h.c = h.c.zyx; h.e[id.x] = h.e[3]; let all = *h; *h = all;";
    let wide = "struct W { a: u64, b: i64, c: vec2<u64>, d: f64 }";
    let wide_body = "let w = usm_W(p); w.a += 1lu; w.c = w.c.yx; w.d = w.d;";
    let mut all = vec![system()];
    for (barriers, backoff) in [(true, None), (false, Some(at(5)))] {
        all.extend([false, true].map(|evicts| waiting(barriers, evicts, backoff)));
    }
    for options in all.into_iter().map(hoisting) {
        let (text, _) = lowered(&kernel(EVERYTHING, EVERY_BODY), &options);
        assert!(
            occurrences(&text, "fn tombolo_system_find_once(") == 1,
            "{text}"
        );
        let halves = format!("enable f16;\n{}", kernel(halves, half_body));
        lowered(&halves, &options);
        lowered(&kernel(wide, wide_body), &options);
    }
    let (text, _) = lowered(&kernel(EVERYTHING, EVERY_BODY), &ahead());
    assert_eq!(occurrences(&text, "fn tombolo_system_part("), 1, "{text}");
    let halves = format!("enable f16;\n{}", kernel(halves, half_body));
    lowered(&halves, &ahead());
    lowered(&kernel(wide, wide_body), &ahead());
}

#[test]
fn a_pointee_that_is_accessed_once_is_translated_as_always() {
    assert_eq!(accesses(NODE, "o[0] = u32(usm_Node(p).value);"), (0, 1));
    let quads = "alias Quads = array<vec4<u32>>;";
    let body = "let q = usm_Quads(p); let v = q[id.x]; o[0] = v.x + v.w;";
    assert_eq!(accesses(quads, body), (0, 1));
    let (text, _) = lowered(
        &kernel(NODE, "o[0] = u32(usm_Node(p).value);"),
        &hoisting(system()),
    );
    assert_eq!(occurrences(&text, "tombolo_system_rights"), 0, "{text}");
}

#[test]
fn members_and_elements_belong_to_the_pointee() {
    assert_eq!(
        accesses(NODE, "let n = usm_Node(p); n.value = 1.0; o[0] = n.next.x;"),
        (2, 0)
    );
    assert_eq!(
        accesses(NODE, "let n = *usm_Node(p); o[0] = n.next.x;"),
        (2, 0)
    );
    let matrix = "struct M { m: mat4x4<f32>, v: array<u32, 8>, tail: array<u32> }";
    assert_eq!(
        accesses(matrix, "let m = usm_M(p).m; o[0] = u32(m[1].x);"),
        (4, 0)
    );
    assert_eq!(
        accesses(
            matrix,
            "let m = usm_M(p); o[0] = m.v[id.x] + u32(m.m[id.y][id.z]);"
        ),
        (2, 0)
    );
    // An array without a length is no part of the kept translation.
    assert_eq!(
        accesses(
            matrix,
            "let m = usm_M(p); o[0] = m.v[1] + m.v[2] + m.tail[id.x];"
        ),
        (2, 1)
    );
    let big = "struct B { a: u32, b: array<u32, 1024> }";
    assert_eq!(
        accesses(big, "let b = usm_B(p); o[0] = b.a + b.b[1];"),
        (0, 2)
    );
}

#[test]
fn an_access_in_a_loop_keeps_what_is_found_before() {
    let items = "alias Eight = array<u32, 8>; alias Words = array<u32>; alias Nodes = array<Node>;";
    let items = format!("{NODE}{items}");
    let sum = |pointer: &str| format!("for (var i = 0u; i < 8u; i++) {{ {pointer} }}");
    assert_eq!(
        accesses(
            &items,
            &format!("let w = usm_Eight(p); {}", sum("o[0] += w[i];"))
        ),
        (1, 0)
    );
    assert_eq!(
        accesses(
            &items,
            &format!("let w = usm_Words(p); {}", sum("o[0] += w[i];"))
        ),
        (0, 1)
    );
    // The pointer is another in each turn.
    assert_eq!(accesses(&items, &sum("o[0] += usm_Eight(p)[i];")), (0, 1));
    let both = "let n = &usm_Nodes(p)[i]; o[0] += u32(n.value) + n.next.x;";
    assert_eq!(accesses(&items, &sum(both)), (2, 0));
}

/// The kept translation is empty wherever the pointer is made, or a node would be read at the place of the node before.
#[test]
fn nothing_is_kept_of_another_pointer() {
    let list = "var q = p; while !usm_is_null(q) { let n = usm_Node(q); o[0] += u32(n.value); q = n.next; }";
    let (text, _) = lowered(&kernel(NODE, list), &hoisting(system()));
    let body = text.split("@compute").nth(1).expect("an entry point");
    let turn = body.split("loop {").nth(1).expect("a loop");
    let emptied = turn.find("= vec3<u32>();").expect("is emptied in the loop");
    let found = turn.find("tombolo_system_find_once(").expect("an access");
    assert!(emptied < found, "{turn}");
    assert_eq!(occurrences(body, "= vec3<u32>();"), 1, "{body}");
}

#[test]
fn functions_keep_translations_of_their_own() {
    let items = format!(
        "{NODE} fn both(n: ptr<storage, Node, read_write>) -> u32 {{ return u32(n.value) + n.next.x; }}
        fn after(n: ptr<storage, Node, read_write>) -> ptr<storage, Node, read_write> {{ return usm_Node(n.next); }}"
    );
    let body = "let n = after(usm_Node(p)); o[0] = both(n) + u32(n.value) + n.next.y;";
    assert_eq!(accesses(&items, body), (4, 1));
}

#[test]
fn loads_of_frames_that_may_go_look_at_the_place_again() {
    let body = "let n = usm_Node(p); o[0] = u32(n.value) + n.next.x; n.value = 1.0;";
    let options = hoisting(waiting(true, true, None));
    let (text, _) = lowered(&kernel(NODE, body), &options);
    let count = |what: &str| occurrences(&text, what);
    assert_eq!(count("= tombolo_system_load_once("), 2, "{text}");
    assert_eq!(count("= tombolo_system_find_once("), 1, "{text}");
    assert_eq!(count("fn tombolo_system_load("), 1, "{text}");
    assert_eq!(count("= tombolo_system_load("), 0, "{text}");
}

/// Pointees looked up ahead, the written pointees among them, accesses of them, and other accesses.
fn looked_up(items: &str, body: &str) -> [usize; 4] {
    let (text, _) = lowered(&kernel(items, body), &ahead());
    [
        "= tombolo_system_pages(",
        "= tombolo_system_pages_written(",
        "= tombolo_system_part(",
        "= tombolo_system_find(",
    ]
    .map(|call| occurrences(&text, call))
}

#[test]
fn pages_are_looked_up_where_the_pointer_is_made() {
    let body = "let n = usm_Node(p); o[0] = u32(n.value) + n.next.x;";
    assert_eq!(looked_up(NODE, body), [1, 0, 2, 0]);
    let body = "let n = usm_Node(p); n.value = 1.0; o[0] = n.next.x;";
    assert_eq!(looked_up(NODE, body), [0, 1, 2, 0]);
    let once = "o[0] = u32(usm_Node(p).value);";
    assert_eq!(looked_up(NODE, once), [0, 0, 0, 1]);
    // A node behind the head of a list of any length begins there.
    let items = format!("{NODE} struct List {{ count: u32, nodes: array<Node> }}");
    let body = "let n = &usm_List(p).nodes[id.x]; o[0] = u32(n.value) + n.next.x;";
    assert_eq!(looked_up(&items, body), [1, 0, 2, 0]);
    let (text, _) = lowered(&kernel(&items, body), &ahead());
    for (at, within) in [("8u", "0u"), ("16u", "8u")] {
        let call = format!(", {at}, ");
        let calls = text.lines().filter(|line| {
            line.contains("= tombolo_system_part(")
                && line.contains(&call)
                && line.contains(&format!(", {within}, "))
        });
        assert!(calls.count() > 0, "{at} {within}: {text}");
    }
}

/// An access without a translation has no other way, so nothing may be kept for accesses at risk of missing one.
#[test]
fn elements_that_may_lie_beyond_are_translated_by_themselves() {
    let items = "struct P { head: u32, a: array<u32, 8>, m: mat2x2<f32> } alias I = array<i32, 3>;";
    let of = |body: &str| looked_up(items, &format!("let s = usm_P(p); o[1] = s.head; {body}"));
    assert_eq!(of("o[0] = s.a[id.x % 8u] + s.head;"), [1, 0, 3, 0]);
    assert_eq!(of("o[0] = s.a[id.x % 9u] + s.head;"), [1, 0, 2, 1]);
    assert_eq!(of("o[0] = s.a[id.x] + s.head;"), [1, 0, 2, 1]);
    assert_eq!(of("o[0] = u32(s.m[id.x & 1u].x);"), [1, 0, 2, 0]);
    assert_eq!(
        of("for (var i = 0u; i < 8u; i++) { o[i] = s.a[i]; }"),
        [1, 0, 2, 0]
    );
    // One turn more than elements.
    assert_eq!(
        of("o[2] = s.head; for (var i = 0u; i < 9u; i++) { o[i] = s.a[i]; }"),
        [1, 0, 2, 1]
    );
    assert_eq!(
        of("for (var i = 0; i < 8; i++) { o[i] = s.a[i]; }"),
        [1, 0, 2, 0]
    );
}

#[test]
fn a_pointee_with_more_words_than_bits_is_translated_at_each_access() {
    let fits = "struct B { a: u32, b: array<u32, 31> }";
    let body = "let b = usm_B(p); o[0] = b.a + b.b[1];";
    assert_eq!(looked_up(fits, body), [1, 0, 2, 0]);
    let big = "struct B { a: u32, b: array<u32, 32> }";
    assert_eq!(looked_up(big, body), [0, 0, 0, 2]);
}

/// Accesses note faults; whichever way the entry point ends, the note is written before.
#[test]
fn notes_are_written_before_every_end() {
    let body = "let n = usm_Node(p); if id.x == 3u { return; } o[0] = u32(n.value) + n.next.x;";
    let (text, _) = lowered(&kernel(NODE, body), &ahead());
    let entry = text.split("@compute").nth(1).expect("an entry point");
    let ends = occurrences(entry, "return;");
    assert!(ends >= 2, "{entry}");
    let mut lines = entry.lines().map(str::trim).peekable();
    let mut written = 0;
    while let Some(line) = lines.next() {
        if line == "tombolo_system_write_note();" && lines.peek() == Some(&"return;") {
            written += 1;
        }
    }
    assert_eq!(written, ends, "{entry}");
}
