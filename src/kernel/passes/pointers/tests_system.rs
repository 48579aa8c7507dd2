//! Pointers into memory lent to launches.

use super::super::tests_support::occurrences;
use super::tests::{EVERY_BODY, EVERYTHING, NODE, at, kernel, lower, lowered, unified};
use super::*;
use naga::ResourceBinding;

pub(super) fn system() -> PointerOptions {
    PointerOptions {
        mode: TranslationMode::System,
        memory: HeapMemory::System {
            pool: at(0),
            table: at(1),
            faults: at(2),
            status: at(3),
            live: None,
        },
        ..unified()
    }
}

/// The same for kernels waiting for pages.
pub(super) fn waiting(
    barriers: bool,
    evicts: bool,
    backoff: Option<ResourceBinding>,
) -> PointerOptions {
    let mut options = system();
    let HeapMemory::System { live, .. } = &mut options.memory else {
        panic!("no lent memory");
    };
    *live = Some(LivePlaces {
        places: at(4),
        barriers,
        evicts,
        backoff,
    });
    options
}

#[test]
fn everything_is_valid_there_too() {
    let (text, facts) = lowered(&kernel(EVERYTHING, EVERY_BODY), &system());
    assert!(facts.system && facts.writes && facts.follows);
    assert_eq!(facts.element, HeapElement::AtomicSigned);
    assert!(!facts.sites.is_empty() && !facts.reads_info);
    assert_eq!(occurrences(&text, "fn tombolo_system_find"), 1, "{text}");
    let items = "struct W { a: u64, b: i64, c: vec2<u64>, d: f64 }
        struct H { a: f16, b: vec2<f16>, c: vec3<f16>, d: vec4<f16>, e: array<f16, 5> } alias Halves = array<f16>;";
    let body = "let w = usm_W(p); w.a += 1lu; w.c = w.c.yx; w.d = w.d;
        let h = usm_H(p); h.a += 1.0h; h.c = h.c.zyx; h.e[id.x] = h.e[3] + usm_Halves(p)[id.x]; let all = *h; *h = all;";
    lowered(&format!("enable f16;\n{}", kernel(items, body)), &system());
}

/// In the forms whose kernels wait for pages, too.
#[test]
fn kernels_that_wait_are_valid() {
    for (barriers, backoff, evicts) in [
        (true, None, false),
        (true, None, true),
        (false, Some(at(5)), false),
        (false, Some(at(5)), true),
    ] {
        let options = waiting(barriers, evicts, backoff);
        let (text, _) = lowered(
            &kernel(
                NODE,
                "let n = *usm_Node(p); o[0] = u32(n.value) + n.next.x;",
            ),
            &options,
        );
        let rationed = occurrences(&text, "tombolo_system_group_turns: array") > 0;
        assert_eq!(rationed, backoff.is_some(), "{text}");
        assert!(text.contains("tombolo_system_places"), "{text}");
        // Nothing is loaded at a place that may have gone by then.
        let loads = occurrences(&text, "= tombolo_system_load(");
        let finds = occurrences(&text, "= tombolo_system_find(");
        let expected = if evicts { (2, 1) } else { (0, 2) };
        assert_eq!((loads, finds), expected, "{text}");
        // In all its forms, halves and atomic operations too.
        lowered(&kernel(EVERYTHING, EVERY_BODY), &options);
        let halves = "struct H { a: f16, b: vec3<f16>, c: array<f16, 5> }";
        let body = "let h = usm_H(p); h.a += h.c[id.x]; h.b = h.b.zyx;";
        lowered(&format!("enable f16;\n{}", kernel(halves, body)), &options);
    }
}

#[test]
fn a_vector_is_translated_once_and_each_member_by_itself() {
    let finds = |items: &str, body: &str| {
        let (text, _) = lowered(&kernel(items, body), &system());
        occurrences(&text, "= tombolo_system_find(")
    };
    let quads = "alias Quads = array<vec4<u32>>;";
    assert_eq!(
        finds(quads, "let q = usm_Quads(p); o[0] = q[id.x].y + q[id.x].z;"),
        2
    );
    assert_eq!(
        finds(
            quads,
            "let q = usm_Quads(p); let v = q[id.x]; o[0] = v.x + v.w;"
        ),
        1
    );
    assert_eq!(
        finds(quads, "let q = usm_Quads(p); q[1] = vec4(1u, 2u, 3u, 4u);"),
        1
    );
    assert_eq!(
        finds(
            NODE,
            "let n = *usm_Node(p); o[0] = u32(n.value) + n.next.x;"
        ),
        2
    );
}

/// A loop ends behind a fault, unless invocations meet in the loop.
#[test]
fn loops_end_behind_a_fault() {
    let list = "var q = p; while !usm_is_null(q) { q = usm_Node(q).next; } o[0] = q.x;";
    let (text, _) = lowered(&kernel(NODE, list), &system());
    assert_eq!(occurrences(&text, "= tombolo_system_failed"), 2, "{text}");
    let items = format!("{NODE} fn meet() {{ workgroupBarrier(); }}");
    let meets = "for (var i = 0u; i < 9u; i++) { o[i] = usm_Node(p).next.x; meet(); }";
    let (text, _) = lowered(&kernel(&items, meets), &system());
    // The occurrence in the fault-noting function.
    assert_eq!(occurrences(&text, "= tombolo_system_failed"), 1, "{text}");
}

#[test]
fn faults_tell_writes_from_reads() {
    let source = kernel(NODE, "let n = usm_Node(p); n.value = 1.0;");
    let (_, facts) = lower(&source, &system()).unwrap().unwrap();
    let reason = |code, low| facts.fault([code, low, 1, 5]).unwrap().reason;
    assert_eq!(reason(1, 64), FaultReason::Outside);
    assert_eq!(reason(1 | 1 << 31, 64), FaultReason::ReadOnly);
    assert_eq!(reason(1 | 1 << 30, 65), FaultReason::Misaligned);
    // A member whose alignment is less than its structure's.
    assert_eq!(reason(1, 68), FaultReason::Outside);
    assert_eq!(facts.fault([1, 0, 0, 5]).unwrap().reason, FaultReason::Null);
    assert_eq!(facts.fault([0; 4]), None);
}

#[test]
fn pointers_to_bound_variables_have_no_address() {
    let items = "alias Words = array<u32>;
        @group(0) @binding(2) var<storage, read_write> bound: Words;
        fn put(w: ptr<storage, Words, read_write>) { w[0] = 1u; }";
    let source = kernel(items, "put(usm_Words(p)); put(&bound);");
    let refused = lower(&source, &system()).unwrap_err();
    assert_eq!(refused.kind, PointerErrorKind::ForeignPointer);
}
