//! The answering side. The server trusts nothing: everything deciding its reads and writes is its own (the sizes, its
//! locks, its last answers); of the other side's writes the server copies the header once, checks the copy and uses the
//! copy. A senseless word is answered with a status, at the cost of a single look at a single port.
//!
//! The server looks at the mailboxes of sixteen ports at a time, and at the lines of the last calls eight times as
//! often as at the others. One server thread alone needs no locks, and tells the clients of a line of all answers
//! together (else the line would go back and forth with each), unless the function was not quick at its last timing:
//! nobody waits for another caller's slow call.
//!
//! Where clients may withdraw their calls, the note of a begun call has to arrive before the server looks for a
//! withdrawal, and waits for a line of the client's processor to come over. So the quick calls of a line are begun
//! together, behind one fence, and their lines come over at the same time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;

use super::layout::{BEGUN, CLOSED, LINE, PREFIX, PortLayout, SEAL};
use super::protocol::{CallStatus, Side, next};
use super::seal::{mixed, mixed_all};
use super::words::Words;
use crate::clock::Instant;

/// The server's ways with a call.
pub(crate) trait Dispatch {
    /// Serves a call at a port: `arguments` are the words sent by the client, `results` is empty, and takes at most the
    /// payload of a port.
    fn dispatch(
        &self,
        port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus;

    /// Whether answers to other calls may wait during this call.
    fn is_quick(&self, opcode: u32) -> bool {
        let _ = opcode;
        false
    }

    /// Whether this thread serves a call at a port. A call left unserved stays posted, for another thread.
    fn takes(&self, port: usize, opcode: u32) -> bool {
        let _ = (port, opcode);
        true
    }

    /// Receives calls claiming to be longer than their port.
    fn oversize(&self) {}

    /// Hears of a call with missing words; the server looks at the call again.
    fn late(&self) {}
}

/// The locks and outboxes of the server: memory unseen by clients.
pub(crate) trait Private {
    /// Takes the lock of a port, if free.
    fn try_lock(&self, port: usize) -> bool;
    /// Gives the lock back.
    fn unlock(&self, port: usize);
    /// The last answer at a port. Only with the lock, or for a look without consequences.
    fn answered(&self, port: usize) -> u32;
    /// Remembers the answer. Only with its lock.
    fn set_answered(&self, port: usize, request: u32);
    /// The answers at the ports of a line.
    fn line(&self, line: usize) -> Option<&[AtomicU32; LINE]>;
}

/// [`Private`] in the host's memory.
#[derive(Debug)]
pub(crate) struct HostPrivate {
    /// None where one thread serves all.
    locks: Box<[AtomicBool]>,
    answered: Box<[[AtomicU32; LINE]]>,
    is_alone: bool,
}

impl HostPrivate {
    fn new(ports: usize, is_alone: bool) -> Self {
        let locks = if is_alone { 0 } else { ports };
        let line = |_| std::array::from_fn(|_| AtomicU32::new(0));
        Self {
            locks: (0..locks).map(|_| AtomicBool::new(false)).collect(),
            answered: (0..ports.div_ceil(LINE)).map(line).collect(),
            is_alone,
        }
    }
}

impl Private for HostPrivate {
    fn try_lock(&self, port: usize) -> bool {
        let lock = self.locks.get(port);
        self.is_alone || lock.is_some_and(|lock| !lock.swap(true, Ordering::AcqRel))
    }

    fn unlock(&self, port: usize) {
        if let Some(lock) = self.locks.get(port) {
            lock.store(false, Ordering::Release);
        }
    }

    fn answered(&self, port: usize) -> u32 {
        let answered = self.answered.as_flattened().get(port);
        answered.map_or(0, |answered| answered.load(Ordering::Relaxed))
    }

    fn set_answered(&self, port: usize, request: u32) {
        if let Some(answered) = self.answered.as_flattened().get(port) {
            answered.store(request, Ordering::Relaxed);
        }
    }

    fn line(&self, line: usize) -> Option<&[AtomicU32; LINE]> {
        self.answered.get(line)
    }
}

/// The server's end of a set of ports. Any number of threads may sweep a server, except one made for a single thread.
#[derive(Debug)]
pub(crate) struct Server<W, P = HostPrivate> {
    words: W,
    private: P,
    layout: PortLayout,
    /// Clients may withdraw calls before their beginning.
    withdraws: bool,
}

/// Lines of ports looked at more often than the others.
const BUSY: usize = 8;

/// How long the words of a call may take to arrive. Words take microseconds; a packet incomplete by then is no call.
const LATEST: Duration = Duration::from_secs(1);

/// State kept by a sweeping thread between sweeps.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// The port served last; the next sweep begins behind it, so no port starves.
    last: usize,
    /// The lines of the last found calls.
    busy: Vec<usize>,
    arguments: Vec<u32>,
    results: Vec<u32>,
    /// Ports whose calls were not whole at the last look: the request, and since when.
    late: HashMap<usize, (u32, Instant)>,
    latest: Duration,
}

impl Default for Sweeper {
    fn default() -> Self {
        Self::waiting(LATEST)
    }
}

impl Sweeper {
    /// A server waiting so long for calls to be whole.
    pub fn waiting(latest: Duration) -> Self {
        Self {
            last: 0,
            busy: Vec::new(),
            arguments: Vec::new(),
            results: Vec::new(),
            late: HashMap::new(),
            latest,
        }
    }

    /// Whether the incomplete call at a port never will be whole.
    fn gives_up(&mut self, port: usize, request: u32) -> bool {
        let now = Instant::now();
        let (late, since) = self.late.entry(port).or_insert((request, now));
        if *late != request {
            (*late, *since) = (request, now);
        }
        let gives_up = now.duration_since(*since) >= self.latest;
        if gives_up {
            self.late.remove(&port);
        }
        gives_up
    }
}

/// The header of a posted call, copied once.
#[derive(Clone, Copy, Default)]
struct Post {
    request: u32,
    opcode: u32,
    length: usize,
    is_quick: bool,
}

/// Begun calls of a line: their ports are locked.
#[derive(Default)]
struct Begun {
    posts: [Post; LINE],
    ports: u32,
}

/// Calls of a line already served, with mailboxes still silent.
struct Answers {
    requests: [u32; LINE],
    served: u32,
}

impl<W: Words> Server<W> {
    /// The server of unused ports with zeroed words; writes their header. `is_alone`: a single thread at most will ever
    /// serve them.
    pub fn new(words: W, layout: PortLayout, is_alone: bool) -> Self {
        let (index, value) = layout.header();
        words.store(index, value);
        Self {
            words,
            private: HostPrivate::new(layout.ports, is_alone),
            layout,
            withdraws: false,
        }
    }

    /// The same server, with clients that may withdraw calls before their beginning.
    pub fn with_withdrawal(self, withdraws: bool) -> Self {
        Self { withdraws, ..self }
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
            withdraws: false,
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

    /// Looks at every port once and serves the posted calls; the number of calls served.
    pub fn sweep(&self, sweeper: &mut Sweeper, dispatch: &impl Dispatch) -> usize {
        let lines = self.layout.ports.div_ceil(LINE);
        let start = (sweeper.last + 1) % self.layout.ports;
        let (first, behind) = (start / LINE, u32::MAX << (start % LINE));
        sweeper.busy.clear();
        let mut served = self.sweep_line(first, behind, sweeper, dispatch);
        for line in (first + 1..lines).chain(0..first) {
            let found = self.sweep_line(line, u32::MAX, sweeper, dispatch);
            if found > 0 && sweeper.busy.len() < BUSY {
                sweeper.busy.push(line);
            }
            served += found;
        }
        served += self.sweep_line(first, !behind, sweeper, dispatch);
        if sweeper.busy.len() < BUSY {
            sweeper.busy.push(first);
        }
        served
    }

    /// Looks at the ports near calls found by the last sweep, and serves the posted calls; the number of calls served.
    pub fn glance(&self, sweeper: &mut Sweeper, dispatch: &impl Dispatch) -> usize {
        let mut served = 0;
        for index in 0..sweeper.busy.len() {
            if let Some(&line) = sweeper.busy.get(index) {
                served += self.sweep_line(line, u32::MAX, sweeper, dispatch);
            }
        }
        served
    }

    /// Serves the posts at the ports of a line with a bit in `among`.
    fn sweep_line(
        &self,
        line: usize,
        among: u32,
        sweeper: &mut Sweeper,
        dispatch: &impl Dispatch,
    ) -> usize {
        let first = line * LINE;
        let ports = self.layout.ports.saturating_sub(first).min(LINE);
        let Some(answered) = self.private.line(line) else {
            return 0;
        };
        let requests = self.layout.request(first);
        let mut posted = self.words.differing(requests, answered);
        if posted == 0 {
            return 0;
        }
        posted &= among & ((1 << ports) - 1);
        if posted == 0 {
            return 0;
        }
        let mut answers = Answers {
            requests: [0; LINE],
            served: 0,
        };
        let mut count = 0;
        if self.withdraws {
            count = self.sweep_together(first, posted, &mut answers, sweeper, dispatch);
            posted = 0;
        }
        while posted != 0 {
            let index = posted.trailing_zeros() as usize;
            posted &= posted - 1;
            if let Some(post) = self.take(first + index, dispatch)
                && self.work(first, index, post, &mut answers, sweeper, dispatch)
            {
                count += 1;
            }
        }
        self.publish(first, &mut answers);
        count
    }

    /// Serves the withdrawable posts at the ports of a line with a bit in `posted`. Apart from the others, served faster
    /// for the separation.
    fn sweep_together(
        &self,
        first: usize,
        mut posted: u32,
        answers: &mut Answers,
        sweeper: &mut Sweeper,
        dispatch: &impl Dispatch,
    ) -> usize {
        let mut begun = Begun::default();
        let mut count = 0;
        while posted != 0 {
            posted = self.begin(first, posted, &mut begun, dispatch);
            while begun.ports != 0 {
                let index = begun.ports.trailing_zeros() as usize;
                begun.ports &= begun.ports - 1;
                let post = begun.posts[index];
                count += usize::from(self.work(first, index, post, answers, sweeper, dispatch));
            }
        }
        count
    }

    /// Serves the call at a port, if there is a call and no other thread is serving.
    #[cfg(test)]
    pub fn serve(&self, port: usize, sweeper: &mut Sweeper, dispatch: &impl Dispatch) -> bool {
        let mut answers = Answers {
            requests: [0; LINE],
            served: 0,
        };
        let post = self.take(port, dispatch);
        let served =
            post.is_some_and(|post| self.work(port, 0, post, &mut answers, sweeper, dispatch));
        self.publish(port, &mut answers);
        served
    }

    /// Begins calls at those ports of a line with a bit in `posted`, and returns the bits of the remaining ones: all
    /// quick calls up to the next slow one, or the slow one alone.
    fn begin(
        &self,
        first: usize,
        mut posted: u32,
        begun: &mut Begun,
        dispatch: &impl Dispatch,
    ) -> u32 {
        while posted != 0 {
            let index = posted.trailing_zeros() as usize;
            let port = first + index;
            let post = self.take(port, dispatch);
            let is_quick = post.is_none_or(|post| post.is_quick);
            if !is_quick && begun.ports != 0 {
                // Its caller may still withdraw while the others are served.
                self.private.unlock(port);
                break;
            }
            posted &= posted - 1;
            if let Some(post) = post {
                begun.posts[index] = post;
                begun.ports |= 1 << index;
                let note = self.layout.results(port) + BEGUN;
                self.words.store(note, post.request);
            }
            if !is_quick {
                break;
            }
        }
        // A client notes a withdrawal and looks for the note of the begun call then. With a full fence on both sides not
        // both can miss the other's.
        fence(Ordering::SeqCst);
        posted
    }

    /// Takes the lock of a port, if there is a call served by this thread.
    #[inline(always)]
    fn take(&self, port: usize, dispatch: &impl Dispatch) -> Option<Post> {
        let (words, layout, own) = (&self.words, self.layout, &self.private);
        if !own.try_lock(port) {
            return None;
        }
        // The caller looks because of a look without the lock.
        let inbox = words.load(layout.request(port));
        let Some(request) = next(Side::Server, inbox, own.answered(port)) else {
            own.unlock(port);
            return None;
        };
        let at = layout.arguments(port);
        let (opcode, length) = (words.load(at), words.load(at + 1) as usize);
        if !dispatch.takes(port, opcode) {
            own.unlock(port);
            return None;
        }
        Some(Post {
            request,
            opcode,
            length,
            is_quick: dispatch.is_quick(opcode),
        })
    }

    /// Serves the call taken at port `first + index`, and notes the call in `answers`, for the client to learn later.
    #[inline(always)]
    fn work(
        &self,
        first: usize,
        index: usize,
        post: Post,
        answers: &mut Answers,
        sweeper: &mut Sweeper,
        dispatch: &impl Dispatch,
    ) -> bool {
        let port = first + index;
        let (words, layout, own) = (&self.words, self.layout, &self.private);
        let Post {
            request,
            opcode,
            length,
            is_quick,
        } = post;
        let at = layout.arguments(port);
        let fits = length <= layout.payload;
        let read = if fits { length } else { 0 };
        sweeper.arguments.resize(read, 0);
        words.load_all(at + PREFIX, &mut sweeper.arguments);
        let mut is_whole = true;
        if words.is_sealed() {
            let head = mixed(at, opcode).wrapping_add(mixed(at + 1, length as u32));
            let all = head
                .wrapping_add(mixed_all(at + PREFIX, &sweeper.arguments))
                .wrapping_add(mixed(layout.request(port), request));
            is_whole = all == words.load(at + SEAL);
        }
        if is_whole {
            if !sweeper.late.is_empty() {
                sweeper.late.remove(&port);
            }
        } else {
            dispatch.late();
            if !sweeper.gives_up(port, request) {
                own.unlock(port);
                return false;
            }
        }
        if !is_quick {
            // A waiter for the others must not wait for this call.
            self.publish(first, answers);
        }
        sweeper.results.clear();
        let status = if !is_whole {
            CallStatus::Malformed
        } else if self.withdraws && words.load(at + SEAL) == 1 {
            CallStatus::Busy
        } else if fits {
            dispatch.dispatch(port, opcode, &sweeper.arguments, &mut sweeper.results)
        } else {
            dispatch.oversize();
            CallStatus::Malformed
        };
        let at = layout.results(port);
        let length = sweeper.results.len().min(layout.payload);
        words.store_all(at + PREFIX, &sweeper.results[..length]);
        words.store_all(at, &[status.code(), sweeper.results.len() as u32]);
        own.set_answered(port, request);
        sweeper.last = port;
        answers.requests[index] = request;
        answers.served |= 1 << index;
        if !is_quick {
            self.publish(first, answers);
        }
        true
    }

    /// Tells the clients of answers.
    fn publish(&self, first: usize, answers: &mut Answers) {
        let mut served = std::mem::take(&mut answers.served);
        if served == 0 {
            return;
        }
        (self.words).store_among(self.layout.reply(first), &answers.requests, served);
        while served != 0 {
            self.private
                .unlock(first + served.trailing_zeros() as usize);
            served &= served - 1;
        }
    }
}
