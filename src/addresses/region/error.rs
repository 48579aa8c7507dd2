//! Why a region refuses.

use super::{AllocationId, BlockId};
use crate::error_text::debug_by_text;

/// Why a [`Region`](super::Region) refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// No bytes were asked for.
    #[error("region: an allocation of 0 bytes has no address: ask for 1 byte or more")]
    ZeroSize,
    /// The alignment is no power of two.
    #[error("region: an alignment of {align} is no power of two: use 1, 2, 4, 8 and so on")]
    InvalidAlignment {
        /// The alignment asked for, in bytes.
        align: u64,
    },
    /// No block can hold the allocation, even when all else is freed.
    #[error(
        "region: {size} bytes at an alignment of {align} can never fit (the largest block has \
         {largest_block} bytes): allocate in parts, or make the region of larger blocks"
    )]
    TooLargeEver {
        /// The size asked for, in bytes.
        size: u64,
        /// The alignment asked for, in bytes.
        align: u64,
        /// The largest block existing, or possible, in bytes.
        largest_block: u64,
    },
    /// No free range can hold the allocation now.
    #[error(
        "region: no room now for {size} bytes at an alignment of {align} (largest free range \
         {largest_free}, in use {in_use} of {capacity} bytes): free something, or add a block"
    )]
    NoRoom {
        /// The size asked for, in bytes.
        size: u64,
        /// The alignment asked for, in bytes.
        align: u64,
        /// The largest free range, in bytes. May be `size` or more, if it is not aligned.
        largest_free: u64,
        /// Bytes in use.
        in_use: u64,
        /// Bytes of all blocks together.
        capacity: u64,
    },
    /// There are as many ranges as the tables can number.
    #[error("region: {limit} ranges are the most that can be told apart: free something")]
    TooManyRanges {
        /// The most ranges, used and free.
        limit: usize,
    },
    /// The handle is of no live allocation: it was freed before, or belongs to another region.
    #[error("region: {id:?} is no live allocation: it was freed before, or is of another region")]
    UnknownAllocation {
        /// The handle.
        id: AllocationId,
    },
    /// The handle is of no block: it was removed before, or belongs to another region.
    #[error("region: {id:?} is no block: it was removed before, or is of another region")]
    UnknownBlock {
        /// The handle.
        id: BlockId,
    },
    /// The block holds live allocations.
    #[error("region: {id:?} has {in_use} bytes in use: free its allocations before it is removed")]
    BlockInUse {
        /// The block.
        id: BlockId,
        /// Bytes of it in use.
        in_use: u64,
    },
    /// The block holds not even one granule, or reaches beyond the last address.
    #[error(
        "region: {size} bytes at {base:#x} are no block: it must hold 16 bytes at a multiple of 16, \
         and end at or below 2^64 - 1"
    )]
    InvalidBlock {
        /// First address.
        base: u64,
        /// Size in bytes.
        size: u64,
    },
    /// The block shares addresses with a block of the region.
    #[error(
        "region: the block of {size} bytes at {base:#x} overlaps that at {other_base:#x}: an \
         address belongs to one block"
    )]
    OverlappingBlock {
        /// First address of the new block.
        base: u64,
        /// Size of the new block in bytes.
        size: u64,
        /// First address of the block that is there.
        other_base: u64,
    },
}

debug_by_text!(RegionError {
    ZeroSize,
    InvalidAlignment,
    TooLargeEver,
    NoRoom,
    TooManyRanges,
    UnknownAllocation,
    UnknownBlock,
    BlockInUse,
    InvalidBlock,
    OverlappingBlock,
});
