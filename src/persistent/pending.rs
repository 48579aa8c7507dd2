//! Calls on their way.

use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::poll_fn;

use super::error::CallError;
use super::function::{Callee, DeviceFunction, FEW, room};
use super::port_client::{Deadline, PendingVerification, PortClient};
use super::signature::{CallArguments, CallResult, take};
use super::urgent::Priority;
use super::waker_thread::wake_after;
use crate::clock::Instant;
use crate::rpc::port::client::Posted;
use crate::span::span;

/// Looks of a poll before the poll wakes its own task: a call takes about as long.
const LOOKS: u32 = 128;

/// A call on its way; from [`DeviceFunction::begin`]. Wait, or `.await`.
///
/// Dropping the future leaves the call: the answer is not asked for any more, and the port is given back when the
/// server has answered. A call not yet taken by the server is served all the same, unless taken back before
/// ([`PendingCall::cancel`]).
#[must_use = "the answer of a call that is dropped is lost"]
pub struct PendingCall<R> {
    callee: Arc<Callee>,
    state: State,
    verification: PendingVerification,
    begun: Instant,
    priority: Priority,
    result: PhantomData<fn() -> R>,
}

enum State {
    /// No port was free yet.
    Wanted(Vec<u32>, Queued),
    Posted(Posted),
    /// The call could not be posted, or has been answered.
    Over(Option<CallError>),
}

thread_local! {
    /// Calls begun by this thread, without a port so far.
    static QUEUED: Arc<AtomicUsize> = Arc::default();
}

/// A call without a port. Meanwhile the thread posts no later call: such calls would be answered and keep their ports,
/// and the thread would wait for this call first.
struct Queued(Arc<AtomicUsize>);

impl Queued {
    fn is_any() -> bool {
        // At the very end of a thread there is none.
        let known = QUEUED.try_with(|queued| queued.load(Ordering::Relaxed));
        known.is_ok_and(|queued| queued > 0)
    }

    fn one() -> Self {
        let queued = QUEUED.try_with(Arc::clone).unwrap_or_default();
        queued.fetch_add(1, Ordering::Relaxed);
        Self(queued)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // Whichever thread has the call by now.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R> PendingCall<R> {
    fn client(&self) -> PortClient<'_> {
        self.callee.client(self.priority)
    }
}

impl<R: CallResult> PendingCall<R> {
    fn words() -> usize {
        size_of::<R>().div_ceil(4)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(self) -> Result<R, CallError> {
        self.wait_until(None)
    }

    /// As [`PendingCall::wait`], giving up after `timeout`.
    ///
    /// # Errors
    /// [`CallError::TimedOut`], and as [`PendingCall::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<R, CallError> {
        self.wait_until(Some(timeout))
    }

    fn wait_until(mut self, timeout: Option<Duration>) -> Result<R, CallError> {
        let _span =
            span!("wait", function = self.callee.name(), device = %self.callee.core.place());
        let deadline = Deadline::after(timeout);
        let state = std::mem::replace(&mut self.state, State::Over(None));
        let client = self.client();
        let posted = match state {
            State::Wanted(arguments, _queued) => client.post(&arguments, deadline)?,
            State::Posted(posted) => posted,
            State::Over(error) => return Err(self.over(error)),
        };
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let results = room(Self::words(), &mut few, &mut many);
        client.wait(posted, results, deadline)?;
        self.count(posted);
        Ok(take(results))
    }

    /// Takes the call back: a call not begun never is, and fails with [`CallError::Withdrawn`]; a begun call's handler
    /// is told on request (`call_cancelled()`, see [`DeviceFunction::call_with_deadline`]), and the call ends as the
    /// handler does. The outcome is waited for as before, by [`PendingCall::wait`] or `.await`. To cancel twice does
    /// nothing.
    pub fn cancel(&mut self) {
        match &self.state {
            State::Posted(posted) => self.client().withdraw(*posted),
            State::Wanted(..) => {
                let handler = self.callee.handler.signature.name.clone();
                self.state = State::Over(Some(CallError::Withdrawn { handler }));
            }
            State::Over(_) => {}
        }
    }

    /// Counts an answered call, with the port to be looked at next by this thread.
    fn count(&self, posted: Posted) {
        PortClient::prefer(posted.port);
        (self.callee.core.counters.call_latency).record(self.begun.elapsed());
    }

    fn over(&self, error: Option<CallError>) -> CallError {
        // A future polled again after its end.
        error.unwrap_or_else(|| CallError::Stopped {
            handler: self.callee.handler.signature.name.clone(),
        })
    }

    /// Looks for a port once more, if the call has none; `false` if still none.
    fn try_begin(&mut self) -> bool {
        if let State::Wanted(arguments, _) = &self.state {
            match self.client().try_post(arguments) {
                Ok(Some(posted)) => self.state = State::Posted(posted),
                Ok(None) => return false,
                Err(error) => self.state = State::Over(Some(error)),
            }
        }
        true
    }

    /// The result, if ready.
    fn try_end(&mut self) -> Option<Result<R, CallError>> {
        self.try_begin();
        let client = self.callee.client(self.priority);
        let posted = match &mut self.state {
            State::Posted(posted) => *posted,
            State::Wanted(..) => return client.hindrance().map(Err),
            State::Over(error) => {
                let error = error.take();
                return Some(Err(self.over(error)));
            }
        };
        let loss = client.loss();
        let whole = client.is_whole(&mut self.verification, posted);
        let mut results = vec![0; Self::words()];
        let ended = match (client.try_take(posted, &mut results), loss) {
            (Some(judged), _) => judged.map(|()| {
                self.count(posted);
                take(&results)
            }),
            (None, _) if whole => Err(client.garbled(posted)),
            (None, loss) => {
                let loss = loss.or_else(|| client.hindrance())?;
                client.leave(posted);
                Err(loss)
            }
        };
        self.state = State::Over(None);
        Some(ended)
    }
}

impl<R> Drop for PendingCall<R> {
    fn drop(&mut self) {
        if let State::Posted(posted) = self.state {
            self.client().leave(posted);
        }
    }
}

impl<R: CallResult> Future for PendingCall<R> {
    type Output = Result<R, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        for _ in 0..LOOKS {
            if let Some(ended) = this.try_end() {
                return Poll::Ready(ended);
            }
            std::hint::spin_loop();
        }
        let posted = match &this.state {
            State::Posted(posted) => Some(*posted),
            State::Wanted(..) | State::Over(_) => None,
        };
        wake_after(&this.callee.core, posted, context.waker());
        Poll::Pending
    }
}

impl<A: CallArguments, R: CallResult> DeviceFunction<A, R> {
    /// Posts a call and goes on. Without a free port the call is posted by the thread waiting for it, together with
    /// calls begun later by the same thread. A posted call keeps its port until awaited or dropped: a caller beginning
    /// more calls than there are ports waits for the calls in order, or for all at once.
    pub fn begin(&self, arguments: &A) -> PendingCall<R> {
        let _span =
            span!("begin", function = self.callee().name(), device = %self.callee().core.place());
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let words = room(A::words(), &mut few, &mut many);
        arguments.put(words);
        let client = self.client();
        let posted = match Queued::is_any() {
            true => client.refusal().map_or(Ok(None), Err),
            false => client.try_post(words),
        };
        let state = match posted {
            Ok(Some(posted)) => State::Posted(posted),
            Ok(None) => State::Wanted(words.to_vec(), Queued::one()),
            Err(error) => State::Over(Some(error)),
        };
        PendingCall {
            callee: Arc::clone(self.callee()),
            state,
            verification: PendingVerification::default(),
            begun: Instant::now(),
            priority: self.priority,
            result: PhantomData,
        }
    }

    /// Calls the function with each of `arguments`, as many at a time as there are ports, and gives the results in the
    /// same order. The server is told of all calls posted together at once. Where calls travel in slices, up to half as
    /// many calls as there are ports go together, through a separate kernel compiled for the first batch of a function. Large
    /// batches have launches of their own where that is faster ([`BatchRoute`](crate::server::BatchRoute)).
    pub fn call_many(&self, arguments: &[A]) -> Vec<Result<R, CallError>> {
        let mut results = Vec::with_capacity(arguments.len());
        self.call_each(arguments, &mut results);
        results
    }

    /// As [`DeviceFunction::call_many`], for callers in need of all results or none: takes a tenth of the memory for
    /// small results. All calls are made, whatever becomes of some.
    ///
    /// # Errors
    /// [`CallError`], the first in the order of the calls.
    pub fn call_all(&self, arguments: &[A]) -> Result<Vec<R>, CallError> {
        let mut all = All {
            values: Vec::with_capacity(arguments.len()),
            failed: None,
        };
        self.call_each(arguments, &mut all);
        match all.failed {
            None => Ok(all.values),
            Some(error) => Err(error),
        }
    }

    fn call_each(&self, arguments: &[A], results: &mut impl Extend<Result<R, CallError>>) {
        let _span = span!(
            "call",
            function = self.callee().name(),
            device = %self.callee().core.place(),
            count = arguments.len()
        );
        if let Some(packer) = &self.callee().core.packer {
            return self.call_in_slices(arguments, packer, results);
        }
        let mut arguments = arguments;
        if let (Some(direct), Priority::Ordinary) = (&self.callee().core.direct, self.priority)
            && direct.takes(&self.callee().handler, arguments.len())
        {
            let done = self.call_in_launches(direct, arguments, results);
            arguments = &arguments[done..];
        }
        let client = self.client();
        let mut words = vec![0; A::words()];
        let mut answer = vec![0; size_of::<R>().div_ceil(4)];
        let mut on_their_way = VecDeque::new();
        let mut rest = arguments.iter().peekable();
        let deadline = Deadline::after(None);
        loop {
            // Half of the window is posted at a time, while the other half is served.
            let most = (self.callee().core.frame.layout().ports / 2).max(1);
            let (mut posts, mut last) = (0, 0);
            while posts < most && client.refusal().is_none() {
                let Some(next) = rest.peek() else {
                    break;
                };
                next.put(&mut words);
                let Some(posted) = client.try_post_silently(&words) else {
                    break;
                };
                on_their_way.push_back(posted);
                (posts, last) = (posts + 1, posted.port);
                rest.next();
            }
            if posts > 0 {
                self.callee().core.rung(last, posts);
            }
            let half = on_their_way.len().saturating_sub(most).max(1);
            for posted in on_their_way.drain(..half.min(on_their_way.len())) {
                let ended = client.wait(posted, &mut answer, deadline);
                results.extend([ended.map(|()| take(&answer))]);
            }
            if on_their_way.is_empty() {
                match rest.peek() {
                    None => return,
                    // Others have all ports, or the server has ended.
                    Some(_) if posts == 0 => {
                        for next in rest.by_ref().take(1) {
                            results.extend([self.call(next)]);
                        }
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Calls the function with the items of `arguments`, a `window` of calls ahead of the results; results come in
    /// order: a stream through the server, to be iterated, or awaited ([`CallSequence::into_stream`]). Arguments are
    /// pulled as there are ports. Dropping the sequence cancels the calls on their way. Sequences used in turns by a
    /// thread should fit into the ports together.
    pub fn sequence<I: IntoIterator<Item = A>>(
        &self,
        arguments: I,
        window: usize,
    ) -> CallSequence<A, R, I::IntoIter> {
        CallSequence {
            function: self.clone(),
            arguments: arguments.into_iter(),
            window: window.max(1),
            on_their_way: VecDeque::new(),
        }
    }
}

/// The results of calls, all needed.
struct All<R> {
    values: Vec<R>,
    failed: Option<CallError>,
}

impl<R> Extend<Result<R, CallError>> for All<R> {
    fn extend<I: IntoIterator<Item = Result<R, CallError>>>(&mut self, results: I) {
        let values = results.into_iter().filter_map(|result| match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failed.get_or_insert(error);
                None
            }
        });
        self.values.extend(values);
    }
}

/// Results in the order of their calls, some still on their way; from [`DeviceFunction::sequence`].
pub struct CallSequence<A, R, I> {
    function: DeviceFunction<A, R>,
    arguments: I,
    window: usize,
    on_their_way: VecDeque<PendingCall<R>>,
}

impl<A: CallArguments, R: CallResult, I: Iterator<Item = A>> Iterator for CallSequence<A, R, I> {
    type Item = Result<R, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.fill();
        Some(self.on_their_way.pop_front()?.wait())
    }
}

impl<A: CallArguments, R: CallResult, I: Iterator<Item = A>> CallSequence<A, R, I> {
    /// The same to be awaited, result by result.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<R, CallError>> {
        poll_fn(move |context| {
            self.fill();
            let Some(first) = self.on_their_way.front_mut() else {
                return Poll::Ready(None);
            };
            Pin::new(first).poll(context).map(|result| {
                self.on_their_way.pop_front();
                Some(result)
            })
        })
    }

    /// Begins calls until the window is full, or a call has to wait for a port. No call is begun behind an unposted
    /// one: calls asked for later would hold all ports, without a reader.
    fn fill(&mut self) {
        while self.on_their_way.len() < self.window {
            let last = self.on_their_way.back_mut();
            if last.is_some_and(|last| !last.try_begin()) {
                break;
            }
            let Some(arguments) = self.arguments.next() else {
                break;
            };
            self.on_their_way.push_back(self.function.begin(&arguments));
        }
    }
}

impl<R> std::fmt::Debug for PendingCall<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PendingCall")
            .field(&self.callee.handler.signature.text())
            .finish()
    }
}

impl<A, R, I> std::fmt::Debug for CallSequence<A, R, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallSequence")
            .field("function", &self.function)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
