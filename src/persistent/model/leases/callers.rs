//! Callers: each posts a call, rings the bell, and waits for the outcome.

use super::{Flaw, Setup, State};
use crate::kernel::server::FAILED;
use crate::persistent::core::Stage;
use crate::persistent::model::kernel::BELL;
use crate::persistent::model::steps::{Kind, Pace, step};
use crate::rpc::port::client::{Client, Posted};
use crate::rpc::port::model::{ANSWER, MAILBOX};
use crate::rpc::port::protocol::{CallStatus, Side};

/// A caller's next step with the current call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallerAt {
    /// `PortClient::refusal`.
    Refusal,
    /// `Core::wake`, where the wake comes too early.
    EarlyWake,
    /// `Frame::ring`, where the ring comes too early.
    EarlyRing,
    /// `Client::try_post`.
    Post,
    /// `Frame::ring`.
    Ring,
    /// The same where the bell lies over the bus: the count is drawn, and written then.
    RingDrawn(u32),
    /// `Parker::wake`.
    Wake,
    /// `PortClient::overdue`, behind `Client::withdraw`: whether the call may be begun.
    Withdrawn,
    /// `PortClient::wait`: `Client::try_take` again and again. Whether the end of the server was seen before.
    Wait { lost: bool },
}

/// The told outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reported {
    Nothing,
    Done,
    /// A lease with the call died.
    Failed,
    /// The server was stopped, or has ended.
    Stopped,
    Lost,
    /// The call could not be posted.
    Refused,
    /// Nobody asks.
    Dropped,
    /// The call was taken back, and never begun.
    Withdrawn,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub at: CallerAt,
    pub call: u32,
    /// Port and request of the posted call.
    pub posted: (usize, u32),
    /// The reads of the running code.
    pub known: Vec<u32>,
    /// The call is taken back.
    pub withdraws: bool,
}

impl State {
    pub(super) fn caller_steps(
        &self,
        setup: &Setup,
        index: usize,
        found: &mut Vec<State>,
    ) -> Result<(), String> {
        let Caller {
            at,
            call,
            posted,
            ref known,
            withdraws,
        } = self.callers[index];
        if call == setup.calls {
            return Ok(());
        }
        let id = Self::id(setup, index, call);
        let posted_call = Posted {
            port: posted.0,
            request: posted.1,
        };
        if let CallerAt::Wait { lost: false } = at
            && known.is_empty()
            && !setup.drops
            && (!setup.cancels || withdraws)
            && !self.has_ended()
            && self.shared.memory.ports[posted.0].server_seen[MAILBOX] != posted.1
        {
            // He looks in vain.
            return Ok(());
        }
        let mut state = self.clone();
        let mut known = known.clone();
        let first = match setup.flaw {
            Flaw::WakeBeforePost => CallerAt::EarlyWake,
            Flaw::BellBeforePost => CallerAt::EarlyRing,
            _ => CallerAt::Post,
        };
        let over = |state: &mut State, reported| {
            state.reported[id] = reported;
            let caller = &mut state.callers[index];
            caller.at = match setup.ends() {
                true => CallerAt::Refusal,
                false => first,
            };
            (caller.call, caller.posted) = (call + 1, (0, 0));
            caller.known.clear();
            caller.withdraws = false;
        };
        let waits = CallerAt::Wait { lost: false };
        let next = match at {
            CallerAt::Refusal if self.stage() == Stage::Running => first,
            CallerAt::Refusal => {
                over(&mut state, Reported::Refused);
                found.push(state);
                return Ok(());
            }
            CallerAt::EarlyWake => {
                state.rung |= self.asleep;
                CallerAt::Post
            }
            CallerAt::EarlyRing => {
                state.ring(setup, index as u32 % setup.ports as u32);
                CallerAt::Post
            }
            CallerAt::Post => {
                let kind = setup.kind(Pace::Looks);
                let posted = step(kind, &mut state.shared, &mut known, |words| {
                    Client::new(words, kind.layout, index).try_post(7, &[id as u32])
                });
                let caller = &mut state.callers[index];
                (caller.at, caller.known) = match posted {
                    None => (CallerAt::Post, known),
                    Some(None) => (CallerAt::Post, Vec::new()),
                    Some(Some(posted)) => {
                        caller.posted = (posted.port, posted.request);
                        let next = match setup.flaw {
                            Flaw::NoBell | Flaw::BellBeforePost => CallerAt::Wake,
                            Flaw::WakeBeforePost => CallerAt::Ring,
                            _ => CallerAt::Ring,
                        };
                        (next, Vec::new())
                    }
                };
                found.push(state);
                return Ok(());
            }
            CallerAt::Ring if setup.polls => CallerAt::Wake,
            CallerAt::Ring if setup.bus => CallerAt::RingDrawn(state.draw_ring()),
            CallerAt::Ring => {
                state.ring(setup, posted.0 as u32);
                match setup.flaw {
                    Flaw::WakeBeforePost => waits,
                    _ => CallerAt::Wake,
                }
            }
            CallerAt::RingDrawn(count) => {
                (state.shared).write_fenced(Side::Client, setup.ports, BELL, count);
                CallerAt::Wake
            }
            CallerAt::Wake => {
                state.rung |= self.asleep;
                waits
            }
            CallerAt::Withdrawn => {
                let memory = &self.shared.memory;
                let has_arrived = memory.note_arrived(Side::Client, posted.0);
                if !has_arrived && setup.flaw != Flaw::NoWithdrawFence {
                    return Ok(());
                }
                // Or the answer is waited for all the same.
                let mut waiting = self.clone();
                waiting.callers[index].at = waits;
                found.push(waiting);
                let may_be_begun = setup.bus || self.shared.taken[posted.0] == posted.1;
                let reported = match may_be_begun {
                    true => Reported::Dropped,
                    false => Reported::Withdrawn,
                };
                state.leave(setup, posted_call);
                over(&mut state, reported);
                found.push(state);
                return Ok(());
            }
            CallerAt::Wait { lost } => {
                if setup.cancels && !withdraws && !lost && known.is_empty() {
                    let mut state = self.clone();
                    let kind = setup.kind(Pace::Looks);
                    let kind = Kind {
                        cancels: true,
                        ..kind
                    };
                    step(kind, &mut state.shared, &mut Vec::new(), |words| {
                        Client::new(words, kind.layout, index).withdraw(posted_call);
                    });
                    state.callers[index].withdraws = true;
                    state.callers[index].at = CallerAt::Withdrawn;
                    found.push(state);
                }
                if self.has_ended() && !lost {
                    let mut state = self.clone();
                    // Only a look begun after that is known proves the absence of an answer.
                    if known.is_empty() {
                        state.callers[index].at = CallerAt::Wait { lost: true };
                        if setup.flaw == Flaw::LossBehindLook {
                            self.check_lost(id)?;
                            state.leave(setup, posted_call);
                            over(&mut state, Reported::Lost);
                        }
                        found.push(state);
                    }
                }
                if setup.drops && !lost {
                    // `PendingCall::drop`, or a caller whose time has passed.
                    let mut state = self.clone();
                    state.leave(setup, posted_call);
                    over(&mut state, Reported::Dropped);
                    found.push(state);
                }
                let pace = if setup.torn {
                    Pace::Looks
                } else {
                    Pace::Answers
                };
                let kind = setup.kind(pace);
                let mut results = [0];
                let taken = step(kind, &mut state.shared, &mut known, |words| {
                    Client::new(words, kind.layout, index).try_take(posted_call, &mut results)
                });
                match taken {
                    None => state.callers[index].known = known,
                    Some(None) => {
                        state.callers[index].known.clear();
                        if lost {
                            self.check_lost(id)?;
                            state.leave(setup, posted_call);
                            over(&mut state, Reported::Lost);
                        }
                    }
                    Some(Some([status, _])) => {
                        let reported = self.judge(id, withdraws, status, results[0])?;
                        over(&mut state, reported);
                    }
                }
                found.push(state);
                return Ok(());
            }
        };
        state.callers[index].at = next;
        found.push(state);
        Ok(())
    }

    /// `Client::leave`.
    pub(super) fn leave(&mut self, setup: &Setup, posted: Posted) {
        let kind = setup.kind(Pace::Looks);
        step(kind, &mut self.shared, &mut Vec::new(), |words| {
            Client::new(words, kind.layout, 0).leave(posted);
        });
    }

    /// Whether an answer is right.
    pub(super) fn judge(
        &self,
        id: usize,
        withdraws: bool,
        status: u32,
        result: u32,
    ) -> Result<Reported, String> {
        let served = self.served[id];
        match CallStatus::from_code(status) {
            CallStatus::Done if result != id as u32 + ANSWER => {
                Err(format!("call {id} got {result}"))
            }
            CallStatus::Done if served != 1 => {
                Err(format!("call {id} returned, and was served {served} times"))
            }
            CallStatus::Done => Ok(Reported::Done),
            CallStatus::Busy if !withdraws => {
                Err(format!("call {id} is told as withdrawn, and nobody asked"))
            }
            CallStatus::Busy if served == 0 => Ok(Reported::Withdrawn),
            CallStatus::Stopped if served == 0 || self.unknown => Ok(Reported::Stopped),
            _ if status == FAILED && self.took[id] && self.unknown => Ok(Reported::Failed),
            _ => Err(format!(
                "call {id} was told {status}, and was served {served} times"
            )),
        }
    }

    /// Whether a caller may be told of the end of its server.
    pub(super) fn check_lost(&self, id: usize) -> Result<(), String> {
        match self.served[id] == 0 || self.unknown {
            true => Ok(()),
            false => Err(format!(
                "call {id} was served, and its caller was told of the end"
            )),
        }
    }
}
