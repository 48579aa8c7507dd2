//! Inputs.

use tombolo::DeviceBuffer;
use tombolo::bytemuck::{self, Pod};

use crate::harness::Fixture;

/// Lengths around everything that is special: nothing, one value, work-groups of 64 and 256 invocations, tiles of 2,048 and
/// 4,096 values, tiles of tiles.
pub const LENGTHS: [usize; 20] = [
    0, 1, 2, 3, 31, 64, 65, 255, 256, 257, 2_047, 2_048, 2_049, 4_095, 4_096, 4_097, 10_000,
    65_536, 65_537, 1_000_003,
];

/// What outputs hold before a call.
pub const POISON: u32 = 0xDEAD_BEEF;

/// The value `i` of a sequence without a pattern, other for every seed (the finalizer of MurmurHash3).
pub fn noise(i: usize, seed: u32) -> u32 {
    let mut x = (i as u32) ^ seed.wrapping_mul(0x9E37_79B9);
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// `len` words without a pattern.
pub fn words(len: usize, seed: u32) -> Vec<u32> {
    (0..len).map(|i| noise(i, seed)).collect()
}

/// `len` integers of both signs.
pub fn integers(len: usize, seed: u32) -> Vec<i32> {
    words(len, seed).into_iter().map(|x| x as i32).collect()
}

/// `len` numbers from -1 up to 1.
pub fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let scale = |x: i32| (f64::from(x) / 2_147_483_648.0) as f32;
    integers(len, seed).into_iter().map(scale).collect()
}

/// A buffer of `len` poisoned values.
pub fn poisoned<T: Pod>(fixture: &Fixture, len: usize) -> DeviceBuffer<T> {
    let poison = vec![bytemuck::cast::<u32, T>(POISON); len];
    fixture.device.buffer(&poison).unwrap()
}

/// Tells the first difference rather than everything.
pub fn assert_same<T: PartialEq + std::fmt::Debug>(found: &[T], expected: &[T], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    if let Some(i) = (0..found.len()).find(|&i| found[i] != expected[i]) {
        panic!("{what} at {i}: {:?}, not {:?}", found[i], expected[i]);
    }
}
