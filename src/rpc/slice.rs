//! Ports of devices whose running kernels see no writes of the host: a device owns the ports during a launch. Requests
//! leave with a copy behind the launch, are served after its end, and answers arrive with a copy in front of the next
//! submitted launch. Everything else is as in live memory: the same words, the same protocol, the same WGSL.
//!
//! The clients' writes and the servers' writes are two ranges of the layout, and each travels a single way only, so
//! launches overtaking the answers do no harm: the protocol is made for late mailboxes.
//!
//! A refused launch leaves its answers to the next launch. Waiting forms write a private variable, so the module tells
//! whether an entry point reaches such a form; the kernel is refused then (`NeedsLiveMemory`). Waiting for the launch
//! is waiting for its calls, except in a function of the host: the function would wait for itself. On a page, without
//! threads, the code awaiting the launch serves its calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::mailbox::Mailbox;
use super::port::layout::{CLOSED, LINE, PortLayout, TICKET};
use super::port::words::Words;
use super::port_memory::OwnWords;
use super::services::{Shared, is_server_thread};
use crate::clock::Instant;
use crate::device::DeviceShared;
use crate::device::completion_hook::CompletionHook;
use crate::device::outcome::ExecutionError;
use crate::device::staging::Lent;
use crate::device::status::{Mirror, PendingMirror, Reading};
use crate::device::wait::lock;
use crate::memory::{MemoryError, staging};

/// Ports of a device, and the host's copy of them.
pub(crate) struct Sliced {
    /// As known to the host.
    pub(super) words: OwnWords,
    buffer: wgpu::Buffer,
    layout: PortLayout,
    /// There are answers not given to any launch.
    fresh: AtomicBool,
    /// The waiters for the serving of calls.
    waiting: (Mutex<Vec<Waker>>, Condvar),
}

/// The name of the memory of ports in errors.
const ROOM: &str = "making room for calls";
/// Words of the header rewritten by the host; behind them is a word written by kernels.
const HEADER: std::ops::Range<usize> = 0..CLOSED + 1;
const _: () = assert!(CLOSED < TICKET);

fn bytes(words: &std::ops::Range<usize>) -> std::ops::Range<u64> {
    words.start as u64 * 4..words.end as u64 * 4
}

impl Sliced {
    /// Unused ports.
    ///
    /// # Errors
    /// The errors of [`staging::make`]; [`MemoryError::HostMemory`].
    pub(super) fn new(device: &DeviceShared, layout: PortLayout) -> Result<Self, MemoryError> {
        use wgpu::BufferUsages as Usage;
        let usage = Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST;
        let mut header = [0u32; LINE];
        let (index, value) = layout.header();
        header[index] = value;
        let header = bytemuck::cast_slice(&header);
        let buffer =
            staging::make_filled(device, ROOM, "tombolo calls", usage, layout.bytes(), header)?;
        Ok(Self {
            words: OwnWords::new("ports", layout.words())?,
            buffer,
            layout,
            fresh: AtomicBool::new(true),
            waiting: Default::default(),
        })
    }

    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// The host has written something for kernels to see.
    pub(super) fn changed(&self) {
        self.fresh.store(true, Ordering::Release);
        let (wakers, served) = &self.waiting;
        let woken = std::mem::take(&mut *lock(wakers));
        served.notify_all();
        woken.into_iter().for_each(Waker::wake);
    }

    /// The host's words for the device: of the header, then of the servers.
    fn answers(&self) -> Vec<u32> {
        let servers = self.layout.servers();
        // In this order: an answer is complete when its mailbox says so, and mailboxes come first.
        HEADER
            .chain(servers)
            .map(|index| self.words.load(index))
            .collect()
    }

    /// Takes over the clients' writes; returns the ports waiting for the host, with their replies so far.
    fn deposit(&self, words: &[u32]) -> Vec<(usize, u32)> {
        let layout = self.layout;
        let clients = layout.clients();
        let word = |index: usize| words.get(index - clients.start).copied().unwrap_or(0);
        // Arguments first: the mailbox tells of them.
        for index in layout.arguments(0)..clients.end {
            self.words.store(index, word(index));
        }
        let mut posted = Vec::new();
        for port in 0..layout.ports {
            let (request, reply) = (
                word(layout.request(port)),
                self.words.load(layout.reply(port)),
            );
            self.words.store(layout.request(port), request);
            if request != reply {
                posted.push((port, reply));
            }
        }
        posted
    }
}

/// The ports of a launch on their way.
pub(crate) struct Slice {
    services: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// Answers for the device.
    up: Option<wgpu::Buffer>,
    /// Requests of the device, until the launch is submitted.
    down: Mutex<Option<Lent>>,
    mirror: Mutex<Option<Mirror>>,
    is_submitted: AtomicBool,
    /// The posts of the launch, after its end.
    posted: Mutex<Vec<(usize, u32)>>,
}

impl Slice {
    /// The way of a launch's calls; nothing where ports are in live memory.
    ///
    /// # Errors
    /// The errors of [`staging::make`].
    pub(crate) fn of(
        device: &DeviceShared,
        services: &Arc<Shared>,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Option<Arc<Self>>, MemoryError> {
        let Some(sliced) = mailbox.as_sliced() else {
            return Ok(None);
        };
        let up = match sliced.fresh.swap(false, Ordering::AcqRel) {
            false => None,
            true => {
                let answers = sliced.answers();
                let from: &[u8] = bytemuck::cast_slice(&answers);
                let (usage, bytes) = (wgpu::BufferUsages::COPY_SRC, from.len() as u64);
                let made =
                    staging::make_filled(device, ROOM, "tombolo answers", usage, bytes, from);
                Some(made.inspect_err(|_| sliced.fresh.store(true, Ordering::Release))?)
            }
        };
        let clients = bytes(&sliced.layout.clients());
        let down = staging::download(device, "reading calls", clients.end - clients.start)
            .inspect_err(|_| sliced.fresh.store(true, Ordering::Release))?;
        Ok(Some(Arc::new(Self {
            services: Arc::clone(services),
            mailbox: Arc::clone(mailbox),
            up,
            down: Mutex::new(Some(down)),
            mirror: Mutex::default(),
            is_submitted: AtomicBool::new(false),
            posted: Mutex::default(),
        })))
    }

    /// Records the way of answers to the device.
    pub(crate) fn before(&self, encoder: &mut wgpu::CommandEncoder) {
        let (Some(sliced), Some(up)) = (self.mailbox.as_sliced(), &self.up) else {
            return;
        };
        let (header, servers) = (bytes(&HEADER), bytes(&sliced.layout.servers()));
        encoder.copy_buffer_to_buffer(up, 0, &sliced.buffer, 0, header.end);
        let len = servers.end - servers.start;
        encoder.copy_buffer_to_buffer(up, header.end, &sliced.buffer, servers.start, len);
    }

    /// Records the way of requests to the host.
    pub(crate) fn after(&self, encoder: &mut wgpu::CommandEncoder) {
        if let (Some(sliced), Some(down)) = (self.mailbox.as_sliced(), &*lock(&self.down)) {
            let clients = bytes(&sliced.layout.clients());
            let len = clients.end - clients.start;
            encoder.copy_buffer_to_buffer(&sliced.buffer, clients.start, down.buffer(), 0, len);
        }
    }

    /// Whether all calls posted by the launch are served, or never will be.
    fn is_served(&self) -> bool {
        let Some(sliced) = self
            .mailbox
            .as_sliced()
            .filter(|_| !self.services.is_stopped())
        else {
            return true;
        };
        let waits =
            |&(port, reply): &(usize, u32)| sliced.words.load(sliced.layout.reply(port)) == reply;
        let mut posted = lock(&self.posted);
        posted.retain(waits);
        posted.is_empty()
    }
}

impl CompletionHook for Slice {
    fn submitted(&self, device: &wgpu::Device) {
        self.is_submitted.store(true, Ordering::Release);
        let (Some(sliced), Some(down)) = (self.mailbox.as_sliced(), lock(&self.down).take()) else {
            return;
        };
        let clients = bytes(&sliced.layout.clients());
        let pending = PendingMirror::of(down, clients.end - clients.start);
        *lock(&self.mirror) = Some(pending.mirror());
        pending.map(device);
    }

    fn is_readable(&self) -> bool {
        let mirror = lock(&self.mirror);
        (mirror.as_ref()).is_none_or(|mirror| !matches!(mirror.words(), Reading::Pending))
    }

    fn ended(&self, done: bool) -> Result<(), ExecutionError> {
        let mirror = lock(&self.mirror).take();
        let words = mirror.filter(|_| done).map(|mirror| mirror.words());
        let (Some(Reading::There(words)), Some(sliced)) = (words, self.mailbox.as_sliced()) else {
            if done {
                log::error!("the calls of a launch could not be read back; they are not served");
            }
            return Ok(());
        };
        *lock(&self.posted) = sliced.deposit(&words);
        self.services.bell.ring();
        Ok(())
    }

    fn deliver(&self) {
        self.services.serve_here();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let Some(sliced) = self.mailbox.as_sliced() else {
            return true;
        };
        // A function of the host waiting for a launch must not wait for its own thread.
        if is_server_thread() {
            return true;
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let (wakers, served) = &sliced.waiting;
        let mut held = lock(wakers);
        // With the lock, so calls served meanwhile wake this thread.
        while !self.is_served() {
            held = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
            {
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    let waited = served.wait_timeout(held, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => served.wait(held).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }

    fn poll(&self, waker: &Waker) -> bool {
        self.services.serve_here();
        let Some(sliced) = self.mailbox.as_sliced() else {
            return true;
        };
        let mut wakers = lock(&sliced.waiting.0);
        let over = self.is_served();
        if !over {
            wakers.push(waker.clone());
        }
        over
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        // The launch was refused: the next one carries the answers.
        if let (Some(_), Some(sliced), false) = (
            &self.up,
            self.mailbox.as_sliced(),
            *self.is_submitted.get_mut(),
        ) {
            sliced.fresh.store(true, Ordering::Release);
        }
    }
}
