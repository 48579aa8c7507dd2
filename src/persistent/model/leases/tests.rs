//! Every setup, and every flaw in a setup showing the flaw.

use super::{Flaw, Setup, State};
use crate::rpc::port::model::explore;

/// Two callers, a single port; a server that leaves the device without calls.
const PLAIN: Setup = Setup {
    groups: 1,
    beside: true,
    ports: 1,
    callers: 2,
    calls: 1,
    drops: false,
    cancels: false,
    bus: false,
    polls: false,
    torn: false,
    has_loop_budget: false,
    timed: false,
    idles: true,
    asks: 0,
    faults: 0,
    kills: 0,
    stucks: 0,
    stops: false,
    restarts: 0,
    watched: false,
    flaw: Flaw::None,
};

/// A single lease, until a request.
const STAYS: Setup = Setup {
    idles: false,
    ..PLAIN
};

const ONE: Setup = Setup {
    callers: 1,
    ..PLAIN
};

const CANCELLED: Setup = Setup {
    cancels: true,
    ..PLAIN
};

const ASKED: Setup = Setup {
    asks: 1,
    watched: true,
    ..ONE
};

const ASKED_TWICE: Setup = Setup {
    asks: 2,
    idles: false,
    ..ONE
};

const FAULTY: Setup = Setup { faults: 1, ..PLAIN };

const KILLED: Setup = Setup {
    kills: 1,
    restarts: 1,
    ..PLAIN
};

const STUCK: Setup = Setup {
    stucks: 1,
    restarts: 1,
    timed: true,
    ..ONE
};

const STOPPED: Setup = Setup {
    stops: true,
    idles: false,
    ..ONE
};

const TWO_PORTS: Setup = Setup { ports: 2, ..STAYS };

/// Two work-groups with a port each.
const GROUPS: Setup = Setup {
    groups: 2,
    ..TWO_PORTS
};

/// The second work-group begins when the first has left.
const IN_TURN: Setup = Setup {
    beside: false,
    ..GROUPS
};

const BUS: Setup = Setup { bus: true, ..STAYS };

/// Without a bell.
const POLLED: Setup = Setup { polls: true, ..BUS };

/// With the least number of states of each.
fn setups() -> Vec<(Setup, usize)> {
    vec![
        (PLAIN, 4_000),
        (Setup { calls: 2, ..STAYS }, 1_200),
        (
            Setup {
                timed: true,
                ..PLAIN
            },
            6_000,
        ),
        (
            Setup {
                drops: true,
                ..PLAIN
            },
            10_000,
        ),
        (
            Setup {
                drops: true,
                calls: 3,
                ..ONE
            },
            18_000,
        ),
        (
            Setup {
                has_loop_budget: true,
                ..PLAIN
            },
            9_000,
        ),
        (CANCELLED, 42_000),
        (
            Setup {
                calls: 2,
                idles: false,
                ..CANCELLED
            },
            77_000,
        ),
        (
            Setup {
                callers: 1,
                asks: 1,
                ..CANCELLED
            },
            50_000,
        ),
        (
            Setup {
                callers: 1,
                faults: 1,
                ..CANCELLED
            },
            2_800,
        ),
        (
            Setup {
                cancels: true,
                ..BUS
            },
            14_000,
        ),
        (ASKED, 30_000),
        (ASKED_TWICE, 55_000),
        (
            Setup {
                asks: 1,
                watched: true,
                ..STAYS
            },
            15_000,
        ),
        (FAULTY, 13_000),
        (
            Setup {
                asks: 1,
                callers: 1,
                ..FAULTY
            },
            35_000,
        ),
        (KILLED, 22_000),
        (STUCK, 1_700),
        (
            Setup {
                restarts: 1,
                ..STOPPED
            },
            80_000,
        ),
        (
            Setup {
                asks: 1,
                ..TWO_PORTS
            },
            95_000,
        ),
        (
            Setup {
                calls: 2,
                ..TWO_PORTS
            },
            23_000,
        ),
        (GROUPS, 60_000),
        (
            Setup {
                calls: 2,
                ..IN_TURN
            },
            27_000,
        ),
        (
            Setup {
                calls: 2,
                callers: 1,
                idles: true,
                ..GROUPS
            },
            71_000,
        ),
        (
            Setup {
                asks: 1,
                callers: 1,
                watched: true,
                ..GROUPS
            },
            130_000,
        ),
        (
            Setup {
                callers: 1,
                has_loop_budget: true,
                idles: true,
                ..IN_TURN
            },
            3_100,
        ),
        (
            Setup {
                callers: 1,
                faults: 1,
                idles: true,
                ..GROUPS
            },
            19_000,
        ),
        (Setup { calls: 2, ..BUS }, 6_000),
        (
            Setup {
                torn: true,
                calls: 2,
                ..BUS
            },
            9_000,
        ),
        (
            Setup {
                torn: true,
                drops: true,
                calls: 3,
                callers: 1,
                ..BUS
            },
            14_000,
        ),
        (
            Setup {
                faults: 1,
                calls: 2,
                ..BUS
            },
            43_000,
        ),
        (
            Setup {
                kills: 1,
                restarts: 1,
                ..BUS
            },
            15_000,
        ),
        (
            Setup {
                asks: 1,
                callers: 1,
                watched: true,
                ..BUS
            },
            15_000,
        ),
        (Setup { calls: 2, ..POLLED }, 2_700),
        (
            Setup {
                torn: true,
                drops: true,
                calls: 2,
                ..POLLED
            },
            98_000,
        ),
        (
            Setup {
                cancels: true,
                ..POLLED
            },
            7_000,
        ),
        (
            Setup {
                ports: 2,
                idles: true,
                timed: true,
                ..POLLED
            },
            140_000,
        ),
        (
            Setup {
                faults: 1,
                calls: 2,
                ..POLLED
            },
            23_000,
        ),
        (
            Setup {
                kills: 1,
                restarts: 1,
                ..POLLED
            },
            9_600,
        ),
        (
            Setup {
                asks: 1,
                watched: true,
                ..POLLED
            },
            16_000,
        ),
    ]
}

#[test]
fn every_interleaving_hands_over() {
    for (setup, least) in setups() {
        let states = explore::<State>(&setup).unwrap_or_else(|error| panic!("{setup:?}: {error}"));
        assert!(states >= least, "{setup:?}: only {states} states");
    }
}

#[test]
fn mutants_are_caught() {
    for (flaw, complaint, setup) in [
        (Flaw::NoBell, "never reached", STAYS),
        (Flaw::BellBeforePost, "stuck", STAYS),
        (Flaw::WakeBeforePost, "stuck", PLAIN),
        (Flaw::LossBehindLook, "told of the end", STOPPED),
        (Flaw::BellBehindLook, "stuck", STAYS),
        (Flaw::NoYieldLook, "stuck", ASKED),
        (
            Flaw::AsksOnce,
            "does not leave",
            Setup {
                asks: 1,
                watched: true,
                ..POLLED
            },
        ),
        (Flaw::NotTaken, "served twice", PLAIN),
        (
            Flaw::NotTaken,
            "served twice",
            Setup {
                idles: true,
                ..POLLED
            },
        ),
        (Flaw::NoSeal, "was told 0", POLLED),
        (Flaw::AnswerBeforeResult, "was told 0", PLAIN),
        (Flaw::NoFence, "was told 0", PLAIN),
        (Flaw::NoSeal, "was told 0", BUS),
        (
            Flaw::LooksAgain,
            "does not leave",
            Setup { calls: 3, ..ASKED },
        ),
        (
            Flaw::PortsInDifference,
            "stuck",
            Setup {
                calls: 2,
                ..TWO_PORTS
            },
        ),
        (Flaw::LateAsker, "is told of", ASKED_TWICE),
        (Flaw::NoLookBeforeSleep, "stuck", PLAIN),
        (Flaw::OldGrant, "nobody has asked", ASKED),
        (Flaw::DeadEndedWell, "stuck", FAULTY),
        (Flaw::DeadEndedWell, "stuck", KILLED),
        (Flaw::TwoLeases, "a second lease", PLAIN),
        (Flaw::TakenForgotten, "served twice", FAULTY),
        (Flaw::AllGivenUp, "was told 13", FAULTY),
        (Flaw::NoWithdrawFence, "served after", CANCELLED),
        (Flaw::LooksBeforeTaking, "served after", CANCELLED),
        (Flaw::NoWithdrawLook, "served after", CANCELLED),
        (Flaw::StaleWithdrawal, "nobody asked", CANCELLED),
        (Flaw::OthersForgotten, "never reached", IN_TURN),
        (Flaw::TakesByStore, "served twice", GROUPS),
        (
            Flaw::TakesWhatDiffers,
            "served twice",
            Setup { calls: 2, ..GROUPS },
        ),
        (Flaw::RestartBesideLease, "served after", STUCK),
    ] {
        let caught = explore::<State>(&Setup { flaw, ..setup }).err();
        let error = caught.unwrap_or_default();
        assert!(error.contains(complaint), "{flaw:?}: {error}");
    }
}
