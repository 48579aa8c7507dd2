//! Shaders of `lattice-inference`: the layers of a language model.

use crate::entry::{Entry, Fill, Fill::*, entry};

const P: &str = "lattice-inference";

/// The one parameter block that its shaders share, as they number it: matrix sizes, row length and
/// count, head size, heads, heads of keys, heads for each, half a head, elements, scale, epsilon, tokens.
const PARAMS: (&str, Fill) = (
    "params",
    Words("40, 50, 60, 300, 3, 32, 4, 2, 2, 16, 300, 0.5, 0.00001, 20"),
);

/// Columns, rows and inner length of the matrices.
const DIMS: (&str, Fill) = ("dims", Words("40, 50, 60, 0"));

pub const ENTRIES: &[Entry] = &[
    entry(
        P,
        "src/forward/wgsl/add.wgsl",
        "add_kernel",
        [2, 1, 1],
        &[("DST", Floats(300)), PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/mul.wgsl",
        "mul_kernel",
        [2, 1, 1],
        &[("DST", Floats(300)), PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/copy.wgsl",
        "copy_kernel",
        [2, 1, 1],
        &[PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/silu.wgsl",
        "silu_kernel",
        [2, 1, 1],
        &[("X", Floats(400)), PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/rms_norm.wgsl",
        "rms_norm",
        [4, 1, 1],
        &[("X", Floats(1200)), PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/rope.wgsl",
        "rope_kernel",
        [1, 20, 4],
        &[("X", Floats(2560)), PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/gemm.wgsl",
        "gemm_bt",
        [4, 3, 1],
        &[DIMS],
    ),
    entry(
        P,
        "src/forward/wgsl/gemm.wgsl",
        "gemm_nn",
        [4, 3, 1],
        &[DIMS],
    ),
    entry(
        P,
        "src/forward/wgsl/matmul_bt.wgsl",
        "gemm_bt",
        [4, 3, 1],
        &[PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/attention_scores.wgsl",
        "attention_scores",
        [2, 2, 4],
        &[PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/attention_softmax.wgsl",
        "attention_softmax",
        [20, 4, 1],
        &[("SCORES", Floats(1600)), PARAMS],
    ),
    entry(
        P,
        "src/forward/wgsl/attention_context.wgsl",
        "attention_context",
        [2, 2, 4],
        &[PARAMS],
    ),
];
