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
    /// Writes of different devices and threads to the same bytes, of which the second was enqueued before the first had
    /// ended or anybody had waited for it. The second one counts; which one is second is a matter of luck.
    pub conflicts: u64,
}

/// The memory that buffers of a context have on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BufferMemory {
    /// Bytes that they have now.
    pub used: u64,
    /// The most that they ever had.
    pub peak: u64,
    /// How many have memory there.
    pub buffers: u64,
    /// What they may have, if [`DeviceOptions::buffer_bytes`](crate::DeviceOptions::buffer_bytes) limits it.
    pub cap: Option<u64>,
}
