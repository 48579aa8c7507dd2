//! Shaders of `rullama` for attention. Several others race (a work-group array is overwritten without a
//! barrier in between) or run for minutes on software, and are left out.

use super::rullama::kernel;
use crate::entry::{Entry, Fill::*};

const SUBGROUP: wgpu::Features = wgpu::Features::SUBGROUP;

pub const ENTRIES: &[Entry] = &[
    kernel(
        "src/kernels/wgsl/attention_backward_dkv.wgsl",
        [2, 50, 1],
        &[("params", Words("32, 4, 2, 2, 50, 0, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/attention_backward_dq.wgsl",
        [4, 1, 1],
        &[("params", Words("32, 4, 2, 2, 50, 0, 0, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/vision_attention_flash.wgsl",
        [37, 2, 1],
        &[("params", Words("32, 2, 37, 0"))],
    ),
    kernel(
        "src/kernels/wgsl/vision_attention_flash_sub_hpd.wgsl",
        [5, 2, 1],
        &[("params", Words("32, 2, 37, 0"))],
    )
    .needing(SUBGROUP),
    kernel(
        "src/kernels/wgsl/vision_attention_flash_subgroup.wgsl",
        [5, 2, 1],
        &[("params", Words("32, 2, 37, 0"))],
    )
    .needing(SUBGROUP),
    kernel(
        "src/kernels/wgsl/vision_attention_flash_sub_hpd_f16.wgsl",
        [5, 2, 1],
        &[("params", Words("32, 2, 37, 0"))],
    )
    .needing(SUBGROUP.union(wgpu::Features::SHADER_F16)),
    kernel(
        "src/kernels/wgsl/vision_attention_flash_sub_hpd_f16_q16.wgsl",
        [3, 2, 1],
        &[("params", Words("32, 2, 37, 0"))],
    )
    .needing(SUBGROUP.union(wgpu::Features::SHADER_F16)),
];
