//! Texels as this adapter and the drivers of this machine read, write and sample them, beside the room `texel`.
//!
//! Each case runs on each adapter as a test of its own. Kernels return what the driver sampled;
//! the same request goes to a [`tombolo_cpu::texel::TexelView`] of the same bytes.

mod filters;
mod formats;
mod harness;

use harness::{Case, Gpu};
use libtest_mimic::{Arguments, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

const CASES: &[Case] = &[
    (
        "formats::loads_decode_every_format",
        formats::loads_decode_every_format,
    ),
    (
        "formats::stores_encode_every_storage_format",
        formats::stores_encode_every_storage_format,
    ),
    (
        "filters::samples_of_two_dimensions_agree",
        filters::samples_of_two_dimensions_agree,
    ),
    (
        "filters::samples_of_other_shapes_agree",
        filters::samples_of_other_shapes_agree,
    ),
    (
        "filters::cubes_agree_away_from_their_corners",
        filters::cubes_agree_away_from_their_corners,
    ),
    (
        "filters::levels_of_detail_agree",
        filters::levels_of_detail_agree,
    ),
    ("filters::gradients_agree", filters::gradients_agree),
    ("filters::gathers_agree", filters::gathers_agree),
    (
        "filters::gathers_of_integers_agree",
        filters::gathers_of_integers_agree,
    ),
    ("filters::comparisons_agree", filters::comparisons_agree),
    (
        "filters::base_clamp_to_edge_agrees",
        filters::base_clamp_to_edge_agrees,
    ),
    ("filters::borders_agree", filters::borders_agree),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Software drivers do not stand several tests at once in one process.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    let gpus: Vec<Arc<Gpu>> = Gpu::all().into_iter().map(Arc::new).collect();
    for gpu in gpus {
        for &(name, run) in CASES {
            // This adapter has no textures of depths, which only drawing could fill; that it refuses them is tested
            // beside the other refusals.
            if gpu.is_own() && name == "filters::comparisons_agree" {
                continue;
            }
            // Its results differ from this room's near the edges of a cube's faces. Which of the two is right has not been
            // found out, so that the case is listed as ignored; `--include-ignored` shows the difference.
            let open = gpu.name.contains("SwiftShader") && name.contains("cubes_agree");
            let gpu = Arc::clone(&gpu);
            let trial = Trial::test(format!("{}::{name}", gpu.name), move || {
                catch_unwind(AssertUnwindSafe(|| run(&gpu))).map_err(|panic| {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                    text.unwrap_or_default().into()
                })
            });
            trials.push(trial.with_ignored_flag(open));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
