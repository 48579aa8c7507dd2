//! Calls from running kernels to functions of the host.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix, run_with};
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Aspect, CallStatus, Constants, DeviceBuffer, ExecutionError, HostServices, IdlePolicy, Kernel,
    LaunchError, Program, Ptr, WaitError,
};

cases![
    every_invocation_gets_its_own_result,
    a_million_calls_are_each_served_once,
    few_ports_serve_many_callers,
    lanes_may_call_in_branches_and_loops,
    structures_vectors_and_matrices_travel,
    pointers_travel_and_lead_to_the_heap,
    calls_that_nobody_waits_for_arrive,
    stopped_services_are_a_status,
    stopping_while_kernels_call_hangs_nobody,
    a_call_that_is_not_answered_times_out,
    a_plain_call_that_fails_fails_the_launch,
    panics_are_statuses_and_ports_go_on,
    launches_without_the_right_services_are_refused,
    devices_without_live_memory_refuse_to_wait,
    a_kernel_that_writes_garbage_harms_nobody_else,
    services_serve_several_devices,
];

const MINUTE: Duration = Duration::from_secs(60);

fn kernel(f: &Fixture, services: &HostServices, source: &str) -> Kernel {
    kernel_of(&f.device, services, source)
}

/// Runs `main` with `out` bound, poisoned before, and waits.
fn run(
    kernel: &Kernel,
    services: &HostServices,
    len: usize,
) -> (DeviceBuffer<u32>, Result<(), WaitError>) {
    run_with(kernel, services, len, |launch| {
        launch.invocations(len as u32)
    })
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
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
    let source = format!(
        "{HEAD}
            for (var i = 0u; i < {CALLS}u; i++) {{
                let call = id.x * {CALLS}u + i;
                out[call] = count(call);
            }}
        }}"
    );
    let kernel = kernel(f, &services, &source);
    let out = f
        .device
        .buffer(&vec![0xDEAD_BEEFu32; INVOCATIONS * CALLS])
        .unwrap();
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &out)
        .invocations(INVOCATIONS as u32);
    launch.submit().unwrap().wait_timeout(MINUTE * 5).unwrap();
    let results = out.read().unwrap();
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

fn stopped_services_are_a_status(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = format!("{HEAD} let r = mix_try(id.x); out[id.x] = r.status * 16u + r.value; }}");
    let kernel = kernel(f, &services, &source);
    services.stop();
    let (out, result) = run(&kernel, &services, 256);
    result.unwrap();
    assert_eq!(
        out.read().unwrap(),
        vec![CallStatus::Stopped.code() * 16; 256]
    );
}

fn stopping_while_kernels_call_hangs_nobody(f: &Fixture) {
    let (entered, wait_for_entry) = std::sync::mpsc::channel();
    let entered = Mutex::new(entered);
    let served = Arc::new(AtomicU32::new(0));
    let serving = Arc::clone(&served);
    let count = move |x: u32| {
        let number = serving.fetch_add(1, Ordering::Relaxed);
        if number == 100 {
            let _ = entered.lock().unwrap().send(());
        }
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn count(x: u32) -> u32", count)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD} let r = count_try(id.x); out[id.x] = select(r.status, r.value, r.status == CALL_DONE); }}"
    );
    let kernel = kernel(f, &services, &source);
    let out = f.device.buffer(&vec![0xDEAD_BEEFu32; 16_384]).unwrap();
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &out)
        .invocations(16_384);
    let event = launch.submit().unwrap();
    f.device.flush().unwrap();
    wait_for_entry.recv_timeout(MINUTE).unwrap();
    services.stop();
    event.wait_timeout(MINUTE).unwrap();
    let stopped = CallStatus::Stopped.code();
    let (mut right, mut refused) = (0, 0);
    for (id, value) in out.read().unwrap().into_iter().enumerate() {
        match value {
            value if value == stopped => refused += 1,
            value => {
                assert_eq!(value, mix(id as u32));
                right += 1;
            }
        }
    }
    assert!(right <= served.load(Ordering::Relaxed));
    assert_eq!(right + refused, 16_384);
}

fn a_call_that_is_not_answered_times_out(f: &Fixture) {
    // The function waits until the test is done with the kernel: no call is answered before.
    let (leave, told_to_leave) = std::sync::mpsc::channel::<()>();
    let told_to_leave = Mutex::new(told_to_leave);
    let slow = move |x: u32| {
        let _ = told_to_leave.lock().unwrap().recv_timeout(MINUTE);
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn slow(x: u32) -> u32", slow)
        .wait_budget(500)
        .start()
        .unwrap();
    let source = format!("{HEAD} let r = slow_try(id.x); out[id.x] = r.status * 16u + r.value; }}");
    let kernel = kernel(f, &services, &source);
    let (out, result) = run(&kernel, &services, 64);
    result.unwrap();
    assert_eq!(
        out.read().unwrap(),
        vec![CallStatus::TimedOut.code() * 16; 64]
    );
    drop(leave);
    // What was given up is served all the same, and its ports come back.
    let deadline = std::time::Instant::now() + MINUTE;
    loop {
        let (out, result) = run(&kernel, &services, 64);
        result.unwrap();
        let done = |(id, value): (usize, &u32)| *value == mix(id as u32).wrapping_add(16);
        let results = out.read().unwrap();
        if results.iter().enumerate().all(done) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{results:x?}");
    }
}

fn a_plain_call_that_fails_fails_the_launch(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn other(x: u32) -> u32", |x: u32| x)
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD} out[id.x] = other_try(id.x).value; if id.x == 5u {{ out[id.x] = mix(id.x); }} }}"
    );
    let kernel = kernel(f, &services, &source);
    let (out, result) = run(&kernel, &services, 64);
    result.unwrap();
    assert_eq!(out.read().unwrap()[5], mix(5));
    services.stop();
    let (out, result) = run(&kernel, &services, 64);
    let Err(WaitError::Failed(error)) = result else {
        panic!("{result:?}");
    };
    match &*error {
        ExecutionError::CallFailed {
            kernel,
            function,
            status,
        } => assert_eq!(
            (kernel.as_str(), function.as_str(), *status),
            ("main", "mix", CallStatus::Stopped)
        ),
        other => panic!("{other}"),
    }
    assert!(
        out.read().is_err(),
        "what a failed launch wrote is no result"
    );
}

fn panics_are_statuses_and_ports_go_on(f: &Fixture) {
    let touchy = |x: u32| {
        assert!(x % 8 != 3, "on purpose");
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn touchy(x: u32) -> u32", touchy)
        .ports(8)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD} let r = touchy_try(id.x); out[id.x] = select(r.status, r.value, r.status == CALL_DONE); }}"
    );
    let kernel = kernel(f, &services, &source);
    let (out, result) = run(&kernel, &services, 256);
    result.unwrap();
    let panicked = CallStatus::Panicked.code();
    let expected: Vec<u32> = (0..256)
        .map(|x| if x % 8 == 3 { panicked } else { mix(x) })
        .collect();
    assert_eq!(out.read().unwrap(), expected);
    assert_eq!(services.statistics().functions[0].panics, 32);
}

fn launches_without_the_right_services_are_refused(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let kernel = kernel(f, &services, &format!("{HEAD} out[id.x] = mix(id.x); }}"));
    let out = f.device.buffer(&[7u32; 64]).unwrap();
    let launch = || kernel.launch().buffer("out", &out).invocations(64);
    let error = launch().submit().unwrap_err();
    assert!(matches!(&error, LaunchError::NoServices { .. }), "{error}");
    assert!(error.to_string().contains("fn mix(x: u32) -> u32"));
    let others = HostServices::builder()
        .call("fn mix(x: f32) -> f32", |x: f32| x)
        .start()
        .unwrap();
    let error = launch().services(&others).submit().unwrap_err();
    assert!(
        matches!(&error, LaunchError::OtherServices { .. }),
        "{error}"
    );
    let none = HostServices::builder().start().unwrap();
    let error = launch().services(&none).submit().unwrap_err();
    assert!(
        error.to_string().contains("nothing of that name"),
        "{error}"
    );
    // Others with the same function will do.
    let more = HostServices::builder()
        .call("fn zero() -> u32", || 0u32)
        .call("fn mix(x: u32) -> u32", |x: u32| x + 1)
        .start()
        .unwrap();
    launch()
        .services(&more)
        .submit()
        .unwrap()
        .wait_timeout(MINUTE)
        .unwrap();
    assert_eq!(out.read().unwrap(), (1..65).collect::<Vec<u32>>());
}

fn devices_without_live_memory_refuse_to_wait(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = format!("{HEAD} out[id.x] = mix(id.x); }}");
    let program = Program::with_services("rpc.wgsl", source, &services).unwrap();
    for device in [
        f.open(|options| options.live_memory = false),
        f.open(|options| options.probe = Some(false)),
    ] {
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let out = device.buffer(&[7u32; 64]).unwrap();
        let mut launch = kernel
            .launch()
            .services(&services)
            .buffer("out", &out)
            .invocations(64);
        let error = launch.submit().unwrap_err();
        assert!(
            matches!(&error, LaunchError::NeedsLiveMemory { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("in the next launch"), "{error}");
        assert_eq!(out.read().unwrap(), [7; 64]);
    }
    assert!(f.device.has(Aspect::LiveMemory));
}

fn a_kernel_that_writes_garbage_harms_nobody_else(f: &Fixture) {
    // Every invocation writes anything into requests and arguments of the first half of the ports, by the runtime's
    // own name for them.
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .ports(64)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD}
            // Never; but a program that calls nothing has no ports to spoil.
            if out[0] == 0u {{ out[0] = mix_try(0u).status; }}
            let requests = atomicLoad(&tombolo_calls[9]);
            let stride = atomicLoad(&tombolo_calls[7]);
            let first = atomicLoad(&tombolo_calls[11]);
            var x = id.x * 2654435761u + 12345u;
            for (var i = 0u; i < 64u; i++) {{
                x = x * 1664525u + 1013904223u;
                let port = (x >> 8u) % 32u;
                let word = (x >> 16u) % (2u * stride);
                let place = select(first + port * stride + word % 6u, requests + port, (x & 3u) == 0u);
                atomicStore(&tombolo_posts[place], x ^ (x << 13u));
            }}
            out[id.x] = x;
        }}"
    );
    let hostile = kernel(f, &services, &source);
    let (_, result) = run(&hostile, &services, 4096);
    result.unwrap();
    // A server thread is alive, another device's ports are whole, and so is a loopback.
    let device = f.open(|_| {});
    let source = format!("{HEAD} out[id.x] = mix(id.x); }}");
    let program = Program::with_services("rpc.wgsl", source, &services).unwrap();
    let honest = device.kernel(&program, "main", &Constants::new()).unwrap();
    let (out, result) = run(&honest, &services, 1024);
    result.unwrap();
    assert_eq!(out.read().unwrap(), (0..1024).map(mix).collect::<Vec<_>>());
    let got = services.loopback().call("mix", &[77], MINUTE);
    assert_eq!(got, Ok(vec![mix(77)]));
    // On the spoilt device too: garbage in a request is answered like a call, after which the port is quiet.
    let honest = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let (out, result) = run(&honest, &services, 1024);
    result.unwrap();
    assert_eq!(out.read().unwrap(), (0..1024).map(mix).collect::<Vec<_>>());
    let statistics = services.statistics();
    // Where calls are sealed garbage is none.
    assert!(statistics.unknown + statistics.oversize + statistics.late > 0);
}

fn services_serve_several_devices(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .threads(2)
        .start()
        .unwrap();
    let source = format!("{HEAD} out[id.x] = mix(id.x); }}");
    let program = Program::with_services("rpc.wgsl", source, &services).unwrap();
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
