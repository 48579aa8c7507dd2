//! The relay: sleeping, launching leases, looking after leases, and ending.

use super::askers::Ask;
use super::{Flaw, OnDevice, Setup, State};
use crate::kernel::server::FAILED;
use crate::persistent::core::Stage;
use crate::persistent::model::kernel::Lease;
use crate::persistent::model::steps::{Pace, step};
use crate::persistent::settle::{give_up, is_awaited};
use crate::rpc::port::model::MAILBOX;
use crate::rpc::port::protocol::{CallStatus, Side};

/// The purpose of the relay's look for calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// `Relay::run`: whether to sleep.
    Sleep,
    /// `Relay::run` when the server is to stop.
    Stop,
    /// `Parker::sleep`, with the flag for sleeping.
    Park,
    /// `Relay::watch`.
    Idle(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RelayAt {
    /// `Relay::run`, the look at the stage.
    Top,
    Looking(Purpose),
    /// `Parker::sleep`: takes the bell's count, and sets the flag for sleeping.
    LieDown,
    /// Looks at the stage.
    StageBeforeSleep,
    Asleep,
    WakeUp,
    /// `Relay::lease`: the grant of the lease, and its launch.
    Grant,
    Launch(u32),
    /// `Relay::watch`.
    Watch(u32),
    Asking(u32, Ask),
    /// Calls taken by a dead lease.
    GiveUpTaken,
    /// `Relay::run` at its end: the remaining calls, the stage, and late arrivals.
    CloseFirst,
    CloseStage,
    CloseLast,
    Gone,
}

impl State {
    pub(super) fn relay_steps(&self, setup: &Setup, found: &mut Vec<State>) -> Result<(), String> {
        let (at, known) = &self.relay;
        match *at {
            RelayAt::Gone => return Ok(()),
            RelayAt::Asleep if !self.rung => return Ok(()),
            RelayAt::Watch(granted) => {
                self.watch(setup, granted, found);
                return Ok(());
            }
            _ => {}
        }
        let mut state = self.clone();
        let mut known = known.clone();
        let kind = setup.kind(Pace::Looks);
        let next = match *at {
            RelayAt::Top => match self.stage() {
                Stage::Running => RelayAt::Looking(Purpose::Sleep),
                Stage::Stopping => RelayAt::Looking(Purpose::Stop),
                Stage::Closed | Stage::Failed => RelayAt::Gone,
            },
            RelayAt::Looking(purpose) => {
                let awaited = step(kind, &mut state.shared, &mut known, |words| {
                    is_awaited(words)
                });
                let Some(awaited) = awaited else {
                    state.relay = (*at, known);
                    found.push(state);
                    return Ok(());
                };
                match (purpose, awaited) {
                    (Purpose::Sleep | Purpose::Stop, true) => RelayAt::Grant,
                    (Purpose::Sleep, false) => RelayAt::LieDown,
                    (Purpose::Stop, false) => RelayAt::CloseFirst,
                    (Purpose::Park, true) => RelayAt::WakeUp,
                    (Purpose::Park, false) => RelayAt::StageBeforeSleep,
                    (Purpose::Idle(granted), true) => RelayAt::Watch(granted),
                    (Purpose::Idle(granted), false) => RelayAt::Asking(granted, Ask::Count),
                }
            }
            RelayAt::LieDown => {
                (state.rung, state.asleep) = (false, true);
                match setup.flaw {
                    Flaw::NoLookBeforeSleep => RelayAt::StageBeforeSleep,
                    _ => RelayAt::Looking(Purpose::Park),
                }
            }
            RelayAt::StageBeforeSleep if self.stage() == Stage::Running => RelayAt::Asleep,
            RelayAt::StageBeforeSleep => RelayAt::WakeUp,
            RelayAt::Asleep => RelayAt::WakeUp,
            RelayAt::WakeUp => {
                (state.asleep, state.rung) = (false, false);
                RelayAt::Top
            }
            RelayAt::Grant => {
                state.asked = false;
                let number = match setup.flaw {
                    Flaw::OldGrant => self.interrupts.wrapping_sub(1),
                    _ => self.interrupts,
                };
                RelayAt::Launch(number)
            }
            RelayAt::Launch(granted) => {
                if let OnDevice::Running(groups) = self.device {
                    return Err(format!("a second lease beside {groups:?}"));
                }
                // A launch sees the host's earlier writes.
                state.shared.memory.deliver_all(Side::Client);
                let groups = [0, 1].map(|group| Lease::new(setup, granted, group));
                state.device = OnDevice::Running(groups);
                (state.arrived, state.left) = (0, false);
                RelayAt::Watch(granted)
            }
            RelayAt::Asking(granted, ask) => match state.ask(setup, ask) {
                Some(ask) => RelayAt::Asking(granted, ask),
                None if setup.flaw == Flaw::TwoLeases => RelayAt::Top,
                None => RelayAt::Watch(granted),
            },
            RelayAt::GiveUpTaken | RelayAt::CloseFirst | RelayAt::CloseLast => {
                let faulty = *at == RelayAt::GiveUpTaken;
                let status = match faulty {
                    true => FAILED,
                    false => CallStatus::Stopped.code(),
                };
                let taken_only = faulty && setup.flaw != Flaw::AllGivenUp;
                let through = step(kind, &mut state.shared, &mut known, |words| {
                    give_up(words, taken_only, [status, 0]);
                });
                match (through, at) {
                    (None, _) => {
                        state.relay = (*at, known);
                        found.push(state);
                        return Ok(());
                    }
                    (_, RelayAt::GiveUpTaken) => RelayAt::Top,
                    (_, RelayAt::CloseFirst) => RelayAt::CloseStage,
                    _ => RelayAt::Gone,
                }
            }
            RelayAt::CloseStage => {
                state.stage = Stage::Closed as u32;
                state.rung = true;
                RelayAt::CloseLast
            }
            RelayAt::Watch(_) | RelayAt::Gone => *at,
        };
        state.relay = (next, Vec::new());
        found.push(state);
        Ok(())
    }

    /// `Relay::watch`, and what `Relay::lease_on_device` makes of the end.
    pub(super) fn watch(&self, setup: &Setup, granted: u32, found: &mut Vec<State>) {
        let mut push = |next, change: &dyn Fn(&mut State)| {
            let mut state = self.clone();
            change(&mut state);
            state.relay = (next, Vec::new());
            found.push(state);
        };
        let cleared = |state: &mut State| state.device = OnDevice::Nothing;
        let failed = |state: &mut State| {
            state.stage = Stage::Failed as u32;
            (state.rung, state.unknown) = (true, true);
        };
        // An event comes when all writes of the launch have arrived.
        let has_arrived = self.shared.memory.flying[Side::Server as usize].is_empty();
        match self.device {
            OnDevice::Running(_) | OnDevice::Nothing => {}
            _ if !has_arrived => {}
            OnDevice::Left => push(RelayAt::Top, &cleared),
            OnDevice::Dead { .. } if setup.flaw == Flaw::DeadEndedWell => {
                push(RelayAt::Top, &cleared);
            }
            OnDevice::Dead { .. } if setup.flaw == Flaw::TakenForgotten => {
                push(RelayAt::Top, &|state| {
                    cleared(state);
                    let ports = &state.shared.memory.ports;
                    let taken = state.shared.taken.iter_mut().zip(ports);
                    taken.for_each(|(taken, port)| *taken = port.server[MAILBOX]);
                });
            }
            OnDevice::Dead { reported: true } => push(RelayAt::GiveUpTaken, &|state| {
                cleared(state);
                state.unknown = true;
            }),
            OnDevice::Dead { reported: false } => push(RelayAt::Gone, &|state| {
                cleared(state);
                failed(state);
            }),
        }
        if self.interrupts == granted {
            if setup.timed || self.stage() != Stage::Running {
                push(RelayAt::Asking(granted, Ask::Count), &|_| {});
            }
            if setup.idles {
                push(RelayAt::Looking(Purpose::Idle(granted)), &|_| {});
            }
        } else if self.stucks < setup.stucks && matches!(self.device, OnDevice::Running(_)) {
            push(RelayAt::Gone, &|state| {
                state.stucks += 1;
                failed(state);
            });
        }
    }
}
