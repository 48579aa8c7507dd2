//! Addresses: what hands them out, and what kernels and the host agree on about memory behind them. Nothing here touches
//! memory, or asks for a device.
//!
//! - [`region`]: the allocator of ranges of addresses.
//! - [`granules`]: bytes for each word of the tables in which checked kernels look up allocations.
//! - [`live_posts`]: the ring and the locks by which kernels ask for pages that are missing.
//! - [`page_search`]: the kernel that finds the changed pages of a mirror.
//!
//! `kernel::passes::pointers` writes these numbers into kernels, and `memory` lays out tables and rings by them.

pub(crate) mod granules;
pub(crate) mod live_posts;
pub(crate) mod page_search;
pub mod region;
