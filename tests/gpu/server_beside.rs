//! What else a device does while a server on it is down or stuck, and calls of kernels that nobody on the host helps with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::kernel_callers::{KINDS, POISON, caller};
use crate::kernel_callers_own::{BEGIN, COLLECT};
use crate::persistent::{ADD, MINUTE, MIX, Mixer, builder, mix, mixer_of, start, until};
use crate::persistent_leases::starts_again;
use tombolo::{
    Constants, Device, DeviceBuffer, Event, HostServices, Launch, PersistentKernel, Program,
    server::{CallError, LeasePolicy, ServerError, ServerFailure},
};

cases![
    a_device_goes_on_while_a_server_is_down,
    a_device_goes_on_behind_a_stuck_server,
    calls_of_kernels_take_one_submission_and_nobody_else,
    calls_of_kernels_are_handed_over_beside_a_lease,
    a_lease_that_is_compiled_is_not_stuck,
];

/// Ordinary work on a device, whose result is checked.
pub struct Work {
    sums: DeviceBuffer<u32>,
    launch: Launch,
    launches: u32,
}

impl Work {
    pub fn new(device: &Device) -> Self {
        let program = Program::new("ordinary.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let sums = device.buffer(&[POISON; 64]).unwrap();
        Self {
            launch: kernel.launch().buffer("sums", &sums).invocations(64),
            sums,
            launches: 0,
        }
    }

    fn begin(&mut self) -> Event {
        self.launches += 1;
        self.launch.submit().unwrap()
    }

    /// One launch, waited for.
    pub fn launched(&mut self) {
        self.begin().wait_timeout(MINUTE).unwrap();
    }

    /// What all launches so far have come to.
    pub fn check(&self) {
        let by = self.launches;
        let expected = (1..=64u32).map(|i| POISON.wrapping_add(i * by));
        assert_eq!(self.sums.read().unwrap(), expected.collect::<Vec<_>>());
    }

    fn run(&mut self) {
        self.launched();
        self.check();
    }
}

fn mixer(device: &Device) -> (PersistentKernel, Mixer) {
    mixer_of(builder(device, MIX))
}

fn a_device_goes_on_while_a_server_is_down(f: &Fixture) {
    let (server, function) = mixer(&f.device);
    let (_other, others) = mixer(&f.device);
    let mut work = Work::new(&f.device);
    for round in 0..10u32 {
        assert_eq!(
            function.call_timeout(&(round, 1), MINUTE).unwrap(),
            mix(round, 1)
        );
        // While it goes, and when it has gone.
        let going = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let (others, going) = (&others, &going);
            scope.spawn(move || {
                for i in 0.. {
                    assert_eq!(
                        others.call_timeout(&(i, round), MINUTE).unwrap(),
                        mix(i, round)
                    );
                    if !going.load(Ordering::Acquire) {
                        break;
                    }
                }
            });
            let stopping = scope.spawn(|| server.stop());
            work.run();
            stopping.join().unwrap();
            work.run();
            going.store(false, Ordering::Release);
        });
        let error = function.call_timeout(&(round, 1), MINUTE).unwrap_err();
        assert!(matches!(error, CallError::Stopped { .. }), "{error}");
        server.restart().unwrap();
    }
    assert_eq!(function.call_timeout(&(5, 1), MINUTE).unwrap(), mix(5, 1));
}

/// The status of a call whose kernel has waited for too long, or has taken the call back.
const GIVEN_UP: [u32; 2] = [2, 15];

fn a_device_goes_on_behind_a_stuck_server(f: &Fixture) {
    let (reached, arrivals) = mpsc::channel();
    let (open, opened) = mpsc::channel();
    let (reached, opened) = (Mutex::new(reached), Mutex::new(opened));
    let gate = move |x: u32| {
        let _ = reached.lock().unwrap().send(x);
        let _ = opened.lock().unwrap().recv_timeout(MINUTE);
        x + 1
    };
    let services = HostServices::builder().call("fn gate(x: u32) -> u32", gate);
    let services = services.start().unwrap();
    let source = "fn gated(x: u32) -> u32 { return gate_try(x).status + x; }";
    let program = Program::builder()
        .source("server.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let device = f.open(|_| {});
    let policy = LeasePolicy::of(device.capabilities())
        .stuck(Duration::from_millis(5))
        .time(Duration::from_millis(1));
    let server = PersistentKernel::builder(&device, &program).services(&services);
    let server = start(server.handler("gated").leases(policy));
    let gated = server.function::<(u32,), u32>("gated").unwrap();
    let (other, others) = mixer(&device);
    let mut work = Work::new(&device);
    work.run();
    // Other devices have queues of their own.
    let adapters = f.context.adapters();
    let elsewhere = adapters.iter().filter(|adapter| adapter.index != f.index);
    let elsewhere: Vec<Device> = elsewhere
        .map(|adapter| f.context.device_at(adapter.index).unwrap())
        .collect();
    // A driver that rations waiting may end the handler before its lease is found to be stuck.
    let has_loop_budget = device.capabilities().loop_budget().is_some();
    let called = gated.call_timeout(&(5,), MINUTE);
    assert_eq!(arrivals.recv_timeout(MINUTE).unwrap(), 5);
    let is_stuck = match &called {
        Err(CallError::Server { failure, .. }) => {
            let stuck = matches!(**failure, ServerFailure::LeaseStuck { .. });
            assert!(stuck, "{failure}");
            true
        }
        Ok(ended) if has_loop_budget && GIVEN_UP.contains(&(ended - 5)) => false,
        result => panic!("{result:?}"),
    };
    let found = server.statistics();
    assert_eq!((found.killed, found.failed), (0, 0), "{found:?}");
    assert!(found.stuck == 1 || !is_stuck, "{found:?}");
    for device in &elsewhere {
        let (_server, function) = mixer(device);
        Work::new(device).run();
        assert_eq!(function.call_timeout(&(1, 9), MINUTE).unwrap(), mix(1, 9));
    }
    match server.restart() {
        Err(ServerError::StillStuck { .. }) => {}
        result => assert!(has_loop_budget && result.is_ok(), "{result:?}"),
    }
    std::thread::scope(|scope| {
        // What is asked of the queue meanwhile is done behind it. To ask may take as long with some drivers.
        let asked = scope.spawn(|| {
            let event = work.begin();
            event.wait_timeout(MINUTE).unwrap();
            work.check();
            work.run();
        });
        let called = scope.spawn(|| {
            for i in 0..20 {
                assert_eq!(others.call_timeout(&(i, 2), MINUTE).unwrap(), mix(i, 2));
            }
        });
        until("the device does not go on", || {
            let _ = open.send(());
            asked.is_finished() && called.is_finished()
        });
    });
    assert!(other.failure().is_none());
    open.send(()).unwrap();
    starts_again(&server, &gated);
}

const COUNT: u32 = 256;

/// Kernels that begin calls and collect them.
struct Exchange {
    results: DeviceBuffer<u32>,
    begin: Launch,
    collect: Launch,
}

impl Exchange {
    fn new(device: &Device, server: &PersistentKernel) -> Self {
        let words = vec![POISON; COUNT as usize];
        let tickets = device.buffer(&words).unwrap();
        let results = device.buffer(&words).unwrap();
        let begin = caller(device, server, BEGIN).launch();
        let begin = begin.buffer("tickets", &tickets).server(server);
        let collect = caller(device, server, COLLECT).launch();
        let collect = collect.buffer("tickets", &tickets).server(server);
        let mut exchange = Self {
            begin: begin.invocations(COUNT),
            collect: collect.buffer("results", &results).invocations(COUNT),
            results,
        };
        // The kernel that serves them is made for the first.
        exchange.submit().wait_timeout(MINUTE).unwrap();
        exchange.check();
        exchange
    }

    fn submit(&mut self) -> Event {
        self.begin.submit().unwrap();
        self.collect.submit().unwrap()
    }

    fn check(&self) {
        let expected: Vec<u32> = (0..COUNT).map(|i| mix(i, 3 * i)).collect();
        assert_eq!(self.results.read().unwrap(), expected);
        self.results
            .write(0, &vec![POISON; COUNT as usize])
            .unwrap();
    }
}

/// Begun by one launch, served behind it, and collected by the next: all in one submission, in which no thread of the
/// server has a part.
fn calls_of_kernels_take_one_submission_and_nobody_else(f: &Fixture) {
    for live in [true, false] {
        for kind in KINDS {
            let device = f.open(|options| options.live_memory = live);
            let server = start(kind(&device));
            let mut exchange = Exchange::new(&device, &server);
            let statistics = server.statistics();
            for round in 0..10 {
                // What the last round has left to do.
                device.finish().unwrap();
                let before = device.cache_statistics().submissions;
                let event = exchange.submit();
                assert_eq!(device.cache_statistics().submissions, before);
                event.wait_timeout(MINUTE).unwrap();
                let after = device.cache_statistics().submissions;
                assert_eq!(after, before + 1, "live: {live}, round {round}");
                exchange.check();
            }
            // Nobody was launched, and nobody was woken.
            assert_eq!(server.statistics(), statistics, "live: {live}");
            assert_eq!(statistics.leases, 0);
        }
    }
}

/// The same while a lease is on the device, which makes room for that one submission.
fn calls_of_kernels_are_handed_over_beside_a_lease(f: &Fixture) {
    for kind in KINDS {
        let device = f.open(|_| {});
        let policy = LeasePolicy::of(device.capabilities())
            .time(Duration::MAX)
            .idle(Duration::MAX);
        let server = start(kind(&device).leases(policy));
        let function: Mixer = server.function("mix").unwrap();
        let mut exchange = Exchange::new(&device, &server);
        for round in 0..10u32 {
            device.finish().unwrap();
            // Answered by a lease that has been submitted.
            let result = function.call_timeout(&(round, 1), MINUTE).unwrap();
            assert_eq!(result, mix(round, 1));
            let (before, leases) = (device.cache_statistics().submissions, server.leases());
            let wakes = server.statistics().wakes;
            exchange.submit().wait_timeout(MINUTE).unwrap();
            let more = device.cache_statistics().submissions - before;
            // Those that are not leases; one of them may go in the same submission.
            let own = more.saturating_sub(u64::from(server.leases() - leases));
            // A driver that rations turns may have ended it, and the next one be on its way.
            let has_loop_budget = device.capabilities().loop_budget().is_some();
            assert!(
                own <= 1 + u64::from(has_loop_budget),
                "round {round}: {more} submissions"
            );
            assert_eq!(server.statistics().wakes, wakes, "round {round}");
            exchange.check();
        }
        assert_eq!(server.statistics().failed, 0);
    }
}

/// Drivers compile a kernel when it first runs, which takes longer than this server's leases may be stuck.
fn a_lease_that_is_compiled_is_not_stuck(f: &Fixture) {
    let services = HostServices::builder().call("fn ask(x: u32) -> u32", |x: u32| x + 1);
    let services = services.start().unwrap();
    // A text that no driver has kept from an earlier run.
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let unique = now.subsec_nanos() ^ std::process::id();
    let source = format!(
        "fn work(x: u32) -> u32 {{
            if x == 0u {{ return ask(ask(x)); }}
            if x == 1u {{ return ask(x + 100u); }}
            return ask(x ^ {unique}u);
        }}"
    );
    let program = Program::builder()
        .source("server.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let policy = LeasePolicy::of(f.device.capabilities()).stuck(Duration::from_millis(300));
    let server = PersistentKernel::builder(&f.device, &program).services(&services);
    let server = start(server.handler("work").leases(policy));
    let work = server.function::<(u32,), u32>("work").unwrap();
    for (x, expected) in [(5, (5 ^ unique) + 1), (0, 2), (1, 102)] {
        assert_eq!(work.call_timeout(&(x,), MINUTE).unwrap(), expected);
    }
}
