//! Servers on devices in the course of time: leases that end and begin, other work in between, ports that come back, and
//! stops at every phase of a call.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{
    ADD, MINUTE, MIX, Mixer, builder, is_sliced, kernel, mix, mixer, mixer_of, start,
    start_with_pointers, until, untimed,
};
use pollster::block_on;
use tombolo::{
    HostServices, PersistentKernel, Program, Ptr,
    device::ExecutionError,
    heap::HeapError,
    server::{CallError, DeviceFunction, LeasePolicy, ServerError, ServerFailure},
};

cases![
    threads_call_while_kernels_are_launched,
    a_stopped_server_says_so_and_starts_again,
    sixty_four_threads_over_a_hundred_hand_overs,
    calls_that_are_dropped_give_their_port_back,
    a_call_that_is_not_served_in_time_says_so,
    an_idle_server_leaves_the_device,
    two_servers_share_a_device,
    lanes_serve_calls_beside_each_other,
    the_heap_grows_under_a_server,
    a_stuck_lease_is_told_and_the_server_starts_again,
    a_lease_that_follows_a_bad_pointer_is_told_and_the_server_starts_again,
    stopping_serves_what_was_posted,
    drops_at_every_phase_hang_nobody,
    stopping_while_threads_call_hangs_nobody,
];

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
            // Answered behind one launch and in front of the next: by a lease between the two.
            let result = function.call_timeout(&(launch, launch), MINUTE).unwrap();
            assert_eq!(result, mix(launch, launch), "launch {launch}");
            add.submit().unwrap().wait_timeout(MINUTE).unwrap();
            if launch % 100 == 0 {
                let expected: Vec<u32> = (1..=256).map(|i| i * launch).collect();
                assert_eq!(sums.read().unwrap(), expected, "launch {launch}");
            }
        }
    });
    assert!(server.leases() >= LAUNCHES, "{:?}", server.statistics());
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
    let server = builder(&f.device, source).handler("first").ports(1);
    let server = start_with_pointers(server);
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

fn an_idle_server_leaves_the_device(f: &Fixture) {
    let (server, function) = mixer_of(builder(&f.device, MIX).leases(untimed(&f.device)));
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
    let server = builder(&f.device, source).handler("last");
    let server = start_with_pointers(server);
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

/// A program whose function `gated` is in its handler as long as somebody is at the gate: a slice has not ended before
/// what it has posted is served.
fn gated(f: &Fixture, services: &HostServices) -> Program {
    let source = match is_sliced(&f.device) {
        false => "fn gated(x: u32) -> u32 { return gate_try(x).status + x; }",
        true => "fn gated(x: u32) -> u32 { gate_post(x); return x + 1u; }",
    };
    Program::builder()
        .source("server.wgsl", source)
        .services(services)
        .build()
        .unwrap()
}

fn a_stuck_lease_is_told_and_the_server_starts_again(f: &Fixture) {
    let (services, arrivals, open) = gate();
    let program = gated(f, &services);
    let in_slices = is_sliced(&f.device);
    let device = f.open(|options| options.live_memory = !in_slices);
    let policy = LeasePolicy::of(device.capabilities());
    let policy = policy
        .stuck(Duration::from_millis(5))
        .time(Duration::from_millis(1));
    let server = PersistentKernel::builder(&device, &program).services(&services);
    let server = start(server.handler("gated").leases(policy));
    let gated = server.function::<(u32,), u32>("gated").unwrap();
    if in_slices {
        // Drivers compile a slice when it first runs. The time for that is not the slice's.
        open.send(()).unwrap();
        assert_eq!(gated.call_timeout(&(4,), MINUTE).unwrap(), 5);
        assert_eq!(arrivals.recv_timeout(MINUTE), Ok(4));
    }
    let error = gated.call_timeout(&(5,), MINUTE).unwrap_err();
    let CallError::Server { failure, .. } = &error else {
        panic!("{error}");
    };
    assert!(
        matches!(**failure, ServerFailure::LeaseStuck { .. }),
        "{failure}"
    );
    let next = gated.call_timeout(&(6,), MINUTE).unwrap_err();
    assert!(matches!(next, CallError::Server { .. }), "{next}");
    assert!(server.failure().is_some());
    // Where nothing else ends the handler, its lease is there as long as the gate is closed.
    if device.capabilities().loop_budget().is_none() {
        let refused = server.restart().unwrap_err();
        assert!(
            matches!(refused, ServerError::StillStuck { .. }),
            "{refused}"
        );
    }
    std::thread::scope(|scope| {
        // What a slice posts is found when somebody asks for its end.
        let restarting = scope.spawn(|| server.restart_timeout(MINUTE).unwrap());
        assert_eq!(arrivals.recv_timeout(MINUTE), Ok(5));
        for _ in 0..2 {
            open.send(()).unwrap();
        }
        restarting.join().unwrap();
    });
    starts_again(&server, &gated);
}

/// Restarts a server whose lease was stuck, and calls it, with the gate open.
pub fn starts_again(server: &PersistentKernel, gated: &DeviceFunction<(u32,), u32>) {
    server.restart_timeout(MINUTE).unwrap();
    match gated.call_timeout(&(7,), MINUTE) {
        Ok(result) => assert_eq!(result, 8),
        // A lease of a server that is so impatient may be taken for stuck on a busy machine.
        Err(CallError::Server { failure, .. }) => {
            let stuck = matches!(*failure, ServerFailure::LeaseStuck { .. });
            assert!(stuck, "{failure}");
        }
        Err(error) => panic!("{error}"),
    }
}

fn a_lease_that_follows_a_bad_pointer_is_told_and_the_server_starts_again(f: &Fixture) {
    let in_slices = is_sliced(&f.device);
    let device = f.open(|options| {
        options.live_memory = !in_slices;
        options.checked_pointers = true;
    });
    let heap = f.context.heap().unwrap();
    let good = heap.alloc(41u32).unwrap();
    let source = "fn follow(p: usm_ptr) -> u32 { let word = usm_u32(p); return *word + 1u; }";
    let server = start_with_pointers(builder(&device, source).handler("follow"));
    let follow = server.function::<(Ptr<u32>,), u32>("follow").unwrap();
    for _ in 0..2 {
        assert_eq!(follow.call_timeout(&(good,), MINUTE).unwrap(), 42);
        // The finding is read when the lease has ended, and the answer, made of zeros, may be there before.
        match follow.call_timeout(&(Ptr::null(),), MINUTE) {
            Ok(answer) => assert_eq!(answer, 1),
            Err(CallError::Server { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        until("the lease does not fail", || server.failure().is_some());
        let failure = server.failure().unwrap();
        let ServerFailure::LeaseFailed { error, .. } = &*failure else {
            panic!("{failure}");
        };
        assert!(matches!(**error, ExecutionError::Pointer { .. }), "{error}");
        server.restart_timeout(MINUTE).unwrap();
    }
    // A launch that failed is told at the next access of the host as well, once: other tests use the same heap.
    match heap.host() {
        Ok(_) | Err(HeapError::Execution(_)) => {}
        Err(error) => panic!("{error}"),
    }
    assert_eq!(heap.read(good, 1).unwrap(), [41]);
    heap.free(good).unwrap();
}

fn stopping_serves_what_was_posted(f: &Fixture) {
    let (services, arrivals, open) = gate();
    let program = gated(f, &services);
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
    // While a busy machine takes its time to stop, a handler that waits may run out of turns where they are rationed,
    // and adds the status that tells it so.
    let late = u32::from(f.device.capabilities().loop_budget().is_some());
    for (call, x) in [(taken, 2), (posted, 3)] {
        let sum = call.wait_timeout(MINUTE).unwrap();
        assert!((x + 1..=x + 1 + late).contains(&sum), "{sum} of {x}");
    }
}

/// With a call that is answered, one in its handler, or one that nobody has taken: the call is dropped, or the server.
fn drops_at_every_phase_hang_nobody(f: &Fixture) {
    for (phase, drops_server) in (0..3).flat_map(|phase| [(phase, false), (phase, true)]) {
        let (services, arrivals, open) = gate();
        let program = gated(f, &services);
        let builder = PersistentKernel::builder(&f.device, &program).services(&services);
        let server = start(builder.handler("gated").ports(4));
        let gated = server.function::<(u32,), u32>("gated").unwrap();
        let first = gated.begin(&(1,));
        assert_eq!(arrivals.recv_timeout(MINUTE).unwrap(), 1);
        let call = match phase {
            0 => {
                open.send(()).unwrap();
                assert_eq!(first.wait_timeout(MINUTE).unwrap(), 2);
                // Answered, and not asked for.
                open.send(()).unwrap();
                let call = gated.begin(&(5,));
                assert_eq!(arrivals.recv_timeout(MINUTE).unwrap(), 5);
                call
            }
            1 => first,
            _ => {
                let behind = gated.begin(&(7,));
                drop(first);
                behind
            }
        };
        if drops_server {
            std::thread::scope(|scope| {
                scope.spawn(|| drop(server));
                // Whoever waits at the gate is let through while the server is dropped.
                (0..8).for_each(|_| open.send(()).unwrap());
            });
            let error = gated.call_timeout(&(9,), MINUTE).unwrap_err();
            assert!(matches!(error, CallError::Stopped { .. }), "{error}");
            drop(call);
        } else {
            drop(call);
            (0..8).for_each(|_| open.send(()).unwrap());
            // Its port comes back: more calls than there are ports are served.
            for x in 10..18 {
                open.send(()).unwrap();
                let sum = gated.call_timeout(&(x,), MINUTE).unwrap();
                assert!(sum == x + 1, "{sum} of {x}, or status: TimedOut");
            }
        }
        f.device.finish().unwrap();
    }
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
