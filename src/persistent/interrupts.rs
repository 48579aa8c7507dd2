//! How often somebody has asked for the queue, and what the lease on the device is told of it.
//!
//! An asker counts first and writes the count then, and looks again whether another asker was faster: an older count
//! written last would take the newer count back, and a lease that believes to be unasked would be taken for stuck. The
//! model found that.

use super::sync::atomic::{AtomicU32, Ordering, fence};

/// Counts who asks. A lease is granted the count that there is when it begins, and ends when it is told of another one.
#[derive(Debug, Default)]
pub(super) struct Interrupts(AtomicU32);

impl Interrupts {
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Asks once: `tell` writes a count where the lease sees it. What is written last is the last count, whoever is late:
    /// an older one there would take the later ones back, and the relay takes a lease for asked that is not.
    pub fn ask(&self, tell: impl Fn(u32)) {
        let mut number = self.0.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        loop {
            // Either this sees the later count, or that is written behind what is written here.
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
