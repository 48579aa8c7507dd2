//! Texts at the limits, beyond them, and of two and four times a length.

use std::sync::Arc;

use naga::valid::Capabilities;

use super::super::compile::{CompileOptions, compile};
use super::super::deep_stack::{STACK_BYTES, on_stack};
use super::super::evaluate::validator;
use super::super::globals::GlobalTable;
use super::super::heap_setup::HeapSetup;
use super::super::{Constants, KernelError, Program, passes, work};

mod texts;

pub(in crate::kernel) use texts::{GROWING, text};
use texts::{chain, kernel, row};

fn options() -> CompileOptions {
    CompileOptions {
        capabilities: Capabilities::all().bits(),
        private_limit: 1 << 30,
        spill: crate::device::spill_policy::SpillPolicy::Auto,
        scratch_bytes: 1 << 30,
        loop_budget: Some(65_535),
        nesting: None,
        splits_extrema: true,
        folds_wrongly: true,
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
        let info = |module: &naga::Module| {
            let valid = validator(Capabilities::all()).validate(module);
            valid.map_err(|error| KernelError::Internal {
                program: "a.wgsl".into(),
                message: error.to_string(),
            })
        };
        // As for Vulkan.
        let mut copied = module.clone();
        passes::part_arguments::copy(&mut copied);
        let (spirv, known) = (naga::back::spv::Options::default(), info(&copied)?);
        naga::back::spv::write_vec(&copied, &known, &spirv, None).expect("a valid module");
        let info = info(module)?;
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
            // On this thread, the counting thread.
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
        // Not all texts are programs, but none is too complex.
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
    // A source beyond the limit, and two beyond the limit together.
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

/// A program, or an error with a message.
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
