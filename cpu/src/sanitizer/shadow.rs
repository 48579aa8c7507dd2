//! Shadow memory: the last accesses of each byte.
//!
//! *How it works.* Memory is cut into units of four bytes (two, if a kernel accesses half floats in buffers). A cell remembers,
//! for its unit, accesses by kind: the last plain write, two plain reads, two atomic writes and two atomic reads. These are
//! enough to tell whether a new access races with an earlier access:
//!
//! - Plain writes of a unit are ordered one after the other, or a race was reported: an access not ordered with an earlier write
//!   is reported or not ordered with the last write.
//! - An access ordered behind a remembered access takes its place: later accesses racing with the earlier access race with the
//!   new access as well.
//! - Of unordered accesses, two stand for all: two of different work-groups if there are such, since no invocation is of both, or
//!   else two of different subgroups, or else two of different invocations.

use std::collections::HashMap;

use super::Access;
use crate::compile::subgroup::SIZE;

/// Cells of a page.
const PAGE: u64 = 512;

/// A stretch between barriers on some memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    /// Barriers of the work-group before
    pub(super) group: u32,
    /// Barriers of the subgroup since
    pub(super) subgroup: u32,
}

impl Interval {
    const START: Self = Self {
        group: 0,
        subgroup: 0,
    };
}

/// An access: invocation, time and site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    /// Number of the work-group
    pub(super) group: u32,
    /// Index in the work-group
    pub(super) invocation: u32,
    /// Barriers on the memory, so far
    pub(super) interval: Interval,
    site: u32,
}

/// The site of no access.
const NOWHERE: u32 = u32::MAX;

impl Record {
    const NONE: Self = Self {
        group: 0,
        invocation: 0,
        interval: Interval::START,
        site: NOWHERE,
    };

    pub(super) fn new(group: u32, invocation: u32, interval: Interval, site: u32) -> Self {
        Self {
            group,
            invocation,
            interval,
            site,
        }
    }

    pub(super) fn site(&self) -> u32 {
        self.site
    }

    fn is_none(&self) -> bool {
        self.site == NOWHERE
    }
}

/// The remembered accesses of a unit.
#[derive(Clone)]
struct Cell {
    write: Record,
    reads: [Record; 2],
    atomics: Option<Box<Atomics>>,
}

#[derive(Clone)]
struct Atomics {
    writes: [Record; 2],
    reads: [Record; 2],
}

const EMPTY: [Record; 2] = [Record::NONE; 2];

impl Cell {
    const NEW: Self = Self {
        write: Record::NONE,
        reads: EMPTY,
        atomics: None,
    };

    /// An earlier access racing with a new one.
    fn race(
        &self,
        access: Access,
        now: Record,
        ordered: &dyn Fn(&Record) -> bool,
    ) -> Option<Record> {
        let atomics = self.atomics.as_deref();
        let atomic_writes = atomics.map_or(&EMPTY, |atomics| &atomics.writes);
        let atomic_reads = atomics.map_or(&EMPTY, |atomics| &atomics.reads);
        let none = &EMPTY[..0];
        let (reads, atomic_writes, atomic_reads) = match access {
            Access::Read => (none, &atomic_writes[..], none),
            Access::Write => (&self.reads[..], &atomic_writes[..], &atomic_reads[..]),
            Access::AtomicRead => (none, none, none),
            Access::AtomicWrite => (&self.reads[..], none, none),
        };
        let earlier = std::iter::once(&self.write)
            .chain(reads)
            .chain(atomic_writes)
            .chain(atomic_reads);
        earlier
            .filter(|record| !record.is_none() && !before(record, &now, ordered))
            .copied()
            .next()
    }

    fn remember(&mut self, access: Access, now: Record, ordered: &dyn Fn(&Record) -> bool) {
        let records = match access {
            Access::Write => {
                self.write = now;
                return;
            }
            Access::Read => &mut self.reads,
            Access::AtomicRead | Access::AtomicWrite => {
                let atomics = self.atomics.get_or_insert_with(|| {
                    Box::new(Atomics {
                        writes: EMPTY,
                        reads: EMPTY,
                    })
                });
                match access {
                    Access::AtomicRead => &mut atomics.reads,
                    _ => &mut atomics.writes,
                }
            }
        };
        let mut placed = false;
        for record in records.iter_mut() {
            if record.is_none() || before(record, &now, ordered) {
                *record = if placed { Record::NONE } else { now };
                placed = true;
            }
        }
        let [first, second] = records;
        if placed || first.group != second.group {
            return;
        }
        let apart = subgroup(first) != subgroup(second);
        if now.group != first.group || !apart && subgroup(&now) != subgroup(first) {
            *second = now;
        }
    }

    fn is_written(&self) -> bool {
        let atomic = |atomics: &Atomics| !atomics.writes[0].is_none();
        !self.write.is_none() || self.atomics.as_deref().is_some_and(atomic)
    }
}

/// The number of the subgroup in the work-group.
fn subgroup(record: &Record) -> u32 {
    record.invocation / SIZE
}

/// Whether a remembered access is ordered before a new access.
fn before(record: &Record, now: &Record, ordered: &dyn Fn(&Record) -> bool) -> bool {
    if record.group == now.group {
        record.invocation == now.invocation
            || record.interval.group != now.interval.group
            || subgroup(record) == subgroup(now)
                && record.interval.subgroup != now.interval.subgroup
    } else {
        ordered(record)
    }
}

/// Shadow memory of some address range.
pub(super) struct Shadow {
    unit: u64,
    pages: HashMap<u64, Box<[Cell]>>,
}

impl Shadow {
    /// Shadow memory by units of so many bytes.
    pub(super) fn new(unit: u64) -> Self {
        Self {
            unit,
            pages: HashMap::new(),
        }
    }

    /// Notes an access of `bytes` bytes at `at`. Returns the first racing byte, and the earlier access.
    pub(super) fn access(
        &mut self,
        (at, bytes): (u64, u64),
        access: Access,
        now: Record,
        ordered: &dyn Fn(&Record) -> bool,
    ) -> Option<(u64, Record)> {
        let mut race = None;
        for unit in at / self.unit..(at + bytes).div_ceil(self.unit) {
            let cell = self.cell(unit);
            if race.is_none() {
                let found = cell.race(access, now, ordered);
                race = found.map(|record| (unit, record));
            }
            cell.remember(access, now, ordered);
        }
        race.map(|(unit, record)| (at.max(unit * self.unit), record))
    }

    /// The first unwritten byte of some.
    pub(super) fn first_unwritten(&mut self, (at, bytes): (u64, u64)) -> Option<u64> {
        let units = at / self.unit..(at + bytes).div_ceil(self.unit);
        let unit = units
            .into_iter()
            .find(|&unit| !self.cell(unit).is_written());
        unit.map(|unit| at.max(unit * self.unit))
    }

    fn cell(&mut self, unit: u64) -> &mut Cell {
        let page = self
            .pages
            .entry(unit / PAGE)
            .or_insert_with(|| vec![Cell::NEW; PAGE as usize].into_boxed_slice());
        &mut page[(unit % PAGE) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: &dyn Fn(&Record) -> bool = &|_| false;

    fn record(group: u32, invocation: u32, interval: u32) -> Record {
        let interval = Interval {
            group: interval,
            subgroup: 0,
        };
        Record::new(group, invocation, interval, 7)
    }

    #[test]
    fn any_two_that_race_are_found_behind_any_others() {
        use Access::{AtomicRead, AtomicWrite, Read, Write};
        // Of all sequences of three accesses by two groups with two invocations, in growing intervals: the last access races with
        // one before by the definition exactly if the shadow says so, or an earlier race was reported.
        let kinds = [Read, Write, AtomicRead, AtomicWrite];
        let mut all = Vec::new();
        for access in kinds {
            for group in 0..2 {
                for invocation in 0..2 {
                    for interval in 0..2 {
                        all.push((access, record(group, invocation, interval)));
                    }
                }
            }
        }
        let writes = |access| matches!(access, Write | AtomicWrite);
        let atomic = |access| matches!(access, AtomicRead | AtomicWrite);
        let races = |(a, x): (Access, Record), (b, y): (Access, Record)| {
            (writes(a) || writes(b))
                && !(atomic(a) && atomic(b))
                && (x.group != y.group || x.invocation != y.invocation && x.interval == y.interval)
        };
        let grows =
            |x: Record, y: Record| x.group != y.group || x.interval.group <= y.interval.group;
        let mut checked = 0;
        for &a in &all {
            for &b in &all {
                for &c in &all {
                    for &d in &all {
                        let order = [a, b, c, d];
                        let in_order =
                            (0..4).all(|i| (0..i).all(|j| grows(order[j].1, order[i].1)));
                        let clean = (0..3).all(|i| (0..i).all(|j| !races(order[j], order[i])));
                        if !in_order || !clean {
                            continue;
                        }
                        let mut shadow = Shadow::new(4);
                        for (access, record) in &order[..3] {
                            assert_eq!(shadow.access((8, 4), *access, *record, NEVER), None);
                        }
                        let found = shadow.access((8, 4), d.0, d.1, NEVER).is_some();
                        let expected = order[..3].iter().any(|&earlier| races(earlier, d));
                        assert_eq!(found, expected, "{order:?}");
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 5_000, "{checked}");
    }

    #[test]
    fn barriers_of_subgroups_order_what_these_do() {
        let at = |invocation, subgroup| {
            let interval = Interval { group: 3, subgroup };
            Record::new(0, invocation, interval, 7)
        };
        let mut shadow = Shadow::new(4);
        let mut races = |access, record| shadow.access((0, 4), access, record, NEVER).is_some();
        assert!(!races(Access::Write, at(0, 0)));
        assert!(!races(Access::Read, at(SIZE - 1, 1)));
        assert!(!races(Access::Write, at(1, 2)));
        // Another subgroup has not waited for the first, however often the other has waited.
        assert!(races(Access::Read, at(SIZE, 3)));
    }

    #[test]
    fn bytes_that_race_are_named() {
        let mut shadow = Shadow::new(4);
        assert_eq!(
            shadow.access((4096, 16), Access::Write, record(0, 0, 0), NEVER),
            None
        );
        let race = shadow.access((4100, 4), Access::Read, record(0, 1, 0), NEVER);
        assert_eq!(race, Some((4100, record(0, 0, 0))));
        assert_eq!(
            shadow.access((4112, 4), Access::Write, record(0, 1, 0), NEVER),
            None
        );
        assert_eq!(shadow.first_unwritten((4092, 8)), Some(4092));
        assert_eq!(shadow.first_unwritten((4096, 20)), None);
    }

    #[test]
    fn halves_are_apart_in_units_of_two_bytes() {
        let mut shadow = Shadow::new(2);
        assert_eq!(
            shadow.access((0, 2), Access::Write, record(0, 0, 0), NEVER),
            None
        );
        assert_eq!(
            shadow.access((2, 2), Access::Write, record(0, 1, 0), NEVER),
            None
        );
        assert!(
            shadow
                .access((0, 4), Access::Read, record(0, 1, 0), NEVER)
                .is_some()
        );
    }
}
