//! Begun calls: the holder of the ticket may collect the answer or leave the call, while others want the port.
//!
//! A ticket lies in its port. The port belongs to the side exchanging the ticket there for 0; a collector does so after
//! seeing an answer, or closed services, and puts the ticket back without an answer for it. In every reachable state
//! the lock has exactly one holder, a client at the port or a ticket lying there (no lock lost, none held twice); an
//! answer is given at most once, and belongs to the call of the ticket. From every state an end can be reached: the
//! ticket collected or left, all other calls made, and the port as at the start.
//!
//! A collector told of no answer yet comes again.

use super::super::protocol::{Side, next};
use super::{ANSWER, MAILBOX, Machine, Memory, PAYLOAD};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Collectors look at the ticket, and take the ticket then.
    LookedAndTook,
    /// Collectors do not put the ticket back when there is no answer yet.
    NotPutBack,
    /// Collectors give the port back along with the ticket when there is no answer yet.
    PortPutBack,
    /// Collectors give the lock back before reading the result.
    EarlyRelease,
    /// A ticket has one bit of the request.
    OneBit,
    /// Collectors with an answer leave the ticket in its place.
    TicketLeft,
    /// Leavers give the lock back, and the ticket stays.
    LeftWithTicket,
    /// Collectors do not look whether there is an answer.
    NoLook,
    /// The server's mailbox may arrive before its results.
    NoServerFence,
}

/// The bits of a request in its ticket.
fn bits(flaw: Flaw) -> u32 {
    match flaw {
        Flaw::OneBit => 1,
        _ => 0x7fff,
    }
}

/// The next step of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Calls, and waits.
    Call,
    /// Calls, and goes on.
    Post,
    /// Begins a call, and collects it.
    Begin,
    /// Begins a call, and hands its ticket to the others.
    Hand,
    /// Collects by the ticket handed over.
    Collect,
    /// Leaves by the ticket.
    Leave,
}

use Step::{Begin, Call, Collect, Hand, Leave, Post};

#[derive(Clone, Copy, Debug)]
struct Setup {
    clients: &'static [&'static [Step]],
    /// The services may be stopped.
    closes: bool,
    /// Whether the holder of the lock is checked, too, beside the answers of clients.
    watched: bool,
    flaw: Flaw,
}

/// Calls of one client, at most.
const CALLS: usize = 3;

/// Where a client is in its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Start,
    /// Looked at the inbox, as a kernel does before having the lock.
    Looked(u32),
    Locked(u32),
    Writing(u32),
    Written(u32),
    Posted(u32),
    Waiting(u32),
    /// Has a ticket, and asks for its answer.
    Asking(u32),
    /// Looked at the inbox with a ticket in hand.
    Asked(u32, u32),
    /// Saw its ticket in the port, still untaken.
    Saw(u32, u32),
    /// Took the ticket.
    Taken(u32, u32),
    /// Has read its answer.
    Read,
    /// Has given the lock back, and has not read its answer.
    Released,
    /// Took the ticket to leave the call.
    Leaving,
}

impl At {
    fn is_holder(self) -> bool {
        !matches!(
            self,
            Self::Start
                | Self::Looked(_)
                | Self::Asking(_)
                | Self::Asked(..)
                | Self::Saw(..)
                | Self::Released
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ServerAt {
    Search,
    Working(u32),
    Answering(u32, u32),
    Answered(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    memory: Memory,
    /// Where the ticket lies.
    word: u32,
    /// Steps done, and the one under way.
    clients: Vec<(usize, At)>,
    server: ServerAt,
    is_closed: bool,
    /// The ticket handed over, 0 for none, and its call.
    handed: Option<(u32, u32)>,
    /// How often each call was served, and its answer given.
    served: Vec<u8>,
    given: Vec<u8>,
    /// How often the call of the ticket was left.
    left: u8,
}

impl State {
    fn id(client: usize, step: usize) -> u32 {
        (client * CALLS + step + 1) as u32
    }

    fn lock(&mut self, held: bool) {
        self.memory.ports[0].client_lock = held;
    }

    fn done(&mut self, client: usize) {
        self.clients[client] = (self.clients[client].0 + 1, At::Start);
    }

    /// The state after a client has read the answer of call `id`.
    fn given(&self, id: u32) -> Result<State, String> {
        let result = self.memory.ports[0].server_seen[PAYLOAD];
        if result != id + ANSWER {
            return Err(format!("call {id} got {result}"));
        }
        let mut state = self.clone();
        state.given[id as usize] += 1;
        match state.given[id as usize] {
            1 => Ok(state),
            _ => Err(format!("the answer of call {id} was given twice")),
        }
    }

    fn client_steps(
        &self,
        setup: &Setup,
        index: usize,
        found: &mut Vec<State>,
    ) -> Result<(), String> {
        let (number, at) = self.clients[index];
        let Some(&step) = setup.clients[index].get(number) else {
            return Ok(());
        };
        let port = &self.memory.ports[0];
        let flaw = setup.flaw;
        let id = match (step, self.handed) {
            (Collect | Leave, Some((_, id))) => id,
            _ => Self::id(index, number),
        };
        let with = |change: &dyn Fn(&mut State)| {
            let mut state = self.clone();
            change(&mut state);
            state
        };
        let go = |state: &mut State, at| state.clients[index].1 = at;
        let done = |state: &mut State| state.done(index);
        match at {
            At::Start => match (step, self.handed) {
                (Collect | Leave, None) => {}
                (Collect | Leave, Some((0, _))) => found.push(with(&done)),
                (Collect, Some((ticket, _))) => found.push(with(&|s| go(s, At::Asking(ticket)))),
                // The exchange.
                (Leave, Some((ticket, _))) => found.push(with(&|s| {
                    if s.word != ticket {
                        return done(s);
                    }
                    if flaw != Flaw::LeftWithTicket {
                        s.word = 0;
                    }
                    s.left += 1;
                    go(s, At::Leaving);
                })),
                _ if self.is_closed => found.push(with(&|s| {
                    if step == Hand {
                        s.handed = Some((0, id));
                    }
                    done(s);
                })),
                _ => found.push(with(&|s| go(s, At::Looked(port.server_seen[MAILBOX])))),
            },
            At::Looked(_) if port.client_lock => found.push(with(&|s| go(s, At::Start))),
            At::Looked(inbox) => found.push(with(&|s| {
                s.lock(true);
                go(s, At::Locked(inbox));
            })),
            At::Locked(inbox) => {
                let request = next(Side::Client, inbox, port.client[MAILBOX]);
                found.push(with(&|s| match request {
                    Some(request) => go(s, At::Writing(request)),
                    None => {
                        s.lock(false);
                        go(s, At::Start);
                    }
                }));
            }
            At::Writing(request) => found.push(with(&|s| {
                s.memory.write(Side::Client, 0, PAYLOAD, id);
                s.memory.fence(Side::Client);
                go(s, At::Written(request));
            })),
            At::Written(request) => found.push(with(&|s| {
                s.memory.write(Side::Client, 0, MAILBOX, request);
                s.memory.fence(Side::Client);
                go(s, At::Posted(request));
            })),
            At::Posted(request) => found.push(with(&|s| {
                let ticket = (request & bits(flaw)) << 17 | 1;
                match step {
                    Begin | Hand => s.word = ticket,
                    Post => s.lock(false),
                    _ => {}
                }
                match step {
                    Begin => go(s, At::Asking(ticket)),
                    Call => go(s, At::Waiting(request)),
                    Hand => {
                        s.handed = Some((ticket, id));
                        done(s);
                    }
                    _ => done(s),
                }
            })),
            At::Waiting(request) => {
                if next(Side::Client, port.server_seen[MAILBOX], request).is_some() {
                    let mut state = self.given(id)?;
                    go(&mut state, At::Read);
                    found.push(state);
                }
                if self.is_closed {
                    found.push(with(&|s| {
                        s.lock(false);
                        done(s);
                    }));
                }
            }
            At::Asking(ticket) => {
                let inbox = port.server_seen[MAILBOX];
                found.push(with(&|s| go(s, At::Asked(ticket, inbox))));
            }
            At::Asked(ticket, _) if self.word != ticket => found.push(with(&done)),
            // No answer yet: the ticket stays where it is, for others.
            At::Asked(ticket, inbox)
                if flaw != Flaw::NoLook
                    && !self.is_closed
                    && inbox & bits(flaw) != ticket >> 17 =>
            {
                found.push(with(&|s| go(s, At::Asking(ticket))));
            }
            At::Asked(ticket, inbox) if flaw == Flaw::LookedAndTook => {
                found.push(with(&|s| go(s, At::Saw(ticket, inbox))));
            }
            At::Asked(ticket, inbox) | At::Saw(ticket, inbox) => found.push(with(&|s| {
                s.word = 0;
                go(s, At::Taken(ticket, inbox));
            })),
            At::Taken(ticket, inbox) => {
                let answered = next(Side::Client, inbox, port.client[MAILBOX]).is_some();
                if answered || flaw == Flaw::NoLook {
                    if flaw == Flaw::EarlyRelease {
                        found.push(with(&|s| {
                            s.lock(false);
                            go(s, At::Released);
                        }));
                    } else {
                        let mut state = self.given(id)?;
                        if flaw == Flaw::TicketLeft {
                            state.word = ticket;
                        }
                        go(&mut state, At::Read);
                        found.push(state);
                    }
                } else {
                    if self.is_closed {
                        found.push(with(&|s| {
                            s.lock(false);
                            done(s);
                        }));
                    }
                    // Also where closed: the look may have come too early.
                    found.push(with(&|s| {
                        if flaw != Flaw::NotPutBack {
                            s.word = ticket;
                        }
                        if flaw == Flaw::PortPutBack {
                            s.lock(false);
                        }
                        go(s, At::Asking(ticket));
                    }));
                }
            }
            At::Read | At::Leaving => found.push(with(&|s| {
                s.lock(false);
                done(s);
            })),
            At::Released => {
                let mut state = self.given(id)?;
                state.done(index);
                found.push(state);
            }
        }
        Ok(())
    }

    /// A single server: several servers are the subject of `calls`.
    fn server_step(&self, flaw: Flaw) -> Result<Option<State>, String> {
        let own = &self.memory.ports[0];
        let mut state = self.clone();
        match self.server {
            ServerAt::Search => {
                match next(Side::Server, own.client_seen[MAILBOX], own.server[MAILBOX]) {
                    Some(request) => state.server = ServerAt::Working(request),
                    None => return Ok(None),
                }
            }
            ServerAt::Working(request) => {
                let id = own.client_seen[PAYLOAD];
                if own.client[PAYLOAD] != id {
                    return Err(format!("call {id} was overwritten while it was served"));
                }
                state.served[id as usize] += 1;
                if id == 0 || state.served[id as usize] > 1 {
                    return Err(format!("call {id} was served twice, or never posted"));
                }
                state.server = ServerAt::Answering(request, id + ANSWER);
            }
            ServerAt::Answering(request, result) => {
                state.memory.write(Side::Server, 0, PAYLOAD, result);
                if flaw != Flaw::NoServerFence {
                    state.memory.fence(Side::Server);
                }
                state.server = ServerAt::Answered(request);
            }
            ServerAt::Answered(request) => {
                state.memory.write(Side::Server, 0, MAILBOX, request);
                if flaw != Flaw::NoServerFence {
                    state.memory.fence(Side::Server);
                }
                state.server = ServerAt::Search;
            }
        }
        Ok(Some(state))
    }

    fn ownership(&self) -> Result<(), String> {
        let holders = self.clients.iter().filter(|(_, at)| at.is_holder()).count();
        match holders + usize::from(self.word != 0) {
            owners if owners == usize::from(self.memory.ports[0].client_lock) => Ok(()),
            owners => Err(format!("the lock has {owners} owners: {self:?}")),
        }
    }
}

impl Machine for State {
    type Setup = Setup;

    fn start(setup: &Setup) -> Self {
        let calls = setup.clients.len() * CALLS + 1;
        Self {
            memory: Memory::new(1, None),
            word: 0,
            clients: vec![(0, At::Start); setup.clients.len()],
            server: ServerAt::Search,
            is_closed: false,
            handed: None,
            served: vec![0; calls],
            given: vec![0; calls],
            left: 0,
        }
    }

    fn successors(&self, setup: &Setup) -> Result<Vec<Self>, String> {
        if setup.watched {
            self.ownership()?;
        }
        let deliveries = self.memory.deliveries().into_iter();
        let mut found: Vec<State> = deliveries
            .map(|memory| State {
                memory,
                ..self.clone()
            })
            .collect();
        for client in 0..setup.clients.len() {
            self.client_steps(setup, client, &mut found)?;
        }
        found.extend(self.server_step(setup.flaw)?);
        if setup.closes && !self.is_closed {
            found.push(State {
                is_closed: true,
                ..self.clone()
            });
        }
        Ok(found)
    }

    fn is_over(&self, setup: &Setup) -> bool {
        let clients = setup.clients.iter().enumerate();
        let mut steps = clients.flat_map(|(client, own)| {
            let own = own.iter().enumerate();
            own.map(move |(number, step)| (*step, State::id(client, number) as usize))
        });
        // Stopped services make no promises but the port.
        let kept = steps.all(|(step, id)| {
            let over = match step {
                Call | Begin => self.given[id],
                Post => 1,
                Hand => self.given[id] + self.left,
                Collect | Leave => return true,
            };
            let once = over == 1 && self.served[id] == 1;
            once || self.is_closed && over <= 1
        });
        let through = |(client, own): (&(usize, At), &&[Step])| client.0 == own.len();
        self.clients.iter().zip(setup.clients).all(through)
            && self.server == ServerAt::Search
            && self.memory.is_quiet()
            && self.word == 0
            && kept
    }
}

mod tests;
