//! The explored setup, and its possible flaws.

use crate::persistent::model::steps::{Kind, Pace};
use crate::rpc::port::layout::PortLayout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Flaw {
    None,
    /// Callers ring no bell for the kernel.
    NoBell,
    /// Callers ring before they post.
    BellBeforePost,
    /// Callers look whether the relay sleeps before they post.
    WakeBeforePost,
    /// Callers look at an answer, and at what became of the server then.
    LossBehindLook,
    /// The kernel reads the bell for the first time when it has looked at the ports.
    BellBehindLook,
    /// The kernel does not look at the yield word before it waits.
    NoYieldLook,
    /// A kernel without a bell reads the yield word before its first look alone.
    AsksOnce,
    /// The kernel takes no note of taken calls.
    NotTaken,
    /// The kernel answers, and writes the results then.
    AnswerBeforeResult,
    /// The kernel's mailbox may arrive before its results.
    NoFence,
    /// Callers do not look at seals.
    NoSeal,
    /// The kernel looks at all ports again behind each call, also when it was told to leave.
    LooksAgain,
    /// The kernel takes the ports in the bell for a part of the count.
    PortsInDifference,
    /// A requester does not check for a faster one.
    LateAsker,
    /// The relay looks for calls first, and sets the flag for sleeping then.
    NoLookBeforeSleep,
    /// The relay grants a lease something else than the last count.
    OldGrant,
    /// The relay takes a dead lease for a well-ended one.
    DeadEndedWell,
    /// The relay launches the next lease right after asking the previous lease to leave.
    TwoLeases,
    /// The relay takes a dead lease for a lease without taken calls.
    TakenForgotten,
    /// The relay gives up all calls instead of the taken ones.
    AllGivenUp,
    /// Callers look whether a call is begun before their withdrawal has arrived.
    NoWithdrawFence,
    /// The kernel looks for the withdrawal first, and notes the call then.
    LooksBeforeTaking,
    /// The kernel does not look for a withdrawal.
    NoWithdrawLook,
    /// The next call at a port is posted under the withdrawal of the call before.
    StaleWithdrawal,
    /// The first work-group looks at its own ports alone.
    OthersForgotten,
    /// A work-group notes a call as taken without a look at the note.
    TakesByStore,
    /// A work-group takes every call but the call taken last.
    TakesWhatDiffers,
    /// A server is started again while its stuck lease is still there.
    RestartBesideLease,
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Setup {
    pub ports: usize,
    /// Work-groups: one, or two with as many ports each.
    pub groups: usize,
    /// The device runs all work-groups beside each other; else each begins when the previous one has left.
    pub beside: bool,
    pub callers: usize,
    pub calls: u32,
    /// Callers may drop a posted call.
    pub drops: bool,
    /// Callers may take a posted call back.
    pub cancels: bool,
    /// The kernel writes across a bus, and seals its answers; the bell has no ports.
    pub bus: bool,
    /// The kernel looks at all ports all the time, and nobody rings a bell (`shaders/server_lane_poll.wgsl`).
    pub polls: bool,
    /// Words of one answer may arrive between looks at others.
    pub torn: bool,
    /// Leases end by their ration of turns at any time.
    pub has_loop_budget: bool,
    /// Leases are asked to end by the time at any time.
    pub timed: bool,
    /// The server leaves the device when nobody calls.
    pub idles: bool,
    /// How often others ask for the queue, at once if they like.
    pub asks: usize,
    /// How many leases die of a cause named by their launch: an assertion.
    pub faults: u8,
    /// How many leases die without a word.
    pub kills: u8,
    /// How many leases are stuck, and end later.
    pub stucks: u8,
    /// The server may be stopped.
    pub stops: bool,
    /// How often an ended server is started again.
    pub restarts: u8,
    /// Whether the time of leaving is checked, beside the callers' outcomes.
    pub watched: bool,
    pub flaw: Flaw,
}

impl Setup {
    pub fn layout(&self) -> PortLayout {
        PortLayout::new(self.ports, 1)
    }

    pub fn kind(&self, pace: Pace) -> Kind {
        Kind {
            layout: self.layout(),
            sealed: self.bus && self.flaw != Flaw::NoSeal,
            pace,
            cancels: self.cancels && self.flaw != Flaw::StaleWithdrawal,
        }
    }

    /// The most steps of a lease told to leave: two looks at all ports with a call of five steps at each, and the steps
    /// between. Without a bell there is one look more: the look behind a yield word read a moment too soon.
    pub fn leaves_within(&self) -> usize {
        let looks = if self.polls { 3 } else { 2 };
        looks * 5 * self.ports + looks + 1
    }

    /// Whether the server can come to an end.
    pub fn ends(&self) -> bool {
        self.stops || self.kills > 0 || self.stucks > 0
    }
}
