//! Rings without a device: counts at their ends, wrong counts, pieces around the end, and the text of the functions.

use std::cell::RefCell;
use std::ops::Range;

use super::item::{Direction, Kind, RingItem, is_name};
use super::protocol::{
    CLOSED, Consumer, ITEMS, Impossible, MASK, PUT, Producer, RingWords, Shape, TAKEN,
};
use crate::kernel::{KernelError, Program, ProgramMistake};

const POISON: u32 = 0xDEAD_BEEF;

/// Words of a single thread, and the fetched and sent ranges.
struct Words {
    words: RefCell<Vec<u32>>,
    moved: RefCell<Vec<(&'static str, Range<usize>)>>,
}

impl Words {
    fn new(shape: Shape) -> Self {
        let mut words = vec![POISON; shape.len()];
        for count in [PUT, TAKEN] {
            words[count] = 0;
            words[count + CLOSED] = 0;
        }
        Self {
            words: RefCell::new(words),
            moved: RefCell::default(),
        }
    }

    fn counting_from(self, count: u32) -> Self {
        self.write(PUT, count);
        self.write(TAKEN, count);
        self
    }

    fn write(&self, index: usize, value: u32) {
        self.words.borrow_mut()[index] = value;
    }
}

impl RingWords for Words {
    type Error = Impossible;

    fn look(&self, index: usize) -> Result<u32, Impossible> {
        Ok(self.words.borrow()[index])
    }

    fn publish(&self, index: usize, value: u32) -> Result<(), Impossible> {
        self.write(index, value);
        Ok(())
    }

    fn get(&self, index: usize, words: &mut [u32]) {
        words.copy_from_slice(&self.words.borrow()[index..][..words.len()]);
    }

    fn set(&self, index: usize, words: &[u32]) {
        self.words.borrow_mut()[index..][..words.len()].copy_from_slice(words);
    }

    fn fetch(&self, words: Range<usize>) -> Result<(), Impossible> {
        self.moved.borrow_mut().push(("fetch", words));
        Ok(())
    }

    fn send(&self, words: Range<usize>) -> Result<(), Impossible> {
        self.moved.borrow_mut().push(("send", words));
        Ok(())
    }
}

/// Every fill level, over and over: nothing more goes in than there are slots, and everything comes out in order.
#[test]
fn items_come_out_in_order_at_every_fill_level() {
    for (slots, item_words) in [(1, 1), (2, 3), (8, 16), (64, 5)] {
        let shape = Shape {
            slots,
            words: item_words,
        };
        let words = Words::new(shape);
        // The counts go around meanwhile.
        let begin = u32::MAX - slots;
        let words = words.counting_from(begin);
        let mut producer = Producer::counting_from(shape, begin);
        let mut consumer = Consumer::counting_from(shape, begin);
        let item = |number: u32| (0..item_words as u32).map(move |word| number * 100 + word);
        let (mut sent, mut came) = (0, 0);
        for fill in (1..=slots).chain((1..slots).rev()) {
            while producer.room(&words, 1).unwrap() > slots - fill {
                producer.write(&words, 0, &item(sent).collect::<Vec<_>>());
                producer.commit(&words, 1).unwrap();
                sent += 1;
            }
            assert_eq!(consumer.ready(&words, slots).unwrap(), sent - came);
            for _ in 0..=fill / 2 {
                let mut found = vec![POISON; item_words];
                consumer.read(&words, 0, &mut found);
                assert!(found.into_iter().eq(item(came)), "item {came} of {slots}");
                consumer.release(&words, 1).unwrap();
                came += 1;
            }
            producer.room(&words, slots).unwrap();
        }
        assert!(came >= slots);
    }
}

/// Memory not common to both sides is sent and fetched in the changed pieces, and no more.
#[test]
fn pieces_go_around_the_end() {
    let shape = Shape { slots: 4, words: 3 };
    let words = Words::new(shape);
    let (mut producer, mut consumer) = (Producer::new(shape), Consumer::new(shape));
    let take_moved = || std::mem::take(&mut *words.moved.borrow_mut());
    producer.commit(&words, 3).unwrap();
    assert_eq!(take_moved(), [("send", ITEMS..ITEMS + 9)]);
    assert_eq!(consumer.ready(&words, 1).unwrap(), 3);
    assert_eq!(take_moved(), [("fetch", ITEMS..ITEMS + 9)]);
    consumer.release(&words, 3).unwrap();
    assert_eq!(producer.room(&words, 4).unwrap(), 4);
    producer.commit(&words, 2).unwrap();
    let both = [ITEMS + 9..ITEMS + 12, ITEMS..ITEMS + 3];
    assert_eq!(take_moved(), both.clone().map(|piece| ("send", piece)));
    // Known items are not fetched again.
    assert_eq!(consumer.ready(&words, 1).unwrap(), 2);
    assert_eq!(consumer.ready(&words, 2).unwrap(), 2);
    assert_eq!(consumer.ready(&words, 4).unwrap(), 2);
    assert_eq!(take_moved(), both.map(|piece| ("fetch", piece)));
}

#[test]
fn impossible_counts_are_refused() {
    let shape = Shape { slots: 4, words: 1 };
    let words = Words::new(shape);
    let mut producer = Producer::new(shape);
    producer.commit(&words, 3).unwrap();
    for taken in [4, 5, u32::MAX, 0x8000_0000] {
        words.write(TAKEN, taken);
        assert_eq!(producer.room(&words, 4), Err(Impossible), "{taken}");
    }
    words.write(TAKEN, 2);
    assert_eq!(producer.room(&words, 4), Ok(3));
    // Taken items stay taken.
    words.write(TAKEN, 1);
    assert_eq!(producer.room(&words, 4), Err(Impossible));

    let words = Words::new(shape);
    let mut consumer = Consumer::new(shape);
    for put in [5, u32::MAX, 0x8000_0000] {
        words.write(PUT, put);
        assert_eq!(consumer.ready(&words, 1), Err(Impossible), "{put}");
    }
    words.write(PUT, 4);
    assert_eq!(consumer.ready(&words, 1), Ok(4));
    consumer.release(&words, 1).unwrap();
    words.write(PUT, 3);
    assert_eq!(consumer.ready(&words, 4), Err(Impossible));
}

fn text_of<T: RingItem>(direction: Direction) -> String {
    Kind::of::<T>(direction).functions("x", "@group(0) @binding(0)")
}

#[test]
fn functions_are_valid_for_every_kind_of_item() {
    let both = [Direction::FromHost, Direction::ToHost];
    let texts = both.into_iter().flat_map(|way| {
        [
            text_of::<u32>(way),
            text_of::<i32>(way),
            text_of::<f32>(way),
            text_of::<[f32; 1]>(way),
            text_of::<[i32; 2]>(way),
            text_of::<[f32; 3]>(way),
            text_of::<[u32; 4]>(way),
            text_of::<[f32; 16]>(way),
            text_of::<[u32; 64]>(way),
        ]
    });
    for text in texts {
        let main = "@compute @workgroup_size(1) fn main() {}";
        Program::new("ring.wgsl", format!("{text}\n{main}")).unwrap();
    }
    let text = text_of::<[f32; 3]>(Direction::FromHost);
    assert!(text.contains(&format!("[{MASK}u]")) && text.contains("-> vec3<f32>"));
    assert!(text.contains("tombolo_ring_from_host_f32x3_x: array<atomic<u32>>"));
}

#[test]
fn names_are_parts_of_identifiers_and_belong_to_one_ring() {
    for name in ["x", "Left2", "to_host", "a_"] {
        assert!(is_name(name), "{name}");
    }
    for name in ["", "_x", "2x", "a b", "ü", "a-b"] {
        assert!(!is_name(name), "{name}");
    }
    let builder = || {
        let text = "@compute @workgroup_size(1) fn main() { let r = ring_a_ready(); }";
        Program::builder().source("main.wgsl", text)
    };
    let mistake = |result| match result {
        Err(KernelError::Builder { mistake, .. }) => mistake,
        other => panic!("{other:?}"),
    };
    let twice = builder().ring_from_host::<u32>("a");
    assert!(twice.ring_from_host::<u32>("a").build().is_ok());
    let both = builder()
        .ring_from_host::<u32>("a")
        .ring_to_host::<u32>("a");
    assert!(matches!(
        mistake(both.build()),
        ProgramMistake::TwoRings { first, second }
            if first == "tombolo_ring_from_host_u32_a" && second == "tombolo_ring_to_host_u32_a"
    ));
    let unnamed = builder().ring_from_host::<u32>("a b").build();
    assert!(matches!(mistake(unnamed), ProgramMistake::RingName { name } if name == "a b"));
}
