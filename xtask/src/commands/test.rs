//! `cargo xtask test`: the whole suite, on every adapter.

use std::ffi::OsString;

use crate::env::AdapterEnv;
use crate::error::Error;
use crate::process::{self, say};
use crate::provide::{self, EMBEDDED, Provided, Switches};
use crate::workspace::Workspace;

/// Processes testing devices at once. More processes would only wait for each other: each keeps a core busy, or two.
const MOST_PROCESSES: usize = 2;

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
    let provided = provide_for_tests(workspace, &args.switches)?;
    run_suite(workspace, provided.as_ref(), &args.cargo)
}

/// Provides adapters for tests; `None` where the system has adapters of its own.
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

/// The environment that selects all adapters provided; empty where the system has adapters of its own.
pub fn environment(
    workspace: &Workspace,
    provided: Option<&Provided>,
) -> Result<AdapterEnv, Error> {
    match provided {
        Some(provided) => provided.test_env(workspace),
        None => Ok(AdapterEnv::default()),
    }
}

/// Runs the suite on the adapters provided; with arguments for cargo, only the tests chosen there.
pub fn run_suite(
    workspace: &Workspace,
    provided: Option<&Provided>,
    extra: &[OsString],
) -> Result<(), Error> {
    let env = environment(workspace, provided)?;
    if !extra.is_empty() {
        return cargo_test(workspace, &env, extra);
    }
    cargo_test(workspace, &env, &["--tests".into()])?;
    // Programs of the guide take the chosen adapter, and some programs want an adapter with live memory.
    let env = if provide::embedded_exists() {
        env.with("WGPU_ADAPTER_NAME", EMBEDDED)
    } else {
        env
    };
    cargo_test(workspace, &env, &["--doc".into()])
}

fn cargo_test(workspace: &Workspace, env: &AdapterEnv, args: &[OsString]) -> Result<(), Error> {
    let processes = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut command = workspace.cargo();
    command.args(["test", "--workspace"]).args(args);
    // Tests of devices run one at a time, tests of different adapters beside each other.
    command.env(
        "TOMBOLO_TEST_PROCESSES",
        processes.min(MOST_PROCESSES).to_string(),
    );
    env.apply(&mut command);
    say(format!("running `{}`", process::display(&command)));
    process::run(&mut command)
}
