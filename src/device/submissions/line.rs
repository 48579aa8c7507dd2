//! The line: closed batches on their way to wgpu, in the order of their closing, by a single thread at a time.
//!
//! wgpu runs callbacks of the program inside `Queue::submit`. So nothing is locked while a batch is submitted: the
//! thread in turn marks the turn, and others wait for their batch's verdict. A callback may itself record commands and
//! flush; the callback runs on the thread in turn, behind a submission in the driver's hands, and so may submit the
//! next batch in line at once. Only the batch whose submission runs the callback has no verdict yet.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::super::capture;
use super::super::external_dependency::ExternalDependency;
use super::super::outcome::ExecutionError;
use super::Submissions;
use super::batch::{Batch, ClosedBatch, Commands};
use super::contained::{Panicked, contained};
use super::order;
use crate::clock::Instant;
use crate::span::span;

/// The closed batches, not yet submitted.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<ClosedBatch>,
    turn: Option<Turn>,
}

/// The thread in turn, and the batch.
#[derive(Clone)]
struct Turn {
    thread: ThreadId,
    batch: Arc<Batch>,
}

/// Whether commands have reached the driver.
enum Evidence {
    /// They have, and the signal with them.
    Own,
    /// A submission has, and took the signal: the batch's, or another in front.
    Sent,
    Kept,
    Unknown,
}

impl Submissions {
    /// Puts a batch at the end of the line. Batches closed in an order, behind a single lock, stand in that order.
    pub(crate) fn enqueue(&self, closed: ClosedBatch) {
        closed.batch.close();
        self.line.state.lock().waiting.push_back(closed);
    }

    /// The last closed batch, if still without a verdict.
    pub(crate) fn last_in_line(&self) -> Option<Arc<Batch>> {
        let state = self.line.state.lock();
        let current = state.turn.as_ref().map(|turn| &turn.batch);
        let last = state.waiting.back().map(|closed| &closed.batch);
        last.or(current).cloned()
    }

    /// The incomplete dependencies of the batches in line, in the order of the line.
    pub(crate) fn pending(&self) -> Vec<Arc<dyn ExternalDependency>> {
        self.pending_of(|waiting| waiting.len())
    }

    /// The incomplete dependencies of the batches in line up to `until`; none if `until` is no more in line.
    pub(crate) fn pending_until(&self, until: &Batch) -> Vec<Arc<dyn ExternalDependency>> {
        let is_it = |closed: &ClosedBatch| std::ptr::eq(&*closed.batch, until);
        // Dependencies of later batches may wait for this very batch.
        self.pending_of(|waiting| waiting.iter().position(is_it).map_or(0, |at| at + 1))
    }

    fn pending_of(
        &self,
        count: impl FnOnce(&VecDeque<ClosedBatch>) -> usize,
    ) -> Vec<Arc<dyn ExternalDependency>> {
        let mut state = self.line.state.lock();
        let count = count(&state.waiting);
        let waiting = state.waiting.iter_mut().take(count);
        let all = waiting.flat_map(|closed| closed.dependencies.pending().to_vec());
        all.collect()
    }

    /// Completes the dependencies of a closed batch and of earlier batches in line, without the turn in hand. False if
    /// `deadline` came first, or this thread serves the call of a kernel in front of a dependency.
    pub(crate) fn complete_until(&self, batch: &Batch, deadline: Option<Instant>) -> bool {
        loop {
            let pending = self.pending_until(batch);
            if pending.is_empty() {
                return true;
            }
            if !(pending.iter()).all(|dependency| dependency.complete(deadline)) {
                return false;
            }
        }
    }

    /// As [`Self::drive`], with the handle of the queue kept until the device has submitted everything itself.
    pub(crate) fn drive_kept(&self, until: &Batch) {
        // Not with the lock in hand: the handle may be the last.
        let queue = self.queue.lock().clone();
        if let Some(queue) = queue {
            self.drive(&queue, until);
        }
    }

    /// The last batch ready for submission now: all dependencies of the batches up to there are complete.
    pub(crate) fn last_ready(&self) -> Option<Arc<Batch>> {
        let mut state = self.line.state.lock();
        let mut ready = None;
        for closed in &mut state.waiting {
            if !closed.dependencies.pending().is_empty() {
                break;
            }
            ready = Some(Arc::clone(&closed.batch));
        }
        ready
    }

    /// The batch with this many later batches in line.
    pub(crate) fn in_line_before(&self, behind: usize) -> Option<Arc<Batch>> {
        let state = self.line.state.lock();
        let at = state.waiting.len().checked_sub(behind + 1)?;
        state
            .waiting
            .get(at)
            .map(|closed| Arc::clone(&closed.batch))
    }

    /// Waits until the batch's turn in line has come, or is over; false if the wait took longer than `timeout`.
    pub(crate) fn await_turn_of(&self, batch: &Batch, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.line.state.lock();
        while (state.waiting.iter()).any(|closed| std::ptr::eq(&*closed.batch, batch)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.line.moved.wait_for(&mut state, left);
        }
        true
    }

    /// Whether the batch is being submitted by a call further up on this very thread, now in a callback.
    pub(crate) fn is_submitting_here(&self, batch: &Batch) -> bool {
        let state = self.line.state.lock();
        let this = std::thread::current().id();
        (batch.is_closed() && batch.submission().is_none())
            && state.turn.as_ref().is_some_and(|turn| turn.thread == this)
            && !(state.waiting.iter()).any(|closed| std::ptr::eq(&*closed.batch, batch))
    }

    /// Whether this thread is inside a submission, and so in a callback there.
    pub(super) fn is_submitting(&self) -> bool {
        let state = self.line.state.lock();
        let this = std::thread::current().id();
        (state.turn.as_ref()).is_some_and(|turn| turn.thread == this)
    }

    /// Submits the batches in line, up to `until`. No lock wanted by callbacks of the program may be held. On return,
    /// `until` has a verdict, unless `until` is open, or a call further up on this thread is submitting it. Batches
    /// closed before have a verdict as well, except for a batch whose submission runs the callback submitting `until`.
    pub(crate) fn drive(&self, queue: &wgpu::Queue, until: &Batch) {
        let this = std::thread::current().id();
        let mut state = self.line.state.lock();
        while until.is_closed() && until.submission().is_none() {
            let outer = state.turn.clone();
            if outer.as_ref().is_some_and(|turn| turn.thread != this) {
                self.line.moved.wait(&mut state);
                continue;
            }
            let Some(closed) = state.waiting.pop_front() else {
                return;
            };
            state.turn = Some(Turn {
                thread: this,
                batch: Arc::clone(&closed.batch),
            });
            drop(state);
            let back = GiveBack {
                line: &self.line,
                outer,
            };
            self.send(queue, closed);
            drop(back);
            state = self.line.state.lock();
        }
    }

    /// Hands a batch to wgpu. The batch has a verdict and a number afterwards, whatever happens.
    fn send(&self, queue: &wgpu::Queue, closed: ClosedBatch) {
        let ClosedBatch {
            batch,
            commands,
            uniforms,
            mut dependencies,
            mirrors,
            hooks,
            refused,
        } = closed;
        let are_complete = dependencies.complete();
        let sending = Sending {
            submissions: self,
            queue,
            number: self.ledger.give(),
            batch: &batch,
            index: Cell::new(None),
        };
        let _span = span!("submit", number = sending.number);
        let written = uniforms.map_or(Ok(()), |(ring, bytes)| self.write(queue, &ring, bytes));
        let verdict = match (refused, written) {
            (Some(error), _) | (None, Err(error)) => Err(self.refusal(error.to_string())),
            (None, Ok(())) if !are_complete => {
                Err(self.in_handler("a batch that comes behind what another device does"))
            }
            (None, Ok(())) => match commands {
                Commands::Recorded(encoder) => self.submit(&sending, || encoder.finish()),
                Commands::Made(commands) => self.submit(&sending, || commands),
                Commands::Late(make) => match make() {
                    Ok(commands) => self.submit(&sending, || commands),
                    Err(message) => Err(self.refusal(message)),
                },
            },
        };
        if verdict.is_ok() {
            // Before the marker, so copies are mapped before the end of the batch is known.
            for mirror in mirrors {
                mirror.map(&self.raw);
            }
            hooks.into_iter().for_each(|hook| hook(&self.raw));
        }
        sending.over(verdict.map_err(Arc::new));
    }

    /// Writes the uniform values of a batch in front.
    fn write(
        &self,
        queue: &wgpu::Queue,
        ring: &wgpu::Buffer,
        mut bytes: Vec<u8>,
    ) -> Result<(), wgpu::Error> {
        let ((), error) = capture(&self.raw, || queue.write_buffer(ring, 0, &bytes));
        bytes.clear();
        *self.spare.lock() = bytes;
        error.map_or(Ok(()), Err)
    }

    fn submit(
        &self,
        sending: &Sending<'_>,
        commands: impl FnOnce() -> wgpu::CommandBuffer,
    ) -> Result<(), ExecutionError> {
        let (queue, number) = (sending.queue, sending.number);
        let last = self.order.last();
        let staged = (self.signal.as_ref()).filter(|signal| signal.stage(queue, number));
        #[cfg(test)]
        crate::device::hooks::reach(crate::device::hooks::Point::Submitting);
        let (called, error) = capture(&self.raw, || contained(|| queue.submit([commands()])));
        let submitted = called.as_ref().ok().filter(|_| staged.is_some());
        let index = submitted.and_then(order::index_of);
        sending.index.set(index);
        let evidence = match staged {
            Some(signal) if signal.take_back(queue) => Evidence::Kept,
            Some(_) => {
                self.signalled
                    .store(number, std::sync::atomic::Ordering::Release);
                let next = || self.submit_nothing(queue);
                let is_own = |index: u64| self.order.is_own(last, index, error.is_some(), next);
                match index.is_some_and(is_own) {
                    true => Evidence::Own,
                    // The commands may be wrong, and another submission may have taken the signal.
                    false if error.is_some() && called.is_ok() => Evidence::Unknown,
                    false => Evidence::Sent,
                }
            }
            None => Evidence::Unknown,
        };
        if let Some(reason) = self.lost.get() {
            return Err(ExecutionError::DeviceLost { reason });
        }
        if let Evidence::Own = evidence {
            sending.batch.has_own_signal();
        }
        match (evidence, called, error) {
            // Errors behind the submission come from callbacks.
            (Evidence::Own | Evidence::Sent, _, error) => {
                if let Some(error) = error {
                    log::error!("wgpu reported an error in a callback of the program: {error}");
                }
                Ok(())
            }
            (_, Err(Panicked::Driver { message, .. }), _) => Err(self.refusal(message)),
            (_, Err(Panicked::Callback), _) => Err(self.refusal(
                "the call that submits it was ended by a panic, and whether its commands run is not known".to_owned(),
            )),
            // Commands of a destroyed device are refused for resources made since the destruction.
            (_, Ok(_), Some(_)) if !cfg!(web) && !self.answers() => Err(self.no_answer()),
            (_, Ok(_), Some(error)) => Err(self.refusal(error.to_string())),
            // wgpu reports nothing for a submission to a destroyed device.
            (Evidence::Kept, Ok(_), None) => Err(self.no_answer()),
            // A page is told by a callback.
            (Evidence::Unknown, Ok(_), None) if !cfg!(web) && !self.answers() => {
                Err(self.no_answer())
            }
            (Evidence::Unknown, Ok(_), None) => Ok(()),
        }
    }

    /// The index of an empty submission.
    fn submit_nothing(&self, queue: &wgpu::Queue) -> Option<u64> {
        let (called, _) = capture(&self.raw, || contained(|| queue.submit([])));
        order::index_of(&called.ok()?)
    }

    /// Why a batch was not submitted: the device may be lost.
    fn refusal(&self, message: String) -> ExecutionError {
        match self.lost.get() {
            Some(reason) => ExecutionError::DeviceLost { reason },
            None => ExecutionError::Refused { message },
        }
    }

    fn no_answer(&self) -> ExecutionError {
        self.lost.raise(NO_ANSWER);
        self.refusal(String::new())
    }

    /// Whether a buffer just made without an error is valid.
    ///
    /// # Errors
    /// [`ExecutionError::DeviceLost`].
    pub(crate) fn made(&self, buffer: &wgpu::Buffer) -> Result<(), ExecutionError> {
        if cfg!(web) {
            return self.lost.check();
        }
        // wgpu's error for the bytes of an unmapped buffer differs from its error for an invalid buffer. The words only
        // show when a question is worthwhile; the question decides.
        let usual = self.unmapped.get_or_init(|| {
            let (buffer, _) = capture(&self.raw, || self.question());
            unmapped(&buffer)
        });
        if unmapped(buffer) != *usual && !self.answers() {
            self.lost.raise(NO_ANSWER);
        }
        self.lost.check()
    }

    /// As [`Self::made`], for a resource just made that says nothing of its own validity: a texture.
    ///
    /// # Errors
    /// [`ExecutionError::DeviceLost`].
    pub(crate) fn made_another(&self) -> Result<(), ExecutionError> {
        if !cfg!(web) && !self.answers() {
            self.lost.raise(NO_ANSWER);
        }
        self.lost.check()
    }

    fn question(&self) -> wgpu::Buffer {
        self.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tombolo question"),
            size: 4,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// Whether wgpu still makes resources on the device: a buffer made on a destroyed or lost device is invalid,
    /// without a report.
    pub(crate) fn answers(&self) -> bool {
        let (buffer, _) = capture(&self.raw, || self.question());
        let ((), error) = capture(&self.raw, || {
            buffer.map_async(wgpu::MapMode::Read, .., |_| {});
        });
        error.is_none()
    }
}

/// Why a silent, idle device counts as lost.
const NO_ANSWER: &str = "it was destroyed, or answers no more";

/// wgpu's answer to a request for the bytes of an unmapped buffer.
fn unmapped(buffer: &wgpu::Buffer) -> Option<String> {
    buffer
        .get_mapped_range(..)
        .err()
        .map(|error| error.to_string())
}

/// Gives the turn back to its earlier holder, also when unwinding.
struct GiveBack<'l> {
    line: &'l Line,
    outer: Option<Turn>,
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.line.state.lock().turn = self.outer.take();
        self.line.moved.notify_all();
    }
}

/// A submission under way: at its drop, the batch has a number, a marker and a verdict.
struct Sending<'s> {
    submissions: &'s Submissions,
    queue: &'s wgpu::Queue,
    number: u64,
    batch: &'s Batch,
    /// The index given to the submission by wgpu.
    index: Cell<Option<u64>>,
}

impl Sending<'_> {
    fn over(self, verdict: Result<(), Arc<ExecutionError>>) {
        self.note();
        self.batch.submitted(verdict);
    }

    fn note(&self) {
        let Self {
            submissions,
            queue,
            number,
            batch,
            index,
        } = self;
        submissions.ledger.sent(*number);
        // Also behind a refused submission: earlier ones may run.
        submissions.mark(queue, *number);
        if let Some(index) = index.take() {
            submissions.order.marked(index);
        }
        let signalled = &submissions.signalled;
        batch.is(*number, signalled.load(Ordering::Acquire));
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if self.batch.submission().is_none() {
            self.note();
            let message = "the call that submits it was ended by a panic".to_owned();
            let refused = ExecutionError::Refused { message };
            self.batch.submitted(Err(Arc::new(refused)));
        }
    }
}
