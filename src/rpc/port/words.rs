//! The shared words, in any memory: live memory seen by a kernel, or memory of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::layout::LINE;

/// Words seen by both sides of a port.
///
/// Words beyond the end read as 0 and are not written: indices are computed from sizes private to this side, so none is
/// beyond the end, whatever the other side writes.
pub(crate) trait Words {
    /// Reads a word, and acquires its writer's earlier writes.
    fn load(&self, index: usize) -> u32;
    /// Writes a word, and releases the thread's earlier writes.
    fn store(&self, index: usize, value: u32);

    /// Whether the other side's writes may arrive in any order, and are sealed ([`super::seal`]).
    fn is_sealed(&self) -> bool {
        false
    }

    /// Reads consecutive words, each as [`Words::load`] does.
    fn load_all(&self, index: usize, words: &mut [u32]) {
        for (word, index) in words.iter_mut().zip(index..) {
            *word = self.load(index);
        }
    }

    /// Writes consecutive words, each as [`Words::store`] does.
    fn store_all(&self, index: usize, words: &[u32]) {
        for (&word, index) in words.iter().zip(index..) {
            self.store(index, word);
        }
    }

    /// Writes the words at `index` with a bit in `among`, each as [`Words::store`] does.
    fn store_among(&self, index: usize, words: &[u32; LINE], among: u32) {
        let mut left = among & (u32::MAX >> (u32::BITS - LINE as u32));
        while left != 0 {
            let word = left.trailing_zeros() as usize;
            left &= left - 1;
            self.store(index + word, words[word]);
        }
    }

    /// The words of the cache line at `index` differing from the words of `known`, as bits: a look without
    /// consequences.
    fn differing(&self, index: usize, known: &[AtomicU32; LINE]) -> u32 {
        let differs = |(word, known): (usize, &AtomicU32)| {
            let differs = self.load(index + word) != known.load(Ordering::Relaxed);
            u32::from(differs) << word
        };
        known.iter().enumerate().map(differs).sum()
    }
}

/// Words whose memory the clients share, for their locks.
pub(crate) trait ClientWords: Words {
    /// Writes a word and returns the old value. Only for words of the clients: never across the bus.
    fn swap(&self, index: usize, value: u32) -> u32;
}

/// Words in the host's memory; also live memory looks like this to the host.
pub(crate) type HostWords = [AtomicU32];

/// `len` words, all 0.
#[cfg(any(test, fuzzing))]
pub(crate) fn host_words(len: usize) -> Arc<HostWords> {
    (0..len).map(|_| AtomicU32::new(0)).collect()
}

impl Words for HostWords {
    fn load(&self, index: usize) -> u32 {
        (self.get(index)).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, index: usize, value: u32) {
        if let Some(word) = self.get(index) {
            word.store(value, Ordering::Release);
        }
    }

    fn load_all(&self, index: usize, words: &mut [u32]) {
        let from = self.get(index..).unwrap_or_default();
        // Words beyond the end read as 0.
        let mut from = from.iter().map(|word| word.load(Ordering::Acquire));
        words.fill_with(|| from.next().unwrap_or(0));
    }

    fn store_all(&self, index: usize, words: &[u32]) {
        let to = self.get(index..).unwrap_or_default();
        for (to, &word) in to.iter().zip(words) {
            to.store(word, Ordering::Release);
        }
    }

    fn differing(&self, index: usize, known: &[AtomicU32; LINE]) -> u32 {
        let line = self.get(index..).and_then(<[_]>::first_chunk::<LINE>);
        let Some(line) = line else {
            return 0;
        };
        let differ = |word: usize| {
            let (a, b) = (&line[word], &known[word]);
            a.load(Ordering::Relaxed) ^ b.load(Ordering::Relaxed)
        };
        // Nearly always none does.
        if (0..LINE).fold(0, |all, word| all | differ(word)) == 0 {
            return 0;
        }
        (0..LINE).fold(0, |mask, word| mask | u32::from(differ(word) != 0) << word)
    }
}

impl ClientWords for HostWords {
    fn swap(&self, index: usize, value: u32) -> u32 {
        (self.get(index)).map_or(0, |word| word.swap(value, Ordering::AcqRel))
    }
}

/// Words behind a pointer.
macro_rules! through {
    ($pointer:ty, [$($words:tt)*], [$($clients:tt)*]) => {
        impl<$($words)*> Words for $pointer {
            fn load(&self, index: usize) -> u32 {
                (**self).load(index)
            }

            fn store_among(&self, index: usize, words: &[u32; LINE], among: u32) {
                (**self).store_among(index, words, among);
            }

            fn store(&self, index: usize, value: u32) {
                (**self).store(index, value);
            }

            fn is_sealed(&self) -> bool {
                (**self).is_sealed()
            }

            fn load_all(&self, index: usize, words: &mut [u32]) {
                (**self).load_all(index, words);
            }

            fn store_all(&self, index: usize, words: &[u32]) {
                (**self).store_all(index, words);
            }

            fn differing(&self, index: usize, known: &[AtomicU32; LINE]) -> u32 {
                (**self).differing(index, known)
            }
        }

        impl<$($clients)*> ClientWords for $pointer {
            fn swap(&self, index: usize, value: u32) -> u32 {
                (**self).swap(index, value)
            }
        }
    };
}

through!(Arc<W>, [W: Words + ?Sized], [W: ClientWords + ?Sized]);
through!(&W, [W: Words + ?Sized], [W: ClientWords + ?Sized]);

#[allow(unused_imports)] // Used where the crate is whole.
pub(crate) use through;
