//! The answering side. It trusts nothing: everything that decides where it reads and writes is its own (the sizes,
//! its locks, what it answered last); of what the other side wrote it copies the header once, checks the copy and
//! uses the copy. A word that makes no sense is answered with a status, and costs one look at one port.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::layout::{CLOSED, PREFIX, PortLayout};
use super::protocol::{CallStatus, Side, next};
use super::words::Words;

/// What a server does with a call.
pub(crate) trait Dispatch {
    /// Serves a call at a port: `arguments` are the words that the client sent, `results` is empty, and takes at most
    /// the payload of a port.
    fn dispatch(
        &self,
        port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus;

    /// Hears of a call that claims to be longer than its port.
    fn oversize(&self) {}
}

/// The locks and outboxes of the server: memory that no client sees.
pub(crate) trait Private {
    /// Takes the lock of a port, if it is free.
    fn try_lock(&self, port: usize) -> bool;
    /// Gives it back.
    fn unlock(&self, port: usize);
    /// What was answered last at a port. Only with its lock.
    fn answered(&self, port: usize) -> u32;
    /// Remembers what was answered. Only with its lock.
    fn set_answered(&self, port: usize, request: u32);
}

/// One port as its server knows it.
#[derive(Debug, Default)]
struct Own {
    lock: AtomicBool,
    answered: AtomicU32,
}

/// [`Private`] in the host's memory.
#[derive(Debug)]
pub(crate) struct HostPrivate(Box<[Own]>);

impl HostPrivate {
    pub fn new(ports: usize) -> Self {
        Self((0..ports).map(|_| Own::default()).collect())
    }
}

impl Private for HostPrivate {
    fn try_lock(&self, port: usize) -> bool {
        let own = self.0.get(port);
        own.is_some_and(|own| !own.lock.swap(true, Ordering::AcqRel))
    }

    fn unlock(&self, port: usize) {
        if let Some(own) = self.0.get(port) {
            own.lock.store(false, Ordering::Release);
        }
    }

    fn answered(&self, port: usize) -> u32 {
        (self.0.get(port)).map_or(0, |own| own.answered.load(Ordering::Acquire))
    }

    fn set_answered(&self, port: usize, request: u32) {
        if let Some(own) = self.0.get(port) {
            own.answered.store(request, Ordering::Release);
        }
    }
}

/// The server's end of a set of ports. Any number of threads may sweep one.
#[derive(Debug)]
pub(crate) struct Server<W, P = HostPrivate> {
    words: W,
    private: P,
    layout: PortLayout,
}

/// What a sweeping thread keeps from one sweep to the next.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    /// The port served last; the next sweep begins behind it, so that no port starves.
    last: usize,
    arguments: Vec<u32>,
    results: Vec<u32>,
}

impl<W: Words> Server<W> {
    /// The server of ports that nobody has used yet, and whose words are zero; writes their header.
    pub fn new(words: W, layout: PortLayout) -> Self {
        for (index, value) in layout.header() {
            words.store(index, value);
        }
        Self {
            words,
            private: HostPrivate::new(layout.ports),
            layout,
        }
    }
}

impl<W: Words, P: Private> Server<W, P> {
    /// As `new`, with the server's own words elsewhere.
    #[cfg(test)]
    pub fn with_private(words: W, private: P, layout: PortLayout) -> Self {
        Self {
            words,
            private,
            layout,
        }
    }

    pub fn words(&self) -> &W {
        &self.words
    }

    pub fn layout(&self) -> PortLayout {
        self.layout
    }

    /// Tells clients not to wait any longer.
    pub fn close(&self) {
        self.words.store(CLOSED, 1);
    }

    /// Looks at every port once and serves what is posted; the number of calls served.
    pub fn sweep(&self, sweeper: &mut Sweeper, dispatch: &impl Dispatch) -> usize {
        let ports = self.layout.ports;
        let start = (sweeper.last + 1) % ports;
        let mut served = 0;
        for port in (start..ports).chain(0..start) {
            if self.serve(port, sweeper, dispatch) {
                sweeper.last = port;
                served += 1;
            }
        }
        served
    }

    /// Serves the call at a port, if there is one and no other thread is at it.
    pub fn serve(&self, port: usize, sweeper: &mut Sweeper, dispatch: &impl Dispatch) -> bool {
        let (words, layout, own) = (&self.words, self.layout, &self.private);
        let posted = || {
            let inbox = words.load(layout.request(port));
            next(Side::Server, inbox, own.answered(port))
        };
        // A cheap look first: most ports are quiet, and a lock is a write. It decides nothing.
        if posted().is_none() || !own.try_lock(port) {
            return false;
        }
        let Some(request) = posted() else {
            own.unlock(port);
            return false;
        };
        let at = layout.arguments(port);
        let (opcode, length) = (words.load(at), words.load(at + 1) as usize);
        sweeper.results.clear();
        let status = if length > layout.payload {
            dispatch.oversize();
            CallStatus::Malformed
        } else {
            sweeper.arguments.clear();
            let arguments = (0..length).map(|index| words.load(at + PREFIX + index));
            sweeper.arguments.extend(arguments);
            dispatch.dispatch(port, opcode, &sweeper.arguments, &mut sweeper.results)
        };
        let at = layout.results(port);
        let results = sweeper.results.iter().take(layout.payload);
        for (index, &word) in results.enumerate() {
            words.store(at + PREFIX + index, word);
        }
        words.store(at, status.code());
        words.store(at + 1, sweeper.results.len() as u32);
        words.store(at + 2, request);
        own.set_answered(port, request);
        words.store(layout.reply(port), request);
        own.unlock(port);
        true
    }
}
