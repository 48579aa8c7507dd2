//! Sets of pages.

use std::ops::Range;

use super::PAGE;

/// The pages that a mirror lacks, given by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::memory::heap) struct PageSet {
    /// Any page may be missing.
    everything: bool,
    /// A bit for each page, as far as the last one set.
    bits: Vec<u64>,
}

impl PageSet {
    /// All pages.
    pub(super) fn everything() -> Self {
        Self {
            everything: true,
            bits: Vec::new(),
        }
    }

    pub(super) fn is_everything(&self) -> bool {
        self.everything
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.everything && self.bits.iter().all(|word| *word == 0)
    }

    /// The pages with bytes of a range.
    pub(in crate::memory::heap) fn insert(&mut self, bytes: &Range<u64>) {
        if self.everything || bytes.is_empty() {
            return;
        }
        let (first, last) = (bytes.start / PAGE, (bytes.end - 1) / PAGE);
        let words = (last / 64 + 1) as usize;
        if self.bits.len() < words {
            self.bits.resize(words, 0);
        }
        for word in first / 64..=last / 64 {
            let low = first.max(word * 64) % 64;
            let high = last.min(word * 64 + 63) % 64;
            self.bits[word as usize] |= (u64::MAX >> (63 - (high - low))) << low;
        }
    }

    pub(in crate::memory::heap) fn insert_everything(&mut self) {
        *self = Self::everything();
    }

    pub(super) fn insert_all(&mut self, other: &Self) {
        if self.everything || other.everything {
            return self.insert_everything();
        }
        if self.bits.len() < other.bits.len() {
            self.bits.resize(other.bits.len(), 0);
        }
        for (word, other) in self.bits.iter_mut().zip(&other.bits) {
            *word |= other;
        }
    }

    /// Takes the pages below byte `end`, the end of a page, out of the set. Of everything, the part between `end` and
    /// `most` stays.
    pub(super) fn take_below(&mut self, end: u64, most: u64) -> Self {
        if self.everything {
            *self = Self::default();
            self.insert(&(end..most.max(end)));
            return Self::everything();
        }
        let pages = end / PAGE;
        let (words, rest) = ((pages / 64) as usize, pages % 64);
        let mut below = std::mem::take(self);
        if below.bits.len() > words {
            let mut above = below.bits.split_off(words);
            let mask = (1 << rest) - 1;
            below.bits.push(above[0] & mask);
            above[0] &= !mask;
            if above.iter().any(|word| *word != 0) {
                self.bits.resize(words, 0);
                self.bits.append(&mut above);
            }
        }
        below
    }

    /// The first page of the set from page `from` on.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        if self.everything {
            return Some(from);
        }
        let mut at = (from / 64) as usize;
        let mut word = self.bits.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.bits.get(at)?;
        }
        Some(at as u64 * 64 + u64::from(word.trailing_zeros()))
    }

    /// How many there are, if they are counted.
    pub(super) fn count(&self) -> Option<u64> {
        let bits = self.bits.iter().map(|word| u64::from(word.count_ones()));
        (!self.everything).then(|| bits.sum())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn pages(set: &PageSet) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut at = 0;
        while let Some(page) = set.next(at) {
            found.insert(page);
            at = page + 1;
        }
        found
    }

    proptest! {
        #[test]
        fn a_set_of_pages_is_that(
            ranges in prop::collection::vec((0..300 * PAGE, 0..70 * PAGE), 0..8),
            others in prop::collection::vec((0..300 * PAGE, 0..70 * PAGE), 0..4),
            cut in 0u64..400,
        ) {
            let make = |ranges: &[(u64, u64)]| {
                let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
                for &(start, len) in ranges {
                    set.insert(&(start..start + len));
                    model.extend((start..start + len).map(|byte| byte / PAGE).step_by(97));
                    if len > 0 {
                        model.insert((start + len - 1) / PAGE);
                    }
                }
                (set, model)
            };
            let (mut set, mut model) = make(&ranges);
            prop_assert_eq!(pages(&set), model.clone());
            prop_assert_eq!(set.count(), Some(model.len() as u64));
            prop_assert_eq!(set.is_empty(), model.is_empty());
            let (other, more) = make(&others);
            set.insert_all(&other);
            model.extend(more);
            prop_assert_eq!(pages(&set), model.clone());
            let below = set.take_below(cut * PAGE, 0);
            let kept = model.split_off(&cut);
            prop_assert_eq!(pages(&below), model);
            prop_assert_eq!(pages(&set), kept);
        }
    }

    #[test]
    fn everything_is_what_is_there() {
        let mut set = PageSet::everything();
        set.insert(&(0..PAGE));
        assert_eq!(
            (set.is_empty(), set.count(), set.next(77)),
            (false, None, Some(77))
        );
        let below = set.take_below(8 * PAGE, 10 * PAGE);
        assert!(below.is_everything() && !set.is_everything());
        assert_eq!(pages(&set), BTreeSet::from([8, 9]));
        let mut some = PageSet::default();
        some.insert_all(&below);
        assert!(some.is_everything());
    }
}
