//! Calls from kernels to the host: ports, and the services behind them.
//!
//! - [`port`]: the protocol, and both of its ends over any words.
//! - [`mailbox`]: ports in the memory of a device ([`port_memory`], also of servers on devices); [`backoff`]: memory
//!   for waiting callers on devices with rationed turns.
//! - [`services`]: registered functions and the threads serving them (at a [`dispatcher`]), put together by
//!   [`builder`]; [`loopback`] calls them without a device; [`handler`] turns words into the arguments of a Rust
//!   function (of as many as [`argument_lists`] says), [`stream`] serves calls of any length; [`slice`] carries ports over the ends of launches to devices
//!   showing nothing to running kernels; [`idle`] is the policy of a thread without work, [`bell`] wakes the thread,
//!   [`statistics`] counts, [`guard`] catches panics of the program's functions.
//! - [`provided`]: the functions of the runtime.
//!
//! `kernel::calls` makes the kernels' side.

mod argument_lists;
pub(crate) mod backoff;
pub(crate) mod bell;
mod builder;
mod dispatcher;
mod error;
mod handler;
mod idle;
mod kernel_threads;
mod loopback;
mod mailbox;
pub(crate) mod port;
mod port_memory;
mod program;
mod provided;
mod services;
mod slice;
mod statistics;
mod stream;

// The parts of `bell`; loom has others of the same names.
use std::sync;

pub(crate) use argument_lists::for_argument_lists;
pub(crate) use backoff::Backoff;
pub(crate) use bell::Bell;
pub(crate) use kernel_threads::KeptKernelThreads;
pub(crate) use mailbox::{Mailbox, WaitBudget};
pub(crate) use port_memory::{OwnWords, PortMemory};
pub(crate) use services::{Call, Shared as Services, begin_serving, is_server_thread};
pub(crate) use slice::Slice;

pub use error::{PortsError, ServiceError};
pub use handler::Handler;
pub use idle::IdlePolicy;

pub use builder::HostServicesBuilder;
pub use loopback::Loopback;
pub use provided::{
    FileAccess, FileStatus, FreeStatus, KernelAllocation, KernelAllocations, RootMode,
};
pub use services::HostServices;
pub use statistics::{CallStatistics, ServiceStatistics};
pub use stream::{CallStream, StreamOpener};
