//! Parts of Windows that programs of Rust need and releases of Wine lack.
//!
//! Since Rust 1.78 the standard library takes random bytes from `ProcessPrng` of `bcryptprimitives.dll`. Wine 8, the release of
//! Debian 12, brings no such library, and ends every program before the first line with status 53. A stand-in is built with the
//! linker's own compiler, and lies in a folder searched last by Wine (`WINEPATH`): a release with the library finds the library
//! of the release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Toolchain;
use crate::error::Error;
use crate::process;

const SOURCE: &str = include_str!("bcryptprimitives.c");

/// The folder with the stand-ins, below the store of the unpacked packages.
pub fn stand_ins(toolchain: &Toolchain) -> PathBuf {
    toolchain.root().with_file_name("wine-libraries")
}

/// Builds the stand-ins. [`super::Part::WindowsLinker`] is there.
pub fn build_stand_ins(toolchain: &Toolchain) -> Result<(), Error> {
    let folder = stand_ins(toolchain);
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    let source = folder.join("bcryptprimitives.c");
    fs::write(&source, SOURCE).map_err(Error::io("write", &source))?;
    let mut compiler = Command::new("x86_64-w64-mingw32-gcc");
    toolchain.environment(&mut compiler);
    compiler.args(["-shared", "-o"]);
    compiler.arg(source.with_extension("dll"));
    process::run(compiler.arg(&source).arg("-ladvapi32"))
}

/// The name of a folder of the system for programs under Wine.
pub fn path(folder: &Path) -> String {
    format!("Z:{}", folder.display()).replace('/', "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_on_the_drive_of_this_system() {
        assert_eq!(path(Path::new("/home/me/target")), r"Z:\home\me\target");
    }

    /// The function that the standard library imports by name.
    #[test]
    fn the_stand_in_has_the_function() {
        assert!(SOURCE.contains("__declspec(dllexport) BOOL WINAPI ProcessPrng("));
    }
}
