//! Requests for the queue, the stop of the server, and its restart.

use super::relay::RelayAt;
use super::{Flaw, OnDevice, Setup, State};
use crate::persistent::core::Stage;
use crate::persistent::model::kernel::{BELL, YIELD};
use crate::persistent::model::steps::{Pace, step};
use crate::persistent::settle::give_up;
use crate::rpc::port::protocol::{CallStatus, Side};

/// `Interrupts::ask` with `Frame::yield_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Ask {
    Count,
    /// The word and the ring behind: others ringing in between ring for themselves.
    Tell(u32),
    RingDrawn(u32, u32),
    /// Whether this was the last request.
    Check(u32),
}

/// `PersistentKernel::stop`, `Core::begin_stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StopAt {
    Ready,
    Asking(Ask),
    Ring,
    Over,
}

impl State {
    /// A step of asking for the queue; nothing once through.
    pub(super) fn ask(&mut self, setup: &Setup, ask: Ask) -> Option<Ask> {
        let bell = setup.ports;
        let rung = |number| match setup.flaw {
            Flaw::LateAsker => None,
            _ => Some(Ask::Check(number)),
        };
        match ask {
            Ask::Count => {
                self.interrupts = self.interrupts.wrapping_add(1);
                self.asked = setup.watched;
                Some(Ask::Tell(self.interrupts))
            }
            Ask::Tell(number) => {
                (self.shared).write_fenced(Side::Client, bell, YIELD, number);
                if setup.polls {
                    return rung(number);
                }
                if setup.bus {
                    return Some(Ask::RingDrawn(number, self.draw_ring()));
                }
                self.ring(setup, 0xffff);
                rung(number)
            }
            Ask::RingDrawn(number, count) => {
                (self.shared).write_fenced(Side::Client, bell, BELL, count);
                rung(number)
            }
            Ask::Check(number) if number == self.interrupts => None,
            Ask::Check(_) => Some(Ask::Tell(self.interrupts)),
        }
    }

    /// Requests for the queue, the stop of the server, and its restart.
    pub(super) fn others(&self, setup: &Setup, found: &mut Vec<State>) {
        if self.asks < setup.asks {
            let mut state = self.clone();
            state.asks += 1;
            state.askers.extend(state.clone().ask(setup, Ask::Count));
            (state.interrupts, state.asked) = (self.interrupts.wrapping_add(1), setup.watched);
            found.push(state);
        }
        for index in 0..self.askers.len() {
            let mut state = self.clone();
            let ask = state.askers.remove(index);
            let next = state.ask(setup, ask);
            state.askers.extend(next);
            found.push(state);
        }
        if self.stop != StopAt::Over {
            let mut state = self.clone();
            state.stop = match self.stop {
                StopAt::Ready => {
                    if self.stage() == Stage::Running {
                        state.stage = Stage::Stopping as u32;
                    }
                    StopAt::Asking(Ask::Count)
                }
                StopAt::Asking(ask) => match state.ask(setup, ask) {
                    Some(ask) => StopAt::Asking(ask),
                    None => StopAt::Ring,
                },
                StopAt::Ring => {
                    state.rung = true;
                    StopAt::Over
                }
                StopAt::Over => StopAt::Over,
            };
            found.push(state);
        }
        self.restart(setup, found);
    }

    /// `PersistentKernel::restart`.
    pub(super) fn restart(&self, setup: &Setup, found: &mut Vec<State>) {
        let is_free = match self.device {
            OnDevice::Running(_) => setup.flaw == Flaw::RestartBesideLease,
            _ => self.shared.memory.flying[Side::Server as usize].is_empty(),
        };
        if self.restarting.is_none() && self.restarts == setup.restarts {
            return;
        }
        let mut state = self.clone();
        match &self.restarting {
            // `stop` has waited for the relay, and `stuck` for the lease.
            None if self.restarts < setup.restarts
                && self.relay.0 == RelayAt::Gone
                && self.has_ended()
                && is_free =>
            {
                state.restarts += 1;
                state.restarting = Some(Vec::new());
                if !matches!(self.device, OnDevice::Running(_)) {
                    state.device = OnDevice::Nothing;
                }
            }
            None => return,
            Some(known) => {
                let kind = setup.kind(Pace::Looks);
                let mut known = known.clone();
                let stopped = CallStatus::Stopped.code();
                let through = step(kind, &mut state.shared, &mut known, |words| {
                    give_up(words, false, [stopped, 0]);
                });
                state.restarting = match through {
                    None => Some(known),
                    Some(()) => {
                        state.stage = Stage::Running as u32;
                        (state.rung, state.unknown) = (true, true);
                        state.relay = (RelayAt::Top, Vec::new());
                        None
                    }
                };
            }
        }
        found.push(state);
    }
}
