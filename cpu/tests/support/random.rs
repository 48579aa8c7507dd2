//! Pseudo-random numbers by their index: every test can name the ones it uses.

/// A word (splitmix64).
pub fn word(index: u64) -> u64 {
    let z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in [0, 1).
pub fn unit(index: u64) -> f64 {
    (word(index) >> 11) as f64 / (1u64 << 53) as f64
}
