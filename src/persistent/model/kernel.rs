//! The polling kernel, one access of memory at a time: `shaders/server_lane.wgsl` with one lane, in one work-group or two
//! (`shaders/server_groups.wgsl`).

use super::leases::{Flaw, Setup, State};
use super::steps::seal;
use crate::rpc::port::model::{ANSWER, HEAD, MAILBOX, NOTE, PAYLOAD, SEAL};
use crate::rpc::port::protocol::{CallStatus, Side};

/// A work-group of a lease: the next step, and the lane's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    /// The work-group's place in the order of beginning.
    group: usize,
    /// Work-groups that have begun, as seen at the last look.
    here: usize,
    pub granted: u32,
    pub seen: u32,
    leaving: bool,
    /// Without a bell: the yield word, as read before the look that is being made.
    asked: bool,
    /// The lease has reached its loop budget.
    out_of_budget: bool,
    /// The bell has yet to be read for the first time.
    pub unread: bool,
    /// Steps taken since the request to leave.
    overdue: u8,
    pub next: Next,
}

/// The kernel visits ports from `port` up to `end`: port numbers, with a single work-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Next {
    /// Not yet begun: the work-group draws a place.
    Arrive,
    /// The number of begun work-groups is read, before a look at all ports, or at the port told by the bell.
    Count {
        hint: Option<usize>,
    },
    ReadBell,
    ReadYield,
    /// The same before each look of a kernel without a bell.
    Ask,
    Look {
        port: usize,
        end: usize,
    },
    Take {
        at: Call,
    },
    Begin {
        at: Call,
    },
    Serve {
        at: Call,
    },
    Refuse {
        at: Call,
    },
    Write {
        at: Call,
        result: u32,
    },
    Publish {
        at: Call,
        result: u32,
    },
    Wait,
    Compare {
        bell: u32,
    },
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    visit: usize,
    port: usize,
    end: usize,
    request: u32,
    /// The withdrawal, as seen with the request.
    withdrawn: bool,
}

/// The words of the server beside the ports are modelled as a further port behind the others: the bell, and the word
/// for requests of the queue.
pub(super) const BELL: usize = MAILBOX;
/// See [`BELL`].
pub(super) const YIELD: usize = PAYLOAD;

/// Calls are counted above the port of the last call.
pub(super) const RING: u32 = 1 << 16;

impl Lease {
    /// The work-group for place `group`, of several.
    pub fn new(setup: &Setup, granted: u32, group: usize) -> Self {
        Self {
            group,
            here: setup.groups,
            granted,
            seen: 0,
            leaving: false,
            asked: false,
            out_of_budget: false,
            unread: true,
            overdue: 0,
            next: match setup.flaw {
                _ if group >= setup.groups => Next::Leave,
                _ if setup.groups > 1 => Next::Arrive,
                Flaw::BellBehindLook => Next::ReadYield,
                _ if setup.polls => Next::ReadYield,
                _ => Next::ReadBell,
            },
        }
    }

    /// Visits to all ports looked at by the group; see `tombolo_server_visits`.
    fn visits(self, setup: &Setup) -> usize {
        setup.ports / setup.groups * (setup.groups - self.here + 1)
    }

    /// See `tombolo_server_place`.
    fn place(self, setup: &Setup, visit: usize) -> usize {
        let own = setup.ports / setup.groups;
        let (round, at) = (visit / own, visit % own);
        let group = if round == 0 {
            self.group
        } else {
            self.here + round - 1
        };
        at * setup.groups + group
    }

    /// See `tombolo_server_visit`.
    fn visit(self, setup: &Setup, port: usize) -> usize {
        let own = setup.ports / setup.groups;
        let (group, at) = (port % setup.groups, port / setup.groups);
        match port < setup.ports {
            true if group == self.group => at,
            true if group >= self.here => at + own * (group - self.here + 1),
            _ => self.visits(setup),
        }
    }

    /// The look at all ports, or at the port told by the bell.
    fn look(self, setup: &Setup, hint: Option<usize>) -> Next {
        let end = self.visits(setup);
        let Some(hint) = hint else {
            return Next::Look { port: 0, end };
        };
        let port = end.min(self.visit(setup, hint));
        Next::Look {
            port,
            end: end.min(port + 1),
        }
    }

    /// The same; the first of several groups begins by counting the groups present.
    fn count_and_look(self, setup: &Setup, hint: Option<usize>) -> Next {
        match setup.groups > 1 && self.group == 0 {
            true => Next::Count { hint },
            false => self.look(setup, hint),
        }
    }

    /// The lease's next state, after its step in `state`; a second way where there are two. Nothing while it waits.
    pub fn steps(self, setup: &Setup, state: &State) -> Result<Vec<(Self, State)>, String> {
        let ports = setup.ports;
        let words = state.shared.memory.ports[ports].client_seen;
        let is_asked = words[YIELD] != self.granted;
        let (mut lease, mut then) = (self, state.clone());
        let overdue = setup.watched && is_asked && self.next != Next::Arrive;
        lease.overdue = if overdue { self.overdue + 1 } else { 0 };
        if usize::from(lease.overdue) > setup.leaves_within() {
            return Err(format!("the lease does not leave: {self:?}"));
        }
        // The next port behind a call.
        let on = |at: Call| Next::Look {
            port: at.visit + 1,
            end: at.end,
        };
        lease.next = match self.next {
            Next::Arrive => {
                // Whoever draws is the next; a full device has others wait until it has left.
                let is_full = !setup.beside && !state.has_left_before(self.group);
                if then.arrived != self.group || is_full {
                    return Ok(Vec::new());
                }
                then.arrived += 1;
                Next::ReadBell
            }
            Next::Count { hint } => {
                lease.here = match setup.flaw {
                    Flaw::OthersForgotten => setup.groups,
                    _ => state.arrived,
                };
                lease.look(setup, hint)
            }
            Next::ReadBell => {
                (lease.seen, lease.unread) = (words[BELL], false);
                match setup.flaw {
                    Flaw::BellBehindLook => Next::Wait,
                    Flaw::NoYieldLook => self.count_and_look(setup, None),
                    _ => Next::ReadYield,
                }
            }
            Next::ReadYield => {
                lease.leaving = is_asked;
                match setup.polls {
                    true => Next::Ask,
                    false => self.count_and_look(setup, None),
                }
            }
            Next::Ask => {
                lease.asked = is_asked && setup.flaw != Flaw::AsksOnce;
                self.look(setup, None)
            }
            Next::Look { port: visit, end } => {
                let port = self.place(setup, visit);
                let request = state.shared.memory.ports[port].client_seen[MAILBOX];
                let withdrawn = setup.flaw == Flaw::LooksBeforeTaking
                    && state.shared.memory.ports[port].client_seen[NOTE] != 0;
                let at = Call {
                    visit,
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
                // `tombolo_server_takes`.
                let known = state.shared.taken[at.port];
                let is_next = match setup.flaw {
                    Flaw::TakesByStore => true,
                    Flaw::TakesWhatDiffers => at.request != known,
                    _ => at.request.wrapping_sub(known) == 1,
                };
                if setup.groups > 1 && !is_next {
                    lease.next = on(at);
                    return Ok(vec![(lease.rests(setup), then)]);
                }
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
                    Flaw::LooksAgain => self.count_and_look(setup, None),
                    _ => on(at),
                }
            }
            Next::Wait => {
                let mut found = Vec::new();
                if words[BELL] != self.seen {
                    lease.next = Next::Compare { bell: words[BELL] };
                    found.push((lease, then.clone()));
                }
                if setup.groups > 1 && state.left {
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
                lease.leaving = self.out_of_budget || is_asked || state.left;
                // Of the counts alone: the ports below would borrow from them.
                let rings = match setup.flaw {
                    Flaw::PortsInDifference => bell.wrapping_sub(self.seen) >> 16,
                    _ => (bell >> 16).wrapping_sub(self.seen >> 16) & 0xffff,
                };
                let single = !setup.bus && !lease.leaving && rings == 1;
                lease.seen = bell;
                let hint = ports.min((bell & 0xffff) as usize);
                self.count_and_look(setup, single.then_some(hint))
            }
            Next::Leave => return Ok(vec![(lease, then)]),
        };
        let lease = lease.rests(setup);
        then.left |= setup.groups > 1 && lease.next == Next::Leave;
        let has_reason = lease.out_of_budget || state.left;
        if lease.leaving && !self.leaving && !has_reason && !state.was_asked(setup) {
            return Err("a lease leaves that nobody has asked to".to_owned());
        }
        Ok(vec![(lease, then)])
    }

    /// What reads and writes nothing is no step.
    fn rests(mut self, setup: &Setup) -> Self {
        self.next = match self.next {
            Next::Look { port, end } if port >= end => match self.leaving {
                true => Next::Leave,
                false if setup.polls => {
                    self.leaving = self.asked || self.out_of_budget;
                    Next::Ask
                }
                false if self.unread => Next::ReadBell,
                false => Next::Wait,
            },
            next => next,
        };
        self
    }
}
