use naga::valid::{ValidationFlags, Validator};

use super::*;
use crate::kernel::calls::CallSet;
use crate::kernel::print::prints;

/// The module of `source` after the pass and the prologue, and their results.
fn lowered(source: &str) -> (Module, Option<PrintFacts>) {
    let prints = prints(source, &CallSet::default()).unwrap().unwrap();
    let text = crate::kernel::print::edited(source, &prints);
    let mut module = naga::front::wgsl::parse_str(&text).unwrap();
    let binding = ResourceBinding {
        group: 3,
        binding: 4,
    };
    let all = Capabilities::all();
    let facts = run(&mut module, Some(0), &prints.sites, binding, all, None).unwrap();
    if let Some(facts) = &facts {
        begin(&mut module, 0, facts);
    }
    Validator::new(ValidationFlags::all(), all)
        .validate(&module)
        .unwrap();
    (module, facts)
}

fn written(module: &Module) -> String {
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(module)
        .unwrap();
    naga::back::wgsl::write_string(module, &info, naga::back::wgsl::WriterFlags::empty()).unwrap()
}

/// The text of one function.
fn function<'t>(text: &'t str, name: &str) -> &'t str {
    let start = text.find(&format!("fn {name}(")).unwrap();
    let rest = &text[start..];
    &rest[..rest.find("\n}").unwrap()]
}

#[test]
fn an_entry_point_that_prints_nothing_is_left_alone() {
    let (module, facts) = lowered(
        r#"@compute @workgroup_size(1) fn main() {}
        @compute @workgroup_size(1) fn other() { print("x"); }"#,
    );
    assert_eq!(facts, None);
    assert!(module.entry_points[0].function.arguments.is_empty());
}

#[test]
fn a_fault_is_tested_behind_every_call_that_may_have_it() {
    let (module, facts) = lowered(
        r#"fn inner(x: u32) -> vec3<f32> { assert(x > 1u); return vec3(1.0); }
        fn outer(x: u32) -> f32 { return inner(x).x; }
        fn plain(x: u32) -> u32 { print("{}", x); return x; }
        @compute @workgroup_size(1) fn main(@builtin(local_invocation_index) i: u32) {
            for (var k = 0u; k < 3u; k++) { _ = outer(plain(i)); }
        }"#,
    );
    assert!(facts.unwrap().may_leave);
    let text = written(&module);
    for (name, tests) in [("inner", 1), ("outer", 1), ("plain", 0), ("main", 1)] {
        let body = function(&text, name);
        let found = body.matches("tombolo_print_failed").count();
        assert_eq!(found, tests, "{body}");
    }
    assert!(function(&text, "main").contains(".claim"), "{text}");
}

#[test]
fn nobody_leaves_a_kernel_with_barriers() {
    let (module, facts) = lowered(
        r#"fn wait() { workgroupBarrier(); }
        @compute @workgroup_size(1) fn main() { panic("x"); wait(); }"#,
    );
    assert!(!facts.unwrap().may_leave);
    let text = written(&module);
    assert_eq!(
        function(&text, "main").matches("return").count(),
        1,
        "{text}"
    );
}

#[test]
fn the_check_is_the_one_of_the_host() {
    // The same arithmetic, evaluated by naga from the shader's text.
    let text = include_str!("../../../../shaders/print.wgsl");
    let body = text.split("fn tombolo_print_mix").nth(1).unwrap();
    assert!(body.contains("(hash ^ word) * 0x9e3779b1u") && body.contains("mixed >> 15u"));
    assert_eq!(
        crate::print::record::mix(1, 2),
        (3u32.wrapping_mul(0x9e37_79b1)) ^ (3u32.wrapping_mul(0x9e37_79b1) >> 15)
    );
}
