//! Threads serving calls of running kernels, and refused waits on such threads.
//!
//! The queue of a device is in order. So no later submission ends before a running kernel, and a kernel in wait for an
//! answer ends after the host's function behind the call: a function in wait for the caller's device would wait for
//! itself. The wait is refused ([`ExecutionError::InHandler`]) at once.
//!
//! The calling kernel among several on a device is not known, nor whether the kernel waits. When nothing runs on the
//! device any more the caller is over, and the function may wait like any other thread.
//!
//! A kernel of another device may call functions of the same services. Their threads are a [`Crew`]; when all of a crew
//! are in functions waiting for the ends of such kernels, nobody answers. So each device knows the batches whose
//! kernels call, and the last of a crew is refused the wait.
//!
//! Another device of the caller's card does not run while the caller does ([`cards`]): the wait for such a device is
//! refused like a wait for the caller's own.
//!
//! Where threads may not wait at all, in a browser and by [`WaitPolicy::Never`](crate::device::WaitPolicy::Never), waits are
//! refused at the same places ([`ExecutionError::WouldBlock`]).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::super::outcome::ExecutionError;
use super::{Batch, Standing, Submissions, cards};

/// No function runs.
const NONE: usize = usize::MAX;

thread_local! {
    /// The device of the calls served by this thread now; 0 for none.
    static DEVICE: Cell<u64> = const { Cell::new(0) };
    /// The running function, among those of `CREW`.
    static FUNCTION: Cell<usize> = const { Cell::new(NONE) };
    /// The call's kernel has ended.
    static IS_CALLER_OVER: Cell<bool> = const { Cell::new(false) };
    static CREW: RefCell<Option<Arc<Crew>>> = const { RefCell::new(None) };
}

/// The threads serving the functions of some services.
#[derive(Debug)]
pub(crate) struct Crew {
    names: Box<[String]>,
    threads: usize,
    /// Threads in wait for an end behind kernels calling the crew's functions.
    waiting: AtomicUsize,
}

impl Crew {
    /// The threads, partly of kernels, at most `threads` of them in functions at a time.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, threads: usize) -> Arc<Self> {
        Arc::new(Self {
            names: names.into_iter().collect(),
            threads,
            waiting: AtomicUsize::new(0),
        })
    }

    /// Whether another thread in wait leaves none to answer.
    fn needs_this_thread(&self) -> bool {
        self.waiting.load(Ordering::Acquire) + 1 >= self.threads
    }
}

/// The time of a crew's thread in wait for an end behind kernels calling the crew.
pub(super) struct Absent(Arc<Crew>);

impl Absent {
    /// `None` for the last thread of the crew.
    fn of(crew: Arc<Crew>) -> Option<Self> {
        let others = crew.waiting.fetch_add(1, Ordering::AcqRel);
        let absent = Self(crew);
        (others + 1 < absent.0.threads).then_some(absent)
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Batches whose kernels wait for the answers of crews.
#[derive(Debug, Default)]
pub(super) struct Callers {
    batches: Mutex<Vec<(Arc<Batch>, Arc<Crew>)>>,
}

/// The number of calling kernels' batches from which on ended batches are looked for.
const MANY: usize = 16;

/// Marks this thread as a member of the crew.
pub(crate) fn serve(crew: &Arc<Crew>) {
    CREW.with_borrow_mut(|own| {
        if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own, crew)) {
            *own = Some(Arc::clone(crew));
        }
    });
}

/// A device with calls served while kernels run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    id: u64,
}

/// Notes the device of the ports looked at next; `None` for ports of ended clients, or of clients on the host.
pub(crate) fn serve_device(device: Option<&Served>) {
    DEVICE.set(device.map_or(0, |device| device.id));
}

/// The time of a running function on this thread; the function around, if any.
pub(crate) struct Running(usize);

/// Notes the function about to run, by index.
pub(crate) fn serve_call(function: usize) -> Running {
    IS_CALLER_OVER.set(false);
    Running(FUNCTION.replace(function))
}

impl Drop for Running {
    fn drop(&mut self) {
        FUNCTION.set(self.0);
    }
}

/// The crew of this thread, inside a function.
fn crew() -> Option<Arc<Crew>> {
    match FUNCTION.get() {
        NONE => None,
        _ => CREW.with_borrow(Option::clone),
    }
}

impl Submissions {
    /// The device, for [`serve_device`].
    pub(crate) fn served(&self) -> Served {
        Served { id: self.id }
    }

    /// Whether this thread runs a function for a kernel of the device not known to have ended.
    pub(crate) fn is_served_here(&self) -> bool {
        DEVICE.get() == self.id && !IS_CALLER_OVER.get()
    }

    /// Notes that kernels of an unfinished batch wait for answers of the crew.
    pub(crate) fn will_call(&self, batch: &Arc<Batch>, crew: &Arc<Crew>) {
        let mut batches = self.callers.batches.lock();
        let is_known = |(known, whom): &(Arc<Batch>, Arc<Crew>)| {
            Arc::ptr_eq(known, batch) && Arc::ptr_eq(whom, crew)
        };
        if batches.last().is_some_and(is_known) {
            return;
        }
        if batches.len() >= MANY && batches.len().is_power_of_two() {
            batches.retain(|(batch, _)| self.may_run(batch));
        }
        batches.push((Arc::clone(batch), Arc::clone(crew)));
    }

    /// Whether kernels of the batch run, or will.
    fn may_run(&self, batch: &Arc<Batch>) -> bool {
        match self.standing(batch) {
            // Nobody is left to submit the batch.
            Standing::Recorded => Arc::strong_count(batch) > 1,
            standing => !standing.is_over(),
        }
    }

    /// Whether the crew's answers come before the end of the batch, or of everything for `None`.
    fn is_behind_calls(&self, batch: Option<&Batch>, crew: &Arc<Crew>) -> bool {
        // Numbers are given at the submission: batches without a number come behind numbered batches.
        let number = |batch: &Batch| match batch.number() {
            0 => u64::MAX,
            number => number,
        };
        let last = batch.map_or(u64::MAX, number);
        let mut batches = self.callers.batches.lock();
        batches.retain(|(batch, _)| self.may_run(batch));
        (batches.iter()).any(|(batch, whom)| Arc::ptr_eq(whom, crew) && number(batch) <= last)
    }

    /// Whether this thread is the crew's last able to answer a kernel before the end of the batch, or of everything for
    /// `None`. Other threads in wait count.
    fn is_needed_here(&self, batch: Option<&Batch>) -> bool {
        crew().is_some_and(|crew| crew.needs_this_thread() && self.is_behind_calls(batch, &crew))
    }

    /// Notes that this thread, if in a function, answers nobody during the wait for the batch.
    ///
    /// # Errors
    /// `()` where nobody would answer.
    pub(super) fn leave_crew(&self, batch: &Batch) -> Result<Option<Absent>, ()> {
        match crew() {
            Some(crew) if self.is_behind_calls(Some(batch), &crew) => {
                Absent::of(crew).map(Some).ok_or(())
            }
            _ => Ok(None),
        }
    }

    /// Refuses a submission, or the poll of a future, on a thread serving a call from the device: either is a wait
    /// there. May run callbacks of the program.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`].
    pub(crate) fn may_submit(&self, what: &'static str) -> Result<(), ExecutionError> {
        if !self.is_served_here() {
            return Ok(());
        }
        self.collect();
        if self.ledger.is_idle() {
            IS_CALLER_OVER.set(true);
            return Ok(());
        }
        Err(self.in_handler(what))
    }

    /// As [`Self::may_submit`], for something behind a batch: an ended batch keeps nobody.
    pub(crate) fn may_submit_behind(
        &self,
        batch: &Batch,
        what: &'static str,
    ) -> Result<(), ExecutionError> {
        let is_soon = || batch.submission().is_some() && self.has_reached(batch);
        match (self.is_served_here(), crew().is_some()) {
            (false, false) => Ok(()),
            _ if is_soon() => Ok(()),
            (true, _) => self.may_submit(what),
            (false, true) => {
                self.may_wait_beside_caller(what)?;
                self.may_leave(Some(batch), what)
            }
        }
    }

    /// Refuses a wait on a thread serving a call from another device of the same card, for as long as anything runs
    /// there. May run callbacks of the program.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`].
    fn may_wait_beside_caller(&self, what: &'static str) -> Result<(), ExecutionError> {
        let (caller, Some(card)) = (DEVICE.get(), &self.card) else {
            return Ok(());
        };
        if caller == 0 || caller == self.id || IS_CALLER_OVER.get() {
            return Ok(());
        }
        cards::ask(caller, card, |caller| caller.may_submit(what)).unwrap_or(Ok(()))
    }

    /// Refuses a wait on the last thread able to answer kernels before the end of the batch, or of everything for
    /// `None`.
    fn may_leave(&self, batch: Option<&Batch>, what: &'static str) -> Result<(), ExecutionError> {
        match self.is_needed_here(batch) {
            true => Err(self.in_handler(what)),
            false => Ok(()),
        }
    }

    /// Refuses a wait behind commands of the device: on a thread serving a call from there or from the same card, and
    /// on devices whose threads may not wait at all. `instead` names the call without blocking. May run callbacks of
    /// the program.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`]; [`ExecutionError::WouldBlock`].
    pub(crate) fn may_wait(
        &self,
        what: &'static str,
        instead: &'static str,
    ) -> Result<(), ExecutionError> {
        self.may_submit(what)?;
        self.may_wait_beside_caller(what)?;
        self.may_leave(None, what)?;
        match self.never_blocks {
            true => Err(ExecutionError::WouldBlock { what, instead }),
            false => Ok(()),
        }
    }

    /// As [`Self::may_wait`], for a wait of `timeout` for the end of a batch: an ended batch needs no wait, and a zero
    /// `timeout` is only a look.
    pub(crate) fn may_wait_for(
        &self,
        batch: &Batch,
        timeout: Option<Duration>,
        what: &'static str,
        instead: &'static str,
    ) -> Result<(), ExecutionError> {
        if timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        self.may_submit_behind(batch, what)?;
        if !self.never_blocks {
            return Ok(());
        }
        self.collect();
        match self.standing(batch).is_over() {
            true => Ok(()),
            false => Err(ExecutionError::WouldBlock { what, instead }),
        }
    }

    /// The error for a wait that [`Progress::Refused`](super::Progress::Refused) has ended.
    pub(crate) fn refused(&self, what: &'static str, instead: &'static str) -> ExecutionError {
        match self.never_blocks && !self.is_served_here() && crew().is_none() {
            true => ExecutionError::WouldBlock { what, instead },
            false => self.in_handler(what),
        }
    }

    /// Whether no thread may wait for the device ([`WaitPolicy::Never`](crate::device::WaitPolicy::Never)).
    pub(crate) fn never_blocks(&self) -> bool {
        self.never_blocks
    }

    /// The error for a function of this thread about to wait for its own answer.
    pub(crate) fn in_handler(&self, what: &'static str) -> ExecutionError {
        let name = crew().and_then(|crew| crew.names.get(FUNCTION.get()).cloned());
        ExecutionError::InHandler {
            what,
            handler: name.unwrap_or_default(),
            device: self.raw.adapter_info().name,
        }
    }
}
