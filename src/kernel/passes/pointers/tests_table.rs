//! The argument table, and pointers into its variables as arguments and results of functions.

use naga::ResourceBinding;

use super::super::tests_support::{occurrences, parse};
use super::tests::{at, every_option, lower, lowered, row, unified, with_stubs};
use super::*;

const fn g0(binding: u32) -> ResourceBinding {
    ResourceBinding { group: 0, binding }
}

fn with_table(options: PointerOptions, rows: Vec<TableRow>) -> PointerOptions {
    PointerOptions {
        arguments: Some(ArgumentTable {
            binding: at(10),
            rows,
        }),
        ..options
    }
}

const PASSED: &str = "alias Words = array<u32>;
    struct Tail { n: u32, tail: array<u32> }
    @group(0) @binding(0) var<storage, read_write> o: array<u32>;
    @group(0) @binding(1) var<storage, read_write> a: Words;
    @group(0) @binding(2) var<storage, read_write> t: Tail;
    @group(0) @binding(3) var<storage, read_write> bound: Words;
    @group(0) @binding(4) var<uniform> p: usm_ptr;
    fn put(w: ptr<storage, Words, read_write>, i: u32) { w[i] = 1u; }
    fn of_heap(w: ptr<storage, Words, read_write>, i: u32) { w[i] = 2u; }
    fn count(w: ptr<storage, Words, read_write>) -> u32 { return arrayLength(w); }
    fn same(w: ptr<storage, Words, read_write>) -> ptr<storage, Words, read_write> { return w; }
    fn whole(w: ptr<storage, Tail, read_write>, i: u32) { put(&w.tail, i); }
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        put(&a, id.x); put(same(&a), id.y); whole(&t, id.z); of_heap(usm_Words(p), id.x);
        bound[id.x] = count(&t.tail);
    }";

fn entry_of(source: &str) -> naga::Module {
    parse(&with_stubs(source))
}

#[test]
fn what_is_passed_to_functions_is_found() {
    let module = entry_of(PASSED);
    let found = passed(&module, &module.entry_points[0].function);
    assert_eq!(found, [g0(1), g0(2)]);
    let returned = "alias Words = array<u32>;
        @group(0) @binding(1) var<storage, read_write> a: Words;
        @group(0) @binding(2) var<uniform> u: vec4<u32>;
        var<workgroup> w: array<u32, 4>;
        fn other() -> ptr<storage, Words, read_write> { return &a; }
        fn local(p: ptr<workgroup, array<u32, 4>>) { p[0] = u.x; }
        @compute @workgroup_size(1) fn main() { let o = other(); o[0] = 1u; local(&w); }";
    let module = entry_of(returned);
    assert_eq!(passed(&module, &module.entry_points[0].function), [g0(1)]);
}

#[test]
fn passed_variables_are_valid_under_every_option() {
    for options in every_option() {
        for align in [4, 16] {
            let rows = [1, 2].map(|binding| TableRow {
                variable: g0(binding),
                align,
            });
            let (text, facts) = lowered(PASSED, &with_table(options.clone(), rows.to_vec()));
            assert!(facts.follows && facts.writes, "{text}");
        }
    }
}

/// The bytes behind a pointer are passed where a variable of the table may be meant, and nowhere else.
#[test]
fn limits_go_with_the_pointers_they_are_for() {
    let rows = vec![row(g0(1)), row(g0(2))];
    let (text, _) = lowered(PASSED, &with_table(unified(), rows));
    let body = |name: &str| {
        let start = text.find(&format!("fn {name}(")).unwrap();
        let rest = &text[start..];
        rest[..rest.find("\n}").unwrap()].to_owned()
    };
    for (name, pointer) in [
        ("put", "vec2<u32>"),
        ("of_heap", "u32"),
        ("count", "vec2<u32>"),
        ("same", "vec2<u32>"),
        ("whole", "vec2<u32>"),
    ] {
        let signature = body(name);
        let parameter = signature.split([':', ',', ')']).nth(1).map(str::trim);
        assert_eq!(parameter, Some(pointer), "{name}\n{text}");
    }
    assert!(body("same").contains("-> vec2<u32>"), "{text}");
    assert_eq!(occurrences(&body("put"), "min("), 1, "{text}");
    assert_eq!(occurrences(&body("of_heap"), "min("), 0, "{text}");
    // The tail begins behind the first word.
    assert!(body("whole").contains("- 4u"), "{text}");
}

#[test]
fn pointers_of_both_kinds_share_a_function() {
    let source = PASSED.replace("of_heap(usm", "put(usm");
    let rows = vec![row(g0(1)), row(g0(2))];
    let (text, _) = lowered(&source, &with_table(unified(), rows.clone()));
    // Memory behind an address has no limit.
    assert!(text.contains("4294967295u"), "{text}");
    // A length is known only where all have one.
    let source = source.replace("put(usm_Words(p), id.x);", "o[0] = count(usm_Words(p));");
    let refused = lower(&source, &with_table(unified(), rows)).unwrap_err();
    assert_eq!(refused.kind, PointerErrorKind::ArrayLength);
}

#[test]
fn variables_at_odd_words_are_moved_in_words() {
    let source = "@group(0) @binding(1) var<storage, read_write> v: array<vec4<f32>>;
        @compute @workgroup_size(1) fn main() { v[1] = v[0] * 2.0; }";
    let aligned = with_table(unified(), vec![row(g0(1))]);
    assert_eq!(lowered(source, &aligned).1.element, HeapElement::Quad);
    let odd = TableRow {
        align: 4,
        ..row(g0(1))
    };
    let odd = with_table(unified(), vec![odd]);
    assert_eq!(lowered(source, &odd).1.element, HeapElement::Word);
}

#[test]
fn what_only_reads_is_not_written_through() {
    let source = |access: &str, parameter: &str| {
        format!(
            "alias Words = array<u32>;
            @group(0) @binding(1) var<storage, {access}> a: Words;
            fn put(w: ptr<storage, Words, {parameter}>) {{ w[0] = 1u; }}
            @compute @workgroup_size(1) fn main() {{ put(&a); }}"
        )
    };
    for (access, parameter) in [
        ("read", "read"),
        ("read", "read_write"),
        ("read_write", "read"),
    ] {
        let options = with_table(unified(), vec![row(g0(1))]);
        let refused = lower(&source(access, parameter), &options).unwrap_err();
        assert!(
            matches!(refused.kind, PointerErrorKind::ReadOnly { .. }),
            "{refused}"
        );
    }
    let options = with_table(unified(), vec![row(g0(1))]);
    assert!(lower(&source("read_write", "read_write"), &options).is_ok());
}

#[test]
fn variables_of_the_table_are_reached_through_the_heap() {
    let source = "struct S { n: u32, m: mat3x3<f32>, tail: array<vec2<f32>> }
        @group(0) @binding(0) var<storage, read_write> o: array<u32>;
        @group(0) @binding(1) var<storage> a: array<f32>;
        @group(0) @binding(2) var<storage, read_write> s: S;
        fn half(i: u32) -> f32 { return a[i] / 2.0; }
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            s.tail[id.x] = vec2(half(id.x)) + s.tail[2]; s.m[id.y][id.z] = 1.0;
            o[0] = arrayLength(&a) + arrayLength(&s.tail); }";
    for options in every_option() {
        let table = ArgumentTable {
            binding: at(10),
            rows: vec![row(g0(1)), row(g0(2))],
        };
        let options = PointerOptions {
            arguments: Some(table),
            ..options
        };
        let (text, facts) = lowered(source, &options);
        assert!(text.contains("array<vec4<u32>, 2>"), "{text}");
        assert!(facts.writes && !facts.follows);
        assert_eq!(facts.sites.is_empty(), options.checked.is_none());
        assert_eq!(facts.element, HeapElement::Word);
        // Both are used by nothing any more.
        assert_eq!(
            occurrences(&text, "s.tail") + occurrences(&text, "(&a)"),
            0,
            "{text}"
        );
    }
    let unused = ArgumentTable {
        binding: at(10),
        rows: vec![row(at(11))],
    };
    let options = PointerOptions {
        arguments: Some(unused),
        ..unified()
    };
    let mut module = parse(source);
    assert_eq!(run(&mut module, 0, &options), Ok(None));
}
