//! A region's answers about its allocations and blocks.

use super::super::ranges::{Index, Range};
use super::super::statistics::fragmentation;
use super::super::{Allocation, AllocationId, Block, BlockId, RegionStats};
use super::{Region, handle};

impl Region {
    /// The live allocation that contains `address`: its first byte, or any other granted byte.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let (_, &block) = self.by_address.range(..=address).next_back()?;
        let block = self.entry(block)?;
        if address < block.start || address >= block.end {
            return None;
        }
        let Some(starts) = &block.starts else {
            return self
                .allocations()
                .find(|a| a.address <= address && address < a.end());
        };
        let index = starts.last_before(&self.ranges, address)?;
        let range = &self.ranges[index];
        (address < range.end())
            .then(|| self.describe(index, range))
            .flatten()
    }

    /// The allocation with a handle, if it is live.
    pub fn get(&self, id: AllocationId) -> Option<Allocation> {
        let (index, range) = self.resolve(id)?;
        self.describe(index, &range)
    }

    /// All live allocations, in no particular order.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation> {
        let used = self.ranges.used();
        used.filter_map(|(index, range)| self.describe(index, range))
    }

    /// The live allocation with the highest address. With [`RegionOptions::lookup`](super::RegionOptions::lookup) the
    /// answer takes no longer than a look-up for each empty block above.
    pub fn last(&self) -> Option<Allocation> {
        let mut blocks = self.by_address.values().rev();
        let block = blocks.find_map(|&id| self.entry(id).filter(|block| block.in_use > 0))?;
        let Some(starts) = &block.starts else {
            let within = self.allocations().filter(|a| a.block == block.id);
            return within.max_by_key(|a| a.address);
        };
        let index = starts.last_before(&self.ranges, block.end - 1)?;
        self.describe(index, &self.ranges[index])
    }

    /// Bytes in use, as in [`Region::stats`], but at no cost.
    pub fn in_use(&self) -> u64 {
        self.counters.in_use
    }

    /// The block with a handle.
    pub fn block(&self, id: BlockId) -> Option<Block> {
        self.entry(id).map(|entry| Block {
            id,
            base: entry.base,
            size: entry.size,
            in_use: entry.in_use,
        })
    }

    /// All blocks, by address.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.by_address.values().filter_map(|&id| self.block(id))
    }

    /// The region's figures. Takes as long as the bin of the largest free ranges has ranges.
    pub fn stats(&self) -> RegionStats {
        let counters = &self.counters;
        let largest_free = self.largest_free();
        RegionStats {
            capacity: counters.capacity,
            in_use: counters.in_use,
            requested: counters.requested,
            allocations: counters.allocations,
            largest_free,
            free_ranges: self.ranges.len() - counters.allocations,
            fragmentation: fragmentation(largest_free, counters.capacity - counters.in_use),
            peak: counters.peak,
            blocks: self.handles.len(),
        }
    }

    pub(super) fn largest_free(&self) -> u64 {
        let list = self
            .bins
            .last()
            .map_or(&[][..], |bin| self.bins.ranges(bin));
        let sizes = list.iter().map(|&index| self.ranges[index].requested());
        sizes.max().unwrap_or(0)
    }

    /// The allocation of a range, if used.
    fn describe(&self, index: Index, range: &Range) -> Option<Allocation> {
        let block = self.blocks.get(range.block as usize)?.as_ref()?;
        range.is_used().then(|| Allocation {
            id: handle(index, range.detail),
            address: range.start(),
            size: range.size(),
            requested: range.requested(),
            block: block.id,
        })
    }
}
