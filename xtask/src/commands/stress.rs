//! `cargo xtask stress`: the stress program on the adapters on the processor, also with LLVM's sanitizers.
//!
//! A sanitizer sees code compiled with the sanitizer: the crate, wgpu, and the standard library, therefore built here too.
//! Drivers are not compiled with a sanitizer; the drivers' own actions are left out by options and by the lists in
//! `tests/stress/suppressions`, each line with the reason.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::commands::test;
use crate::env::AdapterEnv;
use crate::error::Error;
use crate::process::{self, say};
use crate::provide::{self, Provided, Switches};
use crate::toolchain::{Part, Std, Toolchain};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// How long to go on, once everything is built
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Build everything with a sanitizer
    #[arg(long, value_enum)]
    sanitizer: Option<Sanitizer>,
    #[command(flatten)]
    switches: Switches,
    /// Passed on to the stress program: `-- --help` lists what it knows
    #[arg(last = true)]
    program: Vec<OsString>,
}

/// The faults that LLVM can look out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sanitizer {
    /// Memory used after being freed or beyond its ends, and leaks
    Address,
    /// Data races
    Thread,
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    /// The options of the run-time library, and the option with the file of the suppressions.
    fn options(self, suppressions: &str) -> Vec<(&'static str, String)> {
        match self {
            Self::Address => vec![
                // Mesa's compiler reserves stacks unknown to the check for returned addresses.
                (
                    "ASAN_OPTIONS",
                    "detect_stack_use_after_return=0:abort_on_error=0".to_owned(),
                ),
                (
                    "LSAN_OPTIONS",
                    format!("suppressions={suppressions}:print_suppressions=0"),
                ),
            ],
            Self::Thread => vec![(
                "TSAN_OPTIONS",
                // The sanitizer knows neither the locks nor the threads of libraries compiled without the sanitizer. The order
                // of locks is not looked at: the locks of the standard library are none of the system's, and of the others,
                // LLVM's and Mesa's, a thread may hold more at once than the sanitizer has room for.
                format!(
                    "suppressions={suppressions}:ignore_noninstrumented_modules=1:history_size=4:detect_deadlocks=0"
                ),
            )],
        }
    }
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let provided = test::provide_for_tests(workspace, &args.switches)?;
    let env = environment(workspace, provided.as_ref())?;
    execute(workspace, args.sanitizer, &env, args.minutes, &args.program)
}

/// The environment that selects the software adapters; empty where there are none.
pub fn environment(
    workspace: &Workspace,
    provided: Option<&Provided>,
) -> Result<AdapterEnv, Error> {
    match provided {
        Some(provided) if !provided.software.is_empty() => provided.software_env(workspace),
        provided => test::environment(workspace, provided),
    }
}

/// Builds and runs the program.
pub fn execute(
    workspace: &Workspace,
    sanitizer: Option<Sanitizer>,
    env: &AdapterEnv,
    minutes: f64,
    program: &[OsString],
) -> Result<(), Error> {
    let mut command = match sanitizer {
        None => {
            let mut command = workspace.cargo();
            command.arg("test");
            command
        }
        Some(sanitizer) => instrumented(workspace, sanitizer)?,
    };
    command.args(["--locked", "--package", "tombolo", "--test", "stress", "--"]);
    command
        .args(["--minutes", &minutes.to_string()])
        .args(program);
    if sanitizer.is_some() && !names_timeout(program) {
        // Everything takes several times as long.
        command.args(["--timeout", "600"]);
    }
    env.apply(&mut command);
    if sanitizer.is_some() && !provide::system_has_adapters() {
        // The adapter compiled in runs kernels on stacks and from code unknown to the sanitizers.
        command.env("WGPU_BACKEND", "vulkan");
    }
    say(format!("running `{}`", process::display(&command)));
    process::run(&mut command)
}

fn names_timeout(program: &[OsString]) -> bool {
    program
        .iter()
        .any(|word| word.to_string_lossy().starts_with("--timeout"))
}

/// A call of `cargo test`, building for the machine with a sanitizer, without the packages and tests to build.
fn instrumented(workspace: &Workspace, sanitizer: Sanitizer) -> Result<Command, Error> {
    let toolchain = Toolchain::provide(workspace, Std::Sources, &[Part::Sanitizers])?;
    say(format!(
        "the {} sanitizer is built with {}",
        sanitizer.name(),
        toolchain.describe()
    ));
    let mut command = toolchain.cargo(workspace, &format!("sanitizer-{}", sanitizer.name()));
    let host = toolchain.host();
    command.args([
        "test",
        "-Zbuild-std=std,panic_abort,panic_unwind",
        "--target",
        host,
    ]);
    let flags = format!(
        "-Zsanitizer={} -Cforce-frame-pointers=yes",
        sanitizer.name()
    );
    // Of the target alone: macros and build scripts run inside the compiler, and the compiler is built without the sanitizer.
    let variable = format!(
        "CARGO_TARGET_{}_RUSTFLAGS",
        host.to_uppercase().replace('-', "_")
    );
    command.env(variable, flags);
    let list = suppressions(workspace, sanitizer);
    command.envs(sanitizer.options(&list.to_string_lossy()));
    Ok(command)
}

fn suppressions(workspace: &Workspace, sanitizer: Sanitizer) -> PathBuf {
    let name = format!("tests/stress/suppressions/{}.txt", sanitizer.name());
    workspace.manifest().with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sanitizer_has_a_list_that_gives_reasons() {
        let workspace = Workspace::find().unwrap();
        for sanitizer in [Sanitizer::Address, Sanitizer::Thread] {
            let text = std::fs::read_to_string(suppressions(&workspace, sanitizer)).unwrap();
            let mut has_reason = false;
            for line in text.lines() {
                if line.starts_with('#') {
                    has_reason = true;
                } else if line.is_empty() {
                    has_reason = false;
                } else {
                    assert!(has_reason, "{line}");
                }
            }
        }
    }

    #[test]
    fn timeout_may_be_named_in_both_forms() {
        assert!(names_timeout(&["--timeout".into(), "9".into()]));
        assert!(names_timeout(&["--timeout=9".into()]));
        assert!(!names_timeout(&["--seed".into(), "9".into()]));
    }
}
