//! Kernels that call functions of a server on another device, while they run: in place, where both devices share pages of the
//! host, and through the host elsewhere.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::kernel_callers_own::{BEGIN, COLLECT};
use crate::kernel_callers_reach::{other, reached};
use tombolo::{
    Constants, Device, DeviceBuffer, Kernel, Launch, PersistentKernel, Program,
    calls::CallStatus,
    device::{ExecutionError, WaitError},
    launch::LaunchError,
    server::{LeasePolicy, PersistentKernelBuilder},
};

cases![
    kernels_call_a_server_on_another_device,
    kernels_and_threads_call_one_server,
    a_server_that_left_comes_back_for_a_kernel,
    a_handler_that_gives_up_fails_the_call_of_a_kernel,
    a_stopped_server_lets_no_kernel_wait,
    each_call_of_a_kernel_is_served_once,
    a_call_at_any_port_is_seen,
    one_server_is_called_from_all_sides,
];

pub const MINUTE: Duration = Duration::from_secs(60);
/// What a kernel's variables hold before it runs.
pub const POISON: u32 = 0xdead_beef;

pub fn mix(x: u32, y: u32) -> u32 {
    (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B).rotate_left(13) ^ y
}

const MIX: &str = "
    fn rotate(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }
    fn mix(x: u32, y: u32) -> u32 {
        assert(y != 1000000u, \"not a million\");
        return rotate((x ^ 0x9e3779b9u) * 0x85ebca6bu, 13u) ^ y;
    }
";

/// The same by a whole work-group: half of its invocations give a bit each of what is turned, and the others one of `y`.
const MIX_TOGETHER: &str = "
    var<workgroup> parts: array<u32, 64>;
    fn mix(lane: u32, x: u32, y: u32) -> u32 {
        let product = (x ^ 0x9e3779b9u) * 0x85ebca6bu;
        let bit = lane % 32u;
        let turned = ((product >> bit) & 1u) << ((bit + 13u) % 32u);
        parts[lane] = select(turned, y & (1u << bit), lane >= 32u);
        for (var half = 32u; half > 0u; half /= 2u) {
            workgroupBarrier();
            if lane < half { parts[lane] ^= parts[lane + half]; }
        }
        workgroupBarrier();
        let all = parts[0];
        workgroupBarrier();
        assert(y != 1000000u || lane != 17u, \"not a million\");
        return all;
    }
";

fn program(source: &str) -> Program {
    Program::new("server.wgsl", source).unwrap_or_else(|error| panic!("{error}"))
}

pub fn builder(device: &Device) -> PersistentKernelBuilder {
    PersistentKernel::builder(device, &program(MIX)).handler("mix")
}

fn together(device: &Device) -> PersistentKernelBuilder {
    PersistentKernel::builder(device, &program(MIX_TOGETHER)).group_handler("mix")
}

/// Servers of `mix`: by one invocation for each call, and by a whole work-group.
pub type Kind = fn(&Device) -> PersistentKernelBuilder;
pub const KINDS: [Kind; 2] = [builder, together];

pub fn start(builder: PersistentKernelBuilder) -> PersistentKernel {
    builder.start().unwrap_or_else(|error| panic!("{error}"))
}

pub fn caller(device: &Device, server: &PersistentKernel, source: &str) -> Kernel {
    let program = Program::builder()
        .source("caller.wgsl", source)
        .server(server)
        .build();
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

/// Launches a kernel like [`CALL`] until each of its invocations has made `calls` calls, and tells how many launches that
/// took. Where turns of loops are rationed, as time that kernels wait is, a busy machine may let a call end as `Busy`, not
/// begun; the next launch goes on with that call. The sums of the invocations.
pub fn run(launch: &mut Launch, results: &DeviceBuffer<u32>, calls: u32) -> (u32, Vec<u32>) {
    let invocations = results.len() / 3;
    let start = [0, 0, POISON].repeat(invocations);
    results.write(0, &start).unwrap();
    for launches in 1..1000 {
        launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let found = results.read().unwrap();
        let states = || found.chunks(3);
        for (i, state) in states().enumerate() {
            let status = CallStatus::from_code(state[2]);
            let known = match state[1] == calls {
                true => CallStatus::Done,
                false => CallStatus::Busy,
            };
            assert_eq!(status, known, "invocation {i}, {} calls", state[1]);
        }
        if states().all(|state| state[1] == calls) {
            return (launches, states().map(|state| state[0]).collect());
        }
    }
    panic!("the calls of a kernel are not served");
}

/// Two calls of each invocation: the sum of their results, how many were made, and the status of the last one.
pub const CALL: &str = "
    @group(0) @binding(0) var<storage, read_write> results: array<u32>;
    @group(0) @binding(1) var<uniform> seed: u32;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let at = 3u * id.x;
        let x = id.x + seed;
        while results[at + 1u] < 2u {
            let is_first = results[at + 1u] == 0u;
            let reply = mix_try(select(id.x, x, is_first), select(x, id.x, is_first));
            results[at + 2u] = reply.status;
            if reply.status != CALL_DONE { break; }
            results[at] += reply.value;
            results[at + 1u] += 1u;
        }
    }";

fn kernels_call_a_server_on_another_device(f: &Fixture) {
    const COUNT: u32 = 64;
    for server in reached(f) {
        let kernel = caller(&f.device, &server, CALL);
        let results = f.device.buffer(&vec![POISON; 3 * COUNT as usize]).unwrap();
        let mut launch = kernel
            .launch()
            .buffer("results", &results)
            .value("seed", &0u32)
            .server(&server)
            .invocations(COUNT);
        for round in 0..20u32 {
            let seed = round * 1000;
            launch.set_value("seed", &seed).unwrap();
            let (_, sums) = run(&mut launch, &results, 2);
            let expected: Vec<u32> = (0..COUNT)
                .map(|i| mix(i + seed, i).wrapping_add(mix(i, i + seed)))
                .collect();
            assert_eq!(sums, expected, "round {round}");
        }
        assert!(server.failure().is_none());
    }
}

fn kernels_and_threads_call_one_server(f: &Fixture) {
    const COUNT: u32 = 64;
    for server in reached(f) {
        let function = server.function::<(u32, u32), u32>("mix").unwrap();
        let kernel = caller(&f.device, &server, CALL);
        let results = f.device.buffer(&vec![POISON; 3 * COUNT as usize]).unwrap();
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
                assert_eq!(run(&mut launch, &results, 2).1, expected);
            }
        });
    }
}

/// Leases end between the calls of one kernel.
fn a_server_that_left_comes_back_for_a_kernel(f: &Fixture) {
    let other = other(f);
    let policy = LeasePolicy::of(other.capabilities())
        .time(Duration::from_millis(1))
        .idle(Duration::from_micros(100));
    for kind in KINDS {
        comes_back(f, &other, start(kind(&other).callers(1).leases(policy)));
    }
}

fn comes_back(f: &Fixture, other: &Device, server: PersistentKernel) {
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
    let mut launches = 0;
    while launches < 1 || server.leases() < 2 {
        state.write(0, &[0, POISON, 0]).unwrap();
        while state.read_range(0..1).unwrap() != [2000] {
            assert!(launches < 1000, "{} leases", server.leases());
            launches += 1;
            // A kernel whose turns are rationed goes as far as it can.
            let event = launch.submit().unwrap();
            f.device.flush().unwrap();
            // Something else wants the server's device meanwhile, and the lease makes room for it.
            assert_eq!(other.buffer(&[7u32]).unwrap().read().unwrap(), [7]);
            event.wait_timeout(MINUTE).unwrap();
            let found = state.read().unwrap();
            assert!(
                [0, CallStatus::Busy.code()].contains(&found[2]),
                "{found:?}"
            );
        }
        assert_eq!(state.read().unwrap()[..2], [2000, last]);
    }
    assert!(server.leases() > 1);
}

fn a_handler_that_gives_up_fails_the_call_of_a_kernel(f: &Fixture) {
    for server in reached(f) {
        let source = "
            @group(0) @binding(0) var<storage, read_write> results: array<u32>;
            @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if results[2u * id.x] != CALL_BUSY { return; }
                let reply = mix_try(id.x, select(id.x, 1000000u, id.x == 3u));
                results[2u * id.x] = reply.status;
                results[2u * id.x + 1u] = reply.value;
                if id.x == 3u && reply.status == CALL_FAILED { results[2u * id.x + 1u] = 12345u; }
            }";
        let kernel = caller(&f.device, &server, source);
        let busy = CallStatus::Busy.code();
        let results = f.device.buffer(&[busy, POISON].repeat(8)).unwrap();
        let launch = kernel.launch().buffer("results", &results);
        let mut launch = launch.server(&server).workgroups(8);
        let is_busy = || {
            results
                .read()
                .unwrap()
                .iter()
                .step_by(2)
                .any(|&status| status == busy)
        };
        let launches = (0..1000).find(|_| {
            launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
            !is_busy()
        });
        assert!(launches.is_some(), "the calls of a kernel are not served");
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
}

fn a_stopped_server_lets_no_kernel_wait(f: &Fixture) {
    for server in reached(f) {
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
            let status = CallStatus::from_code(result);
            assert!(known.contains(&result), "{i}: {result}, status: {status:?}");
        }
        let error = launch.submit().unwrap_err();
        assert!(
            matches!(error, LaunchError::ServerStopped { .. }),
            "{error}"
        );
        server.restart().unwrap();
        launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
    }
}

/// Also where one lease ends and the next one begins, as those do here all the time.
fn each_call_of_a_kernel_is_served_once(f: &Fixture) {
    const COUNT: u32 = 64;
    let other = other(f);
    let count = "var<storage, read_write> mixes_served: atomic<u32>;";
    let own = MIX.replace(
        "u32) -> u32 {\n",
        "u32) -> u32 { atomicAdd(&mixes_served, 1u);\n",
    );
    let alone = PersistentKernel::builder(&other, &program(&format!("{count}{own}")));
    let first = "if lane == 0u { atomicAdd(&mixes_served, 1u); }";
    let own = MIX_TOGETHER.replace("let all =", &format!("{first} let all ="));
    let together = PersistentKernel::builder(&other, &program(&format!("{count}{own}")));
    let policy = LeasePolicy::of(other.capabilities())
        .time(Duration::from_millis(1))
        .idle(Duration::from_micros(100));
    for builder in [alone.handler("mix"), together.group_handler("mix")] {
        let server = start(builder.callers(1).leases(policy));
        let served = other.global("mixes_served").unwrap();
        served.write(&0u32).unwrap().wait_timeout(MINUTE).unwrap();
        let kernel = caller(&f.device, &server, CALL);
        let results = f.device.buffer(&vec![POISON; 3 * COUNT as usize]).unwrap();
        let launch = kernel.launch().buffer("results", &results);
        let launch = launch.value("seed", &3u32);
        let mut launch = launch.server(&server).invocations(COUNT);
        let mut rounds = 0;
        while rounds < 10 || server.leases() < 4 {
            // Something else wants the server's device meanwhile, and the lease makes room for it.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(other.buffer(&[rounds]).unwrap().read().unwrap(), [rounds])
                });
                run(&mut launch, &results, 2);
            });
            rounds += 1;
            assert!(rounds < 1000, "{} leases", server.leases());
        }
        drop(server);
        let served = served.read::<u32>().unwrap();
        // None lost, and none doubled, also of those that a later launch went on with.
        assert_eq!(served, 2 * COUNT * rounds);
    }
}

/// One call at a time, from each of 64 invocations, by a lease that does not end by itself: no other call, and no first look
/// of a next lease, has the server look at its port.
fn a_call_at_any_port_is_seen(f: &Fixture) {
    let other = other(f);
    let policy = LeasePolicy::of(other.capabilities())
        .time(Duration::from_secs(600))
        .idle(Duration::MAX);
    let source = "
        @group(0) @binding(0) var<storage, read_write> results: array<u32>;
        @group(0) @binding(1) var<uniform> seed: u32;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x == seed {
                let reply = mix_try(seed, 7u);
                results[0] = reply.value;
                results[1] = select(0u, 1u, reply.status == CALL_DONE);
                results[2] = reply.status;
            }
        }";
    for kind in KINDS {
        let server = start(kind(&other).callers(1).leases(policy));
        let kernel = caller(&f.device, &server, source);
        let results = f.device.buffer(&[POISON; 3]).unwrap();
        let launch = kernel.launch().buffer("results", &results);
        let launch = launch.value("seed", &0u32).server(&server);
        let mut launch = launch.workgroups(64);
        let mut launches = 0;
        for seed in 0..64u32 {
            launch.set_value("seed", &seed).unwrap();
            let (count, sums) = run(&mut launch, &results, 1);
            assert_eq!(sums, [mix(seed, 7)], "{seed}");
            launches += count;
        }
        // A call that goes on in the next launch has another port.
        assert!(launches < 96, "{launches} launches");
    }
}

/// Kernels of another device that wait, kernels of its own that do not, and threads of the host.
fn one_server_is_called_from_all_sides(f: &Fixture) {
    const COUNT: u32 = 64;
    let other = other(f);
    for kind in KINDS {
        let server = start(kind(&other).callers(1));
        let function = server.function::<(u32, u32), u32>("mix").unwrap();
        let [far, tickets, near] =
            [(&f.device, 3), (&other, 1), (&other, 1)].map(|(device, words)| {
                device
                    .buffer(&vec![POISON; words * COUNT as usize])
                    .unwrap()
            });
        let call = caller(&f.device, &server, CALL).launch();
        let call = call.buffer("results", &far).value("seed", &9u32);
        let mut call = call.server(&server).invocations(COUNT);
        let begin = caller(&other, &server, BEGIN).launch();
        let begin = begin.buffer("tickets", &tickets);
        let mut begin = begin.server(&server).invocations(COUNT);
        let collect = caller(&other, &server, COLLECT).launch();
        let collect = collect.buffer("tickets", &tickets).buffer("results", &near);
        let mut collect = collect.server(&server).invocations(COUNT);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..300 {
                    let result = function.call_timeout(&(i, 5), MINUTE).unwrap();
                    assert_eq!(result, mix(i, 5));
                }
            });
            for _ in 0..3 {
                near.write(0, &vec![POISON; COUNT as usize]).unwrap();
                begin.submit().unwrap();
                let (_, sums) = run(&mut call, &far, 2);
                collect.submit().unwrap().wait_timeout(MINUTE).unwrap();
                let expected = (0..COUNT).map(|i| mix(i + 9, i).wrapping_add(mix(i, i + 9)));
                assert_eq!(sums, expected.collect::<Vec<_>>());
                let expected = (0..COUNT).map(|i| mix(i, 3 * i));
                assert_eq!(near.read().unwrap(), expected.collect::<Vec<_>>());
            }
        });
    }
}
