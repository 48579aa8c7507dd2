//! Programs of fixed seeds on the interpreter: they are valid, end, and have one result.

use tombolo_cpu_reference::differential::Case;
use tombolo_cpu_reference::generate::{Options, program};

/// Seeds of programs; more are run by hand, with the command `differential`.
const SEEDS: std::ops::Range<u64> = 0..40;

fn all_usable(options: Options) {
    let mut unusable = Vec::new();
    for seed in SEEDS {
        let case = Case::new(&program(seed, options));
        if let Err(error) = case.expected() {
            unusable.push(format!("seed {seed}: {error}"));
        }
    }
    assert!(
        unusable.is_empty(),
        "{} of {:?}:\n{}",
        unusable.len(),
        SEEDS,
        unusable[..unusable.len().min(5)].join("\n")
    );
}

#[test]
fn programs_are_valid_and_have_one_result() {
    all_usable(Options::default());
}

#[test]
fn programs_that_round_are_valid_and_have_one_result() {
    all_usable(Options {
        rounding: true,
        wide_shifts: true,
        ..Options::default()
    });
}

#[test]
fn programs_with_operations_of_subgroups_have_one_result() {
    all_usable(Options {
        subgroups: true,
        ..Options::default()
    });
}

#[test]
fn a_seed_gives_the_same_program() {
    let options = Options::default();
    assert_eq!(program(5, options), program(5, options));
    assert_ne!(program(5, options), program(6, options));
}

#[test]
fn naga_knows_no_divisor_by_the_name_of_a_constant() {
    // `let c_56 = vec2<i32>(0i).yyyx.z`, by which a variable is divided: once in 60,000 programs.
    let text = program(1_000_000_832, Options::default()).text();
    assert!(text.contains(" / c_56)"), "another program by now");
    tombolo_cpu_reference::source::parse(&text).unwrap();
}
