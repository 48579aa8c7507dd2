//! Servers of several work-groups: each has ports of its own, and the first one looks after those of groups that have not
//! begun. How many run beside each other is the device's affair; nothing here counts on more than one.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::kernel_callers::{CALL, KINDS, POISON, caller, run};
use crate::kernel_callers_reach::other;
use crate::persistent::{
    MINUTE, MIX, Mixer, builder, endless, is_sliced, mix, mixer_of, start, until,
};
use crate::server_beside::Work;
use tombolo::server::{CallError, ServerError};

cases![
    calls_of_many_threads_are_each_answered,
    calls_do_not_wait_for_work_groups_that_have_not_begun,
    leases_full_of_calls_keep_within_the_ration_of_turns,
    whole_work_groups_serve_calls_beside_each_other,
    a_failure_ends_the_lease_of_all_work_groups,
    long_calls_are_served_in_turns,
    leases_hand_over_from_group_to_group,
    words_across_a_bus_are_served_by_groups,
    slices_take_no_notice,
    kernels_and_threads_call_work_groups,
    impossible_numbers_are_refused,
];

/// Calls of several threads, each with an answer of its own.
fn call(function: &Mixer, threads: u32, calls: u32) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for i in 0..calls {
                    let (x, y) = (thread * calls + i, !i);
                    assert_eq!(
                        function.call_timeout(&(x, y), MINUTE).unwrap(),
                        mix(x, y),
                        "{thread}: {i}"
                    );
                }
            });
        }
    });
}

fn calls_of_many_threads_are_each_answered(f: &Fixture) {
    let device = f.open(|_| {});
    for (groups, ports) in [(2, 64), (3, 7), (8, 8)] {
        let (_server, function) = mixer_of(builder(&device, MIX).work_groups(groups).ports(ports));
        call(&function, 8, 250);
        let calls: Vec<_> = (0..2000u32).map(|i| (i, 3 * i)).collect();
        let expected = calls.iter().map(|&(x, y)| mix(x, y));
        assert!(
            expected.eq(function.call_all(&calls).unwrap()),
            "{groups} groups"
        );
    }
}

/// More than any software adapter runs at once, with leases that end by themselves nowhere but where turns are rationed.
fn calls_do_not_wait_for_work_groups_that_have_not_begun(f: &Fixture) {
    const GROUPS: usize = 64;
    let device = f.open(|_| {});
    let builder = builder(&device, MIX).work_groups(GROUPS).ports(2 * GROUPS);
    let (server, function) = mixer_of(builder.leases(endless(&device)));
    for round in 0..20u32 {
        // As many at a time as there are ports: each port has one.
        let begun: Vec<_> = (0..2 * GROUPS as u32)
            .map(|i| function.begin(&(i, round)))
            .collect();
        for (call, i) in begun.into_iter().zip(0..) {
            assert_eq!(call.wait_timeout(MINUTE).unwrap(), mix(i, round));
        }
    }
    let found = server.statistics();
    let is_rationed = device.capabilities().loop_budget().is_some();
    assert!(
        is_rationed || is_sliced(&device) || found.leases == 1,
        "{found:?}"
    );
    server.stop();
    assert!(server.failure().is_none());
}

/// Where turns are rationed, a lease that serves calls in all of its ports counts every turn that they take. The handler takes
/// time and no turns, so that all ports have calls again whenever the server looks.
fn leases_full_of_calls_keep_within_the_ration_of_turns(f: &Fixture) {
    const PORTS: usize = 32;
    const DIVISIONS: usize = 200;
    let device = f.open(|_| {});
    let divisions = "z = z / (z >> 9u | 1u) ^ y * 0x9e3779b9u;\n".repeat(DIVISIONS);
    let source = format!(
        "fn mix(x: u32, y: u32) -> u32 {{ var z = x ^ 0x85ebca6bu;\n{divisions} return z; }}"
    );
    let expected = |x: u32, y: u32| {
        let turn = |z: u32, _| (z / (z >> 9 | 1)) ^ y.wrapping_mul(0x9e37_79b9);
        (0..DIVISIONS).fold(x ^ 0x85eb_ca6b, turn)
    };
    let builder = builder(&device, &source).work_groups(2).ports(PORTS);
    let (server, function) = mixer_of(builder.leases(endless(&device)));
    std::thread::scope(|scope| {
        for thread in 0..PORTS as u32 {
            let function = &function;
            scope.spawn(move || {
                for i in 0..800 {
                    let got = function.call_timeout(&(thread, i), MINUTE).unwrap();
                    assert_eq!(got, expected(thread, i), "{thread}: {i}");
                }
            });
        }
    });
    server.stop();
    assert!(server.failure().is_none(), "{:?}", server.failure());
}

fn whole_work_groups_serve_calls_beside_each_other(f: &Fixture) {
    const LANES: u32 = 16;
    let device = f.open(|_| {});
    let source = "var<workgroup> parts: array<u32, 16>;
        fn sum(lane: u32, first: u32, count: u32) -> u32 {
            var own = 0u;
            for (var i = lane; i < count; i += 16u) { own += first + i; }
            parts[lane] = own;
            workgroupBarrier();
            var all = 0u;
            for (var i = 0u; i < 16u; i++) { all += parts[i]; }
            workgroupBarrier();
            return all;
        }
        fn alone(x: u32) -> u32 { return x + 1u; }";
    let server = builder(&device, source)
        .group_handler("sum")
        .handler("alone");
    let server = start(server.group_size(LANES).work_groups(3).ports(16));
    let sum = server.function::<(u32, u32), u32>("sum").unwrap();
    let alone = server.function::<(u32,), u32>("alone").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6u32 {
            let (sum, alone) = (&sum, &alone);
            scope.spawn(move || {
                for i in 0..100u32 {
                    let (first, count) = (thread * 1000 + i, i % 40);
                    let expected: u32 = (0..count).map(|k| first + k).sum();
                    assert_eq!(sum.call_timeout(&(first, count), MINUTE).unwrap(), expected);
                    assert_eq!(alone.call_timeout(&(i,), MINUTE).unwrap(), i + 1);
                }
            });
        }
    });
}

fn a_failure_ends_the_lease_of_all_work_groups(f: &Fixture) {
    let device = f.open(|_| {});
    let source =
        "fn half(x: u32) -> u32 { assert(x % 2u == 0u, \"half of {}\", x); return x / 2u; }
        fn halves(lane: u32, x: u32) -> u32 { return half(x); }";
    for together in [false, true] {
        let server = match together {
            false => builder(&device, source).handler("half"),
            true => builder(&device, source)
                .group_handler("halves")
                .group_size(8),
        };
        let name = if together { "halves" } else { "half" };
        let server = start(server.work_groups(4).ports(16).leases(endless(&device)));
        let half = server.function::<(u32,), u32>(name).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let half = &half;
                scope.spawn(move || {
                    for x in (thread..160).step_by(8) {
                        match half.call_timeout(&(x,), MINUTE) {
                            Ok(result) => assert!(x % 2 == 0 && result == x / 2, "{x}: {result}"),
                            Err(error) => {
                                assert!(matches!(error, CallError::Failed { .. }), "{x}: {error}");
                                assert_eq!(x % 2, 1, "{error}");
                            }
                        }
                    }
                });
            }
        });
        let found = server.statistics();
        assert!(
            (1..=80).contains(&found.fault) || is_sliced(&device),
            "{found:?}"
        );
        assert!(server.failure().is_none());
    }
}

/// Each takes more than half of what is left of a ration, where turns are rationed, and posts at all ports.
fn long_calls_are_served_in_turns(f: &Fixture) {
    let source = "
        fn triangle(n: u32) -> u32 { var sum = 0u; for (var i = 0u; i <= n; i++) { sum += i; } return sum; }";
    let device = f.open(|_| {});
    let server = builder(&device, source)
        .handler("triangle")
        .leases(endless(&device));
    let server = start(server.work_groups(3).ports(12));
    let triangle = server.function::<(u32,), u32>("triangle").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let triangle = &triangle;
            scope.spawn(move || {
                for i in 0..15 {
                    let n = 20_000 + 100 * thread + i;
                    let result = triangle.call_timeout(&(n,), MINUTE).unwrap();
                    assert_eq!(result, n * (n + 1) / 2);
                }
            });
        }
    });
    assert!(server.failure().is_none());
    // Those that are posted when it is stopped take more than one lease, too.
    let posted: Vec<_> = (0..12u32).map(|i| triangle.begin(&(20_000 + i,))).collect();
    server.stop();
    for (call, n) in posted.into_iter().zip(20_000u32..) {
        assert_eq!(call.wait_timeout(MINUTE).unwrap(), n * (n + 1) / 2);
    }
}

fn leases_hand_over_from_group_to_group(f: &Fixture) {
    let device = f.open(|_| {});
    let policy = endless(&device).time(Duration::from_millis(1));
    let (server, function) = mixer_of(builder(&device, MIX).work_groups(3).ports(9).leases(policy));
    let mut work = Work::new(&device);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (server, function) = (&server, &function);
            scope.spawn(move || {
                let mut calls = 0;
                until("leases do not follow each other", || {
                    calls += 1;
                    let result = function.call_timeout(&(thread, calls), MINUTE).unwrap();
                    assert_eq!(result, mix(thread, calls));
                    server.leases() >= 60
                });
            });
        }
        for _ in 0..30 {
            work.launched();
        }
    });
    work.check();
    let found = server.statistics();
    assert_eq!(found.killed + found.stuck + found.failed, 0, "{found:?}");
}

fn words_across_a_bus_are_served_by_groups(f: &Fixture) {
    let device = f.open(|options| options.unified_memory = Some(false));
    let (_server, function) = mixer_of(builder(&device, MIX).work_groups(2).ports(8));
    call(&function, 4, 150);
}

fn slices_take_no_notice(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let (server, function) = mixer_of(builder(&device, MIX).work_groups(4).ports(10));
    assert_eq!(server.tier(), tombolo::device::Tier::Sliced);
    call(&function, 4, 20);
}

fn kernels_and_threads_call_work_groups(f: &Fixture) {
    const COUNT: u32 = 64;
    for kind in KINDS {
        let server = kind(&f.device).work_groups(3).ports(9).callers(1);
        let server = start(server);
        let function: Mixer = server.function("mix").unwrap();
        let other = other(f);
        let kernel = caller(&other, &server, CALL);
        let results = other.buffer(&vec![POISON; 3 * COUNT as usize]).unwrap();
        let launch = kernel.launch().buffer("results", &results);
        let mut launch = launch
            .value("seed", &0u32)
            .server(&server)
            .invocations(COUNT);
        let function = &function;
        std::thread::scope(|scope| {
            scope.spawn(move || call(function, 2, 100));
            for round in 0..5u32 {
                let seed = round * 1000;
                launch.set_value("seed", &seed).unwrap();
                let (_, sums) = run(&mut launch, &results, 2);
                let expected = (0..COUNT).map(|i| mix(i + seed, i).wrapping_add(mix(i, i + seed)));
                assert!(expected.eq(sums), "round {round}");
            }
        });
        assert!(server.failure().is_none());
    }
}

fn impossible_numbers_are_refused(f: &Fixture) {
    for groups in [0, 65, usize::MAX] {
        let error = builder(&f.device, MIX)
            .handler("mix")
            .work_groups(groups)
            .start();
        let Err(ServerError::WorkGroups {
            groups: wanted,
            limit: 64,
        }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(wanted, groups);
    }
}
