//! The programs planned as stretches, and the fate of their variables.

use super::*;
use crate::{
    compile::{
        emit::{lanes, waits},
        passes::live,
        tests::optimized,
    },
    jit::target,
    sanitizer::Instruments,
};

fn options(lanes: u32) -> Options {
    Options {
        checks_bounds: true,
        lanes,
        instruments: Instruments::default(),
        schedule: None,
    }
}

/// A kernel of 32 invocations.
fn kernel(body: &str) -> Program {
    let source = format!(
        "@group(0) @binding(0) var<uniform> given: vec4<u32>;
        @group(0) @binding(1) var<storage, read> fixed: array<u32>;
        @group(0) @binding(2) var<storage, read_write> out: array<u32>;
        var<workgroup> words: array<u32, 32>;
        @compute @workgroup_size(32) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>
        ) {{ {body} }}"
    );
    optimized(&source)
}

fn plan(program: &Program, options: Options) -> Option<Stretches> {
    let lives = live::lives(program);
    let isa = target::isa().unwrap();
    let lanes = lanes::choose(program, &lives, options.lanes, &**isa);
    assert!(waits(program, lanes.width), "{program}");
    Stretches::plan(program, &lives, options, &lanes)
}

fn is_planned(body: &str, options: Options) -> bool {
    plan(&kernel(body), options).is_some()
}

#[test]
fn conditions_that_all_invocations_share_are_planned() {
    for body in [
        "words[i] = i; workgroupBarrier(); out[i] = words[31u - i];",
        "for (var half = 16u; half > 0u; half /= 2u) {
            if (i < half) { words[i] += words[i + half]; }
            workgroupBarrier();
        }",
        "for (var k = 0u; k < given.x; k++) { words[i] += k; workgroupBarrier(); }",
        "if (group.x == given.y) { words[i] = i; workgroupBarrier(); out[i] = words[i ^ 1u]; }",
        "switch given.x { case 1u: { words[i] = i; workgroupBarrier(); } default: {} }
        out[i] = words[i];",
        // A loop without a barrier divides as well if leaving it may leave a construct with a barrier.
        "var k = 0u;
        loop {
            if (k == given.x) { return; }
            out[i] += k;
            if (k == given.y) { break; }
            k += 1u;
        }
        workgroupBarrier();
        out[i] += words[31u - i];",
        // Invocations part, and come together again before the barrier.
        "for (var k = 0u; k < i; k++) { words[i] += k; }
        workgroupBarrier();
        out[i] = words[31u - i];",
    ] {
        for lanes in [1, 4, 8, 32] {
            assert!(is_planned(body, options(lanes)), "{lanes} lanes: {body}");
        }
    }
}

#[test]
fn conditions_that_an_invocation_must_run_to_know_are_refused() {
    for body in [
        // Loaded memory may have been changed between one invocation and the next: by another invocation, or from outside.
        "for (var k = 0u; k < fixed[given.x]; k++) { words[i] += k; workgroupBarrier(); }",
        "let many = workgroupUniformLoad(&words[3]);
        for (var k = 0u; k < many; k++) { words[i] += k; workgroupBarrier(); }",
        // A loop without a barrier is a part of a stretch, and so are the values left behind.
        "var many = 1u;
        for (var k = given.x; k > 0u; k /= 2u) { many += given.y * k; }
        for (var k = 0u; k < many; k++) { words[i] += k; workgroupBarrier(); }",
    ] {
        for lanes in [1, 4, 8, 32] {
            assert!(!is_planned(body, options(lanes)), "{lanes} lanes: {body}");
        }
    }
}

#[test]
fn orders_by_a_seed_and_instruments_are_refused() {
    let body = "words[i] = i; workgroupBarrier(); out[i] = words[31u - i];";
    let plain = options(1);
    assert!(is_planned(body, plain));
    let schedule = Some(7);
    assert!(!is_planned(body, Options { schedule, ..plain }));
    for (checks, coverage) in [(None, true), (Some(Default::default()), false)] {
        let instruments = Instruments { checks, coverage };
        let observed = Options {
            instruments,
            ..plain
        };
        assert!(!is_planned(body, observed), "{instruments:?}");
    }
}

/// Invocations running one by one wait for one another at an operation of a subgroup, too, and only states remember where.
#[test]
fn operations_of_subgroups_are_planned_where_their_invocations_run_side_by_side() {
    let body = "words[i] = subgroupAdd(i); workgroupBarrier(); out[i] = words[31u - i];";
    for (lanes, planned) in [(1, false), (4, false), (8, true)] {
        assert_eq!(is_planned(body, options(lanes)), planned, "{lanes} lanes");
    }
}

#[test]
fn variables_are_shared_or_framed_as_they_are_used() {
    for (body, shared, framed) in [
        // The counter, and its value before the barrier.
        (
            "for (var half = 16u; half > 0u; half /= 2u) {
                if (i < half) { words[i] += words[i + half]; }
                workgroupBarrier();
            }",
            2,
            0,
        ),
        // A loaded value is the invocation's own.
        (
            "let own = out[i]; workgroupBarrier(); out[31u - i] = own;",
            0,
            1,
        ),
        // A variable that no stretch leaves to another needs no frame.
        (
            "var sum = 0u;
            for (var k = i; k > 0u; k /= 2u) { sum += words[k]; out[k] = sum; }
            workgroupBarrier();
            out[i] += words[i];",
            0,
            0,
        ),
        // A sum over the passes goes from each stretch to the next, and so does its value in this pass.
        (
            "var sum = 0u;
            for (var k = 0u; k < given.x; k++) {
                sum += words[i ^ k];
                workgroupBarrier();
                words[i] = sum;
                workgroupBarrier();
            }
            out[i] = sum;",
            2,
            2,
        ),
    ] {
        let program = kernel(body);
        let mut assigned = HashSet::new();
        visit::assigned(&program.body, &mut |variable| _ = assigned.insert(variable));
        // Where all 32 invocations run side by side, nothing goes to frames.
        for (lanes, framed) in [(1, framed), (8, framed), (32, 0)] {
            let plan = plan(&program, options(lanes)).unwrap();
            let got = (
                plan.shared.intersection(&assigned).count(),
                plan.framed.len(),
            );
            assert_eq!(got, (shared, framed), "{lanes} lanes: {body}\n{program}");
        }
    }
}

#[test]
fn stretches_end_early_at_branches_that_no_later_invocation_takes() {
    for (stretch, closing) in [
        ("if (i < given.x) { out[i] = words[i]; }", 1),
        (
            "let word = words[i]; if (i * 3u <= given.x) { out[i] = word; }",
            1,
        ),
        ("if (i32(i) < i32(given.x)) { out[i] = words[i]; }", 1),
        // Something else is done by all.
        ("out[i] = 1u; if (i < given.x) { out[i] = words[i]; }", 0),
        ("if (i < given.x) { out[i] = words[i]; } out[i] += 1u;", 0),
        (
            "if (i < given.x) { out[i] = words[i]; } else { out[i] = 1u; }",
            0,
        ),
        // Later invocations may take the branch.
        ("if (i == given.x) { out[i] = words[i]; }", 0),
        ("if (given.x < i) { out[i] = words[i]; }", 0),
        ("if (i % 8u < given.x) { out[i] = words[i]; }", 0),
        ("if (i + 0xffffffe4u < given.x) { out[i] = words[i]; }", 0),
        // The bound may change from one invocation to the next.
        ("if (i < out[0]) { out[i] = words[i]; }", 0),
    ] {
        let body = format!("words[i] = i; workgroupBarrier(); {stretch}");
        let plan = plan(&kernel(&body), options(8)).unwrap();
        assert_eq!(plan.closing.len(), closing, "{stretch}");
    }
}
