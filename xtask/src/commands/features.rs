//! `cargo xtask features`: the library with each of its features alone, and the fuzz targets and the ported program with the
//! versions pinned in their own lock files. Other features of wgpu have the dependencies compiled anew, so the command is no
//! part of `cargo xtask ci`.

use std::process::Command;

use crate::error::Error;
use crate::process::{self, step};
use crate::workspace::Workspace;

/// Features to build the library with, one at a time; the library's other features are for other systems.
const FEATURES: &[&str] = &["", "vulkan", "gles", "embedded", "tracing", "trace"];

/// Looks the library over as built for a program with only the given features.
fn with_features(workspace: &Workspace, features: &str) -> Command {
    let mut clippy = workspace.cargo();
    clippy.args(["clippy", "--package", "tombolo", "--no-default-features"]);
    clippy.args(["--features", features, "--", "-D", "warnings"]);
    clippy
}

/// Looks the fuzz targets over, with the versions pinned in their own lock file. The targets run with a nightly compiler alone,
/// and are checked with the compiler at hand: nothing is linked, so that the fuzzer itself, in need of a C++ compiler, is not
/// built.
fn fuzz_targets(workspace: &Workspace) -> Command {
    let mut check = workspace.cargo();
    check.args(["check", "--quiet", "--locked", "--bins", "--manifest-path"]);
    check.arg(workspace.fuzz_manifest());
    check.env("CARGO_TARGET_DIR", workspace.fuzz_dir());
    check.env("CUSTOM_LIBFUZZER_PATH", "none/libnone.a");
    check.env("RUSTFLAGS", "-D warnings");
    check
}

/// Looks the ported program over, with the versions pinned in the program's own lock file.
fn port(workspace: &Workspace) -> Command {
    let mut clippy = workspace.cargo_beside(workspace.port_manifest(), &["clippy"]);
    clippy.args(["--", "-D", "warnings"]);
    clippy
}

/// Runs the command.
pub fn run(workspace: &Workspace) -> Result<(), Error> {
    for features in FEATURES {
        let title = match *features {
            "" => "lints without a backend".to_owned(),
            feature => format!("lints with {feature} alone"),
        };
        step(&title, || {
            process::run(&mut with_features(workspace, features))
        })?;
    }
    step("the ported program", || {
        process::run(&mut workspace.format_beside(workspace.port_manifest()))?;
        process::run(&mut port(workspace))
    })?;
    step("fuzz targets", || {
        process::run(&mut workspace.format_beside(workspace.fuzz_manifest()))?;
        process::run(&mut fuzz_targets(workspace))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_backend_of_this_system_is_built_alone() {
        let root = Workspace::find().unwrap();
        let manifest = fs::read_to_string(root.manifest()).unwrap();
        for features in FEATURES {
            let line = process::display(&with_features(&root, features));
            assert!(line.ends_with("-- -D warnings"), "{line}");
            assert!(line.contains("--no-default-features"), "{line}");
            let declared = manifest.contains(&format!("\n{features} = ["));
            assert!(features.is_empty() || declared, "{features}");
        }
    }

    #[test]
    fn every_fuzz_target_is_declared_and_checked() {
        let root = Workspace::find().unwrap();
        let manifest = fs::read_to_string(root.fuzz_manifest()).unwrap();
        let targets = root.fuzz_manifest().with_file_name("fuzz_targets");
        let mut files = 0;
        for file in fs::read_dir(targets).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            assert!(
                manifest.contains(&format!("\"fuzz_targets/{name}\"")),
                "{name}"
            );
            files += 1;
        }
        assert_eq!(manifest.matches("[[bin]]").count(), files);
        let line = process::display(&fuzz_targets(&root));
        assert!(line.contains("--locked --bins"), "{line}");
    }
}
