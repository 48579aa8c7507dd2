//! Runs of bytes, in ascending order.

use std::ops::Range;

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

    #[test]
    fn runs_end_at_segments() {
        let mut runs = Vec::new();
        for range in [0..4, 4..8, 8..12, 16..20] {
            push(&mut runs, range, 8);
        }
        assert_eq!(runs, [0..8, 8..12, 16..20]);
    }
}
