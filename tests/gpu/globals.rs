//! Device globals: named variables that live on the device, shared by kernels.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::globals::host_access::Write;
use tombolo::{
    Constants, Context, Device, DeviceGlobal, DeviceOptions, Kernel, Program,
    device::LoopGuardPolicy,
};

cases![
    kernels_share_a_variable_and_the_host_reads_it_by_name,
    structures_arrays_and_matrices_reach_their_members,
    values_survive_specializations,
    constants_and_local_statics_are_declarations_too,
    names_are_looked_up_for_kernels_and_copies_and_not_for_launches,
    variables_far_apart_are_reached_through_the_heap,
    arguments_beyond_the_bindings_take_the_variables_along,
    large_grids_and_guarded_loops_use_variables_too,
    every_device_has_an_instance_of_its_own,
    threads_copy_and_launch_at_once,
];

type Change = fn(&mut DeviceOptions);

/// The ways in which an adapter can have memory: each test runs in all of them.
pub fn each(f: &Fixture, test: impl Fn(&Device)) {
    let changes: [(&str, Change); 4] = [
        ("unified", |_| {}),
        ("own memory", |options| options.unified_memory = Some(false)),
        ("mirrored", |options| {
            options.import_host_memory = false;
            options.live_memory = false;
        }),
        ("mirrored, own memory", |options| {
            options.import_host_memory = false;
            options.live_memory = false;
            options.unified_memory = Some(false);
        }),
    ];
    for (name, change) in changes {
        // A context of its own: names are known to a context.
        let context = Context::new().unwrap();
        let mut options = DeviceOptions::default();
        change(&mut options);
        let device = context.device_named_with(f.device.name(), options).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&device)));
        if let Err(panic) = result {
            eprintln!("with {name}:");
            std::panic::resume_unwind(panic);
        }
    }
}

pub fn kernel(device: &Device, source: &str, entry: &str) -> Kernel {
    let program = Program::new("globals.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    let kernel = device.kernel(&program, entry, &Constants::new());
    kernel.unwrap_or_else(|e| panic!("{e}"))
}

pub fn run(device: &Device, source: &str, entry: &str, invocations: u32) {
    let event = kernel(device, source, entry)
        .launch()
        .invocations(invocations)
        .submit();
    event
        .unwrap_or_else(|e| panic!("{e}"))
        .wait()
        .unwrap_or_else(|e| panic!("{e}"));
}

fn kernels_share_a_variable_and_the_host_reads_it_by_name(f: &Fixture) {
    static HITS: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("hits");
    static SUM: DeviceGlobal<u32> = DeviceGlobal::new("sum");
    const COUNT: &str = "
        var<storage, read_write> hits: array<atomic<u32>, 4>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            atomicAdd(&hits[id.x % 4u], 1u + id.x % 4u);
        }";
    const ADD: &str = "
        var<storage, read_write> sum: u32;
        var<storage, read> hits: array<u32, 4>;
        fn total() -> u32 { var t = 0u; for (var i = 0u; i < 4u; i++) { t += hits[i]; } return t; }
        @compute @workgroup_size(1) fn main() { sum += total(); }";
    each(f, |device| {
        run(device, COUNT, "main", 64);
        assert_eq!(HITS.on(device).read().unwrap(), [16, 32, 48, 64]);
        run(device, COUNT, "main", 64);
        assert_eq!(HITS.on(device).read().unwrap(), [32, 64, 96, 128]);
        run(device, ADD, "main", 1);
        assert_eq!(SUM.on(device).read().unwrap(), 320);
        HITS.on(device).write(&[1, 2, 3, 4]).unwrap();
        run(device, ADD, "main", 1);
        assert_eq!(SUM.on(device).read().unwrap(), 330);
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Body {
    mass: f32,
    _pad: [u32; 3],
    at: [f32; 3],
    count: u32,
}

fn structures_arrays_and_matrices_reach_their_members(f: &Fixture) {
    static BODIES: DeviceGlobal<[Body; 3]> = DeviceGlobal::new("bodies");
    static TURN: DeviceGlobal<[[f32; 4]; 3]> = DeviceGlobal::new("turn");
    static FLAGS: DeviceGlobal<[i32; 2]> = DeviceGlobal::new("flags");
    const SOURCE: &str = "
        struct Body { mass: f32, @align(16) at: vec3<f32>, count: atomic<u32> }
        var<storage, read_write> bodies: array<Body, 3>;
        var<storage, read_write> turn: mat3x3<f32>;
        var<storage, read_write> flags: vec2<i32>;
        @compute @workgroup_size(3) fn main(@builtin(local_invocation_index) i: u32) {
            let body = &bodies[i];
            (*body).mass = f32(i) + 0.5;
            bodies[i].at = turn * vec3<f32>(1.0, 2.0, 3.0);
            bodies[2u - i].at.y += f32(10u * i);
            atomicMax(&bodies[0].count, i);
            if i == 1u { flags.y = -7; }
        }";
    each(f, |device| {
        TURN.on(device)
            .write(&[
                [0.0, 1.0, 0.0, 9.0],
                [0.0, 0.0, 1.0, 9.0],
                [1.0, 0.0, 0.0, 9.0],
            ])
            .unwrap();
        FLAGS.on(device).write(&[3, 4]).unwrap();
        let before = Body {
            mass: 0.0,
            _pad: [0; 3],
            at: [0.0; 3],
            count: 1,
        };
        BODIES.on(device).set(0, &before).unwrap();
        // One work-group of one step each, so that the two writes of an element are ordered.
        run(
            device,
            &SOURCE.replace("bodies[2u - i].at.y += f32(10u * i);", ""),
            "main",
            3,
        );
        for i in 0..3 {
            let body = BODIES.on(device).get(i).unwrap();
            assert_eq!(body.mass, i as f32 + 0.5);
            // Columns of the matrix times the vector.
            assert_eq!(body.at, [3.0, 1.0, 2.0]);
            assert_eq!(body.count, if i == 0 { 2 } else { 0 });
        }
        assert_eq!(FLAGS.on(device).read().unwrap(), [3, -7]);
    });
}

fn values_survive_specializations(f: &Fixture) {
    static LOG: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("log");
    const SOURCE: &str = "
        override STEP: u32 = 1;
        override SIZE: u32 = 2;
        var<storage, read_write> log: array<u32, 4>;
        @compute @workgroup_size(1) fn main() {
            var window: array<u32, SIZE>;
            for (var i = 0u; i < SIZE; i++) { window[i] = STEP; }
            for (var i = 0u; i < SIZE; i++) { log[0] += window[i]; }
            log[SIZE % 4u] += 1u;
        }";
    each(f, |device| {
        let program = Program::new("steps.wgsl", SOURCE).unwrap();
        for (step, size) in [(1u32, 1u32), (10, 2), (100, 3), (10, 2)] {
            let constants = Constants::new().set("STEP", step).set("SIZE", size);
            let kernel = device.kernel(&program, "main", &constants).unwrap();
            kernel.launch().invocations(1).submit().unwrap();
        }
        assert_eq!(LOG.on(device).read().unwrap(), [1 + 20 + 300 + 20, 1, 2, 1]);
    });
}

fn constants_and_local_statics_are_declarations_too(f: &Fixture) {
    const TABLE: DeviceGlobal<[f32; 3], Write> = DeviceGlobal::new("weights").host_write();
    fn counter() -> &'static DeviceGlobal<u32> {
        static COUNTER: DeviceGlobal<u32> = DeviceGlobal::new("counter");
        &COUNTER
    }
    const SOURCE: &str = "
        var<storage, read> weights: array<f32, 3>;
        var<storage, read_write> counter: u32;
        @compute @workgroup_size(1) fn main() { counter += u32(weights[0] + weights[1] * weights[2]); }";
    each(f, |device| {
        TABLE.on(device).write(&[1.0, 2.0, 3.0]).unwrap();
        run(device, SOURCE, "main", 1);
        let local: DeviceGlobal<[f32; 3], Write> = DeviceGlobal::new("weights").host_write();
        local.on(device).copy_in(&[10.0f32], 0).unwrap();
        run(device, SOURCE, "main", 1);
        assert_eq!(counter().on(device).read().unwrap(), 7 + 16);
    });
}

fn names_are_looked_up_for_kernels_and_copies_and_not_for_launches(f: &Fixture) {
    static HITS: DeviceGlobal<u32> = DeviceGlobal::new("hits");
    const SOURCE: &str = "
        var<storage, read_write> hits: u32;
        @compute @workgroup_size(1) fn main() { hits += 1u; }";
    each(f, |device| {
        let kernel = kernel(device, SOURCE, "main");
        kernel.launch().invocations(1).submit().unwrap();
        let before = device.cache_statistics();
        for _ in 0..50 {
            kernel.launch().invocations(1).submit().unwrap();
        }
        let after = device.cache_statistics();
        assert_eq!(after.global_lookups, before.global_lookups);
        assert_eq!(after.bind_groups.misses, before.bind_groups.misses);
        assert_eq!(HITS.on(device).read().unwrap(), 51);
        assert!(device.cache_statistics().global_lookups > after.global_lookups);
    });
}

fn variables_far_apart_are_reached_through_the_heap(f: &Fixture) {
    static FAR: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("far");
    const LARGE: usize = 300 << 10;
    // Each fills a part of memory of its own; the kernel names both, and one between them.
    let fill = "
        var<storage, read_write> one: array<u32, 76800>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < 76800u { one[id.x] = id.x; }
        }";
    let more = fill
        .replace("one", "two")
        .replace("= id.x;", "= 2u * id.x;");
    let both = "
        var<storage, read> one: array<u32, 76800>;
        var<storage, read> two: array<u32, 76800>;
        var<storage, read_write> far: array<atomic<u32>, 4>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < 76800u { atomicAdd(&far[id.x % 4u], two[id.x] - one[id.x]); }
        }";
    each(f, |device| {
        let address = FAR.on(device).address().unwrap();
        run(device, fill, "main", 76_800);
        run(device, &more, "main", 76_800);
        assert!(device.global_bytes() > 2 * LARGE as u64);
        run(device, both, "main", 76_800);
        let mut expected = [0u32; 4];
        (0..76_800u32)
            .for_each(|i| expected[i as usize % 4] = expected[i as usize % 4].wrapping_add(i));
        assert_eq!(FAR.on(device).read().unwrap(), expected);
        // What was there before has not moved.
        assert_eq!(FAR.on(device).address().unwrap(), address);
        let two = device.global("two").unwrap();
        assert_eq!(
            two.read_bytes(4 * 76_799, 4).unwrap(),
            (2 * 76_799u32).to_le_bytes()
        );
    });
}

fn arguments_beyond_the_bindings_take_the_variables_along(f: &Fixture) {
    static SUM: DeviceGlobal<u32> = DeviceGlobal::new("sum");
    // Adapters that bind hundreds of thousands have room whatever a kernel declares.
    let limit = (f.device.raw().limits().max_storage_buffers_per_shader_stage).min(64);
    let device = f.open_alone(|_| {});
    let declare =
        |i: u32| format!("@group(0) @binding({i}) var<storage, read_write> a{i}: array<u32>;\n");
    let add = |i: u32| format!("sum += a{i}[0]; a{i}[0] = {i}u;\n");
    let source = format!(
        "var<storage, read_write> sum: u32;\n{}@compute @workgroup_size(1) fn main() {{ {} }}",
        (0..limit).map(declare).collect::<String>(),
        (0..limit).map(add).collect::<String>(),
    );
    let kernel = kernel(&device, &source, "main");
    let buffers: Vec<_> = (0..limit)
        .map(|i| device.buffer(&[100 + i, 7]).unwrap())
        .collect();
    for round in 1..3u32 {
        let mut launch = kernel.launch().invocations(1);
        for (i, buffer) in buffers.iter().enumerate() {
            launch = launch.buffer(&format!("a{i}"), buffer);
        }
        launch.submit().unwrap();
        let first: u32 = (0..limit).map(|i| 100 + i).sum();
        let second: u32 = (0..limit).sum();
        assert_eq!(
            SUM.on(&device).read().unwrap(),
            first + (round - 1) * second
        );
        for (i, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.read().unwrap(), [i as u32, 7]);
        }
    }
}

fn large_grids_and_guarded_loops_use_variables_too(f: &Fixture) {
    static CELLS: DeviceGlobal<[u32; 2]> = DeviceGlobal::new("cells");
    let source = "
        var<storage, read_write> cells: array<atomic<u32>, 2>;
        @compute @workgroup_size(1)
        fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
            if id.x == n.x - 1u { atomicAdd(&cells[0], id.x); }
            for (var i = 0u; i < id.x % 3u; i++) { atomicAdd(&cells[1], 1u); }
        }";
    let device = f.open_alone(|options| options.loop_guard = LoopGuardPolicy::Budget(1000));
    let kernel = kernel(&device, source, "main");
    assert!(kernel.is_loop_guarded());
    kernel
        .launch()
        .workgroups(70_000u32)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    let turns: u32 = (0..70_000u32).map(|id| id % 3).sum();
    assert_eq!(CELLS.on(&device).read().unwrap(), [69_999, turns]);
}

/// One device for each adapter, and a second one for the first.
pub fn every_device(context: &Context) -> Vec<Device> {
    let mut indices: Vec<usize> = context
        .adapters()
        .iter()
        .map(|adapter| adapter.index)
        .collect();
    indices.push(indices[0]);
    indices
        .iter()
        .map(|&index| context.device_at(index).unwrap())
        .collect()
}

fn every_device_has_an_instance_of_its_own(_: &Fixture) {
    static SEEN: DeviceGlobal<[u32; 2]> = DeviceGlobal::new("seen").initial(&[0, 40]);
    const SOURCE: &str = "
        var<storage, read_write> seen: array<u32, 2>;
        @compute @workgroup_size(1) fn main() { seen[0] += 1u; seen[1] += 2u; }";
    let devices = every_device(&Context::new().unwrap());
    for device in &devices {
        SEEN.declare(device).unwrap();
    }
    for round in 0..3u32 {
        for (index, device) in devices.iter().enumerate() {
            if index as u32 <= round {
                run(device, SOURCE, "main", 1);
            }
        }
    }
    for (index, device) in devices.iter().enumerate() {
        let runs = 3u32.saturating_sub(index as u32);
        assert_eq!(SEEN.on(device).read().unwrap(), [runs, 40 + 2 * runs]);
    }
    let addresses: Vec<u64> = devices
        .iter()
        .map(|d| SEEN.on(d).address().unwrap().address())
        .collect();
    for (index, address) in addresses.iter().enumerate() {
        assert!(!addresses[..index].contains(address), "{addresses:x?}");
    }
}

fn threads_copy_and_launch_at_once(f: &Fixture) {
    const SOURCE: &str = "
        var<storage, read_write> shared_count: atomic<u32>;
        var<storage, read_write> slot_N: array<u32, 4>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) { atomicAdd(&shared_count, 1u); slot_N[i] += i; }";
    static COUNT: DeviceGlobal<u32> = DeviceGlobal::new("shared_count");
    let slots: [DeviceGlobal<[u32; 4]>; 8] = [
        "slot_0", "slot_1", "slot_2", "slot_3", "slot_4", "slot_5", "slot_6", "slot_7",
    ]
    .map(DeviceGlobal::new);
    const ROUNDS: u32 = 12;
    // Two devices of one context: they share the names, and nothing else.
    let context = Context::new().unwrap();
    let devices: Vec<Device> = (context.adapters().iter())
        .map(|a| context.device_at(a.index).unwrap())
        .collect();
    assert!(
        devices
            .iter()
            .any(|device| device.name() == f.device.name())
    );
    std::thread::scope(|scope| {
        for (number, slot) in slots.iter().enumerate() {
            let devices = &devices;
            scope.spawn(move || {
                let source = SOURCE.replace("slot_N", slot.name());
                for round in 0..ROUNDS {
                    for device in devices {
                        if round % 2 == 0 {
                            slot.on(device).set(0, &(round + number as u32)).unwrap();
                        }
                        let event = kernel(device, &source, "main")
                            .launch()
                            .invocations(4)
                            .submit()
                            .unwrap();
                        let seen = slot.on(device).after([&event]).read().unwrap();
                        let step = round + 1;
                        let first = round / 2 * 2 + number as u32;
                        assert_eq!(seen, [first, step, 2 * step, 3 * step]);
                    }
                }
            });
        }
    });
    for device in &devices {
        assert_eq!(COUNT.on(device).read().unwrap(), 8 * 4 * ROUNDS);
        assert_eq!(device.globals().len(), 9);
    }
}
