//! Submissions: batches on their way through wgpu, and the single source of truth about their ends.
//!
//! # How it works
//!
//! 1. A closed batch stands in *line* ([`line`]) and goes to wgpu at its turn, with no lock held: wgpu runs callbacks
//!    of the program while submitting, and callbacks may use the device.
//! 2. The batch gets a number, and behind the batch a *marker* is registered with wgpu ([`ledger`]). wgpu's release of
//!    the marker proves the end of the batch, and of everything before. Host access to shared memory, the reuse of freed
//!    memory, transfers between devices and the pools all ask [`Submissions::standing`], which knows no other proof.
//! 3. A waiting thread ([`waiting`]) polls the backend's [`signal`] for a moment, then parks on the signal, and asks
//!    wgpu when the signal announces an end. A thread waiting for nothing but the end of a short launch does not ask
//!    where the signal is known to come from the launch's own submission ([`order`]): the next submission asks, while
//!    the device works. The runtime polls with `PollType::Poll` alone, which cannot race.
//! 4. A thread serving a call of a running kernel is refused a wait for the kernel ([`serving`]).
//! 5. Callback-running calls are [`contained`]: a panic in a callback is neither a loss of the device nor the end of
//!    the runtime's current work.
//!
//! All parts work with wgpu's own handles and outlives [`DeviceShared`](super::DeviceShared): submissions run on after
//! the drop of the last handle of a device.
//!
//! The users of [`Standing::is_over`](batch::Standing::is_over): host access to the heap, the reuse of freed blocks,
//! contraction of the heap, transfers between devices, and the pools of buffers.
//!
//! Callbacks of the program should not wait for other threads using the device. `ExecutionError::InCallback` says what
//! a callback cannot have: the end of the very batch whose submission runs the callback, and the guard of a heap or a
//! buffer held by the call around the callback ([`Held`]).

mod batch;
mod cards;
mod contained;
#[cfg(web)]
pub(super) mod late;
mod ledger;
mod line;
mod order;
mod recent;
mod serving;
mod signal;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::wait::LostFlag;
use super::wait_policy::WaitPolicy;

pub(crate) use batch::{Batch, ClosedBatch, Commands, Hook, Standing};
pub(crate) use contained::Held;
pub(crate) use serving::{Crew, Served, serve, serve_call, serve_device};
pub(crate) use waiting::Progress;

use ledger::Ledger;
use line::Line;
use order::Order;
use recent::Recent;
use signal::Signal;

/// The submissions of one wgpu device.
pub(crate) struct Submissions {
    /// For threads serving calls of the device.
    id: u64,
    raw: wgpu::Device,
    card: Option<cards::Card>,
    is_software: bool,
    /// Until the device is dropped: dropping wgpu's last handle of a queue waits for all submissions.
    queue: Mutex<Option<wgpu::Queue>>,
    lost: Arc<LostFlag>,
    ledger: Arc<Ledger>,
    line: Line,
    order: Order,
    signal: Option<Arc<dyn Signal>>,
    /// The last number signalled by a submission.
    signalled: AtomicU64,
    /// The last number for which a further marker was registered.
    proofs: AtomicU64,
    /// wgpu panics on the question.
    mute: AtomicBool,
    /// How long after a submission a thread looks before parking.
    spin: Duration,
    /// Recent waits, where a thread looks once more when an end is likely.
    recent: Option<Recent>,
    /// Waits of the program are refused.
    never_blocks: bool,
    callers: serving::Callers,
    /// Whom the end of the next submission wakes.
    #[cfg(web)]
    sleepers: Arc<late::Sleepers>,
    /// Memory for the uniform values of the next batch.
    spare: Mutex<Vec<u8>>,
    /// wgpu's message for an unmapped buffer.
    unmapped: OnceLock<Option<String>>,
}

impl Submissions {
    pub(crate) fn new(
        raw: &wgpu::Device,
        queue: &wgpu::Queue,
        lost: &Arc<LostFlag>,
        wait: WaitPolicy,
    ) -> Arc<Self> {
        let signal = signal::open(raw);
        if let Some(signal) = &signal {
            let signal = Arc::downgrade(signal);
            lost.set_witness(move || signal.upgrade()?.loss());
        }
        let info = raw.adapter_info();
        let card = cards::Card::of(&info);
        let submissions = Arc::new(Self {
            id: super::unique_id(),
            recent: (card.is_some() && wait.foresees()).then(Recent::default),
            card,
            is_software: info.device_type == wgpu::DeviceType::Cpu,
            signal,
            spin: wait.looks_for(info.device_type),
            never_blocks: wait.never_blocks(),
            callers: serving::Callers::default(),
            #[cfg(web)]
            sleepers: Arc::default(),
            raw: raw.clone(),
            queue: Mutex::new(Some(queue.clone())),
            lost: Arc::clone(lost),
            ledger: Arc::default(),
            line: Line::default(),
            order: Order::default(),
            signalled: AtomicU64::new(0),
            proofs: AtomicU64::new(0),
            mute: AtomicBool::new(false),
            spare: Mutex::default(),
            unmapped: OnceLock::new(),
        });
        cards::note(&submissions);
        submissions
    }

    /// Learns how wgpu counts submissions, to tell own signals from signals taken by others. Nobody else may have the
    /// device yet.
    pub(crate) fn learn_order(&self, queue: &wgpu::Queue) {
        if self.signal.is_some() {
            order::measure(&self.raw, queue);
        }
    }

    /// Submits commands behind everything in line, and returns their batch, with a verdict.
    pub(crate) fn send_now(&self, queue: &wgpu::Queue, closed: ClosedBatch) -> Arc<Batch> {
        let batch = Arc::clone(&closed.batch);
        self.enqueue(closed);
        self.drive(queue, &batch);
        batch
    }

    /// Whether everything that was submitted has ended, as far as can be seen without asking wgpu.
    pub(crate) fn is_idle(&self) -> bool {
        let last = self.ledger.last();
        let signalled = self.signalled.load(Ordering::Acquire);
        let reached = || {
            self.signal
                .as_ref()
                .and_then(|signal| signal.reached().ok())
        };
        last == 0
            || self.ledger.end(last).is_some()
            || (last == signalled && reached().is_some_and(|reached| reached >= last))
    }

    /// Whether the device has too little to do: a graphics processor at most one submission, never to run out of work;
    /// a software adapter none, since the adapter's threads have to share processors with the recording thread, and
    /// wake at each submission. True where only a question to wgpu would tell.
    pub(crate) fn needs_more(&self) -> bool {
        let Some(signal) = &self.signal else {
            return true;
        };
        let signalled = self.signalled.load(Ordering::Acquire);
        let spare = u64::from(!self.is_software);
        signal
            .reached()
            .is_ok_and(|reached| reached.saturating_add(spare) >= signalled)
    }

    /// The device is being dropped.
    pub(crate) fn release_queue(&self) {
        // Not with the lock in hand: dropping the last handle waits, and callbacks run.
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

/// Released by wgpu when everything submitted before has ended.
struct Marker {
    ledger: Arc<Ledger>,
    claim: u64,
    /// Unfinished submissions may still signal the fence.
    signal: Option<Arc<dyn Signal>>,
    lost: Arc<LostFlag>,
    /// Why no submission counts any more.
    #[cfg(web)]
    refusal: Option<String>,
}

impl Marker {
    /// Why the device is gone, as far as is known when the marker goes.
    fn loss(&mut self) -> Option<String> {
        #[cfg(web)]
        if let Some(refusal) = self.refusal.take() {
            return Some(refusal);
        }
        self.signal.as_ref().and_then(|signal| signal.loss())
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        match self.loss() {
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
