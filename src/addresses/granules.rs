//! Granules: the bytes of memory for each word of an allocation table.
//!
//! Checked kernels look up the allocation behind a pointer in a table with a word for each granule of the memory. No two
//! allocations share a granule, so granules are what the allocators of the memory align to.

use super::region::GRANULE;

/// Bytes of the shared heap for each word of its tables.
pub(crate) const HEAP_GRANULE: u64 = GRANULE;

/// Bytes of a device's own memory for each word of its table.
pub(crate) const DEVICE_GRANULE: u64 = 256;
