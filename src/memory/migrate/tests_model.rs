//! The planner against the whole machine of the model.

use std::ops::Range;

use proptest::prelude::*;

use super::model::{LEN, Machine, PLACES};
use super::model_wires::Wires;
use super::tests::want;
use super::*;

#[derive(Debug, Clone)]
enum Operation {
    /// Wants at one place, or at several places at once.
    Launch(Vec<Want>),
    Discard(Range<u64>),
    Evict(usize),
    Lose(usize),
    Vacate(usize),
    Fail(usize, Range<u64>),
}

/// A part of a part of the buffer, often at an end of another one, seldom aligned.
fn range() -> impl Strategy<Value = Range<u64>> {
    let end = prop_oneof![
        0..=LEN as u64,
        Just(0),
        Just(LEN as u64),
        Just(LEN as u64 / 2)
    ];
    (end.clone(), end.clone(), end.clone(), end).prop_map(|(a, b, c, d)| {
        let (start, end) = (a.min(b), a.max(b));
        let (c, d) = (c.min(end - start), d.min(end - start));
        match c == d {
            true => start..end,
            false => start + c.min(d)..start + c.max(d),
        }
    })
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        3 => Just(Access::Read),
        1 => Just(Access::Write),
        2 => Just(Access::ReadWrite),
        1 => Just(Access::Overwrite),
    ]
}

/// A want somewhere.
fn wanted(devices: usize, access: impl Strategy<Value = Access>) -> impl Strategy<Value = Want> {
    (0..=devices, range(), access).prop_map(|(at, range, access)| want(at, range, access))
}

fn commands(devices: usize) -> impl Strategy<Value = Operation> {
    let wants = prop::collection::vec((range(), access()), 1..4);
    prop_oneof![
        8 => (0..=devices, wants).prop_map(|(at, wants)| {
            let here = |(range, access)| want(at, range, access);
            Operation::Launch(wants.into_iter().map(here).collect())
        }),
        2 => one_writer(devices),
        1 => (prop::collection::vec(0..=devices, 2..4), range()).prop_map(|(places, range)| {
            let read = |at| want(at, range.clone(), Access::Read);
            Operation::Launch(places.into_iter().map(read).collect())
        }),
        1 => range().prop_map(Operation::Discard),
    ]
}

/// Several places read, and a single place may write.
fn one_writer(devices: usize) -> impl Strategy<Value = Operation> {
    let reads = prop::collection::vec(wanted(devices, Just(Access::Read)), 1..4);
    (reads, wanted(devices, access())).prop_map(|(mut wants, one)| {
        wants.push(one);
        Operation::Launch(wants)
    })
}

fn anything(devices: usize) -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => commands(devices),
        1 => prop::collection::vec(wanted(devices, access()), 1..5).prop_map(Operation::Launch),
        1 => (0..=devices).prop_map(Operation::Evict),
        1 => (1..=devices).prop_map(Operation::Lose),
        1 => (1..=devices).prop_map(Operation::Vacate),
        1 => (0..=devices, range()).prop_map(|(at, range)| Operation::Fail(at, range)),
    ]
}

fn wires() -> impl Strategy<Value = Wires> {
    let cost = prop::option::weighted(0.4, 0u32..12);
    (
        prop::array::uniform5(prop::array::uniform5(cost)),
        prop::sample::select(vec![0, 1, 4, 7, 16, 1000]),
    )
        .prop_map(|(cost, chunk)| Wires { cost, chunk })
}

/// Like real devices: some are the same device of wgpu, some of these share a memory of the host, a kind of hop costs the
/// same everywhere, and a hop on a device costs no more than one through memory of the host: where it costs more, the
/// planner goes by the cheaper hops, and these may be more.
fn real_wires() -> impl Strategy<Value = Wires> {
    let groups = prop::array::uniform5((0..3usize, 0..2usize));
    let costs = prop::array::uniform3(0u32..12);
    let chunk = prop::sample::select(vec![0, 1, 4, 7, 16, 1000]);
    (groups, costs, chunk).prop_map(|(groups, [one, other, host], chunk)| {
        let (same, shared) = (one.min(other), one.max(other));
        let mut cost = [[None; PLACES]; PLACES];
        for from in 0..PLACES {
            for to in 0..PLACES {
                let (a, b) = (groups[from], groups[to]);
                // A device of wgpu is in a single group sharing memory.
                cost[from][to] = match (from, to) {
                    (0, _) | (_, 0) => Some(host),
                    _ if a == b => Some(same),
                    _ if a.1 == b.1 && a.1 == 0 => Some(shared),
                    _ => None,
                };
            }
        }
        Wires { cost, chunk }
    })
}

fn apply(machine: &mut Machine, operation: &Operation) {
    match operation {
        Operation::Launch(wants) => machine.launch(wants),
        Operation::Discard(range) => machine.discard(range.clone()),
        Operation::Evict(at) => machine.evict(*at),
        Operation::Lose(at) => machine.lose_device(*at),
        Operation::Vacate(at) => machine.vacate(*at),
        Operation::Fail(at, range) => machine.fail(*at, range.clone()),
    }
    machine.check();
}

/// Fewer operations than so many. Miri takes its time for each.
const OPERATIONS: usize = if cfg!(miri) { 8 } else { 40 };

fn script<S: Strategy<Value = Operation>>(
    operations: impl Fn(usize) -> S,
) -> impl Strategy<Value = Vec<Operation>> {
    (1..PLACES)
        .prop_flat_map(move |devices| prop::collection::vec(operations(devices), 1..OPERATIONS))
}

/// Applies them to a machine in which nothing goes wrong: never is more `counted` than whole buffers would have moved, of
/// which the planner has the same opinion.
fn apply_all(
    machine: &mut Machine,
    operations: &[Operation],
    counted: impl Fn(&Machine) -> u64,
) -> Result<(), TestCaseError> {
    for operation in operations {
        apply(machine, operation);
        prop_assert!(!machine.broken);
        prop_assert!(counted(machine) <= machine.whole_moved);
        prop_assert_eq!(
            machine.residency.counters().whole_buffer,
            machine.whole_moved
        );
    }
    Ok(())
}

proptest! {
    /// Nothing goes wrong here, so whole buffers can be compared with, too.
    #[test]
    fn the_right_bytes_and_never_more_than_whole_buffers(
        wires in real_wires(),
        operations in script(commands),
        seed in any::<u64>(),
    ) {
        let mut machine = Machine::new(wires, &[], seed);
        apply_all(&mut machine, &operations, |machine| machine.moved)?;
    }

    /// Where going around by a third device would be cheaper, whole buffers may have gone there by chance, and a
    /// further hop through the host is possible; but never do more bytes arrive at their goal.
    #[test]
    fn no_more_arrives_than_whole_buffers_move_whatever_hops_cost(
        wires in wires(),
        operations in script(commands),
        seed in any::<u64>(),
    ) {
        let mut machine = Machine::new(wires, &[], seed);
        apply_all(&mut machine, &operations, |machine| machine.arrived)?;
    }

    #[test]
    fn the_right_bytes_whatever_happens(
        wires in wires(),
        shared in prop::collection::vec((0..PLACES, 0..PLACES), 0..3),
        operations in script(anything),
        seed in any::<u64>(),
    ) {
        let mut machine = Machine::new(wires, &shared, seed);
        for operation in &operations {
            apply(&mut machine, operation);
        }
    }
}
