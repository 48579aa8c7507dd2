//! Why leases end, how many calls others wait for, and what a server does that nobody calls: told by counts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, Mixer, builder, endless, mix, mixer_of, start, until};
use crate::server_beside::Work;
use tombolo::{
    Constants, Device, PersistentKernel, Program,
    device::LoopGuardPolicy,
    server::{CallError, LeasePolicy, ServerStatistics},
};

cases![
    leases_end_by_their_turns_alone,
    leases_end_by_their_time_alone,
    leases_end_for_others_alone,
    long_calls_share_what_a_lease_may_take,
    every_end_has_one_cause,
    a_failure_ends_the_lease_of_all_lanes,
    others_wait_for_few_calls,
    a_server_that_nobody_calls_does_nothing,
    a_server_that_never_idles_is_renewed,
    a_server_that_idles_at_once_is_launched_for_each_call,
];

fn mixer(device: &Device, policy: LeasePolicy) -> (PersistentKernel, Mixer) {
    mixer_of(builder(device, MIX).leases(policy))
}

/// Leases that have ended.
fn ended(found: &ServerStatistics) -> u64 {
    let well = found.turns + found.time + found.others + found.idle + found.stop + found.fault;
    well + found.killed + found.stuck + found.failed
}

/// Whether a driver ends loops by itself, and leases with them.
fn is_rationed(device: &Device) -> bool {
    device.capabilities().loop_budget().is_some()
}

/// Calls, with and without others, until `enough`.
fn calls_until(function: &Mixer, what: &str, mut enough: impl FnMut() -> bool) -> u32 {
    let mut calls = 0;
    until(what, || {
        let result = function.call_timeout(&(calls, 7), MINUTE).unwrap();
        assert_eq!(result, mix(calls, 7), "call {calls}");
        calls += 1;
        enough()
    });
    calls
}

fn leases_end_by_their_turns_alone(f: &Fixture) {
    // Where the driver rations nothing it is asked of the device.
    let device = f.open(|options| options.loop_guard = LoopGuardPolicy::Budget(65_535));
    let (server, function) = mixer(&device, endless(&device));
    calls_until(&function, "no lease ends by its turns", || {
        server.statistics().turns >= 20
    });
    // The next ones follow without calls.
    until("leases are not renewed", || server.statistics().turns >= 40);
    let found = server.statistics();
    assert_eq!(ended(&found), found.turns, "{found:?}");
    assert!(u64::from(found.leases) <= found.turns + 1, "{found:?}");
}

fn leases_end_by_their_time_alone(f: &Fixture) {
    let device = f.open(|_| {});
    let policy = endless(&device).time(Duration::from_millis(1));
    let (server, function) = mixer(&device, policy);
    calls_until(&function, "no lease ends by its time", || {
        server.statistics().time >= 20
    });
    let found = server.statistics();
    assert_eq!(ended(&found), found.time + found.turns, "{found:?}");
    assert!(found.turns == 0 || is_rationed(&device), "{found:?}");
}

fn leases_end_for_others_alone(f: &Fixture) {
    const LAUNCHES: u32 = 50;
    let device = f.open(|_| {});
    let (server, function) = mixer(&device, endless(&device));
    let mut work = Work::new(&device);
    for i in 0..LAUNCHES {
        assert_eq!(function.call_timeout(&(i, 3), MINUTE).unwrap(), mix(i, 3));
        work.launched();
    }
    // Each launch finds the lease that has served the call before it.
    until("leases do not end for others", || {
        let found = server.statistics();
        found.others + found.turns >= u64::from(LAUNCHES)
    });
    let found = server.statistics();
    assert_eq!(ended(&found), found.others + found.turns, "{found:?}");
    assert!(found.turns == 0 || is_rationed(&device), "{found:?}");
    assert!(found.leases >= LAUNCHES, "{found:?}");
    work.check();
}

/// Together they take many times what one lease may, and each takes more than half of what is left after another.
fn long_calls_share_what_a_lease_may_take(f: &Fixture) {
    let source = "
        fn triangle(n: u32) -> u32 { var sum = 0u; for (var i = 0u; i <= n; i++) { sum += i; } return sum; }";
    let device = f.open(|_| {});
    let policy = endless(&device);
    let server = start(builder(&device, source).handler("triangle").leases(policy));
    let triangle = server.function::<(u32,), u32>("triangle").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let triangle = &triangle;
            scope.spawn(move || {
                for i in 0..25 {
                    let n = 20_000 + 100 * thread + i;
                    let result = triangle.call_timeout(&(n,), MINUTE).unwrap();
                    assert_eq!(result, n * (n + 1) / 2);
                }
            });
        }
    });
    assert!(server.failure().is_none());
    assert!(server.statistics().turns > 0 || !is_rationed(&device));
    // Those that are posted when it is stopped take more than one lease, too.
    let posted: Vec<_> = (0..8u32).map(|i| triangle.begin(&(20_000 + i,))).collect();
    server.stop();
    for (call, n) in posted.into_iter().zip(20_000u32..) {
        assert_eq!(call.wait_timeout(MINUTE).unwrap(), n * (n + 1) / 2);
    }
}

fn every_end_has_one_cause(f: &Fixture) {
    let device = f.open(|_| {});
    let source =
        "fn root(x: f32) -> f32 { assert(x >= 0.0, \"no root of {}\", x); return sqrt(x); }";
    let policy = endless(&device);
    let server = start(builder(&device, source).handler("root").leases(policy));
    let root = server.function::<(f32,), f32>("root").unwrap();
    for fails in 1..=10u64 {
        let error = root.call_timeout(&(-1.0,), MINUTE).unwrap_err();
        assert!(matches!(error, CallError::Failed { .. }), "{error}");
        until("a failure ends its lease", || {
            server.statistics().fault == fails
        });
    }
    assert!((root.call_timeout(&(4.0,), MINUTE).unwrap() - 2.0).abs() < 1e-3);
    server.stop();
    let found = server.statistics();
    assert_eq!(found.fault, 10, "{found:?}");
    assert_eq!(
        found.stop + found.turns,
        u64::from(found.leases) - 10,
        "{found:?}"
    );
    assert!(found.stop == 1 || is_rationed(&device), "{found:?}");
    assert_eq!(ended(&found), u64::from(found.leases), "{found:?}");
}

/// The lanes beside the one that has failed know nothing of it, and nothing else ends their lease.
fn a_failure_ends_the_lease_of_all_lanes(f: &Fixture) {
    let device = f.open(|_| {});
    let source =
        "fn half(x: u32) -> u32 { assert(x % 2u == 0u, \"half of {}\", x); return x / 2u; }";
    let server = builder(&device, source).handler("half");
    let server = match device.capabilities().needs_loop_guard() {
        // More are refused there.
        true => server.lanes(1),
        false => server.lanes(4),
    };
    let server = start(server.leases(endless(&device)).ports(16));
    let half = server.function::<(u32,), u32>("half").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let half = &half;
            scope.spawn(move || {
                for x in (thread..200).step_by(8) {
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
    assert!((1..=100).contains(&found.fault), "{found:?}");
}

/// While threads call without a break, a launch waits for the call that is being served, and for one look at each port.
fn others_wait_for_few_calls(f: &Fixture) {
    const PORTS: usize = 8;
    const THREADS: u32 = 16;
    const LAUNCHES: u32 = 200;
    let device = f.open(|_| {});
    let source = format!(
        "{MIX} var<storage, read_write> calls_served: atomic<u32>;
        fn counted(x: u32, y: u32) -> u32 {{ atomicAdd(&calls_served, 1u); return mix(x, y); }}"
    );
    let server = builder(&device, &source).handler("counted").ports(PORTS);
    let server = start(server.leases(endless(&device)));
    let counted: Mixer = server.function("counted").unwrap();
    let count = "var<storage, read_write> calls_served: atomic<u32>;
        @group(0) @binding(0) var<storage, read_write> counts: array<u32>;
        @group(0) @binding(1) var<uniform> at: u32;
        @compute @workgroup_size(1) fn main() { counts[at] = atomicLoad(&calls_served); }";
    let program = Program::new("count.wgsl", count).unwrap();
    let count = device.kernel(&program, "main", &Constants::new()).unwrap();
    let counts = device.buffer(&[u32::MAX; LAUNCHES as usize]).unwrap();
    let launch = count.launch().buffer("counts", &counts).value("at", &0u32);
    let mut launch = launch.workgroups(1);
    let mut work = Work::new(&device);
    let (done, answered, begun) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let mut known = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (counted, done, answered, begun) = (&counted, &done, &answered, &begun);
            scope.spawn(move || {
                for i in 0.. {
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                    begun.fetch_add(1, Ordering::AcqRel);
                    let result = counted.call_timeout(&(thread, i), MINUTE).unwrap();
                    assert_eq!(result, mix(thread, i));
                    answered.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        for at in 0..LAUNCHES {
            let before = answered.load(Ordering::Acquire);
            launch.set_value("at", &at).unwrap();
            launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
            known.push((before, begun.load(Ordering::Acquire)));
        }
        until(
            "no call was on its way when a lease was asked to leave",
            || {
                work.launched();
                server.statistics().most_calls_after_asked > 0
            },
        );
        done.store(true, Ordering::Release);
    });
    let found = server.statistics();
    assert!(
        (1..=2 * PORTS as u32).contains(&found.most_calls_after_asked),
        "{found:?}"
    );
    // Each launch ran where it stood among the calls.
    let counts = counts.read().unwrap();
    for (at, (count, (before, after))) in counts.iter().zip(known).enumerate() {
        assert!(
            (before..=after).contains(count),
            "launch {at}: {count} of {before}..={after}"
        );
    }
    assert!(counts.is_sorted(), "{counts:?}");
    work.check();
}

/// How often threads that launch leases were given a processor, as the system has counted, and whether all of them sleep.
#[cfg(target_os = "linux")]
fn relays() -> (u64, bool) {
    let (mut switches, mut asleep) = (0, true);
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        // Threads of other tests may end meanwhile.
        let Ok(status) = std::fs::read_to_string(path.join("status")) else {
            continue;
        };
        if !status.starts_with("Name:\ttombolo relay\n") {
            continue;
        }
        for line in status.lines() {
            let (name, value) = line.split_once(":\t").unwrap_or_default();
            match name {
                "State" => asleep &= value.starts_with('S'),
                _ if name.ends_with("ctxt_switches") => {
                    switches += value.trim().parse::<u64>().unwrap();
                }
                _ => {}
            }
        }
    }
    (switches, asleep)
}

fn a_server_that_nobody_calls_does_nothing(f: &Fixture) {
    let device = f.open(|_| {});
    let (server, function) = mixer(&device, LeasePolicy::of(device.capabilities()));
    let mut work = Work::new(&device);
    for round in 0..3 {
        assert_eq!(
            function.call_timeout(&(round, 1), MINUTE).unwrap(),
            mix(round, 1)
        );
        until("the server stays", || {
            let found = server.statistics();
            !server.is_resident() && ended(&found) == u64::from(found.leases)
        });
        #[cfg(target_os = "linux")]
        let before = {
            until("the relay does not sleep", || relays().1);
            relays().0
        };
        let found = server.statistics();
        for _ in 0..300 {
            work.launched();
        }
        work.check();
        assert_eq!(server.statistics(), found, "round {round}");
        // The last time that it went to sleep may have been counted late.
        #[cfg(target_os = "linux")]
        assert!((before..=before + 1).contains(&relays().0), "round {round}");
    }
}

fn a_server_that_never_idles_is_renewed(f: &Fixture) {
    let device = f.open(|_| {});
    let policy = endless(&device).time(Duration::from_millis(1));
    let (server, function) = mixer(&device, policy);
    assert_eq!(function.call_timeout(&(1, 2), MINUTE).unwrap(), mix(1, 2));
    let mut work = Work::new(&device);
    let found = server.statistics();
    until("leases are not renewed", || {
        server.leases() >= found.leases + 20
    });
    // It makes room all the same, and comes back.
    for _ in 0..20 {
        work.launched();
        let leases = server.leases();
        until("the server does not come back", || server.leases() > leases);
    }
    work.check();
    let now = server.statistics();
    assert_eq!((now.wakes, now.idle), (found.wakes, 0), "nobody has called");
    assert_eq!(function.call_timeout(&(3, 4), MINUTE).unwrap(), mix(3, 4));
}

fn a_server_that_idles_at_once_is_launched_for_each_call(f: &Fixture) {
    let device = f.open(|_| {});
    let policy = endless(&device).idle(Duration::ZERO);
    let (server, function) = mixer(&device, policy);
    for call in 1..=50u32 {
        let result = function.call_timeout(&(call, 1), MINUTE).unwrap();
        assert_eq!(result, mix(call, 1));
        until("the server stays", || {
            let found = server.statistics();
            !server.is_resident() && ended(&found) == u64::from(found.leases)
        });
        let found = server.statistics();
        assert_eq!(found.leases, call, "{found:?}");
        assert_eq!(found.idle + found.turns, u64::from(call), "{found:?}");
        assert!(found.turns == 0 || is_rationed(&device), "{found:?}");
    }
}
