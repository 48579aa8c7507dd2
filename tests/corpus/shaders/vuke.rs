//! Shaders of `vuke`: hashes, and a Mersenne Twister that looks for the seed of a known output.

use crate::entry::{Entry, Fill, Fill::*, entry};

const P: &str = "vuke";

/// The first outputs of MT19937 for its default seed, 5489.
const MT_5489: Fill = Words(
    "3499211612, 581869302, 3890346734, 3586334585, 545404204, 4161255391, 3922919429, 949333985",
);

pub const ENTRIES: &[Entry] = &[
    entry(
        P,
        "src/gpu/shaders/md5.wgsl",
        "main",
        [1, 1, 1],
        &[("params", Words("100, 64, 0, 0")), ("inputs", Bits(1600))],
    ),
    entry(
        P,
        "src/gpu/shaders/sha256.wgsl",
        "main",
        [1, 1, 1],
        &[("params", Words("100, 64, 0, 0")), ("inputs", Bits(1600))],
    ),
    entry(
        P,
        "src/gpu/shaders/mt19937.wgsl",
        "main",
        [1, 1, 1],
        &[("params", Words("5469, 64, 0, 0")), ("target_key", MT_5489)],
    ),
];
