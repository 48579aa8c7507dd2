//! The memory of a server: the ports, and around them the words for the begin and end of leases.
//!
//! ```text
//!      0        the ports (`rpc::port::layout`), of which threads of the host are the clients
//!   ports.words()  bell | yielded | granted | lease | most | start | left | arrived | …  one cache line, of the host but for
//!                  the last two, where several work-groups note who has left, and how many have come
//!        + 16   done       one word for each lane: the lease that it has left         written by the kernel
//!        …      beat       one word for each lane: calls it has served in this lease  written by the kernel
//! ```
//!
//! The clients' locks are not in there: threads of the host keep the locks to themselves. In place of locks the kernel
//! notes the calls taken. Devices with memory of their own get two copies of each: the host's writes lie where the
//! kernel polls, and the kernel's writes where the host polls; and their mailboxes lie in the packets. Without live memory
//! the ports are the host's alone, and calls are taken out in the kernel's place ([`super::sliced`]).

use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::block::Block;
use super::settle::{self, Calls};
use crate::device::{DeviceShared, ImportError, LiveError};
use crate::kernel::server::Places;
use crate::memory::MemoryError;
use crate::rpc::port::layout::{BEGUN, LINE, PREFIX, PortLayout, SEAL};
use crate::rpc::port::seal::{mixed, mixed_all};
use crate::rpc::port::words::{ClientWords, HostWords, Words};
use crate::rpc::{OwnWords, PortMemory};

/// Where the words are.
enum Memory {
    /// Memory of the host alone: for a loopback, with a thread as the server, or for calls in slices.
    Ports(PortMemory),
    /// Pages of the host used by several devices in place: kernels of other devices call, too.
    Block(Block),
}

/// What the host keeps to itself of a port, in a line of its own: each is written with every call.
#[derive(Default)]
#[repr(align(64))]
struct Own {
    lock: AtomicU32,
    /// The last post, since a window over the bus is slow to read.
    request: AtomicU32,
}

/// The words of one server.
pub(super) struct Frame {
    memory: Memory,
    layout: PortLayout,
    lanes: usize,
    own: Box<[Own]>,
    /// Rings of the bell, where the host cannot count in the memory itself.
    rings: AtomicU32,
    /// The kernel looks at all ports all the time, and at no bell.
    is_polled: bool,
}

impl Frame {
    pub fn new(device: &DeviceShared, layout: PortLayout, lanes: usize) -> Result<Self, LiveError> {
        let places = places(layout, lanes);
        let bytes = (places.beat + lanes.next_multiple_of(LINE)) as u64 * 4;
        let memory = PortMemory::on_device(device, bytes, "tombolo server", "tombolo answers")?;
        debug_assert_eq!(memory.is_split(), layout.in_packets);
        Ok(Self::of(Memory::Ports(memory), layout, lanes))
    }

    /// Ports in the host's memory, seen by no kernel.
    ///
    /// # Errors
    /// [`MemoryError::HostMemory`].
    pub fn on_host(layout: PortLayout) -> Result<Self, MemoryError> {
        let words = OwnWords::new("ports", places(layout, 1).beat + LINE)?;
        Ok(Self::of(Memory::Ports(PortMemory::Host(words)), layout, 1))
    }

    fn of(memory: Memory, layout: PortLayout, lanes: usize) -> Self {
        Self {
            memory,
            layout,
            lanes,
            own: (0..layout.ports).map(|_| Own::default()).collect(),
            rings: AtomicU32::new(0),
            is_polled: false,
        }
    }

    /// The same for a kernel that looks at all ports all the time, and at no bell.
    pub fn polled(self, is_polled: bool) -> Self {
        Self { is_polled, ..self }
    }

    /// Ports that kernels of so many other devices see, too.
    pub fn with_callers(
        device: &DeviceShared,
        layout: PortLayout,
        lanes: usize,
        areas: usize,
    ) -> Result<Self, ImportError> {
        let end = places(layout, lanes).beat + lanes.next_multiple_of(LINE);
        let block = Block::new(device, end, layout.payload, areas)?;
        Ok(Self::of(Memory::Block(block), layout, lanes))
    }

    /// The pages seen by kernels of other devices.
    pub fn block(&self) -> Option<&Block> {
        match &self.memory {
            Memory::Block(block) => Some(block),
            _ => None,
        }
    }

    /// Whether the ports are the host's alone.
    pub fn is_sliced(&self) -> bool {
        matches!(self.memory, Memory::Ports(PortMemory::Host(_)))
    }

    pub fn layout(&self) -> PortLayout {
        self.layout
    }

    /// The buffer of the host's writes, and the buffer of the kernel's writes where separate.
    pub fn buffers(&self) -> [Option<&wgpu::Buffer>; 2] {
        match &self.memory {
            Memory::Ports(ports) => ports.buffers(),
            Memory::Block(block) => [Some(block.buffer()), None],
        }
    }

    /// The words as they lie in memory.
    #[cfg(test)]
    pub fn words(&self) -> &HostWords {
        self.down()
    }

    /// The words written by the kernel.
    #[cfg(test)]
    pub fn answers(&self) -> &HostWords {
        self.up()
    }

    fn places(&self) -> Places {
        places(self.layout, self.lanes)
    }

    /// The host's writes.
    fn down(&self) -> &HostWords {
        match &self.memory {
            Memory::Ports(ports) => ports.down(),
            Memory::Block(block) => block.words(),
        }
    }

    /// The kernel's writes.
    fn up(&self) -> &HostWords {
        match &self.memory {
            Memory::Ports(ports) => ports.up(),
            Memory::Block(block) => block.words(),
        }
    }

    fn is_up(&self, index: usize) -> bool {
        self.layout.servers().contains(&index)
    }

    fn request_at(&self, index: usize) -> Option<&AtomicU32> {
        (self.own.get(self.layout.port_of_request(index)?)).map(|own| &own.request)
    }

    fn lock_at(&self, index: usize) -> Option<&AtomicU32> {
        (self.own.get(index.checked_sub(self.layout.lock(0))?)).map(|own| &own.lock)
    }

    /// Tells the kernel of `posts` calls, one of which is at `port`.
    pub fn ring(&self, port: usize, posts: usize) {
        if self.is_polled {
            return;
        }
        let place = self.places().bell;
        let Some(bell) = self.down().get(place) else {
            return;
        };
        let hint = port as u32 & 0xffff;
        if self.is_sealed() {
            // Over the bus every value is written once, so the kernel sees a change whatever comes last.
            let count = self.rings.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            self.store(place, count);
        } else {
            let count = (posts as u32) << 16;
            let next = |old: u32| Some((old & 0xffff_0000).wrapping_add(count) | hint);
            let _ = bell.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        }
    }

    /// Has the lease end that was granted another number.
    pub fn yield_to(&self, number: u32) {
        self.store(self.places().yielded, number);
        // The last hint available: the kernel looks at all ports before leaving.
        self.ring(0xffff, 1);
    }

    /// Sets up the next lease: number, grant, turns, and the first port to look at.
    pub fn grant(&self, lease: u32, granted: u32, most: u32, start: usize) {
        let places = self.places();
        self.store(places.lease, lease);
        self.store(places.granted, granted);
        self.store(places.most, most);
        self.store(places.start, start as u32);
        self.store(places.arrived, 0);
        for lane in 0..self.lanes {
            // Each lease counts from 0.
            self.up().store(places.beat + lane, 0);
        }
    }

    /// Whether all lanes of a lease have left.
    pub fn is_done(&self, lease: u32) -> bool {
        let done = self.places().done;
        (0..self.lanes).all(|lane| self.up().load(done + lane) == lease)
    }

    /// The calls served by the lanes, as a number that changes with each call.
    pub fn beats(&self) -> u32 {
        let beat = self.places().beat;
        (0..self.lanes).fold(0, |sum, lane| sum.wrapping_add(self.up().load(beat + lane)))
    }

    /// The call at `port` not yet taken, by its request.
    pub fn untaken(&self, port: usize) -> Option<u32> {
        let request = self.load(self.layout.request(port));
        (request != self.down().load(self.layout.lock(port))).then_some(request)
    }

    /// Whether the call at `port` may have been begun, behind its withdrawal. Where words cross a bus a kernel does not wait
    /// for its note to arrive, and looks for the withdrawal behind it all the same: there every call may have been.
    pub fn may_be_begun(&self, port: usize, request: u32) -> bool {
        let begun = self.layout.results(port) + BEGUN;
        self.is_sealed()
            || self.down().load(self.layout.lock(port)) == request
            || self.down().load(begun) == request
    }

    /// Whether the call at `port` is withdrawn. Of the taker, behind the note that the call is taken.
    pub fn is_withdrawn(&self, port: usize) -> bool {
        self.down().load(self.layout.arguments(port) + SEAL) == 1
    }

    /// The calls of threads that are not yet taken, by their ports and requests.
    pub fn all_untaken(&self) -> impl Iterator<Item = (usize, u32)> {
        (0..self.layout.ports).filter_map(|port| Some((port, self.untaken(port)?)))
    }

    /// Notes that the call at `port` is taken, or, after all, only the call before.
    pub fn take(&self, port: usize, request: u32) {
        self.down().store(self.layout.lock(port), request);
    }

    /// The contents of a call posted at `port`: opcode, length, and arguments.
    pub fn posted(&self, port: usize, words: &mut [u32]) {
        let at = self.layout.arguments(port);
        let (head, arguments) = words.split_at_mut(words.len().min(2));
        self.down().load_all(at, head);
        self.down().load_all(at + PREFIX, arguments);
    }

    /// Answers a call in a kernel's place.
    pub fn answer(&self, port: usize, request: u32, head: [u32; 2], results: &[u32]) {
        let at = self.layout.results(port);
        self.up().store_all(at, &head);
        self.up().store_all(at + PREFIX, results);
        if self.is_sealed() {
            let words = mixed_all(at, &head).wrapping_add(mixed_all(at + PREFIX, results));
            let seal = words.wrapping_add(mixed(self.layout.reply(port), request));
            self.up().store(at + SEAL, seal);
        }
        fence(Ordering::SeqCst);
        self.up().store(self.layout.reply(port), request);
    }

    /// Whether there is a call without an answer at some port.
    pub fn is_awaited(&self) -> bool {
        settle::is_awaited(self) || self.block().is_some_and(settle::is_awaited)
    }

    /// Whether the last post at a port is where the kernel looks: a caller notes the post for the host first.
    pub fn is_shown(&self, port: usize) -> bool {
        self.down().load(self.layout.request(port)) == self.request(port)
    }

    /// Ports that a lease looks at, of threads and of kernels of other devices.
    pub fn all_ports(&self) -> usize {
        self.layout.ports + self.block().map_or(0, Calls::ports)
    }

    /// Answers in the kernel's place: every unanswered call, or only those taken by the kernel. Only while no lease
    /// runs.
    pub fn give_up(&self, taken_only: bool, status: u32, word: u32) {
        settle::give_up(self, taken_only, [status, word]);
        if let Some(block) = self.block() {
            settle::give_up(block, taken_only, [status, 0]);
        }
    }

    /// Repairs words perhaps written over by a device. Only while no lease runs, and no call waits for an answer.
    pub fn mend(&self) {
        let layout = self.layout;
        for port in 0..layout.ports {
            let mut request = self.request(port);
            loop {
                self.down().store(layout.request(port), request);
                // A caller that had looked at the server before its end may be posting now: first into its own note,
                // then here.
                match self.request(port) {
                    same if same == request => break,
                    other => request = other,
                }
            }
        }
    }
}

impl Calls for Frame {
    fn ports(&self) -> usize {
        self.layout.ports
    }

    fn request(&self, port: usize) -> u32 {
        self.load(self.layout.request(port))
    }

    fn reply(&self, port: usize) -> u32 {
        self.up().load(self.layout.reply(port))
    }

    fn taken(&self, port: usize) -> u32 {
        self.down().load(self.layout.lock(port))
    }

    fn take(&self, port: usize, request: u32) {
        Self::take(self, port, request);
    }

    fn answer(&self, port: usize, request: u32, head: [u32; 2]) {
        Self::answer(self, port, request, head, &[]);
    }
}

/// Where things lie in a frame.
pub(super) fn places(layout: PortLayout, lanes: usize) -> Places {
    let host = layout.words();
    let done = host + LINE;
    Places {
        ports: layout.ports,
        stride: layout.arguments(1) - layout.arguments(0),
        mailbox_stride: layout.mailbox_stride(),
        locks: layout.lock(0),
        requests: layout.request(0),
        arguments: layout.arguments(0),
        replies: layout.reply(0),
        results: layout.results(0),
        bell: host,
        yielded: host + 1,
        granted: host + 2,
        lease: host + 3,
        most: host + 4,
        start: host + 5,
        left: host + 6,
        arrived: host + 7,
        done,
        beat: done + lanes.next_multiple_of(LINE),
    }
}

impl Words for Frame {
    fn is_sealed(&self) -> bool {
        matches!(&self.memory, Memory::Ports(ports) if ports.is_split())
    }

    fn load(&self, index: usize) -> u32 {
        if self.is_up(index) {
            return self.up().load(index);
        }
        match self.lock_at(index).or_else(|| self.request_at(index)) {
            Some(own) => own.load(Ordering::Acquire),
            // Where the word lies in a window over the bus, a call on its way never reads the word.
            None => self.down().load(index),
        }
    }

    fn store(&self, index: usize, value: u32) {
        if let Some(lock) = self.lock_at(index) {
            lock.store(value, Ordering::Release);
            return;
        }
        if let Some(request) = self.request_at(index) {
            request.store(value, Ordering::Release);
        }
        match &self.memory {
            Memory::Ports(ports) => ports.store(index, value),
            Memory::Block(block) => block.words().store(index, value),
        }
    }

    fn store_all(&self, index: usize, words: &[u32]) {
        self.down().store_all(index, words);
    }
}

impl ClientWords for Frame {
    fn swap(&self, index: usize, value: u32) -> u32 {
        (self.lock_at(index)).map_or(0, |lock| lock.swap(value, Ordering::AcqRel))
    }
}
