//! Where ports lie in the shared words.
//!
//! ```text
//!      0  layout | wait_budget | budget | backoff_after | closed | packs | … | ticket              one cache line
//!     16  locks      one word for each port                             client's own
//!         requests   one word for each port: the client's outboxes      client writes, server polls
//!         arguments  { opcode, length, ticket, seal, arguments … }      client writes
//!         replies    one word for each port: the server's outboxes      server writes, client polls
//!         results    { status, length, begun, seal, results … }            server writes
//! ```
//!
//! Each table and each port begins on a cache line, so no line is written by both sides. Mailboxes of a side lie
//! together: a single line tells the server of sixteen ports. All writes of a side are in a single range, for a single
//! copy where the two sides share no memory. Lengths are in words; `ticket` is the ticket of a begun call, or 0, and
//! the clients' own; `seal` is the sum of the packet where words may arrive in any order ([`super::seal`]). Where
//! clients may withdraw calls, the seal of the arguments is 1 instead once the call is withdrawn, and `begun` is the
//! request begun last by the server ([`super::protocol`]); elsewhere nobody reads the two words. Threads of the host
//! never seal their posts, and may withdraw calls everywhere; servers on devices note begun calls in the place of the
//! locks.
//!
//! The seed's cost for N ports of M bytes a direction is `N * (2 * M + 2 mailboxes)`. Here the cost is, in bytes,
//! `64 + 3 * pad(4 * N) + 2 * N * pad(16 + M)`, where `pad` rounds up to 64 ([`PortLayout::bytes`]).
//!
//! So no cache line has two writers, and each range can lie in a memory of its own. The locks are the clients' alone.
//! One word of the header says the number of ports and their length ([`PortLayout::word`]): kernels load the word once
//! in a call, and derive all places from it. The header is the host's but for one word: a count of the invocations that
//! have called, to spread invocations over the ports; the host's writes while kernels run are not in the same 32 bytes,
//! since processors make atomics on a copy of so much.
//!
//! A port carries 112 bytes a direction, unless a function needs more: two cache lines with their prefix. In the bench
//! `mailboxes` a call with 112 bytes costs as much as a call with 4, and a call with 496 twice as much.

pub(crate) use crate::device::call_words::{
    BACKOFF_AFTER, BEGUN, BUDGET, CLOSED, LAYOUT, LAYOUT_SHIFT, LINE, PACKS, PREFIX, SEAL, TICKET,
    WAIT_BUDGET,
};

/// The most ports.
pub(crate) const MAX_PORTS: usize = 1 << 16;
/// The most words of payload in a direction.
pub(crate) const MAX_PAYLOAD: usize = 1 << 14;

/// The word of a packet's prefix with the mailbox, where mailboxes lie in the packets: elsewhere it holds a ticket, or
/// the request begun last.
const MAILBOX: usize = 2;

// Both have room in the word of the layout.
const _: () = assert!(MAX_PORTS <= 1 << LAYOUT_SHIFT && MAX_PAYLOAD < 1 << (32 - LAYOUT_SHIFT));

/// The sizes of a set of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortLayout {
    /// Number of ports, at least 1.
    pub ports: usize,
    /// Words of payload in each direction.
    pub payload: usize,
    /// Mailboxes lie in the packets: see [`PortLayout::in_packets`].
    pub in_packets: bool,
}

impl PortLayout {
    /// A layout within the limits: the numbers are clamped to the possible range.
    pub fn new(ports: usize, payload: usize) -> Self {
        Self {
            ports: ports.clamp(1, MAX_PORTS),
            payload: payload.min(MAX_PAYLOAD),
            in_packets: false,
        }
    }

    /// The same with each mailbox in its packet, in the place of the words of kernels and servers of kernels alone, and
    /// without tables of mailboxes: no two threads of the host write a line, nor do two look at one.
    ///
    /// For servers of threads of the host across a bus. A line in a window over the bus is written by one processor at a
    /// time, and each write takes its way: on an H200 16 threads with mailboxes in a line post in 2.2 microseconds, and
    /// in 0.3 with lines of their own.
    pub fn in_packets(self) -> Self {
        Self {
            in_packets: true,
            ..self
        }
    }

    fn locks(self) -> usize {
        self.ports.next_multiple_of(LINE)
    }

    /// Words of a table of mailboxes.
    fn table(self) -> usize {
        match self.in_packets {
            true => 0,
            false => self.locks(),
        }
    }

    /// Words of a port in a single direction.
    fn half(self) -> usize {
        (PREFIX + self.payload).next_multiple_of(LINE)
    }

    /// The client's lock of a port.
    pub fn lock(self, port: usize) -> usize {
        LINE + port
    }

    /// The client's outbox.
    pub fn request(self, port: usize) -> usize {
        match self.in_packets {
            true => self.arguments(port) + MAILBOX,
            false => LINE + self.locks() + port,
        }
    }

    /// The port whose client's outbox is at `index`.
    pub fn port_of_request(self, index: usize) -> Option<usize> {
        let from_first = index.checked_sub(self.request(0))?;
        let port = match self.in_packets {
            true if from_first.is_multiple_of(self.half()) => from_first / self.half(),
            true => return None,
            false => from_first,
        };
        (port < self.ports).then_some(port)
    }

    /// Words from a mailbox to the next port's.
    pub fn mailbox_stride(self) -> usize {
        match self.in_packets {
            true => self.half(),
            false => 1,
        }
    }

    /// Where the client writes: the prefix, then the arguments.
    pub fn arguments(self, port: usize) -> usize {
        LINE + self.locks() + self.table() + self.half() * port
    }

    /// The server's outbox.
    pub fn reply(self, port: usize) -> usize {
        match self.in_packets {
            true => self.results(port) + MAILBOX,
            false => self.arguments(self.ports) + port,
        }
    }

    /// Where the server writes: the prefix, then the results.
    pub fn results(self, port: usize) -> usize {
        self.arguments(self.ports) + self.table() + self.half() * port
    }

    /// Words of everything.
    pub fn words(self) -> usize {
        self.results(self.ports)
    }

    /// Words written by clients and read by servers.
    pub fn clients(self) -> std::ops::Range<usize> {
        LINE + self.locks()..self.arguments(self.ports)
    }

    /// Words written by servers and read by clients, beside the words of the header.
    pub fn servers(self) -> std::ops::Range<usize> {
        self.arguments(self.ports)..self.words()
    }

    /// Bytes of everything.
    pub fn bytes(self) -> u64 {
        self.words() as u64 * 4
    }

    /// The layout in a word, as kernels are told.
    pub fn word(self) -> u32 {
        (self.ports.saturating_sub(1) | self.payload << LAYOUT_SHIFT) as u32
    }

    /// The header's word with the layout: its index, and the word.
    pub fn header(self) -> (usize, u32) {
        (LAYOUT, self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_sides_share_no_line() {
        let sizes = [(1, 0), (1, 1), (3, 12), (16, 13), (17, 128), (100, 60)];
        // Miri takes its time for each word.
        let sizes = &sizes[..if cfg!(miri) { 3 } else { sizes.len() }];
        let tables = (sizes.iter()).map(|&(ports, payload)| PortLayout::new(ports, payload));
        for layout in tables.clone().chain(tables.map(PortLayout::in_packets)) {
            let PortLayout {
                ports,
                payload,
                in_packets,
            } = layout;
            // 1: client, 2: server, 0: nobody.
            let mut owner = vec![0u8; layout.words()];
            let mut claim = |at: usize, len: usize, side: u8| {
                for word in &mut owner[at..at + len] {
                    assert_eq!(*word, 0);
                    *word = side;
                }
            };
            claim(0, LINE, 3);
            for port in 0..ports {
                claim(layout.lock(port), 1, 1);
                if in_packets {
                    // In the remaining word of the prefix: neither opcode or status, nor length or lease, nor seal or
                    // withdrawal.
                    let free = (2..PREFIX).find(|&word| word != SEAL).unwrap();
                    assert_eq!(layout.request(port), layout.arguments(port) + free);
                    assert_eq!(layout.reply(port), layout.results(port) + free);
                } else {
                    claim(layout.request(port), 1, 1);
                    claim(layout.reply(port), 1, 2);
                }
                claim(layout.arguments(port), PREFIX + payload, 1);
                claim(layout.results(port), PREFIX + payload, 2);
            }
            let requests: Vec<_> = (0..ports).map(|port| layout.request(port)).collect();
            for index in 0..layout.words() {
                let port = requests.iter().position(|&request| request == index);
                assert_eq!(layout.port_of_request(index), port, "{layout:?}: {index}");
            }
            for port in 1..ports {
                let stride = layout.mailbox_stride();
                assert_eq!(layout.request(port), layout.request(0) + port * stride);
                assert_eq!(layout.reply(port), layout.reply(0) + port * stride);
            }
            let owned = |index: usize| {
                layout.clients().contains(&index) as u8
                    + 2 * layout.servers().contains(&index) as u8
            };
            assert!(
                (0..ports)
                    .all(|port| owned(layout.request(port)) == 1 && owned(layout.reply(port)) == 2)
            );
            for line in owner.chunks(LINE) {
                assert!(!(line.contains(&1) && line.contains(&2)));
            }
        }
    }

    #[test]
    fn the_cost_is_what_the_formula_says() {
        let pad = |bytes: u64| bytes.next_multiple_of(64);
        for (ports, bytes) in [(1u64, 4u64), (64, 512), (2048, 512), (7, 1000)] {
            let layout = PortLayout::new(ports as usize, bytes as usize / 4);
            let formula = 64 + 3 * pad(4 * ports) + 2 * ports * pad(16 + bytes);
            assert_eq!(layout.bytes(), formula);
        }
        // The seed's example: 2048 threads, 4096 bits a direction.
        assert_eq!(
            PortLayout::new(2048, 128).bytes(),
            64 + 3 * 8192 + 2 * 2048 * 576
        );
    }

    /// As derived by kernels (`kernel::calls::wgsl`).
    #[test]
    fn a_word_says_all_places() {
        for (ports, payload, places) in [
            (1, 0, [16, 16, 32, 48, 64, 80]),
            (16, 12, [16, 16, 32, 48, 304, 320]),
            (17, 13, [32, 16, 48, 80, 624, 656]),
            (
                1 << 16,
                1 << 14,
                [16400, 16, 65552, 131_088, 1_074_921_488, 1_074_987_024],
            ),
        ] {
            let layout = PortLayout::new(ports, payload);
            let found = [
                layout.half(),
                layout.lock(0),
                layout.request(0),
                layout.arguments(0),
                layout.reply(0),
                layout.results(0),
            ];
            assert_eq!(found, places);
            assert_eq!(layout.word() & 0xffff, ports as u32 - 1);
            assert_eq!(layout.word() >> LAYOUT_SHIFT, payload as u32);
            assert_eq!(layout.header(), (LAYOUT, layout.word()));
        }
    }

    #[test]
    fn sizes_are_clamped() {
        let layout = PortLayout::new(0, usize::MAX);
        assert_eq!((layout.ports, layout.payload), (1, MAX_PAYLOAD));
        assert!(PortLayout::new(usize::MAX, usize::MAX).words() < 1 << 32);
    }
}
