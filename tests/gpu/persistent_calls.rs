//! The forms in which functions of servers are called, and what does not fit.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::mpsc;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, Mixer, builder, mix, mixer, start, until};
use bytemuck::{Pod, Zeroable};
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use pollster::block_on;
use tombolo::{
    HostServices, PersistentKernel, Program, Ptr,
    calls::CallStatus,
    kernel::KernelError,
    server::{CallError, ServerError},
};

cases![
    futures_and_batches_come_in_order,
    sequences_wider_than_the_ports_come_to_their_end,
    streams_are_pulled_as_they_are_served,
    words_of_any_number_go_through_a_handler,
    handlers_collect_later_what_the_host_answers,
    signatures_are_compared,
    programs_without_the_handler_are_refused,
    programs_beyond_the_device_are_refused,
];

fn futures_and_batches_come_in_order(f: &Fixture) {
    let (_server, function) = mixer(f);
    let calls: Vec<(u32, u32)> = (0..1000).map(|i| (i, i / 3)).collect();
    let expected: Vec<u32> = calls.iter().map(|&(x, y)| mix(x, y)).collect();
    let results = block_on(join_all(calls.iter().map(|call| function.begin(call))));
    let results: Vec<u32> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, expected);
    let results = function.call_many(&calls).into_iter().map(Result::unwrap);
    assert!(results.eq(expected.iter().copied()));
    assert_eq!(function.call_all(&calls).unwrap(), expected);
    assert!(function.call_all(&[]).unwrap().is_empty());
    let results = Iterator::map(function.sequence(calls.iter().copied(), 16), Result::unwrap);
    assert!(results.eq(expected.iter().copied()));
    let stream = function.sequence(calls.iter().copied(), 16).into_stream();
    let results: Vec<_> = block_on(stream.map(Result::unwrap).collect());
    assert_eq!(results, expected);
    // What comes out of another stream goes through one, too.
    let stream = stream::iter(calls.iter().copied());
    let stream = stream.map(|call| function.begin(&call)).buffered(16);
    let results: Vec<_> = block_on(stream.map(Result::unwrap).collect());
    assert_eq!(results, expected);
    assert!(function.call_many(&[]).is_empty());
    let begun = function.begin(&calls[7]);
    assert_eq!(begun.wait_timeout(MINUTE).unwrap(), expected[7]);
}

/// Runs `calls` on a thread of its own, since it may hang.
fn in_time(what: &str, calls: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        calls();
        let _ = sender.send(());
    });
    assert!(receiver.recv_timeout(MINUTE).is_ok(), "{what}");
}

/// Calls that are on their way and not asked for keep their ports: those that are asked for first have to have one.
fn sequences_wider_than_the_ports_come_to_their_end(f: &Fixture) {
    let server = start(builder(&f.device, MIX).handler("mix").ports(4));
    let function: Mixer = server.function("mix").unwrap();
    let calls = |thread: u32| (0..100u32).map(move |i| (i, thread));
    let check = move |thread: u32, results: Vec<Result<u32, CallError>>| {
        let results = results.into_iter().map(Result::unwrap);
        assert!(results.eq(calls(thread).map(|(x, y)| mix(x, y))));
    };
    // By hand: a window of calls that are waited for in the order in which they were begun, the last of them elsewhere.
    let mut begun: VecDeque<_> = calls(0).take(7).map(|call| function.begin(&call)).collect();
    for (x, y) in calls(0) {
        let result = begun.pop_front().unwrap().wait_timeout(MINUTE);
        assert_eq!(result.unwrap(), mix(x, y));
        if x + 7 < 100 {
            begun.push_back(function.begin(&(x + 7, y)));
        }
        if x == 96 {
            let last = begun.pop_back().unwrap();
            std::thread::spawn(move || last.wait_timeout(MINUTE).unwrap())
                .join()
                .unwrap();
            begun.push_back(function.begin(&(99, y)));
        }
    }
    for window in [3, 4, 5, 64] {
        let function = function.clone();
        in_time("one sequence", move || {
            check(1, function.sequence(calls(1), window).collect());
            let stream = function.sequence(calls(2), window).into_stream();
            check(2, block_on(stream.collect()));
        });
    }
    // Beside each other, none of which has all ports.
    in_time("sequences beside each other", move || {
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let function = &function;
                scope.spawn(move || {
                    let sequence = function.sequence(calls(thread), 3);
                    match thread % 2 {
                        0 => check(thread, sequence.collect()),
                        _ => check(thread, block_on(sequence.into_stream().collect())),
                    }
                });
            }
        });
    });
}

fn streams_are_pulled_as_they_are_served(f: &Fixture) {
    const PORTS: usize = 8;
    let server = start(builder(&f.device, MIX).handler("mix").ports(PORTS));
    let function: Mixer = server.function("mix").unwrap();
    for (window, ahead) in [(1, 1), (5, 5), (100, PORTS + 1)] {
        let pulled = Cell::new(0);
        let calls = (0u32..).map(|i| {
            pulled.set(pulled.get() + 1);
            (i, 7)
        });
        // Without end: nobody waits for the last one.
        let mut sequence = function.sequence(calls, window);
        assert_eq!(pulled.get(), 0);
        for taken in 0..60 {
            let result = sequence.next().unwrap().unwrap();
            assert_eq!(result, mix(taken as u32, 7));
            assert!(
                pulled.get() <= taken + ahead,
                "{} for {taken}",
                pulled.get()
            );
        }
        let mut stream = Box::pin(sequence.into_stream());
        for taken in 60..120 {
            let result = block_on(stream.next()).unwrap().unwrap();
            assert_eq!(result, mix(taken as u32, 7));
            assert!(
                pulled.get() <= taken + ahead,
                "{} for {taken}",
                pulled.get()
            );
        }
        // Dropped with calls on their way: all ports come back.
        drop(stream);
        let begun: Vec<_> = (0..PORTS as u32).map(|i| function.begin(&(i, 5))).collect();
        for (call, i) in begun.into_iter().rev().zip((0..PORTS as u32).rev()) {
            assert_eq!(call.wait_timeout(MINUTE).unwrap(), mix(i, 5));
        }
        for round in 0..PORTS as u32 * 3 {
            drop(function.sequence([(round, 1); 20], window).next());
            let result = function.call_timeout(&(round, 2), MINUTE).unwrap();
            assert_eq!(result, mix(round, 2));
        }
    }
    // Out of another stream, which is not always ready.
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    let results = receiver.map(|call| function.begin(&call)).buffered(PORTS);
    let results = std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..200 {
                sender.unbounded_send((i, 3)).unwrap();
                std::thread::yield_now();
            }
        });
        block_on(results.map(Result::unwrap).collect::<Vec<u32>>())
    });
    assert!(results.into_iter().eq((0..200).map(|i| mix(i, 3))));
    // The server ends: what is on its way is told, and the stream goes on telling so.
    let mut sequence = function.sequence((0..).map(|i| (i, 4)), PORTS);
    assert_eq!(sequence.next().unwrap().unwrap(), mix(0, 4));
    server.stop();
    let told = |results: &mut dyn Iterator<Item = Result<u32, CallError>>| {
        let mut results = results.take(3 * PORTS).skip_while(Result::is_ok).peekable();
        assert!(results.peek().is_some());
        assert!(results.all(|result| matches!(result, Err(CallError::Stopped { .. }))));
    };
    told(&mut sequence);
}

/// What was made of the words so far, as it travels from call to call.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable)]
struct Digest {
    count: u32,
    state: u32,
}

/// Words in packets, one call after the other, each of which is given what came of the one before.
fn words_of_any_number_go_through_a_handler(f: &Fixture) {
    const PACKET: usize = 24;
    let source = format!(
        "{MIX}
        struct Digest {{ count: u32, state: u32 }}
        fn absorb(digest: Digest, words: array<u32, {PACKET}>, count: u32) -> Digest {{
            var next = digest;
            for (var i = 0u; i < count; i++) {{
                next.state = mix(next.state, words[i]);
                next.count += 1u;
            }}
            return next;
        }}
        fn draw(digest: Digest) -> array<u32, {}> {{
            var drawn: array<u32, {}>;
            var next = digest;
            for (var i = 0u; i < {PACKET}u; i++) {{
                next.state = mix(next.state, next.count);
                next.count += 1u;
                drawn[i + 2u] = next.state;
            }}
            drawn[0] = next.count;
            drawn[1] = next.state;
            return drawn;
        }}",
        PACKET + 2,
        PACKET + 2
    );
    let server = builder(&f.device, &source)
        .handler("absorb")
        .handler("draw");
    let server = start(server.ports(6));
    let absorb = server
        .function::<(Digest, [u32; PACKET], u32), Digest>("absorb")
        .unwrap();
    let draw = server
        .function::<(Digest,), [u32; PACKET + 2]>("draw")
        .unwrap();
    // From the server, as many as are wanted.
    let mut state = Digest { count: 3, state: 5 };
    let packets = std::iter::from_fn(|| {
        let drawn = draw.call_timeout(&(state,), MINUTE).unwrap();
        let [count, next, words @ ..] = drawn;
        state = Digest { count, state: next };
        Some(words)
    });
    let words: Vec<u32> = packets.flatten().take(200).collect();
    let mut last = 5;
    for (word, at) in words.into_iter().zip(3..) {
        last = mix(last, at);
        assert_eq!(word, last, "{at}");
    }
    // And to it.
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let absorb = &absorb;
            scope.spawn(move || {
                for len in [0, 1, PACKET - 1, PACKET, PACKET + 1, 500] {
                    let words: Vec<u32> = (0..len as u32).map(|i| mix(i, thread)).collect();
                    let packets = words.chunks(PACKET).map(|chunk| {
                        let mut packet = [0; PACKET];
                        packet[..chunk.len()].copy_from_slice(chunk);
                        (packet, chunk.len() as u32)
                    });
                    let digest =
                        { packets }.try_fold(Digest::default(), |digest, (words, count)| {
                            absorb.call_timeout(&(digest, words, count), MINUTE)
                        });
                    let state = words.iter().fold(0, |state, &word| mix(state, word));
                    let count = len as u32;
                    assert_eq!(digest.unwrap(), Digest { count, state });
                }
            });
        }
    });
}

/// What goes in every tier: no handler waits, and the ticket travels through the caller.
fn handlers_collect_later_what_the_host_answers(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn host_mix(x: u32, y: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = "
        fn ask(x: u32) -> u32 { return host_mix_begin(x, 9u); }
        fn answer(ticket: u32) -> vec2<u32> {
            let reply = host_mix_collect(ticket);
            return vec2(reply.status, reply.value);
        }";
    let program = Program::builder()
        .source("server.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let server = PersistentKernel::builder(&f.device, &program).services(&services);
    let server = start(server.handler("ask").handler("answer"));
    let ask = server.function::<(u32,), u32>("ask").unwrap();
    let answer = server.function::<(u32,), [u32; 2]>("answer").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (ask, answer) = (&ask, &answer);
            scope.spawn(move || {
                for x in thread * 50..thread * 50 + 50 {
                    let ticket = ask.call_timeout(&(x,), MINUTE).unwrap();
                    assert_ne!(ticket, 0, "{x}");
                    until("the host does not answer", || {
                        let [status, value] = answer.call_timeout(&(ticket,), MINUTE).unwrap();
                        if status == CallStatus::Pending.code() {
                            return false;
                        }
                        assert_eq!([status, value], [CallStatus::Done.code(), mix(x, 9)]);
                        true
                    });
                    // Each ticket is good for one answer.
                    let again = answer.call_timeout(&(ticket,), MINUTE).unwrap();
                    assert_eq!(again[0], CallStatus::NoTicket.code());
                }
            });
        }
    });
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
    let long = "fn f(x: array<u32, 40000>) {}";
    let error = builder(&f.device, long).handler("f").start().unwrap_err();
    assert!(
        matches!(&error, ServerError::TooLong { handler, bytes: 160_000, .. } if handler == "f"),
        "{error}"
    );
    let error = builder(&f.device, MIX)
        .handler("mix")
        .ports(0)
        .start()
        .unwrap_err();
    assert!(
        matches!(error, ServerError::Ports { ports: 0, .. }),
        "{error}"
    );
    for callers in [17, usize::MAX] {
        let error = builder(&f.device, MIX).handler("mix").callers(callers);
        let error = error.start().unwrap_err();
        assert!(
            matches!(error, ServerError::Callers { callers: of, limit: 16 } if of == callers),
            "{error}"
        );
    }
    let error = builder(&f.device, MIX).start().unwrap_err();
    assert!(matches!(error, ServerError::NoHandlers), "{error}");
    let blind = f.open(|options| options.live_memory = false);
    let error = builder(&blind, MIX).start().unwrap_err();
    assert!(matches!(error, ServerError::NoHandlers), "{error}");
    let server = builder(&blind, MIX).handler("mix").start().unwrap();
    assert_eq!(server.tier(), tombolo::device::Tier::Sliced);
}

fn programs_beyond_the_device_are_refused(f: &Fixture) {
    let source = "var<workgroup> large: array<u32, 1048576>;
        fn f(x: u32) -> u32 { large[x] = x; return large[x + 1u]; }";
    let error = builder(&f.device, source).group_handler("f").start();
    let error = error.map(drop).unwrap_err();
    assert!(
        matches!(&error, ServerError::Kernel(KernelError::Limit { .. })),
        "{error}"
    );
}
