//! Kernels that stay on a device: a thread needing the queue asks resident kernels to make room.
//!
//! The queue is in order, so nothing else runs while a resident kernel does. Before a batch is submitted, every
//! resident is asked to end; the resident is launched again behind the batch. The relay that launches a resident is in
//! a module above this one.
//!
//! A thread waiting for a batch with a lease asks likewise, with the queue in hand, so the next lease goes behind.
//! Without residents the question is a single load.
//!
//! A program that submits to wgpu's queue for itself may have residents stay away for a time ([`super::pauses`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::event::{Event, WaitError};
use super::pauses::Pauses;
use super::queue::Batch;
use super::wait::lock;

/// A kernel that stays on the device until a thread needs the queue.
pub(crate) trait Resident: Send + Sync {
    /// The resident's number, as given to [`as_relay`].
    fn id(&self) -> u64;
    /// Asks the resident to end soon. Called with the queue in hand, or for a pause ([`super::pauses`]); never waits.
    fn interrupt(&self);
    /// Whether the kernel runs, or will run, as a part of this batch.
    fn is_in(&self, batch: &Arc<Batch>) -> bool;
    /// The launch that was given up, and may be on the device all the same.
    fn stuck(&self) -> Option<Event>;
}

/// The residents of a device.
#[derive(Default)]
pub(crate) struct Residents {
    /// So devices without residents pay a single load.
    count: AtomicUsize,
    all: Mutex<Vec<Weak<dyn Resident>>>,
    /// Also of servers without a resident, whose calls travel in slices.
    pub(crate) pauses: Arc<Pauses>,
}

thread_local! {
    static RELAY: Cell<u64> = const { Cell::new(0) };
}

/// Marks this thread's submission as the work of the resident with this number: the resident must not be asked to end
/// for its own submission.
pub(crate) fn as_relay(id: u64) {
    RELAY.set(id);
}

/// Whether this thread launches a resident.
pub(super) fn is_relay() -> bool {
    RELAY.get() != 0
}

impl Residents {
    pub(crate) fn add(&self, resident: Weak<dyn Resident>) {
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(resident);
        self.count.store(all.len(), Ordering::Release);
    }

    fn each(&self, mut tell: impl FnMut(&dyn Resident)) {
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

    /// A submission is about to come.
    pub(crate) fn submitting(&self) {
        self.each(|resident| resident.interrupt());
    }

    /// The given-up launches that do not end within the time that is left.
    pub(super) fn stuck(&self, left: impl Fn() -> Duration) -> usize {
        let mut stuck = Vec::new();
        self.each(|resident| stuck.extend(resident.stuck()));
        let is_there = |event: &&Event| {
            let ended = event.wait_timeout(left());
            matches!(ended, Err(WaitError::Deadline))
        };
        stuck.iter().filter(is_there).count()
    }

    /// A thread waits for the end of this batch.
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
