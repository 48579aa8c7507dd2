//! Servers on other ranks: the functions of a persistent kernel on the device of a rank, called by threads of all ranks.
//!
//! # How it works
//! 1. A [`RemoteServer`] receives calls on its rank, on a separate communicator, and gives the calls to a few threads. The
//!    threads call the [`DeviceFunction`] and send the result back.
//! 2. A caller sends the name of the function, the arguments as words, and the tag for the answer. No other call of the
//!    caller's rank has the same tag. [`RemoteFunction`] has the types of [`DeviceFunction`], and the same ways to call.
//! 3. Services for kernels' calls to the host may call a [`RemoteFunction`]: so kernels of a rank are served by kernels of
//!    another rank.
//!
//! The layout of messages is in [`wire`].

mod call;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use mpi::ffi;
use mpi::traits::AsRaw;
use tombolo::server::{CallArguments, CallResult, DeviceFunction};

pub use call::{RemoteCall, RemoteCallFuture, RemoteFunction};

use crate::backoff::Backoff;
use crate::error::{MpiError, Operation};
use crate::point_to_point::{ireceive_on, isend_on, probe};
use crate::ranks::Ranks;
use crate::request::lock;
use crate::session::Session;
use wire::{Call, Status};

/// Calls waiting for a thread of the server; more calls wait in MPI.
const WAITING: usize = 64;

/// Serves a call: result bytes, or why there are none.
type Serve = dyn Fn(&[u32]) -> Result<Vec<u8>, String> + Send + Sync;

/// A served function.
struct Served {
    /// The types of the function's calls.
    types: String,
    given: usize,
    taken: usize,
    serve: Box<Serve>,
}

/// The functions to serve; from [`RemoteServer::builder`].
pub struct RemoteServerBuilder {
    ranks: Ranks,
    threads: usize,
    functions: BTreeMap<String, Served>,
}

impl RemoteServerBuilder {
    /// Serves a function of a server on a device. Callers ask for the function by `name`. A second function of the same name
    /// takes the place of the first.
    pub fn function<A: CallArguments + 'static, R: CallResult>(
        self,
        name: &str,
        function: &DeviceFunction<A, R>,
    ) -> Self {
        let (function, timeout) = (function.clone(), self.ranks.timeout());
        self.handler(name, move |arguments: A| {
            let result = match timeout {
                Some(timeout) => function.call_timeout(&arguments, timeout),
                None => function.call(&arguments),
            };
            result.map_err(|error| error.to_string())
        })
    }

    /// Serves a function in Rust. The function's error is reported to the caller ([`MpiError::Call`]).
    pub fn handler<A: CallArguments, R: CallResult>(
        mut self,
        name: &str,
        handler: impl Fn(A) -> Result<R, String> + Send + Sync + 'static,
    ) -> Self {
        let serve = move |words: &[u32]| {
            let result = handler(A::get(words))?;
            Ok(bytemuck::bytes_of(&result).to_vec())
        };
        let served = Served {
            types: wire::types_of::<A, R>(),
            given: A::words(),
            taken: size_of::<R>(),
            serve: Box::new(serve),
        };
        self.functions.insert(name.to_owned(), served);
        self
    }

    /// How many calls are served at the same time: 4, unless said otherwise; at least 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Starts to serve. Start a single server for a rank: of two, each would get some of the calls.
    ///
    /// # Errors
    /// [`MpiError::Thread`], [`MpiError::Finalized`].
    pub fn start(self) -> Result<RemoteServer, MpiError> {
        let session = &self.ranks.session;
        drop(session.enter(wire::CALL)?);
        let shared = Arc::new(Shared {
            session: Arc::clone(session),
            functions: self.functions,
            is_stopped: AtomicBool::new(false),
        });
        let (sender, receiver) = sync_channel(WAITING);
        let receiver = Arc::new(Mutex::new(receiver));
        // From here on the threads end by `Drop`.
        let mut server = RemoteServer {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
        };
        for _ in 0..self.threads {
            let (shared, receiver) = (Arc::clone(&shared), Arc::clone(&receiver));
            server.spawn(move || shared.work(&receiver))?;
        }
        server.spawn(move || shared.receive_all(sender))?;
        Ok(server)
    }
}

/// Functions of this rank, called by other ranks. Dropping the value ends the server: calls in service are answered, and
/// other calls received so far fail with [`MpiError::Call`]. Later calls wait for the rank's next server, or for their
/// deadline.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tombolo::{Context, PersistentKernel, Program};
/// use tombolo_mpi::{Mpi, RemoteServer};
///
/// let mpi = Mpi::start()?;
/// let ranks = mpi.ranks();
/// let mut served = None;
/// if ranks.rank() == 0 {
///     let program = Program::new("square.wgsl", "fn square(x: f32) -> f32 { return x * x; }")?;
///     let device = Context::new()?.device()?;
///     let server = PersistentKernel::builder(&device, &program).handler("square").start()?;
///     let square = server.function::<(f32,), f32>("square")?;
///     served = Some((RemoteServer::builder(&ranks).function("square", &square).start()?, server));
/// }
/// ranks.barrier()?;
/// let square = ranks.function::<(f32,), f32>(0, "square")?;
/// assert_eq!(square.call(&(3.0,))?, 9.0);
/// ranks.barrier()?; // before the server ends
/// drop(served);
/// # Ok(()) }
/// ```
pub struct RemoteServer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl RemoteServer {
    /// Begins with a server of no functions.
    pub fn builder(ranks: &Ranks) -> RemoteServerBuilder {
        RemoteServerBuilder {
            ranks: ranks.clone(),
            threads: 4,
            functions: BTreeMap::new(),
        }
    }

    fn spawn(&mut self, work: impl FnOnce() + Send + 'static) -> Result<(), MpiError> {
        let builder = std::thread::Builder::new().name("tombolo mpi server".to_owned());
        let thread = builder.spawn(work).map_err(|error| MpiError::Thread {
            what: "a server for other ranks",
            reason: error.to_string(),
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a thread that serves other ranks has panicked");
            }
        }
    }
}

impl fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.shared.functions.keys().collect();
        f.debug_tuple("RemoteServer").field(&names).finish()
    }
}

/// The state shared by the threads of a server.
struct Shared {
    session: Arc<Session>,
    functions: BTreeMap<String, Served>,
    is_stopped: AtomicBool,
}

impl Shared {
    /// Receives calls until the server is stopped, and then answers the remaining calls with a failure: nobody will serve
    /// these calls.
    fn receive_all(&self, calls: SyncSender<Call>) {
        let mut backoff = Backoff::default();
        loop {
            // Asked before the look: the look sees every call from before the stop.
            let is_stopped = self.is_stopped.load(Ordering::Acquire);
            match self.receive() {
                Ok(Some(call)) if is_stopped => {
                    self.answer(&call, Status::Failed, b"its server has been stopped");
                }
                Ok(Some(call)) => {
                    backoff = Backoff::default();
                    self.hand_on(&calls, call);
                }
                Ok(None) if is_stopped => return,
                Ok(None) => backoff.pause(),
                Err(MpiError::Finalized { .. }) => return,
                Err(error) => {
                    log::error!("a call of another rank was not received: {error}");
                    if is_stopped {
                        return;
                    }
                    backoff.pause();
                }
            }
        }
    }

    /// Gives a call to a thread; waits while all are at work, unless the server is stopped.
    fn hand_on(&self, calls: &SyncSender<Call>, mut call: Call) {
        let mut backoff = Backoff::default();
        loop {
            call = match calls.try_send(call) {
                Ok(()) => return,
                Err(TrySendError::Full(call)) => call,
                Err(TrySendError::Disconnected(call)) => {
                    return self.answer(&call, Status::Failed, b"its server has failed");
                }
            };
            if self.is_stopped.load(Ordering::Acquire) {
                return self.answer(&call, Status::Failed, b"its server has been stopped");
            }
            backoff.pause();
        }
    }

    /// The next call, if any has come.
    fn receive(&self) -> Result<Option<Call>, MpiError> {
        let communicator = self.session.calls.as_raw();
        // SAFETY: a constant, set before `main`.
        let any = unsafe { ffi::RSMPI_ANY_SOURCE };
        let Some(seen) = probe(&self.session, wire::CALL, (communicator, any, wire::CALLS))? else {
            return Ok(None);
        };
        // Only this thread receives calls, so that the next message is still the message of the probe.
        let words = vec![0u32; (seen.bytes as usize).div_ceil(4)];
        let operation = Operation::new("call", Some(seen.source), None);
        let from = (communicator, seen.source, wire::CALLS);
        let words = ireceive_on(&self.session, operation, from, words)?.wait()?;
        let call = Call::read(seen.source, &words);
        if call.is_none() {
            log::error!("rank {} has sent a call that is none", seen.source);
        }
        Ok(call)
    }

    /// Serves calls as long as there are any.
    fn work(&self, calls: &Mutex<Receiver<Call>>) {
        loop {
            let next = lock(calls).recv();
            let Ok(call) = next else {
                return;
            };
            self.serve(&call);
        }
    }

    fn serve(&self, call: &Call) {
        let found = self.functions.get(&call.name);
        let fits = |served: &&Served| served.given == call.given && served.taken == call.taken;
        let Some(served) = found.filter(fits) else {
            return self.answer(call, Status::Unknown, self.describe().as_bytes());
        };
        if call.only_asks {
            return match call.arguments == Call::asking(&served.types) {
                true => self.answer(call, Status::Done, &vec![0; call.taken]),
                false => self.answer(call, Status::Unknown, self.describe().as_bytes()),
            };
        }
        // A panic of a handler is a failure of the call, and not of the server.
        let work = std::panic::AssertUnwindSafe(|| (served.serve)(&call.arguments));
        match std::panic::catch_unwind(work) {
            Ok(Ok(result)) => self.answer(call, Status::Done, &result),
            Ok(Err(reason)) => self.answer(call, Status::Failed, reason.as_bytes()),
            Err(_) => self.answer(call, Status::Failed, b"its handler has panicked"),
        }
    }

    /// The functions, in words.
    fn describe(&self) -> String {
        let one = |(name, served): (&String, &Served)| format!("`{name}`: {}", served.types);
        let all: Vec<_> = self.functions.iter().map(one).collect();
        match all.is_empty() {
            true => "none".to_owned(),
            false => all.join(", "),
        }
    }

    fn answer(&self, call: &Call, status: Status, payload: &[u8]) {
        let operation = Operation::new("answer", Some(call.caller), Some(call.answer));
        let words = wire::answer(status, payload);
        let there = (self.session.calls.as_raw(), call.caller, call.answer);
        let sent = isend_on(&self.session, operation, there, words);
        // Dropped: the answer goes on its way by itself, since a caller may have given up.
        if let Err(error) = sent {
            log::error!("`{}` was served, and not answered: {error}", call.name);
        }
    }
}
