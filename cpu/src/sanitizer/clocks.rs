//! The order of accesses of different work-groups: fences around atomic accesses.
//!
//! *How it works.* A work-group counts its storage barriers: its *interval*. A barrier publishes the work-group's own intervals
//! before, and all intervals learned of others. An atomic write leaves the published intervals at its address; an atomic read
//! takes them up, and the next barrier makes them known to the work-group. The rule is the rule of release and acquire fences,
//! with the fences made by naga of `storageBarrier`: fences of the device's scope.

use std::collections::HashMap;

/// Intervals of work-groups by their numbers: all up to and including the entry are known.
type Known = HashMap<u32, u32>;

/// A work-group's knowledge of others.
#[derive(Default)]
pub(super) struct Clock {
    /// Intervals of others ordered before accesses from here on
    known: Known,
    /// Intervals read, with no barrier behind the read yet
    read: Known,
    /// Intervals published by the last barrier
    published: Option<Known>,
}

/// Intervals left by atomic writes, by address.
#[derive(Default)]
pub(super) struct Published {
    at: HashMap<u64, Known>,
}

fn join(into: &mut Known, from: &Known) {
    for (&group, &interval) in from {
        let known = into.entry(group).or_insert(interval);
        *known = interval.max(*known);
    }
}

impl Clock {
    /// Whether an access of another work-group is ordered before accesses here.
    pub(super) fn knows(&self, group: u32, interval: u32) -> bool {
        self.known
            .get(&group)
            .is_some_and(|&known| interval <= known)
    }

    /// A storage barrier, ending an interval of work-group `group`.
    pub(super) fn barrier(&mut self, group: u32, interval: u32) {
        join(&mut self.known, &std::mem::take(&mut self.read));
        let mut published = self.known.clone();
        published.insert(group, interval);
        self.published = Some(published);
    }

    /// An atomic read. The reading part of a read-modify-write is an atomic read, too.
    pub(super) fn read(&mut self, address: u64, from: &Published) {
        if let Some(known) = from.at.get(&address) {
            join(&mut self.read, known);
        }
    }

    /// An atomic write. Intervals published there before stay: a read-modify-write continues the sequence.
    pub(super) fn write(&self, address: u64, to: &mut Published) {
        if let Some(published) = &self.published {
            join(to.at.entry(address).or_default(), published);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_orders_with_a_barrier_on_both_sides() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let mut published = Published::default();
        // Without a barrier before the write, nothing is published.
        a.write(64, &mut published);
        b.read(64, &published);
        b.barrier(2, 0);
        assert!(!b.knows(1, 0));
        a.barrier(1, 0);
        a.write(64, &mut published);
        b.read(64, &published);
        // Without a barrier behind the read, nothing is known.
        assert!(!b.knows(1, 0));
        b.barrier(2, 1);
        assert!(b.knows(1, 0));
        // Accesses behind the barrier are not published yet.
        assert!(!b.knows(1, 1));
        // Known intervals are passed on.
        let mut c = Clock::default();
        b.write(128, &mut published);
        c.read(128, &published);
        c.barrier(3, 0);
        assert!(c.knows(1, 0) && c.knows(2, 1));
    }
}
