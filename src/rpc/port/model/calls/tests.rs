use std::collections::BTreeSet;

use super::super::explore;
use super::*;

const PLAIN: Setup = Setup {
    ports: 1,
    clients: 2,
    calls: 2,
    servers: 2,
    look: Look::Locked,
    leaves: false,
    withdraws: false,
    stops: false,
    batches: false,
    bus: None,
    flaw: Flaw::None,
};

fn setups() -> Vec<Setup> {
    let mut setups = Vec::new();
    for look in [Look::Locked, Look::InboxFirst] {
        let plain = Setup { look, ..PLAIN };
        setups.push(plain);
        setups.push(Setup {
            leaves: true,
            servers: 1,
            ..plain
        });
        setups.push(Setup {
            leaves: true,
            stops: true,
            calls: 1,
            ..plain
        });
        setups.push(Setup {
            ports: 2,
            calls: 1,
            ..plain
        });
        setups.push(Setup {
            ports: 2,
            calls: 1,
            batches: true,
            ..plain
        });
        setups.push(Setup {
            ports: 2,
            calls: 2,
            servers: 1,
            batches: true,
            ..plain
        });
        setups.push(Setup {
            ports: 2,
            calls: 2,
            clients: 1,
            leaves: true,
            ..plain
        });
        setups.push(Setup {
            withdraws: true,
            servers: 1,
            ..plain
        });
        setups.push(Setup {
            withdraws: true,
            calls: 1,
            ..plain
        });
        setups.push(Setup {
            withdraws: true,
            leaves: true,
            clients: 1,
            ..plain
        });
        setups.push(Setup {
            withdraws: true,
            ports: 2,
            calls: 1,
            servers: 1,
            batches: true,
            ..plain
        });
        for bus in [Side::Client, Side::Server] {
            let bus = Some(bus);
            setups.push(Setup { bus, ..plain });
            setups.push(Setup {
                bus,
                leaves: true,
                servers: 1,
                ..plain
            });
            setups.push(Setup {
                bus,
                ports: 2,
                calls: 2,
                servers: 1,
                batches: true,
                ..plain
            });
        }
    }
    setups
}

#[test]
fn every_interleaving_keeps_the_protocol() {
    for setup in setups() {
        let states = explore::<State>(&setup).unwrap_or_else(|error| panic!("{setup:?}: {error}"));
        assert!(states > 100, "{setup:?}: only {states} states");
    }
}

#[test]
fn clients_reach_their_end_when_servers_stop() {
    let setup = Setup {
        leaves: true,
        stops: true,
        calls: 2,
        servers: 1,
        ..PLAIN
    };
    let mut known = BTreeSet::new();
    let mut queue = vec![State::start(&setup)];
    let mut ends = 0;
    let mut seen = std::collections::HashSet::new();
    while let Some(state) = queue.pop() {
        let done = state.clients.iter().all(|(_, call)| *call == setup.calls);
        let successors = state.successors(&setup).unwrap();
        // A state without a way on is an end, and at an end all clients have returned, or their ports are with a
        // stopped server: only a clock can tell this from a slow server.
        if successors.is_empty() {
            assert!(done || state.servers.iter().all(|at| *at == ServerAt::Stopped));
            ends += usize::from(done);
            known.insert(state.left.clone());
        }
        for successor in successors {
            if seen.insert(successor.clone()) {
                queue.push(successor);
            }
        }
    }
    assert!(ends > 0 && known.len() > 1);
}

#[test]
fn mutants_of_seals_are_caught() {
    for bus in [Side::Client, Side::Server] {
        for flaw in [Flaw::NoSeal, Flaw::SealWithoutRequest] {
            let bus = Some(bus);
            let setup = Setup { bus, flaw, ..PLAIN };
            assert!(explore::<State>(&setup).is_err(), "{flaw:?} of {bus:?}");
        }
    }
}

#[test]
fn mutants_of_calls_begun_together_are_caught() {
    for flaw in [
        Flaw::NoWithdrawFence,
        Flaw::NoBeginFence,
        Flaw::NoWithdrawLook,
    ] {
        let setup = Setup {
            flaw,
            withdraws: true,
            ports: 2,
            calls: 1,
            servers: 1,
            batches: true,
            ..PLAIN
        };
        assert!(explore::<State>(&setup).is_err(), "{flaw:?}");
    }
}

#[test]
fn mutants_are_caught() {
    for (flaw, look) in [
        (Flaw::NoClientFence, Look::Locked),
        (Flaw::NoServerFence, Look::Locked),
        (Flaw::ClientStoresSwapped, Look::Locked),
        (Flaw::ServerStoresSwapped, Look::Locked),
        (Flaw::NoClientRecheck, Look::Locked),
        (Flaw::NoServerRecheck, Look::Locked),
        (Flaw::NoClientLock, Look::Locked),
        (Flaw::EarlyRelease, Look::Locked),
        (Flaw::EarlyServerRelease, Look::Locked),
        (Flaw::ForgottenAnswer, Look::Locked),
        (Flaw::NoWithdrawFence, Look::Locked),
        (Flaw::NoBeginFence, Look::Locked),
        (Flaw::NoWithdrawLook, Look::Locked),
        (Flaw::StaleWithdrawal, Look::Locked),
        (Flaw::BitsWithEarlyLook, Look::InboxFirst),
    ] {
        let caught = [
            PLAIN,
            Setup {
                batches: true,
                ..PLAIN
            },
            Setup {
                leaves: true,
                servers: 1,
                ..PLAIN
            },
            Setup {
                withdraws: true,
                clients: 1,
                ..PLAIN
            },
            Setup {
                leaves: true,
                calls: 3,
                servers: 1,
                ..PLAIN
            },
        ]
        .into_iter()
        .any(|setup| {
            explore::<State>(&Setup {
                flaw,
                look,
                ..setup
            })
            .is_err()
        });
        assert!(caught, "{flaw:?} goes unnoticed");
    }
}
