//! Submissions: batches on their way through wgpu, and the one truth about when they have ended.
//!
//! # How it works
//!
//! 1. A closed batch stands in *line* ([`line`]) and goes to wgpu when it is its turn, with no lock held: wgpu runs
//!    callbacks of the program while it submits, and these may use the device.
//! 2. It gets a number, and behind it a *marker* is registered with wgpu ([`ledger`]). That wgpu lets go of the marker is
//!    the proof that the batch, and everything before it, has ended. There is no other: host access to shared memory, the
//!    reuse of freed memory, transfers between devices, futures and events all ask [`Submissions::standing`].
//! 3. Whoever waits ([`waiting`]) looks at the backend's [`signal`] for a moment, then parks on it, and asks wgpu when it
//!    says that something has ended. The runtime polls with `PollType::Poll` alone, which cannot race.
//! 4. Calls that run callbacks are [`contained`]: a panic in a callback is neither a loss of the device nor the end of
//!    whatever the runtime was doing.
//!
//! All of it works with wgpu's own handles and outlives [`DeviceShared`](super::DeviceShared): what was submitted runs on
//! when the last handle of a device is dropped.

mod batch;
mod contained;
mod ledger;
mod line;
mod signal;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::wait::LostFlag;

pub(crate) use batch::{Batch, ClosedBatch, Hook, Standing};
pub(crate) use contained::Held;
pub(crate) use waiting::{Pace, Progress};

use ledger::Ledger;
use line::Line;
use signal::Signal;

/// How long a thread looks at the signal of a batch that was just submitted before it parks: about as long as a short
/// launch takes on a graphics processor, from which a parked thread is woken by an interrupt.
const SPIN: Duration = Duration::from_micros(50);

/// The submissions of one wgpu device.
pub(crate) struct Submissions {
    raw: wgpu::Device,
    /// Until the device is dropped: whoever drops wgpu's last handle of a queue waits for all that was submitted.
    queue: Mutex<Option<wgpu::Queue>>,
    lost: Arc<LostFlag>,
    ledger: Arc<Ledger>,
    line: Line,
    signal: Option<Arc<dyn Signal>>,
    /// The last number that a submission signals.
    signalled: AtomicU64,
    /// The last number for which a further marker was registered.
    proofs: AtomicU64,
    /// wgpu panics when it is asked.
    mute: AtomicBool,
    /// How long a thread looks before it parks.
    spin: Duration,
    /// Memory for the uniform values of the next batch.
    spare: Mutex<Vec<u8>>,
    /// What wgpu says of a buffer that is not mapped, in its own words.
    unmapped: OnceLock<Option<String>>,
}

impl Submissions {
    pub(crate) fn new(raw: &wgpu::Device, queue: &wgpu::Queue, lost: &Arc<LostFlag>) -> Arc<Self> {
        // Kernels of a processor want the very core that would look.
        let is_cpu = raw.adapter_info().device_type == wgpu::DeviceType::Cpu;
        let signal = signal::open(raw);
        if let Some(signal) = &signal {
            let signal = Arc::downgrade(signal);
            lost.set_witness(move || signal.upgrade()?.loss());
        }
        Arc::new(Self {
            signal,
            spin: if is_cpu { Duration::ZERO } else { SPIN },
            raw: raw.clone(),
            queue: Mutex::new(Some(queue.clone())),
            lost: Arc::clone(lost),
            ledger: Arc::default(),
            line: Line::default(),
            signalled: AtomicU64::new(0),
            proofs: AtomicU64::new(0),
            mute: AtomicBool::new(false),
            spare: Mutex::default(),
            unmapped: OnceLock::new(),
        })
    }

    /// Submits commands behind everything that is in line, and returns their batch, which has a verdict.
    pub(crate) fn send_now(&self, queue: &wgpu::Queue, closed: ClosedBatch) -> Arc<Batch> {
        let batch = Arc::clone(&closed.batch);
        self.enqueue(closed);
        self.drive(queue, &batch);
        batch
    }

    /// The device is being dropped.
    pub(crate) fn release_queue(&self) {
        // Not with the lock in hand: whoever drops the last handle waits, and callbacks run.
        let queue = self.queue.lock().take();
        drop(queue);
    }

    /// Memory for the uniform values of a batch.
    pub(crate) fn spare(&self) -> Vec<u8> {
        std::mem::take(&mut self.spare.lock())
    }

    /// Whether and why the device is lost.
    pub(crate) fn lost(&self) -> &LostFlag {
        &self.lost
    }
}

impl std::fmt::Debug for Submissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submissions")
            .field("ledger", &self.ledger)
            .field("signal", &self.signal.is_some())
            .finish_non_exhaustive()
    }
}

/// What wgpu lets go of when everything that was submitted before has ended.
struct Marker {
    ledger: Arc<Ledger>,
    claim: u64,
    /// Submissions that have not ended may still signal it.
    signal: Option<Arc<dyn Signal>>,
    lost: Arc<LostFlag>,
}

impl Drop for Marker {
    fn drop(&mut self) {
        match self.signal.as_ref().and_then(|signal| signal.loss()) {
            None => self.ledger.ended(self.claim),
            Some(reason) => {
                self.lost.raise(reason);
                self.ledger.died();
            }
        }
    }
}

/// Why a device counts as lost whose driver says so and no more.
const GONE: &str = "its driver has lost it";
