//! The protocol, explored exhaustively: every interleaving, with late writes to the other side.
//!
//! Each side has a separate memory; its threads see each other there at once (locks, outboxes, tickets). Writes for the
//! other side are delivered later: in the order of the fences, and in any order between two fences. Across a bus the
//! writes of a side arrive in any order, whatever its fences, and are sealed. The model is weaker than any machine to
//! run this protocol. The decisions are `next`'s, the function followed by host and kernels.
//!
//! - [`calls`]: clients and servers over one and two ports, stopping servers, leaving clients, and withdrawn calls.
//! - [`tickets`]: calls begun, and collected or left by the holder of the ticket.
//! - [`packed`]: invocations of a subgroup, sharing packets.
//! - `persistent::model` explores servers on devices by the same means.
//!
//! Every step left out (a fence, a look, the order of two stores) must be noticed: each has its mutants.

mod calls;
mod packed;
mod tickets;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::rc::Rc;

// The hashes here take a fraction of the time of the standard ones, in code without optimization.
use hashbrown::HashMap;

use super::protocol::Side;

/// Calls are numbered from 1; the result of a call is its number plus this constant.
pub(crate) const ANSWER: u32 = 100;

/// The words written by a side at a port for the other side: the mailbox, the arguments or results, and their seal.
pub(crate) const MAILBOX: usize = 0;
/// See [`MAILBOX`].
pub(crate) const PAYLOAD: usize = 1;
/// See [`MAILBOX`].
pub(crate) const SEAL: usize = 2;
/// The status in front of results; only where the machine has one.
pub(crate) const HEAD: usize = 3;
/// The notes of a withdrawal: of the client, that the call is withdrawn; of the server, the request begun last.
pub(crate) const NOTE: usize = 4;
const WORDS: usize = 5;

/// A write on its way to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Write {
    /// Fences before the write.
    epoch: u8,
    pub port: usize,
    pub word: usize,
    pub value: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Port {
    pub client_lock: bool,
    server_lock: bool,
    /// The writes of a side, and the other side's view of them.
    pub client: [u32; WORDS],
    pub client_seen: [u32; WORDS],
    pub server: [u32; WORDS],
    pub server_seen: [u32; WORDS],
}

impl Port {
    /// Whether all is as at the start, counts apart.
    fn is_quiet(&self) -> bool {
        !self.client_lock
            && !self.server_lock
            && self.client[MAILBOX] == self.server[MAILBOX]
            && self.client == self.client_seen
            && self.server == self.server_seen
    }
}

/// The memory of both sides, and the writes on their way between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    pub ports: Vec<Port>,
    /// On their way from clients, and from servers.
    pub flying: [Vec<Write>; 2],
    epochs: [u8; 2],
    /// The side writing across a bus, where fences order nothing.
    bus: Option<Side>,
}

impl Memory {
    pub fn new(ports: usize, bus: Option<Side>) -> Self {
        Self {
            bus,
            ports: vec![Port::default(); ports],
            flying: [Vec::new(), Vec::new()],
            epochs: [0, 0],
        }
    }

    /// A store of a side for the other side to see.
    pub fn write(&mut self, side: Side, port: usize, word: usize, value: u32) {
        let index = side as usize;
        let own = match side {
            Side::Client => &mut self.ports[port].client,
            Side::Server => &mut self.ports[port].server,
        };
        own[word] = value;
        let write = Write {
            epoch: self.epochs[index],
            port,
            word,
            value,
        };
        self.flying[index].push(write);
    }

    pub fn fence(&mut self, side: Side) {
        if self.bus == Some(side) {
            return;
        }
        let index = side as usize;
        // Only the order counts, so the numbers stay small when nothing is on its way.
        self.epochs[index] = match self.flying[index].iter().map(|write| write.epoch).max() {
            Some(last) => last + 1,
            None => 0,
        };
    }

    /// The writes of a side that may arrive next. Writes to the same place arrive in order.
    pub fn arriving(&self, side: Side) -> impl Iterator<Item = usize> {
        let flying = &self.flying[side as usize];
        (0..flying.len()).filter(|&at| {
            let write = flying[at];
            let place = |w: &Write| (w.port, w.word);
            !(flying[..at].iter()).any(|w| w.epoch < write.epoch || place(w) == place(&write))
        })
    }

    /// A write of a side arrives, if allowed to.
    pub fn deliver(&mut self, side: Side, at: usize) {
        let flying = &mut self.flying[side as usize];
        let write = flying.remove(at);
        let port = &mut self.ports[write.port];
        let seen = match side {
            Side::Client => &mut port.client_seen,
            Side::Server => &mut port.server_seen,
        };
        seen[write.word] = write.value;
        // Epochs count from the oldest on its way.
        let own = &mut self.epochs[side as usize];
        let oldest = flying.iter().map(|w| w.epoch).min().unwrap_or(*own);
        flying.iter_mut().for_each(|w| w.epoch -= oldest);
        *own -= oldest;
    }

    /// The memory after each possible next delivery.
    pub fn deliveries(&self) -> Vec<Memory> {
        let mut found = Vec::new();
        for side in [Side::Client, Side::Server] {
            for at in self.arriving(side) {
                let mut memory = self.clone();
                memory.deliver(side, at);
                found.push(memory);
            }
        }
        found
    }

    /// Whether a side's note at a port has arrived, as behind a full fence.
    pub fn note_arrived(&self, side: Side, port: usize) -> bool {
        let mut flying = self.flying[side as usize].iter();
        !flying.any(|write| (write.port, write.word) == (port, NOTE))
    }

    /// All writes of a side arrive.
    pub fn deliver_all(&mut self, side: Side) {
        for write in std::mem::take(&mut self.flying[side as usize]) {
            let port = &mut self.ports[write.port];
            let seen = match side {
                Side::Client => &mut port.client_seen,
                Side::Server => &mut port.server_seen,
            };
            seen[write.word] = write.value;
        }
        self.epochs[side as usize] = 0;
    }

    /// Forgets the order of writes where the order does not matter.
    pub fn sort(&mut self) {
        for flying in &mut self.flying {
            flying.sort_by_key(|write| (write.epoch, write.port, write.word));
        }
    }

    /// Whether everything has arrived, and every port is as at the start.
    fn is_quiet(&self) -> bool {
        self.flying.iter().all(Vec::is_empty) && self.ports.iter().all(Port::is_quiet)
    }
}

/// An explorable machine.
pub(crate) trait Machine: Clone + Debug + Eq + Hash {
    type Setup;

    fn start(setup: &Self::Setup) -> Self;

    /// All possible next states, or the fault of this state.
    fn successors(&self, setup: &Self::Setup) -> Result<Vec<Self>, String>;

    /// Whether everybody is through, and all is as at the start.
    fn is_over(&self, setup: &Self::Setup) -> bool;

    /// Whether nobody is left to serve, so the end need not be reached.
    fn is_deserted(&self) -> bool {
        false
    }
}

/// Explores everything; the number of states, or the fault.
pub(crate) fn explore<M: Machine>(setup: &M::Setup) -> Result<usize, String> {
    let start = Rc::new(M::start(setup));
    let mut known: HashMap<Rc<M>, usize> = HashMap::from_iter([(Rc::clone(&start), 0)]);
    let mut predecessors: Vec<Vec<usize>> = vec![Vec::new()];
    let mut live = vec![true];
    let mut over = Vec::new();
    let mut queue = VecDeque::from([(start, 0)]);
    while let Some((state, index)) = queue.pop_front() {
        if state.is_over(setup) {
            over.push(index);
        }
        for successor in state.successors(setup)? {
            let entry = match known.get(&successor) {
                Some(&entry) => entry,
                None => {
                    let entry = known.len();
                    predecessors.push(Vec::new());
                    live.push(!successor.is_deserted());
                    let successor = Rc::new(successor);
                    known.insert(Rc::clone(&successor), entry);
                    queue.push_back((successor, entry));
                    entry
                }
            };
            predecessors[entry].push(index);
        }
    }
    // Backwards from the end: a state without a way to the end is stuck. Once all servers have stopped, clients, free
    // to leave, only have to come to their end; calls may be lost then, but never served twice.
    if over.is_empty() {
        return Err("the end is never reached".to_owned());
    }
    let mut reaches = vec![false; known.len()];
    let mut queue: Vec<usize> = over;
    queue.iter().for_each(|&index| reaches[index] = true);
    while let Some(index) = queue.pop() {
        for &before in &predecessors[index] {
            if !std::mem::replace(&mut reaches[before], true) {
                queue.push(before);
            }
        }
    }
    let stuck: BTreeSet<usize> = (0..known.len())
        .filter(|&i| live[i] && !reaches[i])
        .collect();
    // The last difference found: the end rather than the cause.
    match stuck.last() {
        Some(last) => {
            let state = known.iter().find(|(_, index)| *index == last);
            Err(format!(
                "{} states are stuck, such as {state:?}",
                stuck.len()
            ))
        }
        None => Ok(known.len()),
    }
}
