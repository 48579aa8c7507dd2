//! Calls to whichever member of a pool has the fewest.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{ServerPool, Shared};
use crate::persistent::error::{CallError, ServerError};
use crate::persistent::function::DeviceFunction;
use crate::persistent::pending::PendingCall;
use crate::persistent::signature::{CallArguments, CallResult};

/// A function of all members of a [`ServerPool`]; from [`ServerPool::function`]. Cheap to clone.
pub struct PooledFunction<A, R> {
    shared: Arc<Shared>,
    name: Arc<str>,
    types: PhantomData<fn(A) -> R>,
}

/// A call on its way to a member of a pool; from [`PooledFunction::begin`]. Wait, or `.await`.
#[must_use = "the answer of a call that is dropped is lost"]
pub struct PooledCall<R> {
    /// None if the call could not be begun.
    call: Result<PendingCall<R>, Option<CallError>>,
    load: Load,
}

/// A call counted for a member.
struct Load {
    shared: Arc<Shared>,
    member: usize,
}

impl Load {
    fn of_next(shared: &Arc<Shared>) -> Self {
        let member = shared.pick();
        shared.members[member].load.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            member,
        }
    }

    /// The function of the member; the member may have been replaced since the last call.
    fn function<A: CallArguments, R: CallResult>(
        &self,
        name: &str,
    ) -> Result<DeviceFunction<A, R>, CallError> {
        let server = self.shared.members[self.member].server();
        // All members are of the same program, or should be.
        server.function(name).map_err(|error| {
            log::error!("member {} of a pool of servers: {error}", self.member);
            CallError::Stopped {
                handler: name.to_owned(),
            }
        })
    }

    fn note<R>(&self, result: Result<R, CallError>) -> Result<R, CallError> {
        if result.is_ok() {
            self.shared.members[self.member].answered();
        }
        result
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let member = &self.shared.members[self.member];
        member.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServerPool {
    /// The handler `name` of all members, with the Rust types of its calls.
    ///
    /// # Errors
    /// [`ServerError::NoHandler`]; [`ServerError::Signature`] when the types do not fit the declaration in a member's
    /// program.
    pub fn function<A: CallArguments, R: CallResult>(
        &self,
        name: &str,
    ) -> Result<PooledFunction<A, R>, ServerError> {
        for server in self.servers() {
            server.function::<A, R>(name)?;
        }
        Ok(PooledFunction {
            shared: Arc::clone(&self.shared),
            name: name.into(),
            types: PhantomData,
        })
    }
}

impl<A: CallArguments, R: CallResult> PooledFunction<A, R> {
    fn with<T>(
        &self,
        call: impl FnOnce(DeviceFunction<A, R>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let load = Load::of_next(&self.shared);
        load.note(load.function(&self.name).and_then(call))
    }

    /// As [`DeviceFunction::call`], by a member.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(&self, arguments: &A) -> Result<R, CallError> {
        self.with(|function| function.call(arguments))
    }

    /// As [`DeviceFunction::call_timeout`], by a member.
    ///
    /// # Errors
    /// [`CallError::TimedOut`], and as [`PooledFunction::call`].
    pub fn call_timeout(&self, arguments: &A, timeout: Duration) -> Result<R, CallError> {
        self.with(|function| function.call_timeout(arguments, timeout))
    }

    /// As [`DeviceFunction::call_with_deadline`], by a member.
    ///
    /// # Errors
    /// [`CallError::Withdrawn`], [`CallError::Cancelled`], and as [`PooledFunction::call`].
    pub fn call_with_deadline(&self, arguments: &A, time: Duration) -> Result<R, CallError> {
        self.with(|function| function.call_with_deadline(arguments, time))
    }

    /// As [`DeviceFunction::begin`], by a member.
    pub fn begin(&self, arguments: &A) -> PooledCall<R> {
        let load = Load::of_next(&self.shared);
        let call = load.function::<A, R>(&self.name);
        PooledCall {
            call: call.map(|function| function.begin(arguments)).map_err(Some),
            load,
        }
    }

    /// Calls the function with each of `arguments`, an equal part by each serving member, and gives the results in the
    /// same order.
    pub fn call_many(&self, arguments: &[A]) -> Vec<Result<R, CallError>>
    where
        A: Sync,
        R: Send,
    {
        let members = self.shared.members.iter();
        let serving = members.filter(|member| !member.is_lost()).count().max(1);
        let part = arguments.len().div_ceil(serving).max(1);
        std::thread::scope(|scope| {
            let parts: Vec<_> = (arguments.chunks(part))
                .map(|arguments| {
                    // Before the thread runs: the next part is another member's.
                    let load = Load::of_next(&self.shared);
                    let function = load.function::<A, R>(&self.name);
                    (
                        arguments.len(),
                        scope.spawn(move || match function {
                            Ok(function) => {
                                let results = function.call_many(arguments);
                                let last = results.last().map(Result::is_ok);
                                if last == Some(true) {
                                    load.shared.members[load.member].answered();
                                }
                                results
                            }
                            Err(error) => arguments.iter().map(|_| Err(error.clone())).collect(),
                        }),
                    )
                })
                .collect();
            let handler = || self.name.to_string();
            let results = parts.into_iter().flat_map(|(count, thread)| {
                // Calls do not panic.
                thread.join().unwrap_or_else(|_| {
                    (0..count)
                        .map(|_| Err(CallError::Stopped { handler: handler() }))
                        .collect()
                })
            });
            results.collect()
        })
    }
}

impl<R: CallResult> PooledCall<R> {
    /// As [`PendingCall::wait`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(self) -> Result<R, CallError> {
        let Self { call, load } = self;
        match call {
            Ok(call) => load.note(call.wait()),
            Err(error) => Err(error.unwrap_or_else(over)),
        }
    }

    /// As [`PendingCall::wait_timeout`].
    ///
    /// # Errors
    /// [`CallError::TimedOut`], and as [`PooledCall::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<R, CallError> {
        let Self { call, load } = self;
        match call {
            Ok(call) => load.note(call.wait_timeout(timeout)),
            Err(error) => Err(error.unwrap_or_else(over)),
        }
    }

    /// As [`PendingCall::cancel`].
    pub fn cancel(&mut self) {
        if let Ok(call) = &mut self.call {
            call.cancel();
        }
    }
}

/// Of a future polled again after its end.
fn over() -> CallError {
    CallError::Stopped {
        handler: "a call that is over".to_owned(),
    }
}

impl<R: CallResult> Future for PooledCall<R> {
    type Output = Result<R, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let result = match &mut this.call {
            Ok(call) => match Pin::new(call).poll(context) {
                Poll::Ready(result) => result,
                Poll::Pending => return Poll::Pending,
            },
            Err(error) => Err(error.take().unwrap_or_else(over)),
        };
        Poll::Ready(this.load.note(result))
    }
}

impl<A, R> Clone for PooledFunction<A, R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            name: Arc::clone(&self.name),
            types: PhantomData,
        }
    }
}

impl<A, R> std::fmt::Debug for PooledFunction<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PooledFunction").field(&self.name).finish()
    }
}

impl<R> std::fmt::Debug for PooledCall<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PooledCall")
            .field(&self.call.as_ref().ok())
            .finish()
    }
}
