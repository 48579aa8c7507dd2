//! Kernels that stay on a device: whoever wants the queue asks them to make room.
//!
//! The queue is in order, so that nothing else runs while a resident kernel does. Before a batch is submitted, every
//! resident is asked to end; it is launched again behind the batch. The relay that launches it is in a room above this
//! one.
//!
//! A thread that waits for a batch with a lease asks likewise, with the queue in hand, so that the next lease goes
//! behind. Without residents that is one load.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::queue::Batch;
use super::wait::lock;

/// A kernel that stays on the device until somebody wants the queue.
pub(crate) trait Resident: Send + Sync {
    /// Its number, as given to [`as_relay`].
    fn id(&self) -> u64;
    /// Asks it to end soon. Called with the queue in hand; never waits.
    fn interrupt(&self);
    /// Whether it runs, or will, as a part of this batch.
    fn is_in(&self, batch: &Arc<Batch>) -> bool;
}

/// The residents of a device.
#[derive(Default)]
pub(crate) struct Residents {
    /// So that devices without any pay one load.
    count: AtomicUsize,
    all: Mutex<Vec<Weak<dyn Resident>>>,
}

thread_local! {
    static RELAY: Cell<u64> = const { Cell::new(0) };
}

/// Says that what this thread submits is the resident of that number itself, which is not to be asked to end for it.
pub(crate) fn as_relay(id: u64) {
    RELAY.set(id);
}

impl Residents {
    pub(crate) fn add(&self, resident: Weak<dyn Resident>) {
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(resident);
        self.count.store(all.len(), Ordering::Release);
    }

    fn each(&self, tell: impl Fn(&dyn Resident)) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        // Not with the lock: the last handle of a resident may go here.
        let all: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        for resident in all {
            if resident.id() != RELAY.get() {
                tell(&*resident);
            }
        }
    }

    /// Somebody is about to submit.
    pub(crate) fn submitting(&self) {
        self.each(|resident| resident.interrupt());
    }

    /// Somebody waits for the end of this batch.
    pub(crate) fn awaited(&self, batch: &Arc<Batch>) {
        self.each(|resident| {
            if resident.is_in(batch) {
                resident.interrupt();
            }
        });
    }
}

impl std::fmt::Debug for Residents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Residents").finish_non_exhaustive()
    }
}
