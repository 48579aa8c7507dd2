//! Deterministic schedules: a seed decides the order of work-groups, and of invocations between barriers.
//!
//! A dispatch with a seed runs on one thread, one invocation at a time. The order follows from the seed, the number of
//! work-groups and of invocations alone: the same seed gives the same run, and the same result. Work-groups waiting for others
//! take turns at every look, instead of by the clock.
//!
//! The order is a different, never a finer order: an invocation runs up to a barrier, to its end, or (in loops waiting for other
//! work-groups) to a look at memory before the next invocation runs.

use std::slice;

use crate::compile::abi::BoundResource;

/// A sequence of random-looking numbers: splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed and a purpose.
    pub(crate) fn new(seed: u64, purpose: &[u32]) -> Self {
        let mut random = Self(seed);
        for &part in purpose {
            random.0 = random.next() ^ u64::from(part);
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// An order of the numbers below `total`.
pub(crate) struct Permutation {
    total: u64,
    /// Half of the bits of a number
    half: u32,
    keys: [u64; 4],
}

impl Permutation {
    pub(crate) fn new(seed: u64, total: u64) -> Self {
        let mut random = Random::new(seed, &[total as u32, (total >> 32) as u32]);
        let bits = u64::BITS - total.saturating_sub(1).leading_zeros();
        Self {
            total,
            half: bits.div_ceil(2).max(1),
            keys: std::array::from_fn(|_| random.next()),
        }
    }

    /// The number at a place of the order: a Feistel network over the next power of four, walked until the number is below the
    /// total.
    pub(crate) fn at(&self, place: u64) -> u64 {
        if place >= self.total {
            return place;
        }
        let mask = u64::MAX >> (u64::BITS - self.half);
        let mut number = place;
        loop {
            let (mut left, mut right) = (number >> self.half, number & mask);
            for &key in &self.keys {
                let mixed = Random(right ^ key).next() & mask;
                (left, right) = (right, left ^ mixed);
            }
            number = left << self.half | right;
            if number < self.total {
                return number;
            }
        }
    }
}

/// Called by kernels with a seed when a round begins: writes the order of invocations.
///
/// Operands: address of the order and seed, of 64 bits each; number of invocations, `workgroup_id` (3), number of the round.
///
/// # Safety
/// As of [`HostFn`](crate::compile::host::HostFn), and the address must be of as many words as there are invocations.
pub(crate) unsafe extern "C" fn shuffle(
    _resources: *const *const BoundResource,
    operands: *const u32,
    _results: *mut u32,
    _lanes: u32,
    _width: u32,
    _which: u32,
) {
    // SAFETY: kernels pass two values of 64 bits, and five words behind the values.
    let (order, seed, words) = unsafe {
        let long = operands.cast::<u64>();
        let words = slice::from_raw_parts(operands.add(4), 5);
        (long.read_unaligned(), long.add(1).read_unaligned(), words)
    };
    let &[count, ref purpose @ ..] = words else {
        return;
    };
    // SAFETY: by contract; the memory belongs to the running work-group.
    let order = unsafe {
        let order = std::ptr::with_exposed_provenance_mut::<u32>(order as usize);
        slice::from_raw_parts_mut(order, count as usize)
    };
    for (place, number) in order.iter_mut().zip(0..) {
        *place = number;
    }
    let mut random = Random::new(seed, purpose);
    for place in (1..order.len()).rev() {
        let other = random.next() % (place as u64 + 1);
        order.swap(place, other as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_at_one_place() {
        for total in [1, 2, 3, 4, 5, 16, 17, 1000] {
            let mut seen: Vec<u64> = (0..total)
                .map(|at| Permutation::new(5, total).at(at))
                .collect();
            let other: Vec<u64> = (0..total)
                .map(|at| Permutation::new(6, total).at(at))
                .collect();
            assert!(total < 16 || seen != other);
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..total), "{total}");
        }
        let large = Permutation::new(1, u64::MAX);
        assert_ne!(large.at(0), large.at(1));
    }
}
