//! Batches of calls in launches of their own, beside a server that stays on the device.

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, builder, mix, start};
use tombolo::{
    DeviceGlobal, PersistentKernel,
    device::ExecutionError,
    server::{BatchRoute, CallError, DeviceFunction},
};

cases![
    a_batch_takes_launches_and_no_lease,
    batches_and_single_calls_go_beside_each_other,
    calls_of_a_launch_fail_alone,
    calls_of_a_launch_see_and_leave_memory,
    long_arguments_take_more_launches,
    some_calls_keep_to_the_ports,
    the_route_is_chosen_by_what_has_come_before,
];

type Mix = DeviceFunction<(u32, u32), u32>;

/// A server of `mix` on a device where kernels stay, with the route.
fn mixer(f: &Fixture, route: BatchRoute) -> (PersistentKernel, Mix) {
    let server = start(builder(&f.device, MIX).handler("mix").batch_route(route));
    let function = server.function("mix").unwrap();
    (server, function)
}

fn calls(count: u32) -> (Vec<(u32, u32)>, Vec<u32>) {
    let calls: Vec<(u32, u32)> = (0..count).map(|i| (i, i.rotate_left(11) ^ 77)).collect();
    let expected = calls.iter().map(|&(x, y)| mix(x, y)).collect();
    (calls, expected)
}

fn a_batch_takes_launches_and_no_lease(f: &Fixture) {
    let (server, function) = mixer(f, BatchRoute::Launches);
    // One call, a launch that is full, and three of which the last is not.
    for count in [1, 63, 8_192, 20_001] {
        let (calls, expected) = calls(count);
        assert!(function.call_all(&calls).unwrap() == expected, "{count}");
        let results = function.call_many(&calls).into_iter().map(Result::unwrap);
        assert!(results.eq(expected.iter().copied()), "{count}");
    }
    assert!(function.call_all(&[]).unwrap().is_empty());
    assert_eq!(server.leases(), 0);
    assert_eq!(function.call_timeout(&(5, 6), MINUTE).unwrap(), mix(5, 6));
    assert_ne!(server.leases(), 0);
    // By ports, and in launches again while the lease is there.
    let (calls, expected) = calls(300);
    assert!(function.call_all(&calls).unwrap() == expected);
    drop(server);
    assert!(matches!(
        function.call_all(&calls),
        Err(CallError::Stopped { .. })
    ));
}

fn batches_and_single_calls_go_beside_each_other(f: &Fixture) {
    let (server, function) = mixer(f, BatchRoute::Launches);
    let (calls, expected) = calls(1_500);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..4 {
                    assert!(function.call_all(&calls).unwrap() == expected);
                }
            });
        }
        for thread in 0..2 {
            let function = &function;
            scope.spawn(move || {
                for i in 0..60 {
                    let answer = function.call_timeout(&(i, thread), MINUTE);
                    assert_eq!(answer.unwrap(), mix(i, thread));
                }
            });
        }
    });
    assert!(server.failure().is_none());
}

const FAILING: &str = "
fn half(x: u32) -> u32 { assert(x % 2u == 0u, \"half a number\"); return x / 2u; }
fn sum(n: u32) -> u32 {
    var sum = 0u;
    for (var i = 1u; i <= n; i++) { sum += i; }
    return sum;
}";

fn calls_of_a_launch_fail_alone(f: &Fixture) {
    let server = builder(&f.device, FAILING).handler("half").handler("sum");
    let server = start(server.turns(1000).batch_route(BatchRoute::Launches));
    let half = server.function::<(u32,), u32>("half").unwrap();
    let numbers: Vec<(u32,)> = (0..100).map(|x| (x,)).collect();
    for (result, x) in half.call_many(&numbers).into_iter().zip(0u32..) {
        match (x % 2, result) {
            (0, result) => assert_eq!(result.unwrap(), x / 2),
            (_, Err(CallError::Failed { error, handler })) => {
                assert_eq!(handler, "half");
                assert!(
                    matches!(*error, ExecutionError::Assertion { .. }),
                    "{error}"
                );
                assert!(error.to_string().contains("half a number"), "{error}");
            }
            (_, other) => panic!("{x}: {other:?}"),
        }
    }
    let error = half.call_all(&numbers).unwrap_err();
    assert!(matches!(error, CallError::Failed { .. }), "{error}");
    let sum = server.function::<(u32,), u32>("sum").unwrap();
    let long = |x| if x % 7 == 3 { 5000 } else { x };
    let numbers: Vec<(u32,)> = (0..300).map(|x| (long(x),)).collect();
    for (result, &(n,)) in sum.call_many(&numbers).into_iter().zip(&numbers) {
        match (n, result) {
            (5000, Err(CallError::TooManyTurns { limit, .. })) => assert_eq!(limit, 1000),
            (n, result) => assert_eq!(result.unwrap(), n * (n + 1) / 2),
        }
    }
    assert_eq!(server.leases(), 0);
    assert!(server.failure().is_none());
}

/// A launch is ordered as others are, and what a call has written is there when the batch returns.
fn calls_of_a_launch_see_and_leave_memory(f: &Fixture) {
    static CALLS: DeviceGlobal<u32> = DeviceGlobal::new("persistent_launches_calls");
    let source = "
        var<storage, read_write> persistent_launches_calls: atomic<u32>;
        @group(0) @binding(0) var<storage, read> factors: array<u32>;
        @group(0) @binding(1) var<storage, read_write> seen: array<u32>;
        fn scale(x: u32) -> u32 {
            atomicAdd(&persistent_launches_calls, 1u);
            seen[x] = x + 1u;
            return x * factors[x % 4u];
        }";
    let factors = f.device.buffer(&[1u32, 10, 100, 1000]).unwrap();
    let seen = f.device.zeroed::<u32>(4_000).unwrap();
    let server = builder(&f.device, source).handler("scale");
    let server = server.buffer("factors", &factors).buffer("seen", &seen);
    let server = start(server.batch_route(BatchRoute::Launches));
    let scale = server.function::<(u32,), u32>("scale").unwrap();
    let numbers: Vec<(u32,)> = (0..4_000).map(|x| (x,)).collect();
    let before = CALLS.on(&f.device).read().unwrap();
    for round in 1..4u32 {
        let now = [round, 2 * round, 3 * round, 5 * round];
        factors.write(0, &now).unwrap();
        seen.fill(0, ..).unwrap();
        let expected: Vec<u32> = (0..4_000).map(|x| x * now[x as usize % 4]).collect();
        assert!(scale.call_all(&numbers).unwrap() == expected);
        assert!(seen.read().unwrap().into_iter().eq(1..=4_000));
        assert_eq!(CALLS.on(&f.device).read().unwrap() - before, 4_000 * round);
    }
    assert_eq!(server.leases(), 0);
}

/// A launch has a million words of arguments at most, and fewer calls where these are long.
fn long_arguments_take_more_launches(f: &Fixture) {
    let source = "
        struct Row { words: array<u32, 512> }
        fn ends(row: Row) -> u32 { return 3u * row.words[0] + row.words[511]; }";
    let server = builder(&f.device, source).handler("ends");
    let server = start(server.batch_route(BatchRoute::Launches));
    let ends = server.function::<([u32; 512],), u32>("ends").unwrap();
    // A full launch of 2,048, and a part of another.
    let rows: Vec<([u32; 512],)> = (0..2_500)
        .map(|x| (std::array::from_fn(|at| x * 7 + at as u32),))
        .collect();
    let expected: Vec<u32> = (0..2_500).map(|x| 4 * 7 * x + 511).collect();
    assert!(ends.call_all(&rows).unwrap() == expected);
    assert_eq!(server.leases(), 0);
}

fn some_calls_keep_to_the_ports(f: &Fixture) {
    // Handlers for batches gather their calls from ports.
    let source = "fn next(lane: u32, calls: u32, x: u32) -> u32 { return x + 1u; }";
    let server = builder(&f.device, source).batch_handler("next", 8);
    let server = start(server.batch_route(BatchRoute::Launches));
    let next = server.function::<(u32,), u32>("next").unwrap();
    let numbers: Vec<(u32,)> = (0..100).map(|x| (x,)).collect();
    assert!(next.call_all(&numbers).unwrap().into_iter().eq(1..=100));
    assert_ne!(server.leases(), 0);
    drop(server);
    // Urgent calls go before others.
    let server = builder(&f.device, MIX).handler("mix").urgent_ports(8);
    let server = start(server.batch_route(BatchRoute::Launches));
    let function: Mix = server.function("mix").unwrap();
    let (calls, expected) = calls(200);
    let urgent = function.urgent().unwrap();
    assert!(urgent.call_all(&calls).unwrap() == expected);
    assert_ne!(server.leases(), 0);
    drop(server);
    let (server, function) = mixer(f, BatchRoute::Ports);
    assert!(function.call_all(&calls).unwrap() == expected);
    assert_ne!(server.leases(), 0);
}

fn the_route_is_chosen_by_what_has_come_before(f: &Fixture) {
    let (server, function) = mixer(f, BatchRoute::Auto);
    let (calls, expected) = calls(5_000);
    let is_card = !f.device.capabilities().software;
    // On hardware a hundred thousand calls go through ports first.
    let rounds = if is_card { 20 } else { 2 };
    for _ in 0..rounds {
        assert!(function.call_all(&calls).unwrap() == expected);
    }
    assert_ne!(server.leases(), 0);
    f.device.finish().unwrap();
    let before = server.leases();
    assert!(function.call_all(&calls).unwrap() == expected);
    assert_eq!(server.leases() == before, is_card);
    // Small batches are no launches.
    f.device.finish().unwrap();
    let before = server.leases();
    assert!(function.call_all(&calls[..100]).unwrap() == expected[..100]);
    assert_ne!(server.leases(), before);
}
