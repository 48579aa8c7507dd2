//! This project's own adapter, judged by the table and by generated programs.

use tombolo_cpu_reference::{
    adapters::{Job, Opened, embedded_adapter, embedded_adapter_with, judge, open, run},
    conformance::{Strictness, rows},
    differential::Case,
    generate::{Options, program},
};

/// Seeds of programs; more are run by hand, with the command `differential`.
const SEEDS: std::ops::Range<u64> = 0..100;

fn embedded() -> Opened {
    open(&embedded_adapter().expect("an adapter")).expect("a device")
}

#[test]
fn the_table_holds_by_the_letter_of_ieee_754() {
    let rows = rows::all();
    let judgement = judge(&embedded(), &rows, Strictness::Ieee).expect("results");
    let surprises: Vec<_> = judgement
        .surprises()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn generated_programs_have_the_results_of_the_interpreter() {
    // Whatever rounds is rounded as IEEE 754 says.
    agree(
        &embedded(),
        Options {
            rounding: true,
            wide_shifts: true,
            ..Options::default()
        },
    );
}

#[test]
fn operations_of_subgroups_have_the_results_of_the_interpreter() {
    let options = Options {
        subgroups: true,
        ..Options::default()
    };
    for lanes in [1, 8] {
        let mut own = tombolo_cpu::Options::default();
        own.lanes = lanes;
        let adapter = embedded_adapter_with(own).expect("an adapter");
        agree(&open(&adapter).expect("a device"), options);
    }
}

/// Generated programs have the results of the interpreter.
fn agree(embedded: &Opened, options: Options) {
    for seeds in SEEDS.collect::<Vec<_>>().chunks(32) {
        let cases: Vec<_> = seeds
            .iter()
            .map(|&seed| Case::new(&program(seed, options)))
            .collect();
        let jobs: Vec<_> = cases
            .iter()
            .map(|case| Job {
                text: &case.text,
                entry_point: "main",
                buffers: &case.buffers,
                workgroups: [case.workgroups, 1, 1],
            })
            .collect();
        let results = run(embedded, &jobs).expect("results");
        for ((seed, case), got) in seeds.iter().zip(&cases).zip(results) {
            let got = got.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let (expected, _) = case.interpret(Default::default()).expect("a program");
            if let Some(difference) = case.compare(&expected, &got) {
                panic!("seed {seed}: {difference}");
            }
        }
    }
}
