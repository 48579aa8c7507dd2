//! Texels as this adapter and the drivers of this machine read, write and sample them, beside the room `texel`.
//!
//! Each case runs on each adapter as a test of its own. Kernels return what the driver sampled;
//! the same request goes to a [`tombolo_cpu::texel::TexelView`] of the same bytes.

mod ask;
mod formats;
mod gathers;
mod harness;
mod samples;
#[path = "../support/mod.rs"]
mod support;

use harness::{Case, Gpu};
use libtest_mimic::{Arguments, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

/// Cases with their paths as names.
macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {
        &[$((concat!(stringify!($module), "::", stringify!($case)), $module::$case)),*]
    };
}

const CASES: &[Case] = cases![
    formats::loads_decode_every_format,
    formats::stores_encode_every_storage_format,
    samples::samples_of_two_dimensions_agree,
    samples::samples_of_other_shapes_agree,
    samples::cubes_agree_away_from_their_corners,
    samples::levels_of_detail_agree,
    samples::gradients_agree,
    gathers::gathers_agree,
    gathers::gathers_of_integers_agree,
    gathers::comparisons_agree,
    samples::base_clamp_to_edge_agrees,
    samples::borders_agree,
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
            if gpu.is_own() && name == "gathers::comparisons_agree" {
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
