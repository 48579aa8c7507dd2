//! The places of the repository and the build outputs, and calls of cargo in the repository.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// The repository.
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
    target_from_env: bool,
}

impl Workspace {
    /// Finds the repository in which xtask was started.
    pub fn find() -> Result<Self, Error> {
        let cwd = env::current_dir().map_err(Error::io("read the current directory", "."))?;
        // Asked at run time: a build directory may have moved with the repository since xtask was compiled.
        let start = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| cwd.clone(), PathBuf::from);
        let root = start
            .ancestors()
            .find(|dir| dir.join("Cargo.lock").is_file() && dir.join("xtask/Cargo.toml").is_file())
            .ok_or(Error::NoWorkspace)?
            .to_path_buf();
        let from_env = env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty());
        let target = target_dir(&root, &cwd, from_env.clone());
        Ok(Self {
            root,
            target,
            target_from_env: from_env.is_some(),
        })
    }

    /// Where provisioned adapters are kept: with the build outputs, so that `cargo clean` takes the adapters too.
    pub fn adapters_dir(&self) -> PathBuf {
        self.target.join("adapters")
    }

    /// Where examples run by CI may leave their files.
    pub fn scratch_dir(&self) -> PathBuf {
        self.target.join("xtask-scratch")
    }

    /// Where the guide is put together, and built as a book.
    pub fn book_dir(&self) -> PathBuf {
        self.target.join("book")
    }

    /// Where fuzz targets, a workspace of their own, are built.
    pub fn fuzz_dir(&self) -> PathBuf {
        self.target.join("fuzz")
    }

    /// Where tools written in Rust are built.
    pub fn tools_dir(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// Where code with counters is built, and what was counted is written.
    pub fn coverage_dir(&self) -> PathBuf {
        self.target.join("coverage")
    }

    /// Where cargo puts the archives that would be published.
    pub fn packages_dir(&self) -> PathBuf {
        self.target.join("package")
    }

    /// Where the published crates are copied to, for the least versions of dependencies.
    pub fn minimal_dir(&self) -> PathBuf {
        self.target.join("minimal-versions/crates")
    }

    /// Where the copied crates are built.
    pub fn minimal_target(&self) -> PathBuf {
        self.target.join("minimal-versions/target")
    }

    /// Where a toolchain able to build the standard library is kept.
    pub fn toolchain_dir(&self) -> PathBuf {
        self.target.join("toolchain")
    }

    /// Where the kept toolchain, often of another version, builds.
    pub fn toolchain_target(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }

    /// A call of cargo in the root of the repository.
    pub fn cargo(&self) -> Command {
        self.cargo_at(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// A call of a certain cargo in the root of the repository.
    pub fn cargo_at(&self, program: OsString) -> Command {
        let mut command = self.command_at(program);
        // A relative path would mean another directory from the root than from the caller's directory.
        if self.target_from_env {
            command.env("CARGO_TARGET_DIR", &self.target);
        }
        command
    }

    /// A call of cargo for a package in a workspace of its own: with the versions pinned in the package's lock file, and built
    /// beside everything else.
    pub fn cargo_beside(&self, manifest: PathBuf, args: &[&str]) -> Command {
        let mut command = self.cargo();
        command.args(args).args(["--locked", "--manifest-path"]);
        command.arg(manifest).arg("--target-dir").arg(&self.target);
        command
    }

    /// Whether the sources of a package in a workspace of its own are formatted.
    pub fn format_beside(&self, manifest: PathBuf) -> Command {
        let mut command = self.cargo();
        command.args(["fmt", "--check", "--manifest-path"]);
        command.arg(manifest);
        command
    }

    /// A call of any program in the root of the repository.
    pub fn command_at(&self, program: OsString) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        // `cargo run` describes the xtask package in such variables; builds further down would take the variables for changes.
        for (key, _) in env::vars_os() {
            if key.to_str().is_some_and(describes_a_package) {
                command.env_remove(key);
            }
        }
        command
    }

    /// The root of the repository.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folders of the packages with benches, and the names of the packages.
    pub fn packages_with_benches(&self) -> [(PathBuf, &'static str); 3] {
        [
            (self.root.clone(), "tombolo"),
            (self.root.join("cpu"), "tombolo-cpu"),
            (self.root.join("kernels"), "tombolo-kernels"),
        ]
    }

    /// The page with the figures measured by the benches.
    pub fn benchmarks(&self) -> PathBuf {
        self.root.join("BENCHMARKS.md")
    }

    /// The manifest of the fuzz targets.
    pub fn fuzz_manifest(&self) -> PathBuf {
        self.root.join("fuzz/Cargo.toml")
    }

    /// The manifest of the ported published program.
    pub fn port_manifest(&self) -> PathBuf {
        self.root.join("ports/vello/Cargo.toml")
    }

    /// The manifest of the package whose programs run as ranks of MPI.
    pub fn mpi_manifest(&self) -> PathBuf {
        self.root.join("mpi/Cargo.toml")
    }

    /// The manifest of the package that holds the crate against the crate's peers.
    pub fn peers_manifest(&self) -> PathBuf {
        self.root.join("benches/peers/Cargo.toml")
    }

    /// The manifest of the repository, for cargo calls from another directory.
    pub fn manifest(&self) -> PathBuf {
        self.root.join("Cargo.toml")
    }
}

fn describes_a_package(key: &str) -> bool {
    key.starts_with("CARGO_PKG_")
        || key.starts_with("CARGO_MANIFEST_")
        || matches!(
            key,
            "CARGO_BIN_NAME" | "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE"
        )
}

fn target_dir(root: &Path, cwd: &Path, from_env: Option<OsString>) -> PathBuf {
    match from_env {
        Some(dir) => cwd.join(dir),
        None => root.join("target"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_dir_follows_cargo() {
        let (root, cwd) = (Path::new("/repo"), Path::new("/repo/src"));
        assert_eq!(target_dir(root, cwd, None), Path::new("/repo/target"));
        assert_eq!(target_dir(root, cwd, Some("/t".into())), Path::new("/t"));
        assert_eq!(
            target_dir(root, cwd, Some("t".into())),
            Path::new("/repo/src/t")
        );
    }

    /// Packages with lock files of their own are built with `--locked`, and not by the tests.
    #[test]
    fn lock_files_beside_know_what_the_crate_depends_on() {
        let workspace = Workspace::find().unwrap();
        let mut metadata = workspace.cargo();
        metadata.args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ]);
        let output = crate::process::output(&mut metadata).unwrap();
        let found: serde_json::Value = serde_json::from_str(&output).unwrap();
        let packages = found["packages"].as_array().unwrap();
        let is_crate = |package: &&serde_json::Value| package["name"] == "tombolo";
        let package = packages.iter().find(is_crate).unwrap();
        let dependencies = package["dependencies"].as_array().unwrap();
        let is_built = |one: &&serde_json::Value| one["kind"].is_null() && one["optional"] == false;
        let built = dependencies.iter().filter(is_built);
        let names: Vec<&str> = built.map(|one| one["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"wgpu"));
        let others = [
            workspace.fuzz_manifest(),
            workspace.port_manifest(),
            workspace.mpi_manifest(),
            workspace.peers_manifest(),
            workspace.root().join("examples/web/Cargo.toml"),
        ];
        for lock in others.map(|manifest| manifest.with_extension("lock")) {
            let text = std::fs::read_to_string(&lock).unwrap();
            let blocks = text.split("[[package]]");
            let of_crate = |block: &&str| block.contains("name = \"tombolo\"\n");
            let block = blocks.into_iter().find(of_crate).unwrap();
            for name in &names {
                let known = [format!("\"{name}\""), format!("\"{name} ")];
                let is_known = known.iter().any(|one| block.contains(one));
                assert!(
                    is_known,
                    "{} lacks {name}: cargo update -p tombolo",
                    lock.display()
                );
            }
        }
    }

    #[test]
    fn only_package_descriptions_are_withheld() {
        assert!(describes_a_package("CARGO_PKG_NAME"));
        assert!(describes_a_package("CARGO_MANIFEST_DIR"));
        assert!(!describes_a_package("CARGO_HOME"));
        assert!(!describes_a_package("CARGO_BUILD_JOBS"));
    }
}
