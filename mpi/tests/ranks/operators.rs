//! Operators in WGSL. The expected values come from the same function in Rust, folded over ranks.

use tombolo::DeviceBuffer;
use tombolo_mpi::{MpiError, WgslOperator};

use crate::messages::POISON;
use crate::{Test, World};

pub const TESTS: &[Test] = &[
    ("operators_go_by_rank", operators_go_by_rank),
    (
        "buffers_of_the_context_are_combined",
        buffers_of_the_context_are_combined,
    ),
    ("operators_are_checked", operators_are_checked),
];

/// Maps `x -> a x + b` of the integers modulo 2^32: their composition is associative, and does not commute.
const COMPOSE: &str = "
    fn op(first: vec2<u32>, second: vec2<u32>) -> vec2<u32> {
        return vec2(second.x * first.x, second.x * first.y + second.y);
    }";

fn compose([a, b]: [u32; 2], [c, d]: [u32; 2]) -> [u32; 2] {
    [c.wrapping_mul(a), c.wrapping_mul(b).wrapping_add(d)]
}

fn map(rank: i32, place: usize) -> [u32; 2] {
    let seed = (rank as u32 + 1).wrapping_mul(0x9e37_79b9) ^ place as u32;
    [seed | 1, seed.rotate_left(13)]
}

fn maps(rank: i32) -> Vec<[u32; 2]> {
    (0..500).map(|place| map(rank, place)).collect()
}

fn expected(size: i32) -> Vec<[u32; 2]> {
    (1..size).fold(maps(0), |all, rank| {
        all.into_iter()
            .zip(maps(rank))
            .map(|(a, b)| compose(a, b))
            .collect()
    })
}

fn operators_go_by_rank(world: &World) {
    let (ranks, rank, device) = (&world.ranks, world.ranks.rank(), &world.device);
    let operator = WgslOperator::new(device, "vec2<u32>", COMPOSE).unwrap();
    let from = device.buffer(&maps(rank)).unwrap();
    let expected = expected(ranks.size());
    for root in 0..ranks.size() {
        let into = device.buffer(&[[POISON; 2]; 500]).unwrap();
        let target = (rank == root).then_some(&into);
        ranks.reduce_by(&operator, &from, target, root).unwrap();
        if rank == root {
            assert_eq!(into.read().unwrap(), expected, "root {root}");
        }
    }
    let into = device.buffer(&[[POISON; 2]; 500]).unwrap();
    ranks.allreduce_by(&operator, &from, &into).unwrap();
    assert_eq!(into.read().unwrap(), expected);
    assert_eq!(from.read().unwrap(), maps(rank));
}

fn buffers_of_the_context_are_combined(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let operator = WgslOperator::new(&world.device, "vec2<u32>", COMPOSE).unwrap();
    let mut around = vec![[7u32; 2]; 600];
    around[50..550].copy_from_slice(&maps(rank));
    let whole = world.context.buffer_from(&around).unwrap();
    let from = whole.slice(50..550).unwrap();
    let into = world.context.buffer_from(&[[POISON; 2]; 500]).unwrap();
    ranks.allreduce_by(&operator, &from, &into).unwrap();
    assert_eq!(into.read().unwrap(), expected(ranks.size()));
    assert_eq!(whole.read().unwrap(), around);
}

fn operators_are_checked(world: &World) {
    let (ranks, device) = (&world.ranks, &world.device);
    let error = WgslOperator::<u32>::new(device, "u32", "fn other(a: u32) -> u32 { return a; }")
        .unwrap_err();
    assert!(matches!(error, MpiError::Kernel(_)), "{error}");
    let operator =
        WgslOperator::<u32>::new(device, "u32", "fn op(a: u32, b: u32) -> u32 { return a; }")
            .unwrap();
    let from = device.buffer(&[1u32; 4]).unwrap();
    let short = device.buffer(&[1u32; 3]).unwrap();
    let error = ranks.allreduce_by(&operator, &from, &short).unwrap_err();
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
    let none = None::<&DeviceBuffer<u32>>;
    let error = ranks
        .reduce_by(&operator, &from, none, ranks.rank())
        .unwrap_err();
    assert!(matches!(error, MpiError::Length { len: 0, .. }), "{error}");
    let other = "fn op(a: vec3<f32>, b: vec3<f32>) -> vec3<f32> { return a + b; }";
    let error = WgslOperator::<[f32; 3]>::new(device, "vec3<f32>", other).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an array of `vec3<f32>` has 16 bytes for each element, and `[f32; 3]` has 12: take types of one layout"
    );
}
