//! What is wrong with a launch is told before it is submitted, by `check` as by `submit`, and nothing is recorded then.

use crate::cases;
use crate::harness::{Fixture, with_large_stack};
use crate::launches::{INCREMENT, kernel};
use tombolo::{
    Buffer, Constants, Context, DeviceBuffer, DeviceGlobal, HostServices, Launch, PrintOptions,
    Program,
    buffers::{BufferError, MemoryError},
    device::Aspect,
    globals::GlobalError,
    heap::{HeapError, HeapSize},
    launch::{Extent, LaunchError},
};

cases![
    check_and_submit_agree_about_grids,
    check_and_submit_agree_about_options,
    check_and_submit_agree_about_arguments,
    check_and_submit_agree_about_buffers_of_the_context,
    check_changes_nothing,
    device_globals_without_room,
    services_without_room,
    destroyed_buffers_are_refused_by_wgpu,
];

/// Asks both for the error of a launch; neither records anything, and asking again has the same answer.
fn refused(f: &Fixture, what: &str, mut launch: Launch) -> LaunchError {
    let submissions = f.device.cache_statistics().submissions;
    let checked = launch.clone().check();
    let checked = checked
        .err()
        .unwrap_or_else(|| panic!("{what} was not seen by check"));
    let submitted = launch.submit();
    let submitted = submitted
        .err()
        .unwrap_or_else(|| panic!("{what} was submitted"));
    assert_eq!(checked.to_string(), submitted.to_string(), "{what}");
    assert_eq!(
        launch.check().unwrap_err().to_string(),
        submitted.to_string()
    );
    assert_eq!(
        f.device.cache_statistics().submissions,
        submissions,
        "{what}"
    );
    submitted
}

fn check_and_submit_agree_about_grids(f: &Fixture) {
    let plain = kernel(f, "@compute @workgroup_size(1) fn main() {}");
    let with_ids = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let launches = || [plain.launch(), with_ids.launch().buffer("data", &data)];
    for launch in launches() {
        let error = refused(f, "no grid", launch);
        assert!(matches!(error, LaunchError::NoGrid { .. }), "{error}");
    }
    for negative in [-1, -64, i32::MIN] {
        for launch in launches() {
            let error = refused(f, "a negative grid", launch.invocations(negative));
            assert!(
                matches!(error, LaunchError::NegativeGrid { extent, .. } if extent == negative),
                "{error}"
            );
        }
        for launch in launches() {
            let error = refused(f, "negative groups", launch.workgroups(negative));
            assert!(matches!(error, LaunchError::NegativeGrid { .. }), "{error}");
        }
    }
    for beyond in [(1u64 << 32) + 1, u64::MAX] {
        for launch in launches() {
            let error = refused(f, "a wide grid", launch.workgroups(beyond));
            assert!(
                matches!(error, LaunchError::GridTooLarge { axis: "x", .. }),
                "{error}"
            );
        }
    }
    // 2^96 groups, less some: each dimension can be counted, and the dispatches cannot be recorded.
    let most = Extent::from([u32::MAX; 3]);
    let error = refused(f, "2^96 groups", plain.launch().workgroups(most));
    match error {
        LaunchError::GridTooManyDispatches {
            dispatches, limit, ..
        } => {
            assert!(dispatches > limit, "{dispatches} {limit}");
        }
        other => panic!("{other}"),
    }
    let wide = Extent::from([1u32, u32::MAX, u32::MAX]);
    let launch = with_ids.launch().buffer("data", &data).workgroups(wide);
    let error = refused(f, "2^64 groups", launch);
    assert!(
        matches!(error, LaunchError::GridTooManyDispatches { .. }),
        "{error}"
    );
    // Nothing to do is no error, however wide it is elsewhere.
    for none in [Extent::from(0), Extent::from([u32::MAX, 0, u32::MAX])] {
        let mut launch = plain.launch().workgroups(none);
        launch.check().unwrap();
        launch.submit().unwrap().wait().unwrap();
    }
}

fn check_and_submit_agree_about_options(f: &Fixture) {
    let plain = kernel(f, "@compute @workgroup_size(1) fn main() {}");
    let launch = plain.launch().workgroups(1).profiled();
    match f.device.has(Aspect::TimestampQueries) {
        true => launch.clone().check().unwrap(),
        false => {
            let error = refused(f, "profiling", launch);
            assert!(matches!(error, LaunchError::Profiling(_)), "{error}");
        }
    }
    let printing = kernel(
        f,
        "@compute @workgroup_size(1) fn main() { print(\"hello\"); }",
    );
    let mut options = PrintOptions::default();
    options.capacity = u64::MAX;
    let launch = printing.launch().workgroups(1).print_to(options);
    let error = refused(f, "a large print buffer", launch);
    assert!(
        matches!(
            error,
            LaunchError::PrintCapacity {
                capacity: u64::MAX,
                ..
            }
        ),
        "{error}"
    );
    let services = HostServices::builder()
        .call("fn f(x: u32) -> u32", |x: u32| x)
        .start()
        .unwrap();
    let source = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(1) fn main() { data[0] = f(1u); }";
    let program = Program::builder()
        .source("calls.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let calling = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let data: DeviceBuffer<u32> = f.device.zeroed(1).unwrap();
    let launch = calling.launch().buffer("data", &data).workgroups(1);
    let error = refused(f, "no services", launch);
    assert!(matches!(error, LaunchError::NoServices { .. }), "{error}");
}

fn check_and_submit_agree_about_arguments(f: &Fixture) {
    use wgpu::BufferUsages as U;
    let increment = kernel(f, INCREMENT);
    let launch = || increment.launch().invocations(4);
    let imported = |usage| {
        let raw = f.device.raw().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 64,
            usage,
            mapped_at_creation: false,
        });
        f.device.import::<u32>(raw).unwrap()
    };
    let error = refused(
        f,
        "a buffer for copies",
        launch().buffer("data", &imported(U::COPY_DST)),
    );
    assert!(
        matches!(
            error,
            LaunchError::MissingUsage {
                needed: U::STORAGE,
                ..
            }
        ),
        "{error}"
    );
    let grid = imported(U::STORAGE);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let indirect = increment.launch().buffer("data", &data).indirect(&grid, 0);
    let error = refused(f, "a grid that is none", indirect);
    assert!(
        matches!(
            error,
            LaunchError::MissingUsage {
                needed: U::INDIRECT,
                ..
            }
        ),
        "{error}"
    );
    let both = increment.launch().buffer("data", &data).indirect(&data, 0);
    let error = refused(f, "a grid that is written", both);
    assert!(matches!(error, LaunchError::Aliased { .. }), "{error}");
    let other = f.open(|_| {});
    let elsewhere: DeviceBuffer<u32> = other.zeroed(4).unwrap();
    for wrong in [
        launch().buffer("data", &elsewhere),
        increment
            .launch()
            .buffer("data", &data)
            .indirect(&elsewhere, 0),
    ] {
        let error = refused(f, "a buffer of another device", wrong);
        assert!(matches!(error, LaunchError::OtherDevice { .. }), "{error}");
    }
    // More than a binding.
    let small = f.open(|options| options.storage_binding_bytes = Some(1 << 20));
    let program = Program::new("increment.wgsl", INCREMENT).unwrap();
    let kernel = small.kernel(&program, "main", &Constants::new()).unwrap();
    let large: DeviceBuffer<u32> = small.zeroed((1 << 18) + 1).unwrap();
    let part: Buffer<u32> = f.context.buffer((1 << 18) + 1).unwrap();
    let launch = || kernel.launch().invocations(4);
    for wrong in [
        launch().buffer("data", &large),
        launch().buffer("data", &part),
    ] {
        let error = refused(f, "a large buffer", wrong);
        match error {
            LaunchError::BindingTooLarge { bytes, limit, .. } => {
                assert_eq!((bytes, limit), ((1 << 20) + 4, 1 << 20));
            }
            other => panic!("{other}"),
        }
    }
    let mut fits = launch().buffer("data", large.slice(1..));
    fits.submit().unwrap().wait().unwrap();
}

fn check_and_submit_agree_about_buffers_of_the_context(f: &Fixture) {
    let increment = kernel(f, INCREMENT);
    let buffer: Buffer<u32> = f.context.buffer_from_vec(vec![1; 100]).unwrap();
    let launch = || increment.launch().invocations(4);
    let of_buffer = |error: LaunchError| match error {
        LaunchError::Buffer {
            argument, source, ..
        } => {
            assert_eq!(argument, "data");
            *source
        }
        other => panic!("{other}"),
    };
    let mapped = buffer.map(5..6).unwrap();
    let error = of_buffer(refused(
        f,
        "a mapped buffer",
        launch().buffer("data", &buffer),
    ));
    assert!(matches!(error, BufferError::Mapped { .. }), "{error}");
    drop(mapped);
    let context = Context::new().unwrap();
    let elsewhere: Buffer<u32> = context.buffer(4).unwrap();
    let error = of_buffer(refused(
        f,
        "another context's",
        launch().buffer("data", &elsewhere),
    ));
    assert!(matches!(error, BufferError::OtherContext { .. }), "{error}");
}

fn check_changes_nothing(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("increment.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let buffer: Buffer<u32> = f.context.buffer_from_vec(vec![1; 100]).unwrap();
    let part = buffer.slice(1..50).unwrap();
    let mut launch = kernel.launch().buffer("data", &part).invocations(49);
    for _ in 0..3 {
        launch.check().unwrap();
        assert_eq!(buffer.statistics().moves.moved, 0);
        assert_eq!(device.buffer_memory().buffers, 0);
        assert_eq!(device.transfer_statistics(), Default::default());
    }
    launch.submit().unwrap();
    let mut wanted = vec![1u32; 100];
    wanted[1..50].fill(2);
    assert_eq!(buffer.read().unwrap(), wanted);
}

fn device_globals_without_room(f: &Fixture) {
    // More than the heap has.
    static LARGE: DeviceGlobal<[u32; 3 << 17]> = DeviceGlobal::new("launch_checks_large");
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(1 << 20)).unwrap();
    let device = context.device_named(f.device.name()).unwrap();
    let source = "var<storage, read_write> launch_checks_large: array<u32, 393216>;
        @compute @workgroup_size(1) fn main() { launch_checks_large[0] += 1u; }";
    let program = Program::new("large.wgsl", source).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    if !device.has(Aspect::UnifiedMemory) {
        // It lies in the device's own memory, where there is room.
        kernel.launch().workgroups(1).check().unwrap();
        return;
    }
    let is_full = |error: &GlobalError| match error {
        GlobalError::Heap { name, source } => {
            assert_eq!(name, "launch_checks_large");
            matches!(source, HeapError::TooLarge { .. })
        }
        _ => false,
    };
    for error in [
        kernel.launch().workgroups(1).check().unwrap_err(),
        kernel.launch().workgroups(1).submit().unwrap_err(),
    ] {
        match error {
            LaunchError::Global(source) => assert!(is_full(&source), "{source}"),
            other => panic!("{other}"),
        }
    }
    with_large_stack(|| {
        let error = LARGE.on(&device).read().map(|_| ()).unwrap_err();
        assert!(is_full(&error), "{error}");
    });
}

fn services_without_room(f: &Fixture) {
    // Ports for which no device has a buffer.
    let services = HostServices::builder()
        .call("fn f(x: u32) -> u32", |x: u32| x)
        .ports(1 << 16)
        .payload(1 << 16)
        .start();
    let Ok(services) = services else { return };
    let source = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(1) fn main() { data[0] = f_post(1u); }";
    let program = Program::builder()
        .source("calls.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let data: DeviceBuffer<u32> = f.device.zeroed(1).unwrap();
    let launch = kernel.launch().services(&services).buffer("data", &data);
    let error = refused(f, "ports", launch.workgroups(1));
    assert!(matches!(error, LaunchError::Ports(_)), "{error}");
}

fn destroyed_buffers_are_refused_by_wgpu(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("increment.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data: DeviceBuffer<u32> = device.zeroed(100).unwrap();
    let mut launch = kernel.launch().buffer("data", &data).invocations(4);
    launch.check().unwrap();
    data.raw().destroy();
    let error = launch.submit().unwrap_err();
    assert!(matches!(error, LaunchError::Refused { .. }), "{error}");
    let error = data.fill(3, ..9).map(|_| ()).unwrap_err();
    assert!(matches!(error, MemoryError::Refused { .. }), "{error}");
    // What was recorded and refused is told by what comes behind it in its batch, and by nobody later.
    let other = device.buffer(&[1u32; 4]).unwrap();
    device.finish().unwrap();
    data.copy_to(0, &other, 0, 4).unwrap();
    let error = other.read_back(..).map(|_| ()).unwrap_err();
    assert!(matches!(error, MemoryError::Execution(_)), "{error}");
    let good = device.buffer(&[2u32; 4]).unwrap();
    assert_eq!(good.read().unwrap(), [2; 4]);
}
