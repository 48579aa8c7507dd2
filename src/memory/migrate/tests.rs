//! The planner's promises, each by itself.

use std::ops::Range;

use super::model::place;
use super::*;

const LEN: u64 = 4096;

pub(super) fn want(at: usize, range: Range<u64>, access: Access) -> Want {
    Want {
        place: place(at),
        range,
        access,
    }
}

/// Plans, commits, and writes: the steps of an enqueue. Returns the bytes moved.
fn launch(buffer: &mut Residency, routes: &Routes, wants: &[Want]) -> u64 {
    let plan = buffer.plan(wants, routes).expect("a plan");
    buffer.commit(&plan).expect("a fresh plan");
    for want in wants.iter().filter(|want| want.access.writes()) {
        let wrote = buffer.wrote(want.place, want.range.clone());
        wrote.expect("a range");
    }
    plan.moved()
}

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    Vec::from_iter([range])
}

fn written(at: usize) -> Residency {
    let mut buffer = Residency::new(LEN);
    buffer.wrote(place(at), 0..LEN).expect("a range");
    buffer
}

#[test]
fn ping_pong_of_an_unchanged_buffer_moves_nothing() {
    let mut buffer = written(1);
    let routes = Routes::new();
    let read = |at| [want(at, 0..LEN, Access::Read)];
    assert_eq!(launch(&mut buffer, &routes, &read(2)), 2 * LEN);
    for turn in 0..100 {
        assert_eq!(launch(&mut buffer, &routes, &read(turn % 3)), 0);
    }
    // A write on either side causes exactly one further movement.
    buffer.wrote(place(2), 0..LEN).expect("a range");
    assert_eq!(launch(&mut buffer, &routes, &read(1)), 2 * LEN);
    assert_eq!(launch(&mut buffer, &routes, &read(1)), 0);
}

#[test]
fn the_host_keeps_what_goes_through_it() {
    let mut buffer = written(1);
    let routes = Routes::new();
    launch(&mut buffer, &routes, &[want(2, 0..LEN, Access::Read)]);
    assert!(buffer.is_current(Place::HOST, 0..LEN));
    // One hop is enough for the next device, and none for the host.
    let third = [want(3, 0..LEN, Access::Read)];
    assert_eq!(launch(&mut buffer, &routes, &third), LEN);
}

#[test]
fn disjoint_sub_buffers_are_processed_in_parallel_without_the_parent_bouncing() {
    let mut buffer = written(0);
    let routes = Routes::new();
    // Four parts on four devices, the last with an unaligned end, and an unused rest.
    let ends = [0, 1000, 2000, 3000, 3999];
    let parts: Vec<Range<u64>> = ends.windows(2).map(|pair| pair[0]..pair[1]).collect();
    let mut moved = 0;
    for turn in 0..10 {
        for (device, part) in (1..).zip(&parts) {
            let wants = [want(device, part.clone(), Access::ReadWrite)];
            let now = launch(&mut buffer, &routes, &wants);
            moved += now;
            assert_eq!(now, if turn == 0 { part.end - part.start } else { 0 });
        }
    }
    assert_eq!(moved, 3999);
    // The parent collects the parts; untouched bytes were at the host all the time.
    assert!(buffer.is_current(Place::HOST, 3999..LEN));
    let all = [want(0, 0..LEN, Access::Read)];
    let plan = buffer.plan(&all, &routes).expect("a plan");
    assert_eq!(plan.moved(), 3999);
    assert_eq!(plan.avoided.current, LEN - 3999);
    assert_eq!(plan.steps.len(), 4);
    // Whole buffers would have bounced on every launch, and once more now.
    assert!(buffer.counters().whole_buffer >= 39 * LEN);
}

#[test]
fn overlapping_sub_buffers_and_the_parent_agree() {
    let mut buffer = written(0);
    let routes = Routes::new();
    let (left, right, common) = (0..2500, 1500..LEN, 1500..2500);
    launch(
        &mut buffer,
        &routes,
        &[want(1, left.clone(), Access::ReadWrite)],
    );
    let moved = launch(
        &mut buffer,
        &routes,
        &[want(2, right.clone(), Access::ReadWrite)],
    );
    assert_eq!(moved, 2 * 1000 + (LEN - 2500));
    // The left device is behind in the common part alone.
    assert!(buffer.is_current(place(1), 0..1500));
    assert!(!buffer.is_current(place(1), 1499..1501));
    assert_eq!(buffer.held(place(1), common.clone()), Held::Behind(1));
    let again = buffer.plan(&[want(1, left.clone(), Access::Read)], &routes);
    assert_eq!(again.expect("a plan").moved(), 2 * 1000);
    let parent = buffer.plan(&[want(0, 0..LEN, Access::Read)], &routes);
    assert_eq!(parent.expect("a plan").moved(), LEN);
}

#[test]
fn halo_rows_are_all_that_moves() {
    // Two halves on two devices; each step reads a row beyond its half.
    const ROW: u64 = 64;
    let mut buffer = written(0);
    let routes = Routes::new();
    let (half, rows) = (LEN / 2, LEN / ROW);
    for (at, range) in [(1, 0..half), (2, half..LEN)] {
        launch(&mut buffer, &routes, &[want(at, range, Access::ReadWrite)]);
    }
    let before = buffer.counters();
    let steps = 10;
    for _ in 0..steps {
        // Both read before both write.
        launch(
            &mut buffer,
            &routes,
            &[want(1, half..half + ROW, Access::Read)],
        );
        launch(
            &mut buffer,
            &routes,
            &[want(2, half - ROW..half, Access::Read)],
        );
        launch(&mut buffer, &routes, &[want(1, 0..half, Access::Write)]);
        launch(&mut buffer, &routes, &[want(2, half..LEN, Access::Write)]);
    }
    let after = buffer.counters();
    assert_eq!(after.moved - before.moved, steps * 2 * 2 * ROW);
    let whole = after.whole_buffer - before.whole_buffer;
    assert!(whole >= rows / 4 * (after.moved - before.moved));
}

#[test]
fn an_overwrite_copies_nothing_and_a_write_of_unknown_extent_copies_first() {
    let buffer = written(1);
    let routes = Routes::new();
    for (access, moved) in [
        (Access::Overwrite, 0),
        (Access::Write, 2 * 100),
        (Access::ReadWrite, 2 * 100),
        (Access::Read, 2 * 100),
    ] {
        let plan = buffer.plan(&[want(2, 7..107, access)], &routes);
        let plan = plan.expect("a plan");
        assert_eq!(plan.moved(), moved, "{access:?}");
        let overwritten = if moved == 0 { 100 } else { 0 };
        assert_eq!(plan.avoided.overwritten, overwritten, "{access:?}");
    }
    // Another binding of the same launch reads some of the overwritten bytes.
    let both = [
        want(2, 0..100, Access::Overwrite),
        want(2, 90..110, Access::Read),
    ];
    let plan = buffer.plan(&both, &routes).expect("a plan");
    assert_eq!(plan.moved(), 2 * 20);
    assert_eq!(plan.steps[0].range, 90..110);
}

#[test]
fn reads_make_no_version() {
    let mut buffer = written(1);
    let routes = Routes::new();
    for at in [2, 3, 0] {
        launch(&mut buffer, &routes, &[want(at, 0..LEN, Access::Read)]);
    }
    assert!((0..4).all(|at| buffer.is_current(place(at), 0..LEN)));
}

#[test]
fn chunks_of_two_hops_alternate_and_wait_for_their_own() {
    let buffer = written(1);
    let routes = Routes::new().with_chunk(1000);
    let plan = buffer.plan(&[want(2, 500..2500, Access::Read)], &routes);
    let steps = plan.expect("a plan").steps;
    let shape: Vec<_> = steps
        .iter()
        .map(|step| (step.from.index(), step.range.clone(), step.after))
        .collect();
    assert_eq!(
        shape,
        [
            (1, 500..1000, None),
            (0, 500..1000, Some(0)),
            (1, 1000..2000, None),
            (0, 1000..2000, Some(2)),
            (1, 2000..2500, None),
            (0, 2000..2500, Some(4)),
        ]
    );
    // A single hop is one copy.
    let plan = buffer.plan(&[want(0, 500..2500, Access::Read)], &routes);
    assert_eq!(plan.expect("a plan").steps.len(), 1);
}

#[test]
fn the_cheapest_source_is_chosen() {
    let mut buffer = written(1);
    let mut routes = Routes::new();
    routes.set_both(place(2), place(3), Route::SameDevice, 1);
    routes.set_both(place(1), place(4), Route::SharedHost, 100);
    launch(&mut buffer, &routes, &[want(2, 0..LEN, Access::Read)]);
    // Devices 1 and 2 and the host have the bytes.
    let source = |to| {
        let plan = buffer.plan(&[want(to, 0..8, Access::Read)], &routes);
        let steps = plan.expect("a plan").steps;
        assert_eq!(steps.len(), 1);
        (steps[0].from.index(), steps[0].route)
    };
    assert_eq!(source(3), (2, Route::SameDevice));
    // A direct route that costs more than the host is not taken.
    assert_eq!(source(4), (0, Route::ThroughHost));
    assert_eq!(routes.route(place(1), place(4)), (Route::ThroughHost, 8));
    // Both at once: the second source is the first destination.
    let both = [want(2, 0..8, Access::Read), want(3, 0..8, Access::Read)];
    let plan = written(1).plan(&both, &routes).expect("a plan");
    let hops: Vec<_> = plan
        .steps
        .iter()
        .map(|step| (step.from.index(), step.to.index(), step.after))
        .collect();
    assert_eq!(hops, [(1, 0, None), (0, 2, Some(0)), (2, 3, Some(1))]);
}

#[test]
fn memory_that_places_share_needs_no_copies() {
    let mut buffer = Residency::new(LEN);
    for device in [1, 2] {
        buffer.share(Place::HOST, place(device));
    }
    let routes = Routes::new();
    for at in [1, 2, 0, 2, 1] {
        let wants = [want(at, 3..LEN - 3, Access::ReadWrite)];
        assert_eq!(launch(&mut buffer, &routes, &wants), 0);
    }
    // A device with memory of its own takes one hop, and gives back in another.
    let third = [want(3, 3..LEN - 3, Access::ReadWrite)];
    assert_eq!(launch(&mut buffer, &routes, &third), LEN - 6);
    let plan = buffer.plan(&[want(2, 0..LEN, Access::Read)], &routes);
    let plan = plan.expect("a plan");
    assert_eq!(plan.moved(), LEN - 6);
    buffer.commit(&plan).expect("a fresh plan");
    assert!(buffer.is_current(place(1), 0..LEN));
    // A lost device takes nothing along.
    assert_eq!(buffer.lost(place(1)), []);
    assert!(buffer.is_current(place(2), 0..LEN));
    assert!(!buffer.is_current(place(1), 0..LEN));
}

#[test]
fn a_lost_device_takes_only_what_was_nowhere_else() {
    let mut buffer = written(0);
    let routes = Routes::new();
    launch(&mut buffer, &routes, &[want(1, 0..3000, Access::Read)]);
    launch(&mut buffer, &routes, &[want(1, 100..203, Access::Write)]);
    launch(&mut buffer, &routes, &[want(1, 1001..1002, Access::Write)]);
    assert_eq!(buffer.lost(place(1)), [100..203, 1001..1002]);
    let read = |buffer: &Residency, range| buffer.plan(&[want(2, range, Access::Read)], &routes);
    let lost = |ranges| {
        let place = place(1);
        Err(MigrateError::Lost { place, ranges })
    };
    assert_eq!(read(&buffer, 0..LEN), lost(vec![100..203, 1001..1002]));
    assert_eq!(read(&buffer, 202..300), lost(one(202..203)));
    assert!(read(&buffer, 203..1001).is_ok());
    // A partial write leaves the rest.
    assert!(
        buffer
            .plan(&[want(2, 100..203, Access::Write)], &routes)
            .is_err()
    );
    launch(
        &mut buffer,
        &routes,
        &[want(2, 100..203, Access::Overwrite)],
    );
    buffer.discard(1001..1002).expect("a range");
    assert_eq!(buffer.lost(place(3)), []);
    assert!(read(&buffer, 0..LEN).is_ok());
}

#[test]
fn a_copy_that_failed_leaves_what_is_elsewhere() {
    let mut buffer = written(1);
    let routes = Routes::new();
    launch(&mut buffer, &routes, &[want(2, 0..LEN, Access::Read)]);
    assert_eq!(buffer.failed(place(2), 10..20), Ok(vec![]));
    assert!(!buffer.is_current(place(2), 9..11));
    // The source is lost, and the copies enqueued from there never arrive.
    assert_eq!(buffer.lost(place(1)), []);
    assert_eq!(buffer.failed(place(2), 0..LEN), Ok(vec![]));
    assert_eq!(buffer.failed(place(0), 5..LEN), Ok(one(5..LEN)));
    assert!(buffer.is_current(place(0), 0..5));
}

#[test]
fn an_eviction_copies_what_is_nowhere_else_and_drops_the_rest() {
    let mut buffer = written(0);
    let routes = Routes::new();
    launch(&mut buffer, &routes, &[want(1, 0..LEN, Access::Read)]);
    launch(&mut buffer, &routes, &[want(1, 11..99, Access::Write)]);
    let only = MigrateError::OnlyCopy {
        place: place(1),
        ranges: one(11..99),
    };
    assert_eq!(buffer.evicted(place(1), 0..LEN), Err(only));
    let eviction = buffer.evictable(place(1), &routes);
    assert_eq!(eviction.clean, [0..11, 99..LEN]);
    assert_eq!(eviction.plan.moved(), 88);
    buffer.commit(&eviction.plan).expect("a fresh plan");
    assert_eq!(buffer.evicted(place(1), 0..LEN), Ok(()));
    assert_eq!(buffer.held(place(1), 0..LEN), Held::Nothing);
    assert!(buffer.is_current(Place::HOST, 0..LEN));
    // The host's own memory cannot be moved to the host.
    let host = buffer.evictable(Place::HOST, &routes);
    assert_eq!((host.kept, host.plan.moved()), (one(0..LEN), 0));
}

#[test]
fn a_plan_is_good_for_one_state_of_one_buffer() {
    let mut buffer = written(1);
    let routes = Routes::new();
    let wants = [want(2, 0..LEN, Access::Read)];
    let plan = buffer.plan(&wants, &routes).expect("a plan");
    assert_eq!(written(1).commit(&plan), Err(MigrateError::StalePlan));
    buffer.wrote(place(3), 0..1).expect("a range");
    assert_eq!(buffer.commit(&plan), Err(MigrateError::StalePlan));
    assert!(!buffer.is_current(place(2), 0..LEN));
}

#[test]
fn ranges_that_are_none_are_told_and_change_nothing() {
    let mut buffer = written(1);
    let bounds = [(0, LEN + 1), (LEN + 1, LEN + 1), (5, 4), (0, u64::MAX)];
    for (start, end) in bounds {
        let range = Range { start, end };
        let error = Err(MigrateError::OutOfRange {
            start,
            end,
            len: LEN,
        });
        assert_eq!(buffer.wrote(place(2), range.clone()), error);
        assert_eq!(buffer.discard(range.clone()), error);
        assert_eq!(buffer.evicted(place(1), range.clone()), error);
        assert!(buffer.failed(place(1), range.clone()).is_err());
        assert!(!buffer.is_current(place(1), range.clone()));
        let wants = [want(2, 0..1, Access::Read), want(2, range, Access::Read)];
        assert!(buffer.plan(&wants, &Routes::new()).is_err());
        assert!(buffer.plan(&wants[1..], &Routes::new()).is_err());
    }
    assert!(buffer.is_current(place(1), 0..LEN));
    let empty = [want(2, LEN..LEN, Access::ReadWrite)];
    assert_eq!(
        buffer.plan(&empty, &Routes::new()).expect("a plan").moved(),
        0
    );
}

#[test]
fn buffers_of_any_length_and_chunks_of_any_length_work() {
    let mut nothing = Residency::new(0);
    assert!(nothing.is_empty());
    assert_eq!(
        launch(
            &mut nothing,
            &Routes::new(),
            &[want(1, 0..0, Access::Write)]
        ),
        0
    );
    let mut huge = Residency::new(u64::MAX);
    huge.wrote(place(1), 0..u64::MAX).expect("a range");
    for chunk in [0, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        let routes = Routes::new().with_chunk(chunk);
        let wants = [want(2, 1..u64::MAX, Access::Read)];
        let plan = huge.plan(&wants, &routes).expect("a plan");
        let last = plan.steps.last().expect("a step");
        assert_eq!(last.range.end, u64::MAX);
        assert!(plan.steps.len() <= 6);
    }
}

#[test]
fn a_plan_without_copies_allocates_nothing() {
    let plan = written(1).plan(&[want(1, 0..LEN, Access::ReadWrite)], &Routes::new());
    assert_eq!(plan.expect("a plan").steps.capacity(), 0);
}
