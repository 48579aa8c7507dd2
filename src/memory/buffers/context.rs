//! State common to the buffers of a context: the threads and memory for transfers, devices without a direct way between
//! them, and figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::exchange::{Exchange, ExchangeMemory};
use super::hop::TransferThreads;
use super::root::Root;
use super::statistics::BufferStatistics;
use crate::device::DeviceShared;
use crate::device::wait::lock;

/// The buffers of one context.
#[derive(Default)]
pub(crate) struct ContextBuffers {
    pub(super) transfer_threads: TransferThreads,
    pub(super) exchange: Exchange,
    /// Devices that refused to share memory with each other.
    closed: Mutex<Vec<Pair>>,
    roots: Mutex<Vec<Weak<Root>>>,
    totals: Mutex<BufferStatistics>,
    /// Counts uses, to find the least recently used memory.
    clock: AtomicU64,
}

/// Two devices.
type Pair = [Weak<DeviceShared>; 2];

impl ContextBuffers {
    /// Closes the direct route between two devices in all buffers that either is new to, after a refusal.
    pub(super) fn close_route(&self, a: &Arc<DeviceShared>, b: &Arc<DeviceShared>) {
        let mut closed = lock(&self.closed);
        closed.retain(|pair| pair.iter().all(|device| device.strong_count() > 0));
        closed.push([Arc::downgrade(a), Arc::downgrade(b)]);
    }

    /// Whether the direct route between two devices was closed.
    pub(super) fn is_closed(&self, a: &Arc<DeviceShared>, b: &Arc<DeviceShared>) -> bool {
        let ends = [Arc::as_ptr(a), Arc::as_ptr(b)];
        lock(&self.closed).iter().any(|[one, other]| {
            let pair = [one.as_ptr(), other.as_ptr()];
            pair == ends || pair == [ends[1], ends[0]]
        })
    }

    /// Takes note of a buffer.
    pub(super) fn join(&self, root: &Arc<Root>) {
        let mut roots = lock(&self.roots);
        // Now and then.
        if roots.len().is_power_of_two() {
            roots.retain(|known| known.strong_count() > 0);
        }
        roots.push(Arc::downgrade(root));
    }

    /// The living buffers.
    pub(super) fn roots(&self) -> Vec<Arc<Root>> {
        lock(&self.roots).iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds the figures of one buffer's command to the context's.
    pub(super) fn count(&self, change: impl FnOnce(&mut BufferStatistics)) {
        change(&mut lock(&self.totals));
    }

    pub(crate) fn exchange_memory(&self) -> ExchangeMemory {
        self.exchange.memory()
    }

    pub(crate) fn statistics(&self) -> BufferStatistics {
        *lock(&self.totals)
    }
}
