//! The nightly toolchain, for what stable releases lack: the resolver's least versions.
//!
//! The toolchain comes from rustup. A nightly toolchain that is installed is taken unchanged.

use std::process::Command;

use crate::error::Error;
use crate::process::{self, say};
use crate::workspace::Workspace;

/// The name of the toolchain.
const NIGHTLY: &str = "nightly";

/// A call of the toolchain's cargo in the root of the repository. Installs the toolchain where there is none.
pub fn cargo(workspace: &Workspace) -> Result<Command, Error> {
    if !process::in_path(&format!("rustup{}", std::env::consts::EXE_SUFFIX)) {
        return Err(Error::NoRustup);
    }
    let rustup = || workspace.command_at("rustup".into());
    let installed = process::output(rustup().args(["toolchain", "list"]))?;
    if !installed.lines().any(is_nightly) {
        say("rustup installs the nightly toolchain");
        let install = ["toolchain", "install", NIGHTLY, "--profile", "minimal"];
        process::run(rustup().args(install))?;
    }
    let mut command = workspace.cargo_at("rustup".into());
    // Of the toolchain that runs xtask.
    for variable in ["CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    command.args(["run", NIGHTLY, "cargo"]);
    Ok(command)
}

/// Whether a line of `rustup toolchain list` is the nightly toolchain of no certain date.
fn is_nightly(line: &str) -> bool {
    let rest = line.strip_prefix("nightly");
    rest.is_some_and(|rest| !rest.starts_with("-2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dated_toolchains_are_not_the_nightly() {
        assert!(is_nightly("nightly-x86_64-unknown-linux-gnu"));
        assert!(is_nightly("nightly-aarch64-apple-darwin (default)"));
        assert!(!is_nightly("nightly-2026-01-01-x86_64-unknown-linux-gnu"));
        assert!(!is_nightly(
            "stable-x86_64-unknown-linux-gnu (active, default)"
        ));
    }
}
