//! Typed calls.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::PersistentKernel;
use super::core::Core;
use super::error::{CallError, ServerError};
use super::port_client::{Deadline, PortClient};
use super::signature::{CallArguments, CallResult, check, take};
use super::urgent::Priority;
use crate::kernel::server::HandlerDeclaration;
use crate::span::span;

/// The calls' words on the stack.
pub(super) const FEW: usize = 32;

/// Room for so many words: `few`, if large enough.
pub(super) fn room<'w>(
    words: usize,
    few: &'w mut [u32; FEW],
    many: &'w mut Vec<u32>,
) -> &'w mut [u32] {
    match few.get_mut(..words) {
        Some(few) => few,
        None => {
            many.resize(words, 0);
            many
        }
    }
}

/// How many handles of a handler there are for calls on their way; threads take a handle by their number.
const CALLEES: usize = 16;

/// A handler of a server, as held by calls on their way. All of 16 threads beginning calls would count the holders of a
/// single handle: on 16 processors each count took so long that there were two fifths of the calls.
#[repr(align(128))]
pub(super) struct Callee {
    pub core: Arc<Core>,
    pub handler: Arc<HandlerDeclaration>,
}

/// A function living on a device, to be called with arguments `A` for a result `R`; from
/// [`PersistentKernel::function`].
///
/// Cloning is cheap, and any number of threads may call at once: each call takes a separate port
/// ([`PersistentKernelBuilder::ports`](crate::server::PersistentKernelBuilder::ports)), and waits for a port when all are
/// taken. Calls not ordered by their callers are served in any order.
pub struct DeviceFunction<A, R> {
    callees: Arc<[Arc<Callee>; CALLEES]>,
    pub(super) priority: Priority,
    types: PhantomData<fn(A) -> R>,
}

impl Callee {
    pub fn client(&self, priority: Priority) -> PortClient<'_> {
        PortClient::new(&self.core, &self.handler).at(priority)
    }

    /// The function's name.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code))]
    pub fn name(&self) -> &str {
        &self.handler.signature.name
    }
}

impl PersistentKernel {
    /// The handler `name`, with the Rust types of its calls.
    ///
    /// # Errors
    /// [`ServerError::NoHandler`]; [`ServerError::Signature`] when the types do not fit the program's declaration.
    pub fn function<A: CallArguments, R: CallResult>(
        &self,
        name: &str,
    ) -> Result<DeviceFunction<A, R>, ServerError> {
        DeviceFunction::of(&self.core, name)
    }
}

impl<A: CallArguments, R: CallResult> DeviceFunction<A, R> {
    /// The handler `name` of a server.
    pub(super) fn of(core: &Arc<Core>, name: &str) -> Result<Self, ServerError> {
        let handlers = &core.handlers;
        let found = handlers.iter().find(|one| one.signature.name == name);
        let Some(handler) = found else {
            return Err(ServerError::NoHandler {
                wanted: name.to_owned(),
                available: handlers.iter().map(|one| one.signature.text()).collect(),
            });
        };
        check::<A, R>(handler, &core.program, &core.known)?;
        Ok(Self {
            callees: Arc::new(std::array::from_fn(|_| {
                Arc::new(Callee {
                    core: Arc::clone(core),
                    handler: Arc::clone(handler),
                })
            })),
            priority: Priority::Ordinary,
            types: PhantomData,
        })
    }
}

impl<A: CallArguments, R: CallResult> DeviceFunction<A, R> {
    /// Calls the function and waits for its result.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(&self, arguments: &A) -> Result<R, CallError> {
        self.call_until(arguments, Deadline::after(None))
    }

    /// As [`DeviceFunction::call`], giving up after `timeout`. The function may run all the same, at most once; the
    /// call's port is free after the answer.
    ///
    /// # Errors
    /// [`CallError::TimedOut`], and as [`DeviceFunction::call`].
    pub fn call_timeout(&self, arguments: &A, timeout: Duration) -> Result<R, CallError> {
        self.call_until(arguments, Deadline::after(Some(timeout)))
    }

    /// As [`DeviceFunction::call`], taking the call back after `time`: a call not begun by then never is
    /// ([`CallError::Withdrawn`]), and a running handler is told on request: in WGSL `fn call_cancelled() -> bool` says
    /// whether the caller has taken back the call being served ([`CallError::Cancelled`]). The port is free after the
    /// answer.
    ///
    /// On devices with memory of their own a posted call without an answer in time is always `Cancelled`, begun or not.
    /// In slices `call_cancelled` is always false, since running kernels see nothing of the host.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tombolo::{Context, PersistentKernel, Program, server::CallError};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Context::new()?.device()?;
    /// let program = Program::new("search.wgsl", "
    ///     fn search(seed: u32) -> u32 {
    ///         var found = seed;
    ///         for (var step = 0u; step < 1000u && !call_cancelled(); step++) { found = found * 1664525u + 1013904223u; }
    ///         return found;
    ///     }")?;
    /// let server = PersistentKernel::builder(&device, &program).handler("search").start()?;
    /// let search = server.function::<(u32,), u32>("search")?;
    /// match search.call_with_deadline(&(7,), Duration::from_secs(5)) {
    ///     Ok(found) => println!("{found}"),
    ///     Err(CallError::Withdrawn { .. }) => println!("it was never begun"),
    ///     Err(CallError::Cancelled { .. }) => println!("it is told to stop"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`CallError::Withdrawn`], [`CallError::Cancelled`], and as [`DeviceFunction::call`].
    pub fn call_with_deadline(&self, arguments: &A, time: Duration) -> Result<R, CallError> {
        self.call_until(arguments, Deadline::withdrawing_after(time))
    }

    fn call_until(&self, arguments: &A, deadline: Deadline) -> Result<R, CallError> {
        let _span =
            span!("call", function = self.callee().name(), device = %self.callee().core.place());
        let client = self.client();
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let words = room(A::words(), &mut few, &mut many);
        arguments.put(words);
        let posted = client.post(words, deadline)?;
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let results = room(size_of::<R>().div_ceil(4), &mut few, &mut many);
        client.wait(posted, results, deadline)?;
        (self.callee().core.counters.call_latency).record(deadline.waited());
        Ok(take(results))
    }

    pub(super) fn client(&self) -> PortClient<'_> {
        self.callee().client(self.priority)
    }

    /// The function as declared by the program.
    pub fn signature(&self) -> String {
        self.callee().handler.signature.text()
    }
}

impl<A, R> DeviceFunction<A, R> {
    /// The handle counted by this thread.
    pub(super) fn callee(&self) -> &Arc<Callee> {
        &self.callees[PortClient::thread() % CALLEES]
    }
}

impl<A, R> Clone for DeviceFunction<A, R> {
    fn clone(&self) -> Self {
        Self {
            callees: Arc::clone(&self.callees),
            priority: self.priority,
            types: PhantomData,
        }
    }
}

impl<A, R> std::fmt::Debug for DeviceFunction<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeviceFunction")
            .field(&self.callee().handler.signature.text())
            .finish()
    }
}
