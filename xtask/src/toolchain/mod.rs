//! A Rust toolchain that builds for other systems, or with the standard library instrumented for sanitizers.
//!
//! A toolchain with the standard library of the wanted targets (`rustup target add`) is the quickest: nothing of the library is
//! compiled. Two kinds of toolchains build the library themselves. A toolchain with the component `rust-src` is taken
//! unchanged. Elsewhere Debian's `rustc-web`, a recent Rust kept in Debian for the browsers, is unpacked below `target/`
//! together with the sources; nothing is installed. Both are stable releases: `RUSTC_BOOTSTRAP=1` makes stable releases accept
//! `-Zbuild-std`.

mod parts;
mod store;
pub mod wine;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::Apt;
use crate::error::Error;
use crate::process::{self, say};
use crate::workspace::Workspace;

pub use parts::Part;
use store::Store;

/// The oldest Rust able to compile the repository.
const NEEDED: &str = env!("CARGO_PKG_RUST_VERSION");

/// The package whose version tells Debian's version of Rust.
const RUSTC_PACKAGE: &str = "rustc-web";

/// A compiler's release.
type Version = (u32, u32);

/// A toolchain, and the tools provided together with the toolchain.
#[derive(Debug)]
pub struct Toolchain {
    cargo: OsString,
    rustc: OsString,
    sysroot: PathBuf,
    host: String,
    llvm: u32,
    store: Store,
    is_unpacked: bool,
}

/// A task's need of the standard library.
#[derive(Clone, Copy, Debug)]
pub enum Std<'a> {
    /// The sources: the task builds the library in a way of its own.
    Sources,
    /// The library built for the given targets, or else the sources. Without targets every toolchain has the library.
    For(&'a [&'a str]),
}

impl Std<'_> {
    fn is_in(self, sysroot: &Path) -> bool {
        has_sources(sysroot)
            || match self {
                Self::Sources => false,
                Self::For(triples) => triples.iter().all(|triple| has_std(sysroot, triple)),
            }
    }
}

impl Toolchain {
    /// Finds or unpacks a toolchain with a standard library as needed, and makes sure that `parts` are there.
    pub fn provide(workspace: &Workspace, std: Std<'_>, parts: &[Part]) -> Result<Self, Error> {
        let store = Store::new(workspace.toolchain_dir());
        let apt = Apt::find();
        let toolchain = match Self::in_use(workspace, &store, std)? {
            Some(toolchain) => toolchain,
            None => Self::unpacked(&store, apt.as_ref())?,
        };
        for part in parts {
            toolchain.provide_part(apt.as_ref(), *part)?;
        }
        Ok(toolchain)
    }

    /// The toolchain in use by cargo, if the toolchain's standard library is as needed.
    fn in_use(workspace: &Workspace, store: &Store, std: Std<'_>) -> Result<Option<Self>, Error> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let sysroot = workspace
            .command_at(rustc.clone())
            .arg("--print")
            .arg("sysroot")
            .output();
        let sysroot = sysroot.map_err(|source| Error::Spawn {
            program: rustc.to_string_lossy().into_owned(),
            source,
        })?;
        let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
        if !std.is_in(&sysroot) {
            return Ok(None);
        }
        let found = Self {
            cargo,
            rustc,
            sysroot,
            host: String::new(),
            llvm: 0,
            store: Store::new(store.home().to_owned()),
            is_unpacked: false,
        };
        found.checked().map(Some)
    }

    /// Debian's, unpacked now or by an earlier run.
    fn unpacked(store: &Store, apt: Option<&Apt>) -> Result<Self, Error> {
        let find = |store: &Store| {
            let usr = store.root().join("usr");
            Self {
                cargo: usr.join("bin/cargo").into(),
                rustc: usr.join("bin/rustc").into(),
                sysroot: usr,
                host: String::new(),
                llvm: 0,
                store: Store::new(store.home().to_owned()),
                is_unpacked: true,
            }
        };
        if store.has(Part::Rust.name()) {
            match find(store).checked() {
                Ok(found) => return Ok(found),
                Err(error) => {
                    say(format!("{error}; it is unpacked again"));
                    store.clear()?;
                }
            }
        }
        let Some(apt) = apt else {
            return Err(no_toolchain(
                "the one in use lacks the component rust-src, and there is no apt-get to take Debian's from",
            ));
        };
        recent_enough(apt)?;
        let packages = Part::Rust.packages(0);
        store.provide(apt, Part::Rust.name(), &refs(&packages), || Ok(()))?;
        find(store).checked()
    }

    /// Asks the compiler for the versions; the answer shows that the compiler runs at all.
    fn checked(mut self) -> Result<Self, Error> {
        for file in [&self.cargo, &self.rustc] {
            if self.is_unpacked && !Path::new(file).is_file() {
                return Err(Error::Incomplete {
                    path: file.into(),
                    store: self.store.home().to_owned(),
                });
            }
        }
        if self.is_unpacked && !has_sources(&self.sysroot) {
            return Err(Error::Incomplete {
                path: sources(&self.sysroot),
                store: self.store.home().to_owned(),
            });
        }
        let mut ask = Command::new(&self.rustc);
        self.environment(&mut ask);
        let text = process::output_with_messages(ask.arg("-vV"))?;
        let (release, llvm) =
            versions(&text).ok_or_else(|| no_toolchain("its rustc does not tell its version"))?;
        if release < version(NEEDED).unwrap_or_default() {
            return Err(no_toolchain(&format!(
                "its rustc is {}.{}",
                release.0, release.1
            )));
        }
        self.llvm = llvm;
        self.host = field(&text, "host: ").unwrap_or_default().to_owned();
        Ok(self)
    }

    fn provide_part(&self, apt: Option<&Apt>, part: Part) -> Result<(), Error> {
        let name = part.name();
        if part == Part::Rust || self.store.has(name) {
            return Ok(());
        }
        if matches!(part, Part::Sanitizers | Part::WasmLinker) && !self.is_unpacked {
            // rustup's toolchains bring the part.
            return Ok(());
        }
        if let Some((program, package)) = part.program() {
            if process::in_path(program) {
                return Ok(());
            }
            if apt.is_none() {
                return Err(Error::NoTool {
                    what: name,
                    program,
                    package,
                });
            }
        }
        let Some(apt) = apt else {
            return Err(no_toolchain(
                "there is no apt-get to take the sanitizers' libraries from",
            ));
        };
        let packages = part.packages(self.llvm);
        let finish = || part.finish(&self.store.root(), self.llvm);
        self.store.provide(apt, name, &refs(&packages), finish)
    }

    /// A call of the toolchain's cargo in the root of the repository, with the whole environment for building the standard
    /// library, except the target and what to build.
    pub fn cargo(&self, workspace: &Workspace, target_dir: &str) -> Command {
        let mut command = workspace.command_at(self.cargo.clone());
        self.environment(&mut command);
        command
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_DIR", workspace.toolchain_target(target_dir));
        command
    }

    /// Has a call of [`Toolchain::cargo`] build for `triple`: with the standard library of the toolchain, or with the library's
    /// `parts` built along.
    pub fn build_for(&self, command: &mut Command, triple: &str, parts: &str) {
        command.args(["--target", triple]);
        if has_std(&self.sysroot, triple) {
            // Build scripts asking for the variable would take the compiler for a compiler with unstable features.
            command.env_remove("RUSTC_BOOTSTRAP");
        } else {
            command.arg(format!("-Zbuild-std={parts}"));
        }
    }

    /// Lets a command find the unpacked programs and libraries.
    pub fn environment(&self, command: &mut Command) {
        let usr = self.store.root().join("usr");
        let common = usr.join(format!("lib/{}-linux-gnu", env::consts::ARCH));
        // Chromium needs the sound library to start, and the sound library looks for a part of its own in the place of an
        // installed part.
        let mut libraries = vec![common.clone(), common.join("pulseaudio")];
        if self.is_unpacked {
            libraries.push(usr.join(format!("lib/llvm-{}/lib", self.llvm)));
        }
        match self.is_unpacked {
            true => prepend(command, "LD_LIBRARY_PATH", &libraries),
            // The user's own toolchain and programs find their own libraries first.
            false => append(command, "LD_LIBRARY_PATH", &libraries),
        }
        prepend(command, "PATH", &[usr.join("bin")]);
    }

    /// The folder of the unpacked packages, laid out like the root of a system.
    pub fn root(&self) -> PathBuf {
        self.store.root()
    }

    /// A program of a part: the system's where `PATH` has the program, else the unpacked.
    pub fn tool(&self, program: &str) -> PathBuf {
        let unpacked = self.store.root().join("usr/bin").join(program);
        if process::in_path(program) || !unpacked.is_file() {
            program.into()
        } else {
            unpacked
        }
    }

    /// The linker of WebAssembly from [`Part::WasmLinker`]; `None` where rustc has a linker of its own.
    pub fn wasm_linker(&self) -> Option<PathBuf> {
        let program = format!("usr/bin/wasm-ld-{}", self.llvm);
        self.is_unpacked.then(|| self.store.root().join(program))
    }

    /// The target where the compiler itself runs.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The compiler's release and origin, for people.
    pub fn describe(&self) -> String {
        let origin = if self.is_unpacked {
            "Debian's, unpacked"
        } else {
            "the one in use"
        };
        format!("{origin} in {}", self.sysroot.display())
    }
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn no_toolchain(reason: &str) -> Error {
    Error::NoToolchain {
        reason: reason.to_owned(),
        needed: NEEDED,
    }
}

fn sources(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library/Cargo.toml")
}

/// Whether the standard library of a target comes with the toolchain.
fn has_std(sysroot: &Path, triple: &str) -> bool {
    let libraries = sysroot.join("lib/rustlib").join(triple).join("lib");
    libraries.is_dir()
}

fn has_sources(sysroot: &Path) -> bool {
    sources(sysroot).is_file()
}

/// Fails if Debian's Rust is too old, also with fresh package lists.
fn recent_enough(apt: &Apt) -> Result<(), Error> {
    let look = || -> Result<Result<(), String>, Error> {
        let found = apt.version(RUSTC_PACKAGE)?;
        Ok(match found {
            None => Err(format!(
                "the one in use lacks the component rust-src, and this distribution has no {RUSTC_PACKAGE}"
            )),
            Some(found) if version(&found) >= version(NEEDED) => Ok(()),
            Some(found) => Err(format!("{RUSTC_PACKAGE} is {found}")),
        })
    };
    if look()?.is_ok() {
        return Ok(());
    }
    say("the package lists have no Rust that is recent enough; they are refreshed");
    apt.update()?;
    look()?.map_err(|reason| no_toolchain(&reason))
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The release and the major version of LLVM, from `rustc -vV`.
fn versions(text: &str) -> Option<(Version, u32)> {
    let (llvm, _) = version(field(text, "LLVM version: ")?)?;
    Some((version(field(text, "release: ")?)?, llvm))
}

fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key))
}

fn prepend(command: &mut Command, name: &str, dirs: &[PathBuf]) {
    join(command, name, |before| [dirs, before].concat());
}

/// As [`prepend`], behind the directories already there.
fn append(command: &mut Command, name: &str, dirs: &[PathBuf]) {
    join(command, name, |before| [before, dirs].concat());
}

fn join(command: &mut Command, name: &str, with: impl FnOnce(&[PathBuf]) -> Vec<PathBuf>) {
    let set = command
        .get_envs()
        .find_map(|(key, value)| (key == OsStr::new(name)).then_some(value));
    let before = set
        .map_or_else(|| env::var_os(name), |value| value.map(OsStr::to_owned))
        .unwrap_or_default();
    let before: Vec<_> = env::split_paths(&before)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    // Fails for a directory with a separator in the name: no such list could name the directory.
    if let Ok(joined) = env::join_paths(with(&before)) {
        command.env(name, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_compilers_and_packages() {
        let text = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(versions(text), Some(((1, 96), 22)));
        assert_eq!(versions("rustc 1.96.0"), None);
        assert_eq!(version("1.96.0+dfsg1-1~deb12u2"), Some((1, 96)));
        assert_eq!(version("1.85"), Some((1, 85)));
        assert_eq!(version("unknown"), None);
        assert!(version(NEEDED).is_some());
    }

    #[test]
    fn a_toolchain_will_do_that_has_the_sources_or_every_target() {
        let sysroot = std::env::temp_dir().join(format!("xtask-std-{}", std::process::id()));
        let make = |path: &str| std::fs::create_dir_all(sysroot.join(path)).unwrap();
        make("lib/rustlib/arm/lib");
        assert!(Std::For(&[]).is_in(&sysroot) && Std::For(&["arm"]).is_in(&sysroot));
        assert!(!Std::For(&["arm", "vax"]).is_in(&sysroot) && !Std::Sources.is_in(&sysroot));
        make("lib/rustlib/src/rust/library");
        std::fs::write(sources(&sysroot), "").unwrap();
        assert!(Std::For(&["arm", "vax"]).is_in(&sysroot) && Std::Sources.is_in(&sysroot));
        std::fs::remove_dir_all(&sysroot).unwrap();
    }

    #[test]
    fn directories_come_before_or_behind_what_is_there() {
        let mut command = Command::new("x");
        command.env("LIST", "/c");
        prepend(&mut command, "LIST", &["/a".into(), "/b".into()]);
        let list = command.get_envs().next().unwrap().1.unwrap();
        let expected = env::join_paths(["/a", "/b", "/c"]).unwrap();
        assert_eq!(list, expected);
        append(&mut command, "LIST", &["/d".into()]);
        let list = command.get_envs().next().unwrap().1.unwrap();
        let expected = env::join_paths(["/a", "/b", "/c", "/d"]).unwrap();
        assert_eq!(list, expected);
        prepend(&mut command, "NO_SUCH_LIST_IS_SET", &["/a".into()]);
        assert_eq!(command.get_envs().last().unwrap().1.unwrap(), "/a");
    }
}
