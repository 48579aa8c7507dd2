//! State shared by the callers of a server and its relay.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::admission::Admission;
use super::bulk::Bulks;
use super::direct::Direct;
use super::error::{CallError, ServerFailure};
use super::frame::Frame;
use super::interrupts::Interrupts;
use super::packed::Packer;
use super::parker::Parker;
use super::policy::LeasePolicy;
use super::sliced::Slices;
use super::stage::StageWord;
use super::statistics::Counters;
use super::waker_thread::PendingWakers;
use crate::clock::Instant;
use crate::device::queue::Batch;
use crate::device::resident::Resident;
use crate::device::server_pause::ServerLaunch;
use crate::device::wait::lock;
use crate::device::{Device, Event, ExecutionError};
use crate::kernel::host_layout::KnownLayouts;
use crate::kernel::server::HandlerDeclaration;
use crate::memory::SharedHeap;
use crate::rpc::Bell;

pub(super) use super::stage::Stage;

/// Failed calls whose messages are kept at most.
const FAULTS: usize = 1024;
/// Between two looks for calls of kernels.
const NAP: Duration = Duration::from_micros(200);
/// How long a caller waits for the message of a failed call: the lease ends at once then.
const FAULT_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
pub(super) type Meanwhile = Box<dyn FnOnce(&Core) + Send>;

pub(super) struct Core {
    pub id: u64,
    /// None for a loopback.
    pub device: Option<Device>,
    pub frame: Frame,
    pub handlers: Vec<Arc<HandlerDeclaration>>,
    /// The name of the program with the handlers, for messages.
    pub program: String,
    /// The layouts of Rust structures that handlers are compared with.
    pub known: KnownLayouts,
    pub policy: LeasePolicy,
    /// How many of the first ports are for urgent calls.
    pub urgent: usize,
    /// The most turns of a call.
    pub turns: u32,
    stage: StageWord,
    failure: Mutex<Option<Arc<ServerFailure>>>,
    interrupts: Interrupts,
    /// The batch of the lease on its way.
    batch: Mutex<Option<Arc<Batch>>>,
    /// Calls posted so far, where the ports are the host's alone: elsewhere nobody asks, and all callers would write one word.
    pub posted: AtomicU64,
    pub leases: AtomicU32,
    /// The last finished lease, with its error.
    pub ended: AtomicU32,
    /// The requests to leave known to the lease on the device at its beginning.
    granted: AtomicU32,
    /// The first request to leave behind the known ones, and the count of calls served by then.
    asked: AtomicU64,
    pub counters: Counters,
    pub parker: Parker,
    faults: Mutex<VecDeque<(u32, Arc<ExecutionError>)>>,
    fault_noted: Condvar,
    pub spinners: AtomicUsize,
    pub processors: usize,
    /// The unending lease.
    pub stuck: Mutex<Option<Event>>,
    pub wakers: Arc<PendingWakers>,
    /// The heap, of a server following pointers, and how often the heap had grown at the launch of the current lease:
    /// the lease does not see later growth. The most there is where none is on the device.
    pub heap: Option<SharedHeap>,
    pub covered: AtomicU64,
    /// Handlers see memory changed by launches and copies: arguments, or device globals.
    pub sees_memory: bool,
    pub admission: Admission,
    /// Launches of others go ahead of the next lease, on the processors of callers looking for answers.
    pub others_first: AtomicBool,
    /// The host has the heap, so no lease can be launched.
    pub held: AtomicBool,
    /// Has the next lease end without a word.
    #[cfg(test)]
    pub kill: AtomicBool,
    /// Has nobody ask for the answers of the next slice.
    #[cfg(test)]
    pub deaf: AtomicBool,
    /// The work of others while the next slice is gathered.
    #[cfg(test)]
    pub meanwhile: Mutex<Option<Meanwhile>>,
    /// Launches of other devices with possible calls, on their way.
    pub remote_launches: AtomicUsize,
    /// Where calls travel in slices: the path for single calls, and the path for slices written by callers.
    pub packer: Option<Packer>,
    pub bulks: Bulks,
    /// Where the kernel stays on the device: launches for batches of calls.
    pub direct: Option<Direct>,
    pub slices: Option<Mutex<Slices>>,
    /// Callers moving slices while waiting, and whether a caller found the slices taken.
    pub drivers: AtomicUsize,
    pub turn_wanted: AtomicBool,
    /// Rung when a slice of calls has been answered.
    pub landed: Bell,
}

impl Core {
    pub fn new(
        id: u64,
        device: Option<Device>,
        frame: Frame,
        handlers: Vec<Arc<HandlerDeclaration>>,
        policy: LeasePolicy,
        turns: u32,
    ) -> Self {
        Self {
            id,
            device,
            frame,
            handlers,
            program: String::new(),
            known: KnownLayouts::default(),
            policy,
            urgent: 0,
            turns,
            stage: StageWord::default(),
            failure: Mutex::default(),
            interrupts: Interrupts::default(),
            batch: Mutex::default(),
            posted: AtomicU64::new(0),
            leases: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            granted: AtomicU32::new(0),
            asked: AtomicU64::new(0),
            counters: Counters::default(),
            parker: Parker::default(),
            faults: Mutex::default(),
            fault_noted: Condvar::new(),
            spinners: AtomicUsize::new(0),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            stuck: Mutex::default(),
            wakers: Arc::default(),
            heap: None,
            sees_memory: false,
            admission: Admission::default(),
            others_first: AtomicBool::new(false),
            covered: AtomicU64::new(u64::MAX),
            held: AtomicBool::new(false),
            #[cfg(test)]
            kill: AtomicBool::new(false),
            #[cfg(test)]
            deaf: AtomicBool::new(false),
            #[cfg(test)]
            meanwhile: Mutex::default(),
            remote_launches: AtomicUsize::new(0),
            packer: None,
            bulks: Bulks::default(),
            direct: None,
            slices: None,
            drivers: AtomicUsize::new(0),
            turn_wanted: AtomicBool::new(false),
            landed: Bell::default(),
        }
    }

    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    pub fn set_stage(&self, stage: Stage) {
        if let Some(block) = self.frame.block() {
            block.close(matches!(stage, Stage::Closed | Stage::Failed));
        }
        self.stage.set(stage);
        self.parker.bell.ring();
        self.look_at_pause();
        self.landed.ring();
        self.wakers.look();
    }

    /// Asks a running server to stop; false if not running.
    pub fn begin_stop(&self) -> bool {
        let was_running = self.stage.begin_stop();
        self.interrupt();
        self.parker.bell.ring();
        self.look_at_pause();
        was_running
    }

    /// Counts a launch about to be recorded; `None` while servers of the device are to stay away.
    pub fn begin_launch(&self) -> Option<ServerLaunch> {
        match &self.device {
            Some(device) => ServerLaunch::begin(device),
            None => Some(ServerLaunch::default()),
        }
    }

    /// Whether servers of the device are to stay away.
    pub fn is_paused(&self) -> bool {
        let device = self.device.as_ref();
        device.is_some_and(|device| device.shared.residents.pauses.is_paused())
    }

    /// Sleeps out a pause, unless the server ends.
    pub fn sleep_out_pause(&self) {
        if let Some(device) = &self.device {
            let pauses = &device.shared.residents.pauses;
            pauses.sleep(|| self.stage() != Stage::Running);
        }
    }

    /// Has a relay look at the stage that sleeps out a pause.
    fn look_at_pause(&self) {
        if let Some(device) = &self.device {
            device.shared.residents.pauses.look();
        }
    }

    pub fn fail(&self, failure: ServerFailure) {
        log::error!("{failure}");
        *lock(&self.failure) = Some(Arc::new(failure));
        self.set_stage(Stage::Failed);
    }

    pub fn failure(&self) -> Option<Arc<ServerFailure>> {
        lock(&self.failure).clone()
    }

    pub fn forget_failure(&self) {
        *lock(&self.failure) = None;
    }

    pub fn interrupts(&self) -> u32 {
        self.interrupts.count()
    }

    /// Sets up a lease before its launch, given its turns and its first port; returns the initial count of requests to
    /// leave.
    pub fn grant(&self, lease: u32, most: u32, start: usize) -> u32 {
        // A lease asked to end before its beginning looks at all ports once.
        let granted = self.interrupts();
        self.frame.grant(lease, granted, most, start);
        self.granted.store(granted, Ordering::Release);
        granted
    }

    /// Notes the end of a lease, and the number of calls served after the request to leave. Its error was noted before.
    pub fn end_lease(&self, lease: u32, granted: u32) {
        let asked = self.asked.load(Ordering::Acquire);
        let (number, beats) = ((asked >> 32) as u32, asked as u32);
        if number == granted.wrapping_add(1) {
            let served = self.frame.beats().wrapping_sub(beats);
            (self.counters.after_asked).fetch_max(served, Ordering::Relaxed);
        }
        self.ended.store(lease, Ordering::Release);
    }

    pub fn set_batch(&self, batch: Option<Arc<Batch>>) {
        *lock(&self.batch) = batch;
    }

    pub fn is_resident(&self) -> bool {
        lock(&self.batch).is_some()
    }

    /// Why `handler` cannot be called now.
    pub fn refusal(&self, handler: &str) -> Option<CallError> {
        match self.stage() {
            Stage::Running => None,
            Stage::Stopping | Stage::Closed => Some(CallError::Stopped {
                handler: handler.to_owned(),
            }),
            Stage::Failed => Some(self.failed(handler)),
        }
    }

    /// Why a posted call of `handler` will have no answer, unless there is an answer already.
    pub fn loss(&self, handler: &str) -> Option<CallError> {
        match self.stage() {
            Stage::Running | Stage::Stopping => None,
            // The relay answers the remaining calls before announcing the end.
            Stage::Closed | Stage::Failed => self.refusal(handler),
        }
    }

    /// Why a call awaited on this thread cannot be served during the wait.
    pub fn hindrance(&self, handler: &str) -> Option<CallError> {
        if !self.held.load(Ordering::Acquire) {
            return None;
        }
        self.heap
            .as_ref()?
            .is_held_here()
            .then(|| CallError::HostAccess {
                handler: handler.to_owned(),
            })
    }

    fn failed(&self, handler: &str) -> CallError {
        let handler = handler.to_owned();
        match self.failure() {
            Some(failure) => CallError::Server { handler, failure },
            // The server is being restarted.
            None => CallError::Stopped { handler },
        }
    }

    /// Whether calls travel in slices.
    pub fn is_sliced(&self) -> bool {
        self.device.is_some() && self.frame.is_sliced()
    }

    /// Where the server is.
    pub fn place(&self) -> String {
        (self.device.as_ref())
            .map_or_else(|| "the host".to_owned(), |device| device.name().to_owned())
    }

    /// Whether the next lease, and the current lease, see the caller's recorded work, and all of the heap; asks the
    /// current lease to end if not.
    pub fn is_up_to_date(&self) -> bool {
        if !self.admits() {
            return false;
        }
        let Some(heap) = &self.heap else {
            return true;
        };
        let is_so = self.covered.load(Ordering::SeqCst) >= heap.shared.grown();
        if !is_so {
            self.interrupt();
        }
        is_so
    }

    /// Tells the server of so many posted calls, the last at `port`.
    pub fn rung(&self, port: usize, posts: usize) {
        if self.frame.is_sliced() {
            // A reader of the count sees the calls.
            self.posted.fetch_add(posts as u64, Ordering::Release);
        }
        if !self.is_sliced() {
            self.frame.ring(port, posts);
        }
        self.wake();
    }

    /// Wakes a sleeping relay. Behind a post.
    pub fn wake(&self) {
        self.parker.wake();
    }

    /// A launch of another device with possible calls is on its way.
    pub fn begin_remote_launch(&self) {
        self.remote_launches.fetch_add(1, Ordering::AcqRel);
        self.parker.bell.ring();
    }

    /// Sleeps until there is something to do, or so long.
    pub fn sleep(&self, time: Duration) {
        let slept = self.parker.sleep(|| {
            let is_awaited = self.frame.is_awaited() || !self.bulks.is_empty();
            if is_awaited || self.stage() != Stage::Running {
                return None;
            }
            // Kernels ring no bell heard by the host.
            Some(match self.remote_launches.load(Ordering::Acquire) {
                0 => time,
                _ => time.min(NAP),
            })
        });
        if slept {
            self.counters.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the failure of a lease.
    pub fn note_fault(&self, lease: u32, error: Arc<ExecutionError>) {
        let mut faults = lock(&self.faults);
        if faults.len() >= FAULTS {
            faults.pop_front();
        }
        faults.push_back((lease, error));
        self.fault_noted.notify_all();
    }

    /// The failure of a call served by a lease. A lease reports at its end, and ends when a call has failed.
    pub fn fault(&self, lease: u32) -> Option<Arc<ExecutionError>> {
        // Behind the calls of an endless lease.
        let most = FAULT_WAIT.saturating_add(self.policy.stuck);
        let deadline = Instant::now().checked_add(most);
        let mut faults = lock(&self.faults);
        let mut missed = false;
        loop {
            if let Some((_, error)) = faults.iter().find(|(known, _)| *known == lease) {
                return Some(Arc::clone(error));
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            // A lease notes its error before the next lease begins, and before the server ends.
            let is_past = self.leases.load(Ordering::Relaxed) != lease
                || self.ended.load(Ordering::Acquire) == lease
                || matches!(self.stage(), Stage::Closed | Stage::Failed);
            if left.is_zero() || missed {
                return None;
            }
            missed = is_past;
            if missed {
                // Another look, for a note made in between.
                continue;
            }
            let waited = self
                .fault_noted
                .wait_timeout(faults, left.min(Duration::from_millis(20)));
            faults = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Resident for Core {
    fn id(&self) -> u64 {
        self.id
    }

    fn interrupt(&self) {
        self.interrupts.ask(|number| {
            self.frame.yield_to(number);
            if number == self.granted.load(Ordering::Acquire).wrapping_add(1) {
                // Behind the word: calls served later are served with knowledge of the word.
                let asked = u64::from(number) << 32 | u64::from(self.frame.beats());
                self.asked.store(asked, Ordering::Release);
            }
        });
    }

    fn is_in(&self, batch: &Arc<Batch>) -> bool {
        (lock(&self.batch).as_ref()).is_some_and(|own| Arc::ptr_eq(own, batch))
    }

    fn stuck(&self) -> Option<Event> {
        lock(&self.stuck).clone()
    }
}
