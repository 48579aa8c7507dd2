//! Tests of specialization: the meanings of the private-array and specialization-constant tests of SYCL that the
//! host alone can decide, and the diagnostics.

use naga::back::PipelineConstants;

use super::*;

mod refusals;

fn run(source: &str, constants: Constants) -> Result<Specialized, KernelError> {
    let program = Program::new("test.wgsl", source)?;
    let entry = program
        .entry_points()
        .first()
        .cloned()
        .expect("an entry point");
    specialize(
        &program,
        &entry,
        &constants,
        None,
        Capabilities::all(),
        1 << 20,
        &HeapSetup::default(),
    )
}

fn good(source: &str, constants: Constants) -> Specialized {
    run(source, constants).unwrap_or_else(|e| panic!("{source}\n{e}"))
}

fn bad(source: &str, constants: Constants) -> KernelError {
    run(source, constants)
        .map(|s| s.private_arrays)
        .expect_err(source)
}

fn lengths(specialized: &Specialized) -> Vec<(&str, u32, u64)> {
    specialized
        .private_arrays
        .iter()
        .map(|a| (a.name.as_str(), a.length, a.bytes))
        .collect()
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<f32>;\n";
const MAIN: &str = "@compute @workgroup_size(1) fn main() {";

fn kernel(declarations: &str, body: &str) -> String {
    format!("{declarations}\n{HEAD}{MAIN} {body} }}")
}

fn n(value: u32) -> Constants {
    Constants::new().set("N", value)
}

#[test]
fn the_default_counts_when_nothing_is_set() {
    let source = kernel(
        "override N: u32 = 16;",
        "var tmp: array<f32, N>; out[0] = tmp[0];",
    );
    assert_eq!(lengths(&good(&source, Constants::new())), [("tmp", 16, 64)]);
    assert_eq!(lengths(&good(&source, n(3))), [("tmp", 3, 12)]);
    let info = &good(&source, n(3)).private_arrays[0];
    assert_eq!(
        (info.function.as_deref(), info.line, info.align),
        (Some("main"), 3, 4)
    );
}

#[test]
fn sizes_may_be_defined_in_various_ways() {
    for (declarations, body, expected) in [
        (
            "override N: u32 = 4;",
            "var t: array<f32, N * 2u + 1u>; out[0] = t[0];",
            9,
        ),
        (
            "override N: u32 = 4; override M: u32 = N * 2u;",
            "var t: array<f32, M>; out[0] = t[0];",
            8,
        ),
        (
            "override N: u32 = 4; const M = N * 2u;",
            "var t: array<f32, M>; out[0] = t[0];",
            8,
        ),
        (
            "override N: u32 = 4;",
            "const M = N * 2u; var t: array<f32, M>; out[0] = t[0];",
            8,
        ),
        (
            "override N: u32 = 4; alias A = array<f32, N>;",
            "var t: A; out[0] = t[0];",
            4,
        ),
        (
            "@id(9) override N: u32 = 4;",
            "var t = array<f32, N>(); out[0] = t[0];",
            4,
        ),
        (
            "override N: i32 = 4;",
            "var t: array<f32, N>; out[0] = t[0];",
            4,
        ),
        ("override N = 4;", "var t: array<f32, N>; out[0] = t[0];", 4),
        (
            "const D = 2u; override N: u32 = D + D;",
            "var t: array<f32, N>; out[0] = t[0];",
            4,
        ),
        (
            "override B: bool = true;",
            "var t: array<f32, B>; out[0] = t[0];",
            1,
        ),
        (
            "override B: bool = true;",
            "var t: array<f32, select(3, 5, B)>; out[0] = t[0];",
            5,
        ),
        (
            "override N: u32 = 3; var<private> t: array<f32, N>;",
            "out[0] = t[0];",
            3,
        ),
    ] {
        let source = kernel(declarations, body);
        let specialized = good(&source, Constants::new());
        assert_eq!(
            lengths(&specialized),
            [("t", expected, u64::from(expected) * 4)],
            "{source}"
        );
        assert!(specialized.module.overrides.is_empty());
    }
}

#[test]
fn arrays_may_be_nested_in_structs_and_passed_to_helpers() {
    let source = kernel(
        "override N: u32 = 4; override M: u32 = 2;
         struct S { pad: vec3<f32>, a: array<array<f32, N>, M> }
         fn sum(p: ptr<function, array<f32, N>>) -> f32 { var s = 0.0; for (var i = 0u; i < N; i++) { s += (*p)[i]; } return s; }
         fn make() -> array<f32, N> { return array<f32, N>(1.0, 2.0, 3.0, 4.0, 5.0); }",
        "var s: S; var t = make(); out[0] = sum(&t) + s.a[1][4];",
    );
    let specialized = good(&source, n(5));
    // 16 bytes hold the vec3 and the first float: 12 + 40, rounded up to the alignment of 16.
    assert_eq!(lengths(&specialized), [("s", 1, 64), ("t", 5, 20)]);
    // The default of 4 does not fit the constructor of five elements.
    assert!(run(&source, Constants::new()).is_err());
}

#[test]
fn several_arrays_and_constants_in_one_kernel() {
    let source = kernel(
        "override A: u32 = 1; override B: u32 = 2; override C: i32 = 3;",
        "var x: array<f32, A>; var y: array<vec4<f32>, B>; var z: array<u32, C>; out[0] = x[0] + y[0].x + f32(z[0]);",
    );
    let set = Constants::new().set("A", 7u32).set("C", 2i32);
    assert_eq!(
        lengths(&good(&source, set)),
        [("x", 7, 28), ("y", 2, 32), ("z", 2, 8)]
    );
}

#[test]
fn a_constant_used_only_in_a_helper_is_found() {
    let source = kernel(
        "override N: u32; fn h() -> f32 { var t: array<f32, N>; return t[N - 1u]; }",
        "out[0] = h();",
    );
    assert_eq!(lengths(&good(&source, n(6))), [("t", 6, 24)]);
    assert!(
        matches!(bad(&source, Constants::new()), KernelError::MissingConstant { missing, .. } if missing.len() == 1)
    );
}

#[test]
fn programs_with_the_same_names_do_not_mix() {
    let sources = (1..=50u32).map(|i| {
        kernel(
            &format!("override N: u32 = {i};"),
            "var t: array<f32, N>; out[0] = t[0];",
        )
    });
    let programs = sources
        .map(|s| Program::new("same", s).expect("valid"))
        .collect::<Vec<_>>();
    for (i, program) in (1u32..).zip(&programs) {
        let get = |c| {
            specialize(
                program,
                "main",
                &c,
                None,
                Capabilities::all(),
                1 << 20,
                &HeapSetup::default(),
            )
            .expect("valid")
            .private_arrays[0]
                .length
        };
        assert_eq!((get(Constants::new()), get(n(i + 100))), (i, i + 100));
        assert_eq!(
            programs.iter().filter(|p| p.id() == program.id()).count(),
            1
        );
    }
}

#[test]
fn other_entry_points_need_no_values_and_no_sense() {
    let source = "override A: u32; override B: u32; override Z: f32;
        @compute @workgroup_size(1) fn one() { var t: array<f32, A>; t[0] = 1.0; }
        @compute @workgroup_size(1) fn two() { var t: array<f32, B>; t[4] = Z; }";
    let program = Program::new("p", source).expect("valid");
    let get = |entry, c| {
        specialize(
            &program,
            entry,
            &c,
            None,
            Capabilities::all(),
            1 << 20,
            &HeapSetup::default(),
        )
    };
    assert_eq!(
        lengths(&get("one", Constants::new().set("A", 2u32)).expect("valid")),
        [("t", 2, 8)]
    );
    get("one", Constants::new().set("A", 2u32).set("B", 0u32)).expect("B is not used");
    match get("two", Constants::new()) {
        Err(KernelError::MissingConstant {
            missing, available, ..
        }) => {
            assert_eq!(
                missing.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
                ["B", "Z"]
            );
            assert_eq!(available.len(), 3);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        get("three", Constants::new()),
        Err(KernelError::UnknownEntryPoint { .. })
    ));
}

#[test]
fn plain_kernels_become_what_naga_makes_of_them() {
    let source =
        "@id(3) override S: f32 = 2.0; override N: u32; override T = S * 2.0; override U: f32;
        var<workgroup> w: array<f32, N>;
        @compute @workgroup_size(N) fn main(@builtin(local_invocation_index) i: u32) { w[i] = T; }
        @compute @workgroup_size(1) fn other() { w[0] = U; }";
    let program = Program::new("p", source).expect("valid");
    let ours = specialize(
        &program,
        "main",
        &n(64).set_id(3, 1.5f32),
        None,
        Capabilities::all(),
        0,
        &HeapSetup::default(),
    )
    .expect("valid");
    let module = naga::front::wgsl::parse_str(source).expect("valid");
    let info = validator(Capabilities::all())
        .validate(&module)
        .expect("valid");
    let values = PipelineConstants::from_iter([("N".to_owned(), 64.0), ("3".to_owned(), 1.5)]);
    let (theirs, _) = process_overrides(
        &module,
        &info,
        Some((ShaderStage::Compute, "main")),
        &values,
    )
    .expect("valid");
    assert_eq!(format!("{:?}", ours.module), format!("{theirs:?}"));
    assert_eq!(ours.module.entry_points[0].workgroup_size, [64, 1, 1]);
    assert!(ours.private_arrays.is_empty());
    let value = |name: &str| ours.values.iter().find(|v| v.0.name == name).map(|v| v.1);
    assert_eq!(
        (value("T"), value("U")),
        (Some(ConstantValue::F32(3.0)), None)
    );
    let missing = specialize(
        &program,
        "main",
        &Constants::new(),
        None,
        Capabilities::all(),
        0,
        &HeapSetup::default(),
    );
    assert!(
        matches!(missing, Err(KernelError::MissingConstant { missing, .. }) if missing[0].name == "N")
    );
}

#[test]
fn the_work_group_size_may_be_left_to_the_runtime() {
    let source = "override WG: u32; @compute @workgroup_size(WG, 1) fn main() {}";
    let program = Program::new("p", source).expect("valid");
    let size = |set, auto| {
        specialize(
            &program,
            "main",
            &set,
            auto,
            Capabilities::all(),
            0,
            &HeapSetup::default(),
        )
        .map(|s| s.module.entry_points[0].workgroup_size[0])
    };
    assert_eq!(size(Constants::new(), Some(128)), Ok(128));
    assert_eq!(size(Constants::new().set("WG", 32u32), Some(128)), Ok(32));
    assert!(matches!(
        size(Constants::new(), None),
        Err(KernelError::MissingConstant { .. })
    ));
    assert!(matches!(
        size(Constants::new().set("WG", 0u32), None),
        Err(KernelError::Validation(_))
    ));
}

#[test]
fn half_precision_constants_work() {
    let source =
        "enable f16; override H: f16 = 0.5; @compute @workgroup_size(1) fn main() { let x = H; }";
    let program = Program::new("p", source).expect("valid");
    assert_eq!(
        program.constants()[0].default,
        Some(ConstantValue::F16(half::f16::from_f32(0.5)))
    );
    let set = Constants::new().set("H", half::f16::MAX);
    specialize(
        &program,
        "main",
        &set,
        None,
        Capabilities::all(),
        0,
        &HeapSetup::default(),
    )
    .expect("valid");
    assert!(
        specialize(
            &program,
            "main",
            &set,
            None,
            Capabilities::empty(),
            0,
            &HeapSetup::default()
        )
        .is_err()
    );
}
