//! Calls of functions on other ranks.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use mpi::traits::AsRaw;
use tombolo::server::{CallArguments, CallResult};

use super::wire::{self, Call, Status};
use crate::error::{MpiError, Operation};
use crate::point_to_point::{ireceive_on, isend_on};
use crate::ranks::Ranks;
use crate::request::{Request, RequestFuture};

/// A function served by a rank, to be called with arguments `A` for a result `R`; from [`Ranks::function`]. The same types
/// and ways to call as of [`DeviceFunction`](tombolo::server::DeviceFunction).
pub struct RemoteFunction<A, R> {
    ranks: Ranks,
    server: i32,
    name: String,
    types: PhantomData<fn(A) -> R>,
}

impl Ranks {
    /// The function `name` served by rank `server`, with the Rust types of the function's calls. Asks the server, and waits
    /// for the answer, which comes when the rank's [`RemoteServer`](crate::RemoteServer) was started.
    ///
    /// # Errors
    /// [`MpiError::NoFunction`], where the names of types differ as well; [`MpiError::NoRank`]; the errors of messages.
    pub fn function<A: CallArguments, R: CallResult>(
        &self,
        server: i32,
        name: &str,
    ) -> Result<RemoteFunction<A, R>, MpiError> {
        let operation = Operation::new("call", Some(server), None);
        self.check_rank(operation, server)?;
        let function = RemoteFunction {
            ranks: self.clone(),
            server,
            name: name.to_owned(),
            types: PhantomData,
        };
        function.post(None)?.wait()?;
        Ok(function)
    }
}

impl<A: CallArguments, R: CallResult> RemoteFunction<A, R> {
    /// Calls the function and waits for the result.
    ///
    /// # Errors
    /// [`MpiError::Call`] with the words of the server's own error; [`MpiError::NoFunction`]; the errors of messages.
    pub fn call(&self, arguments: &A) -> Result<R, MpiError> {
        self.begin(arguments)?.wait()
    }

    /// As [`RemoteFunction::call`], giving up after `timeout`. The function may run all the same.
    ///
    /// # Errors
    /// [`MpiError::Deadline`], and as [`RemoteFunction::call`].
    pub fn call_timeout(&self, arguments: &A, timeout: Duration) -> Result<R, MpiError> {
        self.begin(arguments)?.wait_timeout(timeout)
    }

    /// Sends the call and goes on.
    ///
    /// # Errors
    /// The errors of messages.
    pub fn begin(&self, arguments: &A) -> Result<RemoteCall<R>, MpiError> {
        let mut words = vec![0; A::words()];
        arguments.put(&mut words);
        self.post(Some(words))
    }

    /// Sends a call, or asks whether there is such a function.
    fn post(&self, arguments: Option<Vec<u32>>) -> Result<RemoteCall<R>, MpiError> {
        let session = &self.ranks.session;
        let tags = session.most_tag.max(1) as u32;
        let number = session.call_numbers.fetch_add(1, Ordering::Relaxed);
        let answer = 1 + (number % tags) as i32;
        let operation = Operation::new("call", Some(self.server), Some(answer));
        let taken = size_of::<R>();
        let call = Call {
            caller: session.rank,
            answer,
            only_asks: arguments.is_none(),
            given: A::words(),
            taken,
            name: self.name.clone(),
            arguments: arguments.unwrap_or_else(|| Call::asking(&wire::types_of::<A, R>())),
        };
        let communicator = session.calls.as_raw();
        let memory = vec![0u32; wire::most_words(taken)];
        let from = (communicator, self.server, answer);
        let answered = ireceive_on(session, operation, from, memory)?;
        let to = (communicator, self.server, wire::CALLS);
        let sent = isend_on(session, operation, to, call.words())?;
        // The message goes on by itself; the answer reports the arrival.
        drop(sent);
        Ok(RemoteCall {
            answered,
            asked: Asked {
                server: self.server,
                name: self.name.clone(),
                types: wire::types_of::<A, R>,
            },
            result: PhantomData,
        })
    }
}

impl<A, R> Clone for RemoteFunction<A, R> {
    fn clone(&self) -> Self {
        Self {
            ranks: self.ranks.clone(),
            name: self.name.clone(),
            ..*self
        }
    }
}

impl<A, R> fmt::Debug for RemoteFunction<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFunction")
            .field("name", &self.name)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// The function asked for, for errors.
#[derive(Debug, Clone)]
struct Asked {
    server: i32,
    name: String,
    /// Written for an error alone.
    types: fn() -> String,
}

impl Asked {
    /// The result of an answer.
    fn result<R: CallResult>(&self, words: &[u32]) -> Result<R, MpiError> {
        let text = |payload| String::from_utf8_lossy(payload).into_owned();
        let failed = |reason| MpiError::Call {
            rank: self.server,
            name: self.name.clone(),
            reason,
        };
        match wire::read_answer(words) {
            Some((Status::Done, payload)) if payload.len() == size_of::<R>() => {
                Ok(bytemuck::pod_read_unaligned(payload))
            }
            Some((Status::Failed, payload)) => Err(failed(text(payload))),
            Some((Status::Unknown, payload)) => Err(MpiError::NoFunction {
                rank: self.server,
                name: self.name.clone(),
                types: (self.types)(),
                served: text(payload),
            }),
            _ => Err(failed("the answer is none of this version".to_owned())),
        }
    }
}

/// A call under way to another rank; from [`RemoteFunction::begin`]. Wait, or `.await`. Dropping the value leaves the call.
#[derive(Debug)]
#[must_use = "the answer of a call that is dropped is lost"]
pub struct RemoteCall<R> {
    answered: Request<Vec<u32>>,
    asked: Asked,
    result: PhantomData<fn() -> R>,
}

impl<R: CallResult> RemoteCall<R> {
    /// Waits for the result.
    ///
    /// # Errors
    /// As [`RemoteFunction::call`].
    pub fn wait(self) -> Result<R, MpiError> {
        self.asked.result(&self.answered.wait()?)
    }

    /// As [`RemoteCall::wait`], giving up after `timeout`.
    ///
    /// # Errors
    /// [`MpiError::Deadline`], and as [`RemoteFunction::call`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<R, MpiError> {
        self.answered.wait_timeout(timeout)?;
        self.wait()
    }
}

/// The future of a [`RemoteCall`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct RemoteCallFuture<R> {
    answered: RequestFuture<Vec<u32>>,
    asked: Asked,
    result: PhantomData<fn() -> R>,
}

impl<R: CallResult> IntoFuture for RemoteCall<R> {
    type Output = Result<R, MpiError>;
    type IntoFuture = RemoteCallFuture<R>;

    fn into_future(self) -> RemoteCallFuture<R> {
        RemoteCallFuture {
            answered: self.answered.into_future(),
            asked: self.asked,
            result: PhantomData,
        }
    }
}

impl<R: CallResult> Future for RemoteCallFuture<R> {
    type Output = Result<R, MpiError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.answered).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(words) => Poll::Ready(words.and_then(|words| self.asked.result(&words))),
        }
    }
}
