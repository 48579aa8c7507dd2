//! The corpus differential: a kernel that uses none of the runtime's conventions behaves exactly as
//! wgpu alone would run it.
//!
//! Compute shaders of published crates run twice on every adapter, through wgpu alone and through
//! tombolo, on the same inputs; every buffer must come out the same, bit for bit. Each entry point is
//! a test of its own. The shaders are not part of this repository: `corpus/Cargo.toml` pins the crates
//! and cargo fetches them, once.
//!
//! A last test of each adapter counts what was compared: refusals that both agree on must not become many.
//!
//! `TOMBOLO_TEST_ADAPTERS` names adapters that must be there, as for the `gpu` tests.

#[allow(
    dead_code,
    unused_macros,
    reason = "the harness serves other suites too"
)]
#[path = "../gpu/harness.rs"]
mod harness;
#[allow(dead_code, reason = "no test of this suite provokes a panic")]
#[path = "../gpu/panics.rs"]
mod panics;
#[allow(dead_code, reason = "its own tests run in the other suite")]
#[path = "../gpu/processes.rs"]
mod processes;

mod compare;
mod count;
mod entry;
mod interface;
mod raw;
mod shaders;
mod sources;

use std::sync::Arc;

use harness::{Fixture, Suite};

type Run = Arc<dyn Fn(&Fixture) + Send + Sync>;

fn main() -> std::process::ExitCode {
    let _ = env_logger::builder().is_test(true).try_init();
    panics::watch();
    let mut suite = Suite::new();
    let entries = shaders::all().map(|entry| {
        let run = move |fixture: &Fixture| count::note(fixture, compare::check(fixture, entry));
        (entry.label(), Arc::new(run) as Run)
    });
    // Last, when all others of the adapter have run.
    let counted = "enough_entry_points_were_compared".to_owned();
    let counted = (counted, Arc::new(count::check) as Run);
    let tests = entries.chain([counted]);
    suite.add(tests.map(|(name, run)| (name, move |fixture: &Fixture| run(fixture))));
    suite.run()
}
