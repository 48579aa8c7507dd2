//! apt-get, of Debian, Ubuntu and their derivatives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::process::{self, say};

/// A package file, as the distribution's signed lists describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The package's name.
    pub package: String,
    /// The file's name from apt-get.
    pub file: String,
    /// The size of the file.
    pub bytes: u64,
    /// The SHA-256 sum of the file in hexadecimal digits; `None` where the lists have only another kind of sum.
    pub sha256: Option<String>,
}

/// The needs of a command that the distribution's packages meet.
pub struct Needed<M, E> {
    /// The Debian packages that the machine lacks, looked up anew with each call.
    pub missing: M,
    /// The purpose of the packages, in a sentence behind "installing ... with apt-get:".
    pub purpose: &'static str,
    /// The thing expected after the installation.
    pub sought: &'static str,
    /// The error saying how to install the packages by hand, and why installing by hand is necessary.
    pub by_hand: E,
}

impl<M: Fn() -> Vec<&'static str>, E: Fn(String, String) -> Error> Needed<M, E> {
    /// Installs the missing packages.
    pub fn install(&self) -> Result<(), Error> {
        let packages = (self.missing)();
        if packages.is_empty() {
            return Ok(());
        }
        let names = packages.join(" ");
        let by_hand = |why: &str| (self.by_hand)(names.clone(), why.to_owned());
        let Some(apt) = Apt::find() else {
            return Err(by_hand("and has no apt-get to install it with"));
        };
        say(format!("installing {names} with apt-get: {}", self.purpose));
        apt.install(&packages).map_err(|error| match error {
            Error::NeedsRoot { .. } => by_hand("and installing needs root, with no sudo here"),
            other => other,
        })?;
        match (self.missing)() {
            still if still.is_empty() => Ok(()),
            still => Err(Error::StillMissing {
                packages: still.join(" "),
                what: self.sought,
            }),
        }
    }
}

/// The package manager of the machine, and the means to be allowed to install.
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

    /// Installs packages; refreshes the package lists only where there are none or only stale lists.
    pub fn install(&self, packages: &[&str]) -> Result<(), Error> {
        let args = [&["install", "-y", "--no-install-recommends"], packages].concat();
        self.with_fresh_lists(|| self.privileged(&args))
    }

    /// Whether the distribution has a package beyond a mere pointer to a snap.
    pub fn has(&self, package: &str) -> Result<bool, Error> {
        if lists_missing() {
            self.update()?;
        }
        let policy = policy(package)?;
        Ok(candidate(&policy).is_some_and(|version| !version.contains("snap")))
    }

    /// The version of a package as an installation would take; `None` if the lists know no such package.
    pub fn version(&self, package: &str) -> Result<Option<String>, Error> {
        if lists_missing() {
            self.update()?;
        }
        let policy = policy(package)?;
        Ok(candidate(&policy).map(str::to_owned))
    }

    /// The package files of `packages` and of their dependencies missing on the machine, in an order without meaning.
    pub fn closure(&self, packages: &[&str]) -> Result<Vec<Archive>, Error> {
        let mut archives = Vec::new();
        self.with_fresh_lists(|| {
            let mut command = Command::new("apt-get");
            command
                // An installed package is listed only if named, and with `--reinstall`.
                .args(["install", "--print-uris", "--reinstall", "-qq", "-y"])
                .arg("--no-install-recommends")
                .args(packages)
                .env("LC_ALL", "C");
            let text = process::output_with_messages(&mut command)?;
            archives = text.lines().filter_map(archive).collect();
            Ok(())
        })?;
        Ok(archives)
    }

    /// Downloads the newest versions of packages into a directory, under the names from [`Apt::closure`].
    pub fn fetch(&self, packages: &[&str], into: &Path) -> Result<(), Error> {
        self.with_fresh_lists(|| {
            let mut command = Command::new("apt-get");
            command
                // Started by root, apt-get would download as a user who cannot write to our directory.
                .args(["-o", "APT::Sandbox::User=root", "-q", "download"])
                .args(packages)
                .current_dir(into);
            process::run_aside(&mut command)
        })
    }

    /// Downloads a package without installing it, and returns the file.
    pub fn download(&self, package: &str, into: &Path) -> Result<PathBuf, Error> {
        self.fetch(&[package], into)?;
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
    fn with_fresh_lists(
        &self,
        mut attempt: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
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

    /// Refreshes the package lists, as root.
    pub fn update(&self) -> Result<(), Error> {
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

fn policy(package: &str) -> Result<String, Error> {
    process::output(
        Command::new("apt-cache")
            .args(["policy", package])
            .env("LC_ALL", "C"),
    )
}

/// Reads a line of `--print-uris`: an address in quotes, a file's name, its size, its sum.
fn archive(line: &str) -> Option<Archive> {
    let (_, rest) = line.strip_prefix('\'')?.split_once("' ")?;
    let mut words = rest.split(' ');
    let (file, bytes) = (words.next()?, words.next()?.parse().ok()?);
    let (package, _) = file.split_once('_')?;
    let sum = words.next().and_then(|sum| sum.strip_prefix("SHA256:"));
    Some(Archive {
        package: package.to_owned(),
        file: file.to_owned(),
        bytes,
        sha256: sum.map(str::to_owned),
    })
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
    fn package_files() {
        let line = "'http://deb.debian.org/pool/lld-22_22.1.8-1%7edeb12u1_amd64.deb' \
                    lld-22_1%3a22.1.8-1~deb12u1_amd64.deb 1487860 SHA256:00ff";
        let expected = Archive {
            package: "lld-22".to_owned(),
            file: "lld-22_1%3a22.1.8-1~deb12u1_amd64.deb".to_owned(),
            bytes: 1_487_860,
            sha256: Some("00ff".to_owned()),
        };
        assert_eq!(archive(line), Some(expected.clone()));
        let other = line.replace("SHA256:00ff", "MD5Sum:11");
        let expected = Archive {
            sha256: None,
            ..expected
        };
        assert_eq!(archive(&other), Some(expected));
        for broken in [
            "",
            "'u'",
            "'u' a.deb",
            "'u' a_1.deb many",
            "E: what 'u' a_1 1",
        ] {
            assert_eq!(archive(broken), None, "{broken}");
        }
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
