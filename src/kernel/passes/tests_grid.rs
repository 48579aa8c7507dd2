//! The logical grid, by the pass's output as text.

use super::grid;
use super::tests_support::{BINDING, occurrences, parse, text};

fn transformed(source: &str, entry: usize) -> String {
    let mut module = parse(source);
    assert!(grid::run(&mut module, entry, BINDING));
    text(&module, source)
}

#[test]
fn direct_arguments_become_those_of_the_grid() {
    let written = transformed(
        "@group(0) @binding(0) var<storage, read_write> o: array<vec3<u32>>;
        @compute @workgroup_size(4, 3, 2) fn main(
            @builtin(workgroup_id) w: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>,
            @builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) c: vec3<u32>,
            @builtin(local_invocation_index) i: u32) {
            o[i] = w + l + g + c;
            let p = o[g.x];
            o[w.y] = p;
        }",
        0,
    );
    assert!(written.contains("base: vec3<u32>"), "{written}");
    assert!(
        written.contains("var<uniform> tombolo_grid: TomboloGrid"),
        "{written}"
    );
    assert!(written.contains("@group(3) @binding(7)"), "{written}");
    assert!(written.contains("vec3<u32>(4u, 3u, 2u)"), "{written}");
    assert!(
        written.contains("@compute @workgroup_size(4, 3, 2)"),
        "{written}"
    );
    // Twice: for the work-group, and for the invocation.
    assert_eq!(occurrences(&written, "tombolo_grid.base"), 2, "{written}");
    assert_eq!(occurrences(&written, "tombolo_grid.groups"), 1, "{written}");
    let call = "main_body((w + _e3), l, (g + (_e9 * vec3<u32>(4u, 3u, 2u))), _e19, i);";
    assert!(written.contains(call), "{written}");
}

#[test]
fn struct_arguments_are_put_together_again() {
    let source = "struct A { @builtin(workgroup_id) w: vec3<u32>, @builtin(local_invocation_index) i: u32 }
        struct B { @builtin(num_workgroups) c: vec3<u32>, @builtin(global_invocation_id) g: vec3<u32> }
        struct C { @builtin(local_invocation_id) l: vec3<u32> }
        @group(0) @binding(0) var<storage, read_write> o: array<vec3<u32>>;
        fn total(a: A, b: B) -> vec3<u32> { return a.w + b.c + b.g; }
        @compute @workgroup_size(64) fn main(a: A, b: B, c: C) { o[a.i] = total(a, b) + c.l; }";
    let written = transformed(source, 0);
    assert_eq!(occurrences(&written, "tombolo_grid.base"), 2, "{written}");
    assert_eq!(occurrences(&written, "tombolo_grid.groups"), 1, "{written}");
    let body = "fn main_body(a_2: A, b_2: B, c_1: C)";
    assert!(written.contains(body), "{written}");
    assert!(written.contains("fn main("), "{written}");
}

#[test]
fn a_kernel_that_takes_none_of_them_is_left_alone() {
    let source = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) { o[i] = i; }";
    let mut module = parse(source);
    let before = format!("{module:?}");
    assert!(!grid::run(&mut module, 0, BINDING));
    assert!(!grid::run(&mut module, 5, BINDING));
    assert_eq!(format!("{module:?}"), before);
}

#[test]
fn only_the_entry_point_asked_for_changes_and_names_stay_unique() {
    let source = "@group(0) @binding(0) var<storage, read_write> tombolo_grid: array<u32>;
        fn b_body(x: u32) -> u32 { return x; }
        @compute @workgroup_size(8) fn a(@builtin(workgroup_id) w: vec3<u32>) { tombolo_grid[w.x] = 1u; }
        @compute @workgroup_size(8) fn b(@builtin(workgroup_id) w: vec3<u32>) { tombolo_grid[b_body(w.x)] = 2u; }";
    let mut module = parse(source);
    assert!(grid::run(&mut module, 1, BINDING));
    let names: Vec<_> = module.entry_points.iter().map(|e| e.name.clone()).collect();
    assert_eq!(names, ["a", "b"]);
    let a = &module.entry_points[0].function;
    assert!(a.arguments[0].binding.is_some() && a.expressions.len() > 1);
    assert!(
        module
            .functions
            .iter()
            .any(|(_, f)| f.name.as_deref() == Some("b_body_1"))
    );
    assert!(
        (module.global_variables.iter()).any(|(_, v)| v.name.as_deref() == Some("tombolo_grid_1"))
    );
    text(&module, source);
}

#[test]
fn user_code_keeps_its_spans() {
    let source = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(workgroup_id) w: vec3<u32>) { o[w.x] = 41u + w.y; }";
    let mut module = parse(source);
    assert!(grid::run(&mut module, 0, BINDING));
    let (_, body) = (module.functions.iter())
        .find(|(_, f)| f.name.as_deref() == Some("main_body"))
        .expect("the body");
    let spans: Vec<_> = (body.body.span_iter())
        .filter_map(|(_, span)| span.to_range())
        .map(|range| &source[range])
        .collect();
    assert!(spans.contains(&"o[w.x] = 41u + w.y"), "{spans:?}");
}

#[test]
fn barriers_and_workgroup_variables_still_validate() {
    transformed(
        "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
        var<workgroup> s: u32;
        @compute @workgroup_size(8) fn main(@builtin(workgroup_id) w: vec3<u32>, @builtin(local_invocation_index) i: u32) {
            if w.x == 3u { workgroupBarrier(); }
            let v = workgroupUniformLoad(&s);
            for (var k = 0u; k < v; k++) { workgroupBarrier(); }
            o[i] = v;
        }",
        0,
    );
}
