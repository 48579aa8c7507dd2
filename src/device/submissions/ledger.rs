//! The ledger: which submissions of a device have ended, as far as that is proven.
//!
//! # How it works
//!
//! 1. Each submission is given a number before it goes to wgpu, also one that wgpu then refuses.
//! 2. When the call that submits has returned, the number is *sent*.
//! 3. A marker is registered with wgpu behind what is sent. wgpu lets go of the marker when everything submitted before
//!    has ended, and the ledger notes the number that was sent when the marker was made. The queue of a device is in
//!    order, so that this number stands for all before it.
//! 4. A device of which its driver says that it is gone runs nothing any more: Vulkan, 5.2.3, has the answer "lost" mean
//!    that nothing of the device is in use. That is noted apart, since what was in flight then has not ended well.
//!
//! Nothing else counts as an end: neither that wgpu has refused a submission (an earlier one may run), nor that a callback
//! has panicked, nor that wgpu calls the device lost (it does so as well where memory has run out, and kernels run on).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is known of the submissions of one device.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    given: AtomicU64,
    sent: AtomicU64,
    ended: AtomicU64,
    dead: AtomicBool,
}

impl Ledger {
    /// The number of the next submission. One thread at a time submits.
    pub(super) fn give(&self) -> u64 {
        self.given.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The call that submits has returned. wgpu runs callbacks behind the submission that they meet, so that numbers
    /// which were given inside one come behind its own.
    pub(super) fn sent(&self, number: u64) {
        self.sent.fetch_max(number, Ordering::AcqRel);
    }

    /// What a marker that is registered from now on stands for.
    pub(super) fn claim(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// wgpu has let go of a marker.
    pub(super) fn ended(&self, claim: u64) {
        self.ended.fetch_max(claim, Ordering::AcqRel);
    }

    /// The driver says that the device is gone.
    pub(super) fn died(&self) {
        self.dead.store(true, Ordering::Release);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether the submission has ended by itself, whatever has become of the device since. Numbers begin at 1.
    pub(super) fn has_run(&self, number: u64) -> bool {
        number != 0 && number <= self.ended.load(Ordering::Acquire)
    }

    /// Whether nothing of the submission runs any more.
    pub(super) fn is_over(&self, number: u64) -> bool {
        number != 0 && (self.has_run(number) || self.is_dead())
    }
}

#[cfg(test)]
mod tests;
