//! The sanitizer of this project's own adapter, judged by generated programs and by what the interpreter finds in them.

use std::collections::BTreeSet;

use tombolo_cpu_reference::{
    adapters::{Job, Opened, embedded_adapter_with, open, run},
    differential::Case,
    generate::{Options, program},
    interpret::Detect,
    report::FindingKind,
};

/// Seeds of programs that are run in several orders.
const SEEDS: std::ops::Range<u64> = 0..30;

/// Seeds of small programs that are run once without each of their barriers: those of the first seeds that race without one
/// of them, while most barriers are not missed. Another generator wants other seeds.
const RACY_SEEDS: [u64; 3] = [2, 13, 22];

/// Statements of these programs, about: what takes time is to compile each of them once for every barrier.
const RACY_STATEMENTS: u32 = 20;

fn sanitized(schedule: Option<u64>) -> Opened {
    let mut options = tombolo_cpu::Options::default();
    options.sanitizer = Some(Default::default());
    options.schedule = schedule;
    open(&embedded_adapter_with(options).expect("an adapter")).expect("a device")
}

fn findings(opened: &Opened) -> Vec<tombolo_cpu::sanitizer::Finding> {
    // SAFETY: the device is only asked.
    let device = unsafe { opened.device.as_hal::<tombolo_cpu::Api>() };
    device.expect("a device of this adapter").take_findings()
}

fn job(case: &Case) -> Job<'_> {
    Job {
        text: &case.text,
        entry_point: "main",
        buffers: &case.buffers,
        workgroups: [case.workgroups, 1, 1],
    }
}

#[test]
fn nothing_is_found_in_correct_programs_and_results_are_the_same_in_any_order() {
    for schedule in [None, Some(1), Some(2)] {
        let opened = sanitized(schedule);
        for seed in SEEDS {
            let case = Case::new(&program(seed, Options::default()));
            let got = run(&opened, &[job(&case)]).expect("results").remove(0);
            let got = got.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if let Some(finding) = findings(&opened).first() {
                panic!("seed {seed}: {finding}\n{}", case.text);
            }
            let (expected, _) = case.interpret(Default::default()).expect("a program");
            if let Some(difference) = case.compare(&expected, &got) {
                panic!("seed {seed}, order {schedule:?}: {difference}");
            }
        }
    }
}

/// The text without one of its barriers, counted among all of both kinds; `None` if there are fewer.
fn without_barrier(text: &str, which: usize) -> Option<String> {
    let barriers = ["workgroupBarrier();", "storageBarrier();"];
    let places = barriers
        .iter()
        .flat_map(|barrier| text.match_indices(barrier));
    let (at, barrier) = places.into_iter().nth(which)?;
    let mut changed = text.to_owned();
    changed.replace_range(at..at + barrier.len(), "");
    Some(changed)
}

/// Both run invocations one after the other from barrier to barrier, so that a race leads them to the same values.
#[test]
fn races_without_a_barrier_are_those_that_the_interpreter_finds() {
    let opened = sanitized(None);
    let detect = Detect {
        uninitialized: false,
        ..Detect::ALL
    };
    let (mut racy, mut clean) = (0, 0);
    for seed in RACY_SEEDS {
        let statements = Options {
            statements: RACY_STATEMENTS,
            ..Options::default()
        };
        let mut case = Case::new(&program(seed, statements));
        // Races are between invocations of a work-group.
        case.workgroups = 1;
        let text = case.text.clone();
        for which in 0.. {
            let Some(changed) = without_barrier(&text, which) else {
                break;
            };
            case.text = changed;
            let options = tombolo_cpu_reference::interpret::Options {
                detect,
                ..Default::default()
            };
            // What the interpreter refuses (barriers that not all come to) is no matter of races.
            let Ok((_, outcome)) = case.interpret(options) else {
                continue;
            };
            let race = |finding: &&tombolo_cpu_reference::report::Finding| {
                matches!(finding.kind, FindingKind::Race { .. })
            };
            let expected: BTreeSet<_> = (outcome.findings.iter().filter(race))
                .map(|finding| finding.variable.clone())
                .collect();
            let ran = run(&opened, &[job(&case)]).expect("results").remove(0);
            ran.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = findings(&opened);
            let is_race = |finding: &&tombolo_cpu::sanitizer::Finding| {
                matches!(
                    finding.kind,
                    tombolo_cpu::sanitizer::FindingKind::Race { .. }
                )
            };
            let got: BTreeSet<_> = (found.iter().filter(is_race))
                .map(|finding| finding.variable.clone())
                .collect();
            assert_eq!(got, expected, "seed {seed}, barrier {which}\n{}", case.text);
            match got.is_empty() {
                true => clean += 1,
                false => racy += 1,
            }
        }
    }
    assert!(
        racy >= 3 && clean >= 20,
        "{racy} programs race, {clean} do not"
    );
}
