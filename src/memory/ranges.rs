//! Sets of byte ranges: those of the crate rangemap, with two operations that the crate leaves to callers.

use std::ops::Range;

use rangemap::RangeSet;

/// Adds `range` to the set; an empty range adds nothing, where rangemap panics.
pub(crate) fn insert(set: &mut RangeSet<u64>, range: Range<u64>) {
    if !range.is_empty() {
        set.insert(range);
    }
}

/// The parts of the set's ranges within `range`, in order.
pub(crate) fn within<'s>(
    set: &'s RangeSet<u64>,
    range: &Range<u64>,
) -> impl Iterator<Item = Range<u64>> + use<'s> {
    let range = range.clone();
    (set.overlapping(range.clone()))
        .map(move |found| found.start.max(range.start)..found.end.min(range.end))
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set_of_bytes(
            inserted in prop::collection::vec((0u64..60, 0u64..12), 0..20),
            asked in (0u64..60, 0u64..20),
            cut in 0u64..80,
        ) {
            let mut set = RangeSet::new();
            let mut bytes = [false; 128];
            for (start, len) in inserted {
                insert(&mut set, start..start + len);
                bytes[start as usize..(start + len) as usize].fill(true);
            }
            let asked = asked.0..asked.0 + asked.1;
            let mut seen = [false; 128];
            let mut last_end = None;
            for part in within(&set, &asked) {
                prop_assert!(last_end.is_none_or(|end| end < part.start));
                last_end = Some(part.end);
                seen[part.start as usize..part.end as usize].fill(true);
            }
            for byte in 0..128u64 {
                let expected = bytes[byte as usize] && asked.contains(&byte);
                prop_assert_eq!(seen[byte as usize], expected);
            }
            let mut front = set.clone();
            front.remove(cut..u64::MAX);
            let mut both: RangeSet<u64> = within(&set, &(cut..u64::MAX)).collect();
            prop_assert!(within(&front, &(cut..128)).next().is_none());
            prop_assert!(within(&both, &(0..cut)).next().is_none());
            both.extend(front);
            prop_assert_eq!(both, set);
        }
    }
}
