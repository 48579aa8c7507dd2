//! Nightly toolchains, for what stable releases lack: Miri, and the resolver's least versions.
//!
//! Toolchains come from rustup. The resolver's option is judged by no version, so any installed `nightly` is taken unchanged.
//! Miri is part of a toolchain only on days when Miri could be built, and finds other things from day to day: a date is pinned.

use std::process::Command;

use crate::error::Error;
use crate::process::{self, say};
use crate::workspace::Workspace;

/// The toolchain of no certain date.
const NIGHTLY: &str = "nightly";

/// The toolchain with Miri, and a compiler no older than the stable release in use.
const PINNED: &str = "nightly-2026-05-20";

/// A call of the nightly toolchain's cargo in the root of the repository. Installs the toolchain where there is none.
pub fn cargo(workspace: &Workspace) -> Result<Command, Error> {
    call(workspace, NIGHTLY, &[])
}

/// As [`cargo`], of the pinned toolchain, once the toolchain has the components.
pub fn pinned_cargo(workspace: &Workspace, components: &[&str]) -> Result<Command, Error> {
    call(workspace, PINNED, components)
}

fn call(workspace: &Workspace, toolchain: &str, components: &[&str]) -> Result<Command, Error> {
    provide(workspace, toolchain, components)?;
    let mut command = workspace.cargo_at("rustup".into());
    // Of the toolchain that runs xtask.
    for variable in ["CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    command.args(["run", toolchain, "cargo"]);
    Ok(command)
}

/// Installs what is missing, and nothing where all is there: then no network is needed.
fn provide(workspace: &Workspace, toolchain: &str, components: &[&str]) -> Result<(), Error> {
    if !process::in_path(&format!("rustup{}", std::env::consts::EXE_SUFFIX)) {
        return Err(Error::NoRustup);
    }
    let rustup = || workspace.command_at("rustup".into());
    let installed = process::output(rustup().args(["toolchain", "list"]))?;
    let mut lacking: Vec<&str> = components.to_vec();
    if installed.lines().any(|line| is_toolchain(line, toolchain)) {
        let list = ["component", "list", "--installed", "--toolchain", toolchain];
        let has = process::output(rustup().args(list))?;
        lacking.retain(|component| !has_component(&has, component));
        if lacking.is_empty() {
            return Ok(());
        }
    }
    say(format!(
        "rustup installs the toolchain {toolchain}{}{}",
        if lacking.is_empty() { "" } else { " with " },
        lacking.join(", ")
    ));
    let mut install = rustup();
    install.args(["toolchain", "install", toolchain, "--profile", "minimal"]);
    for component in lacking {
        install.args(["--component", component]);
    }
    process::run_aside(&mut install)
}

/// Whether a line of `rustup toolchain list` is the toolchain. Behind the name are the host's target and remarks, and behind
/// that of a nightly toolchain may be a date first.
fn is_toolchain(line: &str, toolchain: &str) -> bool {
    match line.strip_prefix(toolchain) {
        Some(rest) => !rest.starts_with("-2"),
        None => false,
    }
}

/// Whether the list of installed components, each with the name of a target or without, has the component.
fn has_component(installed: &str, component: &str) -> bool {
    let mut rests = (installed.lines()).filter_map(|line| line.trim().strip_prefix(component));
    rests.any(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_are_told_by_their_dates() {
        let dated = "nightly-2026-05-20-x86_64-unknown-linux-gnu";
        let undated = [
            "nightly-x86_64-unknown-linux-gnu",
            "nightly-aarch64-apple-darwin (default)",
        ];
        for line in undated {
            assert!(is_toolchain(line, "nightly"));
            assert!(!is_toolchain(line, "nightly-2026-05-20"));
        }
        assert!(!is_toolchain(dated, "nightly"));
        assert!(is_toolchain(dated, "nightly-2026-05-20"));
        assert!(!is_toolchain(dated, "nightly-2026-05-21"));
        let stable = "stable-x86_64-unknown-linux-gnu (active, default)";
        assert!(!is_toolchain(stable, "nightly"));
    }

    #[test]
    fn components_are_found_with_and_without_a_target() {
        let installed =
            "cargo-x86_64-unknown-linux-gnu\nrust-src\nrustc-x86_64-unknown-linux-gnu\n";
        assert!(has_component(installed, "rust-src"));
        assert!(has_component(installed, "rustc"));
        assert!(!has_component(installed, "miri"));
        assert!(!has_component("rust-std-x86_64\n", "rust-src"));
    }
}
