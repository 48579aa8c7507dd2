//! What the rest stands on, as programs see it: the doctor's report, profiling, deadlines, pipelines in raw
//! wgpu, devices without private memory, and the filter of the `median` example.

use std::time::{Duration, Instant};

use image::RgbaImage;
use tombolo::{
    Constants, DeviceBuffer, Kernel, Program,
    device::{Aspect, Capability, EventStatus, ProfilingError, WaitError},
    kernel::{KernelError, SpillPolicy},
    launch::LaunchError,
};

use crate::cases;
use crate::doctor::Report;
use crate::harness::Fixture;
use crate::median::Filter;
use crate::median_reference as reference;

cases![
    the_doctors_report_is_json_that_holds_the_adapters,
    profiling_counts_every_dispatch,
    profiled_times_are_those_of_their_launches,
    deadlines_before_and_behind_the_end,
    pipelines_work_in_raw_wgpu,
    devices_without_private_memory_say_so,
    medians_of_windows_of_3_and_15,
    labels_of_buffers_reach_the_driver,
];

fn kernel(f: &Fixture, source: &str) -> Kernel {
    let program = Program::new("foundation.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    let kernel = f.device.kernel(&program, "main", &Constants::new());
    kernel.unwrap_or_else(|e| panic!("{e}"))
}

fn the_doctors_report_is_json_that_holds_the_adapters(f: &Fixture) {
    let report = Report::new(&f.context, f.device.name());
    assert!(report.holds());
    let text = serde_json::to_string_pretty(&report).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["tombolo"], env!("CARGO_PKG_VERSION"));
    let adapters = read["adapters"].as_array().unwrap();
    let expected = f.context.adapters();
    let mine = adapters.iter().find(|a| a["index"] == f.index).unwrap();
    assert_eq!(mine["name"], expected[f.index].name);
    assert_eq!(mine["driver"], expected[f.index].driver);
    assert_eq!(mine["backend"], expected[f.index].backend.to_str());
    assert!(mine["error"].is_null());
    let details = &mine["details"];
    let capabilities = f.device.capabilities();
    assert_eq!(details["software"], capabilities.software);
    assert_eq!(
        details["limits"]["storage_binding_bytes"],
        capabilities.storage_binding_bytes
    );
    let budget = &details["probe"]["loop_budget"];
    assert_eq!(budget["measured"], true);
    assert_eq!(budget["value"].is_null(), !f.is_lavapipe(), "{budget}");
    let slices = &details["sliced_calls_per_second"];
    assert!(slices["value"].as_f64().unwrap() > 0.0, "{slices}");
    let aspects = details["aspects"].as_array().unwrap();
    assert_eq!(aspects.len(), Aspect::ALL.len());
    for (told, &aspect) in aspects.iter().zip(Aspect::ALL) {
        assert_eq!(told["name"], aspect.name());
        assert_eq!(told["has"], f.device.has(aspect), "{aspect}");
        assert!(!told["why"].as_str().unwrap().is_empty());
    }
    let rungs = details["capabilities"].as_array().unwrap();
    for (told, &capability) in rungs.iter().zip(Capability::ALL) {
        let report = capabilities.tier(capability);
        assert_eq!(told["name"], capability.name());
        assert_eq!(told["tier"], report.tier.name(), "{capability}");
        assert_eq!(told["available"], report.available, "{capability}");
    }
    assert_eq!(rungs.len(), Capability::ALL.len());
    // Without a name all of them are in it, in their order.
    let all: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&Report::new(&f.context, "")).unwrap())
            .unwrap();
    let names = all["adapters"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|a| a["name"].as_str().unwrap()).collect();
    assert!(
        names
            .into_iter()
            .eq(expected.iter().map(|a| a.name.as_str()))
    );
}

/// Works in some invocations, and does little in the others. One step follows from the other, so that many
/// lanes make it no faster.
const WORK: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@group(0) @binding(1) var<uniform> from_to: vec2<u32>;
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var x = id.x | 1u;
    if id.x >= from_to.x && id.x < from_to.y {
        for (var i = 0u; i < 20000u; i++) {
            x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
            x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
            x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
            x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u;
        }
    }
    data[id.x] = x;
}";

fn worked(mut x: u32) -> u32 {
    for _ in 0..80_000 {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
    }
    x
}

fn profiling_counts_every_dispatch(f: &Fixture) {
    let kernel = kernel(f, WORK);
    let most = f.device.capabilities().workgroups_per_dimension;
    const MOST: u32 = 16384;
    let count = most + MOST;
    let data: DeviceBuffer<u32> = f.device.zeroed(count as usize).unwrap();
    let mut launch = kernel.launch().buffer("data", &data);
    launch = launch.value("from_to", &[0u32; 2]).workgroups(count);
    let mut launch = launch.profiled();
    if !f.device.has(Aspect::TimestampQueries) {
        match launch.submit().unwrap_err() {
            LaunchError::Profiling(ProfilingError::Unsupported { device }) => {
                assert_eq!(device, f.device.name());
            }
            other => panic!("{other}"),
        }
        return;
    }
    let mut time = |from: u32, to: u32| {
        launch.set_value("from_to", &[from, to]).unwrap();
        launch.submit().unwrap().gpu_time().unwrap()
    };
    // Work in the first dispatch alone, and in the last alone, is seen either way: some of it is more than all the other
    // invocations do. How much that is depends on how many groups run beside each other. Whatever else the machine does
    // makes launches longer and never shorter: the shortest of each kind are compared, of as many.
    for last in [false, true] {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut groups, mut busy, mut idle) = (256, Duration::MAX, Duration::MAX);
        loop {
            let (from, to) = match last {
                false => (0, groups),
                true => (count - groups, count),
            };
            for _ in 0..4 {
                idle = idle.min(time(0, 0));
                busy = busy.min(time(from, to));
            }
            assert!(idle > Duration::ZERO);
            if busy > idle * 3 {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{from}..{to}: {busy:?} of {idle:?}"
            );
            if groups < MOST {
                (groups, busy, idle) = (groups * 2, Duration::MAX, Duration::MAX);
            }
        }
    }
    time(most - 32, most + 32);
    // The last run has worked on either side of where the grid is cut.
    let heavy = most - 32..most + 32;
    for (id, seen) in (0..count).zip(data.read().unwrap()) {
        let expected = match heavy.contains(&id) {
            true => worked(id | 1),
            false => id | 1,
        };
        assert_eq!(seen, expected, "{id}");
    }
}

fn profiled_times_are_those_of_their_launches(f: &Fixture) {
    let kernel = kernel(f, WORK);
    if !f.device.has(Aspect::TimestampQueries) {
        return profiling_counts_every_dispatch(f);
    }
    let data: DeviceBuffer<u32> = f.device.zeroed(128).unwrap();
    let launch = kernel.launch().buffer("data", &data).workgroups(128);
    let mut launch = launch.value("from_to", &[0u32; 2]).profiled();
    launch.submit().unwrap().wait().unwrap();
    // Long and short ones in turn, in one batch: each event has a time of its own, and all of them together took
    // no longer than they were waited for.
    let begun = Instant::now();
    let events: Vec<_> = (0..8u32)
        .map(|i| {
            let to = if i % 2 == 0 { 128 } else { 0 };
            launch.set_value("from_to", &[0, to]).unwrap();
            launch.submit().unwrap()
        })
        .collect();
    events[7].wait().unwrap();
    let whole = begun.elapsed();
    let times: Vec<Duration> = events.iter().map(|e| e.gpu_time().unwrap()).collect();
    assert!(times.iter().all(|&time| time > Duration::ZERO), "{times:?}");
    assert!(
        times.iter().sum::<Duration>() <= whole,
        "{times:?} in {whole:?}"
    );
    // A launch of nothing took no time, and one that was not profiled is not known.
    let nothing = launch.clone().workgroups(0).submit().unwrap();
    assert_eq!(nothing.gpu_time().unwrap(), Duration::ZERO);
}

fn deadlines_before_and_behind_the_end(f: &Fixture) {
    let kernel = kernel(f, WORK);
    let data: DeviceBuffer<u32> = f.device.zeroed(600).unwrap();
    let launch = kernel.launch().buffer("data", &data).workgroups(600);
    let mut launch = launch.value("from_to", &[0u32, 600]);
    let event = launch.submit().unwrap();
    // Some 10^8 steps take longer than that, and nobody has even submitted it.
    match event.wait_timeout(Duration::from_nanos(1)) {
        Err(WaitError::Deadline) => {}
        other => panic!("{other:?}"),
    }
    assert_ne!(event.status(), EventStatus::Recorded);
    assert!(event.error().is_none());
    // A fast device may have done it by then.
    if let Err(error) = event.wait_timeout(Duration::from_micros(50)) {
        assert!(matches!(error, WaitError::Deadline), "{error}");
    }
    // It goes on, and a deadline that is far away is not waited for.
    event.wait_timeout(Duration::from_secs(600)).unwrap();
    assert_eq!(event.status(), EventStatus::Complete);
    for timeout in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_secs(600),
        Duration::MAX,
    ] {
        event.wait_timeout(timeout).unwrap();
    }
    assert_eq!(data.read_range(0..1).unwrap(), [worked(1)]);
}

fn pipelines_work_in_raw_wgpu(f: &Fixture) {
    // The pipeline of a kernel, bound and dispatched by hand, beside commands of the runtime.
    let kernel = kernel(
        f,
        "override FACTOR: u32 = 3;
         @group(0) @binding(0) var<storage, read> source: array<u32>;
         @group(0) @binding(2) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&sink) { sink[id.x] = source[id.x] * FACTOR + 1u; }
         }",
    );
    let values: Vec<u32> = (0..300).collect();
    let source = f.device.buffer(&values).unwrap();
    let sink = f.device.buffer(&[u32::MAX; 300]).unwrap();
    f.device.finish().unwrap();
    let (device, queue) = (f.device.raw(), f.device.raw_queue());
    let entry = |binding, buffer| wgpu::BindGroupEntry {
        binding,
        resource: wgpu::Buffer::as_entire_binding(buffer),
    };
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &kernel.raw().get_bind_group_layout(0),
        entries: &[entry(0, source.raw()), entry(2, sink.raw())],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(kernel.raw());
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(5, 1, 1);
    }
    queue.submit([encoder.finish()]);
    let expected: Vec<u32> = values.iter().map(|x| x * 3 + 1).collect();
    assert_eq!(sink.read().unwrap(), expected);
    // And the runtime's own launch of it goes on with what is there.
    let mut launch = kernel.launch().buffer("source", &sink);
    let again: DeviceBuffer<u32> = f.device.zeroed(300).unwrap();
    launch = launch.buffer("sink", &again).invocations(300);
    launch.submit().unwrap();
    let expected: Vec<u32> = expected.iter().map(|x| x * 3 + 1).collect();
    assert_eq!(again.read().unwrap(), expected);
}

fn devices_without_private_memory_say_so(f: &Fixture) {
    let device = f.open(|options| {
        options.private_memory_bytes = Some(0);
        options.spill = SpillPolicy::Never;
    });
    assert!(!device.has(Aspect::PrivateAlloca));
    assert_eq!(device.capabilities().private_memory_bytes, 0);
    let why = device.capabilities().explain(Aspect::PrivateAlloca);
    assert!(why.contains("0 bytes"), "{why}");
    let program = Program::new(
        "private.wgsl",
        "override N: u32 = 4;
         @group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main() {
            var own: array<u32, N>;
            for (var i = 0u; i < N; i++) { own[i] = data[i]; }
            data[0] = own[N - 1u];
         }
         @compute @workgroup_size(1) fn plain() {
            var fixed: array<u32, 4>;
            for (var i = 0u; i < 4u; i++) { fixed[i] = data[i]; }
            data[0] = fixed[3];
         }",
    )
    .unwrap();
    for n in [1u32, 4, 100] {
        let refused = device.kernel(&program, "main", &Constants::new().set("N", n));
        let error = refused.unwrap_err();
        match &error {
            KernelError::PrivateArrayTooLarge {
                array,
                bytes,
                limit,
                diagnostic,
                ..
            } => {
                assert_eq!(
                    (array.as_str(), *bytes, *limit),
                    ("own", 4 * u64::from(n), 0)
                );
                assert_eq!(diagnostic.line, 4);
            }
            other => panic!("{other}"),
        }
        assert!(error.to_string().contains("own"), "{error}");
    }
    // Arrays whose size the text says need none of it.
    let kernel = device.kernel(&program, "plain", &Constants::new()).unwrap();
    let data = device.buffer(&[1u32, 2, 3, 4]).unwrap();
    let mut launch = kernel.launch().buffer("data", &data).workgroups(1);
    launch.submit().unwrap();
    assert_eq!(data.read().unwrap(), [4, 2, 3, 4]);
    // Nor does the device of the others.
    assert!(f.device.has(Aspect::PrivateAlloca));
    let kernel = f.device.kernel(&program, "main", &Constants::new());
    assert_eq!(kernel.unwrap().private_arrays()[0].bytes, 16);
}

fn medians_of_windows_of_3_and_15(f: &Fixture) {
    let mut x = 7u32;
    let picture = RgbaImage::from_fn(37, 23, |_, _| {
        let mut byte = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        };
        image::Rgba([byte(), byte(), byte(), byte()])
    });
    for n in [3, 15] {
        let filter = Filter::new(&f.device, n).unwrap();
        let mut rows = 0;
        let filtered = filter.run(&picture, |done| rows += done).unwrap();
        assert_eq!(rows, 37 * 23);
        assert!(
            filtered.image == reference::median(&picture, n),
            "{n} x {n}"
        );
        assert!(filtered.image != picture);
    }
}

/// The label of a buffer, where the driver is the project's own.
#[cfg(embedded)]
fn label_in_driver(buffer: &wgpu::Buffer) -> Option<String> {
    // SAFETY: the handle is looked at, and neither used nor destroyed.
    let hal = unsafe { buffer.as_hal::<tombolo_cpu::Api>() }?;
    hal.label().map(str::to_owned)
}

fn labels_of_buffers_reach_the_driver(f: &Fixture) {
    let device = f.open(|_| {});
    let prices = device.buffer_labelled("prices", &[3u32, 4, 5]).unwrap();
    let sold = device.zeroed_labelled::<u64>("sold", 2).unwrap();
    let unnamed = device.buffer(&[7u32]).unwrap();
    assert_eq!(prices.read().unwrap(), [3, 4, 5]);
    assert_eq!(sold.read().unwrap(), [0, 0]);
    assert_eq!(unnamed.read().unwrap(), [7]);
    #[cfg(embedded)]
    if f.is_embedded() {
        assert_eq!(label_in_driver(prices.raw()).as_deref(), Some("prices"));
        assert_eq!(label_in_driver(sold.raw()).as_deref(), Some("sold"));
        let unnamed = label_in_driver(unnamed.raw());
        assert_eq!(unnamed.as_deref(), Some("tombolo buffer"));
    }
    // Everywhere wgpu names the buffer in its messages.
    prices.raw().destroy();
    let error = prices.copy_to(0, &device.zeroed(3).unwrap(), 0, 3);
    let error = error.map_err(|error| error.to_string());
    let error = error.and_then(|event| event.wait().map_err(|error| error.to_string()));
    let error = error.unwrap_err();
    assert!(error.contains("prices"), "{error}");
}
