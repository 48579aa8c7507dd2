//! The polling kernel, one access of memory at a time: `shaders/server_lane.wgsl` with one lane.

use super::leases::{Flaw, Setup, State};
use super::steps::seal;
use crate::rpc::port::model::{ANSWER, HEAD, MAILBOX, NOTE, PAYLOAD, SEAL};
use crate::rpc::port::protocol::{CallStatus, Side};

/// A lease: the kernel's next step, and its lane's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub granted: u32,
    pub seen: u32,
    leaving: bool,
    /// The lease has reached its loop budget.
    out_of_budget: bool,
    /// It has yet to read the bell for the first time.
    pub unread: bool,
    /// Steps taken since the request to leave.
    overdue: u8,
    pub next: Next,
}

/// Of the ports, the kernel looks at those from `port` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Next {
    ReadBell,
    ReadYield,
    Look { port: usize, end: usize },
    Take { at: Call },
    Begin { at: Call },
    Serve { at: Call },
    Refuse { at: Call },
    Write { at: Call, result: u32 },
    Publish { at: Call, result: u32 },
    Wait,
    Compare { bell: u32 },
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    port: usize,
    end: usize,
    request: u32,
    /// The withdrawal as it was seen with the request.
    withdrawn: bool,
}

/// The words of the server beside its ports are those of a port behind them: the bell, and the word for requests of the
/// queue.
pub(super) const BELL: usize = MAILBOX;
/// See [`BELL`].
pub(super) const YIELD: usize = PAYLOAD;

/// Calls are counted above the port of the last one.
pub(super) const RING: u32 = 1 << 16;

impl Lease {
    pub fn new(setup: &Setup, granted: u32) -> Self {
        Self {
            granted,
            seen: 0,
            leaving: false,
            out_of_budget: false,
            unread: true,
            overdue: 0,
            next: match setup.flaw {
                Flaw::BellBehindLook => Next::ReadYield,
                _ => Next::ReadBell,
            },
        }
    }

    /// The lease's next state, after its step in `state`; a second way where there are two. Nothing while it waits.
    pub fn steps(self, setup: &Setup, state: &State) -> Result<Vec<(Self, State)>, String> {
        let ports = setup.ports;
        let words = state.shared.memory.ports[ports].client_seen;
        let is_asked = words[YIELD] != self.granted;
        let (mut lease, mut then) = (self, state.clone());
        let overdue = setup.watched && is_asked;
        lease.overdue = if overdue { self.overdue + 1 } else { 0 };
        if usize::from(lease.overdue) > setup.leaves_within() {
            return Err(format!("the lease does not leave: {self:?}"));
        }
        let all = Next::Look {
            port: 0,
            end: ports,
        };
        // The next port behind a call.
        let on = |at: Call| Next::Look {
            port: at.port + 1,
            end: at.end,
        };
        lease.next = match self.next {
            Next::ReadBell => {
                (lease.seen, lease.unread) = (words[BELL], false);
                match setup.flaw {
                    Flaw::BellBehindLook => Next::Wait,
                    Flaw::NoYieldLook => all,
                    _ => Next::ReadYield,
                }
            }
            Next::ReadYield => {
                lease.leaving = is_asked;
                all
            }
            Next::Look { port, end } => {
                let request = state.shared.memory.ports[port].client_seen[MAILBOX];
                let withdrawn = setup.flaw == Flaw::LooksBeforeTaking
                    && state.shared.memory.ports[port].client_seen[NOTE] != 0;
                let at = Call {
                    port,
                    end,
                    request,
                    withdrawn,
                };
                match request == state.shared.taken[port] {
                    true => on(at),
                    false => Next::Take { at },
                }
            }
            Next::Take { at } => {
                if setup.flaw != Flaw::NotTaken {
                    then.shared.taken[at.port] = at.request;
                }
                let id = state.shared.memory.ports[at.port].client_seen[PAYLOAD];
                if let Some(taken) = then.took.get_mut(id as usize) {
                    *taken = true;
                }
                if setup.cancels {
                    lease.next = Next::Begin { at };
                    return Ok(vec![(lease, then)]);
                }
                if setup.faults + setup.kills == 0 {
                    // Only who dies stands between the note and the handler.
                    lease.next = Next::Serve { at };
                    return lease.steps(setup, &then);
                }
                Next::Serve { at }
            }
            Next::Begin { at } => {
                let note = state.shared.memory.ports[at.port].client_seen[NOTE];
                let is_withdrawn = match setup.flaw {
                    Flaw::LooksBeforeTaking => at.withdrawn,
                    Flaw::NoWithdrawLook => false,
                    _ => note != 0,
                };
                match is_withdrawn {
                    true => Next::Refuse { at },
                    false => Next::Serve { at },
                }
            }
            Next::Refuse { at } => {
                let memory = &mut then.shared.memory;
                let busy = CallStatus::Busy.code();
                memory.write(Side::Server, at.port, HEAD, busy);
                if setup.bus {
                    let seal = seal(setup.layout(), at.port, at.request, busy, &[]);
                    memory.write(Side::Server, at.port, SEAL, seal);
                }
                memory.fence(Side::Server);
                memory.write(Side::Server, at.port, MAILBOX, at.request);
                on(at)
            }
            Next::Serve { at } => {
                let id = then.serve(at.port)?;
                let result = id + ANSWER;
                match setup.flaw {
                    Flaw::AnswerBeforeResult => Next::Publish { at, result },
                    _ => Next::Write { at, result },
                }
            }
            Next::Write { at, result } => {
                let memory = &mut then.shared.memory;
                memory.write(Side::Server, at.port, HEAD, 1);
                memory.write(Side::Server, at.port, PAYLOAD, result);
                if setup.bus {
                    let seal = seal(setup.layout(), at.port, at.request, 1, &[result]);
                    memory.write(Side::Server, at.port, SEAL, seal);
                }
                match setup.flaw {
                    Flaw::AnswerBeforeResult => on(at),
                    _ if setup.faults + setup.kills == 0 => {
                        lease.next = Next::Publish { at, result };
                        return lease.steps(setup, &then);
                    }
                    _ => Next::Publish { at, result },
                }
            }
            Next::Publish { at, result } => {
                let memory = &mut then.shared.memory;
                if setup.flaw != Flaw::NoFence {
                    memory.fence(Side::Server);
                }
                memory.write(Side::Server, at.port, MAILBOX, at.request);
                match setup.flaw {
                    Flaw::AnswerBeforeResult => Next::Write { at, result },
                    Flaw::LooksAgain => all,
                    _ => on(at),
                }
            }
            Next::Wait => {
                let mut found = Vec::new();
                if words[BELL] != self.seen {
                    lease.next = Next::Compare { bell: words[BELL] };
                    found.push((lease, then.clone()));
                }
                if setup.has_loop_budget {
                    lease.out_of_budget = true;
                    lease.next = Next::Compare { bell: words[BELL] };
                    found.push((lease, then));
                }
                return Ok(found);
            }
            Next::Compare { bell } => {
                lease.leaving = self.out_of_budget || is_asked;
                // Of the counts alone: the ports below would borrow from them.
                let rings = match setup.flaw {
                    Flaw::PortsInDifference => bell.wrapping_sub(self.seen) >> 16,
                    _ => (bell >> 16).wrapping_sub(self.seen >> 16) & 0xffff,
                };
                let single = !setup.bus && !lease.leaving && rings == 1;
                lease.seen = bell;
                let hint = ports.min((bell & 0xffff) as usize);
                match single {
                    true => Next::Look {
                        port: hint,
                        end: ports.min(hint + 1),
                    },
                    false => all,
                }
            }
            Next::Leave => return Ok(vec![(lease, then)]),
        };
        // What reads and writes nothing is no step.
        lease.next = match lease.next {
            Next::Look { port, end } if port >= end => match lease.leaving {
                true => Next::Leave,
                false if lease.unread => Next::ReadBell,
                false => Next::Wait,
            },
            next => next,
        };
        if lease.leaving && !self.leaving && !lease.out_of_budget && !state.was_asked(setup) {
            return Err("a lease leaves that nobody has asked to".to_owned());
        }
        Ok(vec![(lease, then)])
    }
}
