//! The words loaded from the heap, their number and places: the pass's output, as text.

use super::super::tests_support::occurrences;
use super::options::{HeapElement, PointerOptions, TranslationMode};
use super::tests::{NODE, checked, kernel, lowered, segmented, split, unified};

const WALK: &str = "var q = p; var sum = 0.0;
  for (var i = 0u; i < 9u; i++) { let n = usm_Node(q); sum += n.value; q = n.next; }
  o[id.x] = u32(sum);";

fn loads(text: &str) -> usize {
    occurrences(text, " = tombolo_heap")
}

#[test]
fn a_pointer_that_is_only_followed_is_its_low_word() {
    let (text, facts) = lowered(&kernel(NODE, WALK), &unified());
    assert_eq!(facts.element, HeapElement::Pair);
    assert!(text.contains("var q: u32;"), "{text}");
    assert_eq!(occurrences(&text, " + 1u)].x;"), 1, "{text}");
    assert_eq!(loads(&text), 2, "{text}");
}

#[test]
fn the_high_word_stays_where_anything_needs_it() {
    for needs in [
        "if usm_is_null(q) { break; }",
        "o[1] = q.y;",
        "n.next = q;",
        "let whole = q; o[2] = whole.x + whole.y;",
        "q = select(q, p, q == p);",
        "q[i & 1u] = 3u;",
    ] {
        let body = WALK.replace("q = n.next;", &format!("q = n.next; {needs}"));
        let (text, _) = lowered(&kernel(NODE, &body), &unified());
        assert!(text.contains("var q: vec2<u32>;"), "{needs}: {text}");
    }
}

#[test]
fn low_words_pass_through_choices_constructors_and_other_variables() {
    let body = "var q = p; var r: usm_ptr; var s = vec2(7u, 0u);
        for (var i = 0u; i < 9u; i++) {
            r = select(usm_Node(q).next, vec2(id.x, id.y), i == 4u);
            s = r; q = s; o[0] += s.x;
        }";
    let (text, _) = lowered(&kernel(NODE, body), &unified());
    for variable in ["var q: u32;", "var r: u32;", "var s: u32 = 7u;"] {
        assert!(text.contains(variable), "{variable} in {text}");
    }
    assert!(!text.contains("id.y"), "{text}");
}

#[test]
fn pointers_stay_whole_where_their_high_words_are_looked_at() {
    for options in [
        checked(unified()),
        split(1, 1, TranslationMode::DeviceFavored),
    ] {
        let (text, _) = lowered(&kernel(NODE, WALK), &options);
        assert!(text.contains("var q: vec2<u32>;"), "{text}");
    }
    let address = WALK.replace(
        "o[id.x] =",
        "o[0] = usm_address(&usm_Node(q).value).y; o[id.x] =",
    );
    let address = address.replace("&usm_Node(q).value", "m").replace(
        "o[0] = usm_address",
        "let m = usm_Node(q); o[0] = usm_address",
    );
    let (text, _) = lowered(&kernel(NODE, &address), &unified());
    assert!(text.contains("var q: vec2<u32>;"), "{text}");
}

#[test]
fn loads_of_one_node_choose_the_segment_once() {
    let (text, _) = lowered(&kernel(NODE, WALK), &segmented(2));
    assert_eq!(
        occurrences(&text, "} else {"),
        2,
        "the loop's and ours: {text}"
    );
    assert_eq!(loads(&text), 4, "{text}");
}

#[test]
fn nothing_is_loaded_before_what_could_change_it() {
    for between in [
        "n.value = 2.0;",
        "storageBarrier();",
        "o[3] = 1u;",
        "bump();",
        "if o[4] == 1u { return; }",
    ] {
        let items = format!("{NODE} fn bump() {{ o[5] = 1u; }}");
        let body = format!(
            "let n = usm_Node(p); let a = n.value; {between} let b = n.next.x; o[0] = u32(a) + b;"
        );
        let (text, _) = lowered(&kernel(&items, &body), &segmented(2));
        // Two choices: neither load waits for the other.
        assert!(occurrences(&text, "} else {") >= 2, "{between}: {text}");
    }
}

#[test]
fn no_load_waits_for_the_test_of_its_pointer() {
    let body = "let n = usm_Node(p); o[0] = u32(n.value) + n.next.x;";
    let (text, _) = lowered(&kernel(NODE, body), &checked(unified()));
    assert_eq!(
        occurrences(&text, "select("),
        3 + 3 + 1,
        "to note, to hand the note over, and to keep what was loaded or nothing: {text}"
    );
    let mask = (text.lines())
        .find(|line| line.contains("select(0u, 4294967295u,"))
        .and_then(|line| line.trim().strip_prefix("let ")?.split(' ').next());
    let kept = format!(" & {})", mask.expect("a mask"));
    assert_eq!(occurrences(&text, &kept), 2, "both values: {text}");
    assert_eq!(occurrences(&text, " = tombolo_heap["), 2, "{text}");
}

#[test]
fn nothing_is_kept_of_a_load_that_may_not_be() {
    for (items, body, kept) in [
        ("", "o[0] = *usm_u32(p);", 1),
        ("", "o[0] = u32((*usm_vec3f(p)).x);", 1),
        ("struct P { v: vec4u }", "o[0] = usm_P(p).v.w;", 1),
        ("struct A { v: array<u32> }", "o[0] = usm_A(p).v[o[1]];", 1),
        ("struct M { v: mat2x2f }", "o[0] = u32(usm_M(p).v[1].x);", 1),
    ] {
        for options in [unified(), segmented(2)] {
            let (text, _) = lowered(&kernel(items, body), &checked(options));
            let masks = occurrences(&text, "select(0u, 4294967295u,");
            assert_eq!(masks, kept, "{body}: {text}");
        }
    }
}

#[test]
fn the_pointer_to_the_next_node_is_loaded_first() {
    for options in [unified(), segmented(2)] {
        let (text, _) = lowered(&kernel(NODE, WALK), &options);
        // The kernel reads `value` before, at the beginning of the node.
        let next = text.find(" + 1u)].x;").map(|at| at + " + 1u".len());
        assert!(next.is_some() && next == text.find(")].x;"), "{text}");
    }
}

#[test]
fn pointers_have_a_choice_of_their_own_where_that_pays() {
    let choices = |pointers_apart, segments| {
        let options = PointerOptions {
            pointers_apart,
            ..segmented(segments)
        };
        let (text, _) = lowered(&kernel(NODE, WALK), &options);
        occurrences(&text, "} else {")
    };
    assert_eq!(choices(true, 2), choices(false, 2) + 1);
    assert_eq!(choices(true, 1), choices(false, 1));
}
