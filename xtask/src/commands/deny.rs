//! `cargo xtask deny`: the crate's dependencies, by the rules of `deny.toml`.
//!
//! cargo-deny is used where installed; elsewhere cargo-deny is built below `target/`, once. Licences, bans, duplicates and
//! sources need no network. Advisories need RustSec's database, and the command fetches the database; where the fetch fails,
//! the other checks count, and the command says so, unless `--advisories` demands the database, as CI does.

use crate::error::Error;
use crate::process::{self, say};
use crate::tools::Tool;
use crate::workspace::Workspace;

/// In the version for which `deny.toml` is written.
const TOOL: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    install: &["--no-default-features"],
};

/// The checks without a network.
const CHECKS: [&str; 3] = ["bans", "licenses", "sources"];

/// Arguments of the command.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Fail also where the database of advisories cannot be fetched
    #[arg(long)]
    advisories: bool,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let program = TOOL.provide(workspace)?;
    let deny = || {
        let mut command = workspace.command_at(program.clone().into());
        command.arg("--locked");
        command
    };
    process::run(deny().arg("check").args(CHECKS))?;
    if !args.advisories {
        // Fetched by itself, so that an unobtainable database is told from an advisory that holds.
        if let Err(error) = process::run(deny().args(["fetch", "db"])) {
            say(format!(
                "advisories are NOT checked: their database cannot be fetched ({error}); `cargo xtask deny \
                 --advisories` checks them where it can, and fails where it cannot"
            ));
            return Ok(());
        }
    }
    process::run(deny().args(["check", "advisories"]))
}
