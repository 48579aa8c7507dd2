//! Size classes of free ranges: two levels of bitmaps over arrays.
//!
//! A size, counted in granules, becomes a small floating-point number with three bits of mantissa, the number of its
//! bin. Sizes below 8 granules have a bin each; the sizes of any other bin differ by less than 1/8. The first bin at or
//! above a number that is not empty is found by two bit scans.

use super::GRANULE;
use super::ranges::{Index, Table};

/// Bits of mantissa: a bin spans 1/2^MANTISSA of its sizes. More bits fit better, but spread the
/// ranges over more bins, more of which are empty, which costs time: in the benchmark 5 % with 4 bits
/// and 13 % with 5.
const MANTISSA: u32 = 3;
/// Sizes below this many granules have a bin each.
const SMALL: u64 = 1 << MANTISSA;
/// Bins, enough for all sizes of 64 bits.
const BINS: usize = 64 << MANTISSA;
/// Words of the lower bitmap.
const WORDS: usize = BINS / 64;

/// The bin in which a free range of `size` bytes lies. `size` is a positive multiple of [`GRANULE`].
#[inline]
pub(super) fn bin_of(size: u64) -> usize {
    let units = size / GRANULE;
    // Below 32 the exponent would be negative; `| LEAVES` makes it 0 there, and the bin is the number.
    let exponent = 63 - (units | SMALL).leading_zeros() - MANTISSA;
    ((exponent as usize) << MANTISSA) + (units >> exponent) as usize
}

/// The lowest bin all of whose ranges have at least `size` bytes.
#[inline]
pub(super) fn bin_above(size: u64) -> usize {
    let units = size / GRANULE;
    let exponent = 63 - (units | SMALL).leading_zeros() - MANTISSA;
    // Cannot overflow: `units` is below 2^60.
    let rounded = units + ((1 << exponent) - 1);
    // A carry out of the mantissa gives the first bin of the next group, as it should.
    ((exponent as usize) << MANTISSA) + (rounded >> exponent) as usize
}

/// Which bins hold ranges, and which ranges.
///
/// Bins are numbers below `BINS`: [`bin_of`] and [`bin_above`] yield at most
/// `(59 - MANTISSA) * SMALL + 2 * SMALL`, and positions are what [`Bins::insert`] noted. This is why
/// no index into the tables can be out of range.
///
/// A bin is an array, and each of its ranges knows its position: unlike in a linked list, inserting
/// a range touches no other range, and removing a range touches at most a single other.
#[derive(Debug)]
pub(super) struct Bins {
    /// A bit for each bin: whether it holds ranges.
    filled: [u64; WORDS],
    /// A bit for each word of `filled` that is not 0.
    summary: u64,
    bins: Box<[Vec<Index>; BINS]>,
}

impl Bins {
    pub fn new() -> Self {
        Self {
            filled: [0; WORDS],
            summary: 0,
            bins: Box::new([const { Vec::new() }; BINS]),
        }
    }

    /// The lowest bin at or above `bin` that is not empty.
    #[inline]
    pub fn first_from(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        let here = self.filled.get(word)? & (u64::MAX << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = self.summary & (u64::MAX << word << 1);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros() as usize;
        Some(word * 64 + self.filled[word].trailing_zeros() as usize)
    }

    /// The highest bin that is not empty.
    pub fn last(&self) -> Option<usize> {
        let word = self.summary.checked_ilog2()? as usize;
        let bit = self.filled[word].checked_ilog2()? as usize;
        Some(word * 64 + bit)
    }

    /// The ranges of a bin, the one put in last at the end.
    #[inline]
    pub fn ranges(&self, bin: usize) -> &[Index] {
        &self.bins[bin]
    }

    /// Puts the free range at `index` into its bin.
    // Always: a call costs as much as the work.
    #[inline(always)]
    pub fn insert(&mut self, ranges: &mut Table, index: Index) {
        let range = &mut ranges[index];
        let bin = bin_of(range.requested());
        let list = &mut self.bins[bin];
        range.detail = list.len() as u32; // At most as many as there are ranges.
        list.push(index);
        self.filled[bin / 64] |= 1 << (bin % 64);
        self.summary |= 1 << (bin / 64);
    }

    /// Takes the free range at `index`, which `bin` holds, out of it.
    // Always: a call costs as much as the work.
    #[inline(always)]
    pub fn remove(&mut self, ranges: &mut Table, index: Index, bin: usize) {
        let position = ranges[index].detail;
        let list = &mut self.bins[bin];
        // The last takes its position. No branches here and below: the bin to become empty, and a range's place there,
        // are chance, and an unpredictable branch costs more than the work.
        let Some(&last) = list.last() else {
            return;
        };
        list[position as usize] = last;
        ranges[last].detail = position;
        list.pop();
        let word = &mut self.filled[bin / 64];
        *word &= !(u64::from(list.is_empty()) << (bin % 64));
        self.summary &= !(u64::from(*word == 0) << (bin / 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_lies_between_its_bins() {
        // Miri takes its time for each.
        let (small, step) = if cfg!(miri) { (200, 7) } else { (5000, 1) };
        let mut sizes: Vec<u64> = (1..small).map(|units| units * GRANULE).collect();
        for exponent in (4..64).step_by(step) {
            for delta in [0, 1, 3, 17] {
                sizes.push((1u64 << exponent).saturating_add(delta * GRANULE) & !(GRANULE - 1));
                sizes.push(
                    (1u64 << exponent)
                        .wrapping_sub((delta + 1) * GRANULE)
                        .max(GRANULE),
                );
            }
        }
        sizes.push(!(GRANULE - 1));
        sizes.sort_unstable();
        sizes.dedup();
        for pair in sizes.windows(2) {
            assert!(bin_of(pair[0]) <= bin_of(pair[1]), "{pair:?}");
            assert!(bin_above(pair[0]) <= bin_above(pair[1]), "{pair:?}");
        }
        for &size in &sizes {
            let (own, above) = (bin_of(size), bin_above(size));
            assert!(own < BINS && above < BINS, "{size}");
            assert!(above == own || above == own + 1, "{size}");
            // A bin that is not skipped holds nothing smaller than `size`.
            let smaller = size - GRANULE;
            assert!(smaller == 0 || bin_of(smaller) < above, "{size}");
        }
    }

    #[test]
    fn a_bin_spans_at_most_one_eighth() {
        let mut size = GRANULE;
        // Below 1 MiB every size is looked at, which Miri takes its time for.
        let end = if cfg!(miri) { 1 << 16 } else { 1 << 30 };
        while size < end {
            let first = size;
            while bin_of(size) == bin_of(first) {
                size += GRANULE;
            }
            assert!(
                (size - first) * 8 <= first.max(8 * GRANULE),
                "{first}..{size}"
            );
            // Large steps afterwards: only the bins' bounds matter.
            if size > 1 << 20 {
                size += size / 7 / GRANULE * GRANULE;
                let bin = bin_of(size);
                while bin_of(size - GRANULE) == bin {
                    size -= GRANULE;
                }
            }
        }
    }
}
