//! Persistent kernels: servers that live on a device and are called by threads of the host.
//!
//! - [`frame`]: the memory of a server: its ports, and the words by which leases begin and end.
//! - [`core`]: what callers and the relay share; [`relay`]: the thread that launches lease after lease; [`policy`]: how
//!   long they last; [`parker`]: how the relay sleeps and is woken; [`interrupts`]: how a lease is asked to end;
//!   [`lease_clock`]: who asks in the relay's place; [`settle`]: what is answered in the kernel's place; [`stage`]: where
//!   a server stands; [`statistics`]: why leases ended; [`latency`]: how long calls take; [`corruption`]: writes of a
//!   device that no server makes.
//! - [`sliced`]: the same where running kernels do not see what the host writes: calls travel in launches; [`driver`]:
//!   which threads move them; [`bulk`]: many calls at a time; [`packed`]: their kernels; [`direct`]: many calls at a time beside a
//!   kernel that stays.
//! - [`function`]: typed calls; [`signature`]: whether Rust's types fit a handler's; [`port_client`]: a single call at
//!   a single port; [`urgent`]: calls that go before others.
//! - `model` explores how leases hand over, step by step; `tests_loom` what threads of the host do beside each other.
//! - [`pending`]: calls on their way, as futures and in sequences; [`waker_thread`]: the thread that wakes futures;
//!   [`waker_set`]: the waiting futures.
//! - [`callers`]: calls from kernels, of the same device and of others; [`block`]: pages that several devices use in place.
//! - [`builder`]: how a server is put together; [`loopback`]: a server of the host behind the same ports;
//!   [`pool`]: servers of one program on several devices.
//!
//! # Forward progress
//!
//! The work-groups of a server wait for threads of the host alone and always end. No assumption is made about work-groups
//! that have not begun, nor about two side by side; a started work-group goes on running. A kernel
//! waiting for a server on another device waits for another queue, the only exception. The probe tests whether a
//! running kernel and the host see each other's writes, both ways; with visibility calls are live, without calls travel
//! in slices. `docs/servers.md` has the list, and what holds on a GPU.
//!
//! The polling kernel around the handlers is written by `kernel::server`, the protocol and the layout of ports are
//! those of calls in the other direction (`rpc::port`), with the roles exchanged. This module uses the launch module;
//! nothing below knows of it, but the queue knows of kernels that make room (`device::resident`).

mod admission;
mod arguments;
mod block;
mod bridge;
mod builder;
mod bulk;
mod callers;
mod core;
mod corruption;
mod direct;
mod driver;
mod error;
mod frame;
mod function;
mod interrupts;
mod latency;
mod lease_clock;
mod loopback;
#[cfg(test)]
mod model;
mod packed;
mod parker;
mod pending;
mod policy;
mod pool;
mod port_client;
mod relay;
mod settle;
mod signature;
mod sliced;
mod stage;
mod statistics;
mod suspicion;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_bytes;
#[cfg(test)]
mod tests_evil;
#[cfg(test)]
mod tests_hostile;
#[cfg(test)]
mod tests_hostile_clients;
#[cfg(test)]
mod tests_loom;
mod urgent;
mod waker_set;
mod waker_thread;
mod yielding;

// Of which `parker`, `interrupts`, `waker_set` and `stage` are made; loom has others of the same names.
use std::sync::{self, Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use self::callers::Callers;
use self::core::{Core, Stage};
use self::driver::SlicedRelay;
use self::relay::Relay;
use crate::device::wait::lock;
use crate::device::{Device, WaitError};
use crate::rpc::bell;
use crate::rpc::is_server_thread;
#[cfg(test)]
use crate::rpc::port;

pub use builder::PersistentKernelBuilder;
pub use direct::BatchRoute;
pub use error::{CallError, ServerError, ServerFailure};
pub use function::DeviceFunction;
pub use latency::LatencyHistogram;
pub use loopback::{HostServer, HostServerBuilder};
pub use pending::{CallSequence, PendingCall};
pub use policy::LeasePolicy;
pub use pool::{PooledCall, PooledFunction, ServerPool};
pub use signature::{CallArguments, CallResult};
pub use statistics::ServerStatistics;

/// A kernel that stays on a device as a server: threads of the host call the server's functions at the speed of memory
/// rather than of launches.
///
/// ```no_run
/// use tombolo::{Context, PersistentKernel, Program};
///
/// let device = Context::new()?.device()?;
/// let program = Program::new("server.wgsl", "
///     var<storage, read_write> calls: atomic<u32>;
///     fn scale(x: f32, by: f32) -> f32 {
///         atomicAdd(&calls, 1u);
///         return x * by;
///     }")?;
/// let server = PersistentKernel::builder(&device, &program).handler("scale").start()?;
/// let scale = server.function::<(f32, f32), f32>("scale")?;
/// assert_eq!(scale.call(&(3.0, 2.0))?, 6.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Handlers are ordinary functions of the program. Handlers take and return host-shareable types without atomics,
/// `usm_ptr` among them, and may use everything kernels may: device globals, private arrays, `print`, `assert`, and
/// functions of the host. Where a running kernel does not see the host's writes into the heap, on devices with memory of
/// their own, a server whose handlers follow pointers is called in slices (*Without live memory*).
///
/// The server makes room for other work: commands submitted to the device during its life run within the time of the
/// calls currently served, and the server goes on behind them ([`LeasePolicy`]). An idle server leaves the device, and
/// costs nothing until the next call.
///
/// # Streams
///
/// A stream of calls is a [sequence](DeviceFunction::sequence): arguments are pulled as results are taken, up to a
/// given number of calls ahead, but no more than there are ports; results come in order, by `next` or awaited
/// ([`CallSequence::into_stream`]); dropping the sequence cancels the calls on their way. What comes out of another
/// stream goes through `stream.map(|arguments| function.begin(&arguments)).buffered(window)`.
///
/// What is longer than a call travels in packets. The state travels, too: a handler is given the state left by the
/// packet before, and returns the state for the next. So a stream holds no port and nothing on the device, any number
/// may be open, and one left in the middle leaves nothing behind.
///
/// ```no_run
/// # use tombolo::{Context, PersistentKernel, Program};
/// # let device = Context::new()?.device()?;
/// let program = Program::new("server.wgsl", "
///     fn absorb(sum: u32, words: array<u32, 24>, count: u32) -> u32 {
///         var next = sum;
///         for (var i = 0u; i < count; i++) { next = next * 31u + words[i]; }
///         return next;
///     }
///     fn draw(seed: u32) -> array<u32, 25> {                // the next state, and 24 words
///         var drawn: array<u32, 25>;
///         drawn[0] = seed;
///         for (var i = 1u; i < 25u; i++) { drawn[0] = drawn[0] * 1664525u + 1u; drawn[i] = drawn[0] >> 8u; }
///         return drawn;
///     }")?;
/// let server = PersistentKernel::builder(&device, &program).handler("absorb").handler("draw").start()?;
/// // Words of any number to a handler …
/// let absorb = server.function::<(u32, [u32; 24], u32), u32>("absorb")?;
/// let words: Vec<u32> = (0..1000).collect();
/// let sum = words.chunks(24).try_fold(0, |sum, chunk| {
///     let mut packet = [0; 24];
///     packet[..chunk.len()].copy_from_slice(chunk);
///     absorb.call(&(sum, packet, chunk.len() as u32))
/// })?;
/// // … and from one.
/// let draw = server.function::<(u32,), [u32; 25]>("draw")?;
/// let mut seed = sum;
/// let packets = std::iter::from_fn(|| Some(draw.call(&(seed,)).inspect(|drawn| seed = drawn[0])));
/// for drawn in packets.take(3) {
///     println!("{:?}", &drawn?[1..]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Order and exclusion
///
/// A call begins after every call already answered to its caller; calls on their way together are served in any order.
/// Commands enqueued on the device, launches and writes to buffers and device globals, are no such answer: a call does
/// not wait for commands, and a caller depending on their effects waits for their events first.
///
/// A call with an answer was served once, and one without at most once. Each lane serves a single call of a thread at a
/// time: with a single lane ([`PersistentKernelBuilder::lanes`]), and with handlers for a whole work-group, no two such
/// calls run side by side, and handlers need no atomics for device globals. With several lanes or work-groups
/// ([`PersistentKernelBuilder::work_groups`]), in batches and in slices they do.
///
/// # Without live memory
///
/// Where running kernels do not see the host's writes ([`Aspect::LiveMemory`](crate::device::Aspect::LiveMemory), and on
/// Metal), or not those into the heap whose pointers handlers follow, the same functions are called in the same way, but
/// calls travel in *slices*: all calls made during a launch form the next launch, with an invocation for each call. A call takes as long as a launch then, and many calls at a time
/// hardly longer: have many callers, and as many ports ([`PersistentKernelBuilder::ports`]). Handlers do not wait for
/// functions of the host there; posted calls have been served by the time the caller has its answer. A function so
/// posted to must not wait for a call of the same server: that call is in a later slice, and the server is found to be
/// stuck. [`PersistentKernel::tier`] tells.
///
/// Dropping the handle stops the server.
pub struct PersistentKernel {
    device: Device,
    core: Arc<Core>,
    relay: Mutex<State>,
    callers: Arc<Callers>,
}

/// What serves the calls.
enum Runner {
    Live(Box<Relay>),
    Sliced(SlicedRelay),
}

impl Runner {
    fn run(self) -> Self {
        match self {
            Self::Live(relay) => Self::Live(Box::new(relay.run())),
            Self::Sliced(relay) => Self::Sliced(relay.run()),
        }
    }
}

enum State {
    Running(JoinHandle<Runner>),
    /// It has ended, and can be started again.
    Ended(Box<Runner>),
    /// Its thread is gone for good.
    Gone,
}

impl PersistentKernel {
    /// The device that the server lives on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many leases there have been: launches of the polling kernel.
    pub fn leases(&self) -> u32 {
        self.core.leases.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether a lease is on the device, or on its way there.
    pub fn is_resident(&self) -> bool {
        self.core.is_resident()
    }

    /// Whether calls reach the kernel while it runs ([`Tier::Live`](crate::device::Tier::Live)), or travel in slices
    /// ([`Tier::Sliced`](crate::device::Tier::Sliced)).
    pub fn tier(&self) -> crate::device::Tier {
        match self.core.frame.is_sliced() {
            true => crate::device::Tier::Sliced,
            false => crate::device::Tier::Live,
        }
    }

    /// Why the server has stopped without a request, if so.
    pub fn failure(&self) -> Option<Arc<ServerFailure>> {
        self.core.failure()
    }

    /// Stops the server. What was posted before is served; calls made later fail with [`CallError::Stopped`]. Returns
    /// when the last lease has ended, or was found to be stuck; a device with a stuck lease cannot be dropped before
    /// the lease's end, since wgpu waits for that. In a function of the host that serves a call it returns at once: the
    /// lease may be what waits for the answer. Stopping twice does nothing but wait.
    pub fn stop(&self) {
        match is_server_thread() {
            true => {
                self.core.begin_stop();
            }
            false => self.stop_and_wait(),
        }
    }

    fn stop_and_wait(&self) {
        let mut state = lock(&self.relay);
        self.core.begin_stop();
        *state = match std::mem::replace(&mut *state, State::Gone) {
            // The relay does not panic.
            State::Running(thread) => match thread.join() {
                Ok(relay) => State::Ended(Box::new(relay)),
                Err(_) => State::Gone,
            },
            ended => ended,
        };
    }

    /// Starts a server again that was stopped or has failed. Calls that had no answer were told so, and are not served
    /// now. Does nothing while the server runs.
    ///
    /// # Errors
    /// [`ServerError::StillStuck`] while a lease has not ended; [`ServerError::Thread`].
    pub fn restart(&self) -> Result<(), ServerError> {
        self.restart_timeout(Duration::ZERO)
    }

    /// As [`PersistentKernel::restart`], waiting up to `timeout` for the end of a lease that was stuck.
    ///
    /// # Errors
    /// [`ServerError::StillStuck`] if the lease has not ended by then; [`ServerError::Thread`].
    pub fn restart_timeout(&self, timeout: Duration) -> Result<(), ServerError> {
        let core = &self.core;
        if matches!(core.stage(), Stage::Running | Stage::Stopping) {
            return Ok(());
        }
        // No lease waits for anybody: the relay has ended, or is about to.
        self.stop_and_wait();
        // Others may ask for the server meanwhile.
        let stuck = lock(&core.stuck).clone();
        if let Some(event) = stuck
            && matches!(event.wait_timeout(timeout), Err(WaitError::Deadline))
        {
            return Err(ServerError::StillStuck {
                device: core.place(),
            });
        }
        let mut state = lock(&self.relay);
        if matches!(*state, State::Running(_)) {
            // Another thread has started the server.
            return Ok(());
        }
        *lock(&core.stuck) = None;
        let State::Ended(relay) = std::mem::replace(&mut *state, State::Gone) else {
            return Err(ServerError::Thread {
                message: "the relay is gone".to_owned(),
            });
        };
        (core.frame).give_up(false, crate::device::CallStatus::Stopped.code(), 0);
        core.frame.mend();
        core.forget_failure();
        if let Some(slices) = &core.slices {
            lock(slices).reset(core);
        }
        core.set_stage(Stage::Running);
        // Without a thread the server is closed again, or callers would wait for an answer.
        *state = State::Running(spawn(*relay).inspect_err(|_| core.set_stage(Stage::Closed))?);
        Ok(())
    }
}

fn spawn(relay: Runner) -> Result<JoinHandle<Runner>, ServerError> {
    std::thread::Builder::new()
        .name("tombolo relay".to_owned())
        .spawn(move || relay.run())
        .map_err(|error| ServerError::Thread {
            message: error.to_string(),
        })
}

impl Drop for PersistentKernel {
    fn drop(&mut self) {
        self.stop();
        if let Some(slices) = &self.core.slices {
            // Functions may live on.
            lock(slices).clear();
        }
    }
}

impl std::fmt::Debug for PersistentKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let handlers = self.core.handlers.iter();
        let handlers: Vec<String> = handlers.map(|one| one.signature.text()).collect();
        f.debug_struct("PersistentKernel")
            .field("device", &self.device.name())
            .field("stage", &self.core.stage())
            .field("handlers", &handlers)
            .finish_non_exhaustive()
    }
}
