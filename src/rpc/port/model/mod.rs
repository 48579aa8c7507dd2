//! The protocol, explored exhaustively: every interleaving, with writes that reach the other side late.
//!
//! Each side has a memory of its own, in which its threads see each other at once (locks, outboxes, tickets). What it
//! writes for the other side is delivered later: in the order of its fences, and in any order between two fences.
//! Across a bus what one side writes arrives in any order, whatever its fences, and is sealed. That is weaker than any
//! machine that is to run this. The decisions are `next`'s, the same function that host and kernels follow.
//!
//! - [`calls`]: clients and servers over one and two ports, servers that stop, and clients that leave.
//! - [`tickets`]: calls that are begun, and collected or left by whoever has the ticket.
//!
//! What is left out in turn (a fence, a look, the order of two stores) must be noticed: each has its mutants.

mod calls;
mod tickets;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

use super::protocol::Side;

/// Calls are numbered from 1; the result of a call is its number and this.
const ANSWER: u32 = 100;

/// The words that a side writes at a port for the other one: its mailbox, its arguments or results, and their seal.
const MAILBOX: usize = 0;
/// See [`MAILBOX`].
const PAYLOAD: usize = 1;
/// See [`MAILBOX`].
const SEAL: usize = 2;

/// A write on its way to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Write {
    /// Fences before it.
    epoch: u8,
    port: usize,
    word: usize,
    value: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Port {
    client_lock: bool,
    server_lock: bool,
    /// What a side wrote, and what the other sees of it.
    client: [u32; 3],
    client_seen: [u32; 3],
    server: [u32; 3],
    server_seen: [u32; 3],
}

impl Port {
    /// Whether it is as at the start, counts apart.
    fn is_quiet(&self) -> bool {
        !self.client_lock
            && !self.server_lock
            && self.client[MAILBOX] == self.server[MAILBOX]
            && self.client == self.client_seen
            && self.server == self.server_seen
    }
}

/// The memory of both sides, and what is on its way between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Memory {
    ports: Vec<Port>,
    /// On their way from clients, and from servers.
    flying: [Vec<Write>; 2],
    epochs: [u8; 2],
    /// The side that writes across a bus, where fences order nothing.
    bus: Option<Side>,
}

impl Memory {
    fn new(ports: usize, bus: Option<Side>) -> Self {
        Self {
            bus,
            ports: vec![Port::default(); ports],
            flying: [Vec::new(), Vec::new()],
            epochs: [0, 0],
        }
    }

    /// A store of one side that the other is to see.
    fn write(&mut self, side: Side, port: usize, word: usize, value: u32) {
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

    fn fence(&mut self, side: Side) {
        if self.bus == Some(side) {
            return;
        }
        let index = side as usize;
        // Only the order counts, so that the numbers stay small when nothing is on its way.
        self.epochs[index] = match self.flying[index].iter().map(|write| write.epoch).max() {
            Some(last) => last + 1,
            None => 0,
        };
    }

    /// The memory after each delivery that may come next. Writes to one place arrive in order.
    fn deliveries(&self) -> Vec<Memory> {
        let mut found = Vec::new();
        for (index, flying) in self.flying.iter().enumerate() {
            for (at, write) in flying.iter().enumerate() {
                let place = |w: &Write| (w.port, w.word);
                let blocked = flying[..at]
                    .iter()
                    .any(|w| w.epoch < write.epoch || place(w) == place(write));
                if blocked {
                    continue;
                }
                let mut memory = self.clone();
                memory.flying[index].remove(at);
                let port = &mut memory.ports[write.port];
                let seen = [&mut port.client_seen, &mut port.server_seen];
                let [client, server] = seen;
                let seen = if index == 0 { client } else { server };
                seen[write.word] = write.value;
                // Epochs count from the oldest on its way.
                let oldest = memory.flying[index].iter().map(|w| w.epoch).min();
                let oldest = oldest.unwrap_or(memory.epochs[index]);
                memory.flying[index]
                    .iter_mut()
                    .for_each(|w| w.epoch -= oldest);
                memory.epochs[index] -= oldest;
                found.push(memory);
            }
        }
        found
    }

    /// Whether everything has arrived, and every port is as at the start.
    fn is_quiet(&self) -> bool {
        self.flying.iter().all(Vec::is_empty) && self.ports.iter().all(Port::is_quiet)
    }
}

/// What can be explored.
trait Machine: Clone + Debug + Eq + Hash {
    type Setup;

    fn start(setup: &Self::Setup) -> Self;

    /// Every state that may come next, or what is wrong with this one.
    fn successors(&self, setup: &Self::Setup) -> Result<Vec<Self>, String>;

    /// Whether everybody is through, and all is as at the start.
    fn is_over(&self, setup: &Self::Setup) -> bool;

    /// Whether nobody is left to serve, so that the end need not be reached.
    fn is_deserted(&self) -> bool {
        false
    }
}

/// Explores everything; the number of states, or what is wrong.
fn explore<M: Machine>(setup: &M::Setup) -> Result<usize, String> {
    let start = M::start(setup);
    let mut known: HashMap<M, usize> = HashMap::from([(start.clone(), 0)]);
    let mut predecessors: Vec<Vec<usize>> = vec![Vec::new()];
    let mut live = vec![true];
    let mut over = Vec::new();
    let mut queue = VecDeque::from([(start, 0)]);
    while let Some((state, index)) = queue.pop_front() {
        if state.is_over(setup) {
            over.push(index);
        }
        for successor in state.successors(setup)? {
            let next_index = known.len();
            let entry = *known.entry(successor.clone()).or_insert(next_index);
            if entry == next_index {
                predecessors.push(Vec::new());
                live.push(!successor.is_deserted());
                queue.push_back((successor, entry));
            }
            predecessors[entry].push(index);
        }
    }
    // Backwards from the end: whoever cannot reach it is stuck. Once all servers have stopped, it is enough that
    // clients, who may leave, come to their end; calls may be lost then, but never served twice.
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
    match stuck.first() {
        Some(first) => {
            let state = known.iter().find(|(_, index)| *index == first);
            Err(format!(
                "{} states are stuck, such as {state:?}",
                stuck.len()
            ))
        }
        None => Ok(known.len()),
    }
}
