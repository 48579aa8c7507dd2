//! Mailboxes: the ports of a device in its live memory, copies of ports owned by a device during launches, or ports in
//! memory of the host.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock, Weak};

use super::backoff::Backoff;
use super::dispatcher::Dispatcher;
use super::error::PortsError;
use super::kernel_threads::KernelThreads;
use super::port::client::Client;
use super::port::layout::{BACKOFF_AFTER, BUDGET, LINE, PACKS, PortLayout, WAIT_BUDGET};
use super::port::server::{Server, Sweeper};
use super::port::words::{HostWords, Words};
use super::port_memory::{OwnWords, PortMemory};
use super::services::Shared;
use super::slice::Sliced;
use super::stream::Sessions;
use crate::device::submissions::{Served, serve_device};
use crate::device::{DeviceShared, LiveError, unique_id};
use crate::memory::MemoryError;

/// The client of a mailbox in the host's memory.
pub(crate) type HostClient = Client<OwnWords>;

/// Turns after which a caller on an adapter with a loop budget makes each turn take longer.
const BACKOFF_TURNS: u32 = 24;

/// Ports, and their owner.
pub(crate) struct Mailbox {
    /// For the bind-group cache: of the ports, and of the memory of kernels' posts where separate.
    pub(crate) id: u64,
    posts_id: u64,
    owner: Owner,
    server: Server<Memory>,
    sessions: Sessions,
    backoff: Option<Arc<Backoff>>,
    /// The device's threads also serving calls, once there are some.
    kernel_threads: OnceLock<Arc<KernelThreads>>,
    /// The device whose kernels run while they are served; none where the callers have ended, or are no kernels.
    serves: Option<Served>,
}

enum Owner {
    Device(Weak<DeviceShared>),
    Host(Weak<()>),
}

enum Memory {
    Ports(PortMemory),
    /// Ports owned by a device during its launches.
    Sliced(Sliced),
}

impl Memory {
    /// The server's reads of its clients.
    fn words(&self) -> &HostWords {
        match self {
            Self::Ports(ports) => ports.up(),
            Self::Sliced(sliced) => &sliced.words,
        }
    }
}

impl Words for Memory {
    fn load(&self, index: usize) -> u32 {
        self.words().load(index)
    }

    fn store(&self, index: usize, value: u32) {
        match self {
            Self::Ports(ports) => ports.store(index, value),
            Self::Sliced(sliced) => sliced.words.store(index, value),
        }
    }

    fn store_among(&self, index: usize, words: &[u32; LINE], among: u32) {
        match self {
            Self::Ports(ports) => ports.store_among(index, words, among),
            Self::Sliced(sliced) => sliced.words.store_among(index, words, among),
        }
    }

    fn is_sealed(&self) -> bool {
        matches!(self, Self::Ports(ports) if ports.is_sealed())
    }

    fn load_all(&self, index: usize, words: &mut [u32]) {
        self.words().load_all(index, words);
    }

    fn store_all(&self, index: usize, words: &[u32]) {
        match self {
            Self::Ports(ports) => ports.store_all(index, words),
            Self::Sliced(sliced) => sliced.words.store_all(index, words),
        }
    }

    fn differing(&self, index: usize, known: &[AtomicU32; LINE]) -> u32 {
        self.words().differing(index, known)
    }
}

/// How long kernels wait, in looks at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitBudget {
    call: u32,
    invocation: u32,
    backoff_after: u32,
}

impl WaitBudget {
    /// The budget for a device, with a limit for each call if given.
    pub fn of(device: &DeviceShared, call: Option<u32>) -> Self {
        let capabilities = &device.capabilities;
        let budget = capabilities
            .needs_loop_guard()
            .then(|| capabilities.loop_budget().unwrap_or(65_535));
        Self {
            call: call.unwrap_or(u32::MAX),
            // The rest is for the kernel's own loops.
            invocation: budget.map_or(0, |budget| budget / 8 * 7),
            backoff_after: budget.map_or(u32::MAX, |_| BACKOFF_TURNS),
        }
    }

    /// Of callers waiting for nothing during a launch: a taken port stays taken.
    pub fn of_slices(device: &DeviceShared, ports: usize) -> Self {
        Self {
            call: 3 * ports as u32 + 16,
            backoff_after: u32::MAX,
            ..Self::of(device, None)
        }
    }

    /// The header's words for the budget.
    pub fn words(self) -> [(usize, u32); 3] {
        [
            (WAIT_BUDGET, self.call),
            (BUDGET, self.invocation),
            (BACKOFF_AFTER, self.backoff_after),
        ]
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox")
            .field("layout", &self.layout())
            .finish_non_exhaustive()
    }
}

impl Mailbox {
    /// Ports in the live memory of a device. `is_alone`: a single thread at most will ever serve them.
    pub fn on_device(
        device: &Arc<DeviceShared>,
        layout: PortLayout,
        wait_budget: WaitBudget,
        is_alone: bool,
    ) -> Result<Self, LiveError> {
        let bytes = layout.bytes();
        let ports = PortMemory::on_device(device, bytes, "tombolo calls", "tombolo posts")?;
        let memory = Memory::Ports(ports);
        let withdraws = wait_budget.invocation != 0 && !device.capabilities.splits_ports();
        let server = Server::new(memory, layout, is_alone).with_withdrawal(withdraws);
        let mailbox = Self::of_device(device, server, wait_budget, Backoff::of(device)?);
        Ok(Self {
            serves: Some(device.submissions.served()),
            ..mailbox
        })
    }

    /// Has the invocations of a subgroup share packets. Before any kernel calls.
    pub fn share_packets(&self) {
        self.server.words().store(PACKS, 1);
    }

    /// Ports owned by a device during a launch; requests leave, and answers arrive, between launches.
    ///
    /// # Errors
    /// [`PortsError::Memory`]; [`PortsError::Live`] without memory to back off in.
    pub fn sliced(
        device: &Arc<DeviceShared>,
        layout: PortLayout,
        is_alone: bool,
    ) -> Result<Self, PortsError> {
        let wait_budget = WaitBudget::of_slices(device, layout.ports);
        let server = Server::new(
            Memory::Sliced(Sliced::new(device, layout)?),
            layout,
            is_alone,
        );
        let backoff = Backoff::of(device)?;
        Ok(Self::of_device(device, server, wait_budget, backoff))
    }

    fn of_device(
        device: &Arc<DeviceShared>,
        server: Server<Memory>,
        wait_budget: WaitBudget,
        backoff: Option<Arc<Backoff>>,
    ) -> Self {
        let words = server.words();
        for (word, value) in wait_budget.words() {
            words.store(word, value);
        }
        Self::new(Owner::Device(Arc::downgrade(device)), server, backoff)
    }

    fn new(owner: Owner, server: Server<Memory>, backoff: Option<Arc<Backoff>>) -> Self {
        let layout = server.layout();
        Self {
            id: unique_id(),
            posts_id: unique_id(),
            owner,
            sessions: Sessions::new(layout.ports, layout.payload),
            server,
            backoff,
            kernel_threads: OnceLock::new(),
            serves: None,
        }
    }

    /// Ports in the host's memory, for as long as `owner` lives.
    ///
    /// # Errors
    /// [`MemoryError::HostMemory`].
    pub fn on_host(
        owner: Weak<()>,
        layout: PortLayout,
        is_alone: bool,
    ) -> Result<Self, MemoryError> {
        let words = OwnWords::new("ports", layout.words())?;
        let server = Server::new(Memory::Ports(PortMemory::Host(words)), layout, is_alone);
        Ok(Self::new(Owner::Host(owner), server, None))
    }

    pub fn layout(&self) -> PortLayout {
        self.server.layout()
    }

    /// Bytes of the ports, in all their memories.
    pub fn bytes(&self) -> u64 {
        let memories = match self.server.words() {
            Memory::Ports(ports) => 1 + u64::from(ports.is_split()),
            Memory::Sliced(_) => 2,
        };
        memories * self.layout().bytes()
    }

    /// Whether any possible caller is left.
    pub fn is_alive(&self) -> bool {
        match &self.owner {
            Owner::Device(device) => device.strong_count() > 0,
            Owner::Host(owner) => owner.strong_count() > 0,
        }
    }

    pub fn is_of(&self, device: &Arc<DeviceShared>) -> bool {
        matches!(&self.owner, Owner::Device(own) if std::ptr::eq(own.as_ptr(), Arc::as_ptr(device)))
    }

    /// Whether both are of one device, or of one client on the host.
    pub fn has_owner_of(&self, other: &Self) -> bool {
        match (&self.owner, &other.owner) {
            (Owner::Device(one), Owner::Device(two)) => Weak::ptr_eq(one, two),
            (Owner::Host(one), Owner::Host(two)) => Weak::ptr_eq(one, two),
            (Owner::Device(_), Owner::Host(_)) | (Owner::Host(_), Owner::Device(_)) => false,
        }
    }

    /// The buffer to bind, if any.
    pub fn buffer(&self) -> Option<&wgpu::Buffer> {
        match self.server.words() {
            Memory::Ports(ports) => ports.buffers()[0],
            Memory::Sliced(sliced) => Some(sliced.buffer()),
        }
    }

    /// The buffer to bind for kernels' posts, where separate.
    pub fn posts(&self) -> Option<(u64, &wgpu::Buffer)> {
        match self.server.words() {
            Memory::Ports(ports) => ports.buffers()[1].map(|posts| (self.posts_id, posts)),
            Memory::Sliced(_) => None,
        }
    }

    /// The memory kernels read for delays, if any.
    pub fn backoff(&self) -> Option<&Arc<Backoff>> {
        self.backoff.as_ref()
    }

    /// The carrier of the ports to and from their device, where not in live memory.
    pub fn as_sliced(&self) -> Option<&Sliced> {
        match self.server.words() {
            Memory::Sliced(sliced) => Some(sliced),
            Memory::Ports(_) => None,
        }
    }

    /// A client for threads; of ports outside of all devices.
    pub fn client(&self, start: usize) -> HostClient {
        let words = match self.server.words() {
            Memory::Ports(PortMemory::Host(words)) => words.clone(),
            // Never asked for; its calls find every port busy.
            Memory::Ports(_) | Memory::Sliced(_) => OwnWords::default(),
        };
        Client::new(words, self.layout(), start)
    }

    /// Whether kernels wait for answers.
    pub fn serves_running_kernels(&self) -> bool {
        self.serves.is_some()
    }

    pub fn close(&self) {
        self.server.close();
        if let Some(sliced) = self.as_sliced() {
            sliced.changed();
        }
    }

    /// Has threads of kernels serve the calls as well, where the threads of `device` can.
    pub(super) fn share_with_kernel_threads(
        self: &Arc<Self>,
        services: &Arc<Shared>,
        device: &DeviceShared,
    ) {
        let Some(threads) = KernelThreads::of(device) else {
            return;
        };
        if self.kernel_threads.set(Arc::clone(&threads)).is_ok() {
            threads.add(services, self);
        }
    }

    /// Ends [`Self::share_with_kernel_threads`].
    pub(super) fn part_from_kernel_threads(&self) {
        if let Some(threads) = self.kernel_threads.get() {
            threads.remove(self);
        }
    }

    pub(super) fn has_kernel_threads(&self) -> bool {
        self.kernel_threads.get().is_some()
    }

    /// Looks at every port once and serves the posted calls; the number of calls served.
    pub(super) fn sweep(&self, sweeper: &mut Sweeper, dispatcher: &Dispatcher<'_>) -> usize {
        serve_device(self.serves.as_ref());
        let served = self.server.sweep(sweeper, &dispatcher.at(&self.sessions));
        self.tell(served)
    }

    /// Looks at the ports busy last; the number of calls served.
    pub(super) fn glance(&self, sweeper: &mut Sweeper, dispatcher: &Dispatcher<'_>) -> usize {
        serve_device(self.serves.as_ref());
        let served = self.server.glance(sweeper, &dispatcher.at(&self.sessions));
        self.tell(served)
    }

    fn tell(&self, served: usize) -> usize {
        if let (Some(sliced), 1..) = (self.as_sliced(), served) {
            sliced.changed();
        }
        served
    }
}
