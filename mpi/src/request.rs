//! Requests: messages and operations of all ranks that are under way.
//!
//! # How it works
//! 1. A [`Request`], its events and the keeper share a [`Core`], which owns the memory and MPI's own requests. Memory goes
//!    into the core before MPI learns the address, and comes out when MPI is done. A forgotten request leaks its memory; a
//!    dropped request leaves its core to the keeper ([`crate::keeper`]), until MPI is done.
//! 2. A waiting thread moves MPI on: each look is an `MPI_Test`. Looks are close to each other at first, and rarer later.
//! 3. A future has the keeper's thread look, and is woken by the thread when the request has ended.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use mpi::ffi;

use crate::backoff::Backoff;
use crate::datatype::{self, Datatype, Shape};
use crate::error::{MpiError, Operation, check};
use crate::event::{EventCore, RequestEvent};
use crate::session::Session;
use crate::span::span;

/// How long MPI may take to take a receive back; no other rank is needed.
const CANCELLING: Duration = Duration::from_millis(100);

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestStatus {
    /// Under way.
    Pending,
    /// Ended with success.
    Complete,
    /// Ended with an error: see [`Request::wait`].
    Failed,
}

/// Source, tag and length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The sending rank.
    pub source: i32,
    /// The message's tag.
    pub tag: i32,
    /// The message's bytes.
    pub bytes: u64,
}

/// How a request has ended: with the envelope, or with the error.
type Ended = Result<Envelope, MpiError>;

/// MPI's side of a request. MPI's handles go from thread to thread: the library was started with `MPI_THREAD_MULTIPLE`.
pub(crate) struct Running {
    pub(crate) requests: Vec<ffi::MPI_Request>,
    /// Freed when the requests have ended.
    pub(crate) types: Vec<Datatype>,
    /// MPI was asked to take the receive back. Asked twice, Open MPI's `MPI_Cancel` follows a pointer to nowhere.
    pub(crate) is_cancelled: bool,
    /// The first failure of a request, also of its begin; the other requests keep the memory until they have ended.
    pub(crate) failed: Option<MpiError>,
}

// SAFETY: handles of MPI are names, valid in all threads of the process (MPI 3.1, section 12.4).
unsafe impl Send for Running {}

impl Running {
    /// No requests: ended from the beginning.
    pub(crate) fn none() -> Self {
        Self {
            requests: Vec::new(),
            types: Vec::new(),
            is_cancelled: false,
            failed: None,
        }
    }

    /// Begins an operation of MPI on `bytes` bytes: `start` gets their type and count, and has MPI write the request.
    pub(crate) fn of_bytes(
        session: &Session,
        operation: Operation,
        bytes: u64,
        start: impl FnOnce(&Shape, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<(Self, u64), MpiError> {
        let _open = session.enter(operation)?;
        let shape = datatype::bytes(operation, bytes, session.options.most_count)?;
        // SAFETY: a constant, set before `main`.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        check(operation, start(&shape, &raw mut request), bytes)?;
        let mut running = Self::none();
        running.requests.push(request);
        running.types.extend(shape.made);
        Ok((running, bytes))
    }
}

enum State {
    Running(Running),
    Ended(Ended),
}

struct Inner {
    state: State,
    wakers: Vec<Waker>,
}

/// The state shared by a request and the keeper.
pub(crate) struct Core<M> {
    pub(crate) session: Arc<Session>,
    operation: Operation,
    /// Bytes of the memory.
    capacity: u64,
    /// Taking a receive back is possible.
    is_receive: bool,
    inner: Mutex<Inner>,
    memory: Mutex<Option<M>>,
}

/// The value behind a mutex. Every holder leaves the value whole, also in a panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The keeper's view of a request.
pub(crate) trait Look: Send + Sync {
    /// Looks once; whether the request has ended.
    fn look(&self) -> bool;
    /// Asks MPI to take a receive back.
    fn cancel(&self);
}

impl<M: Send> Look for Core<M> {
    fn look(&self) -> bool {
        self.advance()
    }

    fn cancel(&self) {
        self.ask_to_cancel();
    }
}

impl<M: Send + 'static> Core<M> {
    /// Begins an operation: `begin` gets the memory, whose place stays the same until the end.
    pub(crate) fn begin(
        session: &Arc<Session>,
        operation: Operation,
        is_receive: bool,
        memory: M,
        begin: impl FnOnce(&mut M) -> Result<(Running, u64), MpiError>,
    ) -> Result<Request<M>, MpiError> {
        session.check_others(operation)?;
        let mut core = Arc::new(Self {
            session: Arc::clone(session),
            operation,
            capacity: 0,
            is_receive,
            inner: Mutex::new(Inner {
                state: State::Ended(Err(MpiError::Cancelled { operation })),
                wakers: Vec::new(),
            }),
            memory: Mutex::new(Some(memory)),
        });
        let mut refused = None;
        if let Some(own) = Arc::get_mut(&mut core) {
            let memory = own.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(memory) = memory {
                let (mut running, capacity) = begin(memory)?;
                refused = running.failed.take();
                own.capacity = capacity;
                let inner = own.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
                inner.state = State::Running(running);
            }
        }
        // Dropping the request leaves begun operations to the keeper.
        let request = Request { core };
        refused.map_or(Ok(request), Err)
    }
}

impl<M> Core<M> {
    /// Has MPI look; whether the request has ended.
    fn advance(&self) -> bool {
        let mut inner = lock(&self.inner);
        let State::Running(running) = &mut inner.state else {
            return true;
        };
        let Some(ended) = self.test(running) else {
            return false;
        };
        inner.state = State::Ended(ended);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// `None` while MPI is at work.
    fn test(&self, running: &mut Running) -> Option<Ended> {
        let Ok(_open) = self.session.enter(self.operation) else {
            let operation = self.operation;
            // What another rank may still read, or MPI has not closed, is never given back.
            self.leave_to_mpi(running);
            return Some(Err(MpiError::Finalized { operation }));
        };
        let mut last = self.envelope();
        while let Some(request) = running.requests.first_mut() {
            let mut is_done: c_int = 0;
            let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
            // SAFETY: the request is live, and the memory named by the request is owned by this core.
            let code = unsafe { ffi::MPI_Test(request, &raw mut is_done, status.as_mut_ptr()) };
            if code == ffi::MPI_SUCCESS as c_int && is_done == 0 {
                return None;
            }
            // SAFETY: a constant, set before `main`.
            if *request != unsafe { ffi::RSMPI_REQUEST_NULL } {
                // Failed, and still under way (`MPI_ERR_PROC_FAILED_PENDING` of ULFM): the memory is MPI's for ever.
                self.leave_to_mpi(running);
            }
            // SAFETY: plain data, zeroed, and written by MPI.
            let status = unsafe { status.assume_init() };
            let ended = self.ended(code, &status);
            running.requests.remove(0);
            match ended {
                Ok(envelope) => last = envelope,
                Err(error) => {
                    running.failed.get_or_insert(error);
                }
            }
        }
        running.types.clear();
        Some(running.failed.take().map_or(Ok(last), Err))
    }

    /// The memory, and the types describing the memory, are never given back.
    fn leave_to_mpi(&self, running: &mut Running) {
        std::mem::forget(lock(&self.memory).take());
        running.types.drain(..).for_each(std::mem::forget);
    }

    /// The envelope of any operation but a receive.
    fn envelope(&self) -> Envelope {
        Envelope {
            source: self.operation.peer.unwrap_or_default(),
            tag: self.operation.tag.unwrap_or_default(),
            bytes: self.capacity,
        }
    }

    /// How a request of MPI has ended.
    fn ended(&self, code: c_int, status: &ffi::MPI_Status) -> Ended {
        let operation = self.operation;
        check(operation, code, self.capacity)?;
        if !self.is_receive {
            return Ok(self.envelope());
        }
        let (mut is_cancelled, mut bytes) = (0, 0);
        // SAFETY: MPI has written the status of a receive, whose basic elements are bytes.
        unsafe {
            ffi::MPI_Test_cancelled(status, &raw mut is_cancelled);
            ffi::MPI_Get_elements_x(status, ffi::RSMPI_UINT8_T, &raw mut bytes);
        }
        match is_cancelled {
            0 => Ok(Envelope {
                source: status.MPI_SOURCE,
                tag: status.MPI_TAG,
                bytes: u64::try_from(bytes).unwrap_or_default(),
            }),
            _ => Err(MpiError::Cancelled { operation }),
        }
    }

    fn ask_to_cancel(&self) {
        let mut inner = lock(&self.inner);
        if let (State::Running(running), true) = (&mut inner.state, self.is_receive)
            && !std::mem::replace(&mut running.is_cancelled, true)
            && let Ok(_open) = self.session.enter(self.operation)
        {
            for request in &mut running.requests {
                // SAFETY: the request is live.
                unsafe { ffi::MPI_Cancel(request) };
            }
        }
    }

    /// Waits until the request has ended, the deadline has passed, or another rank has reported a failure.
    fn wait_until(&self, timeout: Option<Duration>) -> Result<(), MpiError> {
        let _span = span!("mpi wait", operation = self.operation.name);
        let begun = Instant::now();
        let mut backoff = Backoff::default();
        while !self.advance() {
            let operation = self.operation;
            if backoff.is_slow() {
                self.session.check_others(operation)?;
            }
            let waited = begun.elapsed();
            if timeout.is_some_and(|timeout| waited >= timeout) {
                return Err(MpiError::Deadline { operation, waited });
            }
            backoff.pause();
        }
        Ok(())
    }

    fn error(&self) -> Option<MpiError> {
        match &lock(&self.inner).state {
            State::Ended(Err(error)) => Some(error.clone()),
            _ => None,
        }
    }
}

/// A message or an operation of all ranks under way. The request owns the memory, and gives the memory back:
/// [`Request::wait`], ask for the status, or `.await`.
///
/// Dropping the request lets a send, or an operation of all ranks, go on by itself, with the memory; a receive is taken
/// back.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mpi = tombolo_mpi::Mpi::start()?;
/// let ranks = mpi.ranks();
/// let (right, left) = (ranks.after(1), ranks.before(1));
/// let sent = ranks.isend(vec![ranks.rank()], right, 0)?;
/// let received = ranks.ireceive(vec![-1], left, 0)?;
/// assert_eq!(received.wait()?, [left]);
/// sent.wait()?;
/// # Ok(()) }
/// ```
#[must_use = "a receive that is dropped is taken back"]
pub struct Request<M: Send + 'static> {
    core: Arc<Core<M>>,
}

impl<M: Send + 'static> Request<M> {
    /// Waits until MPI is done with the memory, and gives the memory back.
    ///
    /// # Errors
    /// The operation's own failure; [`MpiError::Deadline`] after [`Options::timeout`](crate::Options::timeout), if any;
    /// [`MpiError::RankFailed`] when another rank has reported a failure. In the last two cases the memory stays with MPI
    /// until the operation has ended, and a receive is taken back.
    pub fn wait(self) -> Result<M, MpiError> {
        Ok(self.wait_with_envelope()?.0)
    }

    /// As [`Request::wait`], with the source and the length of a message.
    ///
    /// # Errors
    /// As [`Request::wait`].
    pub fn wait_with_envelope(self) -> Result<(M, Envelope), MpiError> {
        match self.core.wait_until(self.core.session.timeout()) {
            Err(late @ MpiError::Deadline { .. }) if self.core.is_receive => {
                // A message that came meanwhile is not thrown away.
                self.core.ask_to_cancel();
                let _ = self.core.wait_until(Some(CANCELLING));
                match self.take() {
                    Err(MpiError::Cancelled { .. } | MpiError::Deadline { .. }) => Err(late),
                    ended => ended,
                }
            }
            waited => {
                waited?;
                self.take()
            }
        }
    }

    /// Waits at most for `timeout`. The request goes on after a deadline: wait again to see the end.
    ///
    /// # Errors
    /// [`MpiError::Deadline`], [`MpiError::RankFailed`], and the operation's own failure.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), MpiError> {
        EventCore::wait(&*self.core, Some(timeout))
    }

    /// Where the request stands. Looks once, and never blocks.
    pub fn status(&self) -> RequestStatus {
        EventCore::status(&*self.core)
    }

    /// Takes a receive back: the receive ends with [`MpiError::Cancelled`], unless a message was there before. Other
    /// requests go on.
    pub fn cancel(&self) {
        self.core.ask_to_cancel();
    }

    /// The end of the request as a separate value, without the memory, for others to wait for.
    pub fn event(&self) -> RequestEvent {
        RequestEvent {
            core: Arc::clone(&self.core) as Arc<dyn EventCore>,
        }
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.core.operation
    }

    /// The memory of an ended request.
    fn take(&self) -> Result<(M, Envelope), MpiError> {
        let operation = self.core.operation;
        let envelope = match &lock(&self.core.inner).state {
            State::Ended(ended) => ended.clone()?,
            State::Running(_) => {
                let waited = Duration::ZERO;
                return Err(MpiError::Deadline { operation, waited });
            }
        };
        let memory = lock(&self.core.memory).take();
        let memory = memory.ok_or(MpiError::Taken { operation })?;
        Ok((memory, envelope))
    }
}

impl<M: Send + 'static> Drop for Request<M> {
    fn drop(&mut self) {
        if !self.core.advance() {
            self.core.ask_to_cancel();
            let core = Arc::clone(&self.core);
            self.core.session.keeper.keep(core);
        }
    }
}

impl<M: Send + 'static> fmt::Debug for Request<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("operation", &self.core.operation)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// The future of a [`Request`], from `request.await`.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct RequestFuture<M: Send + 'static>(Request<M>);

impl<M: Send + 'static> IntoFuture for Request<M> {
    type Output = Result<M, MpiError>;
    type IntoFuture = RequestFuture<M>;

    fn into_future(self) -> RequestFuture<M> {
        RequestFuture(self)
    }
}

impl<M: Send + 'static> Future for RequestFuture<M> {
    type Output = Result<M, MpiError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let core = &self.0.core;
        match core.poll_end(context.waker()) {
            true => Poll::Ready(self.0.take().map(|(memory, _)| memory)),
            false => {
                let looked_after: Arc<dyn Look> = Arc::<Core<M>>::clone(core);
                match core.session.keeper.look_after(looked_after) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                }
            }
        }
    }
}

impl<M> Core<M> {
    /// Whether the request has ended; if not, the waker is called at the end.
    fn poll_end(&self, waker: &Waker) -> bool {
        if self.advance() {
            return true;
        }
        let mut inner = lock(&self.inner);
        if let State::Ended(_) = inner.state {
            return true;
        }
        if !inner.wakers.iter().any(|known| known.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
        false
    }
}

impl<M: Send> EventCore for Core<M> {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), MpiError> {
        self.wait_until(timeout)?;
        self.error().map_or(Ok(()), Err)
    }

    fn status(&self) -> RequestStatus {
        match (self.advance(), self.error()) {
            (false, _) => RequestStatus::Pending,
            (true, None) => RequestStatus::Complete,
            (true, Some(_)) => RequestStatus::Failed,
        }
    }

    fn operation(&self) -> Operation {
        self.operation
    }

    fn timeout(&self) -> Option<Duration> {
        self.session.timeout()
    }
}
