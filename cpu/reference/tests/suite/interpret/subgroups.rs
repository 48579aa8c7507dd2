//! Subgroup operations, in flow that diverges too.

use tombolo_cpu_reference::interpret::{Detect, Options, Order};
use tombolo_cpu_reference::report::FindingKind;

use super::run_with;

fn subgroups(size: u32, body: &str, words: usize) -> Vec<u32> {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(16) fn main(
            @builtin(local_invocation_index) id: u32, @builtin(subgroup_invocation_id) lane: u32,
            @builtin(subgroup_id) group: u32, @builtin(num_subgroups) groups: u32, @builtin(subgroup_size) size: u32,
        ) {{ {body} }}"
    );
    let mut results = Vec::new();
    for order in [Order::Ascending, Order::Shuffled(3)] {
        let options = Options {
            subgroup_size: size,
            order,
            ..Options::default()
        };
        results.push(
            run_with(&text, 1, &[&vec![0; words]], options)
                .unwrap()
                .0
                .remove(0),
        );
    }
    assert_eq!(results[0], results[1], "the order of invocations shows");
    results.remove(0)
}

#[test]
fn reductions_and_scans() {
    let out = subgroups(
        8,
        "out[id] = subgroupAdd(id) * 10000u + subgroupExclusiveAdd(id) * 100u + subgroupInclusiveAdd(lane);",
        16,
    );
    let expected: Vec<u32> = (0..16u32)
        .map(|id| {
            let first = id / 8 * 8;
            let sum: u32 = (first..first + 8).sum();
            let before: u32 = (first..id).sum();
            let lanes: u32 = (0..=id % 8).sum();
            sum * 10000 + before * 100 + lanes
        })
        .collect();
    assert_eq!(out, expected);
}

#[test]
fn only_lanes_that_come_along_take_part() {
    // Lanes of odd numbers vote alone, in each iteration those that are still there.
    let out = subgroups(
        4,
        "var seen = 0u;
         for (var i = 0u; i < lane; i++) {
            if lane % 2u == 1u { seen = seen * 100u + subgroupAdd(lane + 1u); }
         }
         out[id] = seen * 100u + countOneBits(subgroupBallot(lane != 2u).x);",
        16,
    );
    // Lane 1 takes part in iteration 0, lane 3 in 0, 1 and 2: sums 2 + 4, 4 and 4. Three of four vote.
    assert_eq!(out[..4], [3, 603, 3, 6_040_403]);
}

#[test]
fn shuffles_broadcasts_and_quads() {
    let out = subgroups(
        8,
        "let v = vec2(id, id * 2u);
         out[id] = subgroupShuffleXor(v, 3u).y * 1000000u + subgroupBroadcast(id, 5u) * 10000u
             + subgroupBroadcastFirst(id) * 100u + quadSwapDiagonal(lane) * 10u + quadBroadcast(lane, 2u);",
        16,
    );
    let expected: Vec<u32> = (0..16u32)
        .map(|id| {
            let (first, lane) = (id / 8 * 8, id % 8);
            (id ^ 3) * 2_000_000
                + (first + 5) * 10000
                + first * 100
                + (lane ^ 3) * 10
                + (lane / 4 * 4 + 2)
        })
        .collect();
    assert_eq!(out, expected);
}

#[test]
fn the_last_subgroup_may_be_smaller() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(6) fn main(@builtin(local_invocation_index) id: u32, @builtin(num_subgroups) n: u32) {
            out[id] = subgroupMax(id) * 10u + n;
            out[id] += u32(subgroupAll(id < 4u)) * 1000u;
        }";
    let (buffers, _) = run_with(text, 1, &[&[0; 6]], Options::default()).unwrap();
    assert_eq!(buffers[0], [1032, 1032, 1032, 1032, 52, 52]);
}

#[test]
fn values_of_lanes_that_are_not_there_are_found() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) id: u32) {
            if out[id] == 0u { out[id] = subgroupShuffle(id, 1u); }
        }";
    let detect = Detect {
        inactive_lanes: true,
        ..Detect::default()
    };
    let options = Options {
        detect,
        ..Options::default()
    };
    let (_, outcome) = run_with(text, 1, &[&[0, 1, 0, 0]], options).unwrap();
    assert_eq!(
        outcome.findings[0].kind,
        FindingKind::InactiveLane { lane: 1 }
    );
    let (_, outcome) = run_with(text, 1, &[&[0, 0, 0, 0]], options).unwrap();
    assert_eq!(outcome.findings, []);
}
