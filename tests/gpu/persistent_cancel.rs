//! Calls that are taken back, the handlers that are told so, and how long calls take.
//!
//! What is on its way is held by a function of the host that a handler calls: while it runs, the only lane of the server
//! waits for it, and begins nothing else.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, Mixer, builder, is_sliced, kernel, mix, start, until};
use tombolo::{
    Device, HostServices, PersistentKernel, Program,
    server::{CallError, DeviceFunction, HostServer, LeasePolicy, PendingCall},
};

cases![
    a_call_that_is_not_begun_is_withdrawn,
    a_running_handler_is_told,
    all_lanes_of_a_work_group_are_told,
    calls_are_served_once_or_withdrawn,
    calls_in_slices_are_served_once_or_withdrawn,
    functions_of_the_host_are_withdrawn,
    ordinary_kernels_are_not_cancelled,
    latencies_are_counted,
];

/// What the function of the host does while a handler waits for it.
type Meanwhile = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Services with `meanwhile(x: u32) -> u32`, and what it does the next time.
fn services() -> (HostServices, Meanwhile) {
    let meanwhile = Meanwhile::default();
    let own = Arc::clone(&meanwhile);
    let services = HostServices::builder().call("fn meanwhile(x: u32) -> u32", move |x: u32| {
        // Whoever begins the call has the lock until all is prepared.
        let next = own.lock().unwrap().take();
        if let Some(next) = next {
            next();
        }
        x
    });
    (services.start().unwrap(), meanwhile)
}

fn held_builder(
    device: &Device,
    services: &HostServices,
    source: &str,
) -> tombolo::server::PersistentKernelBuilder {
    let program = Program::builder()
        .source("server.wgsl", source)
        .services(services);
    let program = program.build().unwrap_or_else(|error| panic!("{error}"));
    PersistentKernel::builder(device, &program).services(services)
}

fn is_withdrawn<R: std::fmt::Debug>(result: &Result<R, CallError>) -> bool {
    matches!(result, Err(CallError::Withdrawn { .. }))
}

fn a_call_that_is_not_begun_is_withdrawn(f: &Fixture) {
    if is_sliced(&f.device) {
        return;
    }
    not_begun(&f.open_alone(|_| {}));
    // Where words cross a bus.
    not_begun(&f.open_alone(|options| options.unified_memory = Some(false)));
}

fn not_begun(device: &Device) {
    let (services, meanwhile) = services();
    let source = "var<storage, read_write> served: atomic<u32>;
        fn hold(x: u32) -> u32 { return meanwhile(x); }
        fn count(x: u32) -> u32 { atomicAdd(&served, 1u); return x; }";
    let server = held_builder(device, &services, source).lanes(1).ports(8);
    let server = start(server.handler("hold").handler("count"));
    let hold = server.function::<(u32,), u32>("hold").unwrap();
    let count = server.function::<(u32,), u32>("count").unwrap();
    // Where words cross a bus nobody knows at once whether a call is begun.
    let knows = device.capabilities().unified_memory;
    for round in 0..20u32 {
        let (sender, receiver) = mpsc::channel();
        let own = count.clone();
        *meanwhile.lock().unwrap() = Some(Box::new(move || {
            let mut begun: PendingCall<u32> = own.begin(&(round,));
            begun.cancel();
            begun.cancel();
            let late = own.call_with_deadline(&(round,), Duration::ZERO);
            sender.send((begun, late)).unwrap();
        }));
        assert_eq!(hold.call_timeout(&(round,), MINUTE).unwrap(), round);
        let (begun, late) = receiver.recv_timeout(MINUTE).unwrap();
        let begun = begun.wait_timeout(MINUTE);
        assert!(is_withdrawn(&begun), "{begun:?}");
        // A call that was not posted, because the lease was about to leave, is withdrawn everywhere.
        let may_be_begun = !knows && matches!(late, Err(CallError::Cancelled { .. }));
        assert!(is_withdrawn(&late) || may_be_begun, "{late:?}");
    }
    // Their ports are free, and what is called now is not taken for withdrawn.
    for result in count.call_many(&(0..100u32).map(|x| (x,)).collect::<Vec<_>>()) {
        result.unwrap();
    }
    device.finish().unwrap();
    let served = device.global("served").unwrap();
    assert_eq!(served.read::<u32>().unwrap(), 100);
}

fn a_running_handler_is_told(f: &Fixture) {
    if is_sliced(&f.device) {
        return;
    }
    let (services, meanwhile) = services();
    let source = "fn look(x: u32) -> u32 {
        let before = u32(call_cancelled());
        let same = meanwhile(x);
        return before + 2u * u32(call_cancelled()) + 4u * same;
    }";
    let server = start(held_builder(&f.device, &services, source).handler("look"));
    let look = server.function::<(u32,), u32>("look").unwrap();
    for round in 0..20u32 {
        let call: Arc<Mutex<Option<PendingCall<u32>>>> = Arc::default();
        let own = Arc::clone(&call);
        let mut next = meanwhile.lock().unwrap();
        let is_cancelled = round % 2 == 0;
        let (sender, receiver) = mpsc::channel();
        *next = Some(Box::new(move || {
            if is_cancelled {
                own.lock().unwrap().as_mut().unwrap().cancel();
            }
            sender.send(()).unwrap();
        }));
        *call.lock().unwrap() = Some(look.begin(&(round,)));
        drop(next);
        receiver.recv_timeout(MINUTE).unwrap();
        let call = call.lock().unwrap().take().unwrap();
        let result = call.wait_timeout(MINUTE).unwrap();
        assert_eq!(
            result,
            2 * u32::from(is_cancelled) + 4 * round,
            "round {round}"
        );
    }
}

fn all_lanes_of_a_work_group_are_told(f: &Fixture) {
    if is_sliced(&f.device) {
        return;
    }
    let (services, meanwhile) = services();
    let source = "var<workgroup> told: atomic<u32>;
        fn look(lane: u32, x: u32) -> u32 {
            if lane == 0u { atomicStore(&told, meanwhile(x)); }
            workgroupBarrier();
            if call_cancelled() { atomicAdd(&told, 1u); }
            workgroupBarrier();
            return atomicLoad(&told);
        }";
    let server = held_builder(&f.device, &services, source)
        .group_handler("look")
        .group_size(16);
    let server = start(server);
    let look = server.function::<(u32,), u32>("look").unwrap();
    for round in 0..10u32 {
        let call: Arc<Mutex<Option<PendingCall<u32>>>> = Arc::default();
        let own = Arc::clone(&call);
        let mut next = meanwhile.lock().unwrap();
        let (sender, receiver) = mpsc::channel();
        *next = Some(Box::new(move || {
            own.lock().unwrap().as_mut().unwrap().cancel();
            sender.send(()).unwrap();
        }));
        *call.lock().unwrap() = Some(look.begin(&(100 * round,)));
        drop(next);
        receiver.recv_timeout(MINUTE).unwrap();
        let call = call.lock().unwrap().take().unwrap();
        assert_eq!(call.wait_timeout(MINUTE).unwrap(), 100 * round + 16);
        // The next call is not cancelled.
        assert_eq!(look.call_timeout(&(7,), MINUTE).unwrap(), 7);
    }
}

/// Threads whose calls have next to no time: each is served once with the right answer, or never if it was withdrawn.
fn served_once_or_withdrawn(device: &Device, calls: u32) {
    const THREADS: u32 = 4;
    let source = format!(
        "{MIX} @group(0) @binding(0) var<storage, read_write> served: array<atomic<u32>>;
        fn counted(id: u32) -> u32 {{ atomicAdd(&served[id], 1u); return mix(id, 5u); }}"
    );
    let served = device.zeroed::<u32>((THREADS * calls) as usize).unwrap();
    let server = builder(device, &source)
        .handler("counted")
        .buffer("served", &served)
        .ports(3);
    let server = start(server);
    let counted = server.function::<(u32,), u32>("counted").unwrap();
    let (done, withdrawn) = (AtomicU32::new(0), AtomicU32::new(0));
    let told: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (counted, done, withdrawn) = (&counted, &done, &withdrawn);
                scope.spawn(move || {
                    let call = |i: u32| {
                        let id = thread * calls + i;
                        let result = match i % 3 {
                            0 => {
                                let time = Duration::from_nanos(u64::from(mix(i, 3) % 20_000));
                                counted.call_with_deadline(&(id,), time)
                            }
                            1 => {
                                let mut call = counted.begin(&(id,));
                                call.cancel();
                                call.wait_timeout(MINUTE)
                            }
                            _ => counted.call_timeout(&(id,), MINUTE),
                        };
                        match result {
                            Ok(result) => {
                                assert_eq!(result, mix(id, 5));
                                done.fetch_add(1, Ordering::Relaxed);
                                1
                            }
                            Err(CallError::Withdrawn { .. }) => {
                                assert_ne!(i % 3, 2);
                                withdrawn.fetch_add(1, Ordering::Relaxed);
                                0
                            }
                            Err(CallError::Cancelled { .. }) => {
                                assert_eq!(i % 3, 0);
                                u32::MAX
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    (0..calls).map(call).collect()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    server.stop();
    let served = served.read().unwrap();
    for (id, (served, told)) in served.iter().zip(told.concat()).enumerate() {
        assert!(
            *served == told || told == u32::MAX && *served <= 1,
            "{id}: {served}, and told {told}"
        );
    }
    assert!(done.into_inner() >= THREADS * (calls / 3));
    assert!(withdrawn.into_inner() > 0);
}

fn calls_are_served_once_or_withdrawn(f: &Fixture) {
    served_once_or_withdrawn(&f.open(|_| {}), 1200);
}

fn calls_in_slices_are_served_once_or_withdrawn(f: &Fixture) {
    served_once_or_withdrawn(&f.open(|options| options.live_memory = false), 300);
}

fn functions_of_the_host_are_withdrawn(_: &Fixture) {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let runs = Arc::new(AtomicU32::new(0));
    let own = Arc::clone(&runs);
    let server = HostServer::builder().handler("fn slow(x: u32) -> u32", move |x: u32| {
        own.fetch_add(1, Ordering::Relaxed);
        begun.send(()).unwrap();
        goes_on.lock().unwrap().recv_timeout(MINUTE).unwrap();
        x + 1
    });
    let server = server.start().unwrap();
    let slow: DeviceFunction<(u32,), u32> = server.function("slow").unwrap();
    let first = slow.begin(&(1,));
    has_begun.recv_timeout(MINUTE).unwrap();
    // One thread serves.
    let second = slow.call_with_deadline(&(2,), Duration::ZERO);
    assert!(is_withdrawn(&second), "{second:?}");
    let mut third = slow.begin(&(3,));
    third.cancel();
    go_on.send(()).unwrap();
    assert_eq!(first.wait_timeout(MINUTE).unwrap(), 2);
    let third = third.wait_timeout(MINUTE);
    assert!(is_withdrawn(&third), "{third:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

fn ordinary_kernels_are_not_cancelled(f: &Fixture) {
    let told = f.device.buffer(&[7u32; 4]).unwrap();
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> told: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) { told[i] = u32(call_cancelled()); }",
    );
    let event = kernel
        .launch()
        .buffer("told", &told)
        .workgroups(1)
        .submit()
        .unwrap();
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(told.read().unwrap(), [0; 4]);
}

fn latencies_are_counted(f: &Fixture) {
    const CALLS: u32 = 50;
    let device = f.open(|_| {});
    let policy = LeasePolicy::of(device.capabilities()).time(Duration::from_millis(1));
    let server = start(builder(&device, MIX).handler("mix").leases(policy));
    let function: Mixer = server.function("mix").unwrap();
    let found = server.statistics();
    assert_eq!(
        (found.call_latency.count(), found.lease_gaps.count()),
        (0, 0)
    );
    for i in 0..CALLS {
        let result = match i % 2 {
            0 => function.call_timeout(&(i, 1), MINUTE),
            _ => function.begin(&(i, 1)).wait_timeout(MINUTE),
        };
        assert_eq!(result.unwrap(), mix(i, 1));
    }
    pollster::block_on(function.begin(&(1, 2))).unwrap();
    let found = server.statistics().call_latency;
    assert_eq!(found.count(), u64::from(CALLS) + 1);
    assert_eq!(found.quantile(1.0), found.longest());
    assert!(
        found.quantile(0.5) <= found.quantile(0.99) && found.quantile(0.5) > Some(Duration::ZERO)
    );
    // Leases end by their time all the while, and calls wait for the next.
    let mut calls = 0;
    until("no call has found the server without a lease", || {
        calls += 1;
        assert_eq!(
            function.call_timeout(&(calls, 1), MINUTE).unwrap(),
            mix(calls, 1)
        );
        server.statistics().lease_gaps.count() >= 3 || is_sliced(&device)
    });
    let found = server.statistics();
    assert!(
        found.lease_gaps.count() <= u64::from(found.leases),
        "{found:?}"
    );
}
