//! The prints of the launches of a device: the buffers for kernels' records, and the delivery of the records.
//!
//! Each printing launch owns a buffer until all of its contents are delivered. Launches of a device run in order, and
//! are delivered in order. Where the buffer is live memory, a thread looks for records while the kernel runs; elsewhere
//! the batch copies the buffer behind the launch. The thread that settles the launch (in a wait, a read-back, the next
//! submission) notes the launch's end; from then on the contents of the buffer are final, and are delivered by a
//! waiting thread or by the runtime's own, whichever comes first.
//!
//! Sinks are called with no lock of the runtime held except the delivery lock, so sinks may use the device.
//!
//! The thread of the device is started by the first launch that prints. It looks at a running kernel's records after
//! 20 µs at first and every millisecond at most; whoever waits for a launch delivers its lines. Waiting inside a sink
//! delivers nothing, since the sink's own line is not finished.

mod job;
mod memory;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::completion_hook::CompletionHook;
use super::exit::{self, Worker};
use super::outcome::ExecutionError;
use super::queue::settle::AWAIT_EARLIER;
use super::wait::lock;
use super::{DeviceShared, Event, WaitError};
use crate::print::PrintOptions;
use crate::print::record::Sites;

pub(crate) use job::Job;
use job::{Delivery, Phase};
pub(crate) use memory::Memory;

/// Buffers kept for the next launches.
const SPARE: usize = 8;
/// What waits while so many launches have records under way.
const TOO_MANY: &str = "a launch behind too many others that print";
/// Launches with records under way at most; a further launch waits for the first of them.
const IN_FLIGHT: usize = 64;
/// How long the delivering thread sleeps between two looks at a running kernel's records: the first time, and at most.
/// The mean delay of a line is half of this, the cost a load of two words for each look.
const NAP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// The printing launches of one device.
pub(crate) struct Prints {
    hub: Arc<Hub>,
    worker: Worker,
}

struct Hub {
    /// In the order of submission.
    jobs: Mutex<VecDeque<Arc<Job>>>,
    /// Something about the first of them has changed.
    changed: Condvar,
    /// Held by the thread that delivers.
    delivery: Mutex<()>,
    spare: Mutex<Vec<Arc<Memory>>>,
    /// Buffers that the bind-group cache may forget.
    gone: Mutex<Vec<u64>>,
    has_worker: AtomicBool,
    is_closed: AtomicBool,
}

impl Default for Prints {
    fn default() -> Self {
        Self {
            worker: Worker::default(),
            hub: Arc::new(Hub {
                jobs: Mutex::default(),
                changed: Condvar::new(),
                delivery: Mutex::default(),
                spare: Mutex::default(),
                gone: Mutex::default(),
                has_worker: AtomicBool::new(false),
                is_closed: AtomicBool::new(false),
            }),
        }
    }
}

impl Prints {
    /// A job with a buffer for `words` words of records; an error in wgpu's own words.
    pub(crate) fn take(
        &self,
        device: &DeviceShared,
        sites: &Arc<Sites>,
        options: &PrintOptions,
        words: usize,
    ) -> Result<Arc<Job>, String> {
        let mut spare = lock(&self.hub.spare);
        let found = spare.iter().position(|memory| memory.words == words);
        let found = found.map(|index| spare.swap_remove(index));
        drop(spare);
        if let Some(forget) = device.buffer_gone.get() {
            let gone = std::mem::take(&mut *lock(&self.hub.gone));
            gone.into_iter().for_each(|id| forget(device, id));
        }
        let memory = match found {
            Some(memory) => memory,
            None => Arc::new(Memory::new(device, words)?),
        };
        Ok(Arc::new(Job::new(sites, options, memory)))
    }

    /// Gives back the resources of a refused launch.
    pub(crate) fn give_back(&self, job: &Job) {
        if let Some(memory) = lock(&job.state).memory.take() {
            self.hub.keep(memory);
        }
    }

    /// The job's launch is recorded; the hook by which it goes on.
    pub(crate) fn recorded(&self, job: Arc<Job>) -> Arc<PrintedLaunch> {
        lock(&self.hub.jobs).push_back(Arc::clone(&job));
        // A page has no threads: lines are delivered by whoever awaits the launch, or the next one.
        if !cfg!(web) && !self.hub.has_worker.swap(true, Ordering::AcqRel) {
            let hub = Arc::clone(&self.hub);
            let worker = std::thread::Builder::new().name("tombolo print".into());
            let work = move || {
                hub.work();
                // Perhaps the last that has memory of the device.
                exit::inside(|| drop(hub));
            };
            match worker.spawn(work) {
                Ok(worker) => self.worker.is(worker),
                Err(error) => log::warn!(
                    "lines are printed when somebody waits, for want of a thread: {error}"
                ),
            }
        }
        let hub = Arc::downgrade(&self.hub);
        Arc::new(PrintedLaunch { hub, job })
    }

    /// Delivers everything that has arrived. Nothing happens inside a sink.
    pub(crate) fn deliver(&self) {
        self.hub.deliver();
    }

    /// Launches whose records are not all delivered.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.hub.jobs).len()
    }
}

/// A recorded launch that prints.
pub(crate) struct PrintedLaunch {
    /// Gone with the device.
    hub: Weak<Hub>,
    job: Arc<Job>,
}

impl CompletionHook for PrintedLaunch {
    fn submitted(&self, device: &wgpu::Device) {
        self.job.submitted(device);
        self.wake();
    }

    fn is_readable(&self) -> bool {
        self.job.is_readable()
    }

    /// The error is the assertion that failed.
    fn ended(&self, done: bool) -> Result<(), ExecutionError> {
        let failure = self.job.settle(done);
        self.wake();
        failure.map_or(Ok(()), Err)
    }

    fn deliver(&self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.deliver();
        }
    }
}

impl PrintedLaunch {
    fn wake(&self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.wake();
        }
    }
}

impl Event {
    /// Waits for the launch, and returns how many printed lines did not fit into
    /// [`PrintOptions::capacity`](crate::PrintOptions::capacity). 0 for a launch without prints.
    ///
    /// # Errors
    /// [`WaitError::Failed`] when the device is lost, together with the number. A launch that fails has printed all the
    /// same.
    pub fn dropped_prints(&self) -> Result<u64, WaitError> {
        let Some(printed) = self.hook::<PrintedLaunch>() else {
            return Ok(0);
        };
        match self.wait() {
            Err(WaitError::Failed(error))
                if matches!(*error, ExecutionError::DeviceLost { .. }) =>
            {
                Err(WaitError::Failed(error))
            }
            _ => Ok(printed.job.dropped()),
        }
    }
}

impl Drop for Prints {
    fn drop(&mut self) {
        self.hub.is_closed.store(true, Ordering::Release);
        self.hub.wake();
        // A sink of this thread may be waited for by the worker.
        if !IN_SINK.get() {
            self.worker.join();
        }
    }
}

impl Hub {
    fn wake(&self) {
        // With the lock, so a worker about to wait does not miss the news.
        let _jobs = lock(&self.jobs);
        self.changed.notify_all();
    }

    fn keep(&self, memory: Arc<Memory>) {
        memory.zero();
        let mut spare = lock(&self.spare);
        if spare.len() >= SPARE {
            lock(&self.gone).push(spare.remove(0).id);
        }
        spare.push(memory);
    }

    /// Delivers all records there, in order; true if there were any.
    fn deliver(&self) -> bool {
        if IN_SINK.get() || lock(&self.jobs).is_empty() {
            return false;
        }
        let _turn = lock(&self.delivery);
        let _inside = InSink::new();
        let mut any = false;
        loop {
            let Some(job) = lock(&self.jobs).front().cloned() else {
                return any;
            };
            match job.deliver() {
                Delivery::Waiting { delivered } => return any | delivered,
                Delivery::Over => {}
            }
            any = true;
            lock(&self.jobs).pop_front();
            let mut state = lock(&job.state);
            let memory = state.memory.take();
            // A copy that never arrived may still be on its way.
            if let (Some(memory), Phase::Ended(_)) = (memory, &state.phase) {
                self.keep(memory);
            }
        }
    }

    /// The thread that delivers while kernels run, and delivers prints without a waiter.
    fn work(&self) {
        let mut nap = NAP.0;
        loop {
            let found = exit::inside(|| self.deliver());
            let jobs = lock(&self.jobs);
            let look = match jobs.front() {
                None if self.is_closed.load(Ordering::Acquire) => return,
                None => Look::Later,
                Some(job) => look(job),
            };
            match look {
                Look::Now => {}
                // A device that is gone settles nothing any more.
                Look::Soon | Look::Later if self.is_closed.load(Ordering::Acquire) => return,
                Look::Soon => {
                    nap = match found {
                        false => (nap * 2).min(NAP.1),
                        true => NAP.0,
                    };
                    drop(sleep(&self.changed, jobs, Some(nap)));
                }
                Look::Later => {
                    nap = NAP.0;
                    drop(sleep(&self.changed, jobs, None));
                }
            }
        }
    }
}

/// When to look at a job next.
enum Look {
    Now,
    Soon,
    Later,
}

fn look(job: &Job) -> Look {
    let state = lock(&job.state);
    match state.phase {
        Phase::Ended(_) | Phase::Lost => Look::Now,
        Phase::Running(_) if state.memory.as_ref().is_some_and(|m| m.is_live()) => Look::Soon,
        Phase::Running(_) | Phase::Recorded => Look::Later,
    }
}

fn sleep<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Option<Duration>,
) -> MutexGuard<'a, T> {
    match time {
        Some(time) => {
            let slept = condvar.wait_timeout(guard, time);
            slept.unwrap_or_else(PoisonError::into_inner).0
        }
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}

thread_local! {
    /// Whether this thread delivers, and so may be in a sink. The mark counts for all devices: sinks may be shared, and
    /// two threads in the sinks of two devices may each wait for the other device.
    static IN_SINK: Cell<bool> = const { Cell::new(false) };
}

/// The time in which a thread delivers.
struct InSink;

impl InSink {
    fn new() -> Self {
        IN_SINK.set(true);
        Self
    }
}

impl Drop for InSink {
    fn drop(&mut self) {
        IN_SINK.set(false);
    }
}

impl DeviceShared {
    /// Waits while too many printing launches are under way, which bounds their buffers. Not inside a sink, where
    /// nothing can be delivered.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`]; [`ExecutionError::WouldBlock`].
    pub(crate) fn limit_prints(&self) -> Result<(), ExecutionError> {
        while self.prints.in_flight() >= IN_FLIGHT && !IN_SINK.get() {
            let first = self.queue.lock(self).first_unsettled();
            if let Some(first) = &first {
                self.submissions
                    .may_wait_for(first, None, TOO_MANY, AWAIT_EARLIER)?;
            }
            if self.submissions.never_blocks() {
                self.settle();
                return match self.prints.in_flight() >= IN_FLIGHT {
                    false => Ok(()),
                    true => Err(self.submissions.refused(TOO_MANY, AWAIT_EARLIER)),
                };
            }
            if let Some(first) = (first.as_ref()).filter(|first| first.submission().is_none()) {
                self.complete_dependencies(None);
                self.submit(first);
            }
            if let Some(first) = first {
                if first.submission().is_none() {
                    // Inside a callback of the batch's own submission.
                    return Ok(());
                }
                let _ = self.submissions.wait(&first, None);
                self.submissions.collect();
            }
            self.settle();
        }
        Ok(())
    }

    /// Waits for the printing launches, and delivers their lines: the device is about to go.
    pub(crate) fn end_prints(&self) {
        if self.prints.in_flight() == 0 {
            return;
        }
        let last = self.queue.lock(self).last_unsettled();
        if let Some(last) = last.filter(|batch| batch.submission().is_some()) {
            let _ = self.submissions.wait(&last, None);
            self.submissions.collect();
        }
        self.settle();
    }
}
