//! Which mailboxes calls should have: the seed's machine, in which a call takes four writes of mailboxes (post, answer,
//! finish, release), or counting ones, in which the answer frees the port at once (`rpc::port::protocol`). A thread of
//! the host calls another one through words laid out as in a port, in both ways in turn; and with arguments of several
//! sizes. The last lines are medians: `<kind> <row> = <median> (<min>..<max>)`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// Calls of a measurement, and how often each is made.
const CALLS: u32 = 20_000;
const ROUNDS: usize = 11;

/// Words of payload that are measured.
const SIZES: [usize; 4] = [1, 12, 28, 124];

/// A mailbox on a cache line of its own, and the payload of the same writer.
#[repr(align(64))]
struct Outbox {
    mailbox: AtomicU32,
}

#[repr(align(64))]
struct Payload([AtomicU32; 128]);

struct Port {
    outboxes: [Outbox; 2],
    payloads: [Payload; 2],
    is_over: AtomicBool,
}

impl Port {
    fn new() -> Self {
        let payload = || Payload(std::array::from_fn(|_| AtomicU32::new(0)));
        let outbox = || Outbox {
            mailbox: AtomicU32::new(0),
        };
        Self {
            outboxes: [outbox(), outbox()],
            payloads: [payload(), payload()],
            is_over: AtomicBool::new(false),
        }
    }

    /// Waits until the other side's mailbox is `wanted`; false if it never will be.
    fn wait(&self, side: usize, wanted: impl Fn(u32) -> bool) -> bool {
        let mut turns = 0u32;
        while !wanted(self.outboxes[1 - side].mailbox.load(Ordering::Acquire)) {
            turns += 1;
            if turns.is_multiple_of(1000) {
                std::thread::yield_now();
            }
            if self.is_over.load(Ordering::Relaxed) {
                return false;
            }
        }
        true
    }

    fn write(&self, side: usize, words: usize, value: u32, mailbox: u32) {
        for word in &self.payloads[side].0[..words] {
            word.store(value, Ordering::Relaxed);
        }
        self.outboxes[side]
            .mailbox
            .store(mailbox, Ordering::Release);
    }

    fn read(&self, side: usize, words: usize) -> u32 {
        let words = self.payloads[1 - side].0[..words].iter();
        words.fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed))
    }
}

/// Seconds for [`CALLS`] calls with so many words either way.
fn measure(words: usize, is_seed: bool) -> f64 {
    let port = Port::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            loop {
                if !port.wait(1, |inbox| inbox != last) {
                    return;
                }
                last = port.outboxes[0].mailbox.load(Ordering::Acquire);
                // In the seed's machine a mailbox that went back to 0 carries nothing.
                if is_seed && last == 0 {
                    port.outboxes[1].mailbox.store(0, Ordering::Release);
                } else {
                    let sum = port.read(1, words);
                    port.write(1, words, sum.wrapping_add(1), last);
                }
            }
        });
        let begun = Instant::now();
        for call in 1..=CALLS {
            let mailbox = if is_seed { 1 } else { call };
            port.write(0, words, call, mailbox);
            port.wait(0, |inbox| inbox == mailbox);
            std::hint::black_box(port.read(0, words));
            if is_seed {
                port.outboxes[0].mailbox.store(0, Ordering::Release);
                port.wait(0, |inbox| inbox == 0);
            }
        }
        let took = begun.elapsed().as_secs_f64();
        port.is_over.store(true, Ordering::Relaxed);
        took
    })
}

fn main() {
    for words in SIZES {
        let mut measured: Vec<[f64; 2]> = (0..=ROUNDS)
            .map(|round| {
                // Whoever goes second finds warmer caches: take turns.
                match round % 2 {
                    0 => {
                        let seed = measure(words, true);
                        [seed, measure(words, false)]
                    }
                    _ => {
                        let counting = measure(words, false);
                        [measure(words, true), counting]
                    }
                }
            })
            .collect();
        measured.remove(0);
        let row = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            let (low, high) = (values[0], values[values.len() - 1]);
            format!("{:.3} ({low:.3}..{high:.3})", values[values.len() / 2])
        };
        let each = |took: f64| took / f64::from(CALLS) * 1e9;
        let ratios = measured.iter().map(|[seed, counting]| seed / counting);
        println!("ratio seed_{words}_words = {}", row(ratios.collect()));
        let times = measured.iter().map(|[_, counting]| each(*counting));
        println!("time counting_{words}_words_ns = {}", row(times.collect()));
    }
}
