//! The region allocator: it hands out ranges of addresses and touches no memory.
//!
//! A [`Region`] manages any number of [`Block`]s of address space (a mapped heap, the bytes of a GPU buffer, whatever
//! has addresses or offsets). All knowledge about blocks is kept here on the host: the memory itself may be out of
//! reach, and no write of a kernel can harm the allocator.
//!
//! ```text
//!  block 0                                                                    block 1 (growth)
//!  base                                                              base+size  base
//!  |                                                                 |          |
//!  v                                                                 v          v
//!  +---------+-----+--------------+----------+------+-----------------+          +---------------
//!  |  used   |free |     used     |   used   | free |      used       |          |  free ...
//!  +---------+-----+--------------+----------+------+-----------------+          +---------------
//!   ^  before|after                           ^
//!   |  <-----'----->  neighbours by address   |        (never across blocks)
//!   |                                         |
//!   |  pages: the last allocation that        |  bins: free ranges by size
//!   |  starts in each page                    |
//!   |  +---+---+---+---+---+                  |   summary  0 1 0 0 ...     (a bit for each word)
//!   '--| 7 | 0 | 3 | 0 | 9 |                  |              |
//!      +---+---+---+---+---+                  |   filled   00100101 ...    (a bit for each bin)
//!                                             |              |  | |
//!   AllocationId = place + version            '-- ranges    [9]..[4, 7, 2]
//! ```
//!
//! - **Allocation** looks for the first non-empty bin all of whose ranges are large enough: two bit
//!   scans. What is left of the range before (because of the alignment) and behind stays free; nothing
//!   is lost but the rounding to [`GRANULE`]. O(1).
//! - When no such bin is left, the bins that *may* hold a fitting range are searched in turn: an
//!   allocation fails only if no free range fits. This costs as much as those bins have ranges, and
//!   only happens where the allocation would otherwise have failed.
//! - **Freeing** joins the range with both neighbours. O(1).
//! - **Look-up** by any address inside an allocation ([`Region::find`]) goes through the pages, if
//!   [`RegionOptions::lookup`] is on. The walk covers at most the allocations starting in a page of 4 KiB (or of a
//!   2^20th of the block, if larger).
//!
//! A region is a plain value without locks: share it behind a mutex.
//!
//! ```
//! use tombolo::heap::region::{Region, RegionOptions};
//!
//! let mut region = Region::new(RegionOptions::default().with_lookup(true));
//! region.add_block(0x1_0000_0000, 1 << 20)?;
//! let allocation = region.allocate(1000, 256)?;
//! assert_eq!(allocation.address % 256, 0);
//! assert_eq!(region.find(allocation.address + 999), Some(allocation));
//! region.free(allocation.id)?;
//! assert!(region.free(allocation.id).is_err());
//! # Ok::<(), tombolo::heap::region::RegionError>(())
//! ```

mod allocator;
mod bins;
mod blocks;
mod error;
mod ranges;
mod statistics;

#[cfg(test)]
mod shadow;
#[cfg(test)]
mod tests;

pub use allocator::Region;
pub use blocks::Block;
pub use error::RegionError;
pub use statistics::RegionStats;

/// The unit of a region, in bytes: every allocation starts at a multiple of the unit and is granted
/// a multiple of the unit. 16 is the alignment of WGSL's `vec4`.
pub const GRANULE: u64 = 16;

slotmap::new_key_type! {
    /// Handle of a live allocation. Once the allocation was freed it is not valid again, until 2^31 allocations later
    /// at the earliest. Being a slotmap key, the handle can index a `slotmap::SecondaryMap` with the owner's data about
    /// the allocation.
    pub struct AllocationId;

    /// Handle of a block of a [`Region`].
    pub struct BlockId;
}

/// Where an allocation is placed when several free ranges could hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Some range of the first bin all of whose ranges are large enough: O(1).
    #[default]
    GoodFit,
    /// The smallest fitting range in the lowest non-empty bin: takes time linear in the ranges of the bins around the
    /// size. In a region 95 % full tight placement costs about twice the time, and refuses about a third less for want
    /// of a large enough range.
    TightFit,
}

/// How a [`Region`] behaves.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct RegionOptions {
    /// Where allocations are placed.
    pub placement: Placement,
    /// The largest block, in bytes, that the owner may add later. A fitting request is [`RegionError::NoRoom`] and not
    /// [`RegionError::TooLargeEver`]. 0 if the region will not grow.
    pub growth: u64,
    /// The capacity, in bytes, that [`Region::trim`] leaves.
    pub keep: u64,
    /// Whether blocks added from now on are indexed, so [`Region::find`] is fast in them. Costs a few nanoseconds in
    /// each operation and a byte in a thousand; without the index, `find` goes through all allocations.
    pub lookup: bool,
}

impl RegionOptions {
    /// Sets [`placement`](Self::placement).
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets [`growth`](Self::growth), in bytes.
    #[must_use]
    pub fn with_growth(mut self, bytes: u64) -> Self {
        self.growth = bytes;
        self
    }

    /// Sets [`lookup`](Self::lookup).
    #[must_use]
    pub fn with_lookup(mut self, lookup: bool) -> Self {
        self.lookup = lookup;
        self
    }

    /// Sets [`keep`](Self::keep), in bytes.
    #[must_use]
    pub fn with_keep(mut self, bytes: u64) -> Self {
        self.keep = bytes;
        self
    }
}

/// A live allocation of a [`Region`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// The handle for freeing.
    pub id: AllocationId,
    /// Its first address: a multiple of the alignment and of [`GRANULE`].
    pub address: u64,
    /// The bytes granted: `requested`, rounded up to [`GRANULE`].
    pub size: u64,
    /// The bytes asked for.
    pub requested: u64,
    /// The block of the allocation.
    pub block: BlockId,
}

impl Allocation {
    /// One past the last address granted.
    pub fn end(&self) -> u64 {
        self.address + self.size
    }
}
