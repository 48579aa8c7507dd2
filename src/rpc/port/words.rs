//! The shared words, whatever memory they are: live memory that a kernel sees, or memory of the host.

use std::sync::atomic::{AtomicU32, Ordering};

/// Words that both sides of a port see.
///
/// Words beyond the end read as 0 and are not written: indices are computed from sizes that this side keeps to
/// itself, so that none is beyond it, and nothing that the other side writes can change that.
pub(crate) trait Words {
    /// Reads a word, and acquires what its writer wrote before it.
    fn load(&self, index: usize) -> u32;
    /// Writes a word, and releases what this thread wrote before.
    fn store(&self, index: usize, value: u32);
}

/// Words whose memory the clients share, for their locks.
pub(crate) trait ClientWords: Words {
    /// Writes a word and tells what it was. Only for words of the clients: never across the bus.
    fn swap(&self, index: usize, value: u32) -> u32;
}

/// Words in the host's memory.
#[derive(Debug)]
pub(crate) struct HostWords(Box<[AtomicU32]>);

impl HostWords {
    /// `len` words, all 0.
    pub fn new(len: usize) -> Self {
        Self((0..len).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Words for HostWords {
    fn load(&self, index: usize) -> u32 {
        (self.0.get(index)).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, index: usize, value: u32) {
        if let Some(word) = self.0.get(index) {
            word.store(value, Ordering::Release);
        }
    }
}

impl ClientWords for HostWords {
    fn swap(&self, index: usize, value: u32) -> u32 {
        (self.0.get(index)).map_or(0, |word| word.swap(value, Ordering::AcqRel))
    }
}

impl<W: Words + ?Sized> Words for std::sync::Arc<W> {
    fn load(&self, index: usize) -> u32 {
        (**self).load(index)
    }

    fn store(&self, index: usize, value: u32) {
        (**self).store(index, value);
    }
}

impl<W: ClientWords + ?Sized> ClientWords for std::sync::Arc<W> {
    fn swap(&self, index: usize, value: u32) -> u32 {
        (**self).swap(index, value)
    }
}
