//! Sets of byte ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Byte ranges, kept apart: touching or overlapping ranges are joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::memory::heap) struct RangeSet {
    /// Ends by starts.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub(in crate::memory::heap) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.ranges.remove(&first);
            start = start.min(first);
            end = end.max(last);
        }
        self.ranges.insert(start, end);
    }

    pub(in crate::memory::heap) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut within = self.split_off(range.start);
        let behind = within.split_off(range.end);
        self.ranges.extend(behind.ranges);
    }

    /// All ranges, in order.
    pub(in crate::memory::heap) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    pub(in crate::memory::heap) fn insert_all(&mut self, other: &Self) {
        for (&start, &end) in &other.ranges {
            self.insert(start..end);
        }
    }

    /// Takes all from `at` on out of the set.
    pub(in crate::memory::heap) fn split_off(&mut self, at: u64) -> Self {
        let mut behind = self.ranges.split_off(&at);
        if let Some((_, end)) = self.ranges.iter_mut().next_back()
            && *end > at
        {
            // None begins there: a range beginning there would be part of this one.
            behind.insert(at, std::mem::replace(end, at));
        }
        Self { ranges: behind }
    }

    pub(in crate::memory::heap) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The parts of `range` that are in the set, in order.
    pub(in crate::memory::heap) fn within(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        // Only the last range beginning before the position can reach into it.
        let before = self.ranges.range(..range.start).next_back();
        before
            .into_iter()
            .chain(self.ranges.range(range.clone()))
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|part| !part.is_empty())
    }
}

/// Appends a range to a list in ascending order; touching ranges are joined, except where a multiple of `step` lies
/// between them.
pub(super) fn push(runs: &mut Vec<Range<u64>>, range: Range<u64>, step: u64) {
    match runs.last_mut() {
        Some(last) if last.end == range.start && !range.start.is_multiple_of(step) => {
            last.end = range.end;
        }
        _ => runs.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_end_at_segments() {
        let mut runs = Vec::new();
        for range in [0..4, 4..8, 8..12, 16..20] {
            push(&mut runs, range, 8);
        }
        assert_eq!(runs, [0..8, 8..12, 16..20]);
    }

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set_of_bytes(
            inserted in prop::collection::vec((0u64..60, 0u64..12), 0..20),
            asked in (0u64..60, 0u64..20),
            cut in 0u64..80,
        ) {
            let mut set = RangeSet::default();
            let mut bytes = [false; 128];
            for (start, len) in inserted {
                set.insert(start..start + len);
                bytes[start as usize..(start + len) as usize].fill(true);
            }
            let asked = asked.0..asked.0 + asked.1;
            let mut seen = [false; 128];
            let mut last_end = None;
            for part in set.within(asked.clone()) {
                prop_assert!(last_end.is_none_or(|end| end < part.start));
                last_end = Some(part.end);
                seen[part.start as usize..part.end as usize].fill(true);
            }
            for byte in 0..128u64 {
                let expected = bytes[byte as usize] && asked.contains(&byte);
                prop_assert_eq!(seen[byte as usize], expected);
            }
            let mut front = set.clone();
            let mut both = front.split_off(cut);
            prop_assert!(front.within(cut..128).next().is_none());
            prop_assert!(both.within(0..cut).next().is_none());
            both.insert_all(&front);
            prop_assert_eq!(both, set);
        }
    }
}
