//! The protocol of rings: the writer of each word, and the order of the writes.
//!
//! A ring has one producer and one consumer, the host on one side and an invocation of a kernel on the other. Each side
//! counts its put, or taken, items in a word of its own, written by no other side; counts go on for ever and wrap
//! around.
//!
//! ```text
//!   word 0      slots - 1                                       written once, before anybody looks
//!   32 | 33     items put       | 1: nothing more is put        written by the producer
//!   64 | 65     items taken     | 1: nothing more is taken      written by the consumer
//!   96 …        the slots, each with the words of one item
//! ```
//!
//! # How it works
//! 1. The producer looks at the count of taken items: free slots belong to the producer.
//! 2. The producer writes the words of items, and *then* publishes its count: a reader of the count sees the words.
//! 3. The consumer looks at the count of put items, and *then* reads the words.
//! 4. The consumer publishes its own count *behind* the last read: from then on the slots are the producer's.
//!
//! The word of a closed end is looked at *before* the count of the same side: items put before the closing are then
//! seen.
//!
//! Neither side waits for the other one, and a count of the other side is believed only where the count can be right.
//! The kernel's half is `shaders/ring_from_host.wgsl` and `shaders/ring_to_host.wgsl`. The order of these steps, with
//! the failures of other orders, is explored in `tests_loom`.

use std::ops::Range;

/// The word with the number of slots, less one.
pub(super) const MASK: usize = 0;
/// The producer's count.
pub(super) const PUT: usize = 32;
/// The consumer's count.
pub(super) const TAKEN: usize = 64;
/// The place of the word of a closed end, behind the count of its side.
pub(super) const CLOSED: usize = 1;
/// The first slot.
pub(super) const ITEMS: usize = 96;

/// A count impossible for any producer or consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Impossible;

/// The words of a ring, seen by both sides.
pub(super) trait RingWords {
    type Error: From<Impossible>;

    /// Reads a word of the other side, and acquires the other side's earlier writes.
    fn look(&self, index: usize) -> Result<u32, Self::Error>;

    /// Writes a word for the other side, and releases the own side's earlier writes.
    fn publish(&self, index: usize, value: u32) -> Result<(), Self::Error>;

    /// Reads words of items, in no order.
    fn get(&self, index: usize, words: &mut [u32]);

    /// Writes words of items, in no order.
    fn set(&self, index: usize, words: &[u32]);

    /// Brings the words of the other side's put items, where the memory is not common.
    fn fetch(&self, _words: Range<usize>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Sends words of items to the other side, where the memory is not common.
    fn send(&self, _words: Range<usize>) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// How many slots there are, a power of two, and how many words an item has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub slots: u32,
    pub words: usize,
}

impl Shape {
    /// All words of the ring.
    pub fn len(self) -> usize {
        ITEMS + self.slots as usize * self.words
    }

    /// The first word of the item with the given count.
    pub fn item(self, count: u32) -> usize {
        ITEMS + (count & (self.slots - 1)) as usize * self.words
    }

    /// The words of so many items, from the item with the count `first` on: in one piece, or in two around the end.
    fn pieces(self, first: u32, items: u32) -> impl Iterator<Item = Range<usize>> {
        let begin = self.item(first);
        let words = items as usize * self.words;
        let before = words.min(self.len() - begin);
        let pieces = [begin..begin + before, ITEMS..ITEMS + (words - before)];
        pieces.into_iter().filter(|piece| !piece.is_empty())
    }
}

/// The putting side.
#[derive(Debug)]
pub(super) struct Producer {
    shape: Shape,
    put: u32,
    /// The taken items at the producer's last look.
    taken: u32,
}

impl Producer {
    pub fn new(shape: Shape) -> Self {
        Self::counting_from(shape, 0)
    }

    /// Of a ring after `count` items.
    pub fn counting_from(shape: Shape, count: u32) -> Self {
        Self {
            shape,
            put: count,
            taken: count,
        }
    }

    fn known_room(&self) -> u32 {
        self.shape.slots - self.put.wrapping_sub(self.taken)
    }

    /// Free slots. Looks only if fewer than `wanted` are known to be free.
    pub fn room<W: RingWords>(&mut self, words: &W, wanted: u32) -> Result<u32, W::Error> {
        if self.known_room() < wanted {
            let taken = words.look(TAKEN)?;
            // Between the items taken before, and all items to take.
            if taken.wrapping_sub(self.taken) > self.put.wrapping_sub(self.taken) {
                return Err(Impossible.into());
            }
            self.taken = taken;
        }
        Ok(self.known_room())
    }

    /// Writes an item into a free slot, so many behind the next one.
    pub fn write<W: RingWords>(&self, words: &W, index: u32, item: &[u32]) {
        words.set(self.shape.item(self.put.wrapping_add(index)), item);
    }

    /// Shows the consumer so many written items.
    pub fn commit<W: RingWords>(&mut self, words: &W, items: u32) -> Result<(), W::Error> {
        for piece in self.shape.pieces(self.put, items) {
            words.send(piece)?;
        }
        let put = self.put.wrapping_add(items);
        words.publish(PUT, put)?;
        self.put = put;
        Ok(())
    }

    /// Puts nothing more.
    pub fn close<W: RingWords>(&self, words: &W) -> Result<(), W::Error> {
        words.publish(PUT + CLOSED, 1)
    }

    /// Whether the consumer takes nothing more.
    pub fn is_closed<W: RingWords>(&self, words: &W) -> Result<bool, W::Error> {
        Ok(words.look(TAKEN + CLOSED)? != 0)
    }
}

/// The taking side.
#[derive(Debug)]
pub(super) struct Consumer {
    shape: Shape,
    taken: u32,
    /// The put items at the consumer's last look.
    put: u32,
}

impl Consumer {
    pub fn new(shape: Shape) -> Self {
        Self::counting_from(shape, 0)
    }

    /// Of a ring after `count` items.
    pub fn counting_from(shape: Shape, count: u32) -> Self {
        Self {
            shape,
            taken: count,
            put: count,
        }
    }

    fn known(&self) -> u32 {
        self.put.wrapping_sub(self.taken)
    }

    /// Items ready. Looks only if fewer than `wanted` are known.
    pub fn ready<W: RingWords>(&mut self, words: &W, wanted: u32) -> Result<u32, W::Error> {
        if self.known() < wanted {
            let put = words.look(PUT)?;
            let ready = put.wrapping_sub(self.taken);
            // Not fewer than before, and no more than there are slots.
            if ready < self.known() || ready > self.shape.slots {
                return Err(Impossible.into());
            }
            for piece in self.shape.pieces(self.put, ready - self.known()) {
                words.fetch(piece)?;
            }
            self.put = put;
        }
        Ok(self.known())
    }

    /// Reads a ready item, so many behind the first one.
    pub fn read<W: RingWords>(&self, words: &W, index: u32, item: &mut [u32]) {
        words.get(self.shape.item(self.taken.wrapping_add(index)), item);
    }

    /// Gives the slots of so many items back to the producer.
    pub fn release<W: RingWords>(&mut self, words: &W, items: u32) -> Result<(), W::Error> {
        let taken = self.taken.wrapping_add(items);
        words.publish(TAKEN, taken)?;
        self.taken = taken;
        Ok(())
    }

    /// Takes nothing more.
    pub fn close<W: RingWords>(&self, words: &W) -> Result<(), W::Error> {
        words.publish(TAKEN + CLOSED, 1)
    }

    /// Whether the producer puts nothing more, and everything is taken.
    pub fn is_finished<W: RingWords>(&mut self, words: &W) -> Result<bool, W::Error> {
        // In this order: items put before the closing are then seen.
        Ok(words.look(PUT + CLOSED)? != 0 && self.ready(words, 1)? == 0)
    }
}
