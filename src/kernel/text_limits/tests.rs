//! Texts at the limits, beyond them, and of two and four times a length.

use std::sync::Arc;

use naga::valid::Capabilities;

use super::super::compile::{CompileOptions, compile};
use super::super::deep_stack::{STACK_BYTES, on_stack};
use super::super::evaluate::validator;
use super::super::globals::GlobalTable;
use super::super::heap_setup::HeapSetup;
use super::super::{Constants, KernelError, Program, work};

/// A kernel with `body`, behind the declarations `head`.
fn kernel(head: &str, body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n{head}\n\
         @compute @workgroup_size(1) fn main() {{\n{body}\n}}\n"
    )
}

/// `count` pieces in a row.
fn row(count: usize, separator: &str, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect::<Vec<_>>().join(separator)
}

/// A chain of declarations, each made of the one before.
fn chain(count: usize, first: &str, next: impl Fn(usize, usize) -> String) -> String {
    format!("{first}\n{}", row(count - 1, "\n", |i| next(i + 1, i)))
}

/// Texts with a length growing with `n`, by the cause of the length.
pub(in crate::kernel) fn text(what: &str, n: usize) -> String {
    match what {
        "else if" => kernel(
            "",
            &format!(
                "let x = out[1]; if x == 9u {{}} {}",
                row(n, " ", |i| format!(
                    "else if x == {i}u {{ out[0] = {i}u; }}"
                ))
            ),
        ),
        "sum" => kernel(
            "",
            &format!("out[0] = {};", row(n, " + ", |_| "out[1]".into())),
        ),
        "and" => kernel(
            "",
            &format!(
                "if {} {{ out[0] = 1u; }}",
                row(n, " && ", |i| format!("out[{i}] == 0u"))
            ),
        ),
        "minus" => kernel(
            "",
            &format!("var x = 1i; let y = {}x; out[0] = u32(y);", "- ".repeat(n)),
        ),
        "not" => kernel(
            "",
            &format!("var x = true; let y = {}x; out[0] = u32(y);", "!".repeat(n)),
        ),
        "swizzles" => kernel(
            "",
            &format!("let v = vec4f(); let y = v{};", ".xyzw".repeat(n)),
        ),
        "brackets" => kernel(
            "",
            &format!("out[0] = {}1u{};", "(".repeat(n), ")".repeat(n)),
        ),
        "blocks" => kernel(
            "",
            &format!("{}{}", "if out[0] == 1u {".repeat(n), "}".repeat(n)),
        ),
        "templates" => kernel(
            "",
            &format!("var x: {}u32{};", "array<".repeat(n), ", 1>".repeat(n)),
        ),
        "overrides" => kernel(
            &chain(n, "override a0: u32 = 1u;", |i, j| {
                format!("override a{i}: u32 = a{j} + 1u;")
            }),
            &format!("out[0] = a{};", n - 1),
        ),
        "sizes" => kernel(
            &chain(n, "override a0: u32 = 1u;", |i, j| {
                format!("override a{i}: u32 = a{j} + 1u;")
            }),
            &format!("var t: array<u32, a{}>; out[0] = t[0];", n - 1),
        ),
        "constants" => kernel(
            &chain(n, "const a0 = 1u;", |i, j| {
                format!("const a{i} = a{j} + 1u;")
            }),
            &format!("out[0] = a{};", n - 1),
        ),
        "aliases" => kernel(
            &chain(n, "alias a0 = u32;", |i, j| format!("alias a{i} = a{j};")),
            &format!("var x: a{}; out[0] = x;", n - 1),
        ),
        "functions" => kernel(
            &chain(n, "fn f0(x: u32) -> u32 { return x; }", |i, j| {
                format!("fn f{i}(x: u32) -> u32 {{ return f{j}(x); }}")
            }),
            &format!("out[0] = f{}(1u);", n - 1),
        ),
        "structures" => kernel(
            &chain(n, "struct S0 { a: u32 }", |i, j| {
                format!("struct S{i} {{ a: S{j} }}")
            }),
            &format!("var x: S{}; out[0] = 1u;", n - 1),
        ),
        "doubled structures" => kernel(
            &chain(n, "struct S0 { a: u32 }", |i, j| {
                format!("struct S{i} {{ a: S{j}, b: S{j} }}")
            }),
            &format!("var x: S{}; out[0] = 1u;", n - 1),
        ),
        "many overrides" => kernel(
            &row(n, "\n", |i| format!("override a{i}: u32 = {i}u;")),
            &row(n, "\n", |i| format!("out[{i}] = a{i};")),
        ),
        "many sizes" => kernel(
            &row(n, "\n", |i| format!("override a{i}: u32 = 4u;")),
            &row(n, "\n", |i| {
                format!("var t{i}: array<u32, a{i} + 1u>; out[0] += t{i}[0];")
            }),
        ),
        "long sizes" => kernel(
            &row(n, "\n", |i| format!("override a{i}: u32 = 2000u;")),
            &row(n, "\n", |i| {
                format!("var t{i}: array<vec2f, a{i}>; t{i}[0].x = 1.0;")
            }),
        ),
        "alignments" => kernel(
            "override N: u32 = 4;",
            &row(n, "\n", |i| {
                format!("@align(N * 4u) var t{i}: array<u32, N>; t{i}[0] = 1u;")
            }),
        ),
        "hops" => kernel(
            "struct Node { next: usm_ptr }",
            &format!(
                "let p0 = vec2u(out[0], out[1]); {} out[0] = p{n}.x;",
                row(n, "\n", |i| format!(
                    "let p{} = usm_Node(p{i}).next;",
                    i + 1
                ))
            ),
        ),
        "pointees" => kernel(
            &row(n, "\n", |i| format!("struct S{i} {{ a: u32 }}")),
            &format!(
                "let p = vec2u(out[0], out[1]); {}",
                row(n, "\n", |i| format!("let s{i} = usm_S{i}(p); s{i}.a = 1u;"))
            ),
        ),
        "attributes" => kernel(&format!("{} const x = 1u;", "@foo ".repeat(n)), ""),
        "local attributes" => kernel("", &format!("{} var x = 1u;", "@align(4) ".repeat(n))),
        "statements" => kernel(
            "",
            &row(n, "\n", |i| format!("out[{i}] = out[{}] + 1u;", i + 1)),
        ),
        "lets" => kernel(
            "",
            &format!(
                "let a0 = out[0]; {} out[0] = a{n};",
                row(n, "\n", |i| format!("let a{} = a{i} + 1u;", i + 1))
            ),
        ),
        "local constants" => kernel(
            "override N: u32 = 3;",
            &format!(
                "const a0 = N; {} var x: array<u32, a{n}>;",
                row(n, "\n", |i| format!("const a{} = a{i} + a{i};", i + 1))
            ),
        ),
        "variables" => kernel(
            "",
            &row(n, "\n", |i| {
                format!("var a{i} = out[{i}]; out[{i}] = a{i};")
            }),
        ),
        "parameters" => kernel(
            &format!("fn f({}) {{}}", row(n, ", ", |i| format!("p{i}: u32"))),
            "",
        ),
        "members" => kernel(
            &format!("struct S {{ {} }}", row(n, ", ", |i| format!("m{i}: u32"))),
            "",
        ),
        "loops" => kernel(
            "",
            &row(n, "\n", |_| {
                "for (var i = 0u; i < out[0]; i++) { out[1] += i; }".into()
            }),
        ),
        "cases" => kernel(
            "",
            &format!(
                "switch out[0] {{ {} default: {{}} }}",
                row(n, "\n", |i| format!("case {i}: {{ out[1] = {i}u; }}"))
            ),
        ),
        "calls" => kernel(
            &row(n, "\n", |i| format!("fn f{i}() {{ out[{i}] = 1u; }}")),
            &row(n, "\n", |i| format!("f{i}();")),
        ),
        "prints" => kernel("", &row(n, "\n", |i| format!("print(\"a {{}}\", {i}u);"))),
        "asserts" => kernel(
            "",
            &row(n, "\n", |i| {
                format!("assert(out[0] == {i}u, \"a {{}}\", {i}u);")
            }),
        ),
        "globals" => kernel(
            &row(n, "\n", |i| format!("var<storage, read_write> g{i}: u32;")),
            &row(n, "\n", |i| format!("g{i} = 1u;")),
        ),
        "assertions" => kernel(&row(n, "\n", |i| format!("const_assert {i} >= 0;")), ""),
        "open brackets" => "(".repeat(n),
        "wrong brackets" => "{)".repeat(n),
        "comparisons" => kernel("", &"a<".repeat(n)),
        "unended lets" => kernel("", &"let x ".repeat(n)),
        "unended types" => format!("fn f({})", "a: ".repeat(n)),
        "functions without bodies" => "fn f ".repeat(n),
        "comments" => "/*".repeat(n),
        "strings" => "\"a".repeat(n),
        "groups" => row(n, "\n", |i| {
            format!("@group({i}) @binding(0) var<storage> a{i}: u32;")
        }),
        "one line" => kernel("", &row(n, " ", |i| format!("print(\"ä {{}}\", {i}u);"))),
        _ => unreachable!("{what}"),
    }
}

/// Texts to be read in nearly linear time, with the least measured `n`.
pub(in crate::kernel) const GROWING: &[(&str, usize)] = &[
    ("else if", 200),
    ("sum", 500),
    ("and", 500),
    ("minus", 500),
    ("not", 500),
    ("swizzles", 500),
    ("overrides", 200),
    ("sizes", 200),
    ("constants", 200),
    ("aliases", 200),
    ("functions", 200),
    ("structures", 200),
    ("many overrides", 200),
    ("many sizes", 200),
    ("long sizes", 200),
    ("alignments", 200),
    ("hops", 200),
    ("pointees", 100),
    ("attributes", 1000),
    ("local attributes", 1000),
    ("statements", 200),
    ("lets", 200),
    ("variables", 200),
    ("parameters", 200),
    ("members", 500),
    ("loops", 100),
    ("cases", 200),
    ("calls", 200),
    ("prints", 100),
    ("asserts", 100),
    ("globals", 100),
    ("assertions", 500),
    ("open brackets", 1000),
    ("wrong brackets", 1000),
    ("comparisons", 1000),
    ("unended lets", 1000),
    ("unended types", 1000),
    ("functions without bodies", 1000),
    ("comments", 1000),
    ("strings", 1000),
    ("groups", 200),
    ("one line", 100),
];

fn options() -> CompileOptions {
    CompileOptions {
        capabilities: Capabilities::all().bits(),
        private_limit: 1 << 30,
        spill: super::super::passes::spill::SpillPolicy::Auto,
        scratch_bytes: 1 << 30,
        loop_budget: Some(65_535),
        nesting: None,
        splits_extrema: true,
        auto_workgroup: 64,
        heap: HeapSetup {
            checked: true,
            segments: 2,
            may_report: true,
            ..HeapSetup::default()
        },
    }
}

/// From a text to the driver's input, for each of its kernels.
pub(in crate::kernel) fn through(text: &str) -> Result<(), KernelError> {
    let program = Program::new("a.wgsl", text)?;
    for entry in program.entry_points() {
        let names = GlobalTable::default();
        let made = compile(&program, entry, &Constants::new(), &options(), &names)?;
        let super::super::compile::Code::Naga { module, .. } = &made.code else {
            continue;
        };
        let valid = validator(Capabilities::all()).validate(module);
        let info = valid.map_err(|error| KernelError::Internal {
            program: "a.wgsl".into(),
            message: error.to_string(),
        })?;
        let spirv = naga::back::spv::Options::default();
        naga::back::spv::write_vec(module, &info, &spirv, None).expect("a valid module");
        let flags = naga::back::wgsl::WriterFlags::empty();
        naga::back::wgsl::write_string(module, &info, flags).expect("a valid module");
    }
    Ok(())
}

#[test]
fn work_grows_with_the_length_of_a_text() {
    for (what, n) in GROWING {
        let [one, two, four] = [1, 2, 4].map(|times| {
            let text = text(what, n * times);
            // On this thread, which counts.
            on_stack("a", STACK_BYTES, || Ok(work::of(|| drop(through(&text))).0)).unwrap()
        });
        let growth = [two as f64 / one as f64, four as f64 / two as f64];
        assert!(
            growth.iter().all(|growth| *growth < 2.3),
            "{what}: {one}, {two} and {four} steps for {n}, {} and {}",
            2 * n,
            4 * n
        );
    }
}

/// Each limit: a text at the limit, a text beyond, and the cause named by the error.
fn at_limits() -> Vec<(&'static str, String, String, &'static str)> {
    let of = |what: &'static str, n: usize, says: &'static str| {
        (what, text(what, n), text(what, n + 1), says)
    };
    let limits = Program::LIMITS;
    let long = |tokens: usize| "const_assert true;".repeat(tokens / 3) + &";".repeat(tokens % 3);
    let padded = |bytes: usize| " ".repeat(bytes);
    // Tokens of a function: `fn f ( ) { }`, and its contents.
    let function = |tokens: usize| format!("fn f() {{ {} }}", ";".repeat(tokens - 6));
    // In a sum `out[1]` is an index and a bracket, and each further term adds an operator.
    vec![
        of("brackets", limits.nesting - 1, "brackets inside each other"),
        of(
            "templates",
            limits.nesting - 1,
            "brackets inside each other",
        ),
        of(
            "sum",
            limits.expression_depth - 1,
            "operators in one expression",
        ),
        of(
            "minus",
            limits.expression_depth,
            "operators in one expression",
        ),
        of(
            "not",
            limits.expression_depth,
            "operators in one expression",
        ),
        of(
            "swizzles",
            limits.expression_depth,
            "operators in one expression",
        ),
        of(
            "else if",
            limits.statement_depth - 2,
            "branches inside each other",
        ),
        of(
            "overrides",
            limits.declaration_depth - 1,
            "declarations that depend",
        ),
        of(
            "constants",
            limits.declaration_depth - 1,
            "declarations that depend",
        ),
        of(
            "aliases",
            limits.declaration_depth - 1,
            "declarations that depend",
        ),
        of(
            "functions",
            limits.declaration_depth - 1,
            "declarations that depend",
        ),
        of(
            "structures",
            limits.declaration_depth - 1,
            "declarations that depend",
        ),
        of("doubled structures", 13, "members of a type"),
        (
            "tokens",
            long(limits.tokens),
            long(limits.tokens + 1),
            "names, numbers",
        ),
        (
            "function tokens",
            function(limits.function_tokens),
            function(limits.function_tokens + 1),
            "in one function",
        ),
        (
            "bytes",
            padded(limits.bytes),
            padded(limits.bytes + 1),
            "bytes of text",
        ),
    ]
}

#[test]
fn each_limit_is_accepted_and_one_more_is_refused() {
    for (what, within, beyond, says) in at_limits() {
        // Not all of them are programs, but none is too complex.
        let result = on_stack(what, STACK_BYTES, || through(&within));
        assert!(
            !matches!(
                result,
                Err(KernelError::TooComplex { .. } | KernelError::Internal { .. })
            ),
            "{what}: {:?}",
            result.map_err(|error| error.to_string().chars().take(120).collect::<String>())
        );
        let error = on_stack(what, STACK_BYTES, || through(&beyond)).expect_err(what);
        let KernelError::TooComplex {
            what: found_what,
            found,
            limit,
            diagnostic,
        } = &error
        else {
            panic!("{what}: {error}");
        };
        assert!(found_what.contains(says), "{what}: {found_what}");
        assert!(found > limit, "{what}: {found} and {limit}");
        assert!(diagnostic.line > 0 || what == "bytes", "{what}: {error}");
        assert!(!diagnostic.notes.is_empty(), "{what}");
    }
}

#[test]
fn half_of_the_stack_is_enough_at_every_limit() {
    for (what, within, beyond, _) in at_limits() {
        for text in [within, beyond] {
            let result = on_stack(what, STACK_BYTES / 2, || {
                let _ = through(&text);
                Ok(())
            });
            assert_eq!(result, Ok(()), "{what}");
        }
    }
}

#[test]
fn a_text_beyond_the_length_takes_no_work() {
    let most = Program::LIMITS.bytes;
    let long: Arc<str> = " ".repeat(2 * most).into();
    // A source beyond it, and two that are so together.
    for (sources, each) in [(&["a"][..], most + 1), (&["a", "b"], most / 2 + 1)] {
        let (work, result) = on_stack("long", STACK_BYTES, || {
            let part: Arc<str> = long[..each].into();
            let builder = (sources.iter()).fold(Program::builder(), |builder, name| {
                builder.source(*name, Arc::clone(&part))
            });
            Ok(work::of(|| builder.build()))
        })
        .unwrap();
        let KernelError::TooComplex {
            found,
            limit,
            diagnostic,
            ..
        } = result.unwrap_err()
        else {
            panic!("{sources:?}");
        };
        assert_eq!(found, (each * sources.len()) as u64);
        assert_eq!(limit, most as u64);
        assert_eq!((&*diagnostic.file, diagnostic.line), ("a", 0));
        assert_eq!(work, 0, "{sources:?}");
    }
}

#[test]
fn small_stacks_of_callers_do_not_matter() {
    for (what, within, beyond, _) in at_limits() {
        let caller = move || {
            for text in [within, beyond] {
                let made = Program::new(what, text);
                let program = match made {
                    Ok(program) => program,
                    Err(error) => {
                        assert!(error.diagnostic().is_some(), "{error}");
                        continue;
                    }
                };
                for entry in program.entry_points() {
                    let _ = program.interface(entry, &Constants::new());
                }
            }
        };
        let thread = std::thread::Builder::new().stack_size(512 << 10);
        thread.spawn(caller).unwrap().join().unwrap();
    }
}

#[test]
fn a_local_constant_depends_on_so_many_others() {
    let source = |n: usize| {
        kernel(
            &row(n, "\n", |i| format!("override a{i}: u32 = 1u;")),
            &format!(
                "const s = {}; var t: array<u32, s>; out[0] = t[0];",
                row(n, "+", |i| format!("a{i}"))
            ),
        )
    };
    let most = super::super::walk::MOST_MENTIONS;
    Program::new("a", source(most)).unwrap();
    let error = Program::new("a", source(most + 1)).unwrap_err();
    assert!(error.to_string().contains("local constant"), "{error}");
    // Each declaration mentions the previous one twice, and the previous one's mentions count once.
    Program::new("a", text("local constants", 200)).unwrap_err_or_ok();
}

/// A program, or an error that says something.
trait UnwrapEither {
    fn unwrap_err_or_ok(self);
}

impl UnwrapEither for Result<Program, KernelError> {
    fn unwrap_err_or_ok(self) {
        if let Err(error) = self {
            assert!(error.diagnostic().is_some(), "{error}");
        }
    }
}

#[test]
fn calls_that_double_are_not_unfolded() {
    let source = |n: usize| {
        kernel(
            &chain(n, "fn f0() { out[0] += 1u; }", |i, j| {
                format!("fn f{i}() {{ f{j}(); f{j}(); }}")
            }),
            &format!("f{}();", n - 1),
        )
    };
    through(&source(12)).unwrap();
    let error = through(&source(40)).unwrap_err();
    assert!(
        matches!(&error, KernelError::TooComplex { what, .. } if what.contains("called")),
        "{error}"
    );
}

#[test]
fn declarations_that_depend_on_themselves_are_left_to_naga() {
    for source in [
        "const a = b; const b = a;",
        "alias A = A;",
        "fn f() { g(); } fn g() { f(); }",
        "struct S { s: S }",
    ] {
        let error = Program::new("a", Arc::<str>::from(source)).unwrap_err();
        assert!(
            matches!(error, KernelError::Type(_) | KernelError::Syntax(_)),
            "{source}: {error}"
        );
    }
}
