//! The primitives on every adapter of the machine, against results computed on the host: one named test for each case and
//! adapter, one at a time, by the harness of the runtime's own tests.

#[allow(dead_code)] // What only tests of the runtime itself need.
#[path = "../../../tests/gpu/harness.rs"]
mod harness;
#[path = "../../../tests/gpu/panics.rs"]
mod panics;
#[path = "../../../tests/gpu/processes.rs"]
mod processes;

mod compact;
mod data;
mod histogram;
mod matrices;
mod multi;
mod places;
mod reduce;
mod refusals;
mod scan;
mod segmented_reduce;
mod segmented_scan;
mod segments;
mod sort;

use harness::Suite;

fn main() -> std::process::ExitCode {
    let _ = env_logger::builder().is_test(true).try_init();
    panics::watch();
    let mut suite = Suite::new();
    suite.add_all(&[
        compact::CASES,
        histogram::CASES,
        matrices::CASES,
        multi::CASES,
        places::CASES,
        reduce::CASES,
        refusals::CASES,
        scan::CASES,
        segmented_reduce::CASES,
        segmented_scan::CASES,
        sort::CASES,
    ]);
    suite.add_trials(processes::trials());
    suite.run()
}
