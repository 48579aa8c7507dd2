use std::sync::Arc;

use super::super::calls::{CallDeclaration, Signature};
use super::super::host_layout::ValueLayouts;
use super::super::{Constants, KernelError, Program};
use super::*;

/// The calls of a program without functions of the host.
fn all_prints(source: &str) -> Result<Option<Prints>, FormatError> {
    prints(source, &CallSet::default())
}

const NUMBERS: &str = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;";

fn program(body: &str) -> Result<Program, KernelError> {
    let source = format!("{NUMBERS}\n@compute @workgroup_size(1) fn main() {{\n{body}\n}}");
    Program::new("p.wgsl", source)
}

/// The text at the error, of the single line `body`, and the message.
fn refused(body: &str) -> (String, String) {
    match program(body) {
        Err(KernelError::Print(diagnostic)) => {
            let label = &diagnostic.labels[0];
            assert_eq!(diagnostic.line, 3, "{diagnostic}");
            let before = body
                .chars()
                .take(diagnostic.column as usize - 1)
                .collect::<String>();
            let text = &body[before.len()..before.len() + label.range.len()];
            (text.to_owned(), diagnostic.message.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(body: &str, place: &str, message: &str) {
    let (text, found) = refused(body);
    assert_eq!(text, place, "{found}");
    assert!(found.contains(message), "{found}");
}

#[test]
fn calls_become_plain_wgsl() {
    let found = all_prints(r#"fn f() { print("a {}", vec2<f32>(1, 2)); assert(a < b, "m {}", x,); assert(c); panic("p"); }"#)
        .unwrap()
        .unwrap();
    let source = r#"fn f() { print("a {}", vec2<f32>(1, 2)); assert(a < b, "m {}", x,); assert(c); panic("p"); }"#;
    let text = super::super::edit::EditedText::new(source.into(), found.edits);
    assert_eq!(
        &**text.text(),
        "fn f() { tombolo_print_0( vec2<f32>(1, 2)); if !(a < b) { tombolo_print_1( x,); }; \
         if !(c) { tombolo_print_2(); }; tombolo_print_3(); }"
    );
}

#[test]
fn calls_of_the_host_get_their_values_in_one_piece() {
    let declaration = CallDeclaration {
        signature: Signature::parse("fn file_print(file: u32, format: u32, values: V) -> u32")
            .unwrap(),
        arguments: vec![4, 4, 256],
        result: 4,
        layouts: ValueLayouts::default(),
        stream: false,
    };
    let calls = CallSet([Arc::new(declaration)].into_iter().collect());
    let source = r#"fn f() { _ = file_print(f(1u, 2u), "{} {}", x, y,); file_print_post(1u, "\n"); file_print_group(a, b, "{}", c); text_print(1u, "a"); }"#;
    let found = prints(source, &calls).unwrap().unwrap();
    assert_eq!(found.sites.len(), 3);
    let text = super::super::edit::EditedText::new(source.into(), found.edits);
    let [pair, end, one] = ["{} {}", "\n", "{}"].map(intern);
    assert_eq!(
        &**text.text(),
        format!(
            "fn f() {{ _ = file_print(f(1u, 2u), {pair}u, tombolo_print_0( x, y,)); \
             file_print_post(1u, {end}u, tombolo_print_1()); \
             file_print_group(a, b, {one}u, tombolo_print_2( c)); text_print(1u, \"a\"); }}"
        )
    );
    assert!(
        found
            .appendix
            .contains("fn tombolo_print_2() -> PrintValues")
    );
    assert!(all_prints(source).unwrap().is_none());
    // Without quotes, and without a format.
    for source in [
        "fn f() { _ = file_print(1u, 2u); }",
        "fn f() { file_print_group(true, 1u); }",
    ] {
        let error = prints(source, &calls).unwrap_err();
        assert!(error.message.contains("needs a format string"), "{error:?}");
    }
}

#[test]
fn the_programs_own_functions_are_his() {
    let source = "fn print(x: u32) {} fn assert(x: bool) {} fn f(s: S) { print(1u); assert(true); s.panic; }";
    assert!(all_prints(source).unwrap().is_none());
    assert!(
        all_prints("// print(\"x\")\nfn f() { let print = 1; }")
            .unwrap()
            .is_none()
    );
}

#[test]
fn wrong_numbers_of_arguments_are_refused_at_their_place() {
    refusal(r#"print("{} {}", data[0]);"#, "{}", "only one is given");
    refusal(
        r#"print("{}", data[0], data[1 + 1]);"#,
        "data[1 + 1]",
        "never shown",
    );
    refusal(r#"/* é */ print("{}");"#, "{}", "no argument");
    refusal(r#"print("{}", , data[0]);"#, ",", "missing");
}

#[test]
fn unknown_formats_are_refused_at_their_place() {
    refusal(r#"print("é {:y}", data[0]);"#, "{:y}", "`y` is no format");
    refusal(r#"print("\q");"#, r"\q", "unknown escape");
}

#[test]
fn types_that_the_placeholder_does_not_take_are_refused_at_the_argument() {
    refusal(
        r#"print("{} {:x}", 1u, sqrt(2.0));"#,
        "sqrt(2.0)",
        "type f32",
    );
    refusal(
        r#"print("{:e}", data[0] == 1u);"#,
        "data[0] == 1u",
        "type bool",
    );
    refusal(r#"print("{:p}", data[0]);"#, "data[0]", "usm_ptr");
    refusal(
        r#"var a: array<u32, 2>; print("{}", a);"#,
        "a",
        "their elements",
    );
    refusal(r#"var a: u32; print("{}", &a);"#, "&a", "a reference");
}

#[test]
fn too_many_words_are_refused() {
    let row = "m, m, m, m, m";
    let (_, message) = refused(&format!(
        r#"var m: mat4x4<f32>; print("{{}}{{}}{{}}{{}}{{}}", {row});"#
    ));
    assert!(message.contains("80 words"), "{message}");
}

#[test]
fn what_is_no_statement_is_refused() {
    refusal(r#"let x = print("a");"#, r#"print("a")"#, "statement");
    refusal(
        r#"for (; false; print("a")) {}"#,
        r#"print("a")"#,
        "statement",
    );
    refusal("print();", "print()", "format string");
    refusal("print(data[0]);", "data[0]", "in quotes");
    refusal("assert();", "assert()", "condition");
    refusal("assert(true, data[0]);", "data[0]", "in quotes");
}

#[test]
fn faults_in_arguments_point_at_the_users_columns() {
    let error = program(r#"print("a long text {}", data[0] + missing);"#).unwrap_err();
    let diagnostic = error.diagnostic().unwrap();
    assert_eq!(
        (diagnostic.line, diagnostic.column),
        (3, 35),
        "{diagnostic}"
    );
    let error = program(r#"assert(data[0] + 1u, "text {}", 1);"#).unwrap_err();
    let diagnostic = error.diagnostic().unwrap();
    assert_eq!(diagnostic.line, 3, "{diagnostic}");
    assert!(
        !diagnostic.to_string().contains("tombolo_print"),
        "{diagnostic}"
    );
}

#[test]
fn faults_behind_a_text_of_several_lines_keep_their_place() {
    let error = program("print(\"one\ntwo {}\",\n1u); let x = missing;").unwrap_err();
    let diagnostic = error.diagnostic().unwrap();
    assert_eq!(
        (diagnostic.line, diagnostic.column),
        (5, 14),
        "{diagnostic}"
    );
}

#[test]
fn every_form_of_a_kernel_validates() {
    for body in [
        r#"print("none");"#,
        r#"print("{} {} {} {}", 1, 2u, 3.5, true);"#,
        r#"print("{} {:?} {:08.3}", vec2<bool>(true), vec4<i32>(), mat3x4<f32>());"#,
        r#"for (var i = 0u; i < data[0]; i++) { if i == 3u { print("{i}", 1); } }"#,
        r#"switch data[0] { case 1: { panic("one"); } default: { assert(data[1] > 0u); } }"#,
        r#"loop { if data[0] > 1u { break; } continuing { assert(data[2] == 0u, "{}", data[1]); } }"#,
        r#"assert(data[0] == 0u); workgroupBarrier(); panic("{}", 1.0);"#,
    ] {
        let body = body.replace("{i}", "{}");
        let program = program(&body).unwrap();
        program.interface("main", &Constants::new()).unwrap();
    }
}

#[test]
fn other_conventions_work_beside_it() {
    let program = Program::new(
        "p.wgsl",
        r#"override N: u32 = 4;
        struct Node { value: f32, next: usm_ptr }
        @group(0) @binding(0) var<storage, read_write> start: usm_ptr;
        fn sum(values: ptr<function, array<f32, N>>) -> f32 {
            assert((*values)[0] >= 0.0, "first {}", (*values)[0]);
            return (*values)[0] + (*values)[N - 1u];
        }
        @compute @workgroup_size(N) fn main() {
            var values: array<f32, N>;
            let node = usm_Node(start);
            values[0] = node.value;
            print("{} of {:p} after {:p} is {}", N, start, node.next, sum(&values));
        }"#,
    )
    .unwrap();
    for n in [1u32, 7] {
        let constants = Constants::new().set("N", n);
        program.interface("main", &constants).unwrap();
    }
}
