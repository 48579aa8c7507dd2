//! `cargo xtask package`: the archives that would be published, each unpacked and built by itself, and their sizes.
//!
//! The crates depend on each other by path and version. Cargo packs all of them in one call, and builds each against the
//! archives of the others, as a program that takes the crates from the registry would.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::process;
use crate::workspace::Workspace;

/// The published crates, each behind those that it depends on.
pub const PUBLISHED: [&str; 3] = ["tombolo-cpu", "tombolo", "tombolo-kernels"];

/// The registry takes no larger archive: <https://doc.rust-lang.org/cargo/reference/publishing.html>.
const MOST_BYTES: u64 = 10 << 20;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// Passed on to `cargo package`: `-- --allow-dirty` for a working tree with changes, `-- --no-verify` without the builds
    #[arg(last = true)]
    cargo: Vec<OsString>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let mut command = workspace.cargo();
    command.args(["package", "--locked"]);
    for package in PUBLISHED {
        command.args(["--package", package]);
    }
    process::run_aside(command.args(&args.cargo))?;
    for package in PUBLISHED {
        let version = version(workspace, package)?;
        let archive = workspace
            .packages_dir()
            .join(format!("{package}-{version}.crate"));
        let bytes = size(&archive)?;
        println!("{package} {version}: {:.1} KiB", bytes as f64 / 1024.0);
        if bytes > MOST_BYTES {
            return Err(Error::LargeArchive {
                path: archive,
                bytes,
                most: MOST_BYTES,
            });
        }
    }
    Ok(())
}

/// The version that a package's manifest gives.
fn version(workspace: &Workspace, package: &str) -> Result<String, Error> {
    let mut id = workspace.cargo();
    let id = process::output_with_messages(id.args(["pkgid", "--offline", "--package", package]))?;
    Ok(version_of(&id).to_owned())
}

/// The version in the identity of a package, behind `#` and, where the folder is named otherwise, behind the name and `@`.
fn version_of(id: &str) -> &str {
    let id = id.trim();
    id.rsplit(['#', '@']).next().unwrap_or(id)
}

fn size(archive: &Path) -> Result<u64, Error> {
    let metadata = fs::metadata(archive).map_err(Error::io("look at", archive))?;
    Ok(metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_that_may_be_published_is_packed() {
        let workspace = Workspace::find().unwrap();
        let mut metadata = workspace.cargo();
        metadata.args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ]);
        let output = process::output(&mut metadata).unwrap();
        let found: serde_json::Value = serde_json::from_str(&output).unwrap();
        let packages = found["packages"].as_array().unwrap().iter();
        // `publish = false` is an empty list of registries.
        let may = packages.filter(|package| package["publish"].is_null());
        let mut names: Vec<&str> = may
            .map(|package| package["name"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        let mut packed = PUBLISHED;
        packed.sort_unstable();
        assert_eq!(names, packed);
    }

    #[test]
    fn versions_are_behind_names() {
        assert_eq!(version_of("path+file:///a/tombolo#0.1.0\n"), "0.1.0");
        assert_eq!(version_of("path+file:///a/cpu#tombolo-cpu@0.2.1"), "0.2.1");
    }
}
