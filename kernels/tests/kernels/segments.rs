//! Ways to cut an input into segments.

use crate::data::noise;

/// Offsets with a name, for inputs of `len` values: ascending, none beyond the values, at least one.
pub fn cuts(len: usize) -> Vec<(&'static str, Vec<u32>)> {
    let all = len as u32;
    let drawn = |count: usize, seed: u32| {
        let mut offsets: Vec<u32> = (0..count).map(|i| noise(i, seed) % (all + 1)).collect();
        offsets.sort_unstable();
        offsets
    };
    // Short and long ones, empty ones among them.
    let mut mixed = vec![0];
    let mut at = 0;
    for i in 0.. {
        let size = noise(i, 1) % (1 << (noise(i, 2) % 13)) / 3;
        at += size;
        if at > all {
            break;
        }
        mixed.push(at);
    }
    mixed.push(all);
    let empty = [vec![0; 5_001], vec![all / 2; 3_000], vec![all; 2_049]].concat();
    vec![
        ("a single segment", vec![0, all]),
        ("no segment", vec![all / 3]),
        (
            "a part of the values",
            vec![all / 5, all / 3, all - all / 4],
        ),
        ("one value each", (0..=all.min(9_000)).collect()),
        ("a thousand", drawn(1_001, 3)),
        ("short and long", mixed),
        ("mostly empty", empty),
        ("before, behind", vec![0, 0, all, all, all]),
    ]
}
