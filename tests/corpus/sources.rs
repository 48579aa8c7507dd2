//! The shaders' text, from the crates that `corpus/Cargo.toml` pins, in cargo's registry folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/Cargo.toml");

/// The text of a shader of the corpus.
pub fn text(package: &str, file: &str) -> Result<String, String> {
    static ROOTS: OnceLock<Result<HashMap<String, PathBuf>, String>> = OnceLock::new();
    let roots = ROOTS.get_or_init(roots).as_ref().map_err(Clone::clone)?;
    let root = roots
        .get(package)
        .ok_or_else(|| format!("{MANIFEST} does not depend on `{package}`"))?;
    let path = root.join(file);
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Where the sources of each package are. Fetches them when they are not there.
fn roots() -> Result<HashMap<String, PathBuf>, String> {
    let host = host()?;
    // Without a platform cargo wants the packages of every platform there is.
    let list = ["metadata", "--format-version=1", "--offline"];
    let list = [&list[..], &["--filter-platform", &host]].concat();
    let found = cargo(&list).or_else(|_| {
        eprintln!("fetching the shader corpus (about 35 MB, once)");
        cargo(&["fetch", "--target", &host])?;
        cargo(&list)
    });
    let listing = found.map_err(|error| {
        format!(
            "the published crates whose shaders this test runs are not on this machine and could \
             not be fetched. With a network, run\n    cargo fetch --locked --target {host} \
             --manifest-path {MANIFEST}\nand run the test again.\n{error}"
        )
    })?;
    let listing: serde_json::Value =
        serde_json::from_slice(&listing).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = listing["packages"].as_array().into_iter().flatten();
    Ok(packages
        .filter_map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            Some((package["name"].as_str()?.into(), manifest.parent()?.into()))
        })
        .collect())
}

/// The platform that this cargo builds for, as `x86_64-unknown-linux-gnu`.
fn host() -> Result<String, String> {
    let version = run(Command::new(program()).arg("-vV"))?;
    let version = String::from_utf8_lossy(&version);
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| format!("cargo does not say what platform it is for:\n{version}"))
}

fn cargo(arguments: &[&str]) -> Result<Vec<u8>, String> {
    let mut command = Command::new(program());
    command.args(arguments);
    command.args(["--locked", "--manifest-path", MANIFEST]);
    run(&mut command)
}

fn program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{command:?} failed:\n{said}"))
    }
}
