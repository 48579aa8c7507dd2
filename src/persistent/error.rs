//! What can be wrong with a server on a device, and with a call.

use std::sync::Arc;
use std::time::Duration;

use crate::device::{ExecutionError, LiveError};
use crate::error_text::debug_by_text;
use crate::kernel::{KernelError, LayoutDifference};
use crate::launch::LaunchError;
use crate::memory::MemoryError;

/// Why a persistent kernel could not be started, or a function of the kernel not be had.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A function of the program cannot be called from outside.
    #[error("`{handler}` cannot be called from outside: {why}")]
    Handler {
        /// The function.
        handler: String,
        /// The fault.
        why: String,
    },
    /// The Rust types do not fit the handler.
    #[error("`{wgsl}` cannot be called as `{rust}`: {why}")]
    Signature {
        /// The handler, as declared by the program.
        wgsl: String,
        /// The types wanted.
        rust: String,
        /// The difference.
        why: String,
    },
    /// A structure that the handler takes or returns lies differently in Rust, or has fields of other types. The Rust type is
    /// declared by [`shared!`](crate::shared), or named by
    /// [`PersistentKernelBuilder::shared`](crate::server::PersistentKernelBuilder::shared).
    #[error(
        "{value} of `{handler}` is another structure in Rust: declare it alike on both sides: {difference}"
    )]
    Layout {
        /// The handler, as declared by the program.
        handler: String,
        /// The argument, or the result.
        value: String,
        /// The fields, with types and offsets of both.
        difference: Box<LayoutDifference>,
    },
    /// The server has no such function.
    #[error("the server has no `{wanted}`; it has {available:?}")]
    NoHandler {
        /// The name asked for.
        wanted: String,
        /// The functions there are.
        available: Vec<String>,
    },
    /// Arguments or result are longer than a port can be.
    #[error(
        "`{handler}`: {bytes} bytes are more than the {limit} of a port: pass a pointer into the shared heap"
    )]
    TooLong {
        /// The handler.
        handler: String,
        /// Bytes of the arguments or of the result.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The server was given no handler, and could never be called.
    #[error("the server has no handlers: name at least one function of the program")]
    NoHandlers,
    /// A pool was given no members, and could never be called.
    #[error("the pool has no servers: give it at least one member")]
    EmptyPool,
    /// Urgent calls have no ports.
    #[error("the server has no ports for urgent calls: see PersistentKernelBuilder::urgent_ports")]
    NoUrgentPorts,
    /// More devices than can be are to call.
    #[error("kernels of {callers} other devices: choose from 0 to {limit}")]
    Callers {
        /// The number wanted.
        callers: usize,
        /// The most possible.
        limit: usize,
    },
    /// The number of ports is out of range.
    #[error("{ports} ports: choose from 1 to {limit}")]
    Ports {
        /// The number wanted.
        ports: usize,
        /// The most possible.
        limit: usize,
    },
    /// So many lanes cannot serve calls beside each other.
    #[error("{lanes} lanes: choose from 1 to {limit}")]
    Lanes {
        /// The number wanted.
        lanes: usize,
        /// The most possible: 1 on adapters with a loop budget.
        limit: usize,
    },
    /// So many work-groups cannot serve calls beside each other.
    #[error("{groups} work-groups: choose from 1 to {limit}")]
    WorkGroups {
        /// The number wanted.
        groups: usize,
        /// The most possible.
        limit: usize,
    },
    /// The work-group cannot have that size.
    #[error("a work-group of {size}: choose a power of two from 8 to {limit}")]
    GroupSize {
        /// The size wanted.
        size: u32,
        /// The most possible.
        limit: u32,
    },
    /// A work-group cannot serve so many calls at once.
    #[error(
        "batches of `{handler}` have 1 to {limit} calls, one for each invocation of a work-group: choose so many, or raise \
         PersistentKernelBuilder::group_size"
    )]
    Batch {
        /// The handler.
        handler: String,
        /// The most possible.
        limit: u32,
    },
    /// The program with the polling kernel did not compile.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// There is no memory for the ports.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The polling kernel could not be launched.
    #[error("the polling kernel could not be launched: {0}")]
    Launch(#[from] LaunchError),
    /// The lease found to be stuck has not ended yet, and nothing else runs on the device until it does.
    #[error("the server on {device} cannot be started again: its last lease has not ended")]
    StillStuck {
        /// The device.
        device: String,
    },
    /// The handlers follow pointers into lent memory, which a server has none of.
    #[error(
        "handlers of `{program}` follow pointers into lent memory (TranslationMode::System), and nothing is lent to a server: \
         choose another mode by PersistentKernelBuilder::options, and pass pointers into the shared heap"
    )]
    LentMemory {
        /// The program.
        program: String,
    },
    /// The operating system gave no thread.
    #[error("no thread for the relay of leases could be started: {message}")]
    Thread {
        /// What the system said.
        message: String,
    },
}

debug_by_text!(ServerError {
    Handler,
    Signature,
    Layout,
    NoHandler,
    TooLong,
    NoHandlers,
    EmptyPool,
    NoUrgentPorts,
    Callers,
    Ports,
    Lanes,
    WorkGroups,
    GroupSize,
    Batch,
    Kernel,
    Live,
    Launch,
    StillStuck,
    LentMemory,
    Thread,
});

impl From<MemoryError> for ServerError {
    fn from(error: MemoryError) -> Self {
        Self::Launch(error.into())
    }
}

/// Why a server stopped by itself.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ServerFailure {
    /// A lease ended without having said so: the driver or a watchdog killed it.
    #[error("lease {lease} of the server on {device} was killed: it ended without its last word")]
    LeaseKilled {
        /// The lease, counted from 1.
        lease: u32,
        /// The device.
        device: String,
    },
    /// A lease did not end although the queue was wanted.
    #[error(
        "lease {lease} of the server on {device} is stuck: it did not end within {waited:?} after it was asked to; \
         a handler may be in a loop that never ends"
    )]
    LeaseStuck {
        /// The lease, counted from 1.
        lease: u32,
        /// The device.
        device: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A lease failed as a launch: its answers may be wrong.
    #[error("lease {lease} of the server failed: {error}")]
    LeaseFailed {
        /// The lease, counted from 1.
        lease: u32,
        /// The launch's outcome.
        #[source]
        error: Arc<ExecutionError>,
    },
    /// A lease left traces that no server leaves: the device, its driver, or another kernel has written over the ports.
    /// No answer of it is to be trusted.
    #[error(
        "lease {lease} of the server on {device} has written what no server writes, at port {port}: {what}; the memory of \
         its ports was written over"
    )]
    Garbled {
        /// The lease, counted from 1.
        lease: u32,
        /// The device.
        device: String,
        /// The port.
        port: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The next lease could not be launched.
    #[error("lease {lease} of the server could not be launched: {error}")]
    Launch {
        /// The lease, counted from 1.
        lease: u32,
        /// Why not.
        #[source]
        error: Arc<LaunchError>,
    },
}

debug_by_text!(ServerFailure {
    LeaseKilled,
    LeaseStuck,
    LeaseFailed,
    Garbled,
    Launch,
});

/// Why a call has no result.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server was stopped or dropped before it had answered. A call posted before an orderly stop is served; where
    /// the server had failed and was started again, whether the handler has run is not known.
    #[error("`{handler}` was not answered: its server has been stopped")]
    Stopped {
        /// The called function.
        handler: String,
    },
    /// The server has failed; [`PersistentKernel::restart`](crate::PersistentKernel::restart) starts it again. Whether the
    /// handler has run is not known.
    #[error("`{handler}` was not answered: {failure}")]
    Server {
        /// The called function.
        handler: String,
        /// What became of the server.
        #[source]
        failure: Arc<ServerFailure>,
    },
    /// There was no answer in time. The handler may still run; its result is dropped.
    #[error("`{handler}` was not answered within {waited:?}")]
    TimedOut {
        /// The called function.
        handler: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The call was taken back before its handler had begun, or before it had a port: the handler has not run, and will not.
    #[error("`{handler}` was taken back before it had begun: it has not run")]
    Withdrawn {
        /// The called function.
        handler: String,
    },
    /// The time of the call has passed, and it was taken back when its handler may have begun. The handler is told, if it
    /// asks; its result is dropped.
    #[error(
        "`{handler}` was cancelled after {waited:?}: it may have run, or still run until it asks `call_cancelled()`"
    )]
    Cancelled {
        /// The called function.
        handler: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// This thread has the heap ([`HostAccess`](crate::heap::HostAccess)), so the server, which follows pointers, cannot run.
    #[error(
        "`{handler}` cannot be served while this thread has access to the heap: drop the HostAccess first"
    )]
    HostAccess {
        /// The called function.
        handler: String,
    },
    /// An `assert` of the handler failed, a `panic` was reached, or a called function of the host failed.
    #[error("`{handler}` failed: {error}")]
    Failed {
        /// The called function.
        handler: String,
        /// What the handler said.
        #[source]
        error: Arc<ExecutionError>,
    },
    /// The handler took more turns of loops than a call may take.
    #[error(
        "`{handler}` was ended after {limit} turns of its loops: let it do less at a time, or raise \
         PersistentKernelBuilder::turns"
    )]
    TooManyTurns {
        /// The called function.
        handler: String,
        /// The limit.
        limit: u32,
    },
    /// The Rust function behind a loopback panicked.
    #[error("`{handler}` panicked")]
    Panicked {
        /// The called function.
        handler: String,
    },
    /// The words of the answer do not match their seal, although everything written by the device has arrived: another
    /// writer has changed the words. Whether the handler has run is not known.
    #[error(
        "`{handler}` was answered, and the answer's words do not fit together; look for what writes beyond its own memory"
    )]
    Garbled {
        /// The called function.
        handler: String,
    },
    /// The server answered with a status that means nothing here.
    #[error("`{handler}` was answered with the status {status}, which means nothing")]
    Malformed {
        /// The called function.
        handler: String,
        /// The status.
        status: u32,
    },
}

debug_by_text!(CallError {
    Stopped,
    Server,
    TimedOut,
    Withdrawn,
    Cancelled,
    HostAccess,
    Failed,
    TooManyTurns,
    Panicked,
    Garbled,
    Malformed,
});
