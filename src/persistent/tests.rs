//! States beyond the reach of programs: leases killed at every phase of a call.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::device::hooks::{self, Point};
use crate::device::{Device, DeviceOptions};
use crate::kernel::{Constants, Program};
use crate::persistent::frame::Frame;
use crate::persistent::{CallError, DeviceFunction, PersistentKernel, ServerFailure};
use crate::rpc::port::client::Client;
use crate::rpc::port::layout::{PREFIX, PortLayout};
use crate::rpc::port::words::Words;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs a test with a server of `next` on every adapter, on devices opened with options of the test's own.
fn on_every_adapter(
    change: impl Fn(&mut DeviceOptions),
    ports: usize,
    test: impl Fn(&Device, &PersistentKernel, &DeviceFunction<(u32,), u32>),
) {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for adapter in context.adapters() {
        let mut options = DeviceOptions::default();
        change(&mut options);
        let device = context.device_at_with(adapter.index, options).unwrap();
        let program = Program::new("server.wgsl", "fn next(x: u32) -> u32 { return x + 1u; }");
        let builder = PersistentKernel::builder(&device, &program.unwrap());
        let server = builder.handler("next").ports(ports).start().unwrap();
        let next = server.function("next").unwrap();
        test(&device, &server, &next);
    }
}

#[test]
fn a_killed_lease_is_told_and_the_server_starts_again() {
    on_every_adapter(
        |_| {},
        64,
        |device, server, next| {
            for round in 0..20 {
                assert_eq!(next.call_timeout(&(round,), MINUTE).unwrap(), round + 1);
                server.core.kill.store(true, Ordering::Release);
                // Some are answered by the lease on the device.
                let error = (0..).find_map(|i| {
                    device.finish().unwrap();
                    next.call_timeout(&(i,), MINUTE).err()
                });
                let Some(CallError::Server { failure, .. }) = error else {
                    panic!("{error:?}");
                };
                let killed = matches!(*failure, ServerFailure::LeaseKilled { .. });
                assert!(killed, "{failure}");
                let begun = next.begin(&(1,)).wait().unwrap_err();
                assert!(matches!(begun, CallError::Server { .. }), "{begun}");
                server.restart().unwrap();
            }
            // The rest of the device goes on all the while.
            assert_eq!(next.call_timeout(&(7,), MINUTE).unwrap(), 8);
            server.stop();
            device.finish().unwrap();
        },
    );
}

/// Other work on the device while leases are killed, one after the other.
#[test]
fn others_go_on_while_leases_are_killed() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for adapter in context.adapters() {
        let device = context.device_at(adapter.index).unwrap();
        let program = Program::new("server.wgsl", "fn next(x: u32) -> u32 { return x + 1u; }");
        let builder = PersistentKernel::builder(&device, &program.unwrap()).handler("next");
        let server = builder.start().unwrap();
        let next = server.function::<(u32,), u32>("next").unwrap();
        let program = Program::new("server.wgsl", "fn twice(x: u32) -> u32 { return 2u * x; }");
        let builder = PersistentKernel::builder(&device, &program.unwrap()).handler("twice");
        let other = builder.start().unwrap();
        let twice = other.function::<(u32,), u32>("twice").unwrap();
        let step = "@group(0) @binding(0) var<storage, read_write> sums: array<u32>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                sums[id.x] = sums[id.x] * 3u + id.x;
            }";
        let program = Program::new("ordinary.wgsl", step).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let mut expected = [0xdead_beefu32; 64];
        let sums = device.buffer(&expected).unwrap();
        let mut launch = kernel.launch().buffer("sums", &sums).invocations(64);
        std::thread::scope(|scope| {
            let killing = scope.spawn(|| {
                for _ in 0..20 {
                    server.core.kill.store(true, Ordering::Release);
                    let begun = std::time::Instant::now();
                    let error = (0..).find_map(|i| {
                        assert!(begun.elapsed() < MINUTE, "no lease is killed");
                        next.call_timeout(&(i,), MINUTE).err()
                    });
                    assert!(matches!(error, Some(CallError::Server { .. })), "{error:?}");
                    server.restart().unwrap();
                }
            });
            for round in 0.. {
                launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
                for (sum, i) in expected.iter_mut().zip(0..) {
                    *sum = sum.wrapping_mul(3).wrapping_add(i);
                }
                assert_eq!(sums.read().unwrap(), expected, "round {round}");
                assert_eq!(twice.call_timeout(&(round,), MINUTE).unwrap(), 2 * round);
                if killing.is_finished() {
                    break;
                }
            }
            killing.join().unwrap();
        });
        assert_eq!(server.statistics().killed, 20);
        assert_eq!(other.statistics().killed, 0);
        assert_eq!(next.call_timeout(&(1,), MINUTE).unwrap(), 2);
    }
}

/// Removes the hook, also where a test fails.
struct Unhook;

impl Drop for Unhook {
    fn drop(&mut self) {
        hooks::set(None);
    }
}

/// A driver may keep the relay in a submission until the running lease has ended.
#[test]
fn a_lease_is_asked_to_leave_while_its_submission_lasts() {
    on_every_adapter(
        |_| {},
        64,
        |_, server, next| {
            let core = Arc::clone(&server.core);
            // Nobody asks but the clock: there is no other work, and no lease before the call.
            let known = core.interrupts();
            let (told, was_asked) = mpsc::channel();
            let told = Mutex::new(Some(told));
            hooks::set(Some(Arc::new(move |point| {
                let is_relay = std::thread::current().name() == Some("tombolo relay");
                if point != Point::Submitting || !is_relay {
                    return;
                }
                let Some(told) = told.lock().unwrap().take() else {
                    return;
                };
                let begun = Instant::now();
                while core.interrupts() == known && begun.elapsed() < MINUTE / 2 {
                    std::thread::yield_now();
                }
                let _ = told.send(core.interrupts() != known);
            })));
            let _unhook = Unhook;
            assert_eq!(next.call_timeout(&(4,), MINUTE).unwrap(), 5);
            assert_eq!(was_asked.recv_timeout(MINUTE), Ok(true));
        },
    );
}

#[test]
fn a_slice_that_a_driver_has_cut_is_told() {
    on_every_adapter(
        |options| options.live_memory = false,
        400,
        |_, server, next| {
            // One slice: the last of its four work-groups, serving eight calls, is left out.
            let calls: Vec<(u32,)> = (0..200).map(|x| (x,)).collect();
            for round in 0..6 {
                for (result, x) in next.call_many(&calls).into_iter().zip(1u32..) {
                    assert_eq!(result.unwrap(), x, "round {round}");
                }
                server.core.kill.store(true, Ordering::Release);
                let results = match round % 2 {
                    0 => next.call_many(&calls),
                    _ => vec![next.call_timeout(&(1,), MINUTE)],
                };
                for result in results {
                    let Err(CallError::Server { failure, .. }) = result else {
                        panic!("{result:?}");
                    };
                    let killed = matches!(*failure, ServerFailure::LeaseKilled { .. });
                    assert!(killed, "{failure}");
                }
                for result in next.call_many(&calls) {
                    let error = result.unwrap_err();
                    assert!(matches!(error, CallError::Server { .. }), "{error}");
                }
                server.restart().unwrap();
            }
        },
    );
}

#[test]
fn a_slice_whose_answers_cannot_be_read_is_waited_for() {
    on_every_adapter(
        |options| options.live_memory = false,
        64,
        |_, server, next| {
            for round in 0..4 {
                assert_eq!(next.call_timeout(&(round,), MINUTE).unwrap(), round + 1);
                server.core.deaf.store(true, Ordering::Release);
                let result = match round % 2 {
                    0 => next.call_timeout(&(1,), MINUTE),
                    _ => next.call_all(&[(1,); 9]).map(|_| 0),
                };
                let Err(CallError::Server { failure, .. }) = result else {
                    panic!("{result:?}");
                };
                let is_told = matches!(*failure, ServerFailure::Launch { .. });
                assert!(is_told, "{failure}");
                // The launch runs all the same, and the server is not to begin anew before the launch's end.
                let lost = server.core.stuck.lock().unwrap().clone();
                lost.unwrap().wait_timeout(MINUTE).unwrap();
                server.restart().unwrap();
            }
        },
    );
}

#[test]
fn an_answer_that_is_never_whole_is_told() {
    on_every_adapter(
        |options| options.unified_memory = Some(false),
        64,
        |device, server, next| {
            let frame = &server.core.frame;
            assert!(frame.is_sealed());
            for round in 0..6u32 {
                assert_eq!(next.call_timeout(&(round,), MINUTE).unwrap(), round + 1);
                let mut call = next.begin(&(round,));
                let (layout, answers) = (frame.layout(), frame.answers());
                let begun = Instant::now();
                while frame.is_awaited() {
                    assert!(begun.elapsed() < MINUTE);
                    std::thread::yield_now();
                }
                // Words of the answer are lost, at any port, once all have come.
                device.finish().unwrap();
                for port in 0..layout.ports {
                    let at = layout.results(port) + PREFIX * (round as usize % 2);
                    answers.store(at, answers.load(at) ^ 0x100);
                }
                let told = match round % 3 {
                    0 => call.wait(),
                    1 => pollster::block_on(&mut call),
                    _ => call.wait_timeout(MINUTE),
                };
                assert!(matches!(told, Err(CallError::Garbled { .. })), "{told:?}");
            }
            // Its ports are free again.
            for result in next.call_many(&(0..200u32).map(|x| (x,)).collect::<Vec<_>>()) {
                result.unwrap();
            }
        },
    );
}

#[test]
fn calls_that_were_taken_are_not_served_again() {
    let layout = PortLayout::new(4, 4);
    let frame = Frame::on_host(layout).unwrap();
    let post = |start| {
        Client::new(&frame, layout, start)
            .try_post(7, &[1])
            .unwrap()
    };
    let calls: Vec<_> = (0..3).map(post).collect();
    // The lease had answered the first, had taken another, and had not seen the third.
    let words = frame.words();
    for call in &calls[..2] {
        words.store(layout.lock(call.port), call.request);
    }
    words.store(layout.results(calls[0].port), 1);
    words.store(layout.reply(calls[0].port), calls[0].request);
    frame.give_up(true, 13, 5);
    let client = Client::new(&frame, layout, 0);
    assert!(client.is_answered(calls[0]) && client.is_answered(calls[1]));
    assert!(!client.is_answered(calls[2]));
    assert_eq!(client.try_take(calls[1], &mut []), Some([13, 5]));
    assert_eq!(
        client.try_take(calls[0], &mut []).map(|head| head[0]),
        Some(1)
    );
    // The port of a left and answered call goes on to the next call: the waiter for the former is woken.
    assert!(!client.is_over(calls[2]));
    let followed = Client::new(&frame, layout, calls[1].port).try_post(7, &[1]);
    let followed = followed.unwrap();
    assert_eq!(followed.port, calls[1].port);
    assert!(client.is_over(calls[1]) && !client.is_over(followed));
    frame.answer(followed.port, followed.request, [1, 0], &[]);
    assert!(!client.is_answered(calls[1]) && client.is_over(calls[1]));
    assert!(client.is_over(followed));
    assert!(frame.is_awaited());
    frame.give_up(false, 3, 0);
    assert!(!frame.is_awaited());
    assert_eq!(words.load(layout.lock(calls[2].port)), calls[2].request);
    assert_eq!(client.try_take(calls[2], &mut []), Some([3, 0]));
}
