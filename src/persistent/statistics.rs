//! What has become of the leases of a server, counted.
//!
//! Every ended lease counts under one of nine causes. Calls served after a lease was asked to leave are at most twice
//! the number of ports (the current look at all ports, and the last look). Tests count there instead of timing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::PersistentKernel;
use super::core::Core;
use super::latency::{Latencies, LatencyHistogram};

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

/// What a server has done so far; from [`PersistentKernel::statistics`]. Each ended lease is counted under a single
/// cause.
///
/// Where calls travel in slices each slice is a lease, ending when its calls are served: only leases with a bad end are
/// counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatistics {
    /// Leases begun, the current one included; see [`PersistentKernel::leases`].
    pub leases: u32,
    /// Ended by their limit of turns of loops: on adapters with a loop budget.
    pub turns: u64,
    /// Ended after [`LeasePolicy::time`](crate::server::LeasePolicy::time).
    pub time: u64,
    /// Asked to leave by a thread that needed the queue, waited for the queue, or gave the heap more memory.
    pub others: u64,
    /// Ended after [`LeasePolicy::idle`](crate::server::LeasePolicy::idle) without calls.
    pub idle: u64,
    /// Ended because the server was stopped.
    pub stop: u64,
    /// Ended because a call has failed, whose message had to be told.
    pub fault: u64,
    /// Ended without their last word ([`ServerFailure::LeaseKilled`](crate::server::ServerFailure::LeaseKilled)).
    pub killed: u64,
    /// Given up since they did not end ([`ServerFailure::LeaseStuck`](crate::server::ServerFailure::LeaseStuck)).
    pub stuck: u64,
    /// Failed as launches, or wrote what no server writes ([`ServerFailure::LeaseFailed`](crate::server::ServerFailure::LeaseFailed),
    /// [`ServerFailure::Garbled`](crate::server::ServerFailure::Garbled)).
    pub failed: u64,
    /// How often the launching thread has slept and was woken, for a call or for a kernel of another device with
    /// possible calls. Without either it sleeps for good.
    pub wakes: u64,
    /// Calls of kernels that threads of the host have forwarded, since kernel and server share no memory
    /// ([`Launch::server`](crate::Launch::server)).
    pub forwarded: u64,
    /// The most calls served by a lease after the request to leave: no more than twice the number of ports, and as many
    /// urgent ones behind each as have ports.
    pub most_calls_after_asked: u32,
    /// How long answered calls of threads took, each from the call, or its begin, until the caller has the result. Calls in
    /// batches ([`DeviceFunction::call_many`](crate::server::DeviceFunction::call_many)) are not counted.
    pub call_latency: LatencyHistogram,
    /// How long calls found no lease on the device: from the end of one, as the launching thread has seen it, until the next
    /// was submitted because a call waited. Where calls travel in slices there is nothing to count.
    pub lease_gaps: LatencyHistogram,
}

/// The counters behind [`ServerStatistics`].
#[derive(Default)]
pub(super) struct Counters {
    ends: [AtomicU64; CAUSES],
    pub wakes: AtomicU64,
    pub forwarded: AtomicU64,
    pub after_asked: AtomicU32,
    pub call_latency: Latencies,
    pub lease_gaps: Latencies,
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
            forwarded: counters.forwarded.load(Ordering::Relaxed),
            most_calls_after_asked: counters.after_asked.load(Ordering::Relaxed),
            call_latency: counters.call_latency.histogram(),
            lease_gaps: counters.lease_gaps.histogram(),
        }
    }
}

impl PersistentKernel {
    /// The reasons for the ends of leases so far, and the work of the launching thread.
    pub fn statistics(&self) -> ServerStatistics {
        self.core.statistics()
    }
}
