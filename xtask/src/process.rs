//! Running other programs.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::error::Error;

/// Tells the person at the terminal something; stdout stays free for programs.
pub fn say(message: impl AsRef<str>) {
    eprintln!("xtask: {}", message.as_ref());
}

/// Runs a step under a header line and reports the time, also of a failed step.
pub fn step<T>(title: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    eprintln!("\n== {title}");
    let start = Instant::now();
    let result = work();
    let outcome = if result.is_ok() { "passed" } else { "FAILED" };
    eprintln!(
        "== {title}: {outcome} in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    result
}

/// The command as typed by people: without the directory of the program.
pub fn display(command: &Command) -> String {
    let program = command.get_program();
    let program = Path::new(program).file_name().unwrap_or(program);
    std::iter::once(program)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs a command to the end with xtask's stdin, stdout and stderr.
pub fn run(command: &mut Command) -> Result<(), Error> {
    let status = command
        .status()
        .map_err(|source| spawn_error(command, source))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed {
            command: display(command),
            status,
        })
    }
}

/// Like [`run`], with the command's stdout sent to stderr: ours may be read by a shell's `eval`.
pub fn run_aside(command: &mut Command) -> Result<(), Error> {
    run(command.stdout(io::stderr()))
}

/// The command's stdout, with stderr thrown away.
pub fn output(command: &mut Command) -> Result<String, Error> {
    captured(command.stderr(Stdio::null()))
}

/// The command's stdout; stderr goes to xtask's stderr.
pub fn output_with_messages(command: &mut Command) -> Result<String, Error> {
    captured(command.stderr(Stdio::inherit()))
}

fn captured(command: &mut Command) -> Result<String, Error> {
    let output = command
        .output()
        .map_err(|source| spawn_error(command, source))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Error::Failed {
            command: display(command),
            status: output.status,
        })
    }
}

/// The error of a command that did not start.
pub fn spawn_error(command: &Command, source: io::Error) -> Error {
    Error::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    }
}

/// Whether a program is in `PATH`.
pub fn in_path(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Whether somebody can answer a question, such as sudo's for a password.
pub fn interactive() -> bool {
    io::stdin().is_terminal() || Path::new("/dev/tty").exists() && io::stderr().is_terminal()
}
