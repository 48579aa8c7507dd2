//! The number of requests for the queue, and the part known to the lease on the device.
//!
//! An asker counts first and writes the count then, and looks again whether another asker was faster: an older count
//! written last would take the newer count back, and a lease believing to be unasked would be taken for stuck. The
//! model found the case.

use super::sync::atomic::{AtomicU32, Ordering, fence};

/// Counts the askers. A lease is granted the current count at its start, and ends on reading another count.
#[derive(Debug, Default)]
pub(super) struct Interrupts(AtomicU32);

impl Interrupts {
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Asks once: `tell` writes a count where the lease sees it. The last write must be the last count, however late a
    /// writer is: an older count would take later ones back, and make the relay believe in a request unseen by the
    /// lease.
    pub fn ask(&self, tell: impl Fn(u32)) {
        let mut number = self.0.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        loop {
            // Either this thread sees the later count, or the later count is written behind this write.
            fence(Ordering::SeqCst);
            tell(number);
            fence(Ordering::SeqCst);
            let last = self.count();
            if last == number {
                return;
            }
            number = last;
        }
    }
}
