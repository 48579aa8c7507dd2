use super::*;
use crate::kernel::calls::bind::CallUse;
use crate::kernel::calls::forms::TEXTS;
use crate::kernel::calls::handed::{Handed, handed};
use crate::kernel::calls::{Signature, opcode};
use crate::kernel::constants::Constants;
use crate::kernel::error::KernelError;
use crate::kernel::host_layout::ValueLayouts;
use crate::kernel::program::Program;

/// Declarations from signatures, with the bytes of their arguments and result.
fn set(of: &[(&str, &[usize], usize)]) -> CallSet {
    let declarations = of.iter().map(|(text, arguments, result)| {
        Arc::new(CallDeclaration {
            signature: Signature::parse(text).unwrap(),
            arguments: arguments.to_vec(),
            result: *result,
            layouts: ValueLayouts::default(),
            stream: false,
        })
    });
    CallSet(declarations.collect())
}

fn program(source: &str, calls: &CallSet) -> Result<Program, KernelError> {
    Program::builder()
        .source("calls.wgsl", source)
        .callee("calls", calls)
        .build()
}

const KERNEL: &str = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {";

#[test]
fn programs_that_call_nothing_are_untouched() {
    let calls = set(&[("fn f(x: u32) -> u32", &[4], 4)]);
    for body in [
        "data[0] = 1u; }",
        "let f = 1u; data[0] = f; }",
        "// f(1u)\n }",
    ] {
        let program = program(&format!("{KERNEL} {body}"), &calls).unwrap();
        assert!(program.inner.calls.is_none(), "{body}");
    }
    let own = format!("fn f(x: u32) -> u32 {{ return x; }} {KERNEL} data[0] = f(1u); }}");
    assert!(program(&own, &calls).unwrap().inner.calls.is_none());
}

#[test]
fn every_kind_of_type_travels() {
    let calls = set(&[(
        "fn all(a: u32, b: vec3<f32>, c: mat3x2<f32>, d: array<vec2<i32>, 3>, e: Node, p: usm_ptr) -> Node",
        &[4, 12, 24, 24, 48, 8],
        48,
    )]);
    let source = format!(
        "struct Node {{ at: vec3<f32>, weight: f32, links: array<u32, 2>, next: vec2<u32>, @align(16) last: i32 }}
        {KERNEL}
            var n: Node;
            n = all(id.x, vec3<f32>(id), mat3x2<f32>(), array<vec2<i32>, 3>(), n, vec2(1u, 2u));
            if id.x > 3u {{ n = all_try(1u, n.at, mat3x2<f32>(), array<vec2<i32>, 3>(), n, n.next).value; }}
            data[id.x] = n.links[1] + all_post(1u, n.at, mat3x2<f32>(), array<vec2<i32>, 3>(), n, n.next);
            data[0] = CALL_TIMED_OUT;
        }}"
    );
    let program = program(&source, &calls).unwrap();
    let interface = program.interface("main", &Constants::new()).unwrap();
    let names: Vec<_> = interface
        .arguments
        .iter()
        .map(|a| a.name.as_str())
        .collect();
    assert_eq!(names, ["data"]);
}

#[test]
fn every_type_travels_by_name_and_by_alias() {
    for Handed {
        declarations,
        types,
    } in handed()
    {
        let signatures: Vec<String> = (types.iter().enumerate())
            .map(|(index, (ty, _))| format!("fn f{index}(x: {ty}, y: u32) -> {ty}"))
            .collect();
        let sizes: Vec<[usize; 2]> = types.iter().map(|(_, bytes)| [*bytes, 4]).collect();
        let of: Vec<(&str, &[usize], usize)> = (signatures.iter().zip(&sizes))
            .map(|(signature, sizes)| (signature.as_str(), &sizes[..], sizes[0]))
            .collect();
        let calls = set(&of);
        let body: String = (types.iter().enumerate())
            .map(|(index, (ty, _))| {
                format!("var v{index}: {ty}; v{index} = f{index}(v{index}, 1u);\n")
            })
            .collect();
        let program = program(&format!("{declarations}{KERNEL} {body} }}"), &calls)
            .unwrap_or_else(|error| panic!("{declarations}{error}"));
        let result = program.interface("main", &Constants::new());
        assert!(result.is_ok(), "{declarations}{:?}", result.err());
        // A size other than WGSL's is an error: so the sizes of the list are compared.
        let wrong: Vec<(&str, &[usize], usize)> = of
            .iter()
            .map(|(text, sizes, result)| (*text, *sizes, result + 4))
            .collect();
        let error = self::program(&format!("{declarations}{KERNEL} {body} }}"), &set(&wrong));
        let error = error.err();
        assert!(
            matches!(error, Some(KernelError::HostCall { .. })),
            "{error:?}"
        );
    }
}

#[test]
fn words_lie_where_wgsl_lays_them() {
    let module = naga::front::wgsl::parse_str(
        "struct S { a: f32, b: vec3<f32>, c: mat2x3<f32>, d: array<vec3<u32>, 2>, @size(16) e: i32 }",
    )
    .unwrap();
    let (handle, _) = module
        .types
        .iter()
        .find(|(_, ty)| ty.name.as_deref() == Some("S"))
        .unwrap();
    let mut found = Vec::new();
    leaves(&TypeLayout::of(&module, handle), "s", 0, &mut found).unwrap();
    let words: Vec<_> = found
        .iter()
        .map(|leaf| (leaf.path.as_str(), leaf.word()))
        .collect();
    assert_eq!(
        words,
        [
            ("s.a", 0),
            ("s.b.x", 4),
            ("s.b.y", 5),
            ("s.b.z", 6),
            ("s.c[0].x", 8),
            ("s.c[0].y", 9),
            ("s.c[0].z", 10),
            ("s.c[1].x", 12),
            ("s.c[1].y", 13),
            ("s.c[1].z", 14),
            ("s.d[0].x", 16),
            ("s.d[0].y", 17),
            ("s.d[0].z", 18),
            ("s.d[1].x", 20),
            ("s.d[1].y", 21),
            ("s.d[1].z", 22),
            ("s.e", 24),
        ]
    );
    assert_eq!(
        (found[0].scalar, found[13].scalar, found[16].scalar),
        (LeafScalar::F32, LeafScalar::U32, LeafScalar::I32)
    );
}

/// Scalars of 64 bits are two words, the low word first; halves share words where WGSL lays them so.
#[test]
fn wide_scalars_and_halves_lie_where_wgsl_lays_them() {
    let calls = set(&[("fn f(s: S) -> T", &[48], 16)]);
    let source = format!(
        "enable f16;
        struct S {{ a: f16, b: u64, c: vec3<f16>, d: f16, e: f16, @size(6) f: f16, g: f16, h: f64 }}
        struct T {{ a: i64, b: f16, c: f16 }}
        {KERNEL} var s: S; data[0] = u32(f(s).a); }}"
    );
    let program = program(&source, &calls).unwrap();
    program.interface("main", &Constants::new()).unwrap();
    let text = &program.inner.calls.as_ref().unwrap().text;
    for (word, value) in [
        (0, "pack2x16float(vec2<f32>(f32(s_.a), 0.0))"),
        (1, "0u"),
        (2, "u32(s_.b)"),
        (3, "u32(s_.b >> 32u)"),
        (4, "pack2x16float(vec2<f32>(f32(s_.c.x), f32(s_.c.y)))"),
        (5, "pack2x16float(vec2<f32>(f32(s_.c.z), f32(s_.d)))"),
        (6, "pack2x16float(vec2<f32>(f32(s_.e), f32(s_.f)))"),
        (8, "pack2x16float(vec2<f32>(f32(s_.g), 0.0))"),
        (9, "0u"),
        (10, "u32(bitcast<u64>(s_.h))"),
        (11, "u32(bitcast<u64>(s_.h) >> 32u)"),
    ] {
        let line = format!(
            "sum += tombolo_call_store(arguments + {}u, {value});",
            word + 4
        );
        assert!(text.contains(&line), "{line}\n{text}");
    }
    let word = |at: usize| format!("atomicLoad(&tombolo_calls[results + {}u])", at + PREFIX);
    let [low, high, halves] = [0, 1, 2].map(word);
    for line in [
        format!("reply.value.a = bitcast<i64>(((u64({high}) << 32u) | u64({low})));"),
        format!("reply.value.b = f16(unpack2x16float({halves}).x);"),
        format!("reply.value.c = f16(unpack2x16float({halves}).y);"),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[test]
fn devices_without_a_scalar_are_told_what_to_do_instead() {
    let calls = set(&[
        ("fn f(x: u32, s: S) -> u32", &[4, 24], 4),
        ("fn g(x: u32) -> f16", &[4], 2),
    ]);
    let source = format!(
        "enable f16;
        struct S {{ a: u32, b: vec2<f32>, c: u64 }}
        {KERNEL} var s: S; data[0] = f(1u, s) + u32(g(1u)); }}"
    );
    let program = program(&source, &calls).unwrap();
    let appendix = program.inner.calls.as_ref().unwrap();
    let all = Capabilities::all();
    assert!(appendix.refusal(all).is_none());
    for (without, function, says) in [
        (
            Capabilities::SHADER_INT64,
            "fn f(x: u32, s: S) -> u32",
            "`s` is a `S` with `u64`: the device has no 64-bit integers (Aspect::Int64): hand over `vec2<u32>`",
        ),
        (
            Capabilities::SHADER_FLOAT16,
            "fn g(x: u32) -> f16",
            "the result is a `f16`: the device has no `f16` (Aspect::Fp16): hand over `f32`",
        ),
    ] {
        let (found, why) = appendix.refusal(all - without).unwrap();
        assert_eq!(found, function);
        assert!(why.starts_with(says), "{why}");
    }
    assert!(appendix.refusal(all - Capabilities::FLOAT64).is_none());
}

#[test]
fn padding_is_written_as_zero() {
    let calls = set(&[("fn f(s: S)", &[32], 0)]);
    let source = format!("struct S {{ a: u32, b: vec3<u32> }} {KERNEL} f(S(1u, vec3(2u))); }}");
    let program = program(&source, &calls).unwrap();
    let text = &program.inner.calls.as_ref().unwrap().text;
    for (word, value) in [
        (4, "s_.a"),
        (5, "0u"),
        (6, "0u"),
        (7, "0u"),
        (8, "s_.b.x"),
        (10, "s_.b.z"),
        (11, "0u"),
    ] {
        let line = format!("sum += tombolo_call_store(arguments + {word}u, {value});");
        assert!(text.contains(&line), "{line}");
    }
}

#[test]
fn what_does_not_fit_is_told_with_the_function() {
    let cases: [(&str, &[usize], usize, &str); 10] = [
        (
            "fn f(x: u32)",
            &[8],
            0,
            "`x` is a `u32` of 4 bytes, and has 8 in Rust",
        ),
        (
            "fn f() -> vec3<f32>",
            &[],
            16,
            "the result is a `vec3<f32>` of 12 bytes, and has 16 in Rust",
        ),
        ("fn f(x: Missing)", &[4], 0, "Missing"),
        ("fn f(x: bool)", &[1], 0, "`bool` cannot be handed over"),
        ("fn f(x: atomic<u32>)", &[4], 0, "cannot be handed over"),
        ("fn f(x: array<u32>)", &[4], 0, "cannot be handed over"),
        // The program has to enable it.
        ("fn f(x: vec2<f16>)", &[4], 0, "f16"),
        (
            "fn f(x: i64)",
            &[4],
            0,
            "`x` is a `i64` of 8 bytes, and has 4 in Rust",
        ),
        (
            "fn f(x: array<u32, 2000>)",
            &[8000],
            0,
            "is too long: pass a pointer",
        ),
        // 1,200 words.
        (
            "fn f(x: array<u64, 600>)",
            &[4800],
            0,
            "is too long: pass a pointer",
        ),
    ];
    for (signature, arguments, result, says) in cases {
        let calls = set(&[(signature, arguments, result)]);
        let error = program(&format!("{KERNEL} f(); }}"), &calls).unwrap_err();
        let KernelError::HostCall { function, why, .. } = &error else {
            panic!("{signature}: {error}");
        };
        assert!(function.starts_with("fn f("), "{function}");
        assert!(why.contains(says), "{signature}: {why}");
    }
}

#[test]
fn faults_of_the_caller_are_reported_at_the_call() {
    let calls = set(&[("fn f(x: u32) -> u32", &[4], 4)]);
    let source = format!("{KERNEL}\n    data[0] = f(1.5);\n}}");
    let error = program(&source, &calls).unwrap_err();
    let diagnostic = error.diagnostic().unwrap();
    assert_eq!((diagnostic.line, &*diagnostic.file), (3, "calls.wgsl"));
}

/// Numbers that Rust has names for are never written into the texts of calls.
#[test]
fn kernels_and_host_agree_on_the_header() {
    use crate::device::call_words::{HEADER, PREFIX};
    let texts = [COMMON, STREAMS, SUBGROUPS, TEXTS.concat().as_str()].concat();
    for (name, index) in HEADER {
        assert!(
            !texts.contains(&format!("tombolo_calls[{index}]")),
            "{name}"
        );
        assert!(texts.contains(&format!("tombolo_header_{name}]")), "{name}");
        let line = format!("const tombolo_header_{name} = {index}u;");
        assert!(constants().lines().any(|known| known == line), "{name}");
    }
    for sign in ["=", "==", "!="] {
        let before = format!("status {sign} ");
        let mut behind = texts.split(&before).skip(1);
        let is_number = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit());
        assert_eq!(behind.find(is_number), None, "{sign}");
    }
    assert!(
        !texts.contains(&format!("+ {PREFIX}u")),
        "a payload's place"
    );
}

/// A turn is done to its end by whoever has seen the answer, where nothing but the end of a loop is a branch.
#[test]
fn nothing_that_takes_time_stands_behind_the_look_at_an_answer() {
    let is_answer = "atomicLoad(&tombolo_calls[replies + port]) == request";
    let turns: Vec<&str> = WAIT.split("loop {").skip(1).collect();
    let slow = ["tombolo_call_pause(look)", "tombolo_call_backoff(step)"];
    assert_eq!(turns.len(), slow.len());
    for (turn, slow) in turns.into_iter().zip(slow) {
        let (before, behind) = turn.split_once(is_answer).unwrap();
        assert!(before.contains(slow) && before.contains("tombolo_call_turn("));
        for slow in [
            "tombolo_call_pause",
            "tombolo_call_backoff",
            "tombolo_call_turn",
        ] {
            assert!(!behind.contains(slow), "{slow}");
        }
    }
}

#[test]
fn opcodes_depend_on_the_name_alone() {
    // FNV-1a of "a", from the published test vectors.
    assert_eq!(opcode("a"), 0xE40C_292C);
    let a = set(&[("fn f(x: u32)", &[4], 0)]);
    let b = set(&[("fn f() -> u32", &[], 4)]);
    assert_eq!(a.0[0].opcode(), b.0[0].opcode());
}

#[test]
fn only_entry_points_that_call_need_the_ports() {
    let calls = set(&[("fn f(x: u32) -> u32", &[4], 4)]);
    let source = format!(
        "{KERNEL} data[0] = f(1u); }}
        @compute @workgroup_size(1) fn quiet() {{ data[0] = 2u; }}
        @compute @workgroup_size(1) fn careful() {{ data[0] = f_try(1u).status; }}
        @compute @workgroup_size(1) fn deferred() {{ data[0] = f_begin(1u); data[1] = f_collect(7u).value; }}
        @compute @workgroup_size(1) fn together() {{ data[0] = f_group(true, 1u); }}
        @compute @workgroup_size(1) fn careless() {{ data[0] = f_post(1u); f_leave(3u); }}"
    );
    let program = program(&source, &calls).unwrap();
    for (entry, calls, reports, waits) in [
        ("main", true, true, true),
        ("quiet", false, false, false),
        ("careful", true, false, true),
        ("deferred", true, false, false),
        ("together", true, true, true),
        ("careless", true, false, false),
    ] {
        let expected = CallUse {
            calls,
            reports,
            waits,
            packs: entry == "together",
            backs_off: false,
        };
        // A caller waiting for an answer or looking for a port reads the memory, where there is a loop budget.
        for (has_loop_budget, splits_ports) in [(false, false), (true, false), (true, true)] {
            let expected = CallUse {
                backs_off: calls && has_loop_budget && entry != "deferred",
                ..expected
            };
            let heap = crate::kernel::heap_setup::HeapSetup {
                has_loop_budget,
                splits_ports,
                ..Default::default()
            };
            let special = crate::kernel::specialize::specialize(
                &program,
                entry,
                &Constants::new(),
                None,
                naga::valid::Capabilities::all(),
                u64::MAX,
                &heap,
            )
            .unwrap();
            assert_eq!(
                special.calls, expected,
                "{entry}, {has_loop_budget}, {splits_ports}"
            );
        }
    }
}

#[test]
fn groups_call_where_all_of_them_come() {
    let calls = set(&[
        ("fn f(x: u32, v: vec2<f32>) -> u32", &[4, 8], 4),
        ("fn g()", &[], 0),
    ]);
    let used = format!(
        "{KERNEL}
            data[id.x] = f_group(id.x < 9u, id.x, vec2<f32>()) + f_group_try(true, 1u, vec2<f32>()).value;
            g_group(true);
            data[0] = f(1u, vec2<f32>());
        }}"
    );
    let used = program(&used, &calls).unwrap();
    used.interface("main", &Constants::new()).unwrap();
}

#[test]
fn streams_have_functions_of_their_own() {
    let declaration = CallDeclaration {
        signature: Signature::parse("fn up(x: u32) -> vec2<u32>").unwrap(),
        arguments: vec![4],
        result: 8,
        layouts: ValueLayouts::default(),
        stream: true,
    };
    let opcodes: Vec<u32> = declaration.opcodes().collect();
    assert_eq!(opcodes.len(), 4);
    let calls = CallSet([Arc::new(declaration)].into());
    let used = format!(
        "fn send(s: ptr<function, up_stream>) {{ up_put(s, 1u); }}
        {KERNEL}
            var s = up_open(3u);
            send(&s);
            data[0] = up_get(&s) + s.status;
            let r = up_close(&s);
            data[1] = r.value.x + r.status + CALL_END;
        }}"
    );
    program(&used, &calls).unwrap();
    // Waiting for a single answer is no form of a stream.
    assert!(program(&format!("{KERNEL} data[0] = up(1u).x; }}"), &calls).is_err());
    assert!(program(&format!("{KERNEL} data[0] = up_begin(1u); }}"), &calls).is_err());
}

/// What kernels derive from the word of the layout is what the host lays out.
#[test]
fn kernels_derive_the_places_of_the_host() {
    use crate::device::call_words::{LAYOUT, LAYOUT_SHIFT, LINE, PREFIX};
    let load = "atomicLoad(&tombolo_calls[tombolo_header_layout])";
    assert!(PLACES.contains(load));
    // Ports, words of payload, and the places by hand, as the map at the head of `rpc::port::layout` has them.
    let known = [
        (1usize, 0usize, [1, 0, 16, 16, 32, 48, 64, 80]),
        (16, 12, [16, 12, 16, 16, 32, 48, 304, 320]),
        (17, 13, [17, 13, 32, 16, 48, 80, 624, 656]),
        (
            1 << 16,
            1 << 14,
            [
                1 << 16,
                1 << 14,
                16400,
                16,
                65552,
                131_088,
                1_074_921_488,
                1_074_987_024,
            ],
        ),
    ];
    for (ports, payload, places) in known {
        let word = (ports - 1) | payload << LAYOUT_SHIFT;
        let text = PLACES
            .replace(load, &format!("{word}u"))
            .replace("let ", "const ");
        let module = naga::front::wgsl::parse_str(&format!("{}{text}", constants())).unwrap();
        let value = |name: &str| {
            let mut constants = module.constants.iter();
            let found = constants.find(|(_, constant)| constant.name.as_deref() == Some(name));
            let init = found.unwrap_or_else(|| panic!("no {name}")).1.init;
            match module.global_expressions[init] {
                naga::Expression::Literal(naga::Literal::U32(value)) => value,
                ref other => panic!("{name}: {other:?}"),
            }
        };
        let names = [
            "ports",
            "room",
            "stride",
            "locks",
            "requests",
            "first",
            "replies",
            "first_result",
        ];
        assert_eq!(names.map(value), places, "{ports} ports, {payload} words");
    }
    assert_eq!([LAYOUT, LINE, PREFIX], [0, 16, 4]);
}
