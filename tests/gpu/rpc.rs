//! Calls from running kernels to functions of the host, and what becomes of their arguments and results. Calls that fail
//! are in `rpc_failures`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix, run_with};
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, DeviceBuffer, HostServices, Kernel, Program, Ptr, calls::IdlePolicy,
    device::WaitError,
};

cases![
    every_invocation_gets_its_own_result,
    a_million_calls_are_each_served_once,
    few_ports_serve_many_callers,
    lanes_may_call_in_branches_and_loops,
    structures_vectors_and_matrices_travel,
    pointers_travel_and_lead_to_the_heap,
    calls_that_nobody_waits_for_arrive,
    services_serve_several_devices,
];

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// What no call of these tests returns.
const POISON: u32 = 0xDEAD_BEEF;

pub(crate) fn kernel(f: &Fixture, services: &HostServices, source: &str) -> Kernel {
    kernel_of(&f.device, services, source)
}

/// Runs `main` with `out` bound, poisoned before, and waits.
pub(crate) fn run(
    kernel: &Kernel,
    services: &HostServices,
    len: usize,
) -> (DeviceBuffer<u32>, Result<(), WaitError>) {
    run_with(kernel, services, len, |launch| {
        launch.invocations(len as u32)
    })
}

pub(crate) const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {";

fn every_invocation_gets_its_own_result(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let kernel = kernel(f, &services, &format!("{HEAD} out[id.x] = mix(id.x); }}"));
    let (out, result) = run(&kernel, &services, 4096);
    result.unwrap();
    let expected: Vec<u32> = (0..4096).map(mix).collect();
    assert_eq!(out.read().unwrap(), expected);
    let statistics = services.statistics();
    assert_eq!(statistics.functions[0].calls, 4096);
    assert_eq!(statistics.functions[0].bytes_in, 4096 * 4);
}

fn a_million_calls_are_each_served_once(f: &Fixture) {
    const INVOCATIONS: usize = 32_768;
    const CALLS: usize = 32;
    let counts: Arc<Vec<AtomicU32>> = Arc::new(
        (0..INVOCATIONS * CALLS)
            .map(|_| AtomicU32::new(0))
            .collect(),
    );
    let counting = Arc::clone(&counts);
    let count = move |id: u32| {
        counting[id as usize].fetch_add(1, Ordering::Relaxed);
        mix(id)
    };
    let services = HostServices::builder()
        .call("fn count(id: u32) -> u32", count)
        .start()
        .unwrap();
    // Where turns are rationed, a busy machine may leave a call to the next launch, and says so (`CALL_BUSY`).
    let is_rationed = f.device.capabilities().needs_loop_guard();
    let served = match is_rationed {
        true => {
            "let reply = count_try(call); if reply.status == CALL_BUSY { return; } out[call] = reply.value;"
        }
        false => "out[call] = count(call);",
    };
    let source = format!(
        "{HEAD}
            for (var i = 0u; i < {CALLS}u; i++) {{
                let call = id.x * {CALLS}u + i;
                if out[call] == {POISON}u {{ {served} }}
            }}
        }}"
    );
    // So that a result tells of its call.
    assert!((0..(INVOCATIONS * CALLS) as u32).all(|id| mix(id) != POISON));
    let kernel = kernel(f, &services, &source);
    let poison = vec![POISON; INVOCATIONS * CALLS];
    let out = f.device.buffer(&poison).unwrap();
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &out)
        .invocations(INVOCATIONS as u32);
    let mut results = poison;
    for _ in 0..if is_rationed { 100 } else { 1 } {
        launch.submit().unwrap().wait_timeout(MINUTE * 30).unwrap();
        results = out.read().unwrap();
        if !results.contains(&POISON) {
            break;
        }
    }
    for (id, (result, count)) in results.iter().zip(counts.iter()).enumerate() {
        assert_eq!(*result, mix(id as u32), "call {id}");
        assert_eq!(count.load(Ordering::Relaxed), 1, "call {id}");
    }
}

fn few_ports_serve_many_callers(f: &Fixture) {
    // Fewer ports than lanes of one group: lanes in step must not keep each other from going on.
    for ports in [1, 3] {
        let services = HostServices::builder()
            .call("fn mix(x: u32) -> u32", mix)
            .ports(ports)
            // One call at a time, and turns may be rationed for all that wait: the server keeps its core.
            .idle(IdlePolicy::new().looks(1_000_000))
            .start()
            .unwrap();
        let kernel = kernel(f, &services, &format!("{HEAD} out[id.x] = mix(id.x); }}"));
        let (out, result) = run(&kernel, &services, 64);
        result.unwrap();
        assert_eq!(out.read().unwrap(), (0..64).map(mix).collect::<Vec<_>>());
    }
}

fn lanes_may_call_in_branches_and_loops(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .call("fn half(x: u32) -> u32", |x: u32| x / 2)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD}
            var x = id.x;
            if id.x % 64u == 7u {{ x = mix(x); }}
            else if id.x % 3u == 0u {{ x = half(x) + half(x + 1u); }}
            for (var i = 0u; i < id.x % 4u; i++) {{ x = half(x) + 1u; }}
            out[id.x] = x;
        }}"
    );
    let kernel = kernel(f, &services, &source);
    let (out, result) = run(&kernel, &services, 1024);
    result.unwrap();
    let expected = (0..1024u32).map(|id| {
        let mut x = id;
        if id % 64 == 7 {
            x = mix(x);
        } else if id % 3 == 0 {
            x = x / 2 + x.div_ceil(2);
        }
        for _ in 0..id % 4 {
            x = x / 2 + 1;
        }
        x
    });
    assert_eq!(out.read().unwrap(), expected.collect::<Vec<_>>());
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
struct Ray {
    origin: [f32; 3],
    id: u32,
    direction: [f32; 3],
    spread: i32,
}

fn structures_vectors_and_matrices_travel(f: &Fixture) {
    let step = |ray: Ray, by: f32, basis: [[f32; 2]; 2], flags: [i32; 3]| Ray {
        origin: std::array::from_fn(|i| ray.origin[i] + by * ray.direction[i]),
        id: ray.id + 1,
        direction: [basis[0][0] + basis[1][0], basis[0][1] + basis[1][1], by],
        spread: ray.spread + flags.iter().sum::<i32>(),
    };
    let by_name = "struct Ray { origin: vec3<f32>, id: u32, direction: vec3<f32>, spread: i32 }";
    let by_alias =
        "alias Point = vec3<f32>; alias Id = u32; alias Length = f32; alias Basis = mat2x2<f32>;
        alias Spread = i32; alias Beam = Ray; alias Flags = vec3<i32>;
        struct Ray { origin: Point, id: Id, direction: Point, spread: Spread }";
    for (types, signature) in [
        (
            by_name,
            "fn step(ray: Ray, by: f32, basis: mat2x2<f32>, flags: vec3<i32>) -> Ray",
        ),
        (
            by_alias,
            "fn step(ray: Beam, by: Length, basis: Basis, flags: Flags) -> Beam",
        ),
    ] {
        rays_travel(f, types, signature, step);
    }
}

fn rays_travel(
    f: &Fixture,
    types: &str,
    signature: &str,
    step: impl Fn(Ray, f32, [[f32; 2]; 2], [i32; 3]) -> Ray + Copy + Send + Sync + 'static,
) {
    let services = HostServices::builder()
        .call(signature, step)
        .start()
        .unwrap();
    let source = "
        @group(0) @binding(0) var<storage, read_write> rays: array<Ray>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let basis = mat2x2<f32>(vec2(1.0, 2.0), vec2(f32(id.x), 4.0));
            rays[id.x] = step(rays[id.x], 0.5, basis, vec3(1, -2, i32(id.x)));
        }";
    let kernel = kernel(f, &services, &format!("{types}{source}"));
    let rays: Vec<Ray> = (0..256u32)
        .map(|i| Ray {
            origin: [i as f32, -1.0, 0.25],
            id: i,
            direction: [2.0, i as f32 * 4.0, -8.0],
            spread: -(i as i32),
        })
        .collect();
    let buffer = f.device.buffer(&rays).unwrap();
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("rays", &buffer)
        .invocations(256);
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
    let expected: Vec<Ray> = (0..)
        .zip(&rays)
        .map(|(i, ray)| step(*ray, 0.5, [[1.0, 2.0], [i as f32, 4.0]], [1, -2, i]))
        .collect();
    assert_eq!(buffer.read().unwrap(), expected);
}

fn pointers_travel_and_lead_to_the_heap(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let nodes = heap
        .alloc_slice(&(0..64u32).map(|i| i * 3).collect::<Vec<_>>())
        .unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&seen);
    let next = move |p: Ptr<u32>| {
        noting.lock().unwrap().push(p.address());
        Ptr::<u32>::from_address(p.address() + 4)
    };
    let services = HostServices::builder()
        .call("fn next(p: usm_ptr) -> usm_ptr", next)
        .start()
        .unwrap();
    let source = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<uniform> first: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let p = next(usm_ptr(first.x + 4u * id.x, first.y));
            out[id.x] = usm_u32(p)[0];
        }";
    let source = source.replace("usm_u32(p)[0]", "usm_Words(p)[0]") + " alias Words = array<u32>;";
    let kernel = kernel(f, &services, &source);
    let out = f.device.buffer(&[0xDEAD_BEEFu32; 64]).unwrap();
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &out)
        .value("first", &nodes);
    launch = launch.invocations(64);
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
    let results = out.read().unwrap();
    assert_eq!(
        results[..63],
        (1..64u32).map(|i| i * 3).collect::<Vec<_>>()[..]
    );
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(
        seen,
        (0..64).map(|i| nodes.address() + 4 * i).collect::<Vec<_>>()
    );
}

fn calls_that_nobody_waits_for_arrive(f: &Fixture) {
    let sum = Arc::new(AtomicU64::new(0));
    let adding = Arc::clone(&sum);
    let add = move |x: u32| {
        adding.fetch_add(x.into(), Ordering::Relaxed);
    };
    let services = HostServices::builder()
        .call("fn add(x: u32)", add)
        .ports(64)
        .start()
        .unwrap();
    let kernel = kernel(
        f,
        &services,
        &format!("{HEAD} out[id.x] = add_post(id.x); }}"),
    );
    let (out, result) = run(&kernel, &services, 4096);
    result.unwrap();
    assert_eq!(out.read().unwrap(), vec![1; 4096]);
    // Whatever was posted is served before the services have stopped.
    services.stop();
    assert_eq!(sum.load(Ordering::Relaxed), 4095 * 4096 / 2);
}

fn services_serve_several_devices(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .threads(2)
        .start()
        .unwrap();
    let source = format!("{HEAD} out[id.x] = mix(id.x); }}");
    let program = Program::builder()
        .source("rpc.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let others: Vec<_> = (f.context.adapters().iter())
        .map(|a| f.context.device_at(a.index).unwrap())
        .collect();
    let mut running = Vec::new();
    for device in others.iter().chain([&f.device]) {
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let out = device.buffer(&vec![0xDEAD_BEEFu32; 2048]).unwrap();
        let launch = kernel.launch().services(&services).buffer("out", &out);
        running.push((launch.invocations(2048).submit().unwrap(), out));
        device.flush().unwrap();
    }
    for (event, out) in running {
        event.wait_timeout(MINUTE).unwrap();
        assert_eq!(out.read().unwrap(), (0..2048).map(mix).collect::<Vec<_>>());
    }
}
