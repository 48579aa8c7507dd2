//! Kernels that call functions of a server on a device: on another one while they run, and on their own behind them.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    CallStatus, Constants, Device, DeviceOptions, ExecutionError, Kernel, Launch, LaunchError,
    LeasePolicy, PersistentKernel, PersistentKernelBuilder, Program, ServerError, WaitError,
};

cases![
    kernels_call_a_server_on_another_device,
    kernels_and_threads_call_one_server,
    a_server_that_left_comes_back_for_a_kernel,
    a_handler_that_gives_up_fails_the_call_of_a_kernel,
    a_stopped_server_lets_no_kernel_wait,
    devices_out_of_reach_are_refused,
    kernels_of_one_device_hand_calls_over_between_launches,
    work_groups_serve_kernels_between_launches,
    handlers_that_fail_between_launches_say_so,
    kernels_that_would_wait_for_themselves_are_refused,
];

const MINUTE: Duration = Duration::from_secs(60);
/// What a kernel's variables hold before it runs.
const POISON: u32 = 0xdead_beef;

fn mix(x: u32, y: u32) -> u32 {
    (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B).rotate_left(13) ^ y
}

const MIX: &str = "
    fn rotate(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }
    fn mix(x: u32, y: u32) -> u32 {
        assert(y != 1000000u, \"not a million\");
        return rotate((x ^ 0x9e3779b9u) * 0x85ebca6bu, 13u) ^ y;
    }
";

fn builder(device: &Device) -> PersistentKernelBuilder {
    let program = Program::new("server.wgsl", MIX).unwrap_or_else(|error| panic!("{error}"));
    PersistentKernel::builder(device, &program).handler("mix")
}

fn start(builder: PersistentKernelBuilder) -> PersistentKernel {
    builder.start().unwrap_or_else(|error| panic!("{error}"))
}

fn caller(device: &Device, server: &PersistentKernel, source: &str) -> Kernel {
    let program = Program::with_server("caller.wgsl", source, server);
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

/// Runs a launch to its end. Where turns of loops are rationed, as time that kernels wait is, it may take several attempts
/// on a busy machine.
fn run(launch: &mut Launch) {
    for _ in 0..100 {
        match launch.submit().unwrap().wait_timeout(MINUTE) {
            Ok(()) => return,
            Err(WaitError::Failed(error))
                if matches!(
                    *error,
                    ExecutionError::CallFailed {
                        status: CallStatus::TimedOut,
                        ..
                    }
                ) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the calls of a kernel are not served");
}

/// A device on another adapter; where there is none, on the same.
fn other(f: &Fixture) -> Device {
    let adapters = f.context.adapters();
    let mut indices = adapters.iter().map(|adapter| adapter.index);
    let index = indices.find(|&index| index != f.index);
    let index = index.unwrap_or(f.index);
    f.context.device_at(index).unwrap()
}

/// Whether kernels of one device can call a server on another. Where one of them has memory of its own they cannot, which
/// the errors are tested for.
fn can_share(f: &Fixture, other: &Device) -> bool {
    [&f.device, other]
        .iter()
        .all(|device| device.capabilities().unified_memory && device.capabilities().host_import())
}

/// A server of `mix` on another device, which kernels of this one can call; `None` where they cannot.
fn reached(f: &Fixture) -> Option<PersistentKernel> {
    let other = other(f);
    can_share(f, &other).then(|| start(builder(&other).callers(1)))
}

const CALL: &str = "
    @group(0) @binding(0) var<storage, read_write> results: array<u32>;
    @group(0) @binding(1) var<uniform> seed: u32;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let x = id.x + seed;
        results[id.x] = mix(x, id.x) + mix(id.x, x);
    }";

fn kernels_call_a_server_on_another_device(f: &Fixture) {
    const COUNT: u32 = 64;
    let Some(server) = reached(f) else {
        return;
    };
    let kernel = caller(&f.device, &server, CALL);
    let results = f.device.buffer(&vec![POISON; COUNT as usize]).unwrap();
    let mut launch = kernel
        .launch()
        .buffer("results", &results)
        .value("seed", &0u32)
        .server(&server)
        .invocations(COUNT);
    for round in 0..20u32 {
        let seed = round * 1000;
        launch.set_value("seed", &seed).unwrap();
        run(&mut launch);
        let expected: Vec<u32> = (0..COUNT)
            .map(|i| mix(i + seed, i).wrapping_add(mix(i, i + seed)))
            .collect();
        assert_eq!(results.read().unwrap(), expected, "round {round}");
    }
    assert!(server.failure().is_none());
}

fn kernels_and_threads_call_one_server(f: &Fixture) {
    const COUNT: u32 = 64;
    let Some(server) = reached(f) else {
        return;
    };
    let function = server.function::<(u32, u32), u32>("mix").unwrap();
    let kernel = caller(&f.device, &server, CALL);
    let results = f.device.buffer(&vec![POISON; COUNT as usize]).unwrap();
    let mut launch = kernel
        .launch()
        .buffer("results", &results)
        .value("seed", &7u32)
        .server(&server)
        .invocations(COUNT);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let function = &function;
            scope.spawn(move || {
                for i in 0..500 {
                    let result = function.call_timeout(&(thread, i), MINUTE).unwrap();
                    assert_eq!(result, mix(thread, i));
                }
            });
        }
        let expected: Vec<u32> = (0..COUNT)
            .map(|i| mix(i + 7, i).wrapping_add(mix(i, i + 7)))
            .collect();
        for _ in 0..5 {
            results.write(0, &vec![POISON; COUNT as usize]).unwrap();
            run(&mut launch);
            assert_eq!(results.read().unwrap(), expected);
        }
    });
}

/// Leases end between the calls of one kernel.
fn a_server_that_left_comes_back_for_a_kernel(f: &Fixture) {
    let other = other(f);
    if !can_share(f, &other) {
        return;
    }
    let policy = LeasePolicy::of(other.capabilities())
        .time(Duration::from_millis(1))
        .idle(Duration::from_micros(100));
    let server = start(builder(&other).callers(1).leases(policy));
    let source = "
        @group(0) @binding(0) var<storage, read_write> state: array<u32, 3>;
        @compute @workgroup_size(1) fn main() {
            for (; state[0] < 2000u; state[0]++) {
                let reply = mix_try(state[0], state[1]);
                if reply.status != CALL_DONE { state[2] = reply.status; break; }
                state[1] = reply.value;
            }
        }";
    let kernel = caller(&f.device, &server, source);
    let state = f.device.buffer(&[0, POISON, 0]).unwrap();
    let launch = kernel.launch().buffer("state", &state);
    let mut launch = launch.server(&server).workgroups(1);
    let last = (0..2000).fold(POISON, |value, i| mix(i, value));
    for _ in 0..1000 {
        // A kernel whose turns are rationed goes as far as it can.
        launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let found = state.read().unwrap();
        assert!(
            [0, CallStatus::TimedOut.code()].contains(&found[2]),
            "{found:?}"
        );
        if found[0] == 2000 {
            break;
        }
    }
    assert_eq!(state.read().unwrap()[..2], [2000, last]);
    assert!(server.leases() > 1);
}

fn a_handler_that_gives_up_fails_the_call_of_a_kernel(f: &Fixture) {
    let Some(server) = reached(f) else {
        return;
    };
    let source = "
        @group(0) @binding(0) var<storage, read_write> results: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let reply = mix_try(id.x, select(id.x, 1000000u, id.x == 3u));
            results[2u * id.x] = reply.status;
            results[2u * id.x + 1u] = reply.value;
            if id.x == 3u && reply.status == CALL_FAILED { results[2u * id.x + 1u] = 12345u; }
        }";
    let kernel = caller(&f.device, &server, source);
    let results = f.device.buffer(&[POISON; 16]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let mut launch = launch.server(&server).workgroups(8);
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
    let expected: Vec<u32> = (0..8)
        .flat_map(|i| match i {
            3 => [CallStatus::Failed.code(), 12345],
            i => [1, mix(i, i)],
        })
        .collect();
    assert_eq!(results.read().unwrap(), expected);
    // A call without a status fails its launch.
    let source = "
        @group(0) @binding(0) var<storage, read_write> results: array<u32>;
        @compute @workgroup_size(1) fn main() { results[0] = mix(1u, 1000000u); }";
    let kernel = caller(&f.device, &server, source);
    let launch = kernel.launch().buffer("results", &results);
    let mut launch = launch.server(&server).workgroups(1);
    let error = launch.submit().unwrap().wait_timeout(MINUTE).unwrap_err();
    let WaitError::Failed(error) = error else {
        panic!("{error}");
    };
    let ExecutionError::CallFailed { status, .. } = &*error else {
        panic!("{error}");
    };
    assert_eq!(*status, CallStatus::Failed);
    assert!(server.failure().is_none());
}

fn a_stopped_server_lets_no_kernel_wait(f: &Fixture) {
    let Some(server) = reached(f) else {
        return;
    };
    let source = "
        @group(0) @binding(0) var<storage, read_write> results: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            for (var i = 0u; i < 100u; i++) {
                let reply = mix_try(id.x, i);
                if reply.status != CALL_DONE { results[id.x] = reply.status; break; }
                results[id.x] = i;
            }
        }";
    let kernel = caller(&f.device, &server, source);
    let results = f.device.buffer(&[POISON; 64]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let mut launch = launch.server(&server).workgroups(64);
    let event = launch.submit().unwrap();
    f.device.flush().unwrap();
    server.stop();
    // It ends, whatever it was told.
    event.wait_timeout(MINUTE).unwrap();
    for (i, result) in results.read().unwrap().into_iter().enumerate() {
        let known = [99, CallStatus::Stopped.code()];
        assert!(known.contains(&result), "{i}: {result}");
    }
    let error = launch.submit().unwrap_err();
    assert!(
        matches!(error, LaunchError::ServerStopped { .. }),
        "{error}"
    );
    server.restart().unwrap();
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
}

fn devices_out_of_reach_are_refused(f: &Fixture) {
    let other = other(f);
    let reach = |server: &PersistentKernel, device: &Device| {
        let kernel = caller(device, server, CALL);
        let results = device.buffer(&[POISON; 8]).unwrap();
        let launch = kernel.launch().buffer("results", &results);
        let launch = launch.value("seed", &0u32).server(server).invocations(8);
        launch.clone().check()
    };
    let refused = |result: Result<(), LaunchError>, part: &str| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, LaunchError::ServerOutOfReach { .. }),
            "{error}"
        );
        // Where a device has memory of its own nothing else matters.
        let told = error.to_string().contains(part) || !can_share(f, &other);
        assert!(told, "{error}");
    };
    // Nobody was expected.
    let server = start(builder(&other));
    refused(
        reach(&server, &f.device),
        "PersistentKernelBuilder::callers",
    );
    let blind = |options: &mut DeviceOptions| options.live_memory = false;
    // A server whose calls travel in slices.
    let sliced = start(builder(&f.open(blind)));
    refused(reach(&sliced, &other), "DeviceOptions::live_memory");
    let error = builder(&f.open(|options| options.import_host_memory = false)).callers(1);
    let error = error.start().unwrap_err();
    assert!(
        matches!(error, ServerError::NoKernelsCall { .. }),
        "{error}"
    );
    let error = builder(&f.open(blind)).callers(1).start().unwrap_err();
    assert!(
        matches!(error, ServerError::NoKernelsCall { .. }),
        "{error}"
    );
    if !can_share(f, &other) {
        let error = builder(&other).callers(1).start().unwrap_err();
        assert!(
            matches!(error, ServerError::NoKernelsCall { .. }),
            "{error}"
        );
        return;
    }
    let server = start(builder(&other).callers(1));
    refused(reach(&server, &f.open(blind)), "DeviceOptions::live_memory");
    reach(&server, &f.device).unwrap();
    reach(&server, &f.device).unwrap();
    refused(reach(&server, &f.open(|_| {})), "1 devices call it already");
}

const BEGIN: &str = "
    @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        tickets[id.x] = mix_begin(id.x, 3u * id.x);
    }";
const COLLECT: &str = "
    @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
    @group(0) @binding(1) var<storage, read_write> results: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let reply = mix_collect(tickets[id.x]);
        results[id.x] = select(reply.status, reply.value, reply.status == CALL_DONE);
    }";

fn kernels_of_one_device_hand_calls_over_between_launches(f: &Fixture) {
    const COUNT: u32 = 256;
    for live in [true, false] {
        let device = f.open(|options| options.live_memory = live);
        let server = start(builder(&device));
        let begin = caller(&device, &server, BEGIN);
        let collect = caller(&device, &server, COLLECT);
        let tickets = device.buffer(&vec![POISON; COUNT as usize]).unwrap();
        let results = device.buffer(&vec![POISON; COUNT as usize]).unwrap();
        let mut begin = begin
            .launch()
            .buffer("tickets", &tickets)
            .server(&server)
            .invocations(COUNT);
        let mut collect = collect
            .launch()
            .buffer("tickets", &tickets)
            .buffer("results", &results)
            .server(&server)
            .invocations(COUNT);
        let expected: Vec<u32> = (0..COUNT).map(|i| mix(i, 3 * i)).collect();
        let function = server.function::<(u32, u32), u32>("mix").unwrap();
        for round in 0..4 {
            results.write(0, &vec![POISON; COUNT as usize]).unwrap();
            let before = device.cache_statistics().submissions;
            begin.submit().unwrap();
            let event = collect.submit().unwrap();
            if round == 1 && !live {
                // Nothing of it was submitted yet: the host has no part in it.
                assert_eq!(device.cache_statistics().submissions, before);
            }
            event.wait_timeout(MINUTE).unwrap();
            assert_eq!(
                results.read().unwrap(),
                expected,
                "live: {live}, round {round}"
            );
            // Threads of the host call the same server meanwhile.
            assert_eq!(
                function.call_timeout(&(round, 1), MINUTE).unwrap(),
                mix(round, 1)
            );
        }
        // Every ticket was good for one answer.
        collect.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let none = vec![CallStatus::NoTicket.code(); COUNT as usize];
        assert_eq!(results.read().unwrap(), none);
    }
}

fn work_groups_serve_kernels_between_launches(f: &Fixture) {
    let source = "
        var<workgroup> sums: array<u32, 64>;
        fn mix(lane: u32, first: u32, step: u32) -> u32 {
            sums[lane] = first + lane * step;
            for (var half = 32u; half > 0u; half /= 2u) {
                workgroupBarrier();
                if lane < half { sums[lane] += sums[lane + half]; }
            }
            workgroupBarrier();
            return sums[0];
        }";
    let program = Program::new("server.wgsl", source).unwrap();
    let server = PersistentKernel::builder(&f.device, &program).group_handler("mix");
    let server = start(server);
    let (tickets, results) = (
        f.device.buffer(&[POISON; 64]).unwrap(),
        f.device.buffer(&[POISON; 64]).unwrap(),
    );
    let begin = caller(&f.device, &server, BEGIN).launch();
    let mut begin = (begin.buffer("tickets", &tickets))
        .server(&server)
        .invocations(64);
    let collect = caller(&f.device, &server, COLLECT).launch();
    let collect = collect
        .buffer("tickets", &tickets)
        .buffer("results", &results);
    let mut collect = collect.server(&server).invocations(64);
    begin.submit().unwrap();
    collect.submit().unwrap().wait_timeout(MINUTE).unwrap();
    let expected: Vec<u32> = (0..64).map(|i| 64 * i + 2016 * 3 * i).collect();
    assert_eq!(results.read().unwrap(), expected);
    let error = PersistentKernel::builder(&f.device, &program).group_handler("mix");
    let error = error.callers(1).start().unwrap_err();
    assert!(
        matches!(error, ServerError::NoKernelsCall { .. }),
        "{error}"
    );
}

fn handlers_that_fail_between_launches_say_so(f: &Fixture) {
    let server = start(builder(&f.device));
    let begin = "
        @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            tickets[id.x] = mix_begin(id.x, select(id.x, 1000000u, id.x == 5u));
        }";
    let tickets = f.device.buffer(&[POISON; 8]).unwrap();
    let results = f.device.buffer(&[POISON; 8]).unwrap();
    let begin = caller(&f.device, &server, begin);
    let collect = caller(&f.device, &server, &COLLECT.replace("64", "8"));
    let launch = begin.launch().buffer("tickets", &tickets);
    let mut begin = launch.server(&server).invocations(8);
    let launch = collect.launch().buffer("tickets", &tickets);
    let launch = launch.buffer("results", &results);
    let mut collect = launch.server(&server).invocations(8);
    for _ in 0..2 {
        begin.submit().unwrap();
        collect.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let expected: Vec<u32> = (0..8)
            .map(|i| match i {
                5 => CallStatus::Failed.code(),
                i => mix(i, i),
            })
            .collect();
        assert_eq!(results.read().unwrap(), expected);
    }
}

fn kernels_that_would_wait_for_themselves_are_refused(f: &Fixture) {
    let server = start(builder(&f.device).callers(0));
    let kernel = caller(&f.device, &server, CALL);
    let results = f.device.buffer(&[POISON; 8]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let mut launch = launch.value("seed", &0u32).server(&server).invocations(8);
    let error = launch.submit().unwrap_err();
    assert!(
        matches!(error, LaunchError::WaitsForItself { .. }),
        "{error}"
    );
    assert_eq!(results.read().unwrap(), [POISON; 8]);
    // Functions that the server does not have.
    let other = Program::new("other.wgsl", "fn other(x: u32) -> u32 { return x; }").unwrap();
    let other = PersistentKernel::builder(&f.device, &other).handler("other");
    let other = start(other);
    let kernel = caller(&f.device, &server, BEGIN);
    let launch = kernel.launch().buffer("tickets", &results);
    let error = launch.server(&other).invocations(8).submit().unwrap_err();
    assert!(
        matches!(error, LaunchError::OtherServices { .. }),
        "{error}"
    );
}
