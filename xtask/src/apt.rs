//! apt-get, of Debian, Ubuntu and what derives from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::process::{self, say};

/// The package manager of this machine, and what it takes to be allowed to install.
pub struct Apt {
    root: bool,
    sudo: bool,
}

impl Apt {
    /// `None` on distributions of another family.
    pub fn find() -> Option<Self> {
        if !process::in_path("apt-get") {
            return None;
        }
        let uid = process::output(Command::new("id").arg("-u")).unwrap_or_default();
        Some(Self {
            root: uid.trim() == "0",
            sudo: process::in_path("sudo"),
        })
    }

    /// Installs packages; refreshes the package lists only if there are none or they turn out stale.
    pub fn install(&self, packages: &[&str]) -> Result<(), Error> {
        let args = [&["install", "-y", "--no-install-recommends"], packages].concat();
        self.with_fresh_lists(|| self.privileged(&args))
    }

    /// Whether the distribution has a package that is more than a pointer to a snap.
    pub fn has(&self, package: &str) -> Result<bool, Error> {
        if lists_missing() {
            self.update()?;
        }
        let policy = process::output(
            Command::new("apt-cache")
                .args(["policy", package])
                .env("LC_ALL", "C"),
        )?;
        Ok(candidate(&policy).is_some_and(|version| !version.contains("snap")))
    }

    /// Downloads a package without installing it, and returns the file.
    pub fn download(&self, package: &str, into: &Path) -> Result<PathBuf, Error> {
        self.with_fresh_lists(|| {
            let mut command = Command::new("apt-get");
            // Started by root, apt-get would download as a user who cannot write to our directory.
            command
                .args(["-o", "APT::Sandbox::User=root", "download", package])
                .current_dir(into);
            process::run_aside(&mut command)
        })?;
        let entries = fs::read_dir(into).map_err(Error::io("list", into))?;
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|ext| ext == "deb"))
            .ok_or_else(|| {
                let source =
                    std::io::Error::new(std::io::ErrorKind::NotFound, "apt-get left no .deb here");
                Error::io("find the package in", into)(source)
            })
    }

    /// Tries; on failure refreshes the lists and tries once more, since old lists name versions long gone.
    fn with_fresh_lists(&self, attempt: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        if lists_missing() {
            self.update()?;
            return attempt();
        }
        match attempt() {
            Err(Error::Failed { .. }) => {
                say(
                    "that failed; the package lists may be old, so they are refreshed for a second try",
                );
                self.update()?;
                attempt()
            }
            other => other,
        }
    }

    fn update(&self) -> Result<(), Error> {
        self.privileged(&["update"])
    }

    /// Runs apt-get as root.
    fn privileged(&self, args: &[&str]) -> Result<(), Error> {
        let mut command = privileged_command(self.root, self.sudo, process::interactive(), args)?;
        if self.root {
            say(format!("running `{}`", process::display(&command)));
        } else {
            say(format!(
                "this needs root; running `{}`",
                process::display(&command)
            ));
        }
        process::run_aside(&mut command)
    }
}

fn privileged_command(
    root: bool,
    sudo: bool,
    interactive: bool,
    args: &[&str],
) -> Result<Command, Error> {
    // Fresh machines are often busy updating themselves.
    const WAIT: [&str; 3] = ["apt-get", "-o", "DPkg::Lock::Timeout=120"];
    const QUIET: &str = "DEBIAN_FRONTEND=noninteractive";
    // Through `env` in both cases: sudo keeps no variables.
    let mut command = if root {
        Command::new("env")
    } else if sudo {
        let mut command = Command::new("sudo");
        // Nobody there to type a password: failing beats waiting for ever.
        if !interactive {
            command.arg("-n");
        }
        command.arg("env");
        command
    } else {
        return Err(Error::NeedsRoot {
            command: format!("apt-get {}", args.join(" ")),
        });
    };
    command.arg(QUIET).args(WAIT).args(args);
    Ok(command)
}

/// Images of containers come without the package lists.
fn lists_missing() -> bool {
    let entries = fs::read_dir("/var/lib/apt/lists")
        .into_iter()
        .flatten()
        .flatten();
    !entries
        .into_iter()
        .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

/// The version `apt-cache policy` would install.
fn candidate(policy: &str) -> Option<&str> {
    policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .filter(|version| *version != "(none)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(root: bool, sudo: bool, interactive: bool) -> Result<String, Error> {
        privileged_command(root, sudo, interactive, &["update"])
            .map(|command| process::display(&command))
    }

    #[test]
    fn sudo_only_when_needed() {
        let apt = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 update";
        assert_eq!(line(true, true, true).unwrap(), apt);
        assert_eq!(line(false, true, true).unwrap(), format!("sudo {apt}"));
        assert_eq!(line(false, true, false).unwrap(), format!("sudo -n {apt}"));
        assert!(
            line(false, false, true)
                .unwrap_err()
                .to_string()
                .contains("sudo apt-get install")
        );
    }

    #[test]
    fn candidates() {
        let policy = "chromium:\n  Installed: (none)\n  Candidate: 120.0-1\n  Version table:\n";
        assert_eq!(candidate(policy), Some("120.0-1"));
        assert_eq!(
            candidate("chromium:\n  Installed: (none)\n  Candidate: (none)\n"),
            None
        );
        assert_eq!(candidate(""), None);
    }
}
