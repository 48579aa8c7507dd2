//! Memory in which each word arrives separately: the writes of a side reach the other side later, every word in its own
//! order and no two in a common order, as was seen of host memory written by a device over a bus.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use proptest::prelude::*;

use super::client::Client;
use super::layout::{LINE, PREFIX, PortLayout, SEAL};
use super::protocol::CallStatus;
use super::seal::{mixed, mixed_all};
use super::server::{Dispatch, Server, Sweeper};
use super::words::{ClientWords, Words};

/// Words with the values written to each, where the reader may not have passed the first.
struct Late {
    written: RefCell<Vec<Vec<u32>>>,
    seen: RefCell<Vec<usize>>,
    /// Late words; others are seen at once.
    late: std::ops::Range<usize>,
    /// Decides the arrivals.
    chance: Cell<u64>,
    sealed: bool,
}

impl Late {
    fn new(len: usize, late: std::ops::Range<usize>, seed: u64, sealed: bool) -> Self {
        Self {
            written: RefCell::new(vec![vec![0]; len]),
            seen: RefCell::new(vec![0; len]),
            late,
            chance: Cell::new(seed | 1),
            sealed,
        }
    }

    /// A word with a seal of `sum` and the request at the mailbox `at`.
    fn seal(&self, packet: usize, words: &[u32], at: usize, request: u32) {
        let (head, payload) = words.split_at(2);
        let sum = mixed_all(packet, head).wrapping_add(mixed_all(packet + PREFIX, payload));
        let sum = sum.wrapping_add(mixed(at, request));
        self.store(packet + SEAL, sum);
    }
}

impl Words for Late {
    fn load(&self, index: usize) -> u32 {
        let written = &self.written.borrow()[index];
        let last = written.len() - 1;
        let seen = &mut self.seen.borrow_mut()[index];
        let mut chance = self.chance.get();
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        self.chance.set(chance);
        // Nothing arrives in half of all looks.
        *seen = match self.late.contains(&index) {
            true if chance & 1 == 0 => *seen,
            true => *seen + (chance >> 8) as usize % (last - *seen + 1),
            false => last,
        };
        written[*seen]
    }

    fn store(&self, index: usize, value: u32) {
        self.written.borrow_mut()[index].push(value);
    }

    fn is_sealed(&self) -> bool {
        self.sealed
    }
}

impl ClientWords for Late {
    fn swap(&self, index: usize, value: u32) -> u32 {
        let old = self.load(index);
        self.store(index, value);
        old
    }
}

/// Notes served calls.
#[derive(Default)]
struct Notes(RefCell<Vec<(u32, Vec<u32>)>>);

impl Dispatch for Notes {
    fn dispatch(&self, _: usize, opcode: u32, words: &[u32], _: &mut Vec<u32>) -> CallStatus {
        self.0.borrow_mut().push((opcode, words.to_vec()));
        CallStatus::Done
    }
}

const PAYLOAD: usize = 6;
/// Looks after which everything must have arrived.
const LOOKS: usize = 10_000;

/// Calls like a kernel's, in a row through a single port; returns the calls served.
fn served(calls: &[(u32, Vec<u32>)], seed: u64, sealed: bool) -> Vec<(u32, Vec<u32>)> {
    let layout = PortLayout::new(1, PAYLOAD);
    let words = Late::new(layout.words(), layout.clients(), seed, sealed);
    let server = Server::new(&words, layout, true);
    let (mut sweeper, notes) = (Sweeper::default(), Notes::default());
    let at = layout.arguments(0);
    for (request, (opcode, arguments)) in (1..).zip(calls) {
        let head = [*opcode, arguments.len() as u32];
        words.store_all(at, &head);
        words.store_all(at + PREFIX, arguments);
        let all: Vec<u32> = head.iter().chain(arguments).copied().collect();
        words.seal(at, &all, layout.request(0), request);
        words.store(layout.request(0), request);
        let looks = (0..LOOKS).find(|_| server.sweep(&mut sweeper, &notes) > 0);
        assert!(looks.is_some(), "call {request} was never served");
    }
    notes.0.into_inner()
}

/// Calls like a thread's to a kernel answering with `answers`; returns the thread's results.
fn taken(answers: &[(u32, [u32; PAYLOAD])], seed: u64, sealed: bool) -> Vec<(u32, [u32; PAYLOAD])> {
    let layout = PortLayout::new(1, PAYLOAD);
    let words = Late::new(layout.words(), layout.servers(), seed, sealed);
    let mut client = Client::new(&words, layout, 0);
    let at = layout.results(0);
    let mut got = Vec::new();
    for (status, results) in answers {
        let Some(posted) = client.try_post(7, &[]) else {
            panic!("the port is not free");
        };
        words.store_all(at, &[*status, 5]);
        words.store_all(at + PREFIX, results);
        let all: Vec<u32> = [*status, 5].iter().chain(results).copied().collect();
        // Of failures nobody asks for the results.
        let sealed = if *status == 1 { &all[..] } else { &all[..2] };
        words.seal(at, sealed, layout.reply(0), posted.request);
        words.store(layout.reply(0), posted.request);
        let mut results = [0xDEAD; PAYLOAD];
        let head = (0..LOOKS).find_map(|_| client.try_take(posted, &mut results));
        let Some(head) = head else {
            panic!("no answer to {}", posted.request);
        };
        got.push((head[0], results));
    }
    got
}

/// Many different calls, with recurring words.
fn many(seed: u32) -> Vec<(u32, Vec<u32>)> {
    let call = |i: u32| {
        let word = |k: u32| (i * 31 + k * 7 + seed) % 5;
        (i % 3, (0..i % (PAYLOAD as u32 + 1)).map(word).collect())
    };
    (0..20).map(call).collect()
}

proptest! {
    #[test]
    fn calls_are_served_when_all_their_words_have_arrived(
        calls in prop::collection::vec(
            (0..3u32, prop::collection::vec(0..4u32, 0..=PAYLOAD)), 1..20),
        seed in any::<u64>(),
    ) {
        prop_assert_eq!(served(&calls, seed, true), calls);
    }

    #[test]
    fn answers_are_taken_when_all_their_words_have_arrived(
        answers in prop::collection::vec((1..3u32, prop::array::uniform6(0..4u32)), 1..20),
        seed in any::<u64>(),
    ) {
        let got = taken(&answers, seed, true);
        for (got, expected) in got.iter().zip(&answers) {
            prop_assert_eq!(got.0, expected.0);
            prop_assert!(got.0 != 1 || got.1 == expected.1);
        }
        prop_assert_eq!(got.len(), answers.len());
    }
}

#[test]
fn without_seals_this_memory_leads_to_wrong_calls() {
    // Nearly every seed. Miri takes its time for each.
    let (seeds, most_right) = if cfg!(miri) { (1..4u64, 2) } else { (1..50, 8) };
    let right = (seeds.clone())
        .filter(|&seed| served(&many(seed as u32), seed << 20, false) == many(seed as u32));
    assert!(right.count() <= most_right);
    let answers: Vec<_> = (0..20u32).map(|i| (1, [i % 3; PAYLOAD])).collect();
    let right = seeds.filter(|&seed| taken(&answers, seed << 20, false) == answers);
    assert!(right.count() <= most_right);
}

#[test]
fn every_single_word_counts() {
    let layout = PortLayout::new(LINE, PAYLOAD);
    for at in [layout.request(3), layout.arguments(0), layout.results(9)] {
        let words = [0, 1, 2, 3, 0x8000_0000, u32::MAX, 0x9E37_79B1];
        for a in words {
            for b in words {
                assert_eq!(mixed(at, a) == mixed(at, b), a == b);
            }
            // Exchanged with its neighbour the word makes another packet.
            let b = a ^ 1;
            assert_ne!(mixed_all(at, &[a, b]), mixed_all(at, &[b, a]));
        }
    }
}

#[test]
fn packets_that_are_never_whole_are_no_calls() {
    let layout = PortLayout::new(2, PAYLOAD);
    let words = Late::new(layout.words(), 0..0, 1, true);
    let server = Server::new(&words, layout, true);
    let (mut sweeper, notes) = (Sweeper::default(), Notes::default());
    for (port, length) in [(0, 1), (1, u32::MAX)] {
        words.store_all(layout.arguments(port), &[7, length, 0, 0x1234]);
        words.store(layout.request(port), 1);
    }
    assert_eq!(server.sweep(&mut sweeper, &notes), 0);
    // The other port is served all the same.
    let at = layout.arguments(1);
    words.store_all(at, &[7, 1, 0, 0, 42]);
    words.seal(at, &[7, 1, 42], layout.request(1), 2);
    words.store(layout.request(1), 2);
    assert_eq!(server.sweep(&mut sweeper, &notes), 1);
    assert_eq!(notes.0.take(), [(7, vec![42])]);
    assert_eq!(words.load(layout.reply(0)), 0);
    // After a while an incomplete packet is no call, and its port is free again.
    let mut sweeper = Sweeper::waiting(Duration::ZERO);
    assert_eq!(server.sweep(&mut sweeper, &notes), 1);
    assert!(notes.0.take().is_empty());
    let results = layout.results(0);
    assert_eq!(words.load(layout.reply(0)), 1);
    assert_eq!(
        CallStatus::from_code(words.load(results)),
        CallStatus::Malformed
    );
    assert_eq!(words.load(results + 1), 0);
}
