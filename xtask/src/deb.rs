//! Debian package files, unpacked without being installed.

use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use crate::error::Error;
use crate::process;

/// How unpacking a package ended.
pub struct Unpacked {
    tar: Output,
    tar_line: String,
    package: ExitStatus,
    package_line: String,
}

/// Unpacks the files of `package` into the directory `into`. `args` are tar's: files to take, files to leave out.
///
/// # Errors
/// One of the two programs cannot be started. Whether both succeeded is [`Unpacked::check`]'s to say.
pub fn unpack(package: &Path, into: &Path, args: &[String]) -> Result<Unpacked, Error> {
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped());
    let mut unpacking = dpkg
        .spawn()
        .map_err(|source| process::spawn_error(&dpkg, source))?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "--no-same-owner"])
        .args(args)
        .current_dir(into)
        .env("LC_ALL", "C")
        .stderr(Stdio::piped());
    if let Some(stdout) = unpacking.stdout.take() {
        tar.stdin(stdout);
    }
    let output = tar.output();
    let tar_line = process::display(&tar);
    // With `tar` goes the reading end of the pipe: a dpkg-deb with more to say would wait for ever.
    let output = output.map_err(|source| process::spawn_error(&tar, source));
    drop(tar);
    let status = unpacking
        .wait()
        .map_err(|source| process::spawn_error(&dpkg, source))?;
    Ok(Unpacked {
        tar: output?,
        tar_line,
        package: status,
        package_line: process::display(&dpkg),
    })
}

impl Unpacked {
    /// Whether a file that tar was to take is missing in an otherwise whole package.
    pub fn lacks_files(&self) -> bool {
        self.package.success()
            && String::from_utf8_lossy(&self.tar.stderr)
                .lines()
                .any(|line| line.ends_with("Not found in archive"))
    }

    /// Fails unless both programs succeeded, with the programs' messages printed.
    pub fn check(&self) -> Result<(), Error> {
        if self.tar.status.success() && self.package.success() {
            return Ok(());
        }
        eprint!("{}", String::from_utf8_lossy(&self.tar.stderr));
        // If tar gave up first, dpkg-deb fails too, on the broken pipe; the cause is then tar.
        let (command, status) = if self.tar.status.success() {
            (&self.package_line, self.package)
        } else {
            (&self.tar_line, self.tar.status)
        };
        Err(Error::Failed {
            command: command.clone(),
            status,
        })
    }
}
