//! Launches: batches, repeated submissions, events, profiling, threads.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;
use std::time::Duration;
use tombolo::{
    Constants, DeviceBuffer, Kernel, Program,
    device::{Aspect, EventStatus, ProfilingError, WaitError},
    launch::LaunchError,
};

cases![
    batches_are_one_submission,
    batches_are_capped,
    batches_go_early_to_a_device_without_work,
    repeated_launches_bind_nothing_new,
    values_change_between_submissions,
    dropped_buffers_leave_the_cache,
    events_tell_their_status,
    events_are_futures,
    deadlines_pass,
    profiling_measures_every_launch,
    many_values_in_one_batch,
    threads_share_a_device,
];

pub const SCALE: &str = "
struct Params { factor: f32, offset: f32, count: u32 }
@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> sink: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.count { sink[id.x] = source[id.x] * params.factor + params.offset; }
}";

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    pub factor: f32,
    pub offset: f32,
    pub count: u32,
}

pub fn kernel(f: &Fixture, source: &str) -> Kernel {
    let program = Program::new("test.wgsl", source).unwrap();
    f.device
        .kernel(&program, "main", &Constants::new())
        .unwrap()
}

pub const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn batches_are_one_submission(f: &Fixture) {
    let device = f.open(|options| (options.min_batch, options.max_batch) = (2000, 2000));
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data = device.buffer(&[0u32; 10]).unwrap();
    device.finish().unwrap();
    let before = device.cache_statistics().submissions;
    let mut launch = kernel.launch().buffer("data", &data).invocations(10);
    let events: Vec<_> = (0..1000).map(|_| launch.submit().unwrap()).collect();
    assert_eq!(device.cache_statistics().submissions, before);
    assert_eq!(events[0].status(), EventStatus::Recorded);
    device.flush().unwrap();
    device.flush().unwrap();
    assert_eq!(device.cache_statistics().submissions, before + 1);
    for event in &events {
        event.wait().unwrap();
    }
    assert_eq!(data.read().unwrap(), vec![1000; 10]);
}

fn batches_are_capped(f: &Fixture) {
    let device = f.open(|options| options.max_batch = 10);
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data: DeviceBuffer<u32> = device.zeroed(10).unwrap();
    device.finish().unwrap();
    let before = device.cache_statistics().submissions;
    let mut launch = kernel.launch().buffer("data", &data).invocations(10);
    for _ in 0..35 {
        launch.submit().unwrap();
    }
    assert_eq!(device.cache_statistics().submissions, before + 3);
    assert_eq!(data.read().unwrap(), vec![35; 10]);
}

fn batches_go_early_to_a_device_without_work(f: &Fixture) {
    let device = f.open(|options| (options.min_batch, options.max_batch) = (10, 1000));
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data: DeviceBuffer<u32> = device.zeroed(10).unwrap();
    device.finish().unwrap();
    let before = device.cache_statistics().submissions;
    let submissions = || device.cache_statistics().submissions - before;
    let mut launch = kernel.launch().buffer("data", &data).invocations(10);
    for launched in 1..=10 {
        launch.submit().unwrap();
        assert_eq!(submissions(), launched / 10);
    }
    // Whether the device still has work is its own affair, but it is asked no more often.
    for _ in 10..35 {
        launch.submit().unwrap();
    }
    assert!((1..=3).contains(&submissions()), "{}", submissions());
    assert_eq!(data.read().unwrap(), vec![35; 10]);
}

fn repeated_launches_bind_nothing_new(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("scale.wgsl", SCALE).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let source = device.buffer(&[1f32; 8]).unwrap();
    let sink: DeviceBuffer<f32> = device.zeroed(8).unwrap();
    for i in 0..50u32 {
        let params = Params {
            factor: i as f32,
            offset: 0.0,
            count: 8,
        };
        let event = kernel
            .launch()
            .buffer("source", &source)
            .buffer("sink", &sink)
            .value("params", &params)
            .invocations(8)
            .submit()
            .unwrap();
        if i % 7 == 0 {
            event.wait().unwrap();
        }
    }
    let statistics = device.cache_statistics();
    assert_eq!(statistics.bind_groups.misses, 1, "{statistics:?}");
    assert_eq!(statistics.bind_groups.hits, 49, "{statistics:?}");
    assert_eq!(sink.read().unwrap(), [49.0; 8]);
}

fn values_change_between_submissions(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let source = f.device.buffer(&[1f32; 4]).unwrap();
    let sinks: Vec<DeviceBuffer<f32>> = (0..5).map(|_| f.device.zeroed(4).unwrap()).collect();
    let params = |factor| Params {
        factor,
        offset: 0.0,
        count: 4,
    };
    let mut launch = kernel.launch().buffer("source", &source).invocations(4);
    for (i, sink) in sinks.iter().enumerate() {
        launch.set_buffer("sink", sink).unwrap();
        launch.set_value("params", &params(i as f32)).unwrap();
        launch.submit().unwrap();
    }
    for (i, sink) in sinks.iter().enumerate() {
        assert_eq!(sink.read().unwrap(), [i as f32; 4]);
    }
    assert!(launch.set_value("nothing", &1u32).is_err());
}

fn dropped_buffers_leave_the_cache(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    for _ in 0..20 {
        let data: DeviceBuffer<u32> = device.zeroed(4).unwrap();
        kernel
            .launch()
            .buffer("data", &data)
            .invocations(4)
            .submit()
            .unwrap();
        assert_eq!(data.read().unwrap(), [1; 4]);
    }
    assert_eq!(device.cache_statistics().bind_groups.entries, 0);
}

fn events_tell_their_status(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let event = kernel
        .launch()
        .buffer("data", &data)
        .invocations(4)
        .submit()
        .unwrap();
    assert_eq!(event.status(), EventStatus::Recorded);
    assert!(event.error().is_none());
    f.device.flush().unwrap();
    assert_ne!(event.status(), EventStatus::Recorded);
    event.wait().unwrap();
    assert_eq!(event.status(), EventStatus::Complete);
    event.wait().unwrap();
    event.clone().wait_timeout(Duration::ZERO).unwrap();
}

fn events_are_futures(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let mut launch = kernel.launch().buffer("data", &data).invocations(4);
    let events: Vec<_> = (0..10).map(|_| launch.submit().unwrap()).collect();
    for result in pollster::block_on(futures::future::join_all(
        events.into_iter().map(IntoFuture::into_future),
    )) {
        result.unwrap();
    }
    assert_eq!(data.read().unwrap(), [10; 4]);
}

fn deadlines_pass(f: &Fixture) {
    // Longer than a thread takes from the launch to its look, and within every budget. A card does a launch in a fraction of
    // a millisecond, in which a busy machine may set the thread aside.
    let launches = if f.device.capabilities().software {
        1
    } else {
        256
    };
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var x = data[id.x];
            for (var i = 0u; i < 20000u; i++) { x = x * 1664525u + 1013904223u; }
            data[id.x] = x;
         }",
    );
    let data: DeviceBuffer<u32> = f.device.zeroed(65_536).unwrap();
    let mut launch = kernel.launch().buffer("data", &data).invocations(65_536);
    for _ in 1..launches {
        launch.submit().unwrap();
    }
    let event = launch.submit().unwrap();
    match event.wait_timeout(Duration::ZERO) {
        Err(WaitError::Deadline) => {}
        other => panic!("{other:?}"),
    }
    event.wait().unwrap();
    let expected = (0..launches * 20_000).fold(0u32, |x, _| {
        x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
    });
    assert!(data.read().unwrap().iter().all(|&x| x == expected));
}

fn profiling_measures_every_launch(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(1 << 20).unwrap();
    let plain = kernel
        .launch()
        .buffer("data", &data)
        .invocations(64)
        .submit()
        .unwrap();
    assert_eq!(plain.gpu_time().unwrap_err(), ProfilingError::NotProfiled);
    let mut launch = kernel
        .launch()
        .buffer("data", &data)
        .invocations(1 << 20)
        .profiled();
    if !f.device.has(Aspect::TimestampQueries) {
        assert!(matches!(
            launch.submit().unwrap_err(),
            LaunchError::Profiling(ProfilingError::Unsupported { .. })
        ));
        return;
    }
    let events: Vec<_> = (0..5).map(|_| launch.submit().unwrap()).collect();
    for (i, event) in events.iter().enumerate() {
        let time = event.gpu_time().unwrap();
        assert!(time > Duration::ZERO, "launch {i} took {time:?}");
    }
    // More launches than one set of queries holds.
    let mut small = launch.clone().invocations(64);
    let events: Vec<_> = (0..600).map(|_| small.submit().unwrap()).collect();
    let measured = events
        .iter()
        .filter(|event| event.gpu_time().is_ok())
        .count();
    assert_eq!(measured, 600);
    // A grid of several dispatches is one launch, and all of it is measured.
    let tiled = launch.workgroups(70_000).submit().unwrap();
    assert!(tiled.gpu_time().unwrap() > Duration::ZERO);
    assert!(data.read().unwrap()[64..].iter().all(|&x| x == 6));
    // A device that is gone has no times any more.
    let device = f.open(|_| {});
    let data: DeviceBuffer<u32> = device.zeroed(64).unwrap();
    let program = Program::new("increment.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let launch = kernel.launch().buffer("data", &data).invocations(64);
    let event = launch.profiled().submit().unwrap();
    device.raw().destroy();
    assert_eq!(event.gpu_time().unwrap_err(), ProfilingError::Unreadable);
}

fn many_values_in_one_batch(f: &Fixture) {
    // More than the uniform ring holds at first.
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<uniform> at: vec2<u32>;
         @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size(1) fn main() { sink[at.x] = at.y; }",
    );
    let sink: DeviceBuffer<u32> = f.device.zeroed(3000).unwrap();
    for i in 0..3000u32 {
        kernel
            .launch()
            .value("at", &[i, i * 7 + 1])
            .buffer("sink", &sink)
            .workgroups(1)
            .submit()
            .unwrap();
    }
    let expected: Vec<u32> = (0..3000).map(|i| i * 7 + 1).collect();
    assert_eq!(sink.read().unwrap(), expected);
}

fn threads_share_a_device(f: &Fixture) {
    let program = Arc::new(Program::new("inc.wgsl", INCREMENT).unwrap());
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            let (device, program) = (f.device.clone(), Arc::clone(&program));
            scope.spawn(move || {
                let data = device.buffer(&[t; 33]).unwrap();
                for i in 0..50 {
                    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
                    let event = kernel
                        .launch()
                        .buffer("data", &data)
                        .invocations(33)
                        .submit()
                        .unwrap();
                    if i % 10 == 3 {
                        event.wait().unwrap();
                    }
                    if i % 10 == 7 {
                        assert_eq!(data.read().unwrap(), vec![t + i + 1; 33]);
                    }
                }
                assert_eq!(data.read().unwrap(), vec![t + 50; 33]);
            });
        }
    });
}
