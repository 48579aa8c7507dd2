//! `cargo xtask port`: a published program of compute shaders, with Tombolo as its host, on every adapter.
//!
//! The program is `ports/vello`, a workspace of its own: the program's dependencies are no concern of the crate's lock file.
//! The program is built into the target folder of the repository, in the profile of the tests, and says by the exit status
//! whether the comparisons hold. Pictures are left in the folder `out/port`.

use std::ffi::OsString;
use std::process::Command;

use crate::commands::test;
use crate::error::Error;
use crate::process::{self, say};
use crate::provide::Switches;
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    switches: Switches,
    /// Passed on to the program: `-- --help` lists what it knows
    #[arg(last = true)]
    program: Vec<OsString>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let provided = test::provide_for_tests(workspace, &args.switches)?;
    let env = test::environment(workspace, provided.as_ref())?;
    let mut command = program(workspace, &args.program);
    env.apply(&mut command);
    say(format!("running `{}`", process::display(&command)));
    process::run(&mut command)
}

fn program(workspace: &Workspace, args: &[OsString]) -> Command {
    let mut command = workspace.cargo_beside(workspace.port_manifest(), &["run", "--quiet"]);
    command.args(["--", "--output"]);
    command.arg(workspace.root().join("out/port"));
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_program_is_built_beside_everything_else() {
        let workspace = Workspace::find().unwrap();
        assert!(workspace.port_manifest().is_file());
        let command = program(&workspace, &["--adapter".into(), "embedded".into()]);
        let args: Vec<_> = command.get_args().collect();
        let at = args.iter().position(|arg| *arg == "--target-dir").unwrap();
        assert_eq!(
            Path::new(args[at + 1]),
            workspace.scratch_dir().parent().unwrap()
        );
        assert!(args.ends_with(&["--adapter".as_ref(), "embedded".as_ref()]));
    }
}
