//! Requests: events, futures, deadlines, and the fate of requests without a waiter.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tombolo_mpi::{MpiError, Ranks, RequestEvent, RequestStatus};

use crate::messages::{POISON, values};
use crate::{MOST, Test, World};

pub const TESTS: &[Test] = &[
    ("events_tell_of_ends", events_tell_of_ends),
    ("requests_are_futures", requests_are_futures),
    (
        "a_deadline_takes_a_receive_back",
        a_deadline_takes_a_receive_back,
    ),
    (
        "a_request_goes_on_after_a_deadline",
        a_request_goes_on_after_a_deadline,
    ),
    ("a_dropped_send_arrives", a_dropped_send_arrives),
    (
        "a_dropped_receive_takes_nothing",
        a_dropped_receive_takes_nothing,
    ),
    ("one_memory_for_many_sends", one_memory_for_many_sends),
    ("threads_send_at_once", threads_send_at_once),
    ("probes_see_without_taking", probes_see_without_taking),
];

/// What no test waits out.
const SHORT: Duration = Duration::from_millis(20);

/// Values of every rank go to the next rank.
fn goes_around(ranks: &Ranks, places: Range<usize>, tag: i32) {
    let (sent, received) = (
        values(ranks.rank(), places.clone()),
        vec![POISON; places.len()],
    );
    let (to, from) = (ranks.after(1), ranks.before(1));
    let sent = ranks.isend(sent, to, tag).unwrap();
    assert_eq!(
        ranks.receive(received, from, tag).unwrap(),
        values(from, places)
    );
    sent.wait().unwrap();
}

fn events_tell_of_ends(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let received = ranks
        .ireceive(vec![POISON; 10], ranks.before(1), 100)
        .unwrap();
    assert_eq!(received.status(), RequestStatus::Pending);
    let event = received.event();
    assert!(matches!(
        event.wait_timeout(SHORT),
        Err(MpiError::Deadline { .. })
    ));
    ranks.barrier().unwrap();
    let sent = ranks
        .isend(values(rank, 0..10), ranks.after(1), 100)
        .unwrap();
    let sending = sent.event();
    RequestEvent::wait_all(&[&event, &sending]).unwrap();
    assert_eq!(event.status(), RequestStatus::Complete);
    assert_eq!(received.wait().unwrap(), values(ranks.before(1), 0..10));
    // The event outlives the request.
    assert_eq!(event.clone().status(), RequestStatus::Complete);
    sent.wait().unwrap();
}

fn requests_are_futures(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let done = pollster::block_on(async {
        let received = ranks.ireceive(vec![POISON; 10], ranks.before(1), 101)?;
        let sent = ranks.isend(values(rank, 5..15), ranks.after(1), 101)?;
        let received = received.await?;
        sent.await?;
        Ok::<_, MpiError>(received)
    });
    assert_eq!(done.unwrap(), values(ranks.before(1), 5..15));
    pollster::block_on(async {
        let all = ranks.ibarrier().unwrap();
        all.await.unwrap();
    });
}

fn a_deadline_takes_a_receive_back(world: &World) {
    let ranks = &world.ranks;
    let late = ranks
        .ireceive(vec![POISON; 4], ranks.before(1), 102)
        .unwrap();
    let error = late.wait_timeout(SHORT).unwrap_err();
    match &error {
        MpiError::Deadline { operation, waited } => {
            assert_eq!((operation.name, operation.tag), ("receive", Some(102)));
            assert!(*waited >= SHORT);
        }
        other => panic!("{other}"),
    }
    late.cancel();
    // Once is enough, and twice does no harm.
    late.cancel();
    assert!(matches!(late.wait(), Err(MpiError::Cancelled { .. })));
    ranks.barrier().unwrap();
    // The message goes to the next receive.
    goes_around(ranks, 0..4, 102);
}

fn a_request_goes_on_after_a_deadline(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let received = ranks
        .ireceive(vec![POISON; 4], ranks.before(1), 103)
        .unwrap();
    assert!(received.wait_timeout(SHORT).is_err());
    ranks.barrier().unwrap();
    let sent = ranks
        .isend(values(rank, 0..4), ranks.after(1), 103)
        .unwrap();
    received.wait_timeout(MOST).unwrap();
    assert_eq!(received.wait().unwrap(), values(ranks.before(1), 0..4));
    sent.wait().unwrap();
}

/// Large enough that the message is not on the way when the send returns.
fn a_dropped_send_arrives(world: &World) {
    const LEN: usize = 1 << 20;
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    drop(
        ranks
            .isend(values(rank, 0..LEN), ranks.after(1), 104)
            .unwrap(),
    );
    std::mem::forget(
        ranks
            .isend(values(rank, 1..LEN), ranks.after(1), 105)
            .unwrap(),
    );
    let (first, second) = (vec![POISON; LEN], vec![POISON; LEN - 1]);
    let received = ranks.receive(first, ranks.before(1), 104).unwrap();
    assert_eq!(received, values(ranks.before(1), 0..LEN));
    let received = ranks.receive(second, ranks.before(1), 105).unwrap();
    assert_eq!(received, values(ranks.before(1), 1..LEN));
}

fn a_dropped_receive_takes_nothing(world: &World) {
    let ranks = &world.ranks;
    let _ = ranks
        .ireceive(vec![POISON; 4], ranks.before(1), 106)
        .unwrap();
    ranks.barrier().unwrap();
    goes_around(ranks, 0..4, 106);
}

fn one_memory_for_many_sends(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let mut pinned = world.context.pinned_vec::<u32>(1000).unwrap();
    pinned.copy_from_slice(&values(rank, 0..1000));
    let shared = Arc::new(pinned);
    let all: Vec<_> = (0..ranks.size())
        .map(|to| ranks.isend(Arc::clone(&shared), to, 107).unwrap())
        .collect();
    for from in 0..ranks.size() {
        let received = ranks.receive(vec![POISON; 1000], from, 107).unwrap();
        assert_eq!(received, values(from, 0..1000));
    }
    for request in all {
        request.wait().unwrap();
    }
    assert!(Arc::into_inner(shared).is_some());
}

fn threads_send_at_once(world: &World) {
    let ranks = &world.ranks;
    std::thread::scope(|scope| {
        for thread in 0..4i32 {
            scope.spawn(move || {
                for round in 0..50 {
                    goes_around(ranks, round..round + 20, 110 + thread);
                }
            });
        }
    });
}

fn probes_see_without_taking(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    assert_eq!(ranks.probe(ranks.before(1), 120).unwrap(), None);
    ranks.barrier().unwrap();
    let sent = ranks
        .isend(values(rank, 0..6), ranks.after(1), 120)
        .unwrap();
    ranks.barrier().unwrap();
    let begun = std::time::Instant::now();
    let seen = loop {
        if let Some(seen) = ranks.probe(ranks.before(1), 120).unwrap() {
            break seen;
        }
        assert!(begun.elapsed() < MOST);
        std::thread::yield_now();
    };
    assert_eq!((seen.source, seen.bytes), (ranks.before(1), 24));
    let received = ranks
        .receive(vec![POISON; 6], seen.source, seen.tag)
        .unwrap();
    assert_eq!(received, values(ranks.before(1), 0..6));
    sent.wait().unwrap();
}
