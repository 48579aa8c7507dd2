//! Which calls the lease on the device may serve.
//!
//! A lease sees what was submitted before it. So a call to a server whose handlers see other memory than their arguments' words
//! (buffers, textures, device globals) is not posted while a lease is there that began before something which the caller may
//! have recorded: what is recorded is submitted first, which asks the lease to leave, and a lease that is asked to leave gets no
//! such call. Without a lease every call is posted: the next one comes behind all that was recorded by then.

use std::time::Duration;

use super::core::Core;
use super::sync::atomic::{AtomicU64, Ordering};
use crate::clock::Instant;
use crate::device::pace::Pace;

/// No lease is there, nor about to be.
const NONE: u64 = u64::MAX;
/// A lease is about to be recorded, or was and is not submitted yet: what is recorded may come before or behind.
const COMING: u64 = u64::MAX - 1;

/// How long a call waits to hear of a lease that is being submitted, before it waits for one without a port.
const SUBMISSION: Duration = Duration::from_millis(20);

/// The lease on the device, as callers have to know it: the count of requests to leave that it was granted.
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
    /// Whether whatever serves a call posted now sees what this thread has recorded.
    pub fn admits(&self) -> bool {
        if !self.sees_memory {
            return true;
        }
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let granted = loop {
            match self.admission.0.load(Ordering::SeqCst) {
                NONE => return true,
                // Handlers may run, and call the host, while the thread that has submitted the lease has yet to say so.
                COMING if begun.elapsed() < SUBMISSION => pace.rest(None),
                COMING => return false,
                granted => break granted,
            }
        };
        if let Some(device) = &self.device
            && device.shared.queue.lock(&device.shared).has_commands()
        {
            // A batch that cannot be submitted tells its owners.
            let _ = device.flush();
        }
        granted == u64::from(self.interrupts())
    }
}
