//! The allocator itself: bins, ranges, blocks and handles together.
//!
//! Two-level bins, neighbours joined on free, handles that notice a double free, an exact search before a refusal.

mod queries;

use std::collections::BTreeMap;

use slotmap::{Key, KeyData, SlotMap};

use super::bins::{Bins, bin_above, bin_of};
use super::blocks::{BlockEntry, Starts};
use super::ranges::{Index, MOST_RANGES, NONE, Range, Ranges};
use super::statistics::Counters;
use super::{
    Allocation, AllocationId, Block, BlockId, GRANULE, Placement, RegionError, RegionOptions,
};

/// Where an allocation will be.
#[derive(Clone, Copy)]
struct Place {
    /// The free range.
    index: Index,
    /// Its bin.
    bin: usize,
    /// The first address, in that range.
    start: u64,
}

/// Manages blocks of addresses: allocates, frees, looks up, counts. It touches no memory.
///
/// Allocating and freeing take constant time, whatever the number of allocations; the
/// [module](super) says how.
#[derive(Debug)]
pub struct Region {
    options: RegionOptions,
    ranges: Ranges,
    bins: Bins,
    /// Versions of the handles to come. The low bit is set, as slotmap wants it in live keys.
    version: u32,
    /// The slot of each block.
    handles: SlotMap<BlockId, u32>,
    /// Ranges name their block by its slot here.
    blocks: Vec<Option<BlockEntry>>,
    /// First usable address of each block.
    by_address: BTreeMap<u64, BlockId>,
    blocks_added: u64,
    counters: Counters,
}

impl Region {
    /// A region without blocks: nothing can be allocated before [`Region::add_block`].
    pub fn new(options: RegionOptions) -> Self {
        Self {
            options,
            ranges: Ranges::default(),
            bins: Bins::new(),
            version: 1,
            handles: SlotMap::with_key(),
            blocks: Vec::new(),
            by_address: BTreeMap::new(),
            blocks_added: 0,
            counters: Counters::default(),
        }
    }

    /// The options, which may change at any time.
    pub fn options_mut(&mut self) -> &mut RegionOptions {
        &mut self.options
    }

    /// Adds the addresses `base..base + size`. Blocks are never merged, even if touching: no
    /// allocation crosses from a block into another.
    ///
    /// # Errors
    ///
    /// [`RegionError::InvalidBlock`] if it holds no whole granule or ends beyond 2^64 - 1, and
    /// [`RegionError::OverlappingBlock`].
    pub fn add_block(&mut self, base: u64, size: u64) -> Result<BlockId, RegionError> {
        let invalid = RegionError::InvalidBlock { base, size };
        let end = base.checked_add(size).ok_or(invalid)? & !(GRANULE - 1);
        let start = base.checked_next_multiple_of(GRANULE).ok_or(invalid)?;
        if start >= end {
            return Err(invalid);
        }
        // The rest of a block beside its granules, at either end, still belongs to the block.
        let earlier = self
            .by_address
            .range(..base.saturating_add(size))
            .next_back();
        if let Some(other) = earlier.and_then(|(_, &id)| self.entry(id))
            && other.base + other.size > base
        {
            return Err(RegionError::OverlappingBlock {
                base,
                size,
                other_base: other.base,
            });
        }
        if !self.ranges.reserve() {
            return Err(RegionError::TooManyRanges { limit: MOST_RANGES });
        }
        let vacant = self.blocks.iter().position(Option::is_none);
        let slot = vacant.unwrap_or(self.blocks.len());
        let id = self.handles.insert(slot as u32); // Each block has a range, and these fit.
        let entry = Some(BlockEntry {
            id,
            base,
            size,
            start,
            end,
            in_use: 0,
            order: self.blocks_added,
            starts: self.options.lookup.then(|| Starts::new(start, end - start)),
        });
        match vacant {
            Some(slot) => self.blocks[slot] = entry,
            None => self.blocks.push(entry),
        }
        self.blocks_added += 1;
        self.by_address.insert(base, id);
        self.counters.capacity += end - start;
        let free = Range::free(start, end - start, NONE, NONE, slot as u32);
        let mut ranges = self.ranges.table();
        if let Some(index) = ranges.vacant() {
            ranges[index] = free;
            self.bins.insert(&mut ranges, index);
        }
        Ok(id)
    }

    /// Takes back a block in which nothing is allocated.
    ///
    /// # Errors
    ///
    /// [`RegionError::UnknownBlock`] and [`RegionError::BlockInUse`].
    pub fn remove_block(&mut self, id: BlockId) -> Result<Block, RegionError> {
        let block = self.block(id).ok_or(RegionError::UnknownBlock { id })?;
        if block.in_use != 0 {
            return Err(RegionError::BlockInUse {
                id,
                in_use: block.in_use,
            });
        }
        let slot = self.handles.remove(id).unwrap_or(NONE);
        if let Some(entry) = self.blocks.get_mut(slot as usize).and_then(Option::take) {
            let size = entry.end - entry.start;
            let bin = bin_of(size);
            self.by_address.remove(&entry.base);
            self.counters.capacity -= size;
            // An empty block is a single free range, in the bin of its size.
            let mut list = self.bins.ranges(bin).iter();
            if let Some(&index) = list.find(|&&index| self.ranges[index].block == slot) {
                let mut ranges = self.ranges.table();
                self.bins.remove(&mut ranges, index, bin);
                ranges.vacate(index);
            }
        }
        Ok(block)
    }

    /// Takes back the blocks in which nothing is allocated, the youngest first, except the oldest
    /// block of the region, and as long as [`RegionOptions::keep`] bytes of capacity are left.
    pub fn trim(&mut self) -> Vec<Block> {
        let mut order: Vec<(u64, BlockId)> = self
            .blocks
            .iter()
            .flatten()
            .map(|b| (b.order, b.id))
            .collect();
        order.sort_unstable();
        let mut removed = Vec::new();
        for &(_, id) in order.iter().skip(1).rev() {
            let Some(entry) = self.entry(id) else {
                continue;
            };
            let left = self.counters.capacity - (entry.end - entry.start);
            if entry.in_use == 0 && left >= self.options.keep {
                removed.extend(self.remove_block(id));
            }
        }
        removed
    }

    /// Allocates `size` bytes at a multiple of `align`.
    ///
    /// Any power of two is an alignment. The address is a multiple of [`GRANULE`] in any case.
    ///
    /// # Errors
    ///
    /// [`RegionError::ZeroSize`], [`RegionError::InvalidAlignment`], [`RegionError::TooLargeEver`] if no empty block
    /// could hold the allocation, [`RegionError::NoRoom`] if no free range can hold the allocation now,
    /// [`RegionError::TooManyRanges`].
    #[inline]
    pub fn allocate(&mut self, size: u64, align: u64) -> Result<Allocation, RegionError> {
        if size == 0 {
            return Err(RegionError::ZeroSize);
        }
        if !align.is_power_of_two() {
            return Err(RegionError::InvalidAlignment { align });
        }
        if !self.ranges.reserve() {
            return Err(RegionError::TooManyRanges { limit: MOST_RANGES });
        }
        let granted = size.checked_next_multiple_of(GRANULE);
        granted
            .and_then(|granted| {
                let place = self.choose(granted, align.max(GRANULE))?;
                self.take(place, granted, size)
            })
            .ok_or_else(|| self.refusal(size, align))
    }

    /// Frees an allocation, and returns its granted bytes.
    ///
    /// # Errors
    ///
    /// [`RegionError::UnknownAllocation`] for a handle no longer live (freed before).
    #[inline]
    pub fn free(&mut self, id: AllocationId) -> Result<u64, RegionError> {
        let (index, range) = self
            .resolve(id)
            .ok_or(RegionError::UnknownAllocation { id })?;
        let size = range.size();
        self.counters.allocations -= 1;
        self.counters.in_use -= size;
        self.counters.requested -= range.requested();
        if let Some(Some(block)) = self.blocks.get_mut(range.block as usize) {
            block.in_use -= size;
            if let Some(starts) = &mut block.starts {
                starts.remove(&self.ranges, index);
            }
        }
        self.coalesce(index, range);
        Ok(size)
    }

    /// A free range that holds `size` bytes at a multiple of `align`.
    #[inline(always)]
    fn choose(&self, size: u64, align: u64) -> Option<Place> {
        if self.options.placement == Placement::GoodFit
            // Large enough wherever it begins.
            && let Some(padded) = size.checked_add(align - GRANULE)
            && let Some(bin) = self.bins.first_from(bin_above(padded))
            && let Some(&index) = self.bins.ranges(bin).last()
        {
            // Cannot overflow: the range has room behind this sum.
            let start = (self.ranges[index].start() + (align - 1)) & !(align - 1);
            return Some(Place { index, bin, start });
        }
        self.search(size, align)
    }

    /// A fitting range of the lowest non-empty bin, and the smallest there if placement is tight: exact, and linear in
    /// the visited ranges.
    #[cold]
    #[inline(never)]
    fn search(&self, size: u64, align: u64) -> Option<Place> {
        let mut from = bin_of(size);
        while let Some(bin) = self.bins.first_from(from) {
            let list = self.bins.ranges(bin).iter().rev();
            let mut fitting = list.filter_map(|&index| {
                let range = &self.ranges[index];
                let start = range.fit(size, align)?;
                Some((range.requested(), Place { index, bin, start }))
            });
            let found = match self.options.placement {
                Placement::GoodFit => fitting.next(),
                Placement::TightFit => fitting.min_by_key(|&(size, _)| size),
            };
            if let Some((_, place)) = found {
                return Some(place);
            }
            from = bin + 1;
        }
        None
    }

    /// Makes `size` bytes at a place an allocation. What lies in front and behind stays free.
    #[inline(always)]
    fn take(&mut self, place: Place, size: u64, requested: u64) -> Option<Allocation> {
        let Place { index, bin, start } = place;
        let ranges = &mut self.ranges.table();
        let bins = &mut self.bins;
        bins.remove(ranges, index, bin);
        let range = ranges[index];
        let front = start - range.start();
        let back = range.requested() - size - front;
        self.version = self.version.wrapping_add(2);
        let mut used = Range::used(start, requested, self.version, range.block);
        used.before = range.before;
        used.after = range.after;
        let mut taken = index;
        if front != 0 {
            // What lies in front keeps the place.
            taken = ranges.vacant()?;
            let before = &mut ranges[index];
            before.set_free(range.start(), front);
            before.after = taken;
            used.before = index;
            bins.insert(ranges, index);
        }
        let mut last = taken;
        if back != 0 {
            last = ranges.vacant()?;
            used.after = last;
            ranges[last] = Range::free(start + size, back, taken, range.after, range.block);
            bins.insert(ranges, last);
        }
        ranges[taken] = used;
        if let Some(after) = ranges.get_mut(range.after) {
            after.before = last;
        }
        let mut id = BlockId::default();
        if let Some(Some(block)) = self.blocks.get_mut(range.block as usize) {
            id = block.id;
            block.in_use += size;
            if let Some(starts) = &mut block.starts {
                starts.insert(&self.ranges, taken);
            }
        }
        let counters = &mut self.counters;
        counters.allocations += 1;
        counters.in_use += size;
        counters.requested += requested;
        counters.peak = counters.peak.max(counters.in_use);
        Some(Allocation {
            id: handle(taken, self.version),
            address: start,
            size,
            requested,
            block: id,
        })
    }

    /// Makes the used range at `index` free, joined with the free ranges on both sides.
    #[inline(always)]
    fn coalesce(&mut self, index: Index, range: Range) {
        let ranges = &mut self.ranges.table();
        let bins = &mut self.bins;
        let (mut start, mut end) = (range.start(), range.end());
        let mut after = range.after;
        if let Some(&next) = ranges.get(after)
            && !next.is_used()
        {
            bins.remove(ranges, after, bin_of(next.requested()));
            ranges.vacate(after);
            end += next.requested();
            after = next.after;
        }
        let mut kept = index;
        if let Some(&previous) = ranges.get(range.before)
            && !previous.is_used()
        {
            kept = range.before;
            bins.remove(ranges, kept, bin_of(previous.requested()));
            ranges.vacate(index);
            start = previous.start();
        }
        let free = &mut ranges[kept];
        free.set_free(start, end - start);
        free.after = after;
        if let Some(next) = ranges.get_mut(after) {
            next.before = kept;
        }
        bins.insert(ranges, kept);
    }

    /// The used range of a handle, if live.
    #[inline]
    fn resolve(&self, id: AllocationId) -> Option<(Index, Range)> {
        let key = id.data().as_ffi();
        let (index, version) = (key as u32, (key >> 32) as u32);
        let range = self.ranges.get(index)?;
        (range.is_used() && range.detail == version).then_some((index, *range))
    }

    fn entry(&self, id: BlockId) -> Option<&BlockEntry> {
        let slot = *self.handles.get(id)?;
        self.blocks.get(slot as usize)?.as_ref()
    }

    /// Says why nothing fits: not now, or never.
    #[cold]
    #[inline(never)]
    fn refusal(&self, size: u64, align: u64) -> RegionError {
        let could_hold = |granted: u64| {
            granted <= self.options.growth
                || self
                    .blocks
                    .iter()
                    .flatten()
                    .any(|block| block.could_hold(granted, align.max(GRANULE)))
        };
        if size
            .checked_next_multiple_of(GRANULE)
            .is_some_and(could_hold)
        {
            return RegionError::NoRoom {
                size,
                align,
                largest_free: self.largest_free(),
                in_use: self.counters.in_use,
                capacity: self.counters.capacity,
            };
        }
        let blocks = self
            .blocks
            .iter()
            .flatten()
            .map(|block| block.end - block.start);
        RegionError::TooLargeEver {
            size,
            align,
            largest_block: blocks.max().unwrap_or(0).max(self.options.growth),
        }
    }
}

/// The handle of the range at `index`, in slotmap's format.
///
/// The versions are counted by the region as a whole and not by each place: so no free place needs to
/// remember one.
#[inline]
fn handle(index: Index, version: u32) -> AllocationId {
    KeyData::from_ffi(u64::from(version) << 32 | u64::from(index)).into()
}
