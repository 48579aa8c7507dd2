//! Both sides of a ring under loom: the real protocol, with the orderings of Rust's memory model explored, and the
//! failures of other orders. The kernel's side follows the same steps (`shaders/ring_from_host.wgsl`,
//! `shaders/ring_to_host.wgsl`).

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::protocol::{CLOSED, Consumer, Impossible, PUT, Producer, RingWords, Shape, TAKEN};

const SHAPE: Shape = Shape { slots: 2, words: 2 };
/// The test's items: one more than there are slots.
const SENT: [[u32; 2]; 3] = [[10, 11], [20, 21], [30, 31]];

/// The used words, known to loom, and the orderings of the awaited words.
struct LoomWords {
    used: Vec<(usize, AtomicU32)>,
    look: Ordering,
    publish: Ordering,
}

impl LoomWords {
    fn new(look: Ordering, publish: Ordering) -> Self {
        let counts = [PUT, PUT + CLOSED, TAKEN, TAKEN + CLOSED];
        let items = SHAPE.item(0)..SHAPE.len();
        let used = counts.into_iter().chain(items);
        Self {
            used: used.map(|index| (index, AtomicU32::new(0))).collect(),
            look,
            publish,
        }
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        let found = self.used.iter().find(|(at, _)| *at == index);
        &found.expect("a word of the ring").1
    }
}

impl RingWords for LoomWords {
    type Error = Impossible;

    fn look(&self, index: usize) -> Result<u32, Impossible> {
        Ok(self.word(index).load(self.look))
    }

    fn publish(&self, index: usize, value: u32) -> Result<(), Impossible> {
        self.word(index).store(value, self.publish);
        Ok(())
    }

    fn get(&self, index: usize, words: &mut [u32]) {
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.word(index + at).load(Ordering::Relaxed);
        }
    }

    fn set(&self, index: usize, words: &[u32]) {
        for (at, &word) in words.iter().enumerate() {
            self.word(index + at).store(word, Ordering::Relaxed);
        }
    }
}

/// A side's way through the protocol for one item; whether there was an item, or room for an item.
struct Steps {
    put: fn(&mut Producer, &LoomWords, &[u32; 2]) -> bool,
    take: fn(&mut Consumer, &LoomWords) -> Option<[u32; 2]>,
    is_finished: fn(&mut Consumer, &LoomWords) -> bool,
    look: Ordering,
    publish: Ordering,
}

fn put(producer: &mut Producer, words: &LoomWords, item: &[u32; 2]) -> bool {
    let is_free = producer.room(words, 1).unwrap() > 0;
    if is_free {
        producer.write(words, 0, item);
        producer.commit(words, 1).unwrap();
    }
    is_free
}

fn take(consumer: &mut Consumer, words: &LoomWords) -> Option<[u32; 2]> {
    (consumer.ready(words, 1).unwrap() > 0).then(|| {
        let mut item = [0; 2];
        consumer.read(words, 0, &mut item);
        consumer.release(words, 1).unwrap();
        item
    })
}

fn is_finished(consumer: &mut Consumer, words: &LoomWords) -> bool {
    consumer.is_finished(words).unwrap()
}

const RIGHT: Steps = Steps {
    put,
    take,
    is_finished,
    look: Ordering::Acquire,
    publish: Ordering::Release,
};

/// A producer tries a few times and closes the ring, and a consumer looks a few times meanwhile: nothing is lost,
/// doubled, torn or out of order, and a finished ring has given everything.
fn explore(steps: Steps) {
    loom::model(move || {
        let words = Arc::new(LoomWords::new(steps.look, steps.publish));
        let producing = {
            let words = Arc::clone(&words);
            let put = steps.put;
            thread::spawn(move || {
                let mut producer = Producer::new(SHAPE);
                let mut sent = 0;
                for _ in 0..4 {
                    if sent < SENT.len() && put(&mut producer, &words, &SENT[sent]) {
                        sent += 1;
                    }
                }
                producer.close(&*words).unwrap();
                sent
            })
        };
        let mut consumer = Consumer::new(SHAPE);
        let mut came = Vec::new();
        let mut was_finished = None;
        for _ in 0..2 {
            if (steps.is_finished)(&mut consumer, &words) {
                was_finished = Some(came.len());
            }
            came.extend((steps.take)(&mut consumer, &words));
        }
        let sent = producing.join().unwrap();
        came.extend(std::iter::from_fn(|| (steps.take)(&mut consumer, &words)));
        assert_eq!(came, SENT[..sent]);
        assert!(was_finished.is_none_or(|count| count == sent));
        assert!((steps.is_finished)(&mut consumer, &words));
    });
}

#[test]
fn nothing_is_lost_doubled_torn_or_out_of_order() {
    explore(RIGHT);
}

#[test]
#[should_panic(expected = "left == right")]
fn a_count_shown_before_its_words_gives_old_words() {
    explore(Steps {
        put: |producer, words, item| {
            let is_free = producer.room(words, 1).unwrap() > 0;
            if is_free {
                // The slot is the next one until the count is shown, and the last one behind that.
                producer.commit(words, 1).unwrap();
                producer.write(words, u32::MAX, item);
            }
            is_free
        },
        ..RIGHT
    });
}

#[test]
#[should_panic(expected = "left == right")]
fn a_slot_given_back_before_it_is_read_gives_new_words() {
    explore(Steps {
        take: |consumer, words| {
            (consumer.ready(words, 1).unwrap() > 0).then(|| {
                let mut item = [0; 2];
                consumer.release(words, 1).unwrap();
                consumer.read(words, u32::MAX, &mut item);
                item
            })
        },
        ..RIGHT
    });
}

#[test]
#[should_panic(expected = "left == right")]
fn a_count_without_a_release_gives_old_words() {
    explore(Steps {
        publish: Ordering::Relaxed,
        ..RIGHT
    });
}

#[test]
#[should_panic(expected = "left == right")]
fn a_look_without_an_acquire_gives_old_words() {
    explore(Steps {
        look: Ordering::Relaxed,
        ..RIGHT
    });
}

#[test]
#[should_panic(expected = "was_finished")]
fn a_closing_looked_at_behind_the_count_loses_what_came_between() {
    explore(Steps {
        is_finished: |consumer, words| {
            let ready = consumer.ready(words, 1).unwrap();
            words.look(PUT + CLOSED).unwrap() != 0 && ready == 0
        },
        ..RIGHT
    });
}

#[test]
#[should_panic(expected = "Impossible")]
fn a_producer_that_does_not_look_writes_over_items() {
    explore(Steps {
        put: |producer, words, item| {
            producer.write(words, 0, item);
            producer.commit(words, 1).unwrap();
            true
        },
        ..RIGHT
    });
}
