//! Tests of diagnostics: every fault points at the user's line and column, early or late.

use naga::valid::Capabilities;

use super::heap_setup::HeapSetup;
use super::specialize::specialize;
use super::{Constants, KernelError, Program};

fn place(error: &KernelError) -> (u32, u32) {
    error
        .diagnostic()
        .map(|d| (d.line, d.column))
        .expect("a place")
}

#[test]
fn faults_point_at_their_line_and_column() {
    let fault = |source: &str| Program::new("k.wgsl", source).expect_err(source);
    let syntax = fault("fn f() {\n  let é = 1; let x = ;\n}");
    assert!(matches!(syntax, KernelError::Syntax(_)), "{syntax}");
    assert_eq!(place(&syntax), (2, 22));
    let ty = fault("fn f() {\n  let x: u32 = 1.5;\n}");
    assert!(matches!(ty, KernelError::Type(_)), "{ty}");
    assert_eq!(place(&ty).0, 2);
    let twice = fault("const a = 1;\nconst a = 2;");
    assert!(matches!(twice, KernelError::Type(_)), "{twice}");
    assert_eq!(place(&twice), (2, 7));
    // Faults beside and within what a size decides.
    let beside =
        fault("override N: u32; fn f() { var t: array<f32, N>; }\nfn g() { let y = missing; }");
    assert_eq!(place(&beside), (2, 18));
    let within = fault("override N: u32; fn f() { var t: array<f32, N>;\n let y = missing; }");
    assert_eq!(place(&within), (2, 10));
    let grammar = fault("override N: u32; fn f() { var t: array<f32, N>;\n let y = ; }");
    assert!(matches!(grammar, KernelError::Syntax(_)), "{grammar}");
    assert_eq!(place(&grammar), (2, 10));
    // What only some sizes make wrong is no fault yet.
    Program::new(
        "k",
        "override N: u32 = 1; fn f() { var t: array<f32, N>; t[3] = 1.0; }",
    )
    .expect("valid for 4");
    Program::new(
        "k",
        "override N: u32; const_assert N > 4000u; fn f() { var t: array<f32, N>; }",
    )
    .expect("valid for 5000");
}

#[test]
fn a_validation_error_behind_a_longer_replacement_keeps_its_column() {
    let source = "override N:u32=1; fn f() { var t: array<f32, N>; let x = t[0] + vec2<bool>(true, false); }\n@compute @workgroup_size(1) fn main() { f(); }";
    let error = Program::new("k.wgsl", source).expect_err("float plus bool");
    assert_eq!(&source[57..61], "t[0]");
    assert_eq!(place(&error), (1, 58), "{error}");
    assert!(error.to_string().contains("k.wgsl:1:58"), "{error}");
    assert!(
        error.to_string().contains("error: Operation Add"),
        "{error}"
    );
    let late = "override N:u32=1;override M:u32=1; @compute @workgroup_size(1) fn main() { var t: array<f32, N>; t[3] = 1.0; }";
    let program = Program::new("k.wgsl", late).expect("valid for other sizes");
    let set = Constants::new().set("N", 2u32);
    let error = specialize(
        &program,
        "main",
        &set,
        None,
        Capabilities::all(),
        1 << 20,
        &HeapSetup::default(),
    )
    .expect_err("3 is beyond 2");
    assert_eq!(place(&error).0, 1, "{error}");
    assert!(error.diagnostic().expect("a place").column >= 76, "{error}");
}
