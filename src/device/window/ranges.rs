//! Sets of page ranges: which parts of a window are committed.

use std::ops::Range;

pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A set of numbers, as ranges in rising order that neither overlap nor touch.
#[derive(Debug, Default)]
pub(super) struct Ranges(pub(super) Vec<Range<u64>>);

impl Ranges {
    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.0.iter().any(|other| overlap(other, range))
    }

    /// The part of `range` missing in the set.
    pub(super) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut from = range.start;
        for inside in self.0.iter().filter(|inside| overlap(inside, range)) {
            if from < inside.start {
                gaps.push(from..inside.start);
            }
            from = inside.end;
        }
        if from < range.end {
            gaps.push(from..range.end);
        }
        gaps
    }

    pub(super) fn insert(&mut self, mut range: Range<u64>) {
        self.0.retain(|other| {
            let apart = other.end < range.start || range.end < other.start;
            if !apart {
                range = range.start.min(other.start)..range.end.max(other.end);
            }
            apart
        });
        let at = self.0.partition_point(|other| other.start < range.start);
        self.0.insert(at, range);
    }

    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let kept = self.0.drain(..).flat_map(|other| {
            let before = other.start..other.end.min(range.start);
            let behind = other.start.max(range.end)..other.end;
            [before, behind]
        });
        self.0 = kept.filter(|part| !part.is_empty()).collect();
    }
}
