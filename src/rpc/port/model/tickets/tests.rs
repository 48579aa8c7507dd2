use super::super::explore;
use super::*;

const RACE: Setup = Setup {
    clients: &[&[Hand], &[Collect], &[Collect], &[Leave], &[Call]],
    closes: false,
    watched: true,
    flaw: Flaw::None,
};

/// The competitors for the port: clients that wait, clients that do not, and clients leaving tickets of their own
/// there.
const SETUPS: [&[&[Step]]; 4] = [
    RACE.clients,
    &[&[Hand], &[Collect], &[Collect], &[Call, Begin]],
    &[&[Hand], &[Collect], &[Collect], &[Post, Begin]],
    &[&[Hand], &[Collect], &[Leave], &[Post, Begin]],
];

#[test]
fn each_ticket_gives_one_answer_and_its_port_back() {
    for clients in SETUPS {
        for closes in [false, true] {
            let setup = Setup {
                clients,
                closes,
                ..RACE
            };
            let states =
                explore::<State>(&setup).unwrap_or_else(|error| panic!("{setup:?}: {error}"));
            assert!(states > 1000, "{setup:?}: only {states} states");
        }
    }
}

#[test]
fn mutants_are_caught() {
    for (flaw, complaint) in [
        (Flaw::LookedAndTook, "given twice"),
        (Flaw::NotPutBack, "are stuck"),
        (Flaw::PortPutBack, "got"),
        (Flaw::EarlyRelease, "got"),
        (Flaw::OneBit, "got"),
        (Flaw::TicketLeft, "given twice"),
        (Flaw::LeftWithTicket, "got"),
        (Flaw::NoLook, "got 0"),
        (Flaw::NoServerFence, "got 0"),
    ] {
        // By the answers of clients alone, not by the holder of the lock.
        let setups =
            (SETUPS.into_iter()).flat_map(|clients| [false, true].map(|closes| (clients, closes)));
        let caught: Vec<String> = setups
            .filter_map(|(clients, closes)| {
                explore::<State>(&Setup {
                    clients,
                    closes,
                    watched: false,
                    flaw,
                })
                .err()
            })
            .collect();
        assert!(
            caught.iter().any(|error| error.contains(complaint)),
            "{flaw:?}: {caught:?}"
        );
    }
}

#[test]
fn a_port_that_is_nobodys_is_noticed() {
    for flaw in [
        Flaw::NotPutBack,
        Flaw::PortPutBack,
        Flaw::TicketLeft,
        Flaw::LeftWithTicket,
    ] {
        // A ticket is taken for nothing only where the services are closed.
        let setup = Setup {
            flaw,
            closes: true,
            ..RACE
        };
        let error = explore::<State>(&setup).unwrap_err();
        assert!(error.contains("owners"), "{flaw:?}: {error}");
    }
}
