//! The corpus differential: a kernel that uses none of the runtime's conventions behaves exactly as
//! wgpu alone would run it.
//!
//! Compute shaders of published crates run twice on every adapter, through wgpu alone and through
//! tombolo, on the same inputs; every buffer must come out the same, bit for bit. Each entry point is
//! a test of its own. The shaders are not part of this repository: `corpus/Cargo.toml` pins the crates
//! and cargo fetches them, once.
//!
//! `TOMBOLO_TEST_ADAPTERS` names adapters that must be there, as for the `gpu` tests.

#[allow(
    dead_code,
    unused_macros,
    reason = "the harness serves other suites too"
)]
#[path = "../gpu/harness.rs"]
mod harness;

mod compare;
mod entry;
mod interface;
mod raw;
mod shaders;
mod sources;

use harness::{Fixture, Suite};

fn main() -> std::process::ExitCode {
    let _ = env_logger::builder().is_test(true).try_init();
    let mut suite = Suite::new();
    suite.add(shaders::all().map(|entry| {
        let run = move |fixture: &Fixture| compare::check(fixture, entry);
        (entry.label(), run)
    }));
    suite.run()
}
