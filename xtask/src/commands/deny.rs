//! `cargo xtask deny`: the crate's dependencies, by the rules of `deny.toml`.
//!
//! cargo-deny is used where installed; elsewhere cargo-deny is built below `target/`, once. Licences, bans, duplicates and
//! sources need no network. Advisories need RustSec's database, and the command fetches the database; where the fetch fails,
//! the other checks count, and the command says so, unless `--advisories` demands the database, as CI does.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::Error;
use crate::process::{self, say};
use crate::workspace::Workspace;

/// The version for which `deny.toml` is written.
const VERSION: &str = "0.20.2";

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
    let program = provide(workspace)?;
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

/// The program: installed, built before, or built now.
fn provide(workspace: &Workspace) -> Result<PathBuf, Error> {
    let name = format!("cargo-deny{}", env::consts::EXE_SUFFIX);
    if process::in_path(&name) {
        return Ok(name.into());
    }
    let root = workspace.tools_dir();
    let program = root.join("bin").join(name);
    if !program.is_file() {
        say(format!(
            "cargo-deny {VERSION} is built once, below {}",
            root.display()
        ));
        let mut install = workspace.cargo();
        install.args(["install", "--quiet", "--locked", "--no-default-features"]);
        install.args(["--version", VERSION, "cargo-deny", "--root"]);
        install.arg(OsString::from(&root));
        process::run(&mut install)?;
    }
    Ok(program)
}
