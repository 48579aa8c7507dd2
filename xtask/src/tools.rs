//! Programs written in Rust that tasks call: the installed program, or the same program built once below `target/tools`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::Error;
use crate::process::{self, say};
use crate::workspace::Workspace;

/// A program from the registry, in a version that the tasks know.
pub struct Tool {
    /// The package and the program.
    pub name: &'static str,
    /// The version to build where none is installed.
    pub version: &'static str,
    /// Further arguments of `cargo install`.
    pub install: &'static [&'static str],
}

impl Tool {
    /// The program: installed, built before, or built now.
    pub fn provide(&self, workspace: &Workspace) -> Result<PathBuf, Error> {
        let file = format!("{}{}", self.name, env::consts::EXE_SUFFIX);
        if process::in_path(&file) {
            return Ok(file.into());
        }
        let root = workspace.tools_dir();
        let program = root.join("bin").join(file);
        if !program.is_file() {
            say(format!(
                "{} {} is built once, below {}",
                self.name,
                self.version,
                root.display()
            ));
            let mut install = workspace.cargo();
            install.args(["install", "--quiet", "--locked"]);
            install.args(self.install);
            install.args(["--version", self.version, self.name, "--root"]);
            install.arg(OsString::from(&root));
            process::run_aside(&mut install)?;
        }
        Ok(program)
    }
}
