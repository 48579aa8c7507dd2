//! `cargo xtask minimal-versions`: the published crates with the least versions of dependencies that their manifests allow.
//!
//! A requirement that is too low shows nowhere else: the lock file has newer versions, and so has a fresh program. The resolver's
//! option `-Z direct-minimal-versions` takes the least version of each direct dependency, and the newest of all others. The lock
//! file of the repository stays as committed: a copy of the published crates below `target/` is resolved, without what only
//! tests need, since a program that depends on the crates resolves nothing of that. The toolchain in use then checks the copy.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::nightly;
use crate::process;
use crate::workspace::Workspace;

/// The folders of the published crates, and what builds each of them beside the manifest.
const CRATES: &[(&str, &[&str])] = &[
    (".", &["README.md", "build.rs", "shaders", "src"]),
    ("cpu", &["README.md", "build.rs", "src", "tests/support"]),
    ("kernels", &["README.md", "shaders", "src"]),
];

/// The features that no default has and this system can check.
const FEATURES: &str = "tombolo/gles,tombolo/trace";

/// Runs the command.
pub fn run(workspace: &Workspace) -> Result<(), Error> {
    let copy = workspace.minimal_dir();
    if copy.exists() {
        fs::remove_dir_all(&copy).map_err(Error::io("empty", &copy))?;
    }
    for (folder, parts) in CRATES {
        let (from, to) = (workspace.root().join(folder), copy.join(folder));
        let path = from.join("Cargo.toml");
        let manifest = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        for part in *parts {
            copy_all(&from.join(part), &to.join(part))?;
        }
        let path = to.join("Cargo.toml");
        fs::write(&path, without_tests(&manifest)).map_err(Error::io("write", &path))?;
    }
    let manifest = copy.join("Cargo.toml");
    let mut resolve = nightly::cargo(workspace)?;
    resolve.args(["-Zdirect-minimal-versions", "generate-lockfile"]);
    process::run(resolve.arg("--manifest-path").arg(&manifest))?;
    let mut check = workspace.cargo();
    check.args(["check", "--workspace", "--locked", "--features", FEATURES]);
    check.arg("--manifest-path").arg(&manifest);
    check.env("CARGO_TARGET_DIR", workspace.minimal_target());
    process::run(&mut check)
}

/// A manifest with the published crates as the only members, and nothing of tests, benches, examples and profiles.
fn without_tests(manifest: &str) -> String {
    let left_out = [
        "dev-dependencies",
        "[test",
        "[bench",
        "[example",
        "profile.",
    ];
    let mut kept = String::new();
    let mut is_kept = true;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            is_kept = !left_out.iter().any(|name| section.starts_with(name));
        }
        let line = match line.split_once(" = ") {
            Some(("members", _)) => r#"members = [".", "cpu", "kernels"]"#,
            Some(("exclude", _)) => continue,
            _ => line,
        };
        if is_kept {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Copies a file, or a folder with everything in it.
fn copy_all(from: &Path, to: &Path) -> Result<(), Error> {
    if !from.is_dir() {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        }
        fs::copy(from, to).map_err(Error::io("copy", from))?;
        return Ok(());
    }
    let entries = fs::read_dir(from).map_err(Error::io("read", from))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("read", from))?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_keep_what_programs_resolve() {
        let manifest = "[workspace]\nmembers = [\".\", \"xtask\"]\nexclude = [\"fuzz\"]\n[dependencies]\nlog = \"0.4\"\n\
            [dev-dependencies]\nimage = \"0.25\"\n[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n[[test]]\nname = \"gpu\"\n";
        let kept = "[workspace]\nmembers = [\".\", \"cpu\", \"kernels\"]\n[dependencies]\nlog = \"0.4\"\n\
            [target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n";
        assert_eq!(without_tests(manifest), kept);
    }

    #[test]
    fn every_published_crate_is_copied_with_its_parts() {
        let workspace = Workspace::find().unwrap();
        assert_eq!(CRATES.len(), crate::commands::package::PUBLISHED.len());
        for (folder, parts) in CRATES {
            for part in *parts {
                let path = workspace.root().join(folder).join(part);
                assert!(path.exists(), "{}", path.display());
            }
        }
    }
}
