//! Handlers that serve many calls at once.

use std::sync::{Arc, Mutex, mpsc};

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, builder, is_sliced, mix, start};
use tombolo::{
    Device, HostServices, PersistentKernel, Program,
    server::{CallError, DeviceFunction, PendingCall, ServerError},
};

cases![
    calls_that_wait_are_served_together,
    each_call_of_a_batch_has_its_own_answer,
    batches_and_other_handlers_serve_one_server,
    a_call_of_a_batch_fails_alone,
    calls_of_a_batch_are_withdrawn_alone,
    several_work_groups_serve_batches,
    words_across_a_bus_are_gathered,
    each_call_in_slices_is_a_batch,
    batches_larger_than_a_work_group_are_refused,
];

/// The lane, the calls of the batch, and what comes of the arguments by way of memory of the work-group.
const BATCH: &str = "
    var<workgroup> all: array<u32, 16>;
    fn batch(lane: u32, calls: u32, x: u32, y: u32) -> vec3<u32> {
        all[lane] = mix(x, y);
        workgroupBarrier();
        let mixed = all[(lane + 1u) % 16u] ^ all[(lane + 1u) % 16u] ^ all[lane];
        workgroupBarrier();
        return vec3(lane, calls, mixed);
    }";

type Batch = DeviceFunction<(u32, u32), [u32; 3]>;

/// Whether an answer is right, and how large its batch was.
fn check(answer: [u32; 3], (x, y): (u32, u32), most: u32) -> u32 {
    let [lane, calls, mixed] = answer;
    assert_eq!(mixed, mix(x, y));
    assert!(
        lane < calls && calls <= most,
        "{lane} of {calls}, at most {most}"
    );
    calls
}

/// What is posted while the only work-group waits for the host is a batch behind that, as far as it fits.
fn calls_that_wait_are_served_together(f: &Fixture) {
    const MOST: u32 = 8;
    if is_sliced(&f.device) {
        return;
    }
    let device = f.open(|_| {});
    let batch: Arc<Mutex<Option<Batch>>> = Arc::default();
    let (sender, receiver) = mpsc::channel();
    let own = Arc::clone(&batch);
    let services = HostServices::builder().call("fn meanwhile(x: u32) -> u32", move |x: u32| {
        let batch = own.lock().unwrap().clone().unwrap();
        let posted: Vec<PendingCall<[u32; 3]>> = (0..x).map(|i| batch.begin(&(i, !i))).collect();
        sender.send(posted).unwrap();
        x
    });
    let services = services.start().unwrap();
    let source = format!(
        "{MIX}{BATCH} fn hold(lane: u32, x: u32) -> u32 {{
            var same = 0u;
            if lane == 0u {{ same = meanwhile(x); }}
            return same;
        }}"
    );
    let program = Program::builder()
        .source("server.wgsl", source)
        .services(&services);
    let builder = PersistentKernel::builder(&device, &program.build().unwrap()).services(&services);
    let builder = builder
        .group_handler("hold")
        .batch_handler("batch", MOST)
        .group_size(16);
    // One port is that of the call that holds the work-group.
    let server = start(builder.ports(MOST as usize + 1));
    *batch.lock().unwrap() = Some(server.function("batch").unwrap());
    let hold = server.function::<(u32,), u32>("hold").unwrap();
    let mut most = 0;
    for round in 0..10 {
        let waiting = 1 + round % MOST;
        assert_eq!(hold.call_timeout(&(waiting,), MINUTE).unwrap(), waiting);
        let posted = receiver.recv_timeout(MINUTE).unwrap();
        let mut lanes = Vec::new();
        for (call, i) in posted.into_iter().zip(0..) {
            let answer = call.wait_timeout(MINUTE).unwrap();
            let calls = check(answer, (i, !i), MOST);
            // Two of them may look at ports of the same lane.
            assert!(
                (waiting - 1..=waiting).contains(&calls) || calls == 1,
                "{calls} of {waiting}"
            );
            most = most.max(calls);
            lanes.push((calls, answer[0]));
        }
        // Every lane of the batches of a size has answered as often.
        for calls in 1..=MOST {
            let answers = |lane: u32| lanes.iter().filter(|&&one| one == (calls, lane)).count();
            assert!(
                (0..calls).all(|lane| answers(lane) == answers(0)),
                "{lanes:?}"
            );
        }
    }
    assert!(
        most >= MOST - 1,
        "{most} calls at most were served together"
    );
}

/// The answers to many calls of several threads, and the calls of the largest batch.
fn many(device: &Device, groups: usize, threads: u32, calls: u32) -> u32 {
    const MOST: u32 = 16;
    let source = format!("{MIX}{BATCH}");
    let server = builder(device, &source)
        .batch_handler("batch", MOST)
        .group_size(16);
    let server = start(server.work_groups(groups).ports(64));
    let batch: Batch = server.function("batch").unwrap();
    let most = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let batch = &batch;
                scope.spawn(move || {
                    let calls: Vec<_> = (0..calls).map(|i| (thread * calls + i, 7 * i)).collect();
                    let answers = batch.call_all(&calls).unwrap();
                    let sizes = answers
                        .into_iter()
                        .zip(calls)
                        .map(|(answer, call)| check(answer, call, MOST));
                    sizes.max().unwrap()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .max()
            .unwrap()
    });
    assert!(server.failure().is_none());
    most
}

fn each_call_of_a_batch_has_its_own_answer(f: &Fixture) {
    // Half of the ports are posted before the server is told.
    let most = many(&f.open(|_| {}), 1, 4, 500);
    assert!(most > 1 || is_sliced(&f.device));
}

fn several_work_groups_serve_batches(f: &Fixture) {
    many(&f.open(|_| {}), 3, 4, 300);
}

fn words_across_a_bus_are_gathered(f: &Fixture) {
    let device = f.open(|options| options.unified_memory = Some(false));
    many(&device, 1, 2, 150);
    many(&device, 2, 2, 100);
}

fn each_call_in_slices_is_a_batch(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    assert_eq!(many(&device, 1, 2, 100), 1);
}

fn batches_and_other_handlers_serve_one_server(f: &Fixture) {
    let source = format!(
        "{MIX}{BATCH}
        fn pairs(lane: u32, calls: u32, x: u32) -> u32 {{ workgroupBarrier(); return 2u * x + u32(calls > 2u); }}
        fn plain(x: u32) -> u32 {{ return x + 1u; }}
        fn whole(lane: u32, x: u32) -> u32 {{ all[lane] = x; workgroupBarrier(); return all[15u - lane]; }}"
    );
    let server = builder(&f.device, &source)
        .batch_handler("batch", 5)
        .batch_handler("pairs", 2);
    let server = server
        .handler("plain")
        .group_handler("whole")
        .group_size(16)
        .ports(24);
    let server = start(server);
    let batch: Batch = server.function("batch").unwrap();
    let [pairs, plain, whole] =
        ["pairs", "plain", "whole"].map(|name| server.function::<(u32,), u32>(name).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..6u32 {
            let (batch, pairs, plain, whole) = (&batch, &pairs, &plain, &whole);
            scope.spawn(move || {
                for i in 0..60u32 {
                    let call = (thread, i);
                    check(batch.call_timeout(&call, MINUTE).unwrap(), call, 5);
                    assert_eq!(pairs.call_timeout(&(i,), MINUTE).unwrap(), 2 * i);
                    assert_eq!(plain.call_timeout(&(i,), MINUTE).unwrap(), i + 1);
                    assert_eq!(whole.call_timeout(&(i,), MINUTE).unwrap(), i);
                }
            });
        }
    });
}

fn a_call_of_a_batch_fails_alone(f: &Fixture) {
    let source = "fn half(lane: u32, calls: u32, x: u32) -> u32 {
        assert(x % 8u != 3u, \"half of {}\", x);
        return x / 2u + 1000u * u32(calls > 1u);
    }";
    let device = f.open(|_| {});
    let server = builder(&device, source)
        .batch_handler("half", 8)
        .group_size(8);
    let server = start(server.ports(32));
    let half = server.function::<(u32,), u32>("half").unwrap();
    for _ in 0..3 {
        let calls: Vec<(u32,)> = (0..64).map(|x| (x,)).collect();
        for (result, x) in half.call_many(&calls).into_iter().zip(0..64) {
            match result {
                Ok(result) => assert!(x % 8 != 3 && result % 1000 == x / 2, "{x}: {result}"),
                Err(error) => {
                    assert_eq!(x % 8, 3, "{error}");
                    assert!(matches!(error, CallError::Failed { .. }), "{error}");
                }
            }
        }
    }
    assert!(server.failure().is_none());
}

fn calls_of_a_batch_are_withdrawn_alone(f: &Fixture) {
    let source = format!(
        "{MIX} @group(0) @binding(0) var<storage, read_write> served: array<atomic<u32>>;
        fn counted(lane: u32, calls: u32, id: u32) -> u32 {{
            if lane < calls {{ atomicAdd(&served[id], 1u); }}
            workgroupBarrier();
            return mix(id, u32(call_cancelled() && false));
        }}"
    );
    const CALLS: u32 = 400;
    let device = f.open(|_| {});
    let served = device.zeroed::<u32>(2 * CALLS as usize).unwrap();
    let server = builder(&device, &source)
        .batch_handler("counted", 8)
        .group_size(8)
        .ports(16);
    let server = start(server.buffer("served", &served));
    let counted = server.function::<(u32,), u32>("counted").unwrap();
    let outcomes: Vec<u32> = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let counted = &counted;
            scope.spawn(move || {
                let mut outcomes = Vec::new();
                for first in (0..CALLS).step_by(4) {
                    let ids = (first..first + 4).map(|i| thread * CALLS + i);
                    let mut begun: Vec<_> = ids.map(|id| (id, counted.begin(&(id,)))).collect();
                    begun[1].1.cancel();
                    begun[3].1.cancel();
                    for (id, call) in begun {
                        outcomes.push(match call.wait_timeout(MINUTE) {
                            Ok(result) => {
                                assert_eq!(result, mix(id, 0));
                                1
                            }
                            Err(error) => {
                                assert!(matches!(error, CallError::Withdrawn { .. }), "{error}");
                                assert_eq!(id % 2, 1);
                                0
                            }
                        });
                    }
                }
                outcomes
            })
        });
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    server.stop();
    assert_eq!(served.read().unwrap(), outcomes);
    assert!(outcomes.contains(&0));
}

fn batches_larger_than_a_work_group_are_refused(f: &Fixture) {
    let source = format!("{MIX}{BATCH} fn bare(x: f32, calls: u32) -> u32 {{ return calls; }}");
    for calls in [0, 17, u32::MAX] {
        let server = builder(&f.device, &source)
            .batch_handler("batch", calls)
            .group_size(16)
            .start();
        let Err(ServerError::Batch { handler, limit: 16 }) = server else {
            panic!("{server:?}");
        };
        assert_eq!(handler, "batch");
    }
    let server = builder(&f.device, &source).batch_handler("bare", 4).start();
    let told = server.unwrap_err().to_string();
    assert!(
        told.contains("the number of the lane and the number of calls"),
        "{told}"
    );
}
