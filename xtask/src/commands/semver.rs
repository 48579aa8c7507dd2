//! `cargo xtask semver`: whether changes of the public items need another major version, by cargo-semver-checks.
//!
//! The baseline is a commit, whose documentation is built beside that of the working tree: the commit named by
//! `--baseline-rev`, or else the last tag. Once the crates are in the registry, `-- --baseline-version 0.1.0` compares with a
//! release instead. cargo-semver-checks is used where installed, and built once below `target/` elsewhere, which takes minutes.

use std::ffi::OsString;

use crate::commands::package::PUBLISHED;
use crate::error::Error;
use crate::process::{self, say};
use crate::tools::Tool;
use crate::workspace::Workspace;

const TOOL: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    install: &[],
};

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// The commit, branch or tag to compare with; the last tag without
    #[arg(long, value_name = "REVISION")]
    baseline_rev: Option<String>,
    /// Check this package alone; every published crate without
    #[arg(long, value_parser = PUBLISHED)]
    package: Option<String>,
    /// Passed on to `cargo semver-checks`, in place of a commit to compare with: `-- --baseline-version 0.1.0`
    #[arg(last = true, conflicts_with = "baseline_rev")]
    checks: Vec<OsString>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    // Asked before the program is built, which takes minutes.
    let baseline = match (&args.baseline_rev, args.checks.is_empty()) {
        (Some(revision), _) => Some(commit(workspace, revision)?),
        (None, true) => Some(last_tag(workspace)?),
        (None, false) => None,
    };
    let mut command = workspace.cargo_at(TOOL.provide(workspace)?.into());
    command.arg("semver-checks");
    for package in PUBLISHED {
        if args.package.as_deref().is_none_or(|only| only == package) {
            command.args(["--package", package]);
        }
    }
    match baseline {
        Some(revision) => {
            say(format!("the baseline is {revision}"));
            command.args(["--baseline-rev", &revision]);
        }
        None => {
            command.args(&args.checks);
        }
    }
    process::run(&mut command)
}

/// The full name of a commit: cargo-semver-checks knows no names relative to others, as `HEAD~20`.
fn commit(workspace: &Workspace, revision: &str) -> Result<String, Error> {
    let mut git = workspace.command_at("git".into());
    git.args(["rev-parse", "--verify", "--end-of-options"]);
    let name = process::output_with_messages(git.arg(format!("{revision}^{{commit}}")))?;
    Ok(name.trim().to_owned())
}

/// The last tag that the commit at hand follows.
fn last_tag(workspace: &Workspace) -> Result<String, Error> {
    let mut git = workspace.command_at("git".into());
    let tag = process::output(git.args(["describe", "--tags", "--abbrev=0"]));
    match tag {
        Ok(tag) => Ok(tag.trim().to_owned()),
        Err(Error::Failed { .. }) => Err(Error::NoBaseline),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn there_is_one_baseline() {
        let parsed = |words: &[&str]| Cli::try_parse_from(words).map(|cli| cli.args);
        assert!(parsed(&["semver", "--baseline-rev", "HEAD~3"]).is_ok());
        let release = ["semver", "--", "--baseline-version", "0.1.0"];
        assert_eq!(parsed(&release).unwrap().checks.len(), 2);
        let both = [
            "semver",
            "--baseline-rev",
            "HEAD",
            "--",
            "--baseline-version",
        ];
        assert!(parsed(&both).is_err());
        assert!(parsed(&["semver", "--package", "xtask"]).is_err());
        let one = parsed(&["semver", "--package", "tombolo-cpu"]).unwrap();
        assert_eq!(one.package.as_deref(), Some("tombolo-cpu"));
    }
}
