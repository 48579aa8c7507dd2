//! Host-staged transfers between devices, and the order between two devices' batches.
//!
//! The copy out of the source is submitted when the transfer is made, or is in a closed batch of the source that may wait
//! itself ([`Hop::of_sent`]); the copy into the target is recorded in the target's open batch, from memory that the host
//! fills when the bytes arrive. Until then the batch is held back ([`ExternalDependency`]), and the recording thread goes
//! on. For each device that waits, a thread of the context completes the dependencies in order and submits the batches.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use super::download::{Download, Missed};
use crate::clock::Instant;
use crate::device::DeviceShared;
use crate::device::capture;
use crate::device::exit::{self, Worker};
use crate::device::external_dependency::ExternalDependency;
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::queue::Batch;
use crate::device::submissions::{Progress, Submissions};
use crate::device::wait::lock;
use crate::memory::staging::{Filling, Missing};
use crate::span::span;

/// For how long at most the recording thread waits for a device that runs on processors: about as long as a short launch takes
/// there. Another thread would have to be woken for the same wait, and would take a processor from the devices.
const WAIT_BUDGET: Duration = Duration::from_micros(200);

/// The host's work before a batch is submitted.
pub(super) struct Hop {
    state: Mutex<State>,
    changed: Condvar,
    /// The submissions of all source devices.
    sources: Vec<Arc<Submissions>>,
    /// A batch of another device that may be in line itself, and is submitted before any piece: outside of the work of a
    /// single thread, since callbacks of the program run, and since every thread that waits has to find out whether it may.
    sent: Option<(End, Weak<DeviceShared>)>,
    /// The outcome of the bytes.
    outcome: Arc<Outcome>,
}

struct State {
    work: Work,
    wakers: Vec<Waker>,
    /// True once the waiting batch was submitted.
    sent: bool,
}

enum Work {
    /// No thread works; these pieces are left.
    Left(VecDeque<Piece>),
    Busy,
    Done,
}

/// One step of the work.
pub(super) enum Piece {
    /// Bytes arrive, and are copied to mapped memory.
    Bytes {
        from: Box<Download>,
        device: wgpu::Device,
        to: wgpu::Buffer,
    },
    /// The end of a closed batch of another device.
    End(End),
}

/// The end of a batch, without a hold on the device.
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

    /// Whether the batch is known to be submitted and over. No call of wgpu, which might run callbacks of the program:
    /// any lock may be held. Ends become known by waits and submissions.
    pub(super) fn is_reached(&self) -> bool {
        self.submissions.standing(&self.batch).is_over()
    }

    /// Whether the batch was accepted and has ended well, after a wait of at most `budget`. May run callbacks of the program.
    fn has_ended_well(&self, budget: Duration) -> bool {
        #[cfg(test)]
        if crate::device::hooks::sees_no_ends() {
            return false;
        }
        matches!(self.batch.submission(), Some(Ok(())))
            && self.submissions.wait_over(&self.batch, Some(budget)) == Progress::Done
            && !self.submissions.lost().is_raised()
    }

    /// Whether wgpu has accepted or refused the batch.
    pub(crate) fn is_submitted(&self) -> bool {
        self.batch.submission().is_some()
    }

    /// Waits for the end.
    pub(super) fn await_it(&self) {
        // Failures are reported by the batch's events.
        let _ = self.wait(None);
    }

    /// Sees to the submission of a closed batch, behind what the batch waits for. False if `deadline` came first, or this
    /// thread serves the call of a kernel in front of it.
    fn send(&self, device: &Weak<DeviceShared>, deadline: Option<Instant>) -> bool {
        if self.batch.submission().is_some() {
            return true;
        }
        if !self.submissions.complete_until(&self.batch, deadline) {
            return false;
        }
        if let Some(device) = device.upgrade() {
            device.residents.submitting();
        }
        self.submissions.drive_kept(&self.batch);
        true
    }

    fn refused(&self) -> ExecutionError {
        let what = "the end of what another device does";
        (self.submissions).refused(what, "`.await` the event of its last command")
    }

    /// Waits until nothing up to the batch runs, also after a refusal of the batch. Then returns the failure, if any.
    fn wait(&self, deadline: Option<Instant>) -> Result<(), Missed> {
        let Some(submission) = self.batch.submission() else {
            // The batch is submitted before this is asked for, unless the submission itself runs this.
            return Err(Missed::Failed(ExecutionError::InCallback {
                what: "a transfer behind a batch that is just being submitted",
            }));
        };
        self.submissions.look_longer(&self.batch, deadline);
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        match self.submissions.wait_over(&self.batch, left) {
            Progress::Done => match (submission, self.submissions.lost().get()) {
                (Err(error), _) => Err(Missed::Failed((**error).clone())),
                // Bytes under way when the device was lost count as lost.
                (Ok(()), Some(reason)) => {
                    Err(Missed::Failed(ExecutionError::DeviceLost { reason }))
                }
                (Ok(()), None) => Ok(()),
            },
            Progress::Pending => Err(Missed::Deadline),
            Progress::Refused => Err(Missed::InHandler(self.refused())),
            Progress::Lost(reason) => Err(Missed::Failed(ExecutionError::DeviceLost { reason })),
        }
    }
}

/// Whether a closed batch of `source` has ended well, for which `device` waits, or ends so soon that the recording thread
/// waits for the end itself. May run callbacks of the program.
pub(super) fn has_come(
    source: &Arc<DeviceShared>,
    batch: &Arc<Batch>,
    device: &Arc<DeviceShared>,
) -> bool {
    let end = End::of(source, Arc::clone(batch));
    if end.has_ended_well(Duration::ZERO) {
        return true;
    }
    if !source.capabilities.software || device.submissions.never_blocks() {
        return false;
    }
    // What the device has to do meanwhile.
    let mut queue = device.queue.lock(device);
    if queue.has_commands() {
        queue.pass_on();
    }
    drop(queue);
    end.has_ended_well(WAIT_BUDGET)
}

impl Piece {
    fn happen(&self, deadline: Option<Instant>) -> Result<(), Missed> {
        let (from, device, to) = match self {
            Self::End(end) => return end.wait(deadline),
            Self::Bytes { from, device, to } => (from, device, to),
        };
        from.arrive(deadline)?;
        let (first, bytes) = (from.range.start % 4, from.range.end - from.range.start);
        let mut filling =
            Filling::begin(device, to, first as usize, bytes as usize).map_err(Missing::from)?;
        let mut filled = Ok(());
        // Memory of two devices is never pinned at once.
        from.take_copied(|at, bytes| {
            if filled.is_ok() {
                filled = filling.write(at, bytes);
            }
        })?;
        drop(filling);
        let ((), _) = capture(device, || to.unmap());
        Ok(filled.map_err(Missing::from)?)
    }

    /// Releases the memory of a piece that will not arrive.
    fn give_up(&self) {
        if let Self::Bytes { device, to, .. } = self {
            // wgpu refuses submissions with mapped memory, and reports memory that has gone with its device.
            let ((), _) = capture(device, || to.unmap());
        }
    }
}

impl Hop {
    pub(super) fn new(pieces: Vec<Piece>, outcome: Arc<Outcome>) -> Arc<Self> {
        Self::behind(None, pieces, outcome)
    }

    /// Pieces that a closed batch of `device` brings, which may be in line itself.
    pub(super) fn of_sent(
        device: &Arc<DeviceShared>,
        batch: &Arc<Batch>,
        pieces: Vec<Piece>,
        outcome: Arc<Outcome>,
    ) -> Arc<Self> {
        let sent = (End::of(device, Arc::clone(batch)), Arc::downgrade(device));
        Self::behind(Some(sent), pieces, outcome)
    }

    fn behind(
        sent: Option<(End, Weak<DeviceShared>)>,
        pieces: Vec<Piece>,
        outcome: Arc<Outcome>,
    ) -> Arc<Self> {
        let mut sources: Vec<Arc<Submissions>> = Vec::new();
        for piece in &pieces {
            let source = match piece {
                Piece::Bytes { from, .. } => from.submissions(),
                Piece::End(end) => &end.submissions,
            };
            if !sources.iter().any(|known| Arc::ptr_eq(known, source)) {
                sources.push(Arc::clone(source));
            }
        }
        Arc::new(Self {
            sources,
            sent,
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

    /// Notes the submission of the waiting batch.
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
        let sent = self.sent.as_ref();
        if !self.is_complete() && sent.is_some_and(|(end, device)| !end.send(device, deadline)) {
            return false;
        }
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
            // The working thread may wait for the very call served by this thread.
            let is_refused = |source: &Arc<Submissions>| source.is_served_here();
            if self.sources.iter().any(is_refused) {
                return false;
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            let slice = Duration::from_millis(20);
            let _span = span!("arrival by another thread");
            let waited = self.changed.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(state);
        #[cfg(test)]
        crate::device::hooks::reach(crate::device::hooks::Point::HopBegun);
        let _span = span!("arrival");
        let moved = Self::happen(&mut pieces, deadline);
        let (work, done) = match moved {
            Ok(()) => {
                self.outcome.settle(Ok(()));
                (Work::Done, true)
            }
            // Another thread completes the rest.
            Err(Missed::Deadline | Missed::InHandler(_)) => (Work::Left(pieces), false),
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
            // Without a thread, the asking one does the work possible now.
            self.complete(Some(Instant::now()));
        }
        waker.wake_by_ref();
    }
}

/// The threads that complete dependencies, one for each device whose batches wait, started on first use: a device that
/// waits for a long launch of another holds up no third.
#[derive(Default)]
pub(super) struct TransferThreads(Mutex<Threads>);

#[derive(Default)]
struct Threads {
    /// By the identity of the device that waits. Without a sender the system has refused a thread.
    running: HashMap<u64, (Weak<DeviceShared>, Option<Sender<Errand>>)>,
    workers: Vec<Worker>,
}

impl Drop for TransferThreads {
    fn drop(&mut self) {
        let Threads { running, workers } = std::mem::take(&mut *lock(&self.0));
        drop(running);
        workers.iter().for_each(Worker::join);
    }
}

struct Errand {
    hop: Arc<Hop>,
    source: Weak<DeviceShared>,
    target: Weak<DeviceShared>,
}

impl TransferThreads {
    /// Has the transfer made, and then the waiting batch on `target` submitted.
    pub(super) fn send(
        &self,
        hop: &Arc<Hop>,
        source: &Arc<DeviceShared>,
        target: &Arc<DeviceShared>,
    ) {
        let errand = Errand {
            hop: Arc::clone(hop),
            source: Arc::downgrade(source),
            target: Arc::downgrade(target),
        };
        let unsent = match lock(&self.0).of(target) {
            Some(thread) => thread.send(errand).err().map(|unsent| unsent.0),
            None => Some(errand),
        };
        if let Some(errand) = unsent {
            // Without the thread futures are polled busily.
            errand.hop.sent();
        }
    }
}

impl Threads {
    fn of(&mut self, target: &Arc<DeviceShared>) -> Option<&Sender<Errand>> {
        if !self.running.contains_key(&target.id) {
            // Threads of devices that are gone end with their senders, and are waited for with the context.
            (self.running).retain(|_, (device, _)| device.strong_count() > 0);
            self.workers.retain(|worker| !worker.has_ended());
            let sender = self.start();
            let thread = (Arc::downgrade(target), sender);
            self.running.insert(target.id, thread);
        }
        self.running.get(&target.id)?.1.as_ref()
    }

    fn start(&mut self) -> Option<Sender<Errand>> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("tombolo staging".into());
        match thread.spawn(move || serve(receiver)) {
            Ok(thread) => {
                let worker = Worker::default();
                worker.is(thread);
                self.workers.push(worker);
                Some(sender)
            }
            Err(error) => {
                log::warn!("buffers move when somebody waits, for want of a thread: {error}");
                None
            }
        }
    }
}

fn serve(errands: Receiver<Errand>) {
    // An errand may have the last handle of a device.
    while let Ok(errand) = errands.recv() {
        exit::inside(|| errand.run());
    }
    exit::inside(|| drop(errands));
}

impl Errand {
    fn run(self) {
        self.hop.complete(None);
        // Before anything else: the device waits.
        if let Some(target) = self.target.upgrade() {
            let mut queue = target.queue.lock(&target);
            queue.submit_ready();
            if queue.dependencies().has_held() && queue.pending().is_empty() {
                // Failures are reported by the batch's events.
                let _ = queue.flush();
            }
        }
        if let Some(source) = self.source.upgrade() {
            source.settle();
        }
        self.hop.sent();
    }
}
