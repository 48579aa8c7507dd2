//! The shadow state of a variable's bytes: which were written, and who accessed them since when.
//!
//! Intervals are those between barriers. An access of an earlier interval of the same work-group is
//! ordered before one of a later interval; nothing orders the invocations of different work-groups.
//! Atomic accesses order nothing, since they are relaxed, but do not race with each other.

use std::collections::HashMap;

use crate::report::RaceSide;

/// Who accesses bytes of a word, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// Of all invocations of the dispatch.
    pub invocation: u64,
    /// Of all work-groups of the dispatch.
    pub workgroup: u64,
    /// Barriers of the work-group that order this memory, so far.
    pub interval: u32,
    pub side: RaceSide,
}

/// Bytes of a word, the lowest first.
type Bytes = u8;

/// Bytes of a word.
const WORD: u64 = 4;

/// The shadow state of one variable or buffer. What is not asked for is not kept.
#[derive(Default)]
pub(super) struct Shadow {
    /// Per byte. Empty where reads of unwritten memory are not looked for.
    written: Vec<bool>,
    /// Per word that anybody accessed, with a bit for each byte of the word that the access covers.
    accesses: HashMap<u64, Vec<(Bytes, Access)>>,
}

impl Shadow {
    /// The state of memory of `size` bytes of which none was written.
    pub fn unwritten(size: usize) -> Shadow {
        Shadow {
            written: vec![false; size],
            accesses: HashMap::new(),
        }
    }

    /// Notes that bytes were written.
    pub fn write(&mut self, offset: u64, size: u64) {
        let range = offset as usize..(offset + size) as usize;
        if let Some(bytes) = self.written.get_mut(range) {
            bytes.fill(true);
        }
    }

    /// The first of some bytes that was never written; `None` if all were.
    pub fn first_unwritten(&self, offset: u64, size: u64) -> Option<u64> {
        (offset..offset + size).find(|byte| self.written.get(*byte as usize) == Some(&false))
    }

    /// Notes an access of bytes. Returns the first of them, and the other side, that races with it.
    pub fn access(&mut self, offset: u64, size: u64, access: Access) -> Option<(u64, RaceSide)> {
        let (mut race, end) = (None, offset + size);
        for word in offset / WORD..end.div_ceil(WORD) {
            let begin = word * WORD;
            let bytes = (begin..begin + WORD)
                .filter(|byte| (offset..end).contains(byte))
                .fold(0, |bytes, byte| bytes | 1 << (byte - begin));
            let known = self.accesses.entry(word).or_default();
            if race.is_none() {
                race = known
                    .iter()
                    .filter(|(others, other)| others & bytes != 0 && conflict(other, &access))
                    .map(|(others, other)| {
                        let first = (others & bytes).trailing_zeros();
                        (begin + u64::from(first), other.side)
                    })
                    .min_by_key(|(byte, _)| *byte);
            }
            remember(known, bytes, access);
        }
        race
    }
}

fn conflict(a: &Access, b: &Access) -> bool {
    let ordered = a.workgroup == b.workgroup && a.interval != b.interval;
    a.invocation != b.invocation
        && (a.side.write || b.side.write)
        && !(a.side.atomic && b.side.atomic)
        && !ordered
}

/// Adds an access, and forgets those that can show no race which another shows not as well: of one
/// work-group and kind and the same bytes, two invocations of the latest interval stand for all.
fn remember(known: &mut Vec<(Bytes, Access)>, bytes: Bytes, access: Access) {
    let alike = |(others, other): &(Bytes, Access)| {
        *others == bytes
            && other.workgroup == access.workgroup
            && other.side.write == access.side.write
            && other.side.atomic == access.side.atomic
    };
    known.retain(|other| !alike(other) || other.1.interval == access.interval);
    let same = known.iter().filter(|other| alike(other));
    let (count, present) = same.fold((0, false), |(count, present), (_, other)| {
        (count + 1, present || other.invocation == access.invocation)
    });
    if count < 2 && !present {
        known.push((bytes, access));
    }
}
