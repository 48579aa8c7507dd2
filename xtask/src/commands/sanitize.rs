//! The project's own kernels under the sanitizer of the adapter compiled in: a step of `cargo xtask ci`.
//!
//! A finding fails the launch, and so the test or the example. Deliberate faults (too large indices, results written by all
//! invocations) are in other modules.

use std::fs;
use std::process::Command;

use crate::error::Error;
use crate::process::{self, step};
use crate::workspace::Workspace;

/// Modules of the tests of devices with correct kernels, together with all additions of the runtime: globals, pointers, prints,
/// calls in both directions, queues of work. Beside each module the cases left out: such cases take long, and other cases have
/// the same kernels.
const MODULES: &[(&str, &[&str])] = &[
    ("kernels", &[]),
    ("launches", &[]),
    ("grids", &[]),
    ("private_arrays", &[]),
    ("globals", &[]),
    ("pointers", &[]),
    ("heap", &[]),
    (
        "heap_live",
        &[
            "several_devices_see_one_heap",
            "other_devices_keep_copies",
            "pointer_types::",
            "pointer_helpers::",
            "pointer_loads::",
        ],
    ),
    ("device_memory", &[]),
    ("print", &[]),
    ("print_assert", &[]),
    ("rpc", &["a_million_calls_are_each_served_once"]),
    ("services", &[]),
    ("persistent_calls", &[]),
    ("work", &[]),
];

/// Examples, with small inputs.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("first-kernel", &[]),
    ("tour", &[]),
    ("histogram", &[]),
    ("median", &[]),
    ("gpu_to_gpu", &[]),
    ("wordcount", &["--size", "1"]),
    (
        "heat2d",
        &["--steps", "5", "--one-adapter", "--width", "61"],
    ),
    ("tile_server", &["--frames", "1"]),
    (
        "raytracer",
        &["--width", "64", "--height", "40", "--report", "50"],
    ),
];

/// Runs primitives, tests and examples.
pub fn run(workspace: &Workspace) -> Result<(), Error> {
    step("primitives, sanitized", || {
        let mut command = test(workspace, "kernels");
        process::run(command.arg("embedded::"))
    })?;
    for (module, left_out) in MODULES {
        step(&format!("tests of {module}, sanitized"), || {
            let mut command = test(workspace, "gpu");
            command.arg(format!("embedded::{module}::"));
            for case in *left_out {
                command.args(["--skip", case]);
            }
            process::run(&mut command)
        })?;
    }
    for (example, args) in EXAMPLES {
        step(&format!("example {example}, sanitized"), || {
            let dir = workspace.scratch_dir().join("sanitized").join(example);
            fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
            let mut command = sanitized(workspace);
            command
                .current_dir(&dir)
                .args(["run", "--quiet", "--manifest-path"])
                .arg(workspace.manifest())
                .args(["--package", "tombolo", "--example", example, "--"])
                .args(*args);
            process::run(&mut command)
        })?;
    }
    Ok(())
}

/// Tests, before the filter. Of the whole workspace: for a package alone cargo chooses other features of the dependencies, and
/// compiles all dependencies again.
fn test(workspace: &Workspace, target: &str) -> Command {
    let mut command = sanitized(workspace);
    command.args(["test", "--workspace", "--test", target, "--"]);
    command
}

/// Cargo for programs that find no other adapter, and check kernels at work.
fn sanitized(workspace: &Workspace) -> Command {
    let mut command = workspace.cargo();
    command
        .env("WGPU_BACKEND", "noop")
        .env("TOMBOLO_SANITIZE", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter without a match would pass.
    #[test]
    fn modules_and_examples_exist() {
        let workspace = Workspace::find().unwrap();
        for (module, _) in MODULES {
            let file = workspace.root().join(format!("tests/gpu/{module}.rs"));
            assert!(file.exists(), "{}", file.display());
        }
        for (example, _) in EXAMPLES {
            let places = [
                format!("examples/{example}.rs"),
                format!("examples/{example}/main.rs"),
                format!("templates/{example}/src/main.rs"),
            ];
            let exists = |place: &String| workspace.root().join(place).exists();
            assert!(places.iter().any(exists), "{example}");
        }
    }
}
