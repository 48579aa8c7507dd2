//! Invocations of a subgroup, sharing packets (`shaders/rpc_packed_of.wgsl`).
//!
//! Any invocations of a subgroup looking for a port may be together in a turn, and act as one then. From there each
//! goes on by itself, as late as it likes. Their writes cross a bus and arrive in any order; one thread serves, and its
//! answers arrive with its mailbox.
//!
//! In every reachable state a call is served once, with its own argument, and an invocation reads its own result. From
//! every state the end can be reached, with every call made and all locks free.

use super::super::protocol::{Side, next};
use super::{ANSWER, Machine, explore};

/// Invocations of a subgroup, and the calls of a full packet.
const LANES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The first invocation gives the port back after its own read, regardless of the others' reads.
    FirstReleases,
    /// Each invocation gives the port back.
    EachReleases,
    /// Nobody looks at the seal.
    NoSeal,
    /// The seal is of the first invocation's words alone.
    SealOfOne,
    /// The kernels do not note the posted request.
    NoNote,
    /// The mailbox of the server is not looked at again with the lock in hand.
    NoRecheck,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    ports: usize,
    subgroups: usize,
    calls: u32,
    /// The calls of a full packet.
    records: usize,
    /// Invocations may stop waiting, and leave their call alone.
    leaves: bool,
    flaw: Flaw,
}

/// Where an invocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum At {
    Search,
    /// Has looked at the port's answer and taken its lock, with all invocations at the same place.
    Locked(usize, u32),
    /// The invocation's call has the given number in the packet, and the invocation waits for the answer to a request.
    Waiting(usize, u32, usize),
    Answered(usize, usize),
    Read(usize, usize),
}

/// A word on its way to the host: the records, their count, the seal, and the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flying {
    port: usize,
    word: usize,
    value: u32,
}

const COUNT: usize = LANES;
const SEAL: usize = LANES + 1;
const REQUEST: usize = LANES + 2;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Port {
    /// Invocations with the lock still in hand.
    lock: u32,
    /// The kernels' note of the request posted last.
    posted: u32,
    /// The host's view.
    seen: [u32; LANES + 3],
    results: [u32; LANES],
    reply: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ports: Vec<Port>,
    flying: Vec<Flying>,
    /// For each invocation, its place, and its calls so far.
    lanes: Vec<(At, u32)>,
    served: Vec<u8>,
}

/// A seal mixes words with their places.
fn seal(records: &[u32], count: u32, request: u32) -> u32 {
    let placed = records.iter().enumerate();
    placed.map(|(at, call)| call << (4 * at)).sum::<u32>() + (count << 12) + (request << 16)
}

impl State {
    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut state = self.clone();
        change(&mut state);
        // A stable sort: words for the same place stay in order.
        state.flying.sort_by_key(|write| (write.port, write.word));
        state
    }

    /// The invocations of a subgroup at a place.
    fn at(&self, subgroup: usize, place: impl Fn(At) -> bool) -> Vec<usize> {
        let lanes = subgroup * LANES..(subgroup + 1) * LANES;
        lanes.filter(|&lane| place(self.lanes[lane].0)).collect()
    }

    fn call_of(&self, setup: &Setup, lane: usize) -> u32 {
        lane as u32 * setup.calls + self.lanes[lane].1 + 1
    }

    /// Turns of a subgroup: each set of searching invocations may be together.
    fn search(&self, setup: &Setup, subgroup: usize, found: &mut Vec<Self>) {
        let searching = self.at(subgroup, |at| at == At::Search);
        let searching: Vec<usize> = (searching.into_iter())
            .filter(|&lane| self.lanes[lane].1 < setup.calls)
            .collect();
        for set in 1..1u32 << searching.len() {
            let together = (searching.iter().enumerate()).filter(|(bit, _)| set >> bit & 1 == 1);
            let together: Vec<usize> = together.map(|(_, &lane)| lane).collect();
            for port in 0..setup.ports {
                if self.ports[port].lock == 0 {
                    found.push(self.with(|s| {
                        s.ports[port].lock = 1;
                        let answered = s.ports[port].reply;
                        for &lane in &together {
                            s.lanes[lane].0 = At::Locked(port, answered);
                        }
                    }));
                }
            }
        }
    }

    /// The holders of the lock post, or give the lock back.
    fn post(&self, setup: &Setup, subgroup: usize, found: &mut Vec<Self>) {
        for port in 0..setup.ports {
            let together = self.at(subgroup, |at| matches!(at, At::Locked(p, _) if p == port));
            let Some(At::Locked(_, answered)) = together.first().map(|&lane| self.lanes[lane].0)
            else {
                continue;
            };
            let is_free = setup.flaw == Flaw::NoRecheck
                || next(Side::Client, answered, self.ports[port].posted).is_some();
            let count = together.len().min(setup.records);
            let request = self.ports[port].posted.max(answered) + 1;
            found.push(self.with(|s| {
                s.ports[port].lock = if is_free { count as u32 } else { 0 };
                let mut records = Vec::new();
                for (rank, &lane) in together.iter().enumerate() {
                    s.lanes[lane].0 = match is_free && rank < count {
                        true => At::Waiting(port, request, rank),
                        false => At::Search,
                    };
                    if is_free && rank < count {
                        records.push(s.call_of(setup, lane));
                    }
                }
                if !is_free {
                    return;
                }
                if setup.flaw != Flaw::NoNote {
                    s.ports[port].posted = request;
                }
                let sealed = match setup.flaw {
                    Flaw::SealOfOne => &records[..1],
                    _ => &records[..],
                };
                let seal = seal(sealed, count as u32, request);
                let words = records.iter().copied().enumerate();
                let head = [(COUNT, count as u32), (SEAL, seal), (REQUEST, request)];
                for (word, value) in words.chain(head) {
                    s.flying.push(Flying { port, word, value });
                }
            }));
        }
    }

    /// An invocation by itself: sees the answer, reads its result, gives its part of the port back.
    fn alone(&self, setup: &Setup, lane: usize, found: &mut Vec<Self>) -> Result<(), String> {
        if let (true, At::Waiting(port, ..)) = (setup.leaves, self.lanes[lane].0) {
            found.push(self.with(|s| {
                s.ports[port].lock -= 1;
                s.lanes[lane] = (At::Search, s.lanes[lane].1 + 1);
            }));
        }
        match self.lanes[lane].0 {
            At::Waiting(port, request, rank) if self.ports[port].reply == request => {
                found.push(self.with(|s| s.lanes[lane].0 = At::Answered(port, rank)));
            }
            At::Answered(port, rank) => {
                let (call, result) = (self.call_of(setup, lane), self.ports[port].results[rank]);
                if result != call + ANSWER {
                    return Err(format!("call {call} got {result}"));
                }
                if self.served[call as usize] != 1 {
                    return Err(format!("call {call} returned, and was not served once"));
                }
                found.push(self.with(|s| s.lanes[lane].0 = At::Read(port, rank)));
            }
            At::Read(port, rank) => found.push(self.with(|s| {
                let lock = &mut s.ports[port].lock;
                *lock = match setup.flaw {
                    Flaw::FirstReleases if rank == 0 => 0,
                    Flaw::FirstReleases => *lock,
                    Flaw::EachReleases => 0,
                    _ => *lock - 1,
                };
                s.lanes[lane] = (At::Search, s.lanes[lane].1 + 1);
            })),
            _ => {}
        }
        Ok(())
    }

    /// The host looks at a port, and serves the packet there.
    fn serve(&self, setup: &Setup, port: usize, found: &mut Vec<Self>) -> Result<(), String> {
        let own = &self.ports[port];
        let Some(request) = next(Side::Server, own.seen[REQUEST], own.reply) else {
            return Ok(());
        };
        let count = own.seen[COUNT] as usize;
        let records = &own.seen[..count.min(LANES)];
        let sealed = match setup.flaw {
            Flaw::SealOfOne => &records[..records.len().min(1)],
            _ => records,
        };
        let is_whole = own.seen[SEAL] == seal(sealed, count as u32, request);
        if !is_whole && setup.flaw != Flaw::NoSeal {
            return Ok(());
        }
        let mut state = self.clone();
        for (rank, &call) in records.iter().enumerate() {
            let Some(times) = state.served.get_mut(call as usize).filter(|_| call != 0) else {
                return Err(format!("served what nobody posted: {call}"));
            };
            *times += 1;
            if *times > 1 {
                return Err(format!("call {call} was served twice"));
            }
            state.ports[port].results[rank] = call + ANSWER;
        }
        state.ports[port].reply = request;
        found.push(state);
        Ok(())
    }
}

impl Machine for State {
    type Setup = Setup;

    fn start(setup: &Setup) -> Self {
        let lanes = setup.subgroups * LANES;
        Self {
            ports: vec![Port::default(); setup.ports],
            flying: Vec::new(),
            lanes: vec![(At::Search, 0); lanes],
            served: vec![0; lanes * setup.calls as usize + 1],
        }
    }

    fn successors(&self, setup: &Setup) -> Result<Vec<Self>, String> {
        let mut found = Vec::new();
        for (at, &Flying { port, word, value }) in self.flying.iter().enumerate() {
            // Writes to the same place arrive in order.
            let place = |other: &Flying| (other.port, other.word) == (port, word);
            if self.flying[..at].iter().any(place) {
                continue;
            }
            found.push(self.with(|s| {
                s.flying.remove(at);
                s.ports[port].seen[word] = value;
            }));
        }
        for subgroup in 0..setup.subgroups {
            self.search(setup, subgroup, &mut found);
            self.post(setup, subgroup, &mut found);
        }
        for lane in 0..self.lanes.len() {
            self.alone(setup, lane, &mut found)?;
        }
        for port in 0..setup.ports {
            self.serve(setup, port, &mut found)?;
        }
        Ok(found)
    }

    fn is_over(&self, setup: &Setup) -> bool {
        self.lanes.iter().all(|&(_, calls)| calls == setup.calls)
            && self.flying.is_empty()
            && self.ports.iter().all(|port| port.lock == 0)
            && self.served[1..].iter().all(|&times| times == 1)
    }
}

const ONE: Setup = Setup {
    ports: 1,
    subgroups: 2,
    calls: 1,
    records: LANES,
    leaves: false,
    flaw: Flaw::None,
};

fn setups() -> [Setup; 5] {
    let again = Setup {
        subgroups: 1,
        calls: 2,
        ..ONE
    };
    let few = Setup { records: 1, ..ONE };
    let leaving = Setup {
        leaves: true,
        ..ONE
    };
    [ONE, again, few, leaving, Setup { ports: 2, ..ONE }]
}

#[test]
fn calls_that_share_packets_are_served_once_and_get_their_results() {
    for setup in setups() {
        let states = explore::<State>(&setup).unwrap_or_else(|why| panic!("{setup:?}: {why}"));
        assert!(states > 100, "{setup:?}: {states}");
    }
}

#[test]
fn every_flaw_of_packets_is_noticed() {
    for flaw in [
        Flaw::FirstReleases,
        Flaw::EachReleases,
        Flaw::NoSeal,
        Flaw::SealOfOne,
        Flaw::NoNote,
        Flaw::NoRecheck,
    ] {
        let is_noticed = |setup| explore::<State>(&Setup { flaw, ..setup }).is_err();
        assert!(setups().into_iter().any(is_noticed), "{flaw:?}");
    }
}
