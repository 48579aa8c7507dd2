//! The host's side: registered functions, and the threads that serve calls to them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::idle::{Bell, IdlePolicy, Pause};
use super::mailbox::{Mailbox, Patience};
use super::port::layout::PortLayout;
use super::port::protocol::CallStatus;
use super::port::server::{Dispatch, Sweeper};
use super::statistics::{Counters, ServiceStatistics, TIMED};
use crate::device::DeviceShared;
use crate::device::wait::lock;
use crate::kernel::calls::{CallDeclaration, CallSet};

/// What runs a call: arguments in, results out.
pub(super) type Serve = Box<dyn Fn(&[u32], &mut Vec<u32>) + Send + Sync>;

/// A registered function.
pub(super) struct Function {
    pub(super) declaration: Arc<CallDeclaration>,
    pub(super) opcode: u32,
    pub(super) argument_words: usize,
    pub(super) serve: Serve,
    /// One for each server thread, which alone writes it.
    pub(super) counters: Box<[Counters]>,
}

/// Functions of the host that kernels call while they run, and the threads that serve them.
///
/// ```
/// use tombolo::{HostServices, Program};
///
/// let services = HostServices::builder()
///     .call("fn square(x: f32) -> f32", |x: f32| x * x)
///     .start()?;
/// let program = Program::with_services("calls.wgsl", "
///     @group(0) @binding(0) var<storage, read_write> values: array<f32>;
///     @compute @workgroup_size(64)
///     fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         values[id.x] = square(values[id.x]);
///     }", &services)?;
/// // kernel.launch().services(&services).buffer("values", &values) …
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # In WGSL
///
/// A program made by [`Program::with_services`](crate::Program::with_services) calls the functions by their names.
/// For a function `fn f(x: X) -> R` it may call
///
/// - `f(x)`: waits for the result. A call that fails (see [`CallStatus`]) gives a zero value and *fails the launch*
///   with [`ExecutionError::CallFailed`](crate::ExecutionError::CallFailed), so that no such value is taken for a
///   result.
/// - `f_try(x)`: gives `f_reply { status: u32, value: R }` and leaves it to the kernel what a failure means;
///   `status` is one of `CALL_DONE`, `CALL_TIMED_OUT`, `CALL_STOPPED`, `CALL_UNKNOWN`, `CALL_MALFORMED` and
///   `CALL_PANICKED`, and `value` is zero unless it is `CALL_DONE`.
/// - `f_post(x)`: posts the call and goes on. Its result is dropped. Gives `CALL_DONE` once the call is posted;
///   it is served at most once, and exactly once if the services run on.
///
/// Calls may stand anywhere, in branches and loops, for one lane or all. Arguments and results are host-shareable
/// types without atomics, at most as long as a port ([`HostServicesBuilder::payload`](crate::HostServicesBuilder::payload)); pointers cost two words.
///
/// # How long a call waits
///
/// Without limit, on devices that end no loops, unless [`HostServicesBuilder::patience`](crate::HostServicesBuilder::patience) sets one; until the services
/// are stopped at the latest. On adapters with a loop budget an invocation may take seven eighths of that for
/// waiting, in all its calls together, and slows down between two looks so that this lasts (about a tenth of a second
/// where one lane waits, longer where more do); a call that ran out has the status `CALL_TIMED_OUT`.
///
/// Dropping the services stops them.
pub struct HostServices {
    pub(crate) shared: Arc<Shared>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What server threads and launches share.
pub(crate) struct Shared {
    pub(super) functions: Vec<Function>,
    /// Indices into `functions`, by opcode.
    pub(super) by_opcode: Vec<(u32, usize)>,
    pub(crate) calls: CallSet,
    pub(super) ports: Option<usize>,
    pub(super) payload: usize,
    pub(super) idle: IdlePolicy,
    pub(super) threads: usize,
    pub(super) patience: Option<u32>,
    pub(super) mailboxes: RwLock<Vec<Arc<Mailbox>>>,
    /// Changes with `mailboxes`.
    pub(super) version: AtomicU64,
    pub(super) stopped: AtomicBool,
    pub(crate) bell: Bell,
    pub(super) unknown: AtomicU64,
    pub(super) oversize: AtomicU64,
}

impl HostServices {
    /// What was served so far.
    pub fn statistics(&self) -> ServiceStatistics {
        let shared = &self.shared;
        let read = |function: &Function| {
            Counters::read(&function.counters, &function.declaration.signature.name)
        };
        ServiceStatistics {
            functions: shared.functions.iter().map(read).collect(),
            unknown: shared.unknown.load(Ordering::Relaxed),
            oversize: shared.oversize.load(Ordering::Relaxed),
            port_bytes: shared
                .mailboxes()
                .iter()
                .map(|mailbox| mailbox.layout().bytes())
                .sum(),
        }
    }

    /// Bytes that each device takes for its ports, in live memory:
    /// `64 + 3 * pad(4 * N) + 2 * N * pad(16 + M)` for `N` ports of `M` bytes a direction, where `pad` rounds up to
    /// 64. `ports` is the number of ports, by default 512 on software adapters and 4,096 elsewhere.
    pub fn port_bytes(&self, ports: usize) -> u64 {
        PortLayout::new(ports, self.shared.payload).bytes()
    }

    /// Stops the services: kernels that call get the status [`CallStatus::Stopped`], those that wait too, unless
    /// their answer is there already. Returns when the last call that was being served has ended. Stopping twice
    /// does nothing.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        for mailbox in self.shared.mailboxes() {
            mailbox.close();
        }
        self.shared.bell.ring();
        for thread in lock(&self.threads).drain(..) {
            // A server thread never panics: handlers are caught.
            let _ = thread.join();
        }
    }
}

impl Drop for HostServices {
    fn drop(&mut self) {
        self.stop();
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

    fn layout(&self, software: bool) -> PortLayout {
        let default = if software { 512 } else { 4_096 };
        PortLayout::new(self.ports.unwrap_or(default), self.payload)
    }

    /// Adds a mailbox and forgets those of devices that are gone.
    fn add(&self, mailbox: Mailbox) -> Arc<Mailbox> {
        let mailbox = Arc::new(mailbox);
        let mut mailboxes = self
            .mailboxes
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        mailboxes.retain(|known| {
            let alive = known.is_alive();
            if !alive {
                // What such a device still runs must not wait for anybody.
                known.close();
            }
            alive
        });
        mailboxes.push(Arc::clone(&mailbox));
        if self.is_stopped() {
            mailbox.close();
        }
        self.version.fetch_add(1, Ordering::Release);
        drop(mailboxes);
        self.bell.ring();
        mailbox
    }

    /// The mailbox of a device, made when it is first asked for.
    pub(crate) fn mailbox(
        &self,
        device: &Arc<DeviceShared>,
    ) -> Result<Arc<Mailbox>, crate::device::LiveError> {
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
        let patience = Patience::of(device, self.patience);
        let made = Mailbox::on_device(
            device,
            self.layout(capabilities.software),
            patience,
            self.threads == 1,
        )?;
        // Two threads may come here at once: the second mailbox is then one too many, and served like any other.
        Ok(found(&self.mailboxes()).unwrap_or_else(|| self.add(made)))
    }

    /// A mailbox in the host's memory.
    pub(crate) fn host_mailbox(&self, owner: Weak<()>) -> Arc<Mailbox> {
        self.add(Mailbox::on_host(
            owner,
            self.layout(true),
            self.threads == 1,
        ))
    }

    /// A server thread, the one with that number.
    pub(super) fn run(&self, thread: usize) {
        let desk = Desk::new(self, thread);
        let mut known = 0;
        let mut mailboxes: Vec<(Arc<Mailbox>, Sweeper)> = Vec::new();
        let (mut quiet, mut naps) = (0u32, 0u32);
        // When the last call was served, or the thread was woken; noticed when there is time to look at a clock.
        let mut since = None;
        loop {
            let stopped = self.is_stopped();
            let rung = self.bell.count();
            let version = self.version.load(Ordering::Acquire);
            if version != known {
                known = version;
                mailboxes = (self.mailboxes().into_iter())
                    .map(|m| (m, Sweeper::default()))
                    .collect();
            }
            let sweeps = mailboxes.iter_mut();
            let mut served: usize = sweeps
                .map(|(mailbox, sweeper)| mailbox.sweep(sweeper, &desk))
                .sum();
            if stopped {
                // One last sweep, since a client that goes on posting must not keep the thread.
                return;
            }
            // Who has called is likely to call again; and others are found soon enough.
            for _ in 0..GLANCES {
                let glances = mailboxes.iter_mut();
                served += glances
                    .map(|(mailbox, sweeper)| mailbox.glance(sweeper, &desk))
                    .sum::<usize>();
            }
            if served > 0 {
                (quiet, naps, since) = (0, 0, None);
                continue;
            }
            quiet = quiet.saturating_add(1);
            let idle = || since.get_or_insert_with(Instant::now).elapsed();
            match self.idle.after(quiet, naps, idle) {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Sleep(time) => {
                    self.bell.sleep(rung, time);
                    naps = naps.saturating_add(1);
                    if self.bell.count() != rung {
                        (quiet, naps, since) = (0, 0, None);
                    }
                }
            }
        }
    }
}

/// Looks at busy ports between two at all.
const GLANCES: usize = 8;

/// Functions that take no longer than this are served with the answers to other calls held back meanwhile.
const QUICK: Duration = Duration::from_micros(1);

/// What one server thread knows of the functions.
struct Desk<'s> {
    shared: &'s Shared,
    thread: usize,
    /// The function called last: most calls are of the same one.
    last: Cell<(u32, Option<usize>)>,
    /// For each function, whether it was quick when it was timed last.
    quick: Box<[Cell<bool>]>,
}

impl<'s> Desk<'s> {
    fn new(shared: &'s Shared, thread: usize) -> Self {
        let mut desk = Self {
            shared,
            thread,
            last: Cell::new((0, None)),
            quick: shared.functions.iter().map(|_| Cell::new(false)).collect(),
        };
        desk.last = Cell::new((0, desk.search(0)));
        desk
    }

    fn search(&self, opcode: u32) -> Option<usize> {
        let functions = &self.shared.by_opcode;
        let found = functions.binary_search_by_key(&opcode, |(opcode, _)| *opcode);
        Some(functions.get(found.ok()?)?.1)
    }

    /// The index of a function.
    fn find(&self, opcode: u32) -> Option<usize> {
        let (last, found) = self.last.get();
        if last == opcode {
            return found;
        }
        let found = self.search(opcode);
        self.last.set((opcode, found));
        found
    }
}

impl Dispatch for Desk<'_> {
    fn is_quick(&self, opcode: u32) -> bool {
        // With several threads the others rely on it that what was served is known.
        self.shared.threads == 1 && (self.find(opcode)).is_none_or(|index| self.quick[index].get())
    }

    fn dispatch(&self, opcode: u32, arguments: &[u32], results: &mut Vec<u32>) -> CallStatus {
        let shared = self.shared;
        let Some(index) = self.find(opcode) else {
            // The first of its kind is worth a line; a kernel that goes on must not fill the log.
            if shared.unknown.fetch_add(1, Ordering::Relaxed) == 0 {
                log::warn!(
                    "a kernel called the function {opcode:#010x}, which these services do not have"
                );
            }
            return CallStatus::Unknown;
        };
        let function = &shared.functions[index];
        let counters = &function.counters[self.thread];
        if arguments.len() != function.argument_words {
            if counters.malformed.add(1) == 0 {
                log::warn!(
                    "a kernel called `{}` with {} words of arguments instead of {}",
                    function.declaration.signature.name,
                    arguments.len(),
                    function.argument_words
                );
            }
            return CallStatus::Malformed;
        }
        let number = counters.calls.add(1);
        let begun = number.is_multiple_of(TIMED).then(Instant::now);
        let served = catch_unwind(AssertUnwindSafe(|| (function.serve)(arguments, results)));
        if let Some(begun) = begun {
            let took = begun.elapsed();
            counters.time(took);
            self.quick[index].set(took < QUICK);
        }
        counters.bytes_in.add(arguments.len() as u64 * 4);
        if served.is_err() {
            results.clear();
            if counters.panics.add(1) == 0 {
                let name = &function.declaration.signature.name;
                log::error!(
                    "`{name}` panicked while it served a kernel; further panics are counted"
                );
            }
            return CallStatus::Panicked;
        }
        counters.bytes_out.add(results.len() as u64 * 4);
        CallStatus::Done
    }

    fn oversize(&self) {
        if self.shared.oversize.fetch_add(1, Ordering::Relaxed) == 0 {
            log::warn!("a kernel posted a call that is longer than its port");
        }
    }
}

#[cfg(test)]
#[path = "services_tests.rs"]
mod tests;
