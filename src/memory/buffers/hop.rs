//! Bytes on their way from one device to another, through the host, and the order between two devices' batches.
//!
//! The copy out of the source is submitted when the hop is made; the copy into the target is recorded in the target's
//! open batch, out of memory that the host fills when the bytes arrive. Until then that batch is held back ([`ExternalDependency`]):
//! the thread that recorded it goes on. A thread of the context completes the dependencies in their order and submits the batches.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::download::{Download, Missed};
use crate::device::DeviceShared;
use crate::device::exit::{self, Worker};
use crate::device::external_dependency::ExternalDependency;
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::queue::Batch;
use crate::device::submissions::{Progress, Submissions};
use crate::device::wait::lock;
use crate::memory::staging::fill;

/// What the host has to do before a batch is submitted.
pub(super) struct Hop {
    state: Mutex<State>,
    changed: Condvar,
    /// What becomes of the bytes.
    outcome: Arc<Outcome>,
}

struct State {
    work: Work,
    wakers: Vec<Waker>,
    /// The batch that waited was submitted.
    sent: bool,
}

enum Work {
    /// Nobody is at it; these pieces are left.
    Left(VecDeque<Piece>),
    Busy,
    Done,
}

/// One thing that has to happen.
pub(super) enum Piece {
    /// Bytes come down, and go to mapped memory.
    Bytes { from: Download, to: wgpu::Buffer },
    /// A batch of another device, which was submitted, ends.
    End(End),
}

/// How the end of a batch is seen without its device.
pub(crate) struct End {
    submissions: Arc<Submissions>,
    batch: Arc<Batch>,
}

impl End {
    pub(crate) fn of(device: &DeviceShared, batch: Arc<Batch>) -> Self {
        Self {
            submissions: Arc::clone(&device.submissions),
            batch,
        }
    }

    /// Whether the batch was submitted, and nothing of it runs any more.
    pub(super) fn is_reached(&self) -> bool {
        let _ = self.wait(Some(Instant::now()));
        self.submissions.standing(&self.batch).is_over()
    }

    /// Whether wgpu has got the batch, or has refused it.
    pub(crate) fn is_submitted(&self) -> bool {
        self.batch.submission().is_some()
    }

    /// Waits for it.
    pub(super) fn await_it(&self) {
        // What went wrong is what the batch's events tell.
        let _ = self.wait(None);
    }

    /// Waits until nothing of the batch runs any more, and then says what became of it: something before a batch that was
    /// refused may run.
    fn wait(&self, deadline: Option<Instant>) -> Result<(), Missed> {
        let Some(submission) = self.batch.submission() else {
            // Whoever makes the piece has it submitted first, unless that very call runs this.
            return Err(Missed::Failed(ExecutionError::InCallback {
                what: "a transfer behind a batch that is just being submitted",
            }));
        };
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        match self.submissions.wait_over(&self.batch, left) {
            Progress::Done => match (submission, self.submissions.lost().get()) {
                (Err(error), _) => Err(Missed::Failed((**error).clone())),
                // What was on its way when the device was lost counts as lost with it.
                (Ok(()), Some(reason)) => {
                    Err(Missed::Failed(ExecutionError::DeviceLost { reason }))
                }
                (Ok(()), None) => Ok(()),
            },
            Progress::Pending => Err(Missed::Deadline),
            Progress::Lost(reason) => Err(Missed::Failed(ExecutionError::DeviceLost { reason })),
        }
    }
}

impl Piece {
    fn happen(&self, deadline: Option<Instant>) -> Result<(), Missed> {
        let (from, to) = match self {
            Self::End(end) => return end.wait(deadline),
            Self::Bytes { from, to } => (from, to),
        };
        let mut filled = Ok(());
        let skip = from.range.start % 4;
        from.arrive(deadline)?;
        from.take(|bytes| {
            let end = skip + bytes.len() as u64;
            filled = match to.get_mapped_range_mut(0..end.next_multiple_of(4)) {
                Ok(mut view) => {
                    fill(&mut view, skip, bytes);
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            };
        })?;
        to.unmap();
        filled.map_err(|message| Missed::Failed(ExecutionError::Refused { message }))
    }

    /// It will not happen.
    fn give_up(&self) {
        if let Self::Bytes { to, .. } = self {
            // wgpu submits nothing that uses mapped memory.
            to.unmap();
        }
    }
}

impl Hop {
    pub(super) fn new(pieces: Vec<Piece>, outcome: Arc<Outcome>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                work: Work::Left(pieces.into()),
                wakers: Vec::new(),
                sent: false,
            }),
            changed: Condvar::new(),
            outcome,
        })
    }

    fn happen(pieces: &mut VecDeque<Piece>, deadline: Option<Instant>) -> Result<(), Missed> {
        while let Some(piece) = pieces.front() {
            piece.happen(deadline)?;
            pieces.pop_front();
        }
        Ok(())
    }

    /// The batch that waited is on its way.
    fn sent(&self) {
        let mut state = lock(&self.state);
        state.sent = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl ExternalDependency for Hop {
    fn complete(&self, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        let mut pieces = loop {
            match std::mem::replace(&mut state.work, Work::Busy) {
                Work::Left(pieces) => break pieces,
                Work::Done => {
                    state.work = Work::Done;
                    return true;
                }
                Work::Busy => {}
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            let slice = Duration::from_millis(20);
            let waited = self.changed.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(state);
        #[cfg(test)]
        crate::device::hooks::reach(crate::device::hooks::Point::HopBegun);
        let moved = Self::happen(&mut pieces, deadline);
        let (work, done) = match moved {
            Ok(()) => {
                self.outcome.settle(Ok(()));
                (Work::Done, true)
            }
            Err(Missed::Deadline) => (Work::Left(pieces), false),
            Err(Missed::Failed(error)) => {
                pieces.iter().for_each(Piece::give_up);
                self.outcome.settle(Err(error));
                (Work::Done, true)
            }
        };
        lock(&self.state).work = work;
        self.changed.notify_all();
        done
    }

    fn is_complete(&self) -> bool {
        matches!(lock(&self.state).work, Work::Done)
    }

    fn wake(&self, waker: &Waker) {
        let mut state = lock(&self.state);
        if !state.sent {
            state.wakers.push(waker.clone());
            return;
        }
        let left = matches!(state.work, Work::Left(_));
        drop(state);
        if left {
            // There is no thread: whoever asks does what can be done now.
            self.complete(Some(Instant::now()));
        }
        waker.wake_by_ref();
    }
}

/// The thread that completes dependencies, started by the first one.
#[derive(Default)]
pub(super) struct TransferThread {
    sender: OnceLock<Mutex<Sender<Errand>>>,
    worker: Worker,
}

impl Drop for TransferThread {
    fn drop(&mut self) {
        drop(self.sender.take());
        self.worker.join();
    }
}

struct Errand {
    hop: Arc<Hop>,
    source: Weak<DeviceShared>,
    target: Weak<DeviceShared>,
}

impl TransferThread {
    /// Has the hop made, and what waits for it on `target` submitted.
    pub(super) fn send(
        &self,
        hop: &Arc<Hop>,
        source: &Arc<DeviceShared>,
        target: &Arc<DeviceShared>,
    ) {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = channel();
            let thread = std::thread::Builder::new().name("tombolo staging".into());
            match thread.spawn(move || serve(receiver)) {
                Ok(worker) => self.worker.is(worker),
                Err(error) => {
                    log::warn!("buffers move when somebody waits, for want of a thread: {error}")
                }
            }
            Mutex::new(sender)
        });
        let errand = Errand {
            hop: Arc::clone(hop),
            source: Arc::downgrade(source),
            target: Arc::downgrade(target),
        };
        if let Err(unsent) = lock(sender).send(errand) {
            // Without the thread futures are polled busily.
            unsent.0.hop.sent();
        }
    }
}

fn serve(errands: Receiver<Errand>) {
    // Perhaps the last that has one of the devices.
    while let Ok(errand) = errands.recv() {
        exit::inside(|| errand.run());
    }
    exit::inside(|| drop(errands));
}

impl Errand {
    fn run(self) {
        self.hop.complete(None);
        if let Some(source) = self.source.upgrade() {
            source.settle();
        }
        if let Some(target) = self.target.upgrade() {
            let mut queue = target.queue.lock(&target);
            if queue.dependencies().has_held() && queue.dependencies().pending().is_empty() {
                // The batch's events carry what went wrong.
                let _ = queue.flush();
            }
        }
        self.hop.sent();
    }
}
