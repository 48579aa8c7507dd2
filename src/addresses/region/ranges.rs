//! The ranges into which the blocks are cut, used and free, in one table with recycled places.

use std::ops;

use super::GRANULE;

/// A place in the table of ranges.
pub(super) type Index = u32;
/// No range.
pub(super) const NONE: Index = Index::MAX;
/// Ranges that may exist: far more than fit a host's memory, and places stay below [`NONE`].
pub(super) const MOST_RANGES: usize = 1 << 31;

/// A range of a block. 32 bytes, so none straddles two cache lines: the touched lines are most of
/// the cost of an operation.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(super) struct Range {
    /// First address. The value is a multiple of the granule, so bit 0 is vacant: set for *used*.
    start: u64,
    /// Bytes asked for, if used; else bytes. Rounded up to granules, it is the size in both cases.
    requested: u64,
    /// The range ending at this range's start, in the same block.
    pub before: Index,
    /// The range starting at this range's end, in the same block.
    pub after: Index,
    /// The version of the handle, if used; else the position in its bin.
    pub detail: u32,
    /// The slot of the block.
    pub block: u32,
}

const USED: u64 = 1;

impl Range {
    #[inline]
    pub fn free(start: u64, size: u64, before: Index, after: Index, block: u32) -> Self {
        Self {
            start,
            requested: size,
            before,
            after,
            detail: 0,
            block,
        }
    }

    #[inline]
    pub fn used(start: u64, requested: u64, version: u32, block: u32) -> Self {
        Self {
            detail: version,
            ..Self::free(start | USED, requested, NONE, NONE, block)
        }
    }

    #[inline]
    pub fn start(&self) -> u64 {
        self.start & !USED
    }

    #[inline]
    pub fn size(&self) -> u64 {
        // Cannot overflow: the range ends below 2^64, at a granule.
        (self.requested + (GRANULE - 1)) & !(GRANULE - 1)
    }

    #[inline]
    pub fn requested(&self) -> u64 {
        self.requested
    }

    #[inline]
    pub fn end(&self) -> u64 {
        self.start() + self.size()
    }

    #[inline]
    pub fn is_used(&self) -> bool {
        self.start & USED != 0
    }

    /// Makes the range free, with these bounds.
    #[inline]
    pub fn set_free(&mut self, start: u64, size: u64) {
        self.start = start;
        self.requested = size;
    }

    /// The start of an allocation of `size` bytes at a multiple of `align` in this free range, if
    /// fitting.
    #[inline]
    pub fn fit(&self, size: u64, align: u64) -> Option<u64> {
        let start = self.start.checked_add(align - 1)? & !(align - 1);
        let front = start - self.start;
        (self.requested >= size && front <= self.requested - size).then_some(start)
    }
}

/// All ranges and the vacant places among them.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    table: Vec<Range>,
    vacant: Vec<Index>,
}

impl Ranges {
    /// Makes sure that two ranges can be added, as many as an allocation may need. False if there are
    /// [`MOST_RANGES`].
    #[inline]
    pub fn reserve(&mut self) -> bool {
        self.vacant.len() >= 2 || self.grow()
    }

    #[cold]
    fn grow(&mut self) -> bool {
        if self.table.len() > MOST_RANGES - 2 {
            return false;
        }
        for _ in 0..2 {
            self.vacant.push(self.table.len() as Index); // Fits, as has just been asked.
            self.table.push(Range::free(0, 0, NONE, NONE, 0));
        }
        true
    }

    /// What operations work on.
    #[inline]
    pub fn table(&mut self) -> Table<'_> {
        Table {
            ranges: &mut self.table,
            vacant: &mut self.vacant,
        }
    }

    /// Ranges, used and free.
    pub fn len(&self) -> usize {
        self.table.len() - self.vacant.len()
    }

    /// The range at a place that came from outside.
    #[inline]
    pub fn get(&self, index: Index) -> Option<&Range> {
        self.table.get(index as usize)
    }

    /// The used ranges and their places.
    pub fn used(&self) -> impl Iterator<Item = (Index, &Range)> {
        let all = self.table.iter().enumerate();
        // Places fit, see `grow`.
        all.filter(|(_, range)| range.is_used())
            .map(|(index, range)| (index as Index, range))
    }
}

/// Only existing places are handed out, and the table never shrinks: indexing by a place cannot fail.
impl ops::Index<Index> for Ranges {
    type Output = Range;

    #[inline]
    fn index(&self, index: Index) -> &Range {
        &self.table[index as usize]
    }
}

/// The table during an operation. For a slice, the address stays in a register however much is written through it; for
/// a vector the address would be loaded again each time.
pub(super) struct Table<'a> {
    ranges: &'a mut [Range],
    vacant: &'a mut Vec<Index>,
}

impl Table<'_> {
    #[inline]
    pub fn get(&self, index: Index) -> Option<&Range> {
        self.ranges.get(index as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, index: Index) -> Option<&mut Range> {
        self.ranges.get_mut(index as usize)
    }

    /// A vacant place, to be filled at once. There are two after [`Ranges::reserve`].
    #[inline]
    pub fn vacant(&mut self) -> Option<Index> {
        self.vacant.pop()
    }

    /// Makes a place vacant. Handles of its range are refused from now on.
    #[inline]
    pub fn vacate(&mut self, index: Index) {
        self[index].start &= !USED;
        self.vacant.push(index);
    }
}

impl ops::Index<Index> for Table<'_> {
    type Output = Range;

    #[inline]
    fn index(&self, index: Index) -> &Range {
        &self.ranges[index as usize]
    }
}

impl ops::IndexMut<Index> for Table<'_> {
    #[inline]
    fn index_mut(&mut self, index: Index) -> &mut Range {
        &mut self.ranges[index as usize]
    }
}
