//! The host's side of calls: registered functions, and the mailboxes of the devices that call them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::thread::JoinHandle;

use super::bell::Bell;
use super::error::PortsError;
use super::idle::IdlePolicy;
use super::kernel_threads::SharedRole;
use super::mailbox::{Mailbox, WaitBudget};
use super::port::layout::PortLayout;
use super::port::protocol::CallStatus;
use super::provided::Provided;
use super::statistics::{Counters, ServiceStatistics};
use super::stream::Open;
use crate::device::DeviceShared;
use crate::device::submissions::Crew;
use crate::device::wait::lock;
use crate::kernel::calls::{CallDeclaration, CallSet};

mod serve;

pub(super) use serve::end_serving;
pub(crate) use serve::{begin_serving, is_server_thread};

/// A function behind a call: arguments in, results appended, and what has become of the call.
pub(crate) type Call = Box<dyn Fn(&[u32], &mut Vec<u32>) -> CallStatus + Send + Sync>;

/// How a function is served.
pub(super) enum Serve {
    Call(Call),
    Stream(Open),
}

/// A registered function.
pub(super) struct Function {
    pub(super) declaration: Arc<CallDeclaration>,
    /// The compiler's names for the Rust types of the arguments, and behind them for that of the result; none of a function
    /// served elsewhere.
    pub(super) types: Vec<&'static str>,
    pub(super) opcode: u32,
    pub(super) argument_words: usize,
    pub(super) serve: Serve,
    /// The function waits, or touches files: only threads of the services run it.
    pub(super) stays: bool,
    /// One entry for each server thread, the only writer.
    pub(super) counters: Box<[Counters]>,
}

/// Functions of the host for calls by kernels, and the threads that serve the calls.
///
/// ```
/// use tombolo::{HostServices, Program};
///
/// let services = HostServices::builder()
///     .call("fn square(x: f32) -> f32", |x: f32| x * x)
///     .start()?;
/// let program = Program::builder().source("calls.wgsl", "
///     @group(0) @binding(0) var<storage, read_write> values: array<f32>;
///     @compute @workgroup_size(64)
///     fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         values[id.x] = square(values[id.x]);
///     }").services(&services).build()?;
/// // kernel.launch().services(&services).buffer("values", &values) …
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # In WGSL
///
/// A program made by [`ProgramBuilder::services`](crate::kernel::ProgramBuilder::services) calls the functions by name. For a
/// function `fn f(x: X) -> R` there are
///
/// - `f(x)`: waits for the result. A failed call (see [`CallStatus`](crate::calls::CallStatus)) gives a zero value and
///   *fails the launch* with [`ExecutionError::CallFailed`](crate::device::ExecutionError::CallFailed), so that the
///   zero is not taken for a result.
/// - `f_try(x)`: gives `f_reply { status: u32, value: R }` and leaves failures to the kernel; `status` is one of
///   `CALL_DONE`, `CALL_BUSY`, `CALL_TIMED_OUT`, `CALL_STOPPED`, `CALL_UNKNOWN`, `CALL_MALFORMED` and
///   `CALL_PANICKED`, and `value` is zero unless `status` is `CALL_DONE`.
///   On devices with subgroups and memory of their own those invocations of a subgroup that call at the same place
///   together share a packet, unless the services have several threads
///   ([`HostServicesBuilder::threads`](crate::calls::HostServicesBuilder::threads)): their calls are served one after the
///   other, and are answered together.
/// - `f_group(takes_part, x)` and `f_group_try(takes_part, x)`: the same for a whole work-group at once, in as few
///   packets as the calls fit in: only one invocation waits at a port, and the others at a barrier. Like
///   `workgroupBarrier`, the call has to be reached by all invocations of the work-group; invocations with `takes_part
///   = false` make no call, and get `CALL_DONE` and zeros. A packet has one word more than the arguments of its calls,
///   and the answer one word more for each call: give ports room with
///   [`HostServicesBuilder::payload`](crate::calls::HostServicesBuilder::payload). On lavapipe and SwiftShader group
///   calls reach 0.6 to 0.9 times the calls per second of single calls, on the embedded adapter 0.8 to 3.4 times (bench
///   `rpc_host`), and spare the loop turns of all invocations but one. Where invocations of a subgroup share packets, the two are about as fast.
/// - `f_post(x)`: posts the call and goes on. The result is dropped. Gives `CALL_DONE` once the call is posted; the
///   call is served at most once, and exactly once if the services run on.
/// - `f_begin(x)`: posts the call and gives a *ticket* for the answer; 0 if no port was free. `f_collect(ticket)` gives
///   `f_reply`, with the status `CALL_PENDING` while there is no answer: ask again. Any invocation may collect, one at
///   a time, in the same kernel or in a later launch; each ticket is good for one answer (`CALL_NO_TICKET` afterwards,
///   and for numbers other than tickets of `f`). A port is taken until the call is collected, or left with
///   `f_leave(ticket)`: have more ports than tickets, or waiting calls find none.
///
/// Calls may stand anywhere, in branches and loops, for one lane or all. Arguments and results are host-shareable types
/// without atomics, at most as long as a port
/// ([`HostServicesBuilder::payload`](crate::calls::HostServicesBuilder::payload)); pointers cost two words.
///
/// # Streams
///
/// Longer data goes through a stream ([`HostServicesBuilder::stream`](crate::calls::HostServicesBuilder::stream)), word
/// by word and in both directions, with one port held open. For a stream `fn f(x: X) -> R`:
///
/// - `var s = f_open(x);` opens a stream of type `f_stream`, passed to functions as `ptr<function, f_stream>`.
/// - `f_put(&s, word)` puts a word; `f_get(&s)` gives the next word from the host, after all words put before have
///   reached the host. At the end of the host's words `f_get` gives 0, and `s.status` is `CALL_END`.
/// - `f_close(&s)` gives `f_reply`. A stream never closed keeps its port.
///
/// `s.status` is `CALL_DONE` until a failure; a failure stays there, and the functions then do nothing. A stream
/// without a free port has the status `CALL_BUSY`: there have to be as many ports as streams at a time.
///
/// # While the kernel runs, or when it has ended
///
/// On devices with [live memory](crate::device::Aspect::LiveMemory) calls are served while the kernel runs. On others,
/// and on Metal, requests leave when the launch has ended and answers arrive in front of the next submitted launch:
/// `f_post`, `f_begin`, `f_collect` and `f_leave` are the same there, and kernels with the other forms, which wait in
/// the kernel, are refused with [`LaunchError::NeedsLiveMemory`](crate::launch::LaunchError::NeedsLiveMemory). One
/// launch can post as many calls there as there are ports; a call without a port gets `CALL_BUSY`, or the ticket
/// 0. [`Event::wait`](crate::Event::wait) also waits until the calls are served.
///
/// # How long a call waits
///
/// Without limit, on devices that end no loops, unless
/// [`HostServicesBuilder::wait_budget`](crate::calls::HostServicesBuilder::wait_budget) sets a limit; until the
/// services are stopped at the latest. On adapters with a loop budget an invocation may spend seven eighths of the
/// budget on waiting, in all its calls together, and slows down between two looks to make the budget last (about a
/// quarter of a second of processor time on lavapipe). Lanes run in step by the adapter share the budget. An eighth of it
/// is kept for answers to calls that are begun: before, a call that no thread has begun is taken back, and none is posted
/// any more. Such a call has the status `CALL_BUSY`: the call was not served, and will not be, so that the next launch may
/// make it. A call that was begun and not answered in all of that time has the status `CALL_TIMED_OUT`, and is served at
/// most once.
///
/// So a kernel that notes the calls it has made loses nothing on a busy machine, and repeats nothing:
///
/// ```wgsl
/// while made[i] < count {
///     let reply = f_try(made[i]);
///     if reply.status != CALL_DONE { break; }  // CALL_BUSY: the next launch goes on here
///     results[i] += reply.value;
///     made[i] += 1u;
/// }
/// ```
///
/// So a function must not wait for anything behind its caller: for the calling launch, for the launch's device
/// ([`Device::finish`](crate::Device::finish), reading a buffer of the device; [`Device::flush`](crate::Device::flush), which
/// some drivers make a wait) or for [`SharedHeap::host`](crate::SharedHeap::host) while the kernel uses the heap. Such a wait
/// is refused, at once, with
/// [`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler) for as long as anything runs on the device;
/// so is a wait for another device of the same card, whose devices take turns, and a wait for a launch on another device
/// whose kernel calls these services, on the last of their [threads](crate::calls::HostServicesBuilder::threads) that is not
/// in such a wait. A wait for a thread of the function's own is not known to the runtime, and would keep the call waiting.
/// Functions reach the heap through pointers given as
/// arguments and the services for [memory](crate::calls::HostServicesBuilder::memory) and files, which know of running
/// kernels.
///
/// Dropping the services stops them.
pub struct HostServices {
    pub(crate) shared: Arc<Shared>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// State shared by server threads and launches.
pub(crate) struct Shared {
    pub(super) functions: Vec<Function>,
    /// Indices into `functions`, by opcode.
    pub(super) by_opcode: Vec<(u32, usize)>,
    pub(crate) calls: CallSet,
    pub(super) ports: Option<usize>,
    pub(super) payload: usize,
    /// The same where the invocations of a subgroup share packets.
    pub(super) packed: usize,
    pub(super) idle: IdlePolicy,
    pub(super) threads: usize,
    /// Who serves, for waits in functions.
    pub(crate) crew: Arc<Crew>,
    /// Who serves, where one thread at a time does.
    pub(super) role: SharedRole,
    /// No thread serves: whoever awaits a launch does ([`Shared::serve_here`]).
    pub(super) served_here: bool,
    pub(super) wait_budget: Option<u32>,
    pub(super) mailboxes: RwLock<Vec<Arc<Mailbox>>>,
    /// Changes with `mailboxes`.
    pub(super) version: AtomicU64,
    pub(super) stopped: AtomicBool,
    pub(crate) bell: Bell,
    pub(super) unknown: AtomicU64,
    pub(super) oversize: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) provided: Arc<Provided>,
}

impl HostServices {
    /// Figures of calls served so far.
    pub fn statistics(&self) -> ServiceStatistics {
        let shared = &self.shared;
        let read = |function: &Function| {
            Counters::read(&function.counters, &function.declaration.signature.name)
        };
        ServiceStatistics {
            functions: shared.functions.iter().map(read).collect(),
            unknown: shared.unknown.load(Ordering::Relaxed),
            oversize: shared.oversize.load(Ordering::Relaxed),
            late: shared.late.load(Ordering::Relaxed),
            port_bytes: shared
                .mailboxes()
                .iter()
                .map(|mailbox| mailbox.bytes())
                .sum(),
        }
    }

    /// Bytes of `ports` ports on a device: `64 + 3 * pad(4 * N) + 2 * N * pad(16 + M)` for `N` ports of `M` bytes a
    /// direction, where `pad` rounds up to 64. On a device with memory of its own, or without calls to running kernels,
    /// host and device have as much each; and where the invocations of a subgroup share packets ([`HostServices`]) a port
    /// has room for 32 calls, unless those take more than 496 bytes. By default
    /// ([`HostServicesBuilder::ports`](crate::calls::HostServicesBuilder::ports)) a device has 512 or 4,096.
    pub fn port_bytes(&self, ports: usize) -> u64 {
        PortLayout::new(ports, self.shared.payload).bytes()
    }

    /// Stops the services: calls of kernels get the status [`CallStatus::Stopped`](crate::calls::CallStatus::Stopped),
    /// also waiting calls unless already answered. Returns when the last call in service has ended; in a function that
    /// serves a call, of these or other services, at once, since that call, or its caller, would be waited for. Stopping
    /// twice does nothing but wait.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        for mailbox in self.shared.mailboxes() {
            mailbox.close();
        }
        self.shared.bell.ring();
        let waits = !is_server_thread();
        if waits {
            for thread in lock(&self.threads).drain(..) {
                // A server thread never panics: handlers are caught.
                let _ = thread.join();
            }
        }
        for mailbox in self.shared.mailboxes() {
            mailbox.part_from_kernel_threads();
        }
        if waits {
            self.shared.role.wait();
        }
    }
}

impl Drop for HostServices {
    fn drop(&mut self) {
        self.stop();
        self.warn_of_leaks();
    }
}

impl std::fmt::Debug for HostServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let functions = self.shared.calls.0.iter();
        let functions: Vec<String> = functions.map(|call| call.signature.text()).collect();
        f.debug_struct("HostServices")
            .field("functions", &functions)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls = self.calls.0.iter().map(|call| call.signature.text());
        f.debug_list().entries(calls).finish()
    }
}

impl Shared {
    fn mailboxes(&self) -> Vec<Arc<Mailbox>> {
        let mailboxes = self.mailboxes.read();
        mailboxes
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// `packs`: invocations of a subgroup share packets.
    fn layout(&self, software: bool, packs: bool) -> PortLayout {
        let default = if software { 512 } else { 4_096 };
        let payload = if packs { self.packed } else { 0 };
        PortLayout::new(self.ports.unwrap_or(default), self.payload.max(payload))
    }

    /// Adds a mailbox and removes mailboxes of dropped devices. Of two mailboxes with one owner, made by two threads at once, the
    /// first is everybody's: a call that was begun in one cannot be collected in the other.
    fn add(&self, mailbox: Mailbox) -> Arc<Mailbox> {
        let mut mailboxes = self
            .mailboxes
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = (mailboxes.iter()).find(|known| known.has_owner_of(&mailbox)) {
            return Arc::clone(known);
        }
        let mailbox = Arc::new(mailbox);
        let gone: Vec<_> = mailboxes
            .extract_if(.., |known| !known.is_alive())
            .collect();
        // Kernels still running there must not wait for an answer.
        gone.iter().for_each(|known| known.close());
        mailboxes.push(Arc::clone(&mailbox));
        if self.is_stopped() {
            mailbox.close();
        }
        self.version.fetch_add(1, Ordering::Release);
        drop(mailboxes);
        self.bell.ring();
        gone.iter()
            .for_each(|known| known.part_from_kernel_threads());
        mailbox
    }

    /// The mailbox of a device, made on first use: in live memory if `live`.
    pub(crate) fn mailbox(
        self: &Arc<Self>,
        device: &Arc<DeviceShared>,
        live: bool,
    ) -> Result<Arc<Mailbox>, PortsError> {
        let found = |mailboxes: &[Arc<Mailbox>]| {
            let mut mailboxes = mailboxes.iter();
            mailboxes
                .find(|mailbox| mailbox.is_of(device))
                .map(Arc::clone)
        };
        if let Some(mailbox) = found(&self.mailboxes()) {
            return Ok(mailbox);
        }
        let capabilities = &device.capabilities;
        // Ports that are copied around each launch are rather few.
        // Several threads serve the calls of a subgroup at once where each has a packet of its own.
        let packs = live && capabilities.packs_calls() && self.threads == 1;
        let layout = self.layout(!live || capabilities.software, packs);
        let (bytes, limits) = (layout.bytes(), &device.limits);
        let limit = (limits.max_storage_buffer_binding_size).min(limits.max_buffer_size);
        if bytes > limit {
            return Err(PortsError::TooLarge {
                bytes,
                limit,
                device: capabilities.name.clone(),
            });
        }
        let made = match live {
            true => {
                let wait_budget = WaitBudget::of(device, self.wait_budget);
                let mailbox = Mailbox::on_device(device, layout, wait_budget, self.threads == 1)?;
                if packs {
                    mailbox.share_packets();
                }
                mailbox
            }
            false => Mailbox::sliced(device, layout, self.threads == 1)?,
        };
        let mailbox = self.add(made);
        if live && self.threads == 1 && !self.served_here {
            mailbox.share_with_kernel_threads(self, device);
        }
        Ok(mailbox)
    }

    /// A mailbox in the host's memory.
    pub(crate) fn host_mailbox(&self, owner: Weak<()>) -> Result<Arc<Mailbox>, PortsError> {
        let made = Mailbox::on_host(owner, self.layout(true, false), self.threads == 1)?;
        Ok(self.add(made))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_stop;
