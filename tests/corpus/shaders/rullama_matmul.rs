//! Shaders of `rullama` that multiply matrices, among them quantised ones.

use super::rullama::kernel;
use crate::entry::{Entry, Fill, Fill::*};

/// Weights of 20 rows of 512, in blocks of 256: scales in front, or behind.
const Q4: Fill = Blocks {
    bytes: 144,
    halves: &[0, 2],
    count: 40,
};
const Q6: Fill = Blocks {
    bytes: 210,
    halves: &[208],
    count: 40,
};

pub const ENTRIES: &[Entry] = &[
    kernel(
        "src/kernels/wgsl/bf16_matmul.wgsl",
        [1, 1, 1],
        &[("params", Words("64, 60")), ("weight", BFloats(2048))],
    ),
    kernel(
        "src/kernels/wgsl/bf16_matmul_batched.wgsl",
        [1, 37, 1],
        &[
            ("params", Words("40, 50, 37, 0")),
            ("weight", BFloats(2048)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/bf16_matmul_batched_tiled.wgsl",
        [7, 5, 1],
        &[
            ("params", Words("40, 50, 37, 0")),
            ("weight", BFloats(2048)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/bf16_matmul_batched_tiled_v2.wgsl",
        [4, 3, 1],
        &[
            ("params", Words("40, 50, 37, 0")),
            ("weight", BFloats(2048)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/bf16_matmul_batched_tiled_v3.wgsl",
        [2, 2, 1],
        &[
            ("params", Words("40, 50, 37, 0")),
            ("weight", BFloats(2048)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/bf16_matmul_batched_tiled_v3_f16lds.wgsl",
        [2, 2, 1],
        &[
            ("params", Words("40, 50, 37, 0")),
            ("weight", BFloats(2048)),
        ],
    )
    .needing(wgpu::Features::SHADER_F16),
    kernel(
        "src/kernels/wgsl/f16_matmul.wgsl",
        [1, 1, 1],
        &[("params", Words("64, 60")), ("weight", Halves(2048))],
    ),
    kernel(
        "src/kernels/wgsl/f16_matmul_batched.wgsl",
        [1, 37, 1],
        &[("params", Words("40, 50, 37, 0")), ("weight", Halves(2048))],
    ),
    kernel(
        "src/kernels/wgsl/f16_matmul_batched_tiled.wgsl",
        [7, 5, 1],
        &[("params", Words("40, 50, 37, 0")), ("weight", Halves(2048))],
    ),
    kernel(
        "src/kernels/wgsl/f16_matmul_batched_tiled_v2.wgsl",
        [4, 3, 1],
        &[("params", Words("40, 50, 37, 0")), ("weight", Halves(2048))],
    ),
    kernel(
        "src/kernels/wgsl/f16_matmul_batched_tiled_v3.wgsl",
        [2, 2, 1],
        &[("params", Words("40, 50, 37, 0")), ("weight", Halves(2048))],
    ),
    kernel(
        "src/kernels/wgsl/f16_matmul_batched_tiled_v3_f16lds.wgsl",
        [2, 2, 1],
        &[("params", Words("40, 50, 37, 0")), ("weight", Halves(2048))],
    )
    .needing(wgpu::Features::SHADER_F16),
    kernel(
        "src/kernels/wgsl/f16_matmul_batched_tiled_v4.wgsl",
        [2, 1, 1],
        &[("params", Words("40, 50, 37, 0")), ("weight", Halves(2048))],
    ),
    kernel(
        "src/kernels/wgsl/q4_k_dequant_matmul.wgsl",
        [1, 1, 1],
        &[("params", Words("512, 20")), ("weight", Q4)],
    ),
    kernel(
        "src/kernels/wgsl/q4_k_dequant_matmul_tiled.wgsl",
        [1, 1, 1],
        &[("params", Words("512, 20")), ("weight", Q4)],
    ),
    kernel(
        "src/kernels/wgsl/q4_k_dequant_matmul_f16lds.wgsl",
        [1, 1, 1],
        &[("params", Words("512, 20")), ("weight", Q4)],
    )
    .needing(wgpu::Features::SHADER_F16),
    kernel(
        "src/kernels/wgsl/matmul_q4_k_backward_input.wgsl",
        [2, 1, 1],
        &[
            ("params", Words("512, 20, 3, 17, 1, 0, 0, 0")),
            ("weight", Q4),
            ("dx", Floats(512)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/q6_k_dequant_matmul.wgsl",
        [1, 1, 1],
        &[("params", Words("512, 20")), ("weight", Q6)],
    ),
    kernel(
        "src/kernels/wgsl/q6_k_dequant_matmul_tiled.wgsl",
        [1, 1, 1],
        &[("params", Words("512, 20")), ("weight", Q6)],
    ),
    kernel(
        "src/kernels/wgsl/q6_k_dequant_matmul_f16lds.wgsl",
        [1, 1, 1],
        &[("params", Words("512, 20")), ("weight", Q6)],
    )
    .needing(wgpu::Features::SHADER_F16),
    kernel(
        "src/kernels/wgsl/matmul_q6_k_backward_input.wgsl",
        [2, 1, 1],
        &[
            ("params", Words("512, 20, 3, 17, 0, 0, 0, 0")),
            ("weight", Q6),
        ],
    ),
    kernel(
        "src/kernels/wgsl/q4_k_dequant_matmul_wg256.wgsl",
        [1, 1, 1],
        &[("params", Words("512, 20")), ("weight", Q4)],
    ),
    kernel(
        "src/kernels/wgsl/lora_embed_col_read.wgsl",
        [1, 1, 1],
        &[("params", Words("16, 50, 7, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/lora_embed_col_scatter_add.wgsl",
        [1, 1, 1],
        &[
            ("params", Words("16, 50, 7, 0, 0.3, 0, 0, 0")),
            ("da", Floats(800)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/lora_matmul_col.wgsl",
        [2, 1, 1],
        &[
            ("params", Words("30, 80, 1, 0, 0.3, 0, 0, 0")),
            ("y", Floats(80)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/lora_matmul_row.wgsl",
        [2, 1, 1],
        &[("params", Words("30, 80, 0, 0, 0.3, 0, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/lora_matmul_fused.wgsl",
        [2, 1, 1],
        &[
            ("params", Words("150, 100, 20, 1, 0.3, 0, 0, 0")),
            ("y", Floats(100)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/lora_matmul_fused_f16b.wgsl",
        [2, 1, 1],
        &[
            ("params", Words("150, 100, 20, 0, 0.3, 0, 0, 0")),
            ("b_packed", Halves(1000)),
        ],
    ),
    kernel(
        "src/kernels/wgsl/lora_outer_add.wgsl",
        [4, 3, 1],
        &[("params", Words("30, 20, 0, 0, 0.3, 0, 0, 0"))],
    ),
];
