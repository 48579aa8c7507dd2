//! Ranges of any bytes, which begin and end inside words of 4 bytes and at both ends of buffers: whatever is done with one
//! changes exactly its bytes. Every case is held beside an array of bytes on the host.

pub mod launches;
pub mod transfers;

/// Lengths of ranges.
pub const LENGTHS: std::ops::RangeInclusive<u64> = 1..=20;
/// Where they begin behind a place that every adapter binds.
pub const OFFSETS: [u64; 7] = [0, 1, 2, 3, 4, 6, 255];
