//! `cargo xtask peers`: the crate beside raw wgpu, CubeCL, PoCL and rayon, on every adapter, as rows of the bench `peers`.
//!
//! The program is `benches/peers`, a workspace of its own: the peers' dependencies are no concern of the crate's lock file.
//! PoCL and the loader of OpenCL are installed where missing; the program opens both at run time.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use crate::apt::Needed;
use crate::commands::{bench, test};
use crate::error::Error;
use crate::library::Libraries;
use crate::process::{self, step};
use crate::provide::Switches;
use crate::workspace::Workspace;

/// The name of the rows' bench.
const BENCH: &str = "peers";

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    switches: Switches,
    /// Put the rows into the table of BENCHMARKS.md; by default they are printed
    #[arg(long)]
    write: bool,
    /// Install nothing of OpenCL; rows against PoCL are left out where there is none
    #[arg(long)]
    no_pocl: bool,
    /// Format and lints of the package, and no measurement
    #[arg(long)]
    lints: bool,
    /// Parts of the names of rows, such as `saxpy` or `launch_wait_cubecl`; all rows where none is given
    rows: Vec<OsString>,
}

/// The libraries to start a program of OpenCL on the processor with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Installed {
    /// The loader of OpenCL.
    loader: bool,
    /// PoCL's entry among the entries opened by the loader.
    pocl: bool,
}

impl Installed {
    fn look() -> Self {
        Self {
            loader: Libraries::read().has("libOpenCL.so.1"),
            pocl: has_pocl(Path::new("/etc/OpenCL/vendors")),
        }
    }

    /// The Debian packages of the missing libraries.
    fn missing(self) -> Vec<&'static str> {
        let packages = [
            (self.loader, "ocl-icd-libopencl1"),
            (self.pocl, "pocl-opencl-icd"),
        ];
        let missing = packages.iter().filter(|(is_here, _)| !is_here);
        missing.map(|(_, package)| *package).collect()
    }
}

fn has_pocl(vendors: &Path) -> bool {
    let entries = fs::read_dir(vendors).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("pocl"))
}

/// Installs the missing libraries.
fn install() -> Result<(), Error> {
    let needed = Needed {
        missing: || Installed::look().missing(),
        purpose: "PoCL is OpenCL on the processor, one of the peers",
        sought: "libOpenCL.so.1 or an entry of PoCL in /etc/OpenCL/vendors",
        by_hand: |packages, why| Error::NoPocl { packages, why },
    };
    needed.install()
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    if args.lints {
        return step("format and lints of tombolo-peers", || lints(workspace));
    }
    if !args.no_pocl {
        step("PoCL", install)?;
    }
    let provided = test::provide_for_tests(workspace, &args.switches)?;
    let env = test::environment(workspace, provided.as_ref())?;
    step("tests of tombolo-peers", || {
        process::run(&mut tests(workspace))
    })?;
    let today = bench::date(SystemTime::now());
    let machine = bench::machine(workspace, &env, &today, args.write)?;
    let output = step("peers", || {
        let mut command = program(workspace, &args.rows);
        env.apply(&mut command);
        process::output_with_messages(&mut command)
    })?;
    let rows = bench::printed(BENCH, &today, &output)?;
    bench::report(workspace, &rows, machine.as_ref())
}

fn program(workspace: &Workspace, rows: &[OsString]) -> Command {
    let mut command =
        workspace.cargo_beside(workspace.peers_manifest(), &["run", "--quiet", "--release"]);
    command.arg("--").args(rows);
    command
}

/// The tests of the program's ways to measure, such as the comparison of results.
fn tests(workspace: &Workspace) -> Command {
    // With the dependencies of the program itself.
    workspace.cargo_beside(
        workspace.peers_manifest(),
        &["test", "--quiet", "--release"],
    )
}

fn lints(workspace: &Workspace) -> Result<(), Error> {
    process::run(&mut workspace.format_beside(workspace.peers_manifest()))?;
    let mut clippy = workspace.cargo_beside(
        workspace.peers_manifest(),
        &["clippy", "--quiet", "--all-targets"],
    );
    process::run(clippy.args(["--", "-D", "warnings"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_installed() {
        let all = Installed {
            loader: true,
            pocl: true,
        };
        assert!(all.missing().is_empty());
        let none = Installed::default();
        assert_eq!(none.missing(), ["ocl-icd-libopencl1", "pocl-opencl-icd"]);
        let loader = Installed { pocl: false, ..all };
        assert_eq!(loader.missing(), ["pocl-opencl-icd"]);
    }

    #[test]
    fn the_program_is_built_with_optimizations_beside_everything_else() {
        let workspace = Workspace::find().unwrap();
        assert!(workspace.peers_manifest().is_file());
        let command = program(&workspace, &["saxpy".into()]);
        let args: Vec<_> = command.get_args().collect();
        assert!(args.contains(&"--release".as_ref()));
        assert!(args.ends_with(&["--".as_ref(), "saxpy".as_ref()]));
        let command = tests(&workspace);
        let args: Vec<_> = command.get_args().collect();
        assert!(args.contains(&"test".as_ref()) && args.contains(&"--release".as_ref()));
    }

    #[test]
    fn no_peer_reaches_the_lock_file_of_the_crate() {
        let workspace = Workspace::find().unwrap();
        let lock = fs::read_to_string(workspace.root().join("Cargo.lock")).unwrap();
        for peer in ["cubecl", "opencl3"] {
            assert!(!lock.contains(&format!("name = \"{peer}\"")), "{peer}");
        }
    }
}
