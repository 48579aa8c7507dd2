//! Development tasks, run as `cargo xtask COMMAND`.
//!
//! Every command works on a machine that has only Rust: what else it needs it finds or installs, and says so.
//! Messages for people go to stderr; stdout carries only what another program may read.

mod apt;
mod browser;
mod commands;
mod deb;
#[cfg(test)]
mod documents;
mod env;
mod error;
#[cfg(test)]
mod errors;
mod gpu;
mod icd;
#[cfg(test)]
mod labels;
mod library;
mod nightly;
mod pages;
mod process;
mod provide;
mod rows;
mod swiftshader;
mod toolchain;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{
    adapters, bench, book, call_table, ci, comments, coverage, cross, demo, deny, features,
    languages, minimal, miri, mpi, package, peers, port, semver, stress, test, web,
};
use crate::error::Error;
use crate::workspace::Workspace;

/// The command line.
#[derive(Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    about = "Development tasks of tombolo"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One task.
#[derive(Subcommand)]
enum Command {
    /// Provide the software adapters and print the environment that selects them: eval "$(cargo xtask adapters)"
    Adapters(adapters::Args),
    /// Find a GPU or install a software driver, then run the tour
    Demo(demo::Args),
    /// Provide the software adapters, then run the whole test suite on all of them
    Test(test::Args),
    /// Run the benches on every adapter; with --write, put their rows into BENCHMARKS.md
    Bench(bench::Args),
    /// This crate beside CubeCL, PoCL and rayon, on every adapter; installs PoCL where it is missing
    Peers(peers::Args),
    /// The guide as a book below target/book, by mdBook
    Book,
    /// Write the page of the forms and refusals of calls from the sources
    CallTable,
    /// Check and lint for macOS, Windows, ARM Linux, Android and WebAssembly, with a toolchain that it provides
    Cross(cross::Args),
    /// Every kernel of the tests in the languages of all backends, judged by tools of these languages
    Languages(languages::Args),
    /// Vello's published shaders with this crate as their host, on every adapter, compared with Vello's own results
    Port(port::Args),
    /// The package tombolo-mpi, tested as several ranks of MPI on every adapter; installs Open MPI where it is missing
    Mpi(mpi::Args),
    /// Every operation of the runtime from eight threads at once, also with a sanitizer
    Stress(stress::Args),
    /// The page of examples/web, built and served on this machine; with --test, run in Chromium and judged by its checks
    Web(web::Args),
    /// Lints with each feature alone, and the fuzz targets
    Features,
    /// Licences, sources, duplicates and advisories of everything that is depended on
    Deny(deny::Args),
    /// The archives that would be published, each built by itself, and their sizes
    Package(package::Args),
    /// The published crates with the least versions of dependencies that their manifests allow
    MinimalVersions,
    /// Tests of the host's logic in Miri, which finds undefined behaviour and data races; installs a nightly toolchain
    Miri(miri::Args),
    /// Which lines of the host's code the tests without a device run, by rooms
    Coverage(coverage::Args),
    /// Whether changes of the public items since a tag or a commit need another major version
    Semver(semver::Args),
    /// Pronouns in 1,000 words of comments, by rooms of the sources
    Comments(comments::Args),
    /// Everything a change must pass: format, lints, docs, tests, every operation at once, examples
    Ci(ci::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), Error> {
    let workspace = Workspace::find()?;
    match command {
        Command::Adapters(args) => adapters::run(&workspace, args),
        Command::Demo(args) => demo::run(&workspace, args),
        Command::Test(args) => test::run(&workspace, args),
        Command::Bench(args) => bench::run(&workspace, args),
        Command::Peers(args) => peers::run(&workspace, args),
        Command::Book => book::run(&workspace),
        Command::CallTable => call_table::run(&workspace),
        Command::Cross(args) => cross::run(&workspace, args),
        Command::Languages(args) => languages::run(&workspace, args),
        Command::Port(args) => port::run(&workspace, args),
        Command::Mpi(args) => mpi::run(&workspace, args),
        Command::Stress(args) => stress::run(&workspace, args),
        Command::Web(args) => web::run(&workspace, args),
        Command::Features => features::run(&workspace),
        Command::Deny(args) => deny::run(&workspace, args),
        Command::Package(args) => package::run(&workspace, args),
        Command::Miri(args) => miri::run(&workspace, args),
        Command::Coverage(args) => coverage::run(&workspace, args),
        Command::Semver(args) => semver::run(&workspace, args),
        Command::MinimalVersions => minimal::run(&workspace),
        Command::Comments(args) => comments::run(&workspace, args),
        Command::Ci(args) => ci::run(&workspace, args),
    }
}
