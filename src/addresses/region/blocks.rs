//! Blocks: the stretches of address space managed by a region, and their index of allocations.

use super::BlockId;
use super::ranges::{Index, NONE, Ranges};

/// A stretch of addresses that belongs to a [`Region`](super::Region).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The block's handle.
    pub id: BlockId,
    /// Its first address, as given.
    pub base: u64,
    /// Its size in bytes, as given.
    pub size: u64,
    /// Its bytes granted to allocations.
    pub in_use: u64,
}

/// What a region keeps about a block.
#[derive(Debug)]
pub(super) struct BlockEntry {
    pub id: BlockId,
    pub base: u64,
    pub size: u64,
    /// First usable address: `base`, rounded up to granules.
    pub start: u64,
    /// One past the last usable address, rounded down to granules.
    pub end: u64,
    pub in_use: u64,
    /// When it was added, counted in blocks.
    pub order: u64,
    /// None if the region looks nothing up by address.
    pub starts: Option<Starts>,
}

impl BlockEntry {
    /// Whether `size` bytes at a multiple of `align` would fit the empty block.
    pub fn could_hold(&self, size: u64, align: u64) -> bool {
        self.start
            .checked_next_multiple_of(align)
            .and_then(|start| start.checked_add(size))
            .is_some_and(|end| end <= self.end)
    }
}

/// Smallest page of the index, as a power of two: 4 KiB.
const LEAST_PAGE: u32 = 12;
/// Most pages of the index, as a power of two. Larger blocks have larger pages.
const MOST_PAGES: u32 = 20;

/// An index from addresses to allocations: for each page of a block, the last allocation starting there, and a tree of
/// bitmaps over the pages with such an allocation.
///
/// A balanced tree would cost as much as the allocation itself. Here, allocating and freeing touch
/// a single entry, and a look-up walks back over at most the allocations starting in a page.
#[derive(Debug)]
pub(super) struct Starts {
    base: u64,
    shift: u32,
    /// The last allocation starting in each page, plus 1; 0 if none does. Zero, since zeroed memory
    /// of the system costs nothing until touched.
    pages: Box<[Index]>,
    /// Level 0 has a bit for each page; each further level a bit for each word of the one below.
    levels: Vec<Box<[u64]>>,
}

impl Starts {
    /// An index for a block of `size` bytes, at least one, from `base`.
    pub fn new(base: u64, size: u64) -> Self {
        let bits = 64 - (size - 1).leading_zeros();
        let shift = bits.saturating_sub(MOST_PAGES).max(LEAST_PAGE);
        let pages = ((size - 1) >> shift) as usize + 1;
        let mut levels = Vec::new();
        let mut words = pages;
        loop {
            words = words.div_ceil(64);
            levels.push(vec![0; words].into_boxed_slice());
            if words == 1 {
                break;
            }
        }
        Self {
            base,
            shift,
            pages: vec![0; pages].into_boxed_slice(),
            levels,
        }
    }

    /// The page of an address of the block. Callers pass no others: the number indexes `pages`, and
    /// its quotients by 64 index the levels.
    #[inline]
    fn page(&self, address: u64) -> usize {
        ((address - self.base) >> self.shift) as usize
    }

    /// Notes the allocation at `index`.
    #[inline]
    pub fn insert(&mut self, ranges: &Ranges, index: Index) {
        let start = ranges[index].start();
        let page = self.page(start);
        let entry = &mut self.pages[page];
        if *entry == 0 {
            *entry = index + 1;
            self.mark(page);
        } else if ranges[*entry - 1].start() < start {
            *entry = index + 1;
        }
    }

    /// Forgets the allocation at `index`, whose neighbours are still linked.
    #[inline]
    pub fn remove(&mut self, ranges: &Ranges, index: Index) {
        let range = &ranges[index];
        let page = self.page(range.start());
        if self.pages[page] != index + 1 {
            return;
        }
        let mut before = range.before;
        if before != NONE && !ranges[before].is_used() {
            // Free ranges are coalesced: an allocation lies before each.
            before = ranges[before].before;
        }
        if before != NONE && self.page(ranges[before].start()) == page {
            self.pages[page] = before + 1;
        } else {
            self.pages[page] = 0;
            self.unmark(page);
        }
    }

    /// The last allocation that starts at or before `address`, which lies in the block.
    pub fn last_before(&self, ranges: &Ranges, address: u64) -> Option<Index> {
        let page = self.marked_up_to(self.page(address))?;
        let mut index = self.pages[page].checked_sub(1)?;
        while ranges[index].start() > address || !ranges[index].is_used() {
            index = ranges[index].before;
            if index == NONE {
                return None;
            }
        }
        Some(index)
    }

    #[inline]
    fn mark(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            let was_empty = *word == 0;
            *word |= 1 << (bit % 64);
            if !was_empty {
                return;
            }
            bit /= 64;
        }
    }

    #[inline]
    fn unmark(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            *word &= !(1 << (bit % 64));
            if *word != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// The last marked page that is not above `page`.
    fn marked_up_to(&self, page: usize) -> Option<usize> {
        let mut at = page;
        // At the level of the pages the bit itself counts; further up only lower bits.
        let mut mask = u64::MAX >> (63 - page % 64);
        for (depth, level) in self.levels.iter().enumerate() {
            let below = level[at / 64] & mask;
            if let Some(bit) = below.checked_ilog2() {
                let mut found = at / 64 * 64 + bit as usize;
                for level in self.levels[..depth].iter().rev() {
                    found = found * 64 + level[found].checked_ilog2()? as usize;
                }
                return Some(found);
            }
            at /= 64;
            mask = (1 << (at % 64)) - 1;
        }
        None
    }
}
