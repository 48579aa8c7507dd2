//! The ledger: which submissions of a device have ended, as far as that is proven.
//!
//! # How it works
//!
//! 1. Each submission is numbered before wgpu gets it, also a submission refused by wgpu.
//! 2. When the submitting call has returned, the number is *sent*. wgpu runs callbacks of the program behind the
//!    current submission and inside its call: a submission made by a callback comes behind the current one, and is sent
//!    before.
//! 3. A marker is registered with wgpu behind sent submissions. wgpu lets go of the marker when everything submitted
//!    before has ended, and the ledger notes the marker's number. The queue of a device is in order, so this number
//!    stands for all earlier ones.
//! 4. A device declared gone by its driver runs nothing any more: Vulkan, 5.2.3, has the answer "lost" mean that
//!    nothing of the device is in use. The loss is noted apart, since submissions in flight have not ended well.
//!    The embedded adapter declares it when a marker goes: wgpu lets go of abandoned submissions as of finished ones.
//!
//! Nothing else counts as an end: neither a submission refused by wgpu (an earlier one may run), nor a panic in a
//! callback, nor a device called lost by wgpu (which also happens where memory has run out, while kernels run on).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

/// The known state of a device's submissions.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    given: Mutex<Given>,
    sent: AtomicU64,
    ended: AtomicU64,
    dead: AtomicBool,
}

/// How a submission has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A proper end, whatever has become of the device since.
    Run,
    /// With the device: no part of it runs any more.
    Lost,
}

/// The numbers that there are.
#[derive(Debug, Default)]
struct Given {
    last: u64,
    /// Numbers whose calls have not returned, in order: several where a callback submits inside a submission.
    open: SmallVec<[u64; 2]>,
}

impl Ledger {
    /// The number of the next submission. One thread at a time submits.
    pub(super) fn give(&self) -> u64 {
        let mut given = self.given.lock();
        given.last += 1;
        let number = given.last;
        given.open.push(number);
        number
    }

    /// The number that was given last; 0 before the first.
    pub(super) fn last(&self) -> u64 {
        self.given.lock().last
    }

    /// The call that submits has returned.
    pub(super) fn sent(&self, number: u64) {
        let mut given = self.given.lock();
        given.open.retain(|open| *open != number);
        let sent = given.open.first().map_or(given.last, |open| open - 1);
        self.sent.store(sent, Ordering::Release);
    }

    /// Whether the calls submitting this number and all earlier ones have returned.
    pub(super) fn is_sent(&self, number: u64) -> bool {
        number <= self.sent.load(Ordering::Acquire)
    }

    /// The number for a marker registered by a thread without a submission of its own.
    pub(super) fn claim(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Whether nothing that was ever submitted runs any more.
    pub(super) fn is_idle(&self) -> bool {
        let last = self.given.lock().last;
        last == 0 || self.end(last).is_some()
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

    /// How the submission has ended; `None` while possibly running. Numbers begin at 1.
    ///
    /// The only question about an end: two questions in turn, "has the submission run" and "is the submission over",
    /// would take a submission ending between them for a lost one.
    pub(super) fn end(&self, number: u64) -> Option<End> {
        // Before the count: a finished submission is not lost, whatever becomes of the device.
        let is_dead = self.is_dead();
        if number == 0 {
            None
        } else if number <= self.ended.load(Ordering::Acquire) {
            Some(End::Run)
        } else {
            is_dead.then_some(End::Lost)
        }
    }
}

#[cfg(test)]
mod tests;
