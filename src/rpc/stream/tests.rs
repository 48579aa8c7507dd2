use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use proptest::prelude::*;

use super::*;

/// Adds the words put, and gives them back in reverse.
struct Echo {
    words: Vec<u32>,
    dropped: Arc<AtomicU32>,
}

impl CallStream for Echo {
    type Output = u32;

    fn put(&mut self, words: &[u32]) {
        assert!(!words.contains(&13), "on purpose");
        self.words.extend(words);
    }

    fn get(&mut self, room: usize, words: &mut Vec<u32>) {
        let from = self.words.len().saturating_sub(room);
        words.extend(self.words.drain(from..).rev());
    }

    fn close(self) -> u32 {
        self.words.len() as u32
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn echo(dropped: &Arc<AtomicU32>) -> Open {
    let dropped = Arc::clone(dropped);
    Box::new(move |words| {
        Box::new(Echo {
            words: words.to_vec(),
            dropped: Arc::clone(&dropped),
        })
    })
}

#[test]
fn packets_of_streams_that_are_not_open_are_malformed() {
    let dropped = Arc::default();
    let open = echo(&dropped);
    let sessions = Sessions::new(2, 4);
    let mut results = Vec::new();
    let mut serve = |port, base, packet, words: &[u32]| {
        results.clear();
        let status = sessions.serve(port, (base, packet), &open, words, &mut results);
        (status, results.clone())
    };
    use Packet::{Close, Get, Open, Put};
    for packet in [Put, Get, Close] {
        assert_eq!(serve(0, 8, packet, &[]), (CallStatus::Malformed, vec![]));
    }
    assert_eq!(serve(2, 8, Open, &[1]), (CallStatus::Malformed, vec![]));
    assert_eq!(serve(0, 8, Open, &[1]), (CallStatus::Done, vec![]));
    // Neither another port nor another function has the stream.
    for (port, base) in [(1, 8), (0, 12)] {
        assert_eq!(
            serve(port, base, Put, &[7]),
            (CallStatus::Malformed, vec![])
        );
    }
    assert_eq!(serve(0, 8, Put, &[2, 3, 4, 5]), (CallStatus::Done, vec![]));
    assert_eq!(serve(0, 8, Get, &[]), (CallStatus::Done, vec![5, 4, 3, 2]));
    assert_eq!(serve(0, 8, Close, &[]), (CallStatus::Done, vec![1]));
    assert_eq!(serve(0, 8, Close, &[]), (CallStatus::Malformed, vec![]));
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    // A stream left behind goes when the port is opened again, or used for something else.
    serve(0, 8, Open, &[]);
    serve(0, 8, Open, &[]);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    // A panicking stream is gone.
    assert_eq!(serve(0, 8, Put, &[13]), (CallStatus::Panicked, vec![]));
    assert_eq!(serve(0, 8, Put, &[1]), (CallStatus::Malformed, vec![]));
    serve(1, 8, Open, &[]);
    sessions.abandon(1);
    sessions.abandon(9);
    assert_eq!(dropped.load(Ordering::Relaxed), 4);
}

proptest! {
    /// Any packets in any order, against a model of the open streams of each port.
    #[test]
    fn sessions_are_what_a_model_of_them_is(
        steps in prop::collection::vec((0usize..3, 0u32..2, 0u32..5, prop::collection::vec(0u32..12, 0..5)), 0..200)
    ) {
        let dropped = Arc::default();
        let open = echo(&dropped);
        let sessions = Sessions::new(3, 3);
        let mut model: [Option<(u32, Vec<u32>)>; 3] = Default::default();
        for (port, base, kind, words) in steps {
            let base = base * 16;
            let mut results = Vec::new();
            if kind == 4 {
                sessions.abandon(port);
                model[port] = None;
                continue;
            }
            let Some(packet) = Packet::of(base, base ^ kind) else { panic!("{kind}") };
            let status = sessions.serve(port, (base, packet), &open, &words, &mut results);
            let own = model[port].as_mut().filter(|(known, _)| *known == base).map(|(_, held)| held);
            let expected = match (packet, own) {
                (Packet::Open, _) => {
                    model[port] = Some((base, words));
                    Some(vec![])
                }
                (_, None) => None,
                (Packet::Put, Some(held)) => {
                    held.extend(words);
                    Some(vec![])
                }
                (Packet::Get, Some(held)) => {
                    held.extend(words);
                    let count = held.len().min(3);
                    let got = held.drain(held.len() - count..).rev().collect();
                    Some(got)
                }
                (Packet::Close, Some(held)) => {
                    let len = (held.len() + words.len()) as u32;
                    model[port] = None;
                    Some(vec![len])
                }
            };
            match expected {
                Some(expected) => prop_assert_eq!((status, results), (CallStatus::Done, expected)),
                None => prop_assert_eq!((status, results), (CallStatus::Malformed, vec![])),
            }
        }
    }
}

#[test]
fn what_is_got_fits_the_packet() {
    struct Flood;
    impl CallStream for Flood {
        type Output = ();
        fn get(&mut self, room: usize, words: &mut Vec<u32>) {
            words.resize(room * 2, 7);
        }
        fn close(self) {}
    }
    let open: Open = Box::new(|_| Box::new(Flood));
    let sessions = Sessions::new(1, 5);
    let mut results = Vec::new();
    sessions.serve(0, (0, Packet::Open), &open, &[], &mut results);
    sessions.serve(0, (0, Packet::Get), &open, &[], &mut results);
    assert_eq!(results, [7; 5]);
}

#[path = "../port/tests_streams.rs"]
mod hostile;

// Names the driver expects in its parent.
use crate::rpc::{port, stream};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// At the dispatcher where kernels' calls arrive, too.
    #[test]
    fn hostile_packets_harm_nobody_else(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        let tapes = Arc::new(hostile::Tapes::default());
        let opener = || {
            let tapes = Arc::clone(&tapes);
            move |word: u32| hostile::Tape::open(&tapes, word)
        };
        let services = crate::HostServices::builder()
            .call("fn sum(a: u32, b: u32) -> u32", |a: u32, b: u32| a.wrapping_add(b))
            .stream("fn first(word: u32) -> u32", opener())
            .stream("fn second(word: u32) -> u32", opener())
            .start()
            .unwrap();
        // The services' own threads have nothing to do with this.
        services.stop();
        let numbers = hostile::Numbers {
            call: crate::kernel::calls::opcode("sum"),
            streams: ["first", "second"].map(crate::kernel::calls::opcode),
        };
        let layout = hostile::layout();
        let sessions = Sessions::new(layout.ports, layout.payload);
        let known = crate::rpc::dispatcher::Known::new(&services.shared);
        let dispatcher = crate::rpc::dispatcher::Dispatcher::new(&services.shared, 0, &known);
        let port_set = dispatcher.at(&sessions);
        hostile::drive(&bytes, numbers, &tapes, &port_set, |port| sessions.abandon(port));
    }
}
