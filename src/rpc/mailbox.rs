//! Mailboxes: the ports of one device in its live memory, or ports in memory of the host.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use super::port::client::Client;
use super::port::layout::{BUDGET, CALM, LINE, PATIENCE, PortLayout};
use super::port::server::{Dispatch, Server, Sweeper};
use super::port::words::{HostWords, Words, host_words};
use crate::device::live::LiveBuffer;
use crate::device::words::Words as _;
use crate::device::{DeviceShared, LiveError, unique_id};

/// The client of a mailbox in the host's memory.
pub(crate) type HostClient = Client<Arc<HostWords>>;

/// Turns after which a caller on an adapter with a loop budget makes each turn take longer.
const CALM_AFTER: u32 = 24;

/// Ports, and whose they are.
pub(crate) struct Mailbox {
    /// For the bind-group cache.
    pub(crate) id: u64,
    owner: Owner,
    server: Server<Memory>,
}

enum Owner {
    Device(Weak<DeviceShared>),
    Host(Weak<()>),
}

enum Memory {
    Live(LiveBuffer),
    Host(Arc<HostWords>),
}

impl Memory {
    fn words(&self) -> &HostWords {
        match self {
            Self::Live(live) => live.words(),
            Self::Host(words) => words,
        }
    }
}

impl Words for Memory {
    fn load(&self, index: usize) -> u32 {
        self.words().load(index)
    }

    fn store(&self, index: usize, value: u32) {
        self.words().store(index, value);
    }

    fn load_all(&self, index: usize, words: &mut [u32]) {
        self.words().load_all(index, words);
    }

    fn store_all(&self, index: usize, words: &[u32]) {
        self.words().store_all(index, words);
    }

    fn differing(&self, index: usize, known: &[AtomicU32; LINE]) -> u32 {
        self.words().differing(index, known)
    }
}

/// How long kernels wait, in looks at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    call: u32,
    invocation: u32,
    calm: u32,
}

impl Patience {
    /// What suits a device, with a limit for each call if there is one.
    pub fn of(device: &DeviceShared, call: Option<u32>) -> Self {
        let capabilities = &device.capabilities;
        let budget = capabilities
            .needs_loop_guard()
            .then(|| capabilities.loop_budget().unwrap_or(65_535));
        Self {
            call: call.unwrap_or(u32::MAX),
            // The rest is for the kernel's own loops.
            invocation: budget.map_or(0, |budget| budget / 8 * 7),
            calm: budget.map_or(u32::MAX, |_| CALM_AFTER),
        }
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
    /// Ports in the live memory of a device. `is_alone`: one thread at most will ever serve them.
    pub fn on_device(
        device: &Arc<DeviceShared>,
        layout: PortLayout,
        patience: Patience,
        is_alone: bool,
    ) -> Result<Self, LiveError> {
        let backend = device.capabilities.backend;
        let live = LiveBuffer::new(&device.raw, backend, layout.bytes(), "tombolo calls")?;
        let server = Server::new(Memory::Live(live), layout, is_alone);
        let words = server.words();
        words.store(PATIENCE, patience.call);
        words.store(BUDGET, patience.invocation);
        words.store(CALM, patience.calm);
        Ok(Self {
            id: unique_id(),
            owner: Owner::Device(Arc::downgrade(device)),
            server,
        })
    }

    /// Ports in the host's memory, for as long as `owner` lives.
    pub fn on_host(owner: Weak<()>, layout: PortLayout, is_alone: bool) -> Self {
        let words = host_words(layout.words());
        Self {
            id: unique_id(),
            owner: Owner::Host(owner),
            server: Server::new(Memory::Host(words), layout, is_alone),
        }
    }

    pub fn layout(&self) -> PortLayout {
        self.server.layout()
    }

    /// Whether anybody is left who may call.
    pub fn is_alive(&self) -> bool {
        match &self.owner {
            Owner::Device(device) => device.strong_count() > 0,
            Owner::Host(owner) => owner.strong_count() > 0,
        }
    }

    pub fn is_of(&self, device: &Arc<DeviceShared>) -> bool {
        matches!(&self.owner, Owner::Device(own) if std::ptr::eq(own.as_ptr(), Arc::as_ptr(device)))
    }

    /// The buffer to bind, where there is one.
    pub fn buffer(&self) -> Option<&wgpu::Buffer> {
        match self.server.words() {
            Memory::Live(live) => Some(live.buffer()),
            Memory::Host(_) => None,
        }
    }

    /// A client for threads; of ports that no device has.
    pub fn client(&self, start: usize) -> HostClient {
        let words = match self.server.words() {
            Memory::Host(words) => Arc::clone(words),
            // Never asked for; its calls find every port busy.
            Memory::Live(_) => host_words(0),
        };
        Client::new(words, self.layout(), start)
    }

    pub fn close(&self) {
        self.server.close();
    }

    pub fn sweep(&self, sweeper: &mut Sweeper, dispatch: &impl Dispatch) -> usize {
        self.server.sweep(sweeper, dispatch)
    }

    pub fn glance(&self, sweeper: &mut Sweeper, dispatch: &impl Dispatch) -> usize {
        self.server.glance(sweeper, dispatch)
    }
}
