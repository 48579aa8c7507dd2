//! Clients and servers over one and two ports, stopping servers, and leaving clients.
//!
//! In every reachable state: no two clients and no two servers are at the same port (exclusion); a server serves only
//! posted calls, once (no call duplicated), and a client reads only its own result (none mixed up). From every state
//! with running servers, an end with every call made can be reached (progress, none lost), and at the end all locks are
//! free and all mailboxes agree (return to quiescent).
//!
//! A server may keep answers back while serving other ports, and tell all the clients then; the lock (or, where a
//! single thread serves all, the memory of answered requests) prevents a second serving.

use super::super::protocol::{MOVES_PER_CALL, Side, next};
use super::{ANSWER, MAILBOX, Machine, Memory, NOTE, PAYLOAD, SEAL, WORDS};

mod checks;
mod withdrawal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The client's mailbox may arrive before its arguments.
    NoClientFence,
    /// The server's mailbox may arrive before its results.
    NoServerFence,
    /// The client posts, and writes the arguments then.
    ClientStoresSwapped,
    /// The server answers, and writes the results then.
    ServerStoresSwapped,
    /// The client looks before it takes the lock, and not again.
    NoClientRecheck,
    /// The server looks before it takes the lock, and not again.
    NoServerRecheck,
    /// Clients take no locks.
    NoClientLock,
    /// Clients give the lock back before reading the result.
    EarlyRelease,
    /// Servers give the lock back before telling the client of an answer.
    EarlyServerRelease,
    /// Servers forget an answer untold to the client.
    ForgottenAnswer,
    /// Nobody looks at seals.
    NoSeal,
    /// Seals are of the payload alone, and not of its request.
    SealWithoutRequest,
    /// The client looks whether its call is begun before the note of the withdrawal has arrived.
    NoWithdrawFence,
    /// The server looks for the withdrawal before the note of the begun call has arrived.
    NoBeginFence,
    /// The server does not look for a withdrawal.
    NoWithdrawLook,
    /// The next call at the port is posted under the withdrawal of the call before.
    StaleWithdrawal,
    /// Mailboxes are single bits, and the client looks at its inbox before taking the lock.
    BitsWithEarlyLook,
}

/// The client's look at a port before a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// At both mailboxes, with the lock in hand: threads of the host.
    Locked,
    /// At the inbox before, at the outbox with the lock in hand: kernels load a polled word at one place.
    InboxFirst,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    ports: usize,
    clients: usize,
    calls: u32,
    servers: usize,
    look: Look,
    /// Clients may stop waiting, and leave their call alone.
    leaves: bool,
    /// Clients may take unbegun calls back.
    withdraws: bool,
    /// Servers may stop for good between two calls.
    stops: bool,
    /// Servers may serve other calls before telling the client of an answer, and begin others before serving one.
    batches: bool,
    /// The side writing across a bus, and sealing its writes.
    bus: Option<Side>,
    flaw: Flaw,
}

impl Setup {
    /// Writes the payload of a request.
    fn write(&self, memory: &mut Memory, side: Side, port: usize, value: u32, request: u32) {
        memory.write(side, port, PAYLOAD, value);
        if self.withdraws && side == Side::Client && self.flaw != Flaw::StaleWithdrawal {
            memory.write(side, port, NOTE, 0);
        }
        if self.bus == Some(side) {
            memory.write(side, port, SEAL, self.seal(value, request));
        }
    }

    fn seal(&self, value: u32, request: u32) -> u32 {
        match self.flaw {
            Flaw::SealWithoutRequest => value,
            _ => value + (request << 16),
        }
    }

    /// Whether the visible words of a side are all the words of a request.
    fn is_whole(&self, side: Side, seen: [u32; WORDS], request: u32) -> bool {
        self.bus != Some(side)
            || self.flaw == Flaw::NoSeal
            || seen[SEAL] == self.seal(seen[PAYLOAD], request)
    }
}

/// Where a client is in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ClientAt {
    Search,
    /// Looked at the inbox of the port.
    Looked(usize, u32),
    Locked(usize, Option<u32>),
    Writing(usize, u32),
    Written(usize, u32),
    Waiting(usize, u32),
    /// Has noted the withdrawal, or has found its call begun.
    Withdrawing(usize, u32),
    Begun(usize, u32),
    Released(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ServerAt {
    Search,
    Locked(usize, Option<u32>),
    /// Has noted the beginning of the call.
    Beginning(usize, u32),
    Working(usize, u32),
    Answering(usize, u32, u32),
    Answered(usize, u32),
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    memory: Memory,
    clients: Vec<(ClientAt, u32)>,
    servers: Vec<ServerAt>,
    /// For each server, the ports whose answers lie there, and whose mailboxes do not say so yet.
    kept: Vec<Vec<(usize, u32)>>,
    /// For each server, the ports with its notes of begun calls, not yet looked at.
    begun: Vec<Vec<(usize, u32)>>,
    /// How often each call was served.
    served: Vec<u8>,
    left: Vec<bool>,
    /// Calls told as `Busy`.
    withdrawn: Vec<bool>,
}

impl State {
    fn id(setup: &Setup, client: usize, call: u32) -> u32 {
        client as u32 * setup.calls + call + 1
    }

    fn client_steps(
        &self,
        setup: &Setup,
        index: usize,
        found: &mut Vec<State>,
    ) -> Result<(), String> {
        let (at, call) = self.clients[index];
        if call == setup.calls {
            return Ok(());
        }
        let id = Self::id(setup, index, call);
        let bits = |word: u32| match setup.flaw {
            Flaw::BitsWithEarlyLook => word & 1,
            _ => word,
        };
        let with = |change: &dyn Fn(&mut State)| {
            let mut state = self.clone();
            change(&mut state);
            state
        };
        let go = |state: &mut State, at| state.clients[index].0 = at;
        let done = |state: &mut State| state.clients[index] = (ClientAt::Search, call + 1);
        match at {
            ClientAt::Search => {
                for port in 0..setup.ports {
                    let inbox = self.memory.ports[port].server_seen[MAILBOX];
                    if setup.look == Look::InboxFirst {
                        found.push(with(&|s| go(s, ClientAt::Looked(port, inbox))));
                    } else if setup.flaw == Flaw::NoClientRecheck {
                        let outbox = self.memory.ports[port].client[MAILBOX];
                        if let Some(request) = next(Side::Client, inbox, outbox) {
                            found.push(with(&|s| go(s, ClientAt::Looked(port, request))));
                        }
                    } else {
                        found.extend(self.locked(setup, index, port, None));
                    }
                }
            }
            ClientAt::Looked(port, word) => {
                let taken = self.locked(setup, index, port, Some(word));
                if taken.is_none() {
                    found.push(with(&|s| go(s, ClientAt::Search)));
                }
                found.extend(taken);
            }
            ClientAt::Locked(port, early) => {
                let outbox = self.memory.ports[port].client[MAILBOX];
                let request = match (setup.flaw, early) {
                    (Flaw::NoClientRecheck, Some(request)) => Some(request),
                    (_, early) => {
                        let inbox = early.unwrap_or(self.memory.ports[port].server_seen[MAILBOX]);
                        next(Side::Client, bits(inbox), bits(outbox)).map(|_| outbox + 1)
                    }
                };
                found.push(with(&|s| match request {
                    Some(request) => go(s, ClientAt::Writing(port, request)),
                    None => {
                        s.memory.ports[port].client_lock = false;
                        go(s, ClientAt::Search);
                    }
                }));
            }
            ClientAt::Writing(port, request) => found.push(with(&|s| {
                match setup.flaw {
                    Flaw::ClientStoresSwapped => {
                        s.memory.write(Side::Client, port, MAILBOX, request)
                    }
                    _ => setup.write(&mut s.memory, Side::Client, port, id, request),
                }
                if setup.flaw != Flaw::NoClientFence {
                    s.memory.fence(Side::Client);
                }
                go(s, ClientAt::Written(port, request));
            })),
            ClientAt::Written(port, request) => found.push(with(&|s| {
                match setup.flaw {
                    Flaw::ClientStoresSwapped => s.memory.write(Side::Client, port, PAYLOAD, id),
                    _ => s.memory.write(Side::Client, port, MAILBOX, request),
                }
                if setup.flaw != Flaw::NoClientFence {
                    s.memory.fence(Side::Client);
                }
                go(s, ClientAt::Waiting(port, request));
            })),
            ClientAt::Withdrawing(port, request) => {
                found.extend(self.withdraw(setup, index, port, request));
            }
            ClientAt::Waiting(port, request) | ClientAt::Begun(port, request) => {
                if setup.withdraws && matches!(at, ClientAt::Waiting(..)) {
                    found.push(with(&|s| {
                        s.memory.write(Side::Client, port, NOTE, 1);
                        go(s, ClientAt::Withdrawing(port, request));
                    }));
                }
                let seen = self.memory.ports[port].server_seen;
                let is_answered = next(Side::Client, bits(seen[MAILBOX]), bits(request)).is_some();
                if is_answered && setup.is_whole(Side::Server, seen, request) {
                    if setup.flaw == Flaw::EarlyRelease {
                        found.push(with(&|s| {
                            s.memory.ports[port].client_lock = false;
                            go(s, ClientAt::Released(port));
                        }));
                    } else {
                        self.check_result(id, seen[PAYLOAD])?;
                        found.push(with(&|s| {
                            s.withdrawn[id as usize] = seen[PAYLOAD] == withdrawal::BUSY;
                            s.memory.ports[port].client_lock = false;
                            done(s);
                        }));
                    }
                }
                if setup.leaves {
                    found.push(with(&|s| {
                        s.memory.ports[port].client_lock = false;
                        s.left[id as usize] = true;
                        done(s);
                    }));
                }
            }
            ClientAt::Released(port) => {
                self.check_result(id, self.memory.ports[port].server_seen[PAYLOAD])?;
                found.push(with(&done));
            }
        }
        Ok(())
    }

    /// The state after client `index` has taken the lock of a port, if free.
    fn locked(
        &self,
        setup: &Setup,
        index: usize,
        port: usize,
        early: Option<u32>,
    ) -> Option<State> {
        let locks = setup.flaw != Flaw::NoClientLock;
        if locks && self.memory.ports[port].client_lock {
            return None;
        }
        let mut state = self.clone();
        state.memory.ports[port].client_lock = true;
        state.clients[index].0 = ClientAt::Locked(port, early);
        Some(state)
    }

    fn server_steps(
        &self,
        setup: &Setup,
        index: usize,
        found: &mut Vec<State>,
    ) -> Result<(), String> {
        let with = |change: &dyn Fn(&mut State)| {
            let mut state = self.clone();
            change(&mut state);
            state
        };
        let go = |state: &mut State, at| state.servers[index] = at;
        match self.servers[index] {
            ServerAt::Search => {
                found.extend(self.next_begun(index));
                for port in 0..setup.ports {
                    let own = &self.memory.ports[port];
                    let early = next(Side::Server, own.client_seen[MAILBOX], own.server[MAILBOX]);
                    if early.is_some() && !own.server_lock {
                        found.push(with(&|s| {
                            s.memory.ports[port].server_lock = true;
                            go(s, ServerAt::Locked(port, early));
                        }));
                    } else if let (Some(_), Flaw::NoServerRecheck) = (early, setup.flaw) {
                        // The client goes on looking until the lock is free, and remembers the value seen.
                        found.push(with(&|s| go(s, ServerAt::Locked(port, early))));
                    }
                }
                if let [(port, request), ..] = self.kept[index][..] {
                    found.push(with(&|s| {
                        s.kept[index].remove(0);
                        s.memory.write(Side::Server, port, MAILBOX, request);
                        s.memory.fence(Side::Server);
                        s.memory.ports[port].server_lock = false;
                    }));
                } else if setup.stops && self.begun[index].is_empty() {
                    found.push(with(&|s| go(s, ServerAt::Stopped)));
                }
            }
            ServerAt::Locked(port, early) => {
                let own = &self.memory.ports[port];
                let request = match setup.flaw {
                    Flaw::NoServerRecheck => early,
                    _ => next(Side::Server, own.client_seen[MAILBOX], own.server[MAILBOX]),
                };
                let is_whole =
                    |&request: &u32| setup.is_whole(Side::Client, own.client_seen, request);
                let request = request.filter(is_whole);
                let waits = setup.flaw == Flaw::NoServerRecheck
                    && self.servers.iter().enumerate().any(|(other, at)| {
                        other != index && matches!(at, ServerAt::Beginning(p, _) | ServerAt::Working(p, _) | ServerAt::Answering(p, ..) | ServerAt::Answered(p, _) if *p == port)
                    });
                if !waits {
                    found.push(with(&|s| match request {
                        Some(request) if setup.withdraws => {
                            s.memory.write(Side::Server, port, NOTE, request);
                            go(s, ServerAt::Beginning(port, request));
                        }
                        Some(request) => go(s, ServerAt::Working(port, request)),
                        None => {
                            s.memory.ports[port].server_lock = false;
                            go(s, ServerAt::Search);
                        }
                    }));
                }
            }
            ServerAt::Beginning(port, request) => {
                found.extend(self.begin(setup, index, port, request));
                found.extend(self.begin_more(setup, index, port, request));
            }
            ServerAt::Working(port, request) => {
                let id = self.memory.ports[port].client_seen[PAYLOAD];
                let mut state = self.clone();
                let Some(times) = state.served.get_mut(id as usize).filter(|_| id != 0) else {
                    return Err(format!("served what nobody posted: {id}"));
                };
                *times += 1;
                if self.withdrawn[id as usize] {
                    return Err(format!("call {id} was withdrawn, and is served"));
                }
                if *times > 1 {
                    return Err(format!("call {id} was served twice"));
                }
                if self.memory.ports[port].client[PAYLOAD] != id {
                    return Err(format!("call {id} was overwritten while it was served"));
                }
                go(&mut state, ServerAt::Answering(port, request, id + ANSWER));
                found.push(state);
            }
            ServerAt::Answering(port, request, result) => found.push(with(&|s| {
                match setup.flaw {
                    Flaw::ServerStoresSwapped => {
                        s.memory.write(Side::Server, port, MAILBOX, request)
                    }
                    _ => setup.write(&mut s.memory, Side::Server, port, result, request),
                }
                if setup.flaw != Flaw::NoServerFence {
                    s.memory.fence(Side::Server);
                }
                let then = match setup.flaw {
                    Flaw::ServerStoresSwapped => result,
                    _ => request,
                };
                go(s, ServerAt::Answered(port, then));
            })),
            ServerAt::Answered(port, word) => {
                if setup.batches {
                    found.push(with(&|s| {
                        if setup.flaw != Flaw::ForgottenAnswer {
                            s.kept[index].push((port, word));
                        }
                        s.memory.ports[port].server_lock = setup.flaw != Flaw::EarlyServerRelease;
                        go(s, ServerAt::Search);
                    }));
                }
                found.push(with(&|s| {
                    let place = match setup.flaw {
                        Flaw::ServerStoresSwapped => PAYLOAD,
                        _ => MAILBOX,
                    };
                    s.memory.write(Side::Server, port, place, word);
                    if setup.flaw != Flaw::NoServerFence {
                        s.memory.fence(Side::Server);
                    }
                    s.memory.ports[port].server_lock = false;
                    go(s, ServerAt::Search);
                }));
            }
            ServerAt::Stopped => {}
        }
        Ok(())
    }
}

impl Machine for State {
    type Setup = Setup;

    fn start(setup: &Setup) -> Self {
        let calls = setup.clients * setup.calls as usize + 1;
        Self {
            memory: Memory::new(setup.ports, setup.bus),
            clients: vec![(ClientAt::Search, 0); setup.clients],
            servers: vec![ServerAt::Search; setup.servers],
            kept: vec![Vec::new(); setup.servers],
            begun: vec![Vec::new(); setup.servers],
            served: vec![0; calls],
            left: vec![false; calls],
            withdrawn: vec![false; calls],
        }
    }

    fn successors(&self, setup: &Setup) -> Result<Vec<State>, String> {
        self.exclusion()?;
        let deliveries = self.memory.deliveries().into_iter();
        let mut found: Vec<State> = deliveries
            .map(|memory| State {
                memory,
                ..self.clone()
            })
            .collect();
        for client in 0..setup.clients {
            self.client_steps(setup, client, &mut found)?;
        }
        for server in 0..setup.servers {
            self.server_steps(setup, server, &mut found)?;
        }
        Ok(found)
    }

    /// Whether every call was made, and the ports are as at the start.
    fn is_over(&self, setup: &Setup) -> bool {
        let calls = setup.clients as u32 * setup.calls;
        let moves: u32 = (self.memory.ports.iter().map(|port| port.client[MAILBOX])).sum();
        self.clients.iter().all(|(_, call)| *call == setup.calls)
            && self.memory.is_quiet()
            && self.kept.iter().chain(&self.begun).all(Vec::is_empty)
            && (1..self.served.len()).all(|id| self.has_ended(setup, id))
            && moves == calls * MOVES_PER_CALL
    }

    fn is_deserted(&self) -> bool {
        self.servers.iter().all(|at| *at == ServerAt::Stopped)
    }
}

mod tests;
