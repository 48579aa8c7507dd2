//! What invocations of a work-group do together.

use tombolo_cpu_reference::fault::Fault;
use tombolo_cpu_reference::interpret::{Options, Order};

use super::run_with;

const SCAN: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    var<workgroup> tile: array<u32, 16>;
    var<workgroup> steps: u32;
    fn pause() -> u32 { workgroupBarrier(); return 1u; }
    @compute @workgroup_size(16) fn main(
        @builtin(local_invocation_index) id: u32, @builtin(global_invocation_id) at: vec3<u32>
    ) {
        tile[id] = data[at.x];
        if id == 3u { steps = 4u; }
        let turns = workgroupUniformLoad(&steps);
        for (var step = 0u; step < turns; step++) {
            var add = 0u;
            if id >= (1u << step) { add = tile[id - (1u << step)]; }
            var passed = pause();
            tile[id] += add * passed;
            passed += pause();
        }
        data[at.x] = tile[id];
    }";

#[test]
fn a_scan_with_barriers_in_loops_and_calls_is_right_in_any_order() {
    let input: Vec<u32> = (0..32).map(|i| i * i % 7).collect();
    let mut expected = input.clone();
    for group in expected.chunks_mut(16) {
        let mut sum = 0;
        for value in group {
            sum += *value;
            *value = sum;
        }
    }
    for order in [
        Order::Ascending,
        Order::Descending,
        Order::Shuffled(5),
        Order::Shuffled(6),
    ] {
        let options = Options {
            order,
            ..Options::default()
        };
        let (buffers, _) = run_with(SCAN, 2, &[&input], options).unwrap();
        assert_eq!(buffers[0], expected, "{order:?}");
    }
}

/// naga refuses barriers in flow that it sees to diverge; flow by values from memory it lets pass.
fn divergent(body: &str) -> Fault {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) id: u32) {{ {body} }}"
    );
    run_with(&text, 1, &[&[0, 1, 2, 3]], Options::default()).unwrap_err()
}

#[test]
fn barriers_in_divergent_flow_are_a_fault() {
    let some_pass_by = divergent("if data[id] > 1u { storageBarrier(); }");
    assert!(
        matches!(
            some_pass_by,
            Fault::BarrierInDivergentFlow {
                waiting: 2,
                elsewhere: 0,
                ..
            }
        ),
        "{some_pass_by}"
    );
    let two_barriers =
        divergent("if data[id] > 0u { storageBarrier(); } else { storageBarrier(); }");
    assert!(
        matches!(
            two_barriers,
            Fault::BarrierInDivergentFlow {
                waiting: 0,
                elsewhere: 1,
                ..
            }
        ),
        "{two_barriers}"
    );
    // Each invocation comes to the barrier once, but in another iteration.
    let iterations =
        divergent("for (var i = 0u; i < 4u; i++) { if data[id] == i { storageBarrier(); } }");
    assert!(
        matches!(iterations, Fault::BarrierInDivergentFlow { .. }),
        "{iterations}"
    );
}
