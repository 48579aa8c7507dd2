//! Callers, the relay, requests for the queue, and leases ending or dying anywhere.
//!
//! In every reachable state: a call is served at most once, and not after its caller was told of the outcome; a caller
//! gets the answer to its own call, and is told of a failure only where a lease died or the server was stopped; a lease
//! leaves within a few steps of the request, and only then; no two leases are on the device. From every state the end
//! can be reached at which each call is over, everything posted was answered, and the relay sleeps, or has ended, or
//! has a lease on the device that waits for calls: no call and no wake-up is lost. Nothing is ever helped on by the
//! time: sleeps last until the bell is rung, and leases, in most setups, until somebody asks.

mod askers;
mod callers;
mod relay;
mod setup;
mod tests;

pub(super) use self::setup::{Flaw, Setup};

use self::askers::{Ask, StopAt};
use self::callers::{Caller, CallerAt, Reported};
use self::relay::{Purpose, RelayAt};
use super::kernel::{BELL, Lease, Next, RING, YIELD};
use super::steps::Shared;
use crate::persistent::core::Stage;
use crate::rpc::port::model::{MAILBOX, Machine, Memory, NOTE, PAYLOAD};
use crate::rpc::port::protocol::Side;

/// The lease on the device, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OnDevice {
    Nothing,
    /// The work-groups in the order of their beginnings.
    Running([Lease; 2]),
    Left,
    /// The lease died; whether the launch reports a cause.
    Dead {
        reported: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub shared: Shared,
    callers: Vec<Caller>,
    /// For each call, from 1: the reported outcome, the count of servings, and whether a kernel has taken the call.
    reported: Vec<Reported>,
    served: Vec<u8>,
    pub took: Vec<bool>,
    relay: (RelayAt, Vec<u32>),
    stage: u32,
    asleep: bool,
    /// Since the relay has looked at the bell's count.
    rung: bool,
    /// Requests so far, and requests in progress.
    interrupts: u32,
    asks: usize,
    askers: Vec<Ask>,
    /// Somebody has asked since the last grant.
    asked: bool,
    /// Rings of the bell over the bus.
    rings: u32,
    device: OnDevice,
    /// Work-groups that have begun, and whether one has left.
    pub arrived: usize,
    pub left: bool,
    faults: u8,
    kills: u8,
    stucks: u8,
    stop: StopAt,
    restarts: u8,
    /// The reads of the code that restarts the server.
    restarting: Option<Vec<u32>>,
    /// A lease has died, or is stuck: its effects on unanswered calls are unknown.
    unknown: bool,
}

impl State {
    fn id(setup: &Setup, caller: usize, call: u32) -> usize {
        (caller as u32 * setup.calls + call + 1) as usize
    }

    fn stage(&self) -> Stage {
        match self.stage {
            0 => Stage::Running,
            1 => Stage::Stopping,
            2 => Stage::Closed,
            _ => Stage::Failed,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.stage(), Stage::Closed | Stage::Failed)
    }

    /// Whether there was a request since the last grant, or an earlier request is just being announced.
    pub fn was_asked(&self, setup: &Setup) -> bool {
        !setup.watched || self.asked || self.is_telling(setup)
    }

    /// Whether the previous work-group has left.
    pub fn has_left_before(&self, group: usize) -> bool {
        match self.device {
            OnDevice::Running(groups) if group > 0 => groups[group - 1].next == Next::Leave,
            _ => true,
        }
    }

    fn is_telling(&self, setup: &Setup) -> bool {
        let asks = |ask: &Ask| *ask != Ask::Count;
        let own = matches!(self.relay.0, RelayAt::Asking(_, ask) if asks(&ask))
            || matches!(self.stop, StopAt::Asking(ask) if asks(&ask));
        let mut flying = self.shared.memory.flying[Side::Client as usize].iter();
        own || self.askers.iter().any(asks)
            || flying.any(|write| (write.port, write.word) == (setup.ports, YIELD))
    }

    /// A handler runs with the words at a port; the number of its call.
    pub fn serve(&mut self, port: usize) -> Result<u32, String> {
        let port = &self.shared.memory.ports[port];
        let id = port.client_seen[PAYLOAD];
        let Some(served) = self.served.get_mut(id as usize).filter(|_| id != 0) else {
            return Err(format!("served what nobody posted: {id}"));
        };
        *served += 1;
        if *served > 1 {
            return Err(format!("call {id} was served twice"));
        }
        if port.client[PAYLOAD] != id {
            return Err(format!("call {id} was overwritten while it was served"));
        }
        match self.reported[id as usize] {
            Reported::Nothing | Reported::Dropped | Reported::Lost => Ok(id),
            reported => Err(format!("call {id} was served after it was {reported:?}")),
        }
    }

    /// Counts another call, the last at `port`, where the host counts in the memory itself.
    fn ring(&mut self, setup: &Setup, port: u32) {
        let old = self.shared.memory.ports[setup.ports].client[BELL];
        let bell = (old & 0xffff_0000).wrapping_add(RING) | port;
        self.shared
            .write_fenced(Side::Client, setup.ports, BELL, bell);
    }

    fn draw_ring(&mut self) -> u32 {
        self.rings = self.rings.wrapping_add(1);
        self.rings
    }

    fn device_steps(&self, setup: &Setup, found: &mut Vec<State>) -> Result<(), String> {
        let OnDevice::Running(groups) = self.device else {
            return Ok(());
        };
        if !self.is_telling(setup) {
            let reported = self.shared.memory.ports[setup.ports].client_seen[YIELD];
            if reported != self.interrupts {
                return Err(format!(
                    "the lease is told of {reported}, and {} have asked",
                    self.interrupts
                ));
            }
        }
        for (index, group) in groups.into_iter().enumerate() {
            if group.next == Next::Leave {
                continue;
            }
            for (lease, mut state) in group.steps(setup, self)? {
                let mut groups = groups;
                groups[index] = lease;
                // The launch has ended when all work-groups have.
                state.device = match groups.iter().all(|group| group.next == Next::Leave) {
                    true => OnDevice::Left,
                    false => OnDevice::Running(groups),
                };
                found.push(state);
            }
        }
        for (reported, used, most) in [
            (true, self.faults, setup.faults),
            (false, self.kills, setup.kills),
        ] {
            if used < most {
                let mut state = self.clone();
                state.device = OnDevice::Dead { reported };
                let used = if reported {
                    &mut state.faults
                } else {
                    &mut state.kills
                };
                *used += 1;
                found.push(state);
            }
        }
        Ok(())
    }

    /// Delivers words that make no difference yet: before a launch, bringing all earlier writes; and words nobody reads
    /// before their mailbox, where a fence holds the mailbox back.
    fn deliver_silently(&mut self, setup: &Setup) {
        let memory = &mut self.shared.memory;
        if !matches!(self.device, OnDevice::Running(_)) {
            memory.deliver_all(Side::Client);
        }
        let fences = !matches!(setup.flaw, Flaw::NoFence | Flaw::AnswerBeforeResult);
        for (side, is_ordered) in [(Side::Client, true), (Side::Server, fences && !setup.bus)] {
            let silent = |memory: &Memory| {
                (memory.arriving(side)).find(|&at| {
                    let write = memory.flying[side as usize][at];
                    write.port < setup.ports && write.word != MAILBOX && write.word != NOTE
                })
            };
            while is_ordered && let Some(at) = silent(memory) {
                memory.deliver(side, at);
            }
        }
    }

    /// The same state, with counts from the last one on: only differences count.
    fn counted_from_last(mut self, setup: &Setup) -> Self {
        self.deliver_silently(setup);
        let asks = self.interrupts;
        let rings = match setup.bus {
            true => self.rings,
            false => self.shared.memory.ports[setup.ports].client[BELL] & 0xffff_0000,
        };
        let ask = |ask: &mut Ask| match ask {
            Ask::Count => {}
            Ask::RingDrawn(number, ring) => {
                *number = number.wrapping_sub(asks);
                *ring = ring.wrapping_sub(rings);
            }
            Ask::Tell(number) | Ask::Check(number) => {
                *number = number.wrapping_sub(asks);
            }
        };
        let memory = &mut self.shared.memory;
        let own = &mut memory.ports[setup.ports];
        for words in [&mut own.client, &mut own.client_seen] {
            words[YIELD] = words[YIELD].wrapping_sub(asks);
            words[BELL] = words[BELL].wrapping_sub(rings);
        }
        for write in &mut memory.flying[Side::Client as usize] {
            if write.port == setup.ports {
                let base = if write.word == YIELD { asks } else { rings };
                write.value = write.value.wrapping_sub(base);
            }
        }
        memory.sort();
        self.askers.iter_mut().for_each(ask);
        self.askers.sort_unstable();
        if let StopAt::Asking(stop) = &mut self.stop {
            ask(stop);
        }
        match &mut self.relay.0 {
            RelayAt::Asking(granted, relay) => {
                *granted = granted.wrapping_sub(asks);
                ask(relay);
            }
            RelayAt::Launch(granted)
            | RelayAt::Watch(granted)
            | RelayAt::Looking(Purpose::Idle(granted)) => *granted = granted.wrapping_sub(asks),
            _ => {}
        }
        for caller in &mut self.callers {
            if let CallerAt::RingDrawn(count) = &mut caller.at {
                *count = count.wrapping_sub(rings);
            }
        }
        if let OnDevice::Running(groups) = &mut self.device {
            for lease in groups {
                lease.granted = lease.granted.wrapping_sub(asks);
                if !lease.unread {
                    lease.seen = lease.seen.wrapping_sub(rings);
                }
                if let Next::Compare { bell } = &mut lease.next {
                    *bell = bell.wrapping_sub(rings);
                }
            }
        }
        (self.interrupts, self.rings) = (0, 0);
        self
    }
}

impl Machine for State {
    type Setup = Setup;

    fn start(setup: &Setup) -> Self {
        let calls = setup.callers * setup.calls as usize + 1;
        let at = match setup.flaw {
            _ if setup.ends() => CallerAt::Refusal,
            Flaw::WakeBeforePost => CallerAt::EarlyWake,
            Flaw::BellBeforePost => CallerAt::EarlyRing,
            _ => CallerAt::Post,
        };
        let caller = Caller {
            at,
            call: 0,
            posted: (0, 0),
            known: Vec::new(),
            withdraws: false,
        };
        Self {
            shared: Shared {
                memory: Memory::new(setup.ports + 1, setup.bus.then_some(Side::Server)),
                taken: vec![0; setup.ports],
            },
            callers: vec![caller; setup.callers],
            reported: vec![Reported::Nothing; calls],
            served: vec![0; calls],
            took: vec![false; calls],
            relay: (RelayAt::Top, Vec::new()),
            stage: Stage::Running as u32,
            asleep: false,
            rung: false,
            interrupts: 0,
            asks: 0,
            askers: Vec::new(),
            asked: false,
            rings: 0,
            device: OnDevice::Nothing,
            arrived: 0,
            left: false,
            faults: 0,
            kills: 0,
            stucks: 0,
            stop: match setup.stops {
                true => StopAt::Ready,
                false => StopAt::Over,
            },
            restarts: 0,
            restarting: None,
            unknown: false,
        }
    }

    fn successors(&self, setup: &Setup) -> Result<Vec<State>, String> {
        let mut found = Vec::new();
        for side in [Side::Client, Side::Server] {
            for at in self.shared.memory.arriving(side) {
                let mut state = self.clone();
                state.shared.memory.deliver(side, at);
                found.push(state);
            }
        }
        for caller in 0..setup.callers {
            self.caller_steps(setup, caller, &mut found)?;
        }
        self.relay_steps(setup, &mut found)?;
        self.device_steps(setup, &mut found)?;
        self.others(setup, &mut found);
        Ok(found
            .into_iter()
            .map(|state| state.counted_from_last(setup))
            .filter(|state| state != self)
            .collect())
    }

    fn is_over(&self, setup: &Setup) -> bool {
        let memory = &self.shared.memory;
        let mut ports = memory.ports[..setup.ports].iter();
        let is_settled = ports.all(|port| {
            !port.client_lock && (self.has_ended() || port.client[MAILBOX] == port.server[MAILBOX])
        });
        // Whatever was dropped was served, too.
        let mut calls = self.reported.iter().zip(&self.served).skip(1);
        let is_served = setup.ends()
            || setup.faults > 0
            || setup.cancels
            || calls.all(|(_, &served)| served == 1);
        let relay_rests = match self.relay.0 {
            RelayAt::Asleep => !self.rung && self.device == OnDevice::Nothing,
            RelayAt::Gone => {
                !matches!(self.device, OnDevice::Running(_))
                    && self.has_ended()
                    && self.restarts == setup.restarts
            }
            // No calls, and no requests.
            RelayAt::Watch(granted) => {
                let bell = memory.ports[setup.ports].client_seen[BELL];
                let is_quiet = granted == self.interrupts && !setup.timed && !setup.idles;
                is_quiet
                    && matches!(self.device, OnDevice::Running(groups)
                    if groups.iter().all(|group| match group.next {
                        Next::Arrive => true,
                        // There is no second work-group.
                        Next::Leave => setup.groups == 1,
                        Next::Wait => group.seen == bell,
                        // The work-group looks at ports without calls for ever.
                        Next::Ask => true,
                        _ => false,
                    }))
            }
            _ => false,
        };
        self.callers.iter().all(|caller| caller.call == setup.calls)
            && !self.reported[1..].contains(&Reported::Nothing)
            && memory.flying.iter().all(Vec::is_empty)
            && is_settled
            && is_served
            && relay_rests
            && self.restarting.is_none()
            && self.askers.is_empty()
            && self.stop == StopAt::Over
    }
}
