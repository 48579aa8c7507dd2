//! Servers that live on a device and are called by threads of the host.

use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::Fixture;
use crate::print::collect;
use bytemuck::{Pod, Zeroable};
use pollster::block_on;
use tombolo::{
    Constants, Device, HostServices, Kernel, PersistentKernel, Program, Ptr,
    calls::CallStatus,
    device::{Capability, ExecutionError, Tier},
    launch::LaunchError,
    server::{
        CallError, DeviceFunction, HostServer, LeasePolicy, PersistentKernelBuilder, ServerError,
    },
};

cases![
    a_million_calls_are_each_answered,
    one_thread_calls,
    structures_vectors_and_matrices_travel,
    handlers_follow_pointers,
    handlers_use_globals_and_private_arrays,
    handlers_print,
    handlers_call_the_host,
    a_handler_that_fails_fails_its_call_alone,
    a_handler_that_never_ends_is_ended,
    long_loops_fit_into_leases,
    whole_work_groups_serve_calls,
    lanes_of_a_group_that_fail_are_told,
    a_server_of_the_host_answers_the_same,
];

pub const MINUTE: Duration = Duration::from_secs(60);

pub fn mix(x: u32, y: u32) -> u32 {
    (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B).rotate_left(13) ^ y
}

pub const MIX: &str = "
    fn rotate(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }
    fn mix(x: u32, y: u32) -> u32 { return rotate((x ^ 0x9e3779b9u) * 0x85ebca6bu, 13u) ^ y; }
";

pub type Mixer = DeviceFunction<(u32, u32), u32>;

pub fn builder(device: &Device, source: &str) -> PersistentKernelBuilder {
    let program = Program::new("server.wgsl", source).unwrap_or_else(|error| panic!("{error}"));
    PersistentKernel::builder(device, &program)
}

/// Whether calls to servers of this device travel in slices.
pub fn is_sliced(device: &Device) -> bool {
    let tier = (device.capabilities()).tier(Capability::PersistentKernels);
    tier.tier == Tier::Sliced
}

/// A server whose handlers follow pointers: in slices, each of which sees the heap, unless running kernels see what the
/// host writes into it.
pub fn start_with_pointers(builder: PersistentKernelBuilder) -> PersistentKernel {
    let server = builder.start().unwrap_or_else(|error| panic!("{error}"));
    let device = server.device();
    let sees_heap = device.capabilities().unified_memory && !is_sliced(device);
    let expected = if sees_heap { Tier::Live } else { Tier::Sliced };
    assert_eq!(server.tier(), expected);
    server
}

pub fn start(builder: PersistentKernelBuilder) -> PersistentKernel {
    let server = builder.start().unwrap_or_else(|error| panic!("{error}"));
    let in_slices = server.tier() == Tier::Sliced;
    assert_eq!(in_slices, is_sliced(server.device()));
    server
}

/// Looks until `done`. Every wait has a deadline.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < MINUTE, "{what}");
        std::thread::yield_now();
    }
}

pub fn mixer(f: &Fixture) -> (PersistentKernel, Mixer) {
    mixer_of(builder(&f.device, MIX))
}

/// A server of `mix`, and the function.
pub fn mixer_of(builder: PersistentKernelBuilder) -> (PersistentKernel, Mixer) {
    let server = start(builder.handler("mix"));
    let function = server.function("mix").unwrap();
    (server, function)
}

/// No lease ends by its time, and is followed by another without calls.
pub fn untimed(device: &Device) -> LeasePolicy {
    LeasePolicy::of(device.capabilities()).time(Duration::MAX)
}

/// Leases that end neither by time nor because nobody calls.
pub fn endless(device: &Device) -> LeasePolicy {
    LeasePolicy::of(device.capabilities())
        .time(Duration::MAX)
        .idle(Duration::MAX)
}

pub fn kernel(f: &Fixture, source: &str) -> Kernel {
    let program = Program::new("ordinary.wgsl", source).unwrap();
    f.device
        .kernel(&program, "main", &Constants::new())
        .unwrap()
}

pub const ADD: &str = "@group(0) @binding(0) var<storage, read_write> sums: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        sums[id.x] += id.x + 1u;
    }";

/// As many as kernels make of the host.
fn a_million_calls_are_each_answered(f: &Fixture) {
    const THREADS: u32 = 8;
    // In slices a batch is one call, more or less.
    let in_copies =
        !f.device.capabilities().unified_memory && (f.is_lavapipe() || f.is_swiftshader());
    let calls_each = match is_sliced(&f.device) {
        true => 20_000,
        // Each call is copied by the processor that serves it.
        false if in_copies => 25_000,
        false => 125_000,
    };
    let server = start(builder(&f.device, MIX).handler("mix").ports(256));
    let function: Mixer = server.function("mix").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let function = &function;
            scope.spawn(move || {
                let calls: Vec<_> = (0..calls_each)
                    .map(|i| (thread * calls_each + i, !i))
                    .collect();
                let results = function.call_all(&calls).unwrap();
                let expected = calls.iter().map(|&(x, y)| mix(x, y));
                assert!(expected.eq(results), "thread {thread}");
            });
        }
    });
}

fn one_thread_calls(f: &Fixture) {
    let (server, function) = mixer(f);
    // Each is a launch of its own in slices.
    let calls = if is_sliced(&f.device) { 500 } else { 10_000 };
    for i in 0..calls {
        let result = function.call_timeout(&(i, !i), MINUTE).unwrap();
        assert_eq!(result, mix(i, !i), "call {i}");
    }
    assert!(server.leases() > 0);
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
struct Body {
    position: [f32; 3],
    mass: f32,
    tags: [i32; 4],
}

fn structures_vectors_and_matrices_travel(f: &Fixture) {
    let by_name = "struct Body { position: vec3<f32>, mass: f32, tags: vec4<i32> }
        fn advance(body: Body, by: vec3<f32>, turn: mat2x2<f32>) -> Body {";
    let by_alias = "alias Point = vec3<f32>; alias Mass = f32; alias Tags = vec4<i32>; alias Turn = mat2x2<f32>;
        alias Planet = Body;
        struct Body { position: Point, mass: Mass, tags: Tags }
        fn advance(body: Planet, by: Point, turn: Turn) -> Planet {";
    for head in [by_name, by_alias] {
        bodies_travel(f, head);
    }
}

fn bodies_travel(f: &Fixture, head: &str) {
    let body = "
            var next = body;
            next.position += by;
            let xy = turn * next.position.xy;
            next.position.x = xy.x;
            next.position.y = xy.y;
            next.tags = -next.tags.wzyx;
            return next;
        }
        fn nothing() {}";
    let source = format!("{head}{body}");
    let server = start(
        builder(&f.device, &source)
            .handler("advance")
            .handler("nothing"),
    );
    let advance = server
        .function::<(Body, [f32; 3], [[f32; 2]; 2]), Body>("advance")
        .unwrap();
    let nothing = server.function::<(), ()>("nothing").unwrap();
    for i in 0..100 {
        let x = i as f32;
        let body = Body {
            position: [x, 2.0, 3.0],
            mass: 0.5,
            tags: [i, 2, 3, 4],
        };
        let turn = [[0.0, 1.0], [-1.0, 0.0]];
        let next = advance
            .call_timeout(&(body, [1.0, 1.0, 1.0], turn), MINUTE)
            .unwrap();
        let expected = Body {
            position: [-3.0, x + 1.0, 4.0],
            mass: 0.5,
            tags: [-4, -3, -2, -i],
        };
        assert_eq!(next, expected);
        nothing.call_timeout(&(), MINUTE).unwrap();
    }
}

fn handlers_follow_pointers(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        fn sum(p: usm_ptr, count: u32) -> u32 {
            var total = 0u;
            for (var i = 0u; i < count; i++) {
                let words = usm_Words(p);
                total += words[i];
                words[i] = total;
            }
            return total;
        }";
    let server = start_with_pointers(builder(&f.device, source).handler("sum"));
    let sum = server.function::<(Ptr<u32>, u32), u32>("sum").unwrap();
    let heap = f.context.heap().unwrap();
    let values: Vec<u32> = (1..=100).collect();
    let data = heap.alloc_slice(&values).unwrap();
    let mut expected = values;
    for round in 0..4 {
        let mut total = 0u32;
        for value in &mut expected {
            total = total.wrapping_add(*value);
            *value = total;
        }
        assert_eq!(
            sum.call_timeout(&(data, 100), MINUTE).unwrap(),
            total,
            "round {round}"
        );
        let host = heap.host_timeout(MINUTE).unwrap();
        assert_eq!(host.slice(data, 100).unwrap(), expected, "round {round}");
    }
    drop(server);
    heap.free(data).unwrap();
}

fn handlers_use_globals_and_private_arrays(f: &Fixture) {
    let source = "
        override N: u32 = 4;
        var<storage, read_write> tally: atomic<u32>;
        fn reverse(x: u32) -> u32 {
            var digits: array<u32, N>;
            var rest = x;
            for (var i = 0u; i < N; i++) { digits[i] = rest % 10u; rest /= 10u; }
            var back = 0u;
            for (var i = 0u; i < N; i++) { back = back * 10u + digits[i]; }
            atomicAdd(&tally, back);
            return back;
        }";
    let constants = Constants::new().set("N", 6u32);
    let server = start(
        builder(&f.device, source)
            .handler("reverse")
            .constants(constants),
    );
    let reverse = server.function::<(u32,), u32>("reverse").unwrap();
    let tally = f.device.global("tally").unwrap();
    tally.write(&0u32).unwrap().wait_timeout(MINUTE).unwrap();
    let mut expected = 0u32;
    for x in [123_456u32, 1, 999_999, 102_030] {
        let back: String = format!("{x:06}").chars().rev().collect();
        let back: u32 = back.parse().unwrap();
        assert_eq!(reverse.call_timeout(&(x,), MINUTE).unwrap(), back);
        expected += back;
        assert_eq!(tally.read::<u32>().unwrap(), expected);
    }
}

fn handlers_print(f: &Fixture) {
    let (options, taken) = collect();
    let source = "fn greet(x: u32) -> u32 { print(\"called with {}\", x); return x; }";
    let device = f.open(|open| open.print = options);
    let server = start(builder(&device, source).handler("greet"));
    let greet = server.function::<(u32,), u32>("greet").unwrap();
    for x in 0..20 {
        assert_eq!(greet.call_timeout(&(x,), MINUTE).unwrap(), x);
    }
    drop(server);
    device.finish().unwrap();
    let expected: Vec<String> = (0..20).map(|x| format!("called with {x}")).collect();
    assert_eq!(taken.lock().unwrap().lines, expected);
}

fn handlers_call_the_host(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn host_mix(x: u32, y: u32) -> u32", mix)
        .call("fn host_fail(x: u32) -> u32", |_: u32| -> u32 {
            panic!("on purpose")
        })
        .start()
        .unwrap();
    let source = "fn fail(x: u32) -> u32 { return host_fail(x); }
        fn twice(x: u32) -> u32 { return host_mix(host_mix(x, 1u), 2u); }";
    let program = Program::builder()
        .source("server.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let server = PersistentKernel::builder(&f.device, &program);
    let server = server.services(&services).handler("twice").handler("fail");
    if is_sliced(&f.device) {
        // Nobody answers a launch while it runs.
        let error = server.start().unwrap_err();
        let ServerError::Launch(LaunchError::NeedsLiveMemory { functions, .. }) = &error else {
            panic!("{error}");
        };
        assert!(functions.contains("host_mix"), "{error}");
        return;
    }
    let server = start(server);
    let twice = server.function::<(u32,), u32>("twice").unwrap();
    let error = server
        .function::<(u32,), u32>("fail")
        .unwrap()
        .call_timeout(&(1,), MINUTE);
    assert!(
        matches!(&error, Err(CallError::Failed { error, .. })
        if matches!(**error, ExecutionError::CallFailed { .. })),
        "{error:?}"
    );
    // Where turns are rationed, the call of a handler that nobody has begun is taken back: the machine may be busy.
    let has_loop_budget = f.device.capabilities().loop_budget().is_some();
    for x in 0..100 {
        match twice.call_timeout(&(x,), MINUTE) {
            Ok(result) => assert_eq!(result, mix(mix(x, 1), 2)),
            Err(CallError::Failed { error, .. }) if has_loop_budget && is_busy(&error) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn is_busy(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::CallFailed {
            status: CallStatus::Busy,
            ..
        }
    )
}

fn a_handler_that_fails_fails_its_call_alone(f: &Fixture) {
    let source = "
        fn root(x: f32) -> f32 { assert(x >= 0.0, \"no root of {}\", x); return sqrt(x); }";
    let server = start(builder(&f.device, source).handler("root"));
    let root = server.function::<(f32,), f32>("root").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let root = root.clone();
            scope.spawn(move || {
                for i in 0..50 {
                    let x = (i * i) as f32;
                    if thread == 0 && i % 10 == 9 {
                        let error = root.call_timeout(&(-x,), MINUTE).unwrap_err();
                        let CallError::Failed { handler, error } = error else {
                            panic!("{error}");
                        };
                        assert_eq!(handler, "root");
                        assert!(
                            matches!(&*error, ExecutionError::Assertion { message, .. }
                            if message.contains(&format!("no root of -{}", i * i))),
                            "{error}"
                        );
                    }
                    let result = root.call_timeout(&(x,), MINUTE).unwrap();
                    assert!((result - i as f32).abs() < 1e-3);
                }
            });
        }
    });
    assert!(server.failure().is_none());
}

fn a_handler_that_never_ends_is_ended(f: &Fixture) {
    let source = "
        fn spin(x: u32) -> u32 {
            var y = x;
            loop { y = y * 1664525u + 1u; if y == x { break; } }
            return y;
        }
        fn next(x: u32) -> u32 { return x + 1u; }";
    let server = builder(&f.device, source).handler("spin").handler("next");
    let server = start(server.turns(20_000));
    let spin = server.function::<(u32,), u32>("spin").unwrap();
    let next = server.function::<(u32,), u32>("next").unwrap();
    for x in 0..20 {
        let error = spin.call_timeout(&(x,), MINUTE).unwrap_err();
        assert!(
            matches!(error, CallError::TooManyTurns { limit: 20_000, .. }),
            "{error}"
        );
        assert_eq!(next.call_timeout(&(x,), MINUTE).unwrap(), x + 1);
    }
    drop(server);
    // By default, too, before the lease is taken for stuck.
    let server = start(builder(&f.device, source).handler("spin").handler("next"));
    let spin = server.function::<(u32,), u32>("spin").unwrap();
    let error = spin.call_timeout(&(7,), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::TooManyTurns { .. }), "{error}");
    let next = server.function::<(u32,), u32>("next").unwrap();
    assert_eq!(next.call_timeout(&(7,), MINUTE).unwrap(), 8);
    let mut add = kernel(f, ADD).launch();
    let sums = f.device.buffer(&[0u32; 64]).unwrap();
    add = add.buffer("sums", &sums).invocations(64);
    add.submit().unwrap().wait_timeout(MINUTE).unwrap();
    assert_eq!(sums.read().unwrap()[63], 64);
}

fn long_loops_fit_into_leases(f: &Fixture) {
    let source = "
        fn triangle(n: u32) -> u32 { var sum = 0u; for (var i = 0u; i <= n; i++) { sum += i; } return sum; }";
    let server = start(builder(&f.device, source).handler("triangle"));
    let triangle = server.function::<(u32,), u32>("triangle").unwrap();
    for i in 0..200 {
        let n = 10_000 + 50 * i;
        assert_eq!(
            triangle.call_timeout(&(n,), MINUTE).unwrap(),
            n * (n + 1) / 2
        );
    }
}

const GROUP: &str = "
    alias Words = array<u32>;
    var<workgroup> partial: array<u32, 64>;
    fn total(lane: u32, p: usm_ptr, count: u32) -> u32 {
        let words = usm_Words(p);
        var sum = 0u;
        for (var i = lane; i < count; i += 64u) { sum += words[i]; words[i] = words[i] + lane; }
        partial[lane] = sum;
        for (var half = 32u; half > 0u; half /= 2u) {
            workgroupBarrier();
            if lane < half { partial[lane] += partial[lane + half]; }
        }
        workgroupBarrier();
        let all = partial[0];
        workgroupBarrier();
        return all;
    }
    fn alone(x: u32) -> u32 { return x * 3u; }
    fn spin(lane: u32, x: u32) -> u32 {
        var y = x + lane;
        loop { y = y * 1664525u + 1u; if y == x + lane && lane < 70u { break; } }
        workgroupBarrier();
        return y;
    }
    fn picky(lane: u32, x: u32) -> u32 { assert(lane != x, \"not {}\", lane); return x; }";

fn whole_work_groups_serve_calls(f: &Fixture) {
    let server = builder(&f.device, GROUP)
        .group_handler("total")
        .handler("alone");
    let server = start_with_pointers(server);
    let total = server.function::<(Ptr<u32>, u32), u32>("total").unwrap();
    let alone = server.function::<(u32,), u32>("alone").unwrap();
    let heap = f.context.heap().unwrap();
    let values: Vec<u32> = (0..1000).map(|i| i * i).collect();
    let data = heap.alloc_slice(&values).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for x in 0..300 {
                assert_eq!(alone.call_timeout(&(x,), MINUTE).unwrap(), x * 3);
            }
        });
        let mut values = values.clone();
        for _ in 0..100 {
            let expected = values.iter().sum::<u32>();
            assert_eq!(total.call_timeout(&(data, 1000), MINUTE).unwrap(), expected);
            for (i, value) in values.iter_mut().enumerate() {
                *value += i as u32 % 64;
            }
        }
        let host = heap.host_timeout(MINUTE).unwrap();
        assert_eq!(host.slice(data, 1000).unwrap(), values);
    });
    drop(server);
    heap.free(data).unwrap();
    let error = builder(&f.device, GROUP)
        .group_handler("total")
        .group_size(48)
        .start();
    assert!(matches!(
        error,
        Err(ServerError::GroupSize { size: 48, .. })
    ));
    let error = builder(&f.device, "fn f(x: f32) {}")
        .group_handler("f")
        .start();
    assert!(matches!(error, Err(ServerError::Handler { .. })));
}

fn lanes_of_a_group_that_fail_are_told(f: &Fixture) {
    let server = builder(&f.device, GROUP)
        .group_handler("spin")
        .group_handler("picky");
    let server = start(server.turns(5_000));
    let spin = server.function::<(u32,), u32>("spin").unwrap();
    let picky = server.function::<(u32,), u32>("picky").unwrap();
    for x in 0..10 {
        let error = spin.call_timeout(&(x,), MINUTE).unwrap_err();
        assert!(matches!(error, CallError::TooManyTurns { .. }), "{error}");
        let error = picky.call_timeout(&(x * 7,), MINUTE).unwrap_err();
        let text = format!("not {}", x * 7);
        assert!(
            matches!(&error, CallError::Failed { error, .. } if error.to_string().contains(&text)),
            "{error}"
        );
        assert_eq!(picky.call_timeout(&(64 + x,), MINUTE).unwrap(), 64 + x);
    }
}

fn a_server_of_the_host_answers_the_same(_f: &Fixture) {
    let server = HostServer::builder()
        .handler("fn mix(x: u32, y: u32) -> u32", mix)
        .handler("fn fail()", || -> () { panic!("on purpose") })
        .ports(8)
        .start()
        .unwrap();
    let function: Mixer = server.function("mix").unwrap();
    let fail = server.function::<(), ()>("fail").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let function = &function;
            scope.spawn(move || {
                for i in 0..500 {
                    let result = function.call_timeout(&(i, thread), MINUTE).unwrap();
                    assert_eq!(result, mix(i, thread));
                }
            });
        }
    });
    let error = fail.call_timeout(&(), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::Panicked { .. }), "{error}");
    let results = function.call_many(&[(1, 2), (3, 4)]);
    assert_eq!(
        results.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [mix(1, 2), mix(3, 4)]
    );
    server.stop();
    let error = block_on(function.begin(&(1, 2))).unwrap_err();
    assert!(matches!(error, CallError::Stopped { .. }), "{error}");
    let error = HostServer::builder()
        .handler("fn f(x: f32) -> f32", |x: u32| -> u8 { x as u8 })
        .start();
    assert!(matches!(error, Err(ServerError::Handler { .. })));
}
