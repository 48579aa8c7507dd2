//! Which places have the latest bytes of which ranges of one buffer.
//!
//! The residency is an interval map (the crate rangemap) from byte ranges to the set of places with the latest bytes.
//!
//! - **Ranges, not buffers, have versions.** A sub-buffer is an offset and a length with no state, so overlapping
//!   sub-buffers and their parent have nothing to disagree about, and disjoint halves stay where they are used.
//! - **Versions are relative.** For each range and place the residency keeps by how many versions the place is behind,
//!   in four bits, and nothing absolute: neighbours with the same history are one range whenever they were written,
//!   and a version that only the writer ever had counts for nobody. Decisions need only the set of current places; the
//!   lag is for explanations.
//! - **Undefined is the absence of a range**: never written, or discarded. **Lost** is a range whose only place is
//!   gone; reading a lost range, or writing a part of one, is an error until the range is overwritten or discarded.
//! - **Places with one memory** (for a buffer in the shared heap) are declared to the residency, not to the routes: so
//!   writes, losses and evictions know of the shared memory, too.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rangemap::RangeMap;
use smallvec::SmallVec;

use super::extent::{Content, Extent, Held};
use super::plan::{Counters, Plan};
use super::uses::Uses;
use super::{MigrateError, Place, Places};

/// For one root buffer: which places have the latest bytes of which ranges, and how far others are behind.
///
/// A plain value without locks. A plan, its commit and the writes behind belong together: hold a lock around them.
#[derive(Debug, Clone)]
pub struct Residency {
    len: u64,
    /// Bytes never written, or discarded, are left out.
    pub(super) extents: RangeMap<u64, Extent>,
    /// Sets of places with the same memory, of two places or more each, with no place in two sets.
    memories: SmallVec<[Places; 1]>,
    /// The places that would be current if buffers were moved whole.
    pub(super) whole: Places,
    pub(super) uses: Uses,
    counters: Counters,
    /// Another number after every change, and in every residency.
    pub(super) stamp: u64,
}

/// A fresh number.
fn stamp() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Residency {
    /// A buffer of `len` bytes, none of which was ever written.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self {
            len,
            extents: RangeMap::new(),
            memories: SmallVec::new(),
            whole: Places::EMPTY,
            uses: Uses::default(),
            counters: Counters::default(),
            stamp: stamp(),
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The copies of a plan are enqueued: their targets are current now, for all that is enqueued later.
    ///
    /// # Errors
    ///
    /// [`MigrateError::StalePlan`].
    pub fn commit(&mut self, plan: &Plan) -> Result<(), MigrateError> {
        if plan.stamp != self.stamp {
            return Err(MigrateError::StalePlan);
        }
        for step in &plan.steps {
            let gained = self.memory_of(step.to);
            self.update(step.range.clone(), |before| {
                before.map(|extent| extent.copied(gained))
            });
        }
        if !plan.steps.is_empty() || plan.whole != self.whole {
            self.stamp = stamp();
        }
        self.whole = plan.whole;
        self.counters.add(plan);
        Ok(())
    }

    /// A command that writes `range` at `place` is enqueued: a new version begins there, and only there. Call for the
    /// whole range of possible writes.
    ///
    /// # Errors
    ///
    /// [`MigrateError::OutOfRange`].
    pub fn wrote(&mut self, place: Place, range: Range<u64>) -> Result<(), MigrateError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let writers = self.memory_of(place);
        self.whole = writers;
        self.update(range, |before| Some(Extent::written(before, writers)));
        self.stamp = stamp();
        Ok(())
    }

    /// The bytes are not needed any more: undefined until written.
    ///
    /// # Errors
    ///
    /// [`MigrateError::OutOfRange`].
    pub fn discard(&mut self, range: Range<u64>) -> Result<(), MigrateError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        self.extents.remove(range);
        if self.extents.is_empty() {
            self.whole = Places::EMPTY;
        }
        self.stamp = stamp();
        Ok(())
    }

    /// The place is gone, with its memory. Returns the ranges whose latest bytes were nowhere else; reading them is
    /// [`MigrateError::Lost`] until overwritten or discarded.
    ///
    /// Copies from there that were enqueued count as made. Call [`failed`](Self::failed) for copies never made.
    pub fn lost(&mut self, place: Place) -> Vec<Range<u64>> {
        // Memory visible to others stays in place.
        self.leave_memories(place);
        self.lose(place, Places::of(place), 0..self.len)
    }

    /// A copy to `place`, or a writing command there, has failed, so its bytes are not as promised. Returns the ranges
    /// whose latest bytes were to be there alone, which are lost as in [`lost`](Self::lost).
    ///
    /// # Errors
    ///
    /// [`MigrateError::OutOfRange`].
    pub fn failed(
        &mut self,
        place: Place,
        range: Range<u64>,
    ) -> Result<Vec<Range<u64>>, MigrateError> {
        self.check(&range)?;
        Ok(self.lose(place, self.memory_of(place), range))
    }

    /// From now on the place has a memory of its own.
    pub(super) fn leave_memories(&mut self, place: Place) {
        for memory in &mut self.memories {
            *memory = memory.without(Places::of(place));
        }
        self.memories.retain(|memory| memory.len() > 1);
    }

    /// Makes earlier plans stale.
    pub(super) fn restamp(&mut self) {
        self.stamp = stamp();
    }

    fn lose(&mut self, place: Place, memory: Places, range: Range<u64>) -> Vec<Range<u64>> {
        let mut lost: Vec<Range<u64>> = Vec::new();
        if range.is_empty() {
            return lost;
        }
        for (part, extent) in self.extents.overlapping(range.clone()) {
            if extent.is_only_at(memory) {
                push(&mut lost, clip(part, &range));
            }
        }
        self.update(range, |before| {
            before.map(|extent| {
                let lost = extent.is_only_at(memory).then_some(place);
                let mut extent = extent.dropped(memory);
                extent.lost = extent.lost.or(lost);
                extent
            })
        });
        self.whole = self.whole.without(memory);
        self.stamp = stamp();
        lost
    }

    /// The memory of the places for a range was given up, and the latest bytes are elsewhere.
    pub(super) fn drop_memory(&mut self, memory: Places, range: Range<u64>) {
        if range == (0..self.len) {
            self.whole = self.whole.without(memory);
        }
        self.update(range, |before| before.map(|extent| extent.dropped(memory)));
        self.stamp = stamp();
    }

    /// From now on the two places are the same memory for this buffer: bytes current at either are current at the
    /// other, and nothing is copied between them. Call this when the memory is made, before the first write.
    pub fn share(&mut self, a: Place, b: Place) {
        let both = self.memory_of(a).union(self.memory_of(b));
        self.memories
            .retain(|memory| memory.common(both).is_empty());
        if both.len() > 1 {
            self.memories.push(both);
        }
        self.update(0..self.len, |before| {
            before.map(|extent| {
                if extent.current.common(both).is_empty() {
                    extent
                } else {
                    extent.copied(both)
                }
            })
        });
        if !self.whole.common(both).is_empty() {
            self.whole = self.whole.union(both);
        }
        self.stamp = stamp();
    }

    /// Whether the place has the latest bytes of the whole range. Bytes never written have no latest version, and every
    /// place is current there; no place is where bytes were lost, or beyond the end.
    #[must_use]
    pub fn is_current(&self, place: Place, range: Range<u64>) -> bool {
        self.check(&range).is_ok()
            && (range.is_empty()
                || self
                    .extents
                    .overlapping(range)
                    .all(|(_, extent)| extent.current.contains(place)))
    }

    /// A place's state of a range, over all of the range.
    #[must_use]
    pub fn held(&self, place: Place, range: Range<u64>) -> Held {
        if range.is_empty() {
            return Held::Nothing;
        }
        self.extents
            .overlapping(range)
            .map(|(_, extent)| extent.held(place))
            .reduce(Held::and)
            .unwrap_or(Held::Nothing)
    }

    /// The ranges with content, in order, and the places of the content. The bytes between them are undefined.
    pub fn contents(&self) -> impl Iterator<Item = (Range<u64>, Content)> + '_ {
        self.extents
            .iter()
            .map(|(range, extent)| (range.clone(), extent.content()))
    }

    /// The places with the same memory as `place`, itself included.
    #[must_use]
    pub fn memory_of(&self, place: Place) -> Places {
        let shared = self.memories.iter().find(|memory| memory.contains(place));
        shared.copied().unwrap_or(Places::of(place))
    }

    /// Counts of moved and avoided bytes so far, by all committed plans.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub(super) fn check(&self, range: &Range<u64>) -> Result<(), MigrateError> {
        if range.start <= range.end && range.end <= self.len {
            Ok(())
        } else {
            Err(MigrateError::OutOfRange {
                start: range.start,
                end: range.end,
                len: self.len,
            })
        }
    }

    /// Replaces the known state of each part of a range.
    pub(super) fn update(
        &mut self,
        range: Range<u64>,
        mut change: impl FnMut(Option<Extent>) -> Option<Extent>,
    ) {
        if range.is_empty() {
            return;
        }
        let mut parts: SmallVec<[(Range<u64>, Extent); 4]> = SmallVec::new();
        let mut changed = false;
        let mut put = |range: Range<u64>, before: Option<Extent>| {
            let after = change(before);
            changed |= after != before;
            if let Some(after) = after.filter(|_| !range.is_empty()) {
                match parts.last_mut() {
                    Some((last, extent)) if last.end == range.start && *extent == after => {
                        last.end = range.end;
                    }
                    _ => parts.push((range, after)),
                }
            }
        };
        let mut end = range.start;
        for (part, extent) in self.extents.overlapping(range.clone()) {
            let part = clip(part, &range);
            if end < part.start {
                put(end..part.start, None);
            }
            end = part.end;
            put(part, Some(*extent));
        }
        if end < range.end {
            put(end..range.end, None);
        }
        if !changed {
            return;
        }
        for (part, extent) in parts {
            self.extents.insert(part, extent);
        }
    }
}

/// The part of a range that is in another.
pub(super) fn clip(range: &Range<u64>, within: &Range<u64>) -> Range<u64> {
    range.start.max(within.start)..range.end.min(within.end)
}

/// Appends a range to a list in rising order; touching ranges are joined.
pub(super) fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
