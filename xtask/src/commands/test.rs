//! `cargo xtask test`: the whole suite, on every adapter.

use std::ffi::OsString;

use crate::env::AdapterEnv;
use crate::error::Error;
use crate::process::{self, say};
use crate::provide::{self, Provided, Switches};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    switches: Switches,
    /// Passed on to `cargo test --workspace`
    #[arg(last = true)]
    cargo: Vec<OsString>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let env = match provide_for_tests(workspace, &args.switches)? {
        Some(provided) => provided.test_env(workspace)?,
        None => AdapterEnv::default(),
    };
    run_suite(workspace, &env, &args.cargo)
}

/// Provides what tests run on; `None` where the system has its own adapters.
pub fn provide_for_tests(
    workspace: &Workspace,
    switches: &Switches,
) -> Result<Option<Provided>, Error> {
    if provide::system_has_adapters() {
        provide::say_system_has_adapters();
        return Ok(None);
    }
    let provided = provide::provide(workspace, switches)?;
    provided.report();
    if provided.software.is_empty() && provided.gpus.is_empty() && !provide::embedded_exists() {
        return Err(Error::NoAdapter);
    }
    Ok(Some(provided))
}

/// Runs the suite on the adapters of an environment.
pub fn run_suite(workspace: &Workspace, env: &AdapterEnv, extra: &[OsString]) -> Result<(), Error> {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace"]).args(extra);
    env.apply(&mut command);
    say(format!("running `{}`", process::display(&command)));
    process::run(&mut command)
}
