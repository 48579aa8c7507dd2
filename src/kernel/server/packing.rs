//! The layout of calls of the same function in a slice of their own: arguments behind arguments, results behind
//! results, and for each call a *mark*, a word with the outcome of the call and the lease.
//!
//! Marks always begin at the same word, and results end there. So no result of an earlier slice is ever taken for a
//! mark: the place of a call's mark never held anything but marks, and marks of other leases differ from this one's.

use std::ops::Range;
use std::sync::Arc;

use super::{FAILED, HandlerDeclaration, TOO_LONG};

/// Bits of a mark that are the status.
const STATUS_BITS: u32 = 4;
const STATUS: u32 = (1 << STATUS_BITS) - 1;
const _: () = assert!(FAILED <= STATUS && TOO_LONG <= STATUS);

/// The words of such slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packing {
    /// Words of the arguments of a call.
    pub given: usize,
    /// Words of its result.
    pub taken: usize,
    /// Calls of a slice at most.
    pub calls: usize,
    /// Where marks begin.
    pub marks: usize,
}

impl Packing {
    /// That of `handler`, if at most so many calls of any of `handlers` travel together.
    pub fn of(
        handler: &HandlerDeclaration,
        handlers: &[Arc<HandlerDeclaration>],
        calls: usize,
    ) -> Self {
        Self {
            given: handler.argument_words(),
            taken: handler.result_words(),
            calls,
            marks: Self::marks(handlers, calls),
        }
    }

    /// Words of the answers then.
    pub fn words(handlers: &[Arc<HandlerDeclaration>], calls: usize) -> usize {
        Self::marks(handlers, calls) + calls
    }

    fn marks(handlers: &[Arc<HandlerDeclaration>], calls: usize) -> usize {
        let words = handlers.iter().map(|handler| handler.result_words());
        words.max().unwrap_or(0) * calls
    }

    /// The words of the answers to so many calls: results, then marks.
    pub fn answers(self, calls: usize) -> Range<u64> {
        let first = self.marks.saturating_sub(calls * self.taken);
        first as u64..(self.marks + calls) as u64
    }

    /// Results and marks of `calls` calls in the words that came back; `None` where some are missing: a call was not
    /// served in that lease.
    pub fn split(self, words: &[u32], calls: usize, lease: u32) -> Option<(&[u32], &[u32])> {
        let (results, marks) = words.split_at_checked(calls * self.taken)?;
        let lease = mark(lease);
        // No branch: all of them are looked at.
        let all = |all, word: &u32| all & (word ^ lease <= STATUS) & (word & STATUS != 0);
        (marks.len() == calls && marks.iter().fold(true, all)).then_some((results, marks))
    }
}

/// The mark of a call in that lease, but for the status.
pub(crate) fn mark(lease: u32) -> u32 {
    lease << STATUS_BITS
}

/// The status in a mark.
pub(crate) fn status(mark: u32) -> u32 {
    mark & STATUS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_device_writes_is_no_mark_but_those_of_the_lease() {
        let packing = Packing {
            given: 3,
            taken: 2,
            calls: 10,
            marks: 40,
        };
        assert_eq!(packing.answers(7), 26..47);
        let lease = 0x1234_5678;
        let mut words: Vec<u32> = (0..21).collect();
        words[14..].fill(mark(lease) | 1);
        words[16] = mark(lease) | TOO_LONG;
        let (results, marks) = packing.split(&words, 7, lease).unwrap();
        assert_eq!((results, marks.len()), (&words[..14], 7));
        let statuses: Vec<u32> = marks.iter().map(|&mark| status(mark)).collect();
        assert_eq!(statuses, [1, 1, TOO_LONG, 1, 1, 1, 1]);
        // A mark missing, of another lease, or without a status; and too few or too many.
        for wrong in [
            0,
            mark(lease),
            mark(lease - 1) | 1,
            mark(lease + 1) | 1,
            1,
            u32::MAX,
        ] {
            for at in 14..21 {
                let mut words = words.clone();
                words[at] = wrong;
                assert_eq!(packing.split(&words, 7, lease), None, "{wrong:x} at {at}");
            }
        }
        assert_eq!(packing.split(&words[..20], 7, lease), None);
        assert_eq!(packing.split(&words, 6, lease), None);
        assert_eq!(packing.split(&[], 7, lease), None);
        // Marks of a lease whose number has no bits of its own are known by their status.
        assert_eq!(packing.split(&[0; 21], 7, 1 << 28), None);
    }
}
