//! Figures: moves of buffers, and their memory on devices.

use crate::memory::migrate::Counters;

/// Moves made and avoided, for a buffer, or for all buffers of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BufferStatistics {
    /// Bytes moved and avoided, as decided by the planner. Bytes through copies of the host count for each of the two
    /// hops.
    pub moves: Counters,
    /// Times memory on a device was given up, to make room or on request.
    pub evictions: u64,
    /// Times the buffer was copied to other memory on one device, because a launch wrote the buffer, or another
    /// argument in the same block of the device's memory. Twice at most on each device.
    pub relocations: u64,
    /// Writes of different devices and threads to the same bytes, where the second was enqueued before the end of the
    /// first, and without a wait for the first. Counted for the second write; the order of the two is a race.
    pub conflicts: u64,
    /// Ranges sent ahead to another device, since that device had fetched them before.
    pub sent_ahead: u64,
    /// Ranges that had been sent ahead when they were needed.
    pub fetched_ahead: u64,
}

/// The memory of a context's buffers on one device.
///
/// Small buffers are carved out of blocks, which start with 256 KiB and grow to 4 MiB, or to the 64th part of the cap
/// if smaller; buffers below a quarter of the largest block are small. All others have memory of their own, and so have
/// all buffers where a cap leaves less than 64 KiB for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BufferMemory {
    /// Bytes of buffers now.
    pub used: u64,
    /// The peak of `used`.
    pub peak: u64,
    /// Buffers with memory there.
    pub buffers: u64,
    /// Bytes given by the device: whole blocks, and buffers too large for blocks.
    pub reserved: u64,
    /// Blocks, out of which small buffers are carved.
    pub blocks: u64,
    /// Bytes of all blocks.
    pub block_bytes: u64,
    /// Bytes of blocks in use, each buffer a multiple of [`GRANULE`](crate::heap::region::GRANULE).
    pub block_used: u64,
    /// The largest stretch of free bytes in a block.
    pub largest_free: u64,
    /// The limit of `reserved`, if [`DeviceOptions::buffer_bytes`](crate::DeviceOptions::buffer_bytes) sets a limit.
    pub cap: Option<u64>,
}
