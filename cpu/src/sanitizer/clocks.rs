//! What orders accesses of different work-groups: fences around atomic accesses.
//!
//! *How it works.* A work-group counts its storage barriers: its *interval*. A barrier publishes what the work-group did in
//! the intervals before, and what it has learned of others. An atomic write leaves what was published at its address; an
//! atomic read takes that up, and the next barrier makes it known to the work-group. This is the rule of release and acquire
//! fences, with the fences that naga makes of `storageBarrier`: those of the device's scope.

use std::collections::HashMap;

/// Intervals of work-groups by their numbers: all up to and with these are known.
type Known = HashMap<u32, u32>;

/// What a work-group knows of others.
#[derive(Default)]
pub(super) struct Clock {
    /// What others did before, for what is done from here on
    known: Known,
    /// What was read, and no barrier stands behind it yet
    read: Known,
    /// What the last barrier published
    published: Option<Known>,
}

/// What atomic writes left, by address.
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
    /// Whether an access of another work-group is ordered before what is done here.
    pub(super) fn knows(&self, group: u32, interval: u32) -> bool {
        self.known
            .get(&group)
            .is_some_and(|&known| interval <= known)
    }

    /// A storage barrier that ends an interval of the work-group with this number.
    pub(super) fn barrier(&mut self, group: u32, interval: u32) {
        join(&mut self.known, &std::mem::take(&mut self.read));
        let mut published = self.known.clone();
        published.insert(group, interval);
        self.published = Some(published);
    }

    /// An atomic read. A part of a read-modify-write is one, too.
    pub(super) fn read(&mut self, address: u64, from: &Published) {
        if let Some(known) = from.at.get(&address) {
            join(&mut self.read, known);
        }
    }

    /// An atomic write. What was published there before stays: a read-modify-write continues the sequence.
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
        // What is done behind the barrier is not published yet.
        assert!(!b.knows(1, 1));
        // What is known is passed on.
        let mut c = Clock::default();
        b.write(128, &mut published);
        c.read(128, &published);
        c.barrier(3, 0);
        assert!(c.knows(1, 0) && c.knows(2, 1));
    }
}
