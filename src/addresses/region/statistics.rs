//! A region's figures about itself.

/// Figures of a [`Region`](super::Region) at one moment. All sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct RegionStats {
    /// What all blocks together can hold.
    pub capacity: u64,
    /// Bytes granted to allocations: the requested bytes, rounded up to
    /// [`GRANULE`](super::GRANULE).
    pub in_use: u64,
    /// What allocations asked for.
    pub requested: u64,
    /// Live allocations.
    pub allocations: usize,
    /// The largest free range.
    pub largest_free: u64,
    /// Free ranges. Each has an allocation or the end of its block on both sides.
    pub free_ranges: usize,
    /// `1 - largest_free / free`, where `free` is all free bytes: 0 for a single free range (or
    /// none), close to 1 for many small ones.
    pub fragmentation: f64,
    /// The most that `in_use` has been.
    pub peak: u64,
    /// Blocks.
    pub blocks: usize,
}

impl RegionStats {
    /// Bytes that are not in use.
    pub fn free(&self) -> u64 {
        self.capacity - self.in_use
    }
}

/// The figures that are kept up to date by every operation.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub capacity: u64,
    pub in_use: u64,
    pub requested: u64,
    pub allocations: usize,
    pub peak: u64,
}

/// See [`RegionStats::fragmentation`].
pub(super) fn fragmentation(largest_free: u64, free: u64) -> f64 {
    if free == 0 {
        0.0
    } else {
        1.0 - largest_free as f64 / free as f64
    }
}
