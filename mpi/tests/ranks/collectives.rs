//! Operations of all ranks. Expected values are computed on each rank from the formula of every rank's data.

use tombolo_mpi::{MpiError, Number, Operator};

use crate::messages::{POISON, values};
use crate::{Test, World};

pub const TESTS: &[Test] = &[
    ("all_get_what_the_root_has", all_get_what_the_root_has),
    ("numbers_are_combined", numbers_are_combined),
    ("every_number_has_its_type", every_number_has_its_type),
    (
        "data_is_gathered_and_scattered",
        data_is_gathered_and_scattered,
    ),
    (
        "lengths_and_operators_are_checked",
        lengths_and_operators_are_checked,
    ),
    (
        "nothing_is_combined_in_no_time",
        nothing_is_combined_in_no_time,
    ),
];

fn all_get_what_the_root_has(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    for root in 0..ranks.size() {
        let all = match rank == root {
            true => values(root, 0..500),
            false => vec![POISON; 500],
        };
        let buffer = world.context.buffer_from(&all).unwrap();
        let mapped = buffer.map_mut(100..400).unwrap();
        ranks.broadcast(mapped, root).unwrap().unmap().unwrap();
        assert_eq!(buffer.read_range(100..400).unwrap(), values(root, 100..400));
        let outside = buffer.read_range(..100).unwrap();
        assert_eq!(outside, all[..100]);
    }
}

fn numbers_are_combined(world: &World) {
    const LEN: usize = 777;
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    type Combine = fn(u32, u32) -> u32;
    let operators: [(Operator, Combine); 7] = [
        (Operator::Sum, u32::wrapping_add),
        (Operator::Product, u32::wrapping_mul),
        (Operator::Min, u32::min),
        (Operator::Max, u32::max),
        (Operator::BitAnd, |a, b| a & b),
        (Operator::BitOr, |a, b| a | b),
        (Operator::BitXor, |a, b| a ^ b),
    ];
    for (at, (operator, combine)) in operators.into_iter().enumerate() {
        let of = |rank| values(rank, at..at + LEN);
        let expected: Vec<u32> = (1..ranks.size()).fold(of(0), |all, other| {
            all.into_iter()
                .zip(of(other))
                .map(|(a, b)| combine(a, b))
                .collect()
        });
        let root = at as i32 % ranks.size();
        let into = (rank == root).then(|| vec![POISON; LEN]);
        let (from, into) = ranks.reduce(of(rank), into, operator, root).unwrap();
        assert_eq!(from, of(rank));
        assert_eq!(into.is_some(), rank == root);
        assert!(into.is_none_or(|into| into == expected), "{operator:?}");
        let mut pinned = world.context.pinned_vec::<u32>(LEN).unwrap();
        pinned.fill(POISON);
        let (_, all) = ranks.allreduce(of(rank), pinned, operator).unwrap();
        assert_eq!(all[..], expected, "{operator:?}");
    }
}

/// Sums of all ranks, in each type.
fn every_number_has_its_type(world: &World) {
    fn sum<T: Number + PartialEq + std::fmt::Debug>(world: &World, of: fn(u8) -> T) {
        let ranks = &world.ranks;
        let own = vec![of(ranks.rank() as u8 + 1); 3];
        let (_, all) = ranks
            .allreduce(own, vec![of(99); 3], Operator::Sum)
            .unwrap();
        let expected: u8 = (1..=ranks.size() as u8).sum();
        assert_eq!(all, [of(expected); 3], "{}", std::any::type_name::<T>());
    }
    sum::<u8>(world, |n| n);
    sum::<u16>(world, u16::from);
    sum::<u32>(world, u32::from);
    sum::<u64>(world, |n| u64::from(n) << 40);
    sum::<i8>(world, |n| -(n as i8));
    sum::<i16>(world, |n| -i16::from(n));
    sum::<i32>(world, |n| -i32::from(n));
    sum::<i64>(world, |n| -(i64::from(n) << 40));
    sum::<f32>(world, |n| f32::from(n) * 0.5);
    sum::<f64>(world, |n| f64::from(n) * 0.125);
}

fn data_is_gathered_and_scattered(world: &World) {
    const LEN: usize = 33;
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let root = ranks.size() - 1;
    let into = (rank == root).then(|| vec![POISON; LEN * ranks.size() as usize]);
    let (_, all) = ranks.gather(values(rank, 0..LEN), into, root).unwrap();
    let expected: Vec<u32> = (0..ranks.size())
        .flat_map(|rank| values(rank, 0..LEN))
        .collect();
    assert!(all.as_ref().is_none_or(|all| *all == expected));
    // Dealt out again, every rank has its own values.
    let (_, own) = ranks.scatter(all, vec![POISON; LEN], root).unwrap();
    assert_eq!(own, values(rank, 0..LEN));
}

fn lengths_and_operators_are_checked(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let error = ranks
        .ireduce(vec![1u32; 4], Some(vec![0u32; 3]), Operator::Sum, rank)
        .unwrap_err();
    assert!(
        matches!(
            error,
            MpiError::Length {
                len: 3,
                needed: 4,
                ..
            }
        ),
        "{error}"
    );
    let error = ranks
        .ireduce(vec![1u32; 4], None::<Vec<u32>>, Operator::Sum, rank)
        .unwrap_err();
    assert!(
        matches!(
            error,
            MpiError::Length {
                len: 0,
                needed: 4,
                ..
            }
        ),
        "{error}"
    );
    let needed = 2 * ranks.size() as usize;
    let error = ranks
        .igather(vec![1u32; 2], Some(vec![0u32; 1]), rank)
        .unwrap_err();
    assert!(
        matches!(error, MpiError::Length { len: 1, needed: n, .. } if n == needed),
        "{error}"
    );
    let error = ranks
        .iscatter(None::<Vec<u32>>, vec![0u32; 2], rank)
        .unwrap_err();
    assert!(
        matches!(error, MpiError::Length { len: 0, needed: n, .. } if n == needed),
        "{error}"
    );
    let error = ranks
        .iallreduce(vec![1f32], vec![0f32], Operator::BitXor)
        .unwrap_err();
    assert!(
        matches!(
            error,
            MpiError::NoOperator {
                operator: Operator::BitXor,
                element: "f32",
                ..
            }
        ),
        "{error}"
    );
}

fn nothing_is_combined_in_no_time(world: &World) {
    let ranks = &world.ranks;
    let (_, none) = ranks
        .allreduce(Vec::<u32>::new(), Vec::new(), Operator::Sum)
        .unwrap();
    assert!(none.is_empty());
    assert!(ranks.broadcast(Vec::<u32>::new(), 0).unwrap().is_empty());
}
