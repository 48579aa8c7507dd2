//! A device writing anything anywhere into the memory of its server. The driver is shared with the fuzz target
//! `servers`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::port::client::{Client, Posted};
use super::port::layout::{PREFIX, PortLayout, SEAL};
use super::port::seal::{mixed, mixed_all};
use super::port::words::{ClientWords, HostWords, Words, host_words};
use super::settle::{Calls, give_up, is_awaited};

const PORTS: usize = 3;
const PAYLOAD: usize = 5;
const CALLERS: usize = 4;
/// Unwritten values.
const POISON: u32 = 0xDEAD_BEEF;

/// A server's memory, from both sides.
pub(crate) trait Memory: ClientWords + Calls {
    fn layout(&self) -> PortLayout;
    /// A word as found by the device.
    fn read(&self, index: usize) -> u32;
    /// Of the device.
    fn write(&self, index: usize, word: u32);
    /// Whatever else the host makes of what the device has written.
    fn look(&self, word: u32);
}

/// The driven ports.
fn layout() -> PortLayout {
    PortLayout::new(PORTS, PAYLOAD)
}

/// Two memories across a bus, with sealed answers. Works as the frame of a server where a device has memory of its own.
pub(crate) struct Split {
    layout: PortLayout,
    down: Arc<HostWords>,
    up: Arc<HostWords>,
    locks: [AtomicU32; PORTS],
    requests: [AtomicU32; PORTS],
}

impl Split {
    /// `in_packets`: with the mailboxes in the packets, as in servers on such devices.
    pub(crate) fn new(in_packets: bool) -> Self {
        let layout = match in_packets {
            true => layout().in_packets(),
            false => layout(),
        };
        let words = layout.words() + 16;
        Self {
            layout,
            down: host_words(words),
            up: host_words(words),
            locks: Default::default(),
            requests: Default::default(),
        }
    }

    /// The host's own state.
    fn own(&self, index: usize) -> Option<&AtomicU32> {
        let at = index.checked_sub(self.layout.lock(0));
        let lock = at.and_then(|port| self.locks.get(port));
        lock.or_else(|| self.requests.get(self.layout.port_of_request(index)?))
    }

    fn memory(&self, index: usize) -> &HostWords {
        match self.layout.servers().contains(&index) {
            true => &self.up,
            false => &self.down,
        }
    }
}

impl Words for Split {
    fn is_sealed(&self) -> bool {
        true
    }

    fn load(&self, index: usize) -> u32 {
        match self.own(index) {
            Some(own) => own.load(Ordering::Acquire),
            None => self.memory(index).load(index),
        }
    }

    fn store(&self, index: usize, value: u32) {
        match self.own(index) {
            Some(own) => own.store(value, Ordering::Release),
            None => self.memory(index).store(index, value),
        }
    }
}

impl ClientWords for Split {
    fn swap(&self, index: usize, value: u32) -> u32 {
        (self.own(index)).map_or(0, |own| own.swap(value, Ordering::AcqRel))
    }
}

impl Calls for Split {
    fn ports(&self) -> usize {
        PORTS
    }

    fn request(&self, port: usize) -> u32 {
        self.load(self.layout.request(port))
    }

    fn reply(&self, port: usize) -> u32 {
        self.load(self.layout.reply(port))
    }

    fn taken(&self, port: usize) -> u32 {
        self.down.load(self.layout.lock(port))
    }

    fn take(&self, port: usize, request: u32) {
        self.down.store(self.layout.lock(port), request);
    }

    fn answer(&self, port: usize, request: u32, head: [u32; 2]) {
        answer(self, port, request, &[head[0], head[1]]);
    }
}

impl Memory for Split {
    fn layout(&self) -> PortLayout {
        self.layout
    }

    fn read(&self, index: usize) -> u32 {
        self.memory(index).load(index)
    }

    fn write(&self, index: usize, word: u32) {
        self.memory(index).store(index, word);
    }

    fn look(&self, _: u32) {}
}

/// Writes an answer as an honest device does: the two words in front, and results.
fn answer(memory: &impl Memory, port: usize, request: u32, words: &[u32]) {
    let (layout, (head, results)) = (memory.layout(), words.split_at(2));
    let at = layout.results(port);
    for (place, &word) in [at, at + 1].into_iter().zip(head) {
        memory.write(place, word);
    }
    for (place, &word) in (at + PREFIX..).zip(results) {
        memory.write(place, word);
    }
    memory.write(at + SEAL, seal(layout, port, request, head, results));
    memory.write(layout.reply(port), request);
}

fn seal(layout: PortLayout, port: usize, request: u32, head: &[u32], results: &[u32]) -> u32 {
    let at = layout.results(port);
    // Of a failure nobody asks for the results.
    let results = if head[0] == 1 { results } else { &[] };
    mixed_all(at, head)
        .wrapping_add(mixed_all(at + PREFIX, results))
        .wrapping_add(mixed(layout.reply(port), request))
}

/// A call on its way, in the host's correct view.
struct Host<'m, M> {
    memory: &'m M,
    clients: Vec<Client<&'m M>>,
    pending: [Option<Posted>; CALLERS],
}

impl<M: Memory> Host<'_, M> {
    fn post(&mut self, who: usize, word: u32) {
        if self.pending[who].is_some() {
            return;
        }
        let posted = self.clients[who].try_post(word, &[who as u32, word]);
        let is_held = |port| self.pending.iter().flatten().any(|own| own.port == port);
        match posted {
            Some(posted) => {
                assert!(posted.port < PORTS && !is_held(posted.port), "{posted:?}");
                let at = self.memory.layout().arguments(posted.port) + PREFIX;
                assert_eq!(self.memory.read(at + 1), word);
            }
            None => {
                let is_busy = |port| self.memory.request(port) != self.memory.reply(port);
                assert!((0..PORTS).all(|port| is_held(port) || is_busy(port)));
            }
        }
        self.pending[who] = posted;
    }

    /// Looks for an answer: present once the device has written all of the answer, with exactly the written words.
    fn take(&mut self, who: usize) -> Option<u32> {
        let posted = self.pending[who]?;
        let (memory, layout) = (self.memory, self.memory.layout());
        let at = layout.results(posted.port);
        let raw: Vec<u32> = [at, at + 1]
            .into_iter()
            .chain(at + PREFIX..at + PREFIX + PAYLOAD)
            .map(|index| memory.read(index))
            .collect();
        let is_answered = memory.read(layout.reply(posted.port)) == posted.request;
        let (head, results) = raw.split_at(2);
        let whole = seal(layout, posted.port, posted.request, head, results);
        let is_whole = !memory.is_sealed() || memory.read(at + SEAL) == whole;
        let client = &self.clients[who];
        assert_eq!(client.is_answered(posted), is_answered);
        let mut words = [POISON; PAYLOAD + 3];
        let taken = client.try_take(posted, &mut words);
        assert_eq!(taken.is_some(), is_answered && is_whole, "{posted:?}");
        // No more than a port's room, whatever length the device claims.
        assert_eq!(words[PAYLOAD..], [POISON; 3]);
        let taken = taken?;
        assert_eq!((&taken[..], &words[..PAYLOAD]), (head, results));
        assert!(client.is_over(posted));
        self.pending[who] = None;
        Some(taken[0])
    }

    fn leave(&mut self, who: usize) {
        if let Some(posted) = self.pending[who].take() {
            self.clients[who].leave(posted);
        }
    }

    /// As the relay does behind a dead lease, or at the end.
    fn give_up(&self, taken_only: bool, head: [u32; 2]) {
        let before = |port| (self.memory.request(port), self.memory.reply(port));
        let (before, taken): (Vec<_>, Vec<_>) = (0..PORTS)
            .map(|port| (before(port), self.memory.taken(port)))
            .unzip();
        give_up(self.memory, taken_only, head);
        for (port, (&(request, reply), &taken)) in before.iter().zip(&taken).enumerate() {
            let stays = taken_only && taken != request;
            let expected = if stays { reply } else { request };
            assert_eq!(self.memory.reply(port), expected, "port {port}");
            assert_eq!(self.memory.request(port), request, "port {port}");
        }
    }
}

/// Lets the bytes write words anywhere and answers of any kind, while callers post calls, look for answers and leave.
pub(crate) fn drive(bytes: &[u8], memory: &impl Memory) {
    let layout = memory.layout();
    let mut host = Host {
        memory,
        clients: (0..CALLERS)
            .map(|who| Client::new(memory, layout, who))
            .collect(),
        pending: [None; CALLERS],
    };
    for chunk in bytes.chunks(8) {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        let [kind, who, a, b, word @ ..] = raw;
        let (word, port) = (u32::from_le_bytes(word), usize::from(a) % PORTS);
        let who = usize::from(who) % CALLERS;
        let request = memory.request(port);
        match kind % 12 {
            0..3 => host.post(who, word),
            3..5 => {
                host.take(who);
            }
            5 => host.leave(who),
            6 => memory.write(
                usize::from(u16::from_le_bytes([a, b])) % (layout.words() + 16),
                word,
            ),
            7 => memory.write(
                layout.results(port) + usize::from(b) % (PREFIX + PAYLOAD),
                word,
            ),
            // Replies near the expected one, and notes of taken calls.
            8 => memory.write(
                layout.reply(port),
                request.wrapping_add(u32::from(b)).wrapping_sub(2),
            ),
            9 => memory.write(layout.lock(port), request.wrapping_add(u32::from(b % 2))),
            10 => {
                let words: Vec<u32> = (0..2 + PAYLOAD as u32).map(|i| word ^ (i * 77)).collect();
                let mut words = words;
                words[0] = u32::from(b % 16);
                answer(memory, port, request, &words);
                // A word missing in time.
                if b & 0x10 != 0 {
                    let late = usize::from(b >> 5) % if words[0] == 1 { 2 + PAYLOAD } else { 2 };
                    let at = layout.results(port) + if late < 2 { late } else { late + 2 };
                    memory.write(at, memory.read(at) ^ (word | 1));
                    let held = host.pending.iter().position(
                        |own| matches!(own, Some(own) if (own.port, own.request) == (port, request)),
                    );
                    if let Some(held) = held.filter(|_| memory.is_sealed()) {
                        assert_eq!(host.take(held), None, "an answer that was never whole");
                    }
                }
            }
            _ => host.give_up(a & 1 == 0, [u32::from(b), word]),
        }
        memory.look(word);
        let mailboxes = |port| memory.request(port) != memory.read(layout.reply(port));
        assert_eq!(is_awaited(memory), (0..PORTS).any(mailboxes));
    }
    // At its end the server answers all remaining calls, and all ports are free again.
    host.give_up(false, [3, 0]);
    for who in 0..CALLERS {
        let is_pending = host.pending[who].is_some();
        if host.take(who).is_none() && is_pending {
            // The device claims to have answered, and has not: the caller is told that the server has ended.
            assert!(memory.is_sealed());
            host.leave(who);
        }
    }
    for who in 0..PORTS {
        host.post(who, 1);
        assert!(host.pending[who].is_some(), "a port is lost");
    }
}

#[cfg(test)]
mod cases {
    use proptest::prelude::*;

    use super::super::frame::Frame;
    use super::*;

    impl Memory for Frame {
        fn layout(&self) -> PortLayout {
            Frame::layout(self)
        }

        fn read(&self, index: usize) -> u32 {
            self.words().load(index)
        }

        fn write(&self, index: usize, word: u32) {
            self.words().store(index, word);
        }

        fn look(&self, word: u32) {
            let _ = (self.is_done(word), self.beats());
            let mut words = [POISON; PAYLOAD + 4];
            for port in 0..PORTS {
                let _ = self.untaken(port);
                self.posted(port, &mut words);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_a_device_writes_is_no_answer_but_the_one_expected(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            drive(&bytes, &Frame::on_host(layout()).unwrap());
        }

        #[test]
        fn whatever_a_device_sends_over_a_bus_is_no_answer_but_a_whole_one(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            in_packets in any::<bool>(),
        ) {
            drive(&bytes, &Split::new(in_packets));
        }
    }
}
