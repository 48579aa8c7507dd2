//! Tests of the comparison of Rust structures with WGSL structures. Offsets and sizes that are expected follow from
//! the WGSL specification, "Alignment and Size", and from the rules of `#[repr(C)]`.

use super::*;
use crate::kernel::Program;
use crate::memory::Ptr;

#[allow(dead_code)]
#[repr(C)]
struct Node {
    value: f32,
    tag: u32,
    next: Ptr<Node>,
}

const NODE: RustLayout = layout_of!(Node { value, tag, next });

#[allow(dead_code)]
#[repr(C)]
struct Particle {
    speed: f32,
    at: [f32; 3],
    mass: f32,
}

const PARTICLE: RustLayout = layout_of!(Particle { speed, at, mass });

pub(super) fn program(source: &str) -> Program {
    Program::new("layouts.wgsl", source).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn difference(source: &str, name: &str, rust: &RustLayout) -> LayoutDifference {
    match program(source).check_layout(name, rust) {
        Err(LayoutMismatch::Differs(difference)) => *difference,
        other => panic!("{source}: {other:?}"),
    }
}

/// Each fault as a field and its offset in bytes.
pub(super) fn off(source: &str, name: &str, rust: &RustLayout) -> Vec<(String, Option<i64>)> {
    let faults = difference(source, name, rust).faults;
    let short = |f: &LayoutFault| (f.field().to_owned(), f.off_by());
    faults.iter().map(short).collect()
}

pub(super) fn faults<const N: usize>(list: [(&str, Option<i64>); N]) -> Vec<(String, Option<i64>)> {
    list.iter().map(|(f, by)| ((*f).to_owned(), *by)).collect()
}

#[test]
fn a_layout_says_what_the_compiler_says() {
    let fields: Vec<_> = (NODE.fields.iter())
        .map(|f| (f.name(), f.type_name(), f.offset(), f.size(), f.align()))
        .collect();
    assert_eq!((NODE.name, NODE.size, NODE.align), ("Node", 16, 8));
    assert_eq!(
        fields,
        [
            ("value", "f32".to_owned(), 0, 4, 4),
            ("tag", "u32".to_owned(), 4, 4, 4),
            ("next", "Ptr<Node>".to_owned(), 8, 8, 8),
        ]
    );
}

#[test]
fn a_vec3_is_further_on() {
    let source = "struct Particle { speed: f32, at: vec3<f32>, mass: f32 }";
    let difference = difference(source, "Particle", &PARTICLE);
    assert_eq!(
        off(source, "Particle", &PARTICLE),
        faults([("at", Some(12)), ("mass", Some(12)), ("", Some(12))])
    );
    let shown = difference.to_string();
    assert!(shown.contains(
        "`at` lies at byte 4 in Rust and at byte 16 in WGSL, 12 bytes too early; \
         WGSL aligns `vec3<f32>` to 16 bytes: add `_pad: [u8; 12]` before `at` in Rust\n"
    ));
    // Only the cause has a remedy.
    assert_eq!(shown.matches("_pad").count(), 1);
    assert!(shown.contains("Rust `Particle`: 20 bytes, align 4"));
    assert!(shown.contains("WGSL `Particle`: 32 bytes, align 16"));
    assert!(shown.contains("  ! 4..16     at: [f32; 3]"));
    assert!(shown.contains("| 16..28    at: vec3<f32>"));
    assert!(shown.contains("    0..4      speed: f32"));
}

#[test]
fn a_vec3_of_four_pushes_what_follows_by_four() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Ball {
        at: [f32; 4],
        mass: f32,
        _pad: [u32; 3],
    }
    let layout = layout_of!(Ball { at, mass, _pad });
    let source = "struct Ball { at: vec3<f32>, mass: f32 }";
    assert_eq!(
        off(source, "Ball", &layout),
        faults([("mass", Some(-4)), ("", Some(-16))])
    );
    let shown = difference(source, "Ball", &layout).to_string();
    assert!(shown.contains("4 bytes too late"), "{shown}");
    assert!(
        shown.contains("write `@size(16)` before `at` in WGSL"),
        "{shown}"
    );
    // The remedy holds.
    let source = "struct Ball { @size(16) at: vec3<f32>, mass: f32 }";
    assert!(program(source).check_layout("Ball", &layout).is_ok());
}

#[test]
fn the_remedies_for_rust_hold() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Padded {
        speed: f32,
        _pad: [u8; 12],
        at: [f32; 3],
        mass: f32,
    }
    let layout = layout_of!(Padded {
        speed,
        _pad,
        at,
        mass
    });
    let source = "struct Particle { speed: f32, at: vec3<f32>, mass: f32 }";
    assert!(program(source).check_layout("Particle", &layout).is_ok());
}

#[test]
fn several_remedies_hold_together() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Three {
        a: f32,
        b: [f32; 3],
        c: f32,
        d: f32,
        e: [f32; 2],
        f: Ptr<Three>,
    }
    let source = "struct Three { a: f32, b: vec3<f32>, c: f32, @align(16) d: f32, e: vec2<f32>, f: usm_ptr }";
    let shown = difference(source, "Three", &layout_of!(Three { a, b, c, d, e, f })).to_string();
    assert!(shown.contains("aligns `vec3<f32>` to 16 bytes: add `_pad: [u8; 12]` before `b`"));
    assert!(shown.contains("aligns `vec2<f32>` to 8 bytes: add `_pad: [u8; 4]` before `e`"));
    assert_eq!(shown.matches("_pad").count(), 2);
    #[allow(dead_code)]
    #[repr(C)]
    struct Mended {
        a: f32,
        _pad1: [u8; 12],
        b: [f32; 3],
        c: f32,
        d: f32,
        _pad2: [u8; 4],
        e: [f32; 2],
        f: Ptr<Three>,
    }
    let layout = layout_of!(Mended {
        a,
        _pad1,
        b,
        c,
        d,
        _pad2,
        e,
        f
    });
    let left = difference(source, "Three", &layout);
    assert_eq!(off(source, "Three", &layout), faults([("", Some(8))]));
    assert!(left.to_string().contains("add `_pad: [u8; 8]` at the end"));
}

#[test]
fn swapped_fields_are_told_by_name() {
    let source = "struct Node { tag: u32, value: f32, next: vec2<u32> }";
    assert_eq!(
        off(source, "Node", &NODE),
        faults([("value", Some(4)), ("tag", Some(-4))])
    );
    let shown = difference(source, "Node", &NODE).to_string();
    assert!(
        shown.contains("stand in another order in WGSL: `tag`, `value`, `next`"),
        "{shown}"
    );
    assert!(!shown.contains("_pad"));
}

#[test]
fn structures_in_the_order_of_rust_are_suspected() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Swapped {
        tag: u32,
        value: f32,
        next: Ptr<Node>,
    }
    // As if Rust had placed the fields as it liked.
    let layout = layout_of!(Swapped { value, tag, next });
    let source = "struct Node { value: f32, tag: u32, next: vec2<u32> }";
    let notes = difference(source, "Node", &layout).notes;
    assert!(
        notes
            .iter()
            .any(|n| n.ends_with("is `Swapped` `#[repr(C)]`?"))
    );
}

#[test]
fn missing_fields_are_told_on_both_sides() {
    let source = "struct Node { value: f32, next: vec2<u32> }";
    assert_eq!(off(source, "Node", &NODE), faults([("tag", None)]));
    assert!(matches!(
        difference(source, "Node", &NODE).faults[..],
        [LayoutFault::MissingInWgsl { .. }]
    ));
    let source = "struct Node { value: f32, colour: vec2<u32>, tag: u32, next: vec2<u32> }";
    let found = difference(source, "Node", &NODE);
    assert_eq!(
        found.faults[0],
        LayoutFault::MissingInRust {
            field: "colour".to_owned(),
            offset: 8,
            size: 8
        }
    );
    assert_eq!(
        off(source, "Node", &NODE)[1..],
        faults([("tag", Some(12)), ("next", Some(16)), ("", Some(16))])
    );
    assert!(
        found
            .to_string()
            .contains("`colour` lies before it in WGSL")
    );
    // Once `tag` is where it belongs, Rust's own alignment does the rest.
    assert!(!found.to_string().contains("_pad"), "{found}");
    assert!(found.to_string().contains("| 8..16     colour: vec2<u32>"));
}

#[test]
fn wrong_sizes_are_told() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Wide {
        value: f64,
        tag: u32,
    }
    let layout = layout_of!(Wide { value, tag });
    let source = "struct Wide { value: f32, tag: u32 }";
    assert_eq!(
        off(source, "Wide", &layout),
        faults([("value", Some(-4)), ("tag", Some(-4)), ("", Some(-8))])
    );
    let shown = difference(source, "Wide", &layout).to_string();
    assert!(shown.contains(
        "`value` has 8 bytes in Rust and 4 in WGSL, 4 bytes too many; declare it as `f32` in Rust"
    ));
    assert!(shown.contains("value: f64"));
}

#[test]
fn pointers_are_eight_bytes() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Short {
        tag: u32,
        next: u32,
    }
    let source = "struct Short { tag: u32, next: usm_ptr }";
    let layout = layout_of!(Short { tag, next });
    let shown = difference(source, "Short", &layout).to_string();
    assert!(shown.contains("`next` has 4 bytes in Rust and 8 in WGSL, 4 bytes too few; declare it as `tombolo::Ptr<_>` in Rust"), "{shown}");
    // `usm_ptr` is aligned like the pointer is.
    #[allow(dead_code)]
    #[repr(C)]
    struct Link {
        tag: u32,
        next: Ptr<Link>,
    }
    let layout = layout_of!(Link { tag, next });
    let source = "struct Link { tag: u32, next: usm_ptr }";
    assert!(program(source).check_layout("Link", &layout).is_ok());
}

#[test]
fn a_missing_end_is_told() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Sphere {
        at: [f32; 3],
    }
    let source = "struct Sphere { at: vec3<f32> }";
    let layout = layout_of!(Sphere { at });
    assert_eq!(off(source, "Sphere", &layout), faults([("", Some(4))]));
    let shown = difference(source, "Sphere", &layout).to_string();
    assert!(shown.contains("the whole has 12 bytes in Rust and 16 in WGSL, 4 bytes too few"));
    assert!(shown.contains("add `_pad: [u8; 4]` at the end of the Rust struct"));
    // The other way round: Rust is rounded up, WGSL is not.
    #[allow(dead_code)]
    #[repr(C, align(16))]
    struct Aligned {
        a: f32,
        b: f32,
    }
    let source = "struct Aligned { a: f32, b: f32 }";
    let layout = layout_of!(Aligned { a, b });
    assert_eq!(off(source, "Aligned", &layout), faults([("", Some(-8))]));
    let shown = difference(source, "Aligned", &layout).to_string();
    assert!(shown.contains("write `@size(12)` before `b`"), "{shown}");
    let source = "struct Aligned { a: f32, @size(12) b: f32 }";
    assert!(program(source).check_layout("Aligned", &layout).is_ok());
}

#[test]
fn runtime_sized_arrays_may_be_left_to_rust() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Header {
        count: u32,
        _pad: u32,
    }
    let source = "struct List { count: atomic<u32>, items: array<vec2<u32>> }";
    let program = program(source);
    let layout = layout_of!(Header { count, _pad });
    assert!(program.check_layout("List", &layout).is_ok());
    for size in [0, 1, 3] {
        #[allow(dead_code)]
        #[repr(C)]
        struct List<const N: usize> {
            count: u32,
            items: [[u32; 2]; N],
        }
        #[allow(dead_code)]
        #[repr(C)]
        struct Placed<const N: usize> {
            count: u32,
            _pad: u32,
            items: [[u32; 2]; N],
        }
        type Elements1 = Placed<1>;
        let layout = match size {
            0 => layout_of!(Placed::<0> { count, _pad, items }),
            1 => layout_of!(Elements1 { count, _pad, items }),
            _ => layout_of!(Placed<3> { count, _pad, items }),
        };
        assert!(program.check_layout("List", &layout).is_ok(), "{size}");
        let layout = layout_of!(List<3> { count, items });
        assert_eq!(off(source, "List", &layout), faults([("items", Some(4))]));
    }
    #[allow(dead_code)]
    #[repr(C)]
    struct Tight {
        count: u32,
    }
    let layout = layout_of!(Tight { count });
    assert_eq!(off(source, "List", &layout), faults([("", Some(4))]));
    let shown = difference(source, "List", &layout).to_string();
    assert!(shown.contains("`items` begins behind it: add `_pad: [u8; 4]`"));
}

#[test]
fn arrays_and_matrices_with_gaps_say_their_rust_type() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Gaps {
        turn: [[f32; 3]; 3],
        _pad: [u32; 3],
        all: [[f32; 3]; 2],
    }
    let layout = layout_of!(Gaps { turn, _pad, all });
    let source = "struct Gaps { turn: mat3x3<f32>, all: array<vec3<f32>, 2> }";
    let shown = difference(source, "Gaps", &layout).to_string();
    assert!(shown.contains("`turn` has 36 bytes in Rust and 48 in WGSL, 12 bytes too few; declare it as `[[f32; 4]; 3]` in Rust"));
    assert!(shown.contains("`all` has 24 bytes in Rust and 32 in WGSL, 8 bytes too few; declare it as `[[f32; 4]; 2]` in Rust"));
}

#[test]
fn rust_aligned_beyond_wgsl_asks_for_align() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Key {
        tag: u32,
        key: u64,
    }
    let layout = layout_of!(Key { tag, key });
    let source = "struct Key { tag: u32, key: array<u32, 2> }";
    let shown = difference(source, "Key", &layout).to_string();
    assert!(shown.contains("Rust aligns `key` to 8 bytes: write `@align(8)` before it in WGSL"));
    let source = "struct Key { tag: u32, @align(8) key: array<u32, 2> }";
    assert!(program(source).check_layout("Key", &layout).is_ok());
}

#[test]
fn packed_structures_and_names_within_modules() {
    mod deep {
        #[allow(dead_code)]
        #[repr(C, packed)]
        pub struct Packed {
            pub a: u8,
            pub b: u32,
        }
    }
    const LAYOUT: RustLayout = layout_of!(deep::Packed { a, b });
    assert_eq!((LAYOUT.size, LAYOUT.fields[1].offset()), (5, 1));
    let names = [
        ("f32", "f32"),
        ("tombolo::memory::Ptr<a::b::Node>", "Ptr<Node>"),
        ("[a::Body; 4]", "[Body; 4]"),
        ("(a::B, &[c::D<e::F, 3>])", "(B, &[D<F, 3>])"),
    ];
    for (long, short) in names {
        assert_eq!(render::without_modules(long), short);
    }
}
