//! Live posts: how kernels ask for pages of lent memory that are missing while the kernels run.
//!
//! A kernel takes the lock of the page, and posts the page's number in a ring (`shaders/system_live.wgsl`); the host reads
//! the ring, and gives the lock back when the page has come (`memory::system::live`).

/// Slots of the ring, a power of two.
pub(crate) const LIVE_POSTS: u32 = 16_384;
/// Locks for posting, a power of two.
pub(crate) const LIVE_LOCKS: u32 = 4096;
/// The factors of the upper word and of the whole in [`live_lock`].
pub(crate) const LIVE_FACTORS: [u32; 2] = [0x85eb_ca6b, 0x9e37_79b9];

// A lock is given back when its page has come, so no more slots than locks are full.
const _: () = assert!(LIVE_LOCKS.is_power_of_two() && LIVE_POSTS.is_power_of_two());
const _: () = assert!(LIVE_LOCKS < LIVE_POSTS);

/// The lock by which kernels post the page with this number.
pub(crate) fn live_lock(page: u64) -> u32 {
    let [upper, both] = LIVE_FACTORS;
    let (low, high) = (page as u32, (page >> 32) as u32);
    (low ^ high.wrapping_mul(upper)).wrapping_mul(both) >> (32 - LIVE_LOCKS.ilog2())
}
