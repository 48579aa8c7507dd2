//! `cargo xtask mpi`: the package `tombolo-mpi`, whose programs run as several ranks of MPI, built and tested.
//!
//! # How it works
//! 1. Open MPI and libclang, needed for the bindings of the crate `mpi`, are installed where missing.
//! 2. The package is checked for format, lints and docs. The package is no member of the workspace, so that the workspace goes
//!    on building on machines without MPI; `mpi/Cargo.toml` says more.
//! 3. Tests without ranks run once. The others run on every adapter, as 1, 2, 4 and 7 ranks on the same machine, and so does
//!    the example `heat2d_mpi`, comparing the ranks' plate with the plate of a single process. Two ranks of the example are
//!    traced once.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::apt::Needed;
use crate::commands::test;
use crate::env::AdapterEnv;
use crate::error::Error;
use crate::library::Libraries;
use crate::process::{self, step};
use crate::provide::{EMBEDDED, Provided, Switches};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    switches: Switches,
    /// Numbers of ranks, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 7])]
    ranks: Vec<u32>,
    /// Only the adapter whose name has this part
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// Install what is missing, and do no more
    #[arg(long)]
    install: bool,
    /// Measure latency, bandwidth and weak scaling of this machine, and print the tables of docs/mpi.md
    #[arg(long)]
    table: bool,
    /// Parts of the names of tests: only these are run, and no example
    #[arg(last = true)]
    filters: Vec<String>,
}

/// The tools to build and start MPI programs with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Installed {
    /// The wrapper of the C compiler that knows the place of MPI's headers.
    mpicc: bool,
    /// The launcher of ranks.
    mpirun: bool,
    /// The parser for MPI's headers.
    libclang: bool,
}

impl Installed {
    fn look() -> Self {
        Self {
            mpicc: process::in_path("mpicc"),
            mpirun: process::in_path("mpirun"),
            libclang: has_libclang(&clang_folders(), &Libraries::read()),
        }
    }

    /// The Debian packages of the missing tools.
    fn missing(self) -> Vec<&'static str> {
        let packages = [
            (self.mpicc, "libopenmpi-dev"),
            (self.mpirun, "openmpi-bin"),
            (self.libclang, "libclang-dev"),
        ];
        let missing = packages.iter().filter(|(is_here, _)| !is_here);
        missing.map(|(_, package)| *package).collect()
    }
}

/// Where distributions keep libclang, beside the places of the dynamic linker.
fn clang_folders() -> Vec<PathBuf> {
    let named = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let versions = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = versions.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"));
    named
        .into_iter()
        .chain(llvm.map(|entry| entry.path().join("lib")))
        .collect()
}

fn has_libclang(folders: &[PathBuf], libraries: &Libraries) -> bool {
    const NAME: &str = "libclang.so";
    libraries.has(NAME) || folders.iter().any(|folder| folder.join(NAME).exists())
}

/// Installs the missing tools.
fn install() -> Result<(), Error> {
    let needed = Needed {
        missing: || Installed::look().missing(),
        purpose: "ranks are started by Open MPI, and libclang reads its headers",
        sought: "mpicc, mpirun or libclang.so",
        by_hand: |packages, why| Error::NoMpi { packages, why },
    };
    needed.install()
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    step("Open MPI and libclang", install)?;
    if args.install {
        return Ok(());
    }
    let provided = test::provide_for_tests(workspace, &args.switches)?;
    let env = test::environment(workspace, provided.as_ref())?;
    if args.table {
        return step("measurements", || table(workspace, &env, args));
    }
    let is_whole = args.filters.is_empty();
    if is_whole {
        step("format, lints and docs of tombolo-mpi", || lints(workspace))?;
        step("tests of tombolo-mpi without ranks", || {
            let mut tests = cargo(
                workspace,
                &["test", "--quiet", "--lib", "--test", "processes"],
            );
            env.apply(&mut tests);
            process::run(&mut tests)
        })?;
    }
    let adapters = adapters(provided.as_ref(), args.adapter.as_deref());
    if is_whole {
        let env = on(&env, adapters.first().and_then(Option::as_deref));
        step("traces of two ranks", || traces(workspace, &env))?;
    }
    for adapter in adapters {
        for &ranks in &args.ranks {
            let env = on(&env, adapter.as_deref());
            let name = adapter.as_deref().unwrap_or("the default adapter");
            step(&format!("{ranks} ranks on {name}"), || {
                let mut tests = cargo(workspace, &["test", "--quiet", "--test", "ranks"]);
                tests.args(["--config", &runner(ranks)]).arg("--");
                env.apply(tests.args(&args.filters));
                process::run(&mut tests)?;
                match is_whole {
                    true => process::run(&mut plate(workspace, &env, ranks)?),
                    false => Ok(()),
                }
            })?;
        }
    }
    Ok(())
}

/// Parts of the names of the adapters on the processor; `None` is the adapter that wgpu takes by itself.
fn adapters(provided: Option<&Provided>, only: Option<&str>) -> Vec<Option<String>> {
    if let Some(only) = only {
        return vec![Some(only.to_owned())];
    }
    let Some(provided) = provided else {
        return vec![None];
    };
    let names = provided.required_adapters().into_iter();
    names.map(|name| Some(name.to_owned())).collect()
}

fn on(env: &AdapterEnv, adapter: Option<&str>) -> AdapterEnv {
    match adapter {
        Some(adapter) => env.clone().with("WGPU_ADAPTER_NAME", adapter),
        None => env.clone(),
    }
}

fn cargo(workspace: &Workspace, args: &[&str]) -> Command {
    workspace.cargo_beside(workspace.mpi_manifest(), args)
}

fn lints(workspace: &Workspace) -> Result<(), Error> {
    process::run(&mut workspace.format_beside(workspace.mpi_manifest()))?;
    // Also the code behind features, such as the example's traces.
    for features in [&[][..], &["--all-features"]] {
        let mut clippy = cargo(workspace, &["clippy", "--quiet", "--all-targets"]);
        process::run(clippy.args(features).args(["--", "-D", "warnings"]))?;
    }
    let mut doc = cargo(workspace, &["doc", "--quiet", "--no-deps"]);
    process::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The option of cargo for starting programs as ranks.
fn runner(ranks: u32) -> String {
    let words: Vec<String> = mpirun(ranks)
        .iter()
        .map(|word| format!("'{word}'"))
        .collect();
    format!("target.'cfg(unix)'.runner=[{}]", words.join(","))
}

/// The launcher and its options. More ranks than cores are meant; containers of CI run as root.
fn mpirun(ranks: u32) -> Vec<String> {
    let mut words = vec!["mpirun".to_owned(), "-n".to_owned(), ranks.to_string()];
    words.extend(["--oversubscribe", "--allow-run-as-root"].map(str::to_owned));
    // Requests sleep between looks; a look with a yield as well loses a time slice to kernels on the processor.
    words.extend(["--mca", "mpi_yield_when_idle", "0"].map(str::to_owned));
    words
}

/// Starts the example as ranks; `options` are cargo's.
fn example(workspace: &Workspace, options: &[&str], ranks: u32) -> Command {
    let mut command = cargo(workspace, &["run", "--quiet", "--example", "heat2d_mpi"]);
    command.args(options);
    command.args(["--config", &runner(ranks), "--"]);
    command
}

/// The folder for the example's files.
fn scratch(workspace: &Workspace) -> Result<PathBuf, Error> {
    let scratch = workspace.scratch_dir();
    fs::create_dir_all(&scratch).map_err(Error::io("create", &scratch))?;
    Ok(scratch)
}

/// The example of the plate over ranks, which fails unless the ranks' plate is the plate of a single process, bit for bit.
fn plate(workspace: &Workspace, env: &AdapterEnv, ranks: u32) -> Result<Command, Error> {
    let scratch = scratch(workspace)?;
    let mut command = example(workspace, &[], ranks);
    // Both with a single device for each rank, and with two devices exchanging rows by themselves.
    let devices = if ranks.is_multiple_of(2) { "2" } else { "1" };
    command.args(["--devices", devices]);
    command.args(["--steps", "40", "--check", "--restart"]);
    command.arg(scratch.join("heat2d_mpi.checkpoint"));
    env.apply(&mut command);
    Ok(command)
}

/// Traces of two ranks: each has the waits for messages beside the launches.
fn traces(workspace: &Workspace, env: &AdapterEnv) -> Result<(), Error> {
    let scratch = scratch(workspace)?;
    let paths = [0, 1].map(|rank| scratch.join(format!("heat2d_mpi.{rank}.json")));
    for path in paths.iter().filter(|path| path.exists()) {
        fs::remove_file(path).map_err(Error::io("remove", path))?;
    }
    let mut command = example(workspace, &["--features", "trace"], 2);
    command.args(["--steps", "10", "--check", "--trace"]);
    command.arg(scratch.join("heat2d_mpi."));
    env.apply(&mut command);
    process::run(&mut command)?;
    for path in &paths {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        for span in ["mpi wait", "launch"] {
            if !text.contains(span) {
                return Err(Error::NoSpan {
                    path: path.clone(),
                    span,
                });
            }
        }
    }
    Ok(())
}

/// Prints the tables of the page on scale.
fn table(workspace: &Workspace, env: &AdapterEnv, args: &Args) -> Result<(), Error> {
    let env = on(env, Some(args.adapter.as_deref().unwrap_or(EMBEDDED)));
    for &ranks in &args.ranks {
        let mut command = example(workspace, &["--release"], ranks);
        command.arg("--table");
        env.apply(&mut command);
        process::run(&mut command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_what_is_missing_is_installed() {
        let all = Installed {
            mpicc: true,
            mpirun: true,
            libclang: true,
        };
        assert!(all.missing().is_empty());
        let none = Installed::default();
        assert_eq!(
            none.missing(),
            ["libopenmpi-dev", "openmpi-bin", "libclang-dev"]
        );
        let parser = Installed {
            libclang: false,
            ..all
        };
        assert_eq!(parser.missing(), ["libclang-dev"]);
    }

    #[test]
    fn cargo_starts_programs_as_ranks() {
        let runner = runner(7);
        assert!(
            runner.starts_with("target.'cfg(unix)'.runner=['mpirun','-n','7','--oversubscribe',"),
            "{runner}"
        );
    }

    #[test]
    fn dependencies_are_built_as_the_workspace_builds_them() {
        let workspace = Workspace::find().unwrap();
        let profiles = |manifest: &Path| -> Vec<String> {
            let text = fs::read_to_string(manifest).unwrap();
            let tables = text.split("\n[").filter(|table| {
                table.starts_with("profile.dev]") || table.starts_with("profile.dev.package.\"*\"]")
            });
            let line = |line: &&str| !line.is_empty() && !line.starts_with('#');
            let lines = tables.flat_map(|table| table.lines().filter(line));
            lines.map(str::to_owned).collect()
        };
        let own = profiles(&workspace.mpi_manifest());
        assert_eq!(own, profiles(&workspace.manifest()));
        assert!(own.len() > 4, "{own:?}");
    }
}
