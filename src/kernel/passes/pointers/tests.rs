use naga::valid::Capabilities;
use naga::{Module, ResourceBinding};

use super::super::tests_support::{occurrences, parse, text};
use super::*;
use crate::kernel::usm::appendix;

pub(super) const fn row(variable: ResourceBinding) -> TableRow {
    TableRow {
        variable,
        align: 16,
    }
}

pub(super) const fn at(binding: u32) -> ResourceBinding {
    ResourceBinding { group: 3, binding }
}

pub(super) fn unified() -> PointerOptions {
    PointerOptions {
        mode: TranslationMode::DeviceFavored,
        memory: HeapMemory::Unified {
            segments: vec![at(0)],
        },
        segment_bytes: 1 << 20,
        window_aligned: true,
        info: None,
        checked: None,
        allocations: Vec::new(),
        device_allocations: None,
        arguments: None,
        pointers_apart: false,
        hoists: Hoists::Nothing,
        wide: Vec::new(),
        capabilities: Capabilities::all().bits(),
    }
}

pub(super) fn checked(options: PointerOptions) -> PointerOptions {
    PointerOptions {
        info: Some(at(8)),
        checked: Some(at(9)),
        ..options
    }
}

pub(super) fn segmented(count: u32) -> PointerOptions {
    PointerOptions {
        memory: HeapMemory::Unified {
            segments: (0..count).map(at).collect(),
        },
        ..unified()
    }
}

pub(super) fn split(shared: u32, device: u32, mode: TranslationMode) -> PointerOptions {
    PointerOptions {
        mode,
        memory: HeapMemory::Split {
            shared: (0..shared).map(at).collect(),
            device: (shared..shared + device).map(at).collect(),
            first_tag: 0x8000,
        },
        ..unified()
    }
}

pub(super) fn every_option() -> Vec<PointerOptions> {
    use TranslationMode::*;
    let plain = vec![
        unified(),
        PointerOptions {
            window_aligned: false,
            info: Some(at(8)),
            ..unified()
        },
        segmented(2),
        segmented(3),
        PointerOptions {
            pointers_apart: true,
            ..segmented(2)
        },
        split(1, 1, DeviceFavored),
        split(1, 1, SharedFavored),
        split(2, 2, DeviceFavored),
        split(1, 3, SharedFavored),
    ];
    let mut all = plain.clone();
    all.extend(plain.into_iter().map(checked));
    all
}

pub(super) fn with_stubs(source: &str) -> String {
    match appendix(source) {
        Some(appendix) => format!("{source}{}", appendix.text),
        None => source.to_owned(),
    }
}

pub(super) fn lower(
    source: &str,
    options: &PointerOptions,
) -> Result<Option<(Module, PointerFacts)>, PointerError> {
    let mut module = parse(&with_stubs(source));
    Ok(run(&mut module, 0, options)?.map(|facts| (module, facts)))
}

/// Lowers, validates, writes as WGSL and as SPIR-V.
pub(super) fn lowered(source: &str, options: &PointerOptions) -> (String, PointerFacts) {
    let (module, facts) = lower(source, options).unwrap().expect("uses pointers");
    let written = text(&module, source);
    let info =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), Capabilities::all())
            .validate(&module)
            .unwrap();
    naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None)
        .expect("writes SPIR-V");
    (written, facts)
}

pub(super) fn kernel(items: &str, body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> o: array<u32>;\n\
         @group(0) @binding(1) var<uniform> p: usm_ptr;\n{items}\n\
         @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n{body}\n}}"
    )
}

fn refused(items: &str, body: &str) -> PointerErrorKind {
    lower(&kernel(items, body), &unified()).unwrap_err().kind
}

pub(super) const NODE: &str = "struct Node { value: f32, next: usm_ptr }";

pub(super) const EVERYTHING: &str = "
struct Inner { a: vec3<f32>, b: f32, c: array<vec2<i32>, 3> }
struct Outer { m: mat3x3<f32>, inner: array<Inner, 2>, count: atomic<u32>, level: atomic<i32>, next: usm_ptr, tail: array<f32> }
alias Floats = array<f32>;
struct Plain { m: mat4x3<f32>, v: vec3<u32>, s: i32, i: Inner }
fn bump(q: ptr<storage, f32, read_write>, by: f32) { *q += by; }
fn field(q: ptr<storage, Outer, read_write>, i: u32) -> ptr<storage, f32, read_write> { return &q.inner[i].b; }
fn chase(q: ptr<storage, Outer, read_write>) -> ptr<storage, Outer, read_write> { return usm_Outer(q.next); }
";

pub(super) const EVERY_BODY: &str = "
  var q = p;
  let n = usm_Outer(q);
  n.m[1] = vec3(1.0, 2.0, 3.0);
  n.m[id.x][id.y] += 1.0;
  n.inner[id.x].a.y = n.tail[id.x];
  n.inner[1] = n.inner[id.y];
  n.tail[i32(id.x) - 1] = 2.0;
  n.inner[id.x].c[2] = n.inner[0].c[id.z].yx;
  bump(&n.inner[1].b, 2.0);
  bump(field(chase(n), id.x), 1.0);
  o[0] = atomicAdd(&n.count, 1u);
  o[1] = u32(atomicMax(&n.level, -3));
  let r = atomicCompareExchangeWeak(&n.count, 1u, 2u);
  if r.exchanged { o[2] = r.old_value; }
  atomicStore(&n.level, atomicLoad(&n.level) - 1);
  let s = atomicCompareExchangeWeak(&n.level, 1, 2);
  o[3] = u32(s.old_value);
  q = usm_address(&n.inner[id.x].a);
  let all = *usm_Plain(q);
  let target_ = usm_Plain(usm_add(q, 256u));
  *target_ = all;
  while !usm_is_null(q) && usm_Outer(q).inner[0].b > 1.0 { q = usm_Outer(q).next; }
  o[4] = u32(usm_Floats(q)[id.x]);
";

#[test]
fn a_kernel_without_pointers_is_left_alone() {
    let source = kernel("", "o[0] = p.x;");
    let mut module = parse(&with_stubs(&source));
    let before = format!("{module:?}");
    assert_eq!(run(&mut module, 0, &unified()), Ok(None));
    assert_eq!(format!("{module:?}"), before);
    let mut disabled = unified();
    disabled.mode = TranslationMode::Disabled;
    assert_eq!(run(&mut module, 0, &disabled), Ok(None));
}

#[test]
fn disabled_refuses_pointers() {
    let options = PointerOptions {
        mode: TranslationMode::Disabled,
        ..unified()
    };
    let error = lower(&kernel(NODE, "_ = usm_Node(p).value;"), &options).unwrap_err();
    assert_eq!(error.kind, PointerErrorKind::Disabled);
    assert!(error.span.is_defined());
}

#[test]
fn everything_is_valid_under_every_option() {
    for options in every_option() {
        let (_, facts) = lowered(&kernel(EVERYTHING, EVERY_BODY), &options);
        assert_eq!(facts.element, HeapElement::AtomicSigned);
        assert!(facts.writes);
        assert_eq!(facts.sites.is_empty(), options.checked.is_none());
    }
}

#[test]
fn a_list_is_followed_by_loads_of_pairs_and_nothing_else() {
    let body = "var q = p; var sum = 0.0; loop { if usm_is_null(q) { break; } let n = usm_Node(q); sum += n.value; q = n.next; } o[id.x] = u32(sum);";
    let (text, facts) = lowered(&kernel(NODE, body), &unified());
    assert_eq!(facts.element, HeapElement::Pair);
    assert!(text.contains("array<vec2<u32>>"));
    // Of both loads, the first is of a component, and the second of a whole pair; the pointer is shifted once.
    assert_eq!(occurrences(&text, ">> 3u"), 1, "{text}");
    assert_eq!(occurrences(&text, "tombolo_heap["), 2, "{text}");
    assert_eq!(occurrences(&text, "if "), 1, "{text}");
}

#[test]
fn two_segments_test_a_pointer_once() {
    let body = "let n = usm_Node(p); o[0] = u32(n.value); o[1] = n.next.x;";
    let (text, _) = lowered(&kernel(NODE, body), &segmented(2));
    assert_eq!(occurrences(&text, "< 1048576u"), 1, "{text}");
}

#[test]
fn element_types_follow_the_accesses() {
    let element = |items: &str, body: &str| lowered(&kernel(items, body), &unified()).1.element;
    assert_eq!(
        element(
            "struct B { at: vec3<f32>, mass: f32 }",
            "o[0] = u32(usm_B(p).at.x);"
        ),
        HeapElement::Word
    );
    assert_eq!(
        element(
            "struct B { at: vec3<f32>, mass: f32 }",
            "let b = *usm_B(p); o[0] = u32(b.at.x);"
        ),
        HeapElement::Quad
    );
    assert_eq!(
        element("alias F = array<f32>;", "o[0] = u32(usm_F(p)[id.x]);"),
        HeapElement::Word
    );
    assert_eq!(
        element(
            "alias F = array<vec2f>;",
            "usm_F(p)[id.x] = vec2f(1.0);"
                .replace("usm_F(p)[id.x]", "let f = usm_F(p); f[id.x]")
                .as_str()
        ),
        HeapElement::Pair
    );
    assert_eq!(
        element("alias A = atomic<u32>;", "o[0] = atomicLoad(usm_A(p));"),
        HeapElement::AtomicWord
    );
}

#[test]
fn functions_that_use_pointers_and_are_not_reached_go() {
    let items =
        format!("{NODE} fn unused(q: ptr<storage, Node, read_write>) -> f32 {{ return q.value; }}");
    let source = kernel(&items, "o[0] = usm_Node(p).next.x;")
        + "@compute @workgroup_size(1) fn other() { let n = usm_Node(p); n.value = 1.0; }";
    let (text, facts) = lowered(&source, &unified());
    assert_eq!(facts.entry, 0);
    assert!(
        !text.contains("unused") && !text.contains("other"),
        "{text}"
    );
}

#[test]
fn refusals_name_what_is_wrong() {
    use PointerErrorKind as E;
    assert!(matches!(
        refused("struct S { deep: array<T, 2> } struct T { flag: bool }", "let s = usm_S(p); s.deep[0].flag = true;"),
        E::UnsupportedType { place, .. } if place == "S.deep[_].flag"
    ));
    assert!(matches!(
        refused("alias F = array<f32>;", "o[0] = arrayLength(usm_F(p));"),
        E::ArrayLength
    ));
    assert!(matches!(
        refused(
            &format!("{NODE} fn f(q: ptr<storage, u32, read_write>) {{ *q = 1u; }}"),
            "_ = usm_Node(p); f(&o[0]);"
        ),
        E::ForeignPointer
    ));
    assert!(matches!(
        refused(
            &format!("{NODE} fn f(q: ptr<storage, u32, read_write>) {{ *q = 1u; }}"),
            "f(&usm_Node(p).value);"
        ),
        E::PointeeMismatch { .. }
    ));
    assert!(matches!(
        refused(
            "struct A { u: atomic<u32>, i: atomic<i32> }",
            "let a = usm_A(p); atomicMax(&a.u, 1u); atomicMin(&a.i, 1);"
        ),
        E::MixedAtomics { bits: 32 }
    ));
    assert!(matches!(
        refused("alias A = array<u32, 2000>;", "let a = usm_A(p); *a = A();"),
        E::ValueTooLarge { words: 2000, .. }
    ));
    assert!(matches!(
        refused("alias A = array<u32, 4>;", "let a = usm_A(p); a[4] = 1u;"),
        E::IndexOutOfBounds {
            index: 4,
            count: 4,
            ..
        }
    ));
    let options = PointerOptions {
        capabilities: Capabilities::empty().bits(),
        ..unified()
    };
    let wide = lower(
        &kernel("struct W { a: u32, b: u64 }", "let w = usm_W(p); w.a = 1u;"),
        &options,
    );
    assert!(matches!(
        wide.unwrap_err().kind,
        E::UnsupportedType { place, .. } if place == "W.b"
    ));
}

#[test]
fn halves_and_wide_members_are_moved() {
    let items = "struct W { a: u64, b: i64, c: vec2<u64>, d: f64 }
        struct H { a: f16, b: vec2<f16>, c: vec3<f16>, d: vec4<f16>, e: array<f16, 5> } alias Halves = array<f16>;";
    let body = "let w = usm_W(p); w.a += 1lu; w.b = w.b - 1li; w.c = w.c.yx; w.d = w.d;
        let h = usm_H(p); h.a += 1.0h; h.b = h.b.yx; h.c = h.c.zyx; h.d = h.d; h.e[id.x] = h.e[3] + usm_Halves(p)[id.x]; let all = *h; *h = all;";
    for options in every_option() {
        let source = format!("enable f16;\n{}", kernel(items, body));
        let (_, facts) = lowered(&source, &options);
        assert_eq!(facts.element, HeapElement::AtomicWord);
    }
}

#[test]
fn a_single_half_is_found_in_elements_wider_than_words() {
    let items = "struct N { next: usm_ptr, half: f16 }";
    let body = "let n = usm_N(p); let q = n.next; o[0] = q.x ^ q.y ^ u32(n.half);";
    let source = format!("enable f16;\n{}", kernel(items, body));
    let (text, facts) = lowered(&source, &unified());
    assert_eq!(facts.element, HeapElement::Pair, "{text}");
    // The member lies in the first word of the second pair.
    assert_eq!(occurrences(&text, "+ 1u)].x"), 1, "{text}");
    assert_eq!(occurrences(&text, "+ 2u)]"), 0, "{text}");
}

#[test]
fn sites_tell_where_and_what() {
    let source = kernel(NODE, "let n = usm_Node(p);\n o[0] = u32(n.value);");
    let (text, facts) = lowered(&source, &checked(unified()));
    assert_eq!(facts.sites.len(), 1);
    let span = facts.sites[0].span.to_range().unwrap();
    assert_eq!(&source[span], "usm_Node(p)");
    assert_eq!(facts.sites[0].pointee, "Node");
    assert_eq!(facts.sites[0].function.as_deref(), Some("main"));
    assert_eq!(occurrences(&text, "tombolo_pointer_fault("), 2, "{text}");
    let fault = facts.fault([1, 1, 2, 7]).unwrap();
    assert_eq!(
        (fault.reason, fault.address, fault.invocation),
        (FaultReason::Misaligned, 0x2_0000_0001, 7)
    );
    assert_eq!(fault.site, facts.sites.first());
    assert_eq!(facts.fault([0; 4]), None);
}

#[test]
fn faults_are_told_apart_by_site_and_address() {
    let source = kernel(NODE, "let n = usm_Node(p);\n o[0] = u32(n.value);");
    let (_, mut facts) = lowered(&source, &checked(unified()));
    let mut behind = facts.sites[0].clone();
    behind.align = None;
    facts.sites.push(behind);
    let reason = |code, low, high| facts.fault([code, low, high, 0]).unwrap().reason;
    for (code, low, high, expected) in [
        (1, 0, 0, FaultReason::Null),
        (1, 0, 1, FaultReason::Outside),
        (1, 4096, 0, FaultReason::Outside),
        (1, 4097, 0, FaultReason::Misaligned),
        // An index has no alignment, and no address of its own that could be null.
        (2, 4096, 0, FaultReason::Index),
        (2, 4097, 0, FaultReason::Index),
        (2, 0, 0, FaultReason::Index),
        // A code that no pass has given: the address alone is known.
        (3, 4097, 0, FaultReason::Outside),
        (3, 0, 0, FaultReason::Null),
    ] {
        assert_eq!(reason(code, low, high), expected, "{code} {low} {high}");
    }
}

/// Two kernels that differ only in an override: the second decides the size of the work-group.
#[test]
fn overrides_pass_through() {
    let source = "override wide: u32 = 4; override by = 2.5;
        @group(0) @binding(0) var<uniform> p: usm_ptr;
        var<workgroup> scratch: array<f32, wide>;
        @compute @workgroup_size(wide * 2, 3) fn main(@builtin(local_invocation_index) i: u32) {
            let f = usm_f32(p); scratch[i % wide] = by; *f = *f * by + scratch[0]; }";
    let (module, _) = lower(source, &checked(unified())).unwrap().unwrap();
    let validate = |module: &Module| {
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), Capabilities::all())
            .validate(module)
            .unwrap()
    };
    let info = validate(&module);
    let constants = naga::back::PipelineConstants::from_iter([("wide".to_owned(), 16.0)]);
    let (module, _) = naga::back::pipeline_constants::process_overrides(
        &module,
        &info,
        Some((naga::ShaderStage::Compute, "main")),
        &constants,
    )
    .unwrap();
    validate(&module);
    assert_eq!(module.entry_points[0].workgroup_size, [32, 3, 1]);
}

#[test]
fn only_the_first_touch_in_a_block_is_noted() {
    let notes = |body: &str| {
        let (text, _) = lowered(&kernel(NODE, body), &checked(unified()));
        occurrences(&text, "tombolo_note_high = ")
    };
    assert_eq!(notes("let n = usm_Node(p); o[1] = 1u;"), 0);
    assert_eq!(
        notes(
            "let n = usm_Node(p); o[0] = u32(n.value); n.value = 1.0; if o[1] == 1u { n.value = 2.0; }"
        ),
        1
    );
    assert_eq!(
        notes("let n = usm_Node(p); if o[1] == 1u { n.value = 2.0; } n.value = 1.0;"),
        2
    );
}

#[test]
fn options_that_contradict_themselves_are_refused() {
    let source = kernel(NODE, "o[0] = usm_Node(p).next.x;");
    for options in [
        PointerOptions {
            memory: HeapMemory::Unified { segments: vec![] },
            ..unified()
        },
        PointerOptions {
            segment_bytes: 1000,
            ..segmented(2)
        },
        PointerOptions {
            window_aligned: false,
            ..unified()
        },
        PointerOptions {
            checked: Some(at(9)),
            ..unified()
        },
        split(1, 0, TranslationMode::DeviceFavored),
    ] {
        let error = lower(&source, &options).unwrap_err();
        assert!(
            matches!(error.kind, PointerErrorKind::Options(_)),
            "{error}"
        );
    }
}

#[test]
fn the_uniform_is_laid_out_as_documented() {
    let info = HeapInfo {
        base: 0x12_3456_7890,
        shared_bytes: 64,
        device_bytes: vec![512, 256, 1024, 256, 2048],
    };
    assert_eq!(
        info.words(),
        [
            0x3456_7890,
            0x12,
            64,
            0,
            512,
            256,
            1024,
            256,
            2048,
            0,
            0,
            0,
            0,
            2,
            3,
            7,
            8,
            0,
            0,
            0
        ]
    );
    assert_eq!(info.words().len() as u32, HeapInfo::len(5));
}
