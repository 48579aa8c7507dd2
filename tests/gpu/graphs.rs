//! Launch graphs: submitted again and again, changed in between, over several devices, and refused as a whole.

use crate::cases;
use crate::harness::Fixture;
use crate::launches::{INCREMENT, Params, SCALE, kernel};
use std::time::Duration;
use tombolo::device::{Device, ExecutionError, WaitError, WaitPolicy};
use tombolo::launch::{GraphError, LaunchError, LaunchGraph};
use tombolo::{Constants, DeviceBuffer, Kernel, Program};

cases![
    a_graph_is_submitted_again_with_other_values,
    grids_and_buffers_change_between_submissions,
    a_mistake_in_any_launch_submits_none,
    launches_on_two_devices_follow_each_other,
    a_failure_on_another_device_stops_what_follows,
    launches_in_front_make_bytes_for_those_behind,
    a_launch_is_replaced_by_one_on_another_device,
    who_may_not_wait_submits_nothing,
    launches_of_another_graph_are_refused,
    a_graph_without_launches_does_nothing,
];

const WAIT: Duration = Duration::from_secs(60);

fn params(factor: f32, offset: f32, count: u32) -> Params {
    Params {
        factor,
        offset,
        count,
    }
}

fn a_graph_is_submitted_again_with_other_values(f: &Fixture) {
    const COUNT: usize = 1000;
    let scale = kernel(f, SCALE);
    let [first, second] = [0.0f32, -1.0].map(|poison| f.device.buffer(&[poison; COUNT]).unwrap());
    let values: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let source = f.device.buffer(&values).unwrap();
    let step = |from: &DeviceBuffer<f32>, to: &DeviceBuffer<f32>| {
        let launch = scale.launch().buffer("source", from).buffer("sink", to);
        launch.invocations(COUNT as u32)
    };
    let mut graph = LaunchGraph::new();
    let one = graph.add(step(&source, &first).value("params", &params(1.0, 0.0, 0)));
    let two = graph.add(step(&first, &second).value("params", &params(2.0, 1.0, COUNT as u32)));
    assert_eq!((graph.len(), graph.is_empty()), (2, false));
    let mut runs = Vec::new();
    for round in 1..20u8 {
        let new = params(round.into(), 3.0, COUNT as u32);
        graph
            .launch_mut(one)
            .unwrap()
            .set_value("params", &new)
            .unwrap();
        let run = graph.submit().unwrap();
        assert_eq!(run.events().len(), 2);
        // Half of them is read while the others are still recorded.
        if round % 2 == 0 {
            let expected: Vec<f32> = (values
                .iter()
                .map(|v| (v * f32::from(round) + 3.0) * 2.0 + 1.0))
            .collect();
            assert_eq!(second.read().unwrap(), expected);
        }
        runs.push(run);
    }
    for run in &runs {
        run.event(two).unwrap().wait().unwrap();
        run.wait_timeout(WAIT).unwrap();
    }
    let expected: Vec<f32> = values
        .iter()
        .map(|v| (v * 19.0 + 3.0) * 2.0 + 1.0)
        .collect();
    assert_eq!(second.read().unwrap(), expected);
}

fn grids_and_buffers_change_between_submissions(f: &Fixture) {
    let increment = kernel(f, INCREMENT);
    let [a, b] = [(); 2].map(|()| f.device.buffer(&[0u32; 256]).unwrap());
    let mut graph = LaunchGraph::new();
    let node = graph.add(increment.launch().buffer("data", &a).invocations(64));
    graph.submit().unwrap();
    graph.launch_mut(node).unwrap().set_workgroups(2);
    graph.submit().unwrap();
    let launch = graph.launch_mut(node).unwrap();
    launch.set_buffer("data", &b).unwrap();
    launch.set_invocations(193);
    graph.submit().unwrap().wait().unwrap();
    let of = |counts: [u32; 4]| counts.map(|n| [n; 64]).concat();
    assert_eq!(a.read().unwrap(), of([2, 1, 0, 0]));
    assert_eq!(b.read().unwrap(), of([1, 1, 1, 1]));
}

fn a_mistake_in_any_launch_submits_none(f: &Fixture) {
    let increment = kernel(f, INCREMENT);
    let data = f.device.buffer(&[7u32; 64]).unwrap();
    let good = || increment.launch().buffer("data", &data).invocations(64);
    let mut graph = LaunchGraph::new();
    graph.add(good());
    graph.add(increment.launch().invocations(64));
    graph.add(good());
    for refused in [graph.check().err(), graph.submit().err()] {
        match refused {
            Some(GraphError::Launch {
                node: 1,
                run,
                program,
                source,
                ..
            }) => {
                assert_eq!(program, "test.wgsl");
                assert!(matches!(*source, LaunchError::MissingArguments { .. }));
                assert!(run.events().is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(data.read().unwrap(), [7; 64]);
}

const COPY: &str = "
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&sink) { sink[id.x] = source[id.x] + 1u; }
}";

fn kernel_on(device: &Device, source: &str) -> Kernel {
    let program = Program::new("graph.wgsl", source).unwrap();
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

fn launches_on_two_devices_follow_each_other(f: &Fixture) {
    let other = f.context.device_at(f.index).unwrap();
    let [here, there] = [&f.device, &other].map(|device| kernel_on(device, COPY));
    let values: Vec<u32> = (0..5000).collect();
    let buffer = |values: &[u32]| f.context.buffer_from(values).unwrap();
    let [a, b, c] = [&values[..], &[0xdead; 5000], &[0xdead; 5000]].map(buffer);
    let mut graph = LaunchGraph::new();
    let launch = |kernel: &Kernel, from, to| {
        let launch = kernel.launch().buffer("source", from).buffer("sink", to);
        launch.invocations(5000)
    };
    // Bytes take their way by themselves.
    let first = graph.add(launch(&here, &a, &b));
    let second = graph.add_after(launch(&there, &b, &c), &[first]).unwrap();
    graph
        .add_after(launch(&here, &c, &a), &[first, second])
        .unwrap();
    for round in 1..4 {
        let run = graph.submit().unwrap();
        run.wait_timeout(WAIT).unwrap();
        let expected: Vec<u32> = values.iter().map(|v| v + 3 * round).collect();
        assert_eq!(a.read().unwrap(), expected);
    }
}

fn a_failure_on_another_device_stops_what_follows(f: &Fixture) {
    let other = f.context.device_at(f.index).unwrap();
    let failing = kernel_on(
        &other,
        "@compute @workgroup_size(1) fn main() { assert(false); }",
    );
    let increment = kernel(f, INCREMENT);
    let data = f.device.buffer(&[7u32; 64]).unwrap();
    let mut graph = LaunchGraph::new();
    let first = graph.add(failing.launch().workgroups(1));
    let next = increment.launch().buffer("data", &data).invocations(64);
    graph.add_after(next, &[first]).unwrap();
    match graph.submit() {
        Err(GraphError::Wait {
            node: 1,
            run,
            source: WaitError::Failed(error),
            ..
        }) => {
            let is_failed = matches!(*error, ExecutionError::Assertion { .. });
            assert!(is_failed, "{error}");
            // What was submitted is at hand.
            run.event(first).unwrap().wait().unwrap_err();
            assert_eq!(run.events().len(), 1);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(data.read().unwrap(), [7; 64]);
}

/// Before the first launch the buffer has nothing that could be read.
fn launches_in_front_make_bytes_for_those_behind(f: &Fixture) {
    let device = f.open(|_| {});
    let copy = kernel_on(&device, COPY);
    let values: Vec<u32> = (0..640).collect();
    let buffer = |values: &[u32]| f.context.buffer_from(values).unwrap();
    let [a, b, c] = [&values[..], &[0xdead; 640], &[0xdead; 640]].map(buffer);
    // The device goes with the only bytes of `b`.
    let gone = f.open(|_| {});
    let lost = kernel_on(&gone, COPY);
    let mut launch = lost.launch().buffer("source", &a).buffer("sink", &b);
    launch = launch.invocations(640);
    launch.submit().unwrap().wait_timeout(WAIT).unwrap();
    drop(launch);
    gone.raw().destroy();
    gone.finish().unwrap_err();
    let mut reads = copy.launch().buffer("source", &b).buffer("sink", &c);
    reads = reads.invocations(640);
    assert!(matches!(reads.check(), Err(LaunchError::Buffer { .. })));
    let mut graph = LaunchGraph::new();
    let writes = copy.launch().buffer("source", &a).overwrite("sink", &b);
    graph.add(writes.invocations(640));
    graph.add(reads);
    graph.check().unwrap();
    graph.submit().unwrap().wait_timeout(WAIT).unwrap();
    let expected: Vec<u32> = values.iter().map(|v| v + 2).collect();
    assert_eq!(c.read().unwrap(), expected);
}

/// What follows the launch waits for where it is now.
fn a_launch_is_replaced_by_one_on_another_device(f: &Fixture) {
    let other = f.context.device_at(f.index).unwrap();
    let failing = "@compute @workgroup_size(1) fn main() { assert(false); }";
    let increment = kernel(f, INCREMENT);
    let data = f.device.buffer(&[7u32; 64]).unwrap();
    let next = || increment.launch().buffer("data", &data).invocations(64);
    let mut graph = LaunchGraph::new();
    let first = graph.add(next());
    graph.add_after(next(), &[first]).unwrap();
    graph.submit().unwrap().wait_timeout(WAIT).unwrap();
    assert_eq!(data.read().unwrap(), [9; 64]);
    *graph.launch_mut(first).unwrap() = kernel_on(&other, failing).launch().workgroups(1);
    assert!(matches!(
        graph.submit(),
        Err(GraphError::Wait { node: 1, .. })
    ));
    assert_eq!(data.read().unwrap(), [9; 64]);
}

fn who_may_not_wait_submits_nothing(f: &Fixture) {
    let other = f.open(|options| options.wait = WaitPolicy::Never);
    let data = other.buffer(&[7u32; 64]).unwrap();
    let here = f.device.buffer(&[7u32; 64]).unwrap();
    let launch = |device: &Device, data| {
        let launch = kernel_on(device, INCREMENT).launch();
        launch.buffer("data", data).invocations(64)
    };
    let mut graph = LaunchGraph::new();
    let first = graph.add(launch(&other, &data));
    graph.add_after(launch(&f.device, &here), &[first]).unwrap();
    match graph.submit() {
        Err(GraphError::Wait {
            node: 1,
            run,
            source: WaitError::Failed(error),
            ..
        }) => {
            let would_block = matches!(*error, ExecutionError::WouldBlock { .. });
            assert!(would_block && run.events().is_empty(), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        pollster::block_on(data.read_back(..).unwrap()).unwrap(),
        [7; 64]
    );
    assert_eq!(here.read().unwrap(), [7; 64]);
}

fn launches_of_another_graph_are_refused(f: &Fixture) {
    let increment = kernel(f, INCREMENT);
    let data = f.device.buffer(&[0u32; 64]).unwrap();
    let launch = || increment.launch().buffer("data", &data).invocations(64);
    let [mut graph, mut other] = [LaunchGraph::new(), LaunchGraph::default()];
    let foreign = other.add(launch());
    let own = graph.add(launch());
    let is_foreign =
        |error: Option<GraphError>| matches!(error, Some(GraphError::Foreign { node: 0 }));
    assert!(is_foreign(graph.launch_mut(foreign).err()));
    assert!(is_foreign(graph.add_after(launch(), &[foreign]).err()));
    assert_eq!(graph.len(), 1);
    let run = graph.submit().unwrap();
    assert!(is_foreign(run.event(foreign).err()));
    run.event(own).unwrap().wait().unwrap();
    // Added behind the submission.
    let late = graph.add(launch());
    assert!(matches!(
        run.event(late),
        Err(GraphError::Foreign { node: 1 })
    ));
    assert_eq!(data.read().unwrap(), [1; 64]);
}

fn a_graph_without_launches_does_nothing(_: &Fixture) {
    let mut graph = LaunchGraph::new();
    assert!(graph.is_empty());
    graph.check().unwrap();
    let run = graph.submit().unwrap();
    run.wait().unwrap();
    assert!(run.events().is_empty());
}
