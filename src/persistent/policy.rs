//! How long leases last, and when a server that nobody calls goes to sleep.

use std::time::Duration;

use crate::device::Capabilities;

/// How a server takes turns with everything else on its device.
///
/// A server is a relay of *leases*: launches of one polling kernel, each of which ends by itself and is followed by the
/// next. All that is known of calls lies in the ports, so that callers do not notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasePolicy {
    /// The longest lease: what watchdogs and other users of the device have to bear. A handler that runs is not ended by
    /// it.
    pub time: Duration,
    /// After so much time without calls the server leaves the device; the next call launches it again.
    pub idle: Duration,
    /// A lease that has not ended so long after it was asked to, and serves no calls, is reported as stuck.
    pub stuck: Duration,
}

impl LeasePolicy {
    /// What suits a device: leases of 100 ms on software adapters, which no watchdog looks at, and of 20 ms elsewhere.
    pub fn of(capabilities: &Capabilities) -> Self {
        Self {
            time: Duration::from_millis(if capabilities.software { 100 } else { 20 }),
            idle: Duration::from_millis(2),
            stuck: Duration::from_secs(5),
        }
    }

    /// A server of the host has no leases.
    pub(super) fn host() -> Self {
        Self {
            time: Duration::MAX,
            idle: Duration::MAX,
            stuck: Duration::MAX,
        }
    }

    /// Replaces the longest lease.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Replaces the time without calls after which the server leaves the device; [`Duration::MAX`]: never.
    #[must_use]
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Replaces the time after which a lease that does not end is stuck.
    #[must_use]
    pub fn stuck(mut self, time: Duration) -> Self {
        self.stuck = time;
        self
    }
}
