//! Tests of the comparison of structures within structures.

use std::sync::atomic::AtomicU32;

use super::tests::{difference, faults, off, program};
use super::*;

#[allow(dead_code)]
#[repr(C)]
struct Inner {
    at: [f32; 3],
    mass: f32,
}

#[allow(dead_code)]
#[repr(C)]
struct Outer {
    body: Inner,
    more: [Inner; 2],
    count: AtomicU32,
    _pad: [u32; 3],
}

#[test]
fn nested_structures_are_compared_too() {
    let layout = layout_of!(Outer {
        body: Inner { at, mass },
        more: [Inner { at, mass => weight }],
        count,
        _pad,
    });
    // The two nested structures are the same in WGSL, so one of the names must be missing.
    let source = "struct Inner { at: vec3<f32>, weight: f32 }
        struct Outer { body: Inner, more: array<Inner, 2>, count: atomic<u32> }";
    assert_eq!(
        off(source, "Outer", &layout),
        faults([("body.mass", None), ("body.weight", None)])
    );
    let layout = layout_of!(Outer {
        body: Inner { at, mass },
        more: [Inner { at, mass }],
        count => counter,
        _pad
    });
    let source = "struct Inner { mass: f32, at: vec3<f32> }
        struct Outer { body: Inner, more: array<Inner, 2>, counter: atomic<u32> }";
    let found = off(source, "Outer", &layout);
    let expected = faults([
        ("body.at", Some(16)),
        ("body.mass", Some(-12)),
        ("body", Some(16)),
        ("more[].at", Some(16)),
        ("more[].mass", Some(-12)),
        ("more[]", Some(16)),
        ("more", Some(16)),
        ("count", Some(48)),
        ("", Some(48)),
    ]);
    assert_eq!(found, expected);
    let source = "struct Inner { at: vec3<f32>, mass: f32 }
        struct Outer { body: Inner, more: array<Inner, 2>, counter: atomic<u32> }";
    assert!(program(source).check_layout("Outer", &layout).is_ok());
    let source = "struct Outer { body: vec4<f32>, more: array<vec4<f32>, 2>, counter: u32, @align(16) _p: u32 }";
    let found = difference(source, "Outer", &layout).faults;
    assert!(
        matches!(&found[0], LayoutFault::Kind { field, wgsl } if field == "body" && wgsl == "vec4<f32>")
    );
}

shared! {
    /// Declared once.
    #[derive(Clone, Copy)]
    #[allow(dead_code)]
    struct Cell {
        at: [f32; 3],
        r#loop: u32,
    }

    #[allow(dead_code)]
    pub(crate) struct Grid {
        first: Cell,
        cells: [Cell; 2],
        sum: AtomicU32,
        _pad: [u32; 3],
    }
}

#[test]
fn shared_structures_know_their_insides() {
    let nested: Vec<_> = (Grid::LAYOUT.fields.iter())
        .map(|f| f.nested().map(|n| n.name))
        .collect();
    assert_eq!(nested, [Some("Cell"), Some("Cell"), None, None]);
    assert_eq!(Cell::LAYOUT.fields[1].member_name(), Some("loop"));
    let source = "struct Cell { at: vec3<f32>, id: u32 }
        struct Grid { first: Cell, cells: array<Cell, 2>, sum: u32 }";
    let found = off(source, "Grid", &Grid::LAYOUT);
    assert_eq!(found[0], ("first.loop".to_owned(), None));
    assert_eq!(found[2], ("cells[].loop".to_owned(), None));
    // Named without being spelled out.
    let layout = layout_of!(Grid {
        first: Cell,
        cells: [Cell],
        sum,
        _pad
    });
    assert_eq!(off(source, "Grid", &layout), found);
}
