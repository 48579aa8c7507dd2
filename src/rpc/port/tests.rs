//! Loopback: threads of the host on both ends, over memory of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::client::Client;
use super::layout::{BEGUN, PortLayout, SEAL};
use super::protocol::CallStatus;
use super::server::{Dispatch, Server, Sweeper};
use super::words::{HostWords, host_words};

/// Counts each call, and answers with the sum and the first argument.
struct Sums(Vec<AtomicU32>);

impl Dispatch for Sums {
    fn dispatch(
        &self,
        _port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        if opcode != 7 {
            return CallStatus::Unknown;
        }
        let sum = arguments
            .iter()
            .fold(0u32, |sum, &word| sum.wrapping_add(word));
        results.extend([sum, arguments[0]]);
        self.0[arguments[0] as usize].fetch_add(1, Ordering::Relaxed);
        CallStatus::Done
    }
}

/// Calls until there is an answer. Every wait has a deadline.
fn call(
    client: &mut Client<Arc<HostWords>>,
    opcode: u32,
    arguments: &[u32],
    results: &mut [u32],
) -> CallStatus {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut posted = None;
    loop {
        match posted {
            None => posted = client.try_post(opcode, arguments),
            Some(call) => {
                if let Some(status) = client.try_collect(call, results) {
                    return status;
                }
            }
        }
        assert!(Instant::now() < deadline, "no answer");
        std::thread::yield_now();
    }
}

/// `clients` clients, shared out to `threads` threads, make `calls` calls each over `ports` ports.
fn loopback(ports: usize, clients: usize, threads: usize, servers: usize, calls: usize) {
    // Miri takes its time for each look at a mailbox, and tries other orders of threads than a processor.
    let (ports, clients, threads, calls) = match cfg!(miri) {
        true => (ports.min(4), clients.min(4), 2, 2),
        false => (ports, clients, threads, calls),
    };
    let layout = PortLayout::new(ports, 8);
    let words = host_words(layout.words());
    let server = Server::new(Arc::clone(&words), layout, false);
    let sums = Sums((0..clients * calls).map(|_| AtomicU32::new(0)).collect());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..servers {
            scope.spawn(|| {
                let mut sweeper = Sweeper::default();
                while !done.load(Ordering::Acquire) {
                    if server.sweep(&mut sweeper, &sums) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let words = &words;
                scope.spawn(move || {
                    let own = (0..clients).filter(|client| client % threads == thread);
                    let mut own: Vec<_> = own
                        .map(|client| (client, Client::new(Arc::clone(words), layout, client)))
                        .collect();
                    for round in 0..calls {
                        for (number, client) in &mut own {
                            let id = (*number * calls + round) as u32;
                            let mut results = [0; 2];
                            let status = call(client, 7, &[id, 5, u32::MAX], &mut results);
                            assert_eq!(status, CallStatus::Done);
                            assert_eq!(results, [id + 4, id]);
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        done.store(true, Ordering::Release);
        assert!(results.iter().all(Result::is_ok), "a client failed");
    });
    for count in &sums.0 {
        assert_eq!(count.load(Ordering::Relaxed), 1, "each call is served once");
    }
}

#[test]
fn a_thousand_clients_call_through_few_ports() {
    loopback(16, 1024, 8, 2, 64);
}

#[test]
fn one_port_serves_everybody() {
    loopback(1, 8, 4, 2, 500);
}

#[test]
fn as_many_ports_as_clients() {
    loopback(64, 64, 4, 1, 200);
}

#[test]
fn calls_in_flight_fill_the_ports_and_no_more() {
    let layout = PortLayout::new(5, 4);
    let words = host_words(layout.words());
    let server = Server::new(Arc::clone(&words), layout, false);
    let mut client = Client::new(Arc::clone(&words), layout, 3);
    let sums = Sums((0..100).map(|_| AtomicU32::new(0)).collect());
    let posted: Vec<_> = (0..5).map(|i| client.try_post(7, &[i]).unwrap()).collect();
    assert_eq!(client.try_post(7, &[9]), None);
    assert_eq!(client.try_collect(posted[0], &mut []), None);
    let mut sweeper = Sweeper::default();
    assert_eq!(server.sweep(&mut sweeper, &sums), 5);
    assert_eq!(server.sweep(&mut sweeper, &sums), 0);
    // A left call frees its port without being collected.
    client.leave(posted[4]);
    assert!(client.try_post(7, &[10]).is_some());
    for (index, call) in posted.iter().enumerate().take(4) {
        let mut results = [0; 2];
        assert_eq!(
            client.try_collect(*call, &mut results),
            Some(CallStatus::Done)
        );
        assert_eq!(results, [index as u32; 2]);
    }
}

#[test]
fn a_call_that_was_left_keeps_its_port_until_it_is_served() {
    let layout = PortLayout::new(1, 4);
    let words = host_words(layout.words());
    let server = Server::new(Arc::clone(&words), layout, false);
    let mut client = Client::new(Arc::clone(&words), layout, 0);
    let sums = Sums((0..4).map(|_| AtomicU32::new(0)).collect());
    let call = client.try_post(7, &[1]).unwrap();
    client.leave(call);
    assert_eq!(client.try_post(7, &[2]), None);
    assert_eq!(server.sweep(&mut Sweeper::default(), &sums), 1);
    assert!(client.try_post(7, &[2]).is_some());
    assert_eq!(sums.0[1].load(Ordering::Relaxed), 1);
}

#[test]
fn sweeps_begin_behind_the_port_served_last() {
    /// Records the first argument of each call.
    struct Order(std::sync::Mutex<Vec<u32>>);
    impl Dispatch for Order {
        fn dispatch(&self, _: usize, _: u32, arguments: &[u32], _: &mut Vec<u32>) -> CallStatus {
            self.0.lock().unwrap().push(arguments[0]);
            CallStatus::Done
        }
    }
    let layout = PortLayout::new(4, 4);
    let words = host_words(layout.words());
    let server = Server::new(Arc::clone(&words), layout, false);
    let order = Order(std::sync::Mutex::default());
    let mut sweeper = Sweeper::default();
    let mut client = Client::new(Arc::clone(&words), layout, 2);
    let first = client.try_post(1, &[2]).unwrap();
    server.sweep(&mut sweeper, &order);
    client.try_collect(first, &mut []);
    // The client's search is stable, the server's goes on at port 3.
    let mut posted = Vec::new();
    for name in [2, 3, 0, 1] {
        posted.push(client.try_post(1, &[name]).unwrap());
    }
    server.sweep(&mut sweeper, &order);
    assert_eq!(*order.0.lock().unwrap(), [2, 3, 0, 1, 2]);
}

/// Notes some words, when it serves a call. Those with numbers below 100 are quick.
struct Watch {
    words: Arc<HostWords>,
    at: Vec<usize>,
    seen: std::sync::Mutex<Vec<(u32, Vec<u32>)>>,
}

impl Watch {
    fn new(words: &Arc<HostWords>, at: impl Iterator<Item = usize>) -> Self {
        Self {
            words: Arc::clone(words),
            at: at.collect(),
            seen: std::sync::Mutex::default(),
        }
    }
}

impl Dispatch for Watch {
    fn dispatch(&self, _: usize, opcode: u32, _: &[u32], _: &mut Vec<u32>) -> CallStatus {
        let words = self
            .at
            .iter()
            .map(|at| self.words[*at].load(Ordering::Acquire));
        self.seen.lock().unwrap().push((opcode, words.collect()));
        CallStatus::Done
    }

    fn is_quick(&self, opcode: u32) -> bool {
        opcode < 100
    }
}

#[test]
fn answers_are_kept_back_for_quick_calls_alone() {
    let layout = PortLayout::new(4, 4);
    let words = host_words(layout.words());
    let server = Server::new(Arc::clone(&words), layout, true);
    let watch = Watch::new(&words, (0..4).map(|port| layout.reply(port)));
    let mut client = Client::new(words, layout, 0);
    let posted: Vec<_> = [1, 2, 100, 3]
        .map(|opcode| client.try_post(opcode, &[]).unwrap())
        .into();
    // The sweep begins behind port 0.
    assert_eq!(server.sweep(&mut Sweeper::default(), &watch), 4);
    let seen = watch.seen.into_inner().unwrap();
    let expected: [(u32, [u32; 4]); 4] = [
        (2, [0, 0, 0, 0]),
        (100, [0, 1, 0, 0]),
        (3, [0, 1, 1, 0]),
        (1, [0, 1, 1, 1]),
    ];
    assert_eq!(
        seen,
        expected.map(|(opcode, replies)| (opcode, replies.to_vec()))
    );
    for call in posted {
        assert_eq!(client.try_collect(call, &mut []), Some(CallStatus::Done));
    }
}

#[test]
fn quick_calls_are_begun_together_and_others_alone() {
    let layout = PortLayout::new(6, 4);
    let words = host_words(layout.words());
    let server = Server::new(Arc::clone(&words), layout, true).with_withdrawal(true);
    let watch = Watch::new(&words, (0..6).map(|port| layout.results(port) + BEGUN));
    let mut client = Client::new(Arc::clone(&words), layout, 1);
    let posted: Vec<_> = [1, 2, 3, 100, 4]
        .map(|opcode| client.try_post(opcode, &[]).unwrap())
        .into();
    words[layout.arguments(2) + SEAL].store(1, Ordering::Release);
    // The sweep begins behind port 0.
    assert_eq!(server.sweep(&mut Sweeper::default(), &watch), 5);
    let seen = watch.seen.into_inner().unwrap();
    let expected: [(u32, [u32; 6]); 4] = [
        (1, [0, 1, 1, 1, 0, 0]),
        (3, [0, 1, 1, 1, 0, 0]),
        (100, [0, 1, 1, 1, 1, 0]),
        (4, [0, 1, 1, 1, 1, 1]),
    ];
    assert_eq!(
        seen,
        expected.map(|(opcode, notes)| (opcode, notes.to_vec()))
    );
    let statuses = posted
        .into_iter()
        .map(|call| client.try_collect(call, &mut []));
    let done = Some(CallStatus::Done);
    assert!(statuses.eq([done, Some(CallStatus::Busy), done, done, done]));
}

#[test]
fn busy_ports_are_looked_at_between_sweeps() {
    let layout = PortLayout::new(100, 4);
    let words = host_words(layout.words());
    let server = Server::new(Arc::clone(&words), layout, true);
    let sums = Sums((0..8).map(|_| AtomicU32::new(0)).collect());
    let mut sweeper = Sweeper::default();
    let call = |port: usize, id: u32| {
        let mut client = Client::new(Arc::clone(&words), layout, port);
        client.try_post(7, &[id]).unwrap();
    };
    call(40, 0);
    call(99, 1);
    assert_eq!(server.sweep(&mut sweeper, &sums), 2);
    // Neighbours of the callers, and an outsider.
    call(41, 2);
    call(96, 3);
    call(70, 4);
    assert_eq!(server.glance(&mut sweeper, &sums), 2);
    assert_eq!(server.sweep(&mut sweeper, &sums), 1);
    call(71, 5);
    assert_eq!(server.glance(&mut sweeper, &sums), 1);
    for (id, count) in sums.0.iter().enumerate() {
        assert_eq!(count.load(Ordering::Relaxed), u32::from(id < 6), "{id}");
    }
}
