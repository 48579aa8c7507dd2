//! The host's own code, one access of memory at a time.
//!
//! The behaviour of such code depends on its reads alone. So each step runs the code anew: earlier accesses are not
//! repeated, and return the values read then; a single further access visible to others is made; later accesses are for
//! later steps.

use std::cell::{Cell, RefCell};

use crate::persistent::settle::Calls;
use crate::rpc::port::layout::{PREFIX, PortLayout, SEAL};
use crate::rpc::port::model::{self, HEAD, MAILBOX, Memory, NOTE, PAYLOAD};
use crate::rpc::port::protocol::Side;
use crate::rpc::port::seal::{mixed, mixed_all};
use crate::rpc::port::words::{ClientWords, Words};

/// The memory shared by host and kernel. Calls taken by the kernel belong to the running kernel, and to the host
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shared {
    pub memory: Memory,
    pub taken: Vec<u32>,
}

/// How much is one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Every look at the other side's writes.
    Looks,
    /// All looks at an answer together: no word of the answer is still under way when the mailbox has come.
    Answers,
}

/// The nature of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub layout: PortLayout,
    pub sealed: bool,
    pub pace: Pace,
    /// Callers take calls back.
    pub cancels: bool,
}

/// The words of a server as seen by the host's code.
struct Steps<'m> {
    kind: Kind,
    shared: RefCell<&'m mut Shared>,
    known: &'m [u32],
    read: RefCell<Vec<u32>>,
    at: Cell<usize>,
    /// The access noticeable to others was made.
    noticed: Cell<bool>,
    /// The code wants to do more than the step allows.
    beyond: Cell<bool>,
}

/// Runs `code`, whose earlier reads are in `known`, by another step. The result of the finished code; values read go
/// into `known`.
pub(super) fn step<T>(
    kind: Kind,
    shared: &mut Shared,
    known: &mut Vec<u32>,
    code: impl FnOnce(&StepWords<'_>) -> T,
) -> Option<T> {
    let steps = StepWords(Steps {
        kind,
        shared: RefCell::new(shared),
        known: &known[..],
        read: RefCell::default(),
        at: Cell::new(0),
        noticed: Cell::new(false),
        beyond: Cell::new(false),
    });
    let outcome = code(&steps);
    let Steps { read, beyond, .. } = steps.0;
    known.extend(read.into_inner());
    (!beyond.get()).then_some(outcome)
}

/// See [`step`].
pub(super) struct StepWords<'m>(Steps<'m>);

/// What an index means.
enum Place {
    Lock(usize),
    Word(Side, usize, usize),
    /// Words that say nothing here.
    None,
}

impl StepWords<'_> {
    fn place(&self, index: usize) -> Place {
        let layout = self.0.kind.layout;
        for port in 0..layout.ports {
            let (arguments, results) = (layout.arguments(port), layout.results(port));
            let word = |side, word| Place::Word(side, port, word);
            match index {
                at if at == layout.lock(port) => return Place::Lock(port),
                at if at == layout.request(port) => return word(Side::Client, MAILBOX),
                at if at == layout.reply(port) => return word(Side::Server, MAILBOX),
                at if at == arguments + PREFIX => return word(Side::Client, PAYLOAD),
                at if at == arguments + SEAL && self.0.kind.cancels => {
                    return word(Side::Client, NOTE);
                }
                at if at == results => return word(Side::Server, HEAD),
                at if at == results + SEAL => return word(Side::Server, model::SEAL),
                at if at == results + PREFIX => return word(Side::Server, PAYLOAD),
                _ => {}
            }
        }
        Place::None
    }

    /// One access. Code beyond the step gets `past`, which leads to its end.
    fn access(&self, notice: bool, past: u32, act: impl FnOnce(&mut Shared) -> u32) -> u32 {
        let steps = &self.0;
        let at = steps.at.replace(steps.at.get() + 1);
        if let Some(&known) = steps.known.get(at) {
            return known;
        }
        if steps.noticed.get() {
            steps.beyond.set(true);
            return past;
        }
        let value = act(&mut steps.shared.borrow_mut());
        steps.read.borrow_mut().push(value);
        steps.noticed.set(notice);
        value
    }
}

impl Words for StepWords<'_> {
    fn is_sealed(&self) -> bool {
        self.0.kind.sealed
    }

    fn load(&self, index: usize) -> u32 {
        let place = self.place(index);
        // Its own mailbox is read with the lock.
        let notice = match place {
            Place::Word(Side::Server, ..) => self.0.kind.pace == Pace::Looks,
            _ => false,
        };
        self.access(notice, 0, |shared| match place {
            Place::Word(Side::Client, port, word) => shared.memory.ports[port].client[word],
            Place::Word(Side::Server, port, word) => shared.memory.ports[port].server_seen[word],
            Place::Lock(port) => u32::from(shared.memory.ports[port].client_lock),
            Place::None => 0,
        })
    }

    fn store(&self, index: usize, value: u32) {
        let place = self.place(index);
        let is_withdrawal = matches!(place, Place::Word(_, _, NOTE)) && value != 0;
        let notice = matches!(place, Place::Lock(_) | Place::Word(_, _, MAILBOX)) || is_withdrawal;
        self.access(notice, 0, |shared| {
            match place {
                Place::Lock(port) => shared.memory.ports[port].client_lock = value != 0,
                // Arguments stay unread before their mailbox.
                Place::Word(side, port, PAYLOAD) => shared.memory.write(side, port, PAYLOAD, value),
                // With the arguments; no change needs to arrive.
                Place::Word(Side::Client, port, NOTE) if value == 0 => {
                    if shared.memory.ports[port].client[NOTE] != 0 {
                        shared.memory.write(Side::Client, port, NOTE, 0);
                    }
                }
                // `Frame::store`.
                Place::Word(side, port, word) => shared.write_fenced(side, port, word, value),
                Place::None => {}
            }
            0
        });
    }
}

impl ClientWords for StepWords<'_> {
    fn swap(&self, index: usize, value: u32) -> u32 {
        let place = self.place(index);
        // With the looks at the mailboxes: in between others find the lock taken, and come back.
        self.access(false, 1, |shared| match place {
            Place::Lock(port) => {
                let lock = &mut shared.memory.ports[port].client_lock;
                u32::from(std::mem::replace(lock, value != 0))
            }
            _ => 0,
        })
    }
}

/// Of the relay, as `Frame` is.
impl Calls for StepWords<'_> {
    fn ports(&self) -> usize {
        self.0.kind.layout.ports
    }

    fn request(&self, port: usize) -> u32 {
        // With the look at the reply: changes in between are calls answered before.
        self.access(false, 0, |shared| shared.memory.ports[port].client[MAILBOX])
    }

    fn reply(&self, port: usize) -> u32 {
        self.access(true, 0, |shared| {
            shared.memory.ports[port].server_seen[MAILBOX]
        })
    }

    fn taken(&self, port: usize) -> u32 {
        self.access(false, 0, |shared| shared.taken[port])
    }

    fn take(&self, port: usize, request: u32) {
        self.access(false, 0, |shared| {
            shared.taken[port] = request;
            0
        });
    }

    fn answer(&self, port: usize, request: u32, head: [u32; 2]) {
        let kind = self.0.kind;
        self.access(true, 0, |shared| {
            let seal = seal(kind.layout, port, request, head[0], &[]);
            let port = &mut shared.memory.ports[port];
            // All of it is the host's while no lease runs.
            for words in [&mut port.server, &mut port.server_seen] {
                (words[HEAD], words[MAILBOX]) = (head[0], request);
                if kind.sealed {
                    words[model::SEAL] = seal;
                }
            }
            0
        });
    }
}

impl Shared {
    /// Orders earlier writes in front of a word, and that word in front of later writes.
    pub fn write_fenced(&mut self, side: Side, port: usize, word: usize, value: u32) {
        self.memory.fence(side);
        self.memory.write(side, port, word, value);
        self.memory.fence(side);
    }
}

/// The seal of an answer, as kernels and the host make it.
pub(super) fn seal(
    layout: PortLayout,
    port: usize,
    request: u32,
    status: u32,
    results: &[u32],
) -> u32 {
    let at = layout.results(port);
    mixed_all(at, &[status, 0])
        .wrapping_add(mixed_all(at + PREFIX, results))
        .wrapping_add(mixed(layout.reply(port), request))
}
