//! Marking, finding and lowering device globals, on text.

use naga::Module;

use super::{Member, Unsized, canonical, lower, mark, used};
use crate::kernel::passes::tests_support::{BINDING, occurrences, parse, text};

fn marked(source: &str) -> Module {
    let mut module = parse(source);
    mark(&mut module).unwrap();
    module
}

fn names(module: &Module, entry: usize) -> Vec<String> {
    let used = used(module, entry);
    let name = |handle: naga::Handle<naga::GlobalVariable>| {
        module.global_variables[handle].name.clone().unwrap()
    };
    used.into_iter().map(name).collect()
}

const SOURCE: &str = "
struct Body { mass: f32, at: vec3<f32> }
var<storage, read_write> hits: array<atomic<u32>, 4>;
var<storage, read> table: array<f32, 3>;
var<storage, read_write> body: Body;
var<storage, read_write> unused: mat3x3<f32>;
var<private> mine: u32;
@group(0) @binding(0) var<storage, read_write> sink: array<f32>;
fn weigh(i: u32) -> f32 { return table[i] * body.mass; }
fn count(i: u32) { atomicAdd(&hits[i], 1u); mine += i; }
@compute @workgroup_size(4) fn both(@builtin(local_invocation_index) i: u32) {
    if i < 3u { sink[i] = weigh(i); }
    loop { count(i); if sink[0] > 1.0 { break; } continuing { body.at.y += 1.0; } }
    let place = &body.at;
    switch i { case 1u: { (*place).x = f32(mine); } default: { return; } }
}
@compute @workgroup_size(1) fn none() { sink[0] = 1.0; }
@compute @workgroup_size(1) fn other() { unused[0].x = 2.0; }";

#[test]
fn variables_without_a_binding_are_found_where_they_are_reached() {
    let module = marked(SOURCE);
    assert_eq!(names(&module, 0), ["hits", "table", "body"]);
    assert_eq!(names(&module, 1), Vec::<String>::new());
    assert_eq!(names(&module, 2), ["unused"]);
    let bound = module.global_variables.iter();
    let sink = bound
        .map(|(_, v)| v)
        .find(|v| v.name.as_deref() == Some("sink"));
    assert_eq!(sink.unwrap().binding.unwrap().group, 0);
}

#[test]
fn they_become_members_at_their_places() {
    let mut module = marked(SOURCE);
    // Out of order, and with gaps.
    let members = [(2, 272), (0, 16), (1, 1024)];
    let members = members.map(|(number, offset)| Member { number, offset });
    let bytes = lower(&mut module, 0, &members, BINDING);
    assert_eq!(bytes, 1040);
    let written = text(&module, SOURCE);
    assert_eq!(module.entry_points.len(), 1);
    assert_eq!(occurrences(&written, "var<storage"), 2, "{written}");
    assert!(written.contains("tombolo_globals.hits["), "{written}");
    assert!(written.contains("tombolo_globals.table["), "{written}");
    assert!(!written.contains("unused"), "{written}");
    let globals = module
        .types
        .iter()
        .find(|(_, t)| t.name.as_deref() == Some("TomboloGlobals"));
    let naga::TypeInner::Struct { members, span } = &globals.unwrap().1.inner else {
        panic!("a structure");
    };
    let offsets: Vec<_> = members
        .iter()
        .map(|m| (m.name.clone().unwrap(), m.offset))
        .collect();
    let expected = [
        ("tombolo_gap_0", 0),
        ("hits", 16),
        ("tombolo_gap_2", 32),
        ("body", 272),
        ("tombolo_gap_4", 304),
        ("table", 1024),
    ];
    assert_eq!(offsets, expected.map(|(name, at)| (name.to_owned(), at)));
    assert_eq!(*span, 1040);
    // WGSL's own rules for the written structure give the same.
    let again = parse(&written);
    let again = again
        .types
        .iter()
        .find(|(_, t)| t.name.as_deref() == Some("TomboloGlobals"));
    let naga::TypeInner::Struct { members, span } = &again.unwrap().1.inner else {
        panic!("a structure");
    };
    let offsets: Vec<_> = members.iter().map(|m| m.offset).collect();
    assert_eq!(
        (offsets, *span),
        (expected.map(|(_, at)| at).to_vec(), 1040)
    );
}

#[test]
fn a_kernel_that_only_reads_gets_a_binding_to_read() {
    let source = "
        var<storage, read> table: array<f32, 3>;
        @group(0) @binding(0) var<storage, read_write> sink: f32;
        @compute @workgroup_size(1) fn main() { sink = table[1]; }";
    let mut module = marked(source);
    lower(
        &mut module,
        0,
        &[Member {
            number: 0,
            offset: 256,
        }],
        BINDING,
    );
    let written = text(&module, source);
    assert!(
        written.contains("var<storage> tombolo_globals"),
        "{written}"
    );
}

#[test]
fn names_of_values_stay_with_their_values() {
    let source = "
        var<storage, read_write> a: u32;
        var<storage, read_write> b: u32;
        @compute @workgroup_size(1) fn main() { let sum = a + b; let twice = sum * 2u; a = twice; b = sum; }";
    let mut module = marked(source);
    let members = [(0, 256), (1, 272)].map(|(number, offset)| Member { number, offset });
    lower(&mut module, 0, &members, BINDING);
    let written = text(&module, source);
    assert!(written.contains("let sum = "), "{written}");
    assert!(written.contains("let twice = (sum * 2u)"), "{written}");
}

#[test]
fn a_variable_without_a_size_is_refused() {
    for (source, name) in [
        ("var<storage, read_write> list: array<u32>;", "list"),
        (
            "struct S { n: u32, rest: array<f32> } var<storage> tail: S;",
            "tail",
        ),
    ] {
        let Unsized { name: found, span } = mark(&mut parse(source)).unwrap_err();
        assert_eq!(found, name);
        assert!(span.to_range().is_some());
    }
}

#[test]
fn a_module_without_globals_stays_as_it_is() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> sink: f32;
        @compute @workgroup_size(1) fn main() { sink = 1.0; }";
    let before = parse(source);
    let after = marked(source);
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn types_are_compared_by_what_they_are_and_not_by_their_names() {
    let of = |ty: &str, items: &str| {
        let source = format!("{items} var<storage, read_write> v: {ty};");
        let module = parse(&source);
        let (_, variable) = module.global_variables.iter().next().unwrap();
        canonical(&module, variable.ty)
    };
    let same = |a: (&str, &str), b: (&str, &str)| of(a.0, a.1) == of(b.0, b.1);
    assert!(same(("array<u32, 4>", ""), ("array<atomic<u32>, 4>", "")));
    assert!(same(
        ("Four", "alias Four = array<u32, 4>;"),
        ("array<u32, 4>", "")
    ));
    assert!(same(
        ("A", "struct A { x: f32, y: vec2f }"),
        ("B", "struct B { x: f32, y: vec2<f32> }")
    ));
    assert!(!same(("u32", ""), ("f32", "")));
    assert!(!same(("array<u32, 4>", ""), ("array<u32, 5>", "")));
    assert!(!same(("array<vec3f, 4>", ""), ("array<vec4f, 4>", "")));
    assert!(!same(
        ("A", "struct A { x: f32, y: f32 }"),
        ("A", "struct A { y: f32, x: f32 }")
    ));
    assert!(!same(
        ("A", "struct A { x: u32 }"),
        ("A", "struct A { @size(8) x: u32 }")
    ));
}
