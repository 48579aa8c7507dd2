//! What has become of the leases of a server, counted.
//!
//! Every ended lease counts under one of nine causes. Calls served after a lease was asked to leave are at most twice
//! the number of ports (the current look at all ports, and the last look). Tests count there instead of timing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::PersistentKernel;
use super::core::Core;

/// Why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Turns,
    Time,
    Others,
    Idle,
    Stop,
    Fault,
    Killed,
    Stuck,
    Failed,
}

/// The number of causes.
const CAUSES: usize = Cause::Failed as usize + 1;

/// What a server has done so far; from [`PersistentKernel::statistics`]. Each lease that has ended is counted under one cause.
///
/// Where calls travel in slices each of them is a lease, which ends when its calls are served: only those are counted that
/// ended badly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatistics {
    /// Leases that were begun, the one on the device included; see [`PersistentKernel::leases`].
    pub leases: u32,
    /// Ended since they had taken the turns of loops that a lease may take: on adapters with a loop budget.
    pub turns: u64,
    /// Ended after [`LeasePolicy::time`](crate::LeasePolicy::time).
    pub time: u64,
    /// Asked to leave by somebody who wanted the queue, waited for it, or gave the heap more memory.
    pub others: u64,
    /// Ended after [`LeasePolicy::idle`](crate::LeasePolicy::idle) without calls.
    pub idle: u64,
    /// Ended because the server was stopped.
    pub stop: u64,
    /// Ended because a call has failed, whose message had to be told.
    pub fault: u64,
    /// Ended without their last word ([`ServerFailure::LeaseKilled`](crate::ServerFailure::LeaseKilled)).
    pub killed: u64,
    /// Given up since they did not end ([`ServerFailure::LeaseStuck`](crate::ServerFailure::LeaseStuck)).
    pub stuck: u64,
    /// Failed as launches, or wrote what no server writes ([`ServerFailure::LeaseFailed`](crate::ServerFailure::LeaseFailed),
    /// [`ServerFailure::Garbled`](crate::ServerFailure::Garbled)).
    pub failed: u64,
    /// How often the thread that launches leases has slept and was woken, for a call or for a kernel of another device that
    /// may call. Without either it sleeps for good.
    pub wakes: u64,
    /// The most calls that one lease has served after somebody had asked it to leave: no more than there are ports, twice.
    pub most_calls_after_asked: u32,
}

/// The counters behind [`ServerStatistics`].
#[derive(Default)]
pub(super) struct Counters {
    ends: [AtomicU64; CAUSES],
    pub wakes: AtomicU64,
    pub after_asked: AtomicU32,
}

impl Counters {
    pub fn ended(&self, cause: Cause) {
        if let Some(count) = self.ends.get(cause as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of(&self, cause: Cause) -> u64 {
        (self.ends.get(cause as usize)).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Core {
    fn statistics(&self) -> ServerStatistics {
        let counters = &self.counters;
        ServerStatistics {
            leases: self.leases.load(Ordering::Relaxed),
            turns: counters.of(Cause::Turns),
            time: counters.of(Cause::Time),
            others: counters.of(Cause::Others),
            idle: counters.of(Cause::Idle),
            stop: counters.of(Cause::Stop),
            fault: counters.of(Cause::Fault),
            killed: counters.of(Cause::Killed),
            stuck: counters.of(Cause::Stuck),
            failed: counters.of(Cause::Failed),
            wakes: counters.wakes.load(Ordering::Relaxed),
            most_calls_after_asked: counters.after_asked.load(Ordering::Relaxed),
        }
    }
}

impl PersistentKernel {
    /// Why leases have ended so far, and what the thread did that launches them.
    pub fn statistics(&self) -> ServerStatistics {
        self.core.statistics()
    }
}
