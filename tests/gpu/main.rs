//! The tests that need a device: every case runs on every adapter of the machine, as a test of its
//! own, one at a time.
//!
//! `TOMBOLO_TEST_ADAPTERS` names adapters that must be there (parts of their names, separated by
//! `;`); `cargo xtask test` sets it. An adapter that is missing, or no adapter at all, fails the
//! suite.

mod harness;

mod buffers;
mod devices;
mod kernels;
mod launches;
mod live;
mod loops;

use harness::Suite;

fn main() -> std::process::ExitCode {
    let _ = env_logger::builder().is_test(true).try_init();
    let mut suite = Suite::new();
    suite.add_all(&[
        devices::CASES,
        buffers::CASES,
        kernels::CASES,
        launches::CASES,
        live::CASES,
        loops::CASES,
    ]);
    suite.run()
}
