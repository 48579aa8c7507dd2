//! Schedules by a seed: other orders, each of which can be had again. And which statements were executed.

use tombolo_cpu::{Api, Options};

use crate::harness::Cpu;

fn with_seed(seed: Option<u64>) -> Cpu {
    let mut options = Options::default();
    options.schedule = seed;
    Cpu::with(options)
}

/// Each work-group notes its number of arrival.
const GROUPS: &str = "
    @group(0) @binding(0) var<storage, read_write> next: atomic<u32>;
    @group(0) @binding(1) var<storage, read_write> arrival: array<u32>;
    @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
        arrival[group.x] = atomicAdd(&next, 1u);
    }";

/// Each invocation notes its number of arrival, before a barrier and behind it.
const INVOCATIONS: &str = "
    @group(0) @binding(0) var<storage, read_write> next: atomic<u32>;
    @group(0) @binding(1) var<storage, read_write> arrival: array<u32>;
    @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) i: u32) {
        arrival[i] = atomicAdd(&next, 1u);
        workgroupBarrier();
        arrival[16u + i] = atomicAdd(&next, 1u);
    }";

fn arrivals(seed: Option<u64>, source: &str, groups: u32) -> Vec<u32> {
    with_seed(seed).run(source, [groups, 1, 1], &[&[0; 4], &[0xff; 128]])
}

#[test]
fn a_seed_decides_the_order_of_work_groups() {
    let orders: Vec<_> = (0..4)
        .map(|seed| arrivals(Some(seed), GROUPS, 32))
        .collect();
    for (seed, order) in (0..).zip(&orders) {
        assert_eq!(&arrivals(Some(seed), GROUPS, 32), order);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..32), "{order:?}");
    }
    assert!(orders.iter().all(|order| !order.is_sorted()));
    assert_ne!(orders[0], orders[1]);
}

#[test]
fn a_seed_decides_the_order_of_invocations_between_barriers() {
    let usual = arrivals(None, INVOCATIONS, 1);
    assert!(usual.iter().copied().eq(0..32));
    let order = arrivals(Some(3), INVOCATIONS, 1);
    assert_eq!(arrivals(Some(3), INVOCATIONS, 1), order);
    assert_ne!(arrivals(Some(4), INVOCATIONS, 1), order);
    // All come to the barrier before any goes on, in an order of its own.
    let (before, behind) = order.split_at(16);
    let sorted = |part: &[u32]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part
    };
    assert!(sorted(before).into_iter().eq(0..16) && sorted(behind).into_iter().eq(16..32));
    assert!(!before.is_sorted());
    assert!((0..16).any(|i| before[i] + 16 != behind[i]));
}

#[test]
fn an_order_bug_shows_with_some_seed_and_again_with_the_same() {
    // Right as long as the last work-group ends last.
    let source = "
        @group(0) @binding(0) var<storage, read_write> parts: array<u32>;
        @group(0) @binding(1) var<storage, read_write> sum: array<u32>;
        @compute @workgroup_size(1) fn main(
            @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>
        ) {
            parts[group.x] = group.x + 1u;
            if group.x == groups.x - 1u {
                for (var i = 0u; i < groups.x; i++) { sum[0] += parts[i]; }
            }
        }";
    let sum = |seed| -> u32 { with_seed(seed).run(source, [8, 1, 1], &[&[0; 32], &[0; 4]])[0] };
    let mut options = Options::default();
    options.threads = Some(1);
    let usual: Vec<u32> = Cpu::with(options).run(source, [8, 1, 1], &[&[0; 32], &[0; 4]]);
    assert_eq!(usual, [36]);
    let wrong = (0..8)
        .find(|&seed| sum(Some(seed)) != 36)
        .expect("no seed shows the bug");
    assert_eq!(sum(Some(wrong)), sum(Some(wrong)));
}

#[test]
fn work_groups_that_wait_end_with_every_seed() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> turn: atomic<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
            var looks = 0u;
            while atomicLoad(&turn) != group.x { looks += 1u; out[8u + group.x] = looks; }
            out[group.x] = group.x;
            atomicAdd(&turn, 1u);
        }";
    for seed in 0..3 {
        let run =
            || -> Vec<u32> { with_seed(Some(seed)).run(source, [8, 1, 1], &[&[0; 4], &[0; 64]]) };
        let out = run();
        assert!(out[..8].iter().copied().eq(0..8));
        // How often each has looked is a matter of the schedule alone.
        assert_eq!(run(), out);
    }
}

#[test]
fn races_are_found_in_every_order() {
    for seed in 0..4 {
        let mut options = Options::default();
        options.schedule = Some(seed);
        options.sanitizer = Some(Default::default());
        let cpu = Cpu::with(options);
        let source = "
            var<workgroup> tile: array<u32, 16>;
            @group(0) @binding(0) var<storage, read_write> out: array<u32>;
            @compute @workgroup_size(16) fn main(
                @builtin(local_invocation_index) i: u32, @builtin(global_invocation_id) at: vec3<u32>
            ) {
                tile[i] = at.x;
                workgroupBarrier();
                out[at.x] = tile[i ^ 1u];
                tile[i] = 1u; // A barrier is missing before it.
            }";
        let out: Vec<u32> = cpu.run(source, [2, 1, 1], &[&[0; 128]]);
        assert_eq!(out.len(), 32);
        let findings = cpu.findings();
        assert!(!findings.is_empty(), "seed {seed}");
        assert!(
            findings
                .iter()
                .all(|finding| finding.variable.as_deref() == Some("tile"))
        );
    }
}

#[test]
fn executions_are_counted_by_line() {
    let mut options = Options::default();
    options.coverage = true;
    let cpu = Cpu::with(options);
    let source = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
fn twice(x: u32) -> u32 {
    return x * 2u;
}
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = id.x;
    for (var k = 0u; k < 3u; k++) {
        sum += twice(k);
    }
    if sum > 1000u {
        sum = 0u;
    }
    out[id.x] = sum;
}";
    let out: Vec<u32> = cpu.run(source, [2, 1, 1], &[&[0xff; 64]]);
    assert!(out.iter().copied().eq(6..22));
    // SAFETY: the device is only asked.
    let coverage = unsafe { cpu.device.as_hal::<Api>() }.unwrap().coverage();
    assert_eq!(coverage.len(), 1);
    assert_eq!(coverage[0].kernel, "main");
    let count = |line: u32| {
        let at = |place: &tombolo_cpu::sanitizer::TextPlace| place.line_in(source).unwrap().0;
        let found = coverage[0]
            .lines
            .iter()
            .find(|found| at(&found.place) == line);
        found.map(|found| found.count)
    };
    assert_eq!(count(3), Some(48));
    assert_eq!(count(8), Some(48));
    assert_eq!(count(10), Some(16));
    assert_eq!(count(11), Some(0));
    assert_eq!(count(13), Some(16));
    assert_eq!(count(1), None);
    // What was executed took some time, and what was not took none.
    for line in &coverage[0].lines {
        assert_eq!(line.time.is_zero(), line.count == 0, "{line:?}");
    }
}
