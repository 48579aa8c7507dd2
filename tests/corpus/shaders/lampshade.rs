//! Shaders of `lampshade`: scans, run lengths and radix sorting.

use crate::entry::{Entry, Fill::*, entry};

const P: &str = "lampshade";

pub const ENTRIES: &[Entry] = &[
    entry(
        P,
        "benches/raw_argmin.wgsl",
        "reduce_min",
        [5, 1, 1],
        &[
            ("input", Ints(50, 2048)),
            ("params", Words("1000, 0, 0, 0")),
        ],
    ),
    entry(
        P,
        "src/count_prepare.wgsl",
        "main",
        [1, 1, 1],
        &[
            ("item_count", Words("70000")),
            ("config", Words("100000, 1792, 3, 256, 4, 16, 0, 0")),
        ],
    ),
    entry(
        P,
        "src/reduce/counted_prepare.wgsl",
        "main",
        [1, 1, 1],
        &[
            ("item_count", Words("70000")),
            ("config", Words("65000, 4, 16, 4, 100, 0, 0, 0")),
        ],
    ),
    entry(
        P,
        "src/run_length/run_length.wgsl",
        "mark_heads",
        [3, 6, 1],
        &[
            (
                "input",
                Stairs {
                    each: 5,
                    modulo: 7,
                    len: 4096,
                },
            ),
            ("input_count", Words("3000")),
        ],
    ),
    entry(
        P,
        "src/run_length/scatter_starts.wgsl",
        "scatter_starts",
        [16, 1, 1],
        &[
            ("input", Ints(3, 4096)),
            (
                "offsets",
                Stairs {
                    each: 1,
                    modulo: 4096,
                    len: 4096,
                },
            ),
            ("input_count", Words("4000")),
        ],
    ),
    entry(
        P,
        "src/run_length/run_length_finalize.wgsl",
        "finalize_lengths",
        [4, 4, 1],
        &[
            ("input", Ints(3, 4096)),
            ("run_starts", Ints(50, 4096)),
            (
                "offsets",
                Stairs {
                    each: 1,
                    modulo: 4096,
                    len: 4096,
                },
            ),
            ("input_count", Words("4000")),
        ],
    ),
    entry(
        P,
        "src/sort/counted_prepare.wgsl",
        "main",
        [1, 1, 1],
        &[
            ("item_count", Words("123456")),
            ("config", Words("100000, 1792, 20, 0")),
        ],
    ),
    entry(
        P,
        "src/sort/prefix_8bit.wgsl",
        "main_prefix",
        [1, 1, 1],
        &[
            ("histogram", Ints(100, 1024)),
            ("uniforms", Words("1000, 7, 1, 0, 4, 0, 0, 0")),
        ],
    ),
    entry(
        P,
        "src/sort/soa_pack.wgsl",
        "main",
        [3, 2, 1],
        &[
            ("count_words", Words("5, 1100")),
            ("config", Words("1500, 1, 0, 0")),
        ],
    ),
    entry(
        P,
        "src/sort/soa_unpack.wgsl",
        "main",
        [3, 2, 1],
        &[
            ("count_words", Words("5, 1100")),
            ("config", Words("1500, 1, 0, 0")),
        ],
    ),
];
