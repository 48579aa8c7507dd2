//! Shaders of `rullama` that work element by element or row by row.

use super::rullama::kernel;
use crate::entry::{Entry, Fill::*};

pub const ENTRIES: &[Entry] = &[
    kernel(
        "src/kernels/wgsl/adam_step.wgsl",
        [5, 1, 1],
        &[
            (
                "params",
                Words("300, 3, 2, 0, 0.01, 0.9, 0.999, 0.00000001, 0.02, 0.0, 0.0, 0.0"),
            ),
            ("param", Floats(320)),
            ("m", Floats(320)),
            ("v", FloatsIn(0.0, 1.0, 320)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/add_bias_batched.wgsl",
        [5, 1, 1],
        &[("params", Words("40, 7, 0, 0")), ("y", Floats(300))],
    ),
    kernel(
        "src/kernels/wgsl/avg_pool2d.wgsl",
        [3, 1, 1],
        &[("params", Words("12, 18, 4, 6, 5, 3, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/clamp.wgsl",
        [5, 1, 1],
        &[("params", Words("300, -0.5, 0.75, 0")), ("x", Floats(320))],
    ),
    kernel(
        "src/kernels/wgsl/conv2d.wgsl",
        [4, 1, 1],
        &[
            ("params", Words("3, 9, 11, 4, 5, 6, 3, 3, 2, 2, 1, 1")),
            ("weight", Halves(64)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/cross_entropy_backward.wgsl",
        [1, 1, 1],
        &[("params", Words("1000, 37, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/depthwise_conv1d.wgsl",
        [4, 1, 1],
        &[("params", Words("30, 8, 5, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/geglu.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 0, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/geglu_backward.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 0, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/glu_split.wgsl",
        [5, 1, 1],
        &[("params", Words("20, 15, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/half_residual_add.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 0, 0, 0")), ("x", Floats(320))],
    ),
    kernel(
        "src/kernels/wgsl/pos_embed_add.wgsl",
        [5, 1, 1],
        &[("params", Words("20, 15, 8, 0")), ("hidden", Floats(320))],
    ),
    kernel(
        "src/kernels/wgsl/quick_geglu.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 0, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/residual_add.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 0, 0, 0")), ("x", Floats(320))],
    ),
    kernel(
        "src/kernels/wgsl/rmsnorm.wgsl",
        [1, 1, 1],
        &[("params", Words("300, 0.00001, 1, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/rmsnorm_backward.wgsl",
        [1, 1, 1],
        &[("params", Words("300, 0.00001, 1, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/rmsnorm_per_row.wgsl",
        [9, 1, 1],
        &[("params", Words("7, 100, 0.00001, 1"))],
    ),
    kernel(
        "src/kernels/wgsl/rmsnorm_per_row_backward.wgsl",
        [9, 1, 1],
        &[("params", Words("7, 100, 0.00001, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/rope_2d.wgsl",
        [10, 1, 1],
        &[("params", Words("32, 3, 10, 10000.0")), ("x", Floats(960))],
    ),
    kernel(
        "src/kernels/wgsl/rope_neox.wgsl",
        [2, 1, 1],
        &[
            ("params", Words("64, 4, 48, 11, 10000.0, 1, 0, 0")),
            ("x", Floats(256)),
            ("factors", FloatsIn(1.0, 4.0, 32)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/rope_neox_backward.wgsl",
        [2, 1, 1],
        &[
            ("params", Words("64, 4, 48, 11, 10000.0, 0, 0, 0")),
            ("x", Floats(256)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/scale.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 1.7, 5, 0")), ("x", Floats(320))],
    ),
    kernel(
        "src/kernels/wgsl/scale_per_inner_dim.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 12, 0, 0")), ("x", Floats(320))],
    ),
    kernel(
        "src/kernels/wgsl/silu.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 0, 0, 0")), ("x", Floats(320))],
    ),
    kernel(
        "src/kernels/wgsl/softcap.wgsl",
        [5, 1, 1],
        &[("params", Words("300, 1.5, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/sum_of_squares.wgsl",
        [1, 1, 1],
        &[("params", Words("1000, 0.5, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/transpose_hpd_to_phd.wgsl",
        [10, 1, 1],
        &[("params", Words("12, 5, 10, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/transpose_phd_to_hpd.wgsl",
        [10, 1, 1],
        &[("params", Words("12, 5, 10, 0"))],
    ),
];
