//! Servers that live on a device and are called by threads of the host.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::Fixture;
use crate::print::collect;
use bytemuck::{Pod, Zeroable};
use futures::future::join_all;
use pollster::block_on;
use tombolo::{
    CallError, Constants, Device, DeviceFunction, ExecutionError, HostServer, HostServices, Kernel,
    LeasePolicy, PersistentKernel, PersistentKernelBuilder, Program, Ptr, ServerError,
    ServerFailure,
};

cases![
    one_thread_calls,
    threads_call_while_kernels_are_launched,
    a_stopped_server_says_so_and_starts_again,
    sixty_four_threads_over_a_hundred_hand_overs,
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
    futures_and_batches_come_in_order,
    calls_that_are_dropped_give_their_port_back,
    a_call_that_is_not_served_in_time_says_so,
    signatures_are_compared,
    programs_without_the_handler_are_refused,
    an_idle_server_leaves_the_device,
    two_servers_share_a_device,
    lanes_serve_calls_beside_each_other,
    the_heap_grows_under_a_server,
    a_stuck_lease_is_told_and_the_server_starts_again,
    stopping_serves_what_was_posted,
    stopping_while_threads_call_hangs_nobody,
    a_server_of_the_host_answers_the_same,
];

const MINUTE: Duration = Duration::from_secs(60);

fn mix(x: u32, y: u32) -> u32 {
    (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B).rotate_left(13) ^ y
}

const MIX: &str = "
    fn rotate(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }
    fn mix(x: u32, y: u32) -> u32 { return rotate((x ^ 0x9e3779b9u) * 0x85ebca6bu, 13u) ^ y; }
";

type Mixer = DeviceFunction<(u32, u32), u32>;

fn builder(device: &Device, source: &str) -> PersistentKernelBuilder {
    let program = Program::new("server.wgsl", source).unwrap_or_else(|error| panic!("{error}"));
    PersistentKernel::builder(device, &program)
}

fn start(builder: PersistentKernelBuilder) -> PersistentKernel {
    builder.start().unwrap_or_else(|error| panic!("{error}"))
}

/// Looks until `done`. Every wait has a deadline.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < MINUTE, "{what}");
        std::thread::yield_now();
    }
}

fn mixer(f: &Fixture) -> (PersistentKernel, Mixer) {
    let server = start(builder(&f.device, MIX).handler("mix"));
    let function = server.function("mix").unwrap();
    (server, function)
}

fn kernel(f: &Fixture, source: &str) -> Kernel {
    let program = Program::new("ordinary.wgsl", source).unwrap();
    f.device
        .kernel(&program, "main", &Constants::new())
        .unwrap()
}

const ADD: &str = "@group(0) @binding(0) var<storage, read_write> sums: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        sums[id.x] += id.x + 1u;
    }";

fn one_thread_calls(f: &Fixture) {
    let (server, function) = mixer(f);
    for i in 0..10_000u32 {
        let result = function.call_timeout(&(i, !i), MINUTE).unwrap();
        assert_eq!(result, mix(i, !i), "call {i}");
    }
    assert!(server.leases() > 0);
}

fn threads_call_while_kernels_are_launched(f: &Fixture) {
    const THREADS: u32 = 8;
    const CALLS: u32 = 1250;
    const LAUNCHES: u32 = 1000;
    let (server, function) = mixer(f);
    let sums = f.device.buffer(&vec![0u32; 256]).unwrap();
    let mut add = kernel(f, ADD)
        .launch()
        .buffer("sums", &sums)
        .invocations(256);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let function = function.clone();
            scope.spawn(move || {
                for i in 0..CALLS {
                    let x = thread * CALLS + i;
                    let result = function.call_timeout(&(x, i), MINUTE).unwrap();
                    assert_eq!(result, mix(x, i), "call {i} of thread {thread}");
                }
            });
        }
        for launch in 1..=LAUNCHES {
            add.submit().unwrap().wait_timeout(MINUTE).unwrap();
            if launch % 100 == 0 {
                let expected: Vec<u32> = (1..=256).map(|i| i * launch).collect();
                assert_eq!(sums.read().unwrap(), expected, "launch {launch}");
            }
        }
    });
    assert!(server.leases() > 1);
}

fn a_stopped_server_says_so_and_starts_again(f: &Fixture) {
    let (server, function) = mixer(f);
    assert_eq!(function.call_timeout(&(1, 2), MINUTE).unwrap(), mix(1, 2));
    server.stop();
    server.stop();
    let error = function.call_timeout(&(1, 2), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::Stopped { .. }), "{error}");
    server.restart().unwrap();
    server.restart().unwrap();
    assert_eq!(function.call_timeout(&(3, 4), MINUTE).unwrap(), mix(3, 4));
    drop(server);
    let error = function.call_timeout(&(1, 2), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::Stopped { .. }), "{error}");
}

fn sixty_four_threads_over_a_hundred_hand_overs(f: &Fixture) {
    const THREADS: u32 = 64;
    const CALLS: u32 = 400;
    let source = format!(
        "{MIX}
        var<storage, read_write> times_served: array<atomic<u32>, {}>;
        fn once(id: u32, y: u32) -> u32 {{ atomicAdd(&times_served[id], 1u); return mix(id, y); }}",
        THREADS * CALLS
    );
    // Leases of a millisecond, which other work ends even earlier.
    let policy = LeasePolicy::of(f.device.capabilities()).time(Duration::from_millis(1));
    let server = start(
        builder(&f.device, &source)
            .handler("once")
            .leases(policy)
            .ports(48),
    );
    let once: Mixer = server.function("once").unwrap();
    let calls = |thread: u32| {
        for i in 0..CALLS {
            let id = thread * CALLS + i;
            let result = once.call_timeout(&(id, i), MINUTE).unwrap();
            assert_eq!(result, mix(id, i), "call {i} of thread {thread}");
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || calls(thread)))
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            f.device.finish().unwrap();
        }
    });
    until("hand-overs", || {
        once.call_timeout(&(0, 0), MINUTE).unwrap();
        f.device.finish().unwrap();
        server.leases() > 100
    });
    server.stop();
    let global = f.device.global("times_served").unwrap();
    let bytes = global
        .read_bytes(0, u64::from(THREADS * CALLS) * 4)
        .unwrap();
    let served: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
    assert!(
        served[1..].iter().all(|&count| count == 1),
        "each call is served once"
    );
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
struct Body {
    position: [f32; 3],
    mass: f32,
    tags: [i32; 4],
}

fn structures_vectors_and_matrices_travel(f: &Fixture) {
    let source = "
        struct Body { position: vec3<f32>, mass: f32, tags: vec4<i32> }
        fn advance(body: Body, by: vec3<f32>, turn: mat2x2<f32>) -> Body {
            var next = body;
            next.position += by;
            let xy = turn * next.position.xy;
            next.position.x = xy.x;
            next.position.y = xy.y;
            next.tags = -next.tags.wzyx;
            return next;
        }
        fn nothing() {}";
    let server = start(
        builder(&f.device, source)
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
    let server = start(builder(&f.device, source).handler("sum"));
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
    tally.write(&0u32).unwrap();
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
    let program = Program::with_services("server.wgsl", source, &services).unwrap();
    let server = PersistentKernel::builder(&f.device, &program);
    let server = start(server.services(&services).handler("twice").handler("fail"));
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
    for x in 0..100 {
        assert_eq!(
            twice.call_timeout(&(x,), MINUTE).unwrap(),
            mix(mix(x, 1), 2)
        );
    }
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
    let server = start(server);
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

fn futures_and_batches_come_in_order(f: &Fixture) {
    let (_server, function) = mixer(f);
    let calls: Vec<(u32, u32)> = (0..1000).map(|i| (i, i / 3)).collect();
    let expected: Vec<u32> = calls.iter().map(|&(x, y)| mix(x, y)).collect();
    let results = block_on(join_all(calls.iter().map(|call| function.begin(call))));
    let results: Vec<u32> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, expected);
    let results = function.call_many(&calls).into_iter().map(Result::unwrap);
    assert!(results.eq(expected.iter().copied()));
    let results = function
        .sequence(calls.iter().copied(), 16)
        .map(Result::unwrap);
    assert!(results.eq(expected.iter().copied()));
    assert!(function.call_many(&[]).is_empty());
    let begun = function.begin(&calls[7]);
    assert_eq!(begun.wait_timeout(MINUTE).unwrap(), expected[7]);
}

fn calls_that_are_dropped_give_their_port_back(f: &Fixture) {
    let server = start(builder(&f.device, MIX).handler("mix").ports(4));
    let function: Mixer = server.function("mix").unwrap();
    for round in 0..500u32 {
        // More than there are ports; some are dropped before they are posted, and some before they are answered.
        let begun: Vec<_> = (0..6).map(|i| function.begin(&(round, i))).collect();
        drop(begun);
        let mut future = Box::pin(function.begin(&(round, 7)));
        let _ = futures::FutureExt::now_or_never(&mut future);
        drop(future);
        assert_eq!(
            function.call_timeout(&(round, 9), MINUTE).unwrap(),
            mix(round, 9)
        );
    }
}

fn a_call_that_is_not_served_in_time_says_so(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        fn first(p: usm_ptr) -> u32 { return usm_Words(p)[0]; }";
    let server = start(builder(&f.device, source).handler("first").ports(1));
    let first = server.function::<(Ptr<u32>,), u32>("first").unwrap();
    let heap = f.context.heap().unwrap();
    let word = heap.alloc(7u32).unwrap();
    // While the host has the heap, nothing that follows pointers is launched.
    let host = heap.host_timeout(MINUTE).unwrap();
    let error = first.call_timeout(&(word,), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::HostAccess { .. }), "{error}");
    let error = block_on(first.begin(&(word,))).unwrap_err();
    assert!(matches!(error, CallError::HostAccess { .. }), "{error}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The port is still taken.
            for _ in 0..3 {
                let error = first.call_timeout(&(word,), Duration::from_millis(20));
                assert!(
                    matches!(error, Err(CallError::TimedOut { .. })),
                    "{error:?}"
                );
            }
        });
    });
    drop(host);
    assert_eq!(first.call_timeout(&(word,), MINUTE).unwrap(), 7);
    drop(server);
    heap.free(word).unwrap();
}

fn signatures_are_compared(f: &Fixture) {
    let source = "
        struct Pair { a: u32, b: f32 }
        fn scale(x: f32, p: usm_ptr) -> f32 { return x * f32(p.x); }
        fn swap(pair: Pair) -> Pair { return Pair(u32(pair.b), f32(pair.a)); }";
    let server = start(builder(&f.device, source).handler("scale").handler("swap"));
    server.function::<(f32, Ptr<u8>), f32>("scale").unwrap();
    let told = |error: ServerError, parts: &[&str]| {
        let text = error.to_string();
        assert!(matches!(error, ServerError::Signature { .. }), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    let wgsl = "fn scale(x: f32, p: usm_ptr) -> f32";
    told(
        server.function::<(u32, Ptr<u8>), f32>("scale").unwrap_err(),
        &[wgsl, "(u32, Ptr<u8>) -> f32", "`x`"],
    );
    told(
        server.function::<(f32, u32), f32>("scale").unwrap_err(),
        &[wgsl, "`p`", "8", "4"],
    );
    told(
        server
            .function::<(f32, [f32; 2]), f32>("scale")
            .unwrap_err(),
        &[wgsl, "`p`"],
    );
    told(
        server.function::<(f32,), f32>("scale").unwrap_err(),
        &[wgsl, "2 arguments", "1"],
    );
    told(
        server.function::<(f32, Ptr<u8>), ()>("scale").unwrap_err(),
        &[wgsl, "the result"],
    );
    told(
        server
            .function::<([u32; 3],), [u32; 2]>("swap")
            .unwrap_err(),
        &["Pair", "12"],
    );
    let error = server.function::<(), ()>("turn").unwrap_err();
    assert!(
        matches!(&error, ServerError::NoHandler { available, .. } if available.len() == 2),
        "{error}"
    );
}

fn programs_without_the_handler_are_refused(f: &Fixture) {
    let refused = |source: &str, name: &str| {
        let error = builder(&f.device, source)
            .handler(name)
            .start()
            .unwrap_err();
        assert!(
            matches!(&error, ServerError::Handler { handler, .. } if handler == name),
            "{error}"
        );
        error.to_string()
    };
    assert!(refused(MIX, "other").contains("no such function"));
    assert!(refused("@compute @workgroup_size(1) fn main() {}", "main").contains("ordinary"));
    assert!(refused("fn f(b: bool) {}", "f").contains("bool"));
    assert!(refused("fn f(p: ptr<function, u32>) {}", "f").len() > 20);
    let error = builder(&f.device, MIX)
        .handler("mix")
        .ports(0)
        .start()
        .unwrap_err();
    assert!(
        matches!(error, ServerError::Ports { ports: 0, .. }),
        "{error}"
    );
    let blind = f.open(|options| options.live_memory = false);
    let error = builder(&blind, MIX).handler("mix").start().unwrap_err();
    assert!(
        matches!(error, ServerError::NeedsLiveMemory { .. }),
        "{error}"
    );
}

fn an_idle_server_leaves_the_device(f: &Fixture) {
    let (server, function) = mixer(f);
    assert_eq!(server.leases(), 0);
    for round in 0..5 {
        assert_eq!(
            function.call_timeout(&(1, round), MINUTE).unwrap(),
            mix(1, round)
        );
        until("the server stays", || !server.is_resident());
        let leases = server.leases();
        f.device.finish().unwrap();
        assert_eq!(server.leases(), leases);
    }
}

fn two_servers_share_a_device(f: &Fixture) {
    let (_one, first) = mixer(f);
    let (_other, second) = mixer(f);
    std::thread::scope(|scope| {
        for function in [first, second] {
            scope.spawn(move || {
                for i in 0..2000 {
                    assert_eq!(function.call_timeout(&(i, 1), MINUTE).unwrap(), mix(i, 1));
                }
            });
        }
    });
}

fn lanes_serve_calls_beside_each_other(f: &Fixture) {
    let lanes = |lanes| {
        builder(&f.device, MIX)
            .handler("mix")
            .ports(13)
            .lanes(lanes)
    };
    if f.device.capabilities().needs_loop_guard() {
        let error = lanes(2).start().unwrap_err();
        assert!(
            matches!(error, ServerError::Lanes { lanes: 2, limit: 1 }),
            "{error}"
        );
        return;
    }
    for count in [2, 4] {
        let server = start(lanes(count));
        let function: Mixer = server.function("mix").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let function = &function;
                scope.spawn(move || {
                    for i in 0..200 {
                        let result = function.call_timeout(&(i, thread), MINUTE).unwrap();
                        assert_eq!(result, mix(i, thread), "{count} lanes");
                    }
                });
            }
        });
    }
    assert!(matches!(lanes(65).start(), Err(ServerError::Lanes { .. })));
}

fn the_heap_grows_under_a_server(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        fn last(p: usm_ptr, count: u32) -> u32 { return usm_Words(p)[count - 1u]; }";
    let server = start(builder(&f.device, source).handler("last"));
    let last = server.function::<(Ptr<u32>, u32), u32>("last").unwrap();
    let heap = f.context.heap().unwrap();
    let first = heap.alloc_slice(&[5u32; 100]).unwrap();
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            for _ in 0..300 {
                assert_eq!(last.call_timeout(&(first, 100), MINUTE).unwrap(), 5);
            }
        });
        let mut grown = Vec::new();
        for size in (1..=12).map(|round| round << 18) {
            let values: Vec<u32> = (0..size).collect();
            let data = heap.alloc_slice(&values).unwrap();
            assert_eq!(last.call_timeout(&(data, size), MINUTE).unwrap(), size - 1);
            grown.push(data);
        }
        calling.join().unwrap();
        for data in grown {
            heap.free(data).unwrap();
        }
    });
    drop(server);
    heap.free(first).unwrap();
}

/// Services whose function `gate` says that it was reached, and then waits until it is let through.
fn gate() -> (HostServices, mpsc::Receiver<u32>, mpsc::Sender<()>) {
    let (reached, arrivals) = mpsc::channel();
    let (opened, open) = mpsc::channel();
    let (reached, open) = (Mutex::new(reached), Mutex::new(open));
    let gate = move |x: u32| {
        let _ = reached.lock().unwrap().send(x);
        let _ = open.lock().unwrap().recv_timeout(MINUTE);
        x + 1
    };
    let services = HostServices::builder().call("fn gate(x: u32) -> u32", gate);
    (services.start().unwrap(), arrivals, opened)
}

const GATED: &str = "fn gated(x: u32) -> u32 { return gate_try(x).status + x; }";

fn a_stuck_lease_is_told_and_the_server_starts_again(f: &Fixture) {
    let (services, arrivals, open) = gate();
    let program = Program::with_services("server.wgsl", GATED, &services).unwrap();
    let device = f.open(|_| {});
    let policy = LeasePolicy::of(device.capabilities());
    let policy = policy
        .stuck(Duration::from_millis(5))
        .time(Duration::from_millis(1));
    let server = PersistentKernel::builder(&device, &program).services(&services);
    let server = start(server.handler("gated").leases(policy));
    let gated = server.function::<(u32,), u32>("gated").unwrap();
    let error = gated.call_timeout(&(5,), MINUTE).unwrap_err();
    let CallError::Server { failure, .. } = &error else {
        panic!("{error}");
    };
    assert!(
        matches!(**failure, ServerFailure::LeaseStuck { .. }),
        "{failure}"
    );
    assert_eq!(arrivals.recv_timeout(MINUTE).unwrap(), 5);
    let again = gated.call_timeout(&(6,), MINUTE).unwrap_err();
    assert!(matches!(again, CallError::Server { .. }), "{again}");
    assert!(server.failure().is_some());
    // A busy machine may take a lease for stuck again.
    until("the server does not start again", || {
        let _ = open.send(());
        match server.restart() {
            Ok(()) => {}
            Err(ServerError::StillStuck { .. }) => return false,
            Err(error) => panic!("{error}"),
        }
        match gated.call_timeout(&(7,), MINUTE) {
            Ok(result) => {
                assert_eq!(result, 8);
                true
            }
            Err(CallError::Server { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    });
}

fn stopping_serves_what_was_posted(f: &Fixture) {
    let (services, arrivals, open) = gate();
    let program = Program::with_services("server.wgsl", GATED, &services).unwrap();
    let server = PersistentKernel::builder(&f.device, &program).services(&services);
    let server = start(server.handler("gated"));
    let gated = server.function::<(u32,), u32>("gated").unwrap();
    // One call is in its handler, one is posted and not taken, one is answered and not collected.
    open.send(()).unwrap();
    let answered = gated.begin(&(1,));
    assert_eq!(arrivals.recv_timeout(MINUTE).unwrap(), 1);
    let taken = gated.begin(&(2,));
    assert_eq!(arrivals.recv_timeout(MINUTE).unwrap(), 2);
    let posted = gated.begin(&(3,));
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop());
        until("the server does not stop", || {
            matches!(
                gated.begin(&(4,)).wait_timeout(Duration::ZERO),
                Err(CallError::Stopped { .. })
            )
        });
        // Whatever was let in before it stopped.
        for _ in 0..64 {
            let _ = open.send(());
        }
        stopping.join().unwrap();
    });
    assert_eq!(answered.wait_timeout(MINUTE).unwrap(), 2);
    assert_eq!(taken.wait_timeout(MINUTE).unwrap(), 3);
    assert_eq!(posted.wait_timeout(MINUTE).unwrap(), 4);
}

fn stopping_while_threads_call_hangs_nobody(f: &Fixture) {
    for round in 0..20u32 {
        let (server, function) = mixer(f);
        let begun = Arc::new(Barrier::new(9));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (function, begun) = (function.clone(), Arc::clone(&begun));
                scope.spawn(move || {
                    begun.wait();
                    for i in 0.. {
                        let result = match thread % 2 {
                            0 => function.call_timeout(&(i, thread), MINUTE),
                            _ => block_on(function.begin(&(i, thread))),
                        };
                        match result {
                            Ok(value) => assert_eq!(value, mix(i, thread)),
                            Err(CallError::Stopped { .. }) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            begun.wait();
            let _ = function.call_timeout(&(round, 0), MINUTE);
            match round % 3 {
                0 => drop(server),
                1 => server.stop(),
                _ => {
                    drop(function.begin(&(1, 1)));
                    drop(server);
                }
            }
        });
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

/// The same cases on a device that is treated as one with memory of its own.
pub fn again() -> Vec<(String, impl Fn(&Fixture) + Clone + Send + 'static)> {
    let cases = CASES.iter().map(|case| {
        let run = move |f: &Fixture| {
            (case.run)(&Fixture {
                context: f.context.clone(),
                index: f.index,
                device: f.open(|options| options.unified_memory = Some(false)),
            });
        };
        let name = case.name.trim_start_matches("gpu::");
        (
            format!(
                "persistent_split::{}",
                name.trim_start_matches("persistent::")
            ),
            run,
        )
    });
    cases.collect()
}
