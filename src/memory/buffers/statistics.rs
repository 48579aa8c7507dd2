//! What buffers have cost and spared, and the memory that they have on devices.

use crate::memory::migrate::Counters;

/// What was moved for a buffer, or for all buffers of a context, and what was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BufferStatistics {
    /// What the planner decided: bytes moved and avoided. Bytes that go through copies of the host count for each
    /// of the two hops.
    pub moves: Counters,
    /// Times that the memory on a device was given up, to make room or because somebody asked for it.
    pub evictions: u64,
    /// Times that it had to be copied to other memory on one device, because a launch wrote it, or something else in the
    /// same block of the device's memory. Twice at most on each device.
    pub relocations: u64,
    /// Writes of different devices and threads to the same bytes, of which the second was enqueued before the first had
    /// ended or anybody had waited for it. The second one counts; which one is second is a matter of luck.
    pub conflicts: u64,
}

/// The memory that buffers of a context have on one device.
///
/// Small buffers are carved out of blocks, which start with 256 KiB and grow to 4 MiB, or the 64th part of the cap if
/// that is less; small is what is less than a quarter of the largest block. All others have memory of their own, and so
/// have all buffers where a cap leaves less than 64 KiB for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BufferMemory {
    /// Bytes that they have now.
    pub used: u64,
    /// The most that they ever had.
    pub peak: u64,
    /// How many have memory there.
    pub buffers: u64,
    /// Bytes that the device has given for them: whole blocks, and buffers that are too large for blocks.
    pub reserved: u64,
    /// Blocks, out of which small buffers are carved.
    pub blocks: u64,
    /// Bytes of all blocks.
    pub block_bytes: u64,
    /// Bytes of blocks that buffers have, each a multiple of [`GRANULE`](crate::heap::region::GRANULE).
    pub block_used: u64,
    /// The largest stretch of free bytes in a block.
    pub largest_free: u64,
    /// What may be reserved for them, if [`DeviceOptions::buffer_bytes`](crate::DeviceOptions::buffer_bytes) limits it.
    pub cap: Option<u64>,
}
