//! The sanitizer of the embedded adapter: what it finds fails the launch, at the line of the program's text; launches beside
//! are not blamed. Other adapters have none.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Device, DeviceBuffer, DeviceOptions, Program,
    device::{
        DefectKind, DeviceError, EmbeddedOptions, ExecutionError, KernelDefect, SanitizerChecks,
        WaitError,
    },
};

cases![
    defects_fail_their_launch_and_the_readers_of_its_results,
    launches_of_one_batch_answer_each_for_itself,
    correct_kernels_of_the_runtime_run_clean,
    checks_are_chosen_by_options,
    a_seed_of_the_options_decides_the_order,
    other_adapters_refuse_such_options,
    executed_lines_are_counted_by_option,
];

/// A device on the embedded adapter with the sanitizer on; `None` for the turn of another adapter.
fn sanitized(f: &Fixture) -> Option<Device> {
    let checks = SanitizerChecks::default();
    f.is_embedded()
        .then(|| f.open(|options| options.embedded = EmbeddedOptions::sanitized(checks)))
}

/// The defects of a launch that failed by them.
fn defects(error: WaitError) -> Vec<KernelDefect> {
    let WaitError::Failed(error) = error else {
        panic!("{error}")
    };
    match &*error {
        ExecutionError::Sanitizer { kernel, defects } => {
            assert_eq!(kernel, "main");
            defects.to_vec()
        }
        other => panic!("{other}"),
    }
}

fn defects_fail_their_launch_and_the_readers_of_its_results(f: &Fixture) {
    let Some(device) = sanitized(f) else { return };
    let cases = [
        ("tile[i] = i; data[i] = tile[7u - i]; // here", "race"),
        (
            "tile[i] = i; workgroupBarrier();\ndata[i] = data[i + 9u]; // here",
            "bounds",
        ),
        (
            "if i >= 4u { return; }\nworkgroupBarrier(); // here\ndata[i] = tile[i];",
            "barrier",
        ),
        (
            "data[i] = 1u; storageBarrier();\ndata[i / 2u] = 2u; // here",
            "race",
        ),
    ];
    for (body, kind) in cases {
        let source = format!(
            "override UNUSED: u32 = 3u;
            var<workgroup> tile: array<u32, 8>;
            @group(0) @binding(0) var<storage, read_write> data: array<u32>;
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {{
                var kept: array<u32, 2>; kept[i & 1u] = i;
{body}
            }}"
        );
        let program = Program::new("planted.wgsl", source.as_str()).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let data = device.buffer(&[7u32; 8]).unwrap();
        let mut launch = kernel.launch().buffer("data", &data).workgroups(1);
        let found = defects(launch.submit().unwrap().wait().unwrap_err());
        let first = &found[0];
        let matches = match &first.kind {
            DefectKind::OutOfBounds {
                index: 9 | 8,
                length: 8,
            } => kind == "bounds",
            DefectKind::Race { other_position, .. } => {
                assert_eq!(other_position.file, "planted.wgsl");
                kind == "race"
            }
            DefectKind::BarrierApart {
                other_position: None,
                ..
            } => kind == "barrier",
            _ => false,
        };
        assert!(matches, "{body}: {first}");
        let marked = source
            .lines()
            .position(|line| line.ends_with("// here"))
            .unwrap();
        assert_eq!(first.position.line as usize, marked + 1, "{first}");
        assert!(first.position.excerpt.contains("// here"), "{first}");
        // Whoever reads the results is told.
        assert!(
            data.read()
                .unwrap_err()
                .to_string()
                .contains("planted.wgsl")
        );
    }
}

fn launches_of_one_batch_answer_each_for_itself(f: &Fixture) {
    let Some(device) = sanitized(f) else { return };
    let program = Program::new(
        "batch.wgsl",
        "@group(0) @binding(0) var<uniform> shift: u32;
        @group(0) @binding(1) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) { data[i >> shift] = i; }",
    )
    .unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let launches: Vec<_> = (0..9)
        .map(|at| {
            let data = device.buffer(&[0u32; 8]).unwrap();
            let shift = u32::from(at % 3 == 1);
            let mut launch = kernel
                .launch()
                .value("shift", &shift)
                .buffer("data", &data)
                .workgroups(1);
            (shift, data.clone(), launch.submit().unwrap())
        })
        .collect();
    for (shift, data, event) in launches {
        match event.wait() {
            Ok(()) => {
                assert_eq!(shift, 0);
                assert_eq!(data.read().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
            }
            Err(error) => {
                assert_eq!(shift, 1);
                let found = defects(error);
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(matches!(found[0].kind, DefectKind::Race { .. }));
                assert_eq!(found[0].occurrences, 4);
            }
        }
    }
}

fn correct_kernels_of_the_runtime_run_clean(f: &Fixture) {
    let Some(device) = sanitized(f) else { return };
    let program = Program::new(
        "sum.wgsl",
        "override N: u32;
        var<workgroup> parts: array<u32, 64>;
        @group(0) @binding(0) var<storage, read_write> sum: array<atomic<u32>>;
        @compute @workgroup_size(64) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(global_invocation_id) at: vec3<u32>
        ) {
            var own: array<u32, N>;
            for (var k = 0u; k < N; k++) { own[k] = at.x + k; }
            parts[i] = own[N - 1u];
            workgroupBarrier();
            for (var half = 32u; half > 0u; half >>= 1u) {
                if i < half { parts[i] += parts[i + half]; }
                workgroupBarrier();
            }
            if i == 0u { atomicAdd(&sum[0], parts[0]); }
            assert(i < 64u, \"{}\", i);
        }",
    )
    .unwrap();
    let kernel = device
        .kernel(&program, "main", &Constants::new().set("N", 5u32))
        .unwrap();
    let sum = device.buffer(&[0u32]).unwrap();
    let mut launch = kernel.launch().buffer("sum", &sum).invocations(1000);
    launch.submit().unwrap().wait().unwrap();
    let padded = 1024u32;
    assert_eq!(
        sum.read().unwrap()[0],
        (0..padded).map(|at| at + 4).sum::<u32>()
    );
}

/// Runs a kernel with a race and an index that overflowed. Returns what was found.
fn found_by(f: &Fixture, embedded: EmbeddedOptions) -> Vec<DefectKind> {
    let device = f.open(|options| options.embedded = embedded);
    let source = "
        var<workgroup> tile: array<u32, 8>;
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            tile[i] = i;
            data[i] = tile[7u - i] + data[(i * 0x40000000u) % 8u + 8u];
        }";
    let program = Program::new("options.wgsl", source).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data = device.buffer(&[0u32; 16]).unwrap();
    let event = kernel
        .launch()
        .buffer("data", &data)
        .workgroups(1)
        .submit()
        .unwrap();
    match event.wait() {
        Ok(()) => Vec::new(),
        Err(error) => defects(error)
            .into_iter()
            .map(|defect| defect.kind)
            .collect(),
    }
}

fn checks_are_chosen_by_options(f: &Fixture) {
    if !f.is_embedded() {
        return;
    }
    let of = |change: fn(&mut SanitizerChecks)| {
        let mut checks = SanitizerChecks::NONE;
        change(&mut checks);
        found_by(f, EmbeddedOptions::sanitized(checks))
    };
    assert_eq!(of(|_| {}), []);
    assert_eq!(of(|checks| checks.bounds = true), []);
    let races = of(|checks| checks.races = true);
    let is_race = |kind: &DefectKind| matches!(kind, DefectKind::Race { .. });
    assert!(!races.is_empty() && races.iter().all(is_race), "{races:?}");
    let overflows = of(|checks| checks.index_overflow = true);
    assert_eq!(overflows, [DefectKind::IndexOverflow]);
    // The options stand above the environment, and a device without them is as before.
    let clean =
        f.open(|options| options.embedded = EmbeddedOptions::sanitized(SanitizerChecks::NONE));
    assert_eq!(clean.buffer(&[1u32, 2]).unwrap().read().unwrap(), [1, 2]);
}

fn a_seed_of_the_options_decides_the_order(f: &Fixture) {
    if !f.is_embedded() {
        return;
    }
    // Each invocation takes the next number: the order in which they ran.
    let source = "
        @group(0) @binding(0) var<storage, read_write> next: atomic<u32>;
        @group(0) @binding(1) var<storage, read_write> order: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            order[id.x] = atomicAdd(&next, 1u);
        }";
    let program = Program::new("order.wgsl", source).unwrap();
    let order = |seed: u64| {
        let device = f.open(|options| options.embedded = EmbeddedOptions::scheduled(seed));
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let next = device.buffer(&[0u32]).unwrap();
        let order: DeviceBuffer<u32> = device.buffer(&[99; 64]).unwrap();
        let launch = kernel
            .launch()
            .buffer("next", &next)
            .buffer("order", &order);
        launch.invocations(64).submit().unwrap().wait().unwrap();
        order.read().unwrap()
    };
    let first = order(5);
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..64), "{first:?}");
    assert_ne!(first, sorted);
    assert_eq!(order(5), first);
    assert_ne!(order(6), first);
}

fn other_adapters_refuse_such_options(f: &Fixture) {
    if f.is_embedded() {
        return;
    }
    let mut options = DeviceOptions::default();
    options.embedded = EmbeddedOptions::scheduled(1);
    let error = f.context.device_at_with(f.index, options).unwrap_err();
    assert!(
        matches!(
            error,
            DeviceError::NotEmbedded {
                option: "schedule",
                ..
            }
        ),
        "{error}"
    );
}

fn executed_lines_are_counted_by_option(f: &Fixture) {
    if !f.is_embedded() {
        return;
    }
    let device = f.open(|options| options.embedded = EmbeddedOptions::covered());
    let source = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
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
    data[id.x] = sum;
    if data[id.x] > 9u {
        let at = id.x;
        data[at] = sum;
    }
}";
    let program = Program::new("covered.wgsl", source).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data = device.buffer(&[99u32; 16]).unwrap();
    for launches in 1..3u64 {
        let launch = kernel.launch().buffer("data", &data);
        launch.invocations(16).submit().unwrap().wait().unwrap();
        assert!(data.read().unwrap().into_iter().eq(6..22));
        let found = device.executed_lines();
        let [kernel] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(kernel.kernel, "main");
        let count = |number: u32| {
            let line = kernel
                .lines
                .iter()
                .find(|line| line.position.line == number)?;
            assert_eq!(line.position.file, "covered.wgsl");
            assert_eq!(line.time.is_zero(), line.count == 0, "{line:?}");
            Some(line.count)
        };
        for (line, times) in [(3, 48), (8, 48), (10, 16), (11, 0), (13, 16), (16, 12)] {
            assert_eq!(count(line), Some(times * launches), "line {line}");
        }
        assert_eq!(count(1), None);
    }
    // Without the option there are none.
    assert_eq!(f.device.executed_lines(), []);
}
