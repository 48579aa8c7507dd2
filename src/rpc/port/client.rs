//! The calling side for threads of the host: the loopback for testing and measuring services without a device. Kernels
//! do the same in `shaders/rpc.wgsl`.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use super::layout::{CLOSED, PREFIX, PortLayout, SEAL};
use super::protocol::{CallStatus, Side, next};
use super::seal::{mixed, mixed_all};
use super::words::ClientWords;

/// A call on its way: the port is locked until the call is collected or left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posted {
    pub port: usize,
    pub request: u32,
}

/// The client's end of a set of ports. Any number of threads may have one over the same words.
#[derive(Debug, Clone)]
pub(crate) struct Client<W> {
    words: W,
    layout: PortLayout,
    /// The client's ports, and where the search for a free one begins: the port used last.
    ports: Range<usize>,
    last: usize,
}

impl<W: ClientWords> Client<W> {
    /// `start` spreads clients over the ports.
    pub fn new(words: W, layout: PortLayout, start: usize) -> Self {
        Self::within(words, layout, 0..layout.ports, start)
    }

    /// The same, of the given ports alone.
    pub fn within(words: W, layout: PortLayout, ports: Range<usize>, start: usize) -> Self {
        let count = ports.len().max(1);
        // A thread that used one of the ports last begins there.
        let last = match ports.contains(&start) {
            true => start,
            false => ports.start + start % count,
        };
        Self {
            words,
            layout,
            ports,
            last,
        }
    }

    /// Looks at every port once, and posts the call at the first free one; `None` if none is free.
    ///
    /// `arguments` is no longer than the payload of a port.
    pub fn try_post(&mut self, opcode: u32, arguments: &[u32]) -> Option<Posted> {
        for step in 0..self.ports.len() {
            let place = (self.last - self.ports.start + step) % self.ports.len();
            let port = self.ports.start + place;
            let (words, layout) = (&self.words, self.layout);
            if words.swap(layout.lock(port), 1) != 0 {
                continue;
            }
            // The lock is only among clients: a left call may still be with the server.
            let outbox = words.load(layout.request(port));
            let inbox = words.load(layout.reply(port));
            let Some(request) = next(Side::Client, inbox, outbox) else {
                words.store(layout.lock(port), 0);
                continue;
            };
            let at = layout.arguments(port);
            // No ticket, and no withdrawal: the call before may have had either. Where the mailbox is in the packet the
            // mailbox stays unchanged.
            let ticket = if layout.in_packets { outbox } else { 0 };
            words.store_all(at, &[opcode, arguments.len() as u32, ticket, 0]);
            let length = arguments.len().min(layout.payload);
            words.store_all(at + PREFIX, &arguments[..length]);
            words.store(layout.request(port), request);
            self.last = port;
            return Some(Posted { port, request });
        }
        None
    }

    /// The status and the results of a call, if the server has answered; its port is free then.
    pub fn try_collect(&self, posted: Posted, results: &mut [u32]) -> Option<CallStatus> {
        let [status, _] = self.try_take(posted, results)?;
        Some(CallStatus::from_code(status))
    }

    /// As `try_collect`, with the two words in front of the results unchanged.
    pub fn try_take(&self, posted: Posted, results: &mut [u32]) -> Option<[u32; 2]> {
        let (words, layout, Posted { port, request }) = (&self.words, self.layout, posted);
        next(Side::Client, words.load(layout.reply(port)), request)?;
        let at = layout.results(port);
        let head = [words.load(at), words.load(at + 1)];
        let length = results.len().min(layout.payload);
        words.load_all(at + PREFIX, &mut results[..length]);
        if words.is_sealed() {
            // Results are there if there is a result.
            let results = match CallStatus::from_code(head[0]) {
                CallStatus::Done => mixed_all(at + PREFIX, &results[..length]),
                _ => 0,
            };
            let all = mixed_all(at, &head)
                .wrapping_add(results)
                .wrapping_add(mixed(layout.reply(port), request));
            if all != words.load(at + SEAL) {
                return None;
            }
        }
        words.store(layout.lock(port), 0);
        Some(head)
    }

    /// Whether a call has been answered.
    pub fn is_answered(&self, posted: Posted) -> bool {
        let Posted { port, request } = posted;
        next(
            Side::Client,
            self.words.load(self.layout.reply(port)),
            request,
        )
        .is_some()
    }

    /// Whether a call is over: answered, or left, answered and followed by another call at its port.
    pub fn is_over(&self, posted: Posted) -> bool {
        let outbox = self.words.load(self.layout.request(posted.port));
        outbox != posted.request || self.is_answered(posted)
    }

    /// Leaves a call alone: the answer will not be asked for, and the port is free once the call is served.
    pub fn leave(&self, posted: Posted) {
        self.words.store(self.layout.lock(posted.port), 0);
    }

    /// Takes a call back: a server that has not begun the call answers so, and runs nothing; a server running the call
    /// may look. Behind the withdrawal the caller looks whether the call was begun, before the call is left.
    pub fn withdraw(&self, posted: Posted) {
        self.words
            .store(self.layout.arguments(posted.port) + SEAL, 1);
        // Either the server sees the note, or the caller sees the call begun.
        fence(Ordering::SeqCst);
    }

    /// Whether the services have been stopped.
    pub fn is_closed(&self) -> bool {
        self.words.load(CLOSED) != 0
    }
}
