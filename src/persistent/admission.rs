//! The calls that the lease on the device may serve.
//!
//! A lease sees earlier submissions. So a call to a server whose handlers see other memory than their arguments' words
//! (buffers, textures, device globals) is not posted during a lease begun before something that the caller may have
//! recorded: recorded work is submitted first, the submission asks the lease to leave, and a lease asked to leave gets
//! no such call. Without a lease every call is posted: the next one comes behind all work recorded by then.

use std::time::Duration;

use super::core::Core;
use super::sync::atomic::{AtomicU64, Ordering};
use crate::clock::Instant;
use crate::device::pace::Pace;

/// No lease is there, nor about to be.
const NONE: u64 = u64::MAX;
/// A lease is about to be recorded, or was and is not submitted yet: recorded work may come before or behind.
const COMING: u64 = u64::MAX - 1;

/// How long a call waits to hear of a lease under submission, before waiting for a lease without a port.
const SUBMISSION: Duration = Duration::from_millis(20);

/// The lease on the device, as known to callers: the granted count of requests to leave.
#[derive(Debug)]
pub(super) struct Admission(AtomicU64);

impl Default for Admission {
    fn default() -> Self {
        Self(AtomicU64::new(NONE))
    }
}

impl Admission {
    /// Before a lease is recorded.
    pub fn comes(&self) {
        self.0.store(COMING, Ordering::SeqCst);
    }

    /// Once the lease is submitted.
    pub fn is_there(&self, granted: u32) {
        self.0.store(u64::from(granted), Ordering::SeqCst);
    }

    /// Once the lease is over.
    pub fn is_over(&self) {
        self.0.store(NONE, Ordering::SeqCst);
    }
}

impl Core {
    /// Whether the server of a call posted now sees this thread's recorded work.
    pub fn admits(&self) -> bool {
        if !self.sees_memory {
            return true;
        }
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let granted = loop {
            match self.admission.0.load(Ordering::SeqCst) {
                NONE => return true,
                // Handlers may run, and call the host, while the thread that has submitted the lease has yet to report
                // the submission.
                COMING if begun.elapsed() < SUBMISSION => pace.rest(None),
                COMING => return false,
                granted => break granted,
            }
        };
        if let Some(device) = &self.device
            && device.shared.queue.lock(&device.shared).has_commands()
        {
            // A failed submission of a batch is told to its owners.
            let _ = device.flush();
        }
        granted == u64::from(self.interrupts())
    }
}
