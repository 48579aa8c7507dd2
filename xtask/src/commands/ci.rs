//! `cargo xtask ci`: everything a change must pass on the machine at hand. `.ci/run` is the same command.
//!
//! Work that would multiply the command's time is left to separate jobs: `cargo xtask features`, compiling the dependencies
//! anew for each set of features; `cargo xtask cross` and `cargo xtask languages`, compiling the dependencies for five systems,
//! and with the writers of every language; `cargo xtask port`, whose program has dependencies of its own; `cargo xtask deny`,
//! building cargo-deny; `cargo xtask miri`, interpreting what other tests run; `cargo xtask coverage`, `cargo xtask semver` and
//! `cargo xtask package`, building all dependencies once more; the program ended by a panic, with everything compiled to abort;
//! and the long and the instrumented runs of `cargo xtask stress`.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::commands::{sanitize, stress, test};
use crate::env::AdapterEnv;
use crate::error::Error;
use crate::process::{self, step};
use crate::provide::{self, EMBEDDED, Provided, Switches};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    switches: Switches,
}

/// An example that checks itself and says by the exit status whether the check held.
struct Example {
    name: &'static str,
    args: &'static [&'static str],
}

/// Run once on each adapter on the processor, in a writable directory of their own.
const EXAMPLES: &[Example] = &[
    Example {
        name: "first-kernel",
        args: &[],
    },
    Example {
        name: "tour",
        args: &[],
    },
    Example {
        name: "doctor",
        args: &["--json"],
    },
    Example {
        name: "doctor",
        args: &["--report", "report.md"],
    },
    Example {
        name: "median",
        args: &[],
    },
    Example {
        name: "histogram",
        args: &[],
    },
    Example {
        name: "octree",
        args: &["--steps", "2"],
    },
    Example {
        name: "raytracer",
        args: &["--width", "320", "--height", "200", "--report", "50"],
    },
    Example {
        name: "tile_server",
        args: &["--frames", "3"],
    },
    Example {
        name: "audio",
        args: &["--seconds", "1"],
    },
    Example {
        name: "gpu_to_gpu",
        args: &[],
    },
    Example {
        name: "wordcount",
        args: &["--size", "1"],
    },
    Example {
        name: "wordcount",
        args: &["--size", "1", "--blocks"],
    },
    Example {
        name: "mapped_search",
        args: &["--size", "2", "--pool", "1"],
    },
    Example {
        name: "mapped_search",
        args: &["--size", "2", "--pool", "1", "--copies"],
    },
    Example {
        name: "heat2d",
        args: &["--steps", "300"],
    },
    Example {
        name: "heat2d",
        args: &[
            "--steps",
            "50",
            "--copies",
            "--one-adapter",
            "--width",
            "61",
        ],
    },
    Example {
        name: "pipeline",
        args: &["--pictures", "6"],
    },
];

/// How long every operation is tried from eight threads: enough for each to meet each, since the long runs and the
/// sanitizers are `cargo xtask stress`.
const STRESS_MINUTES: f64 = 0.5;

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let start = Instant::now();
    step("format", || {
        process::run(workspace.cargo().args(["fmt", "--all", "--check"]))
    })?;
    step("lints", || {
        let mut clippy = workspace.cargo();
        process::run(clippy.args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("docs", || {
        let mut doc = workspace.cargo();
        process::run(
            doc.args(["doc", "--workspace", "--no-deps"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })?;
    let provided = step("adapters", || {
        test::provide_for_tests(workspace, &args.switches)
    })?;
    let provided = provided.as_ref();
    step("tests", || test::run_suite(workspace, provided, &[]))?;
    step("a trace of a run", || {
        let mut command = workspace.cargo();
        command.args(["test", "--quiet", "--package", "tombolo"]);
        command.args(["--features", "trace", "--test", "trace"]);
        stress::environment(workspace, provided)?.apply(&mut command);
        process::run(&mut command)
    })?;
    step("every operation at once", || {
        stress::execute(
            workspace,
            None,
            &stress::environment(workspace, provided)?,
            STRESS_MINUTES,
            &[],
        )
    })?;
    if provide::embedded_exists() {
        sanitize::run(workspace)?;
    }
    for run in runs(provided) {
        step(&run.title(), || run.execute(workspace, provided))?;
    }
    step("the region's traces", || {
        // Without `--bench` the program measures nothing, and fails where a gap was overlooked.
        process::run(
            workspace
                .cargo()
                .args(["test", "--quiet", "--bench", "region"]),
        )
    })?;
    eprintln!("\n== all passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// An example on an adapter; `None` is the adapter that wgpu takes by itself.
struct Run {
    example: &'static Example,
    adapter: Option<&'static str>,
}

/// Every example on every adapter on the processor, or once where the system has adapters of its own.
fn runs(provided: Option<&Provided>) -> Vec<Run> {
    let software = provided
        .map(|provided| provided.software.as_slice())
        .unwrap_or_default();
    let mut adapters: Vec<_> = software
        .iter()
        .map(|(software, _)| Some(software.adapter_name()))
        .collect();
    if provided.is_some() && provide::embedded_exists() {
        adapters.push(Some(EMBEDDED));
    }
    if adapters.is_empty() {
        adapters.push(None);
    }
    let on = |adapter| EXAMPLES.iter().map(move |example| Run { example, adapter });
    adapters.into_iter().flat_map(on).collect()
}

impl Run {
    fn title(&self) -> String {
        let words = [&[self.example.name], self.example.args].concat().join(" ");
        format!(
            "example {words} on {}",
            self.adapter.unwrap_or("the default adapter")
        )
    }

    fn execute(&self, workspace: &Workspace, provided: Option<&Provided>) -> Result<(), Error> {
        let dir = workspace
            .scratch_dir()
            .join(self.adapter.unwrap_or("default"))
            .join(self.example.name);
        fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        let mut command = self.command(workspace);
        command.current_dir(&dir);
        if let Some(provided) = provided {
            let mut env = if provided.software.is_empty() {
                provided.test_env(workspace)?
            } else {
                provided.software_env(workspace)?
            };
            if let Some(adapter) = self.adapter {
                env = env.with("WGPU_ADAPTER_NAME", adapter);
            }
            AdapterEnv::apply(&env, &mut command);
        }
        process::run(&mut command)
    }

    /// In the profile of the tests, whose build then serves both.
    fn command(&self, workspace: &Workspace) -> Command {
        let mut command = workspace.cargo();
        command
            .args(["run", "--quiet", "--manifest-path"])
            .arg(workspace.manifest());
        command
            .args(["--package", "tombolo", "--example", self.example.name, "--"])
            .args(self.example.args);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icd::Software;

    #[test]
    fn every_example_on_every_adapter_of_the_processor() {
        let provided = Provided {
            software: vec![
                (Software::Lavapipe, "/l.json".into()),
                (Software::SwiftShader, "/s.json".into()),
            ],
            ..Provided::default()
        };
        let runs = runs(Some(&provided));
        let adapters = [Some("llvmpipe"), Some("SwiftShader")].into_iter();
        let adapters = adapters.chain([provide::embedded_exists().then_some(EMBEDDED)]);
        let adapters: Vec<&str> = adapters.flatten().collect();
        assert_eq!(runs.len(), adapters.len() * EXAMPLES.len());
        for adapter in adapters {
            let on = runs.iter().filter(|run| run.adapter == Some(adapter));
            assert!(
                on.map(|run| run.example.name)
                    .eq(EXAMPLES.iter().map(|example| example.name))
            );
        }
    }

    #[test]
    fn examples_run_once_where_the_system_has_adapters() {
        let runs = runs(None);
        assert_eq!(runs.len(), EXAMPLES.len());
        assert!(runs.iter().all(|run| run.adapter.is_none()));
    }

    #[test]
    fn titles_name_example_arguments_and_adapter() {
        let doctor = Run {
            example: &Example {
                name: "doctor",
                args: &["--json"],
            },
            adapter: Some("llvmpipe"),
        };
        assert_eq!(doctor.title(), "example doctor --json on llvmpipe");
    }
}
