//! SwiftShader. No distribution packages SwiftShader alone: every Chromium browser carries the driver.

use std::fs;
use std::path::{Path, PathBuf};

use crate::apt::Apt;
use crate::deb;
use crate::error::Error;
use crate::process::say;
use crate::workspace::Workspace;

const LIBRARY: &str = "libvk_swiftshader.so";
const MANIFEST: &str = "vk_swiftshader_icd.json";
/// The packages that may hold SwiftShader, the likelier and smaller first: Debian moved SwiftShader out of `chromium`.
const PACKAGES: [&str; 2] = ["chromium-common", "chromium"];

/// Where installed browsers keep SwiftShader.
const BROWSERS: [&str; 4] = [
    "/usr/lib/chromium",
    "/usr/lib64/chromium-browser",
    "/opt/google/chrome",
    "/opt/microsoft/msedge",
];

/// The outcome of the search for SwiftShader.
pub enum Outcome {
    /// The manifest of a SwiftShader on the machine.
    Here(PathBuf),
    /// The reason why the machine's distribution has none.
    NotHere(String),
}

/// Finds SwiftShader or takes it out of the distribution's Chromium package, without installing the package.
pub fn provide(workspace: &Workspace, apt: Option<&Apt>) -> Result<Outcome, Error> {
    let home = workspace.adapters_dir().join("swiftshader");
    let places = std::iter::once(home.clone()).chain(BROWSERS.map(PathBuf::from));
    if let Some(place) = places.into_iter().find(|place| complete(place)) {
        return Ok(Outcome::Here(place.join(MANIFEST)));
    }
    let Some(apt) = apt else {
        return Ok(Outcome::NotHere(
            "it is taken from Debian's Chromium packages or an installed Chrome or Chromium, and this machine has \
             neither apt-get nor such a browser"
                .to_owned(),
        ));
    };
    let mut searched = Vec::new();
    for package in PACKAGES {
        if !apt.has(package).map_err(fetch_error)? {
            continue;
        }
        if fetch(apt, package, &workspace.adapters_dir(), &home).map_err(fetch_error)? {
            return Ok(Outcome::Here(home.join(MANIFEST)));
        }
        searched.push(package);
    }
    Ok(Outcome::NotHere(not_here(&searched)))
}

fn not_here(searched: &[&str]) -> String {
    if searched.is_empty() {
        format!(
            "this distribution has no package {} with files in it (Ubuntu's Chromium is a snap)",
            PACKAGES.join(" or ")
        )
    } else {
        format!(
            "{LIBRARY} and {MANIFEST} are not in this distribution's {}",
            searched.join(" nor ")
        )
    }
}

/// Downloads a package and puts the SwiftShader inside into `home`; `false` if there is none.
fn fetch(apt: &Apt, package: &str, adapters: &Path, home: &Path) -> Result<bool, Error> {
    say(format!(
        "SwiftShader: downloading the package `{package}` (tens of MB, not installed) to take two files out of it"
    ));
    let scratch = Scratch::create(adapters.join(format!("download-{}", std::process::id())))?;
    let file = apt.download(package, &scratch.0)?;
    let unpacked = scratch.0.join("unpacked");
    fs::create_dir(&unpacked).map_err(Error::io("create", &unpacked))?;
    if !extract(&file, &unpacked)? {
        return Ok(false);
    }
    // Whole or not at all: a run cut short leaves nothing that looks complete. Another run may have been faster.
    if let Err(error) = fs::rename(&unpacked, home)
        && !complete(home)
    {
        return Err(Error::io("move SwiftShader to", home)(error));
    }
    Ok(true)
}

/// Takes the two files out of a package; `false` if the package has no such files.
fn extract(package: &Path, into: &Path) -> Result<bool, Error> {
    let unpacked = deb::unpack(
        package,
        into,
        &[
            "--wildcards".to_owned(),
            // Side by side, wherever the package keeps the files: the manifest names the library relative to the manifest.
            "--transform=s,.*/,,".to_owned(),
            format!("*/{LIBRARY}"),
            format!("*/{MANIFEST}"),
        ],
    )?;
    if unpacked.lacks_files() && !complete(into) {
        return Ok(false);
    }
    unpacked.check()?;
    Ok(complete(into))
}

fn complete(dir: &Path) -> bool {
    dir.join(LIBRARY).is_file() && dir.join(MANIFEST).is_file()
}

fn fetch_error(source: Error) -> Error {
    Error::FetchSwiftShader {
        source: Box::new(source),
    }
}

/// A directory gone at the drop of the value, and the large package inside.
struct Scratch(PathBuf);

impl Scratch {
    fn create(path: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            say(format!("could not remove {}: {error}", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_says_where_was_looked() {
        assert!(not_here(&[]).contains("snap"));
        let reason = not_here(&PACKAGES);
        assert!(reason.contains("chromium-common nor chromium"), "{reason}");
    }
}
