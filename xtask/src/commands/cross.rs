//! `cargo xtask cross`: whether everything compiles, without a warning, for systems that this machine is not.
//!
//! By default each target is looked at once, with all features: library, examples and tests, as far as the target has
//! them. That is what CI runs. `--full` adds the library with each feature alone and with none, which multiplies the
//! time and finds what the other systems' own developers would. `--run` runs the tests that need no device: those for
//! Windows under Wine, those for ARM under QEMU.

use std::process::Command;

use crate::error::Error;
use crate::process::{self, say, step};
use crate::toolchain::{Part, Toolchain};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Only these targets
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// Also the library with each feature alone, and with none
    #[arg(long)]
    full: bool,
    /// Also run the tests that need no device, where there is a program that can: Wine for Windows, QEMU for ARM
    #[arg(long)]
    run: bool,
}

/// Where the outputs go, below the build directory.
const TARGET_DIR: &str = "cross";

/// A system to build for.
struct Target {
    triple: &'static str,
    /// The parts of the standard library that are built.
    std: &'static str,
    /// What cargo is asked for: which of library, examples, tests and benches.
    what: &'static [&'static str],
    /// Every feature that means something there.
    features: &'static str,
    /// What rustc needs to know about the target.
    parts: &'static [Part],
    /// How its programs are run here.
    runner: Option<Runner>,
}

const UNWINDING: &str = "std,panic_abort,panic_unwind";

const TARGETS: &[Target] = &[
    Target {
        triple: "aarch64-apple-darwin",
        std: UNWINDING,
        what: &["--all-targets"],
        features: "vulkan,metal,gles,embedded",
        parts: &[],
        runner: None,
    },
    Target {
        triple: "x86_64-pc-windows-gnu",
        std: UNWINDING,
        what: &["--all-targets"],
        features: "vulkan,dx12,gles,embedded",
        parts: &[Part::WindowsImports],
        runner: Some(Runner::Wine),
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        std: UNWINDING,
        what: &["--all-targets"],
        features: "vulkan,gles,embedded,tracing,trace",
        parts: &[],
        runner: Some(Runner::Qemu),
    },
    Target {
        triple: "aarch64-linux-android",
        std: UNWINDING,
        what: &["--lib", "--examples"],
        features: "vulkan,gles",
        parts: &[],
        runner: None,
    },
    Target {
        triple: "wasm32-unknown-unknown",
        std: "std,panic_abort",
        what: &["--lib"],
        features: "webgpu",
        parts: &[],
        runner: None,
    },
];

/// What runs another system's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    /// Windows' on Linux.
    Wine,
    /// ARM's on other processors.
    Qemu,
}

impl Runner {
    /// What linking and running takes.
    fn parts(self) -> &'static [Part] {
        match self {
            Self::Wine => &[Part::WindowsImports, Part::WindowsLinker, Part::Wine],
            Self::Qemu => &[Part::ArmLinker, Part::Qemu],
        }
    }

    /// Tells cargo how to link for the target and how to run what comes out.
    fn configure(self, command: &mut Command, triple: &str, toolchain: &Toolchain) {
        let variable = |name: &str| {
            format!(
                "CARGO_TARGET_{}_{name}",
                triple.to_uppercase().replace('-', "_")
            )
        };
        let root = toolchain.root();
        match self {
            Self::Wine => {
                command
                    .env(variable("LINKER"), "x86_64-w64-mingw32-gcc")
                    .env(variable("RUNNER"), "wine")
                    // Nothing of the user's own Wine is touched, and nobody is asked whether to install Gecko.
                    .env("WINEPREFIX", root.with_file_name("wine-prefix"))
                    .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
                    .env("WINEDEBUG", "-all");
            }
            Self::Qemu => {
                command
                    .env(variable("LINKER"), "aarch64-linux-gnu-gcc")
                    .env(variable("RUNNER"), "qemu-aarch64-static");
                // Where the compiler and the C library were unpacked and not installed, both look for files in `/usr`.
                if root.join("usr/aarch64-linux-gnu").is_dir() {
                    command
                        .env(
                            variable("RUSTFLAGS"),
                            format!("-Clink-arg=--sysroot={}", root.display()),
                        )
                        .env("QEMU_LD_PREFIX", root.join("usr/aarch64-linux-gnu"));
                }
            }
        }
    }
}

/// A crate's library with some of its features, as cargo is told.
#[derive(Debug, PartialEq, Eq)]
struct Look<'a> {
    title: String,
    what: &'a [&'a str],
    features: &'a str,
}

impl Target {
    /// What is looked at: everything with all features, and for the full matrix the library with each and with none.
    fn looks(&self, full: bool) -> Vec<Look<'_>> {
        let mut looks = vec![Look {
            title: self.triple.to_owned(),
            what: self.what,
            features: self.features,
        }];
        let alone = [
            "", "vulkan", "metal", "dx12", "gles", "webgpu", "embedded", "tracing", "trace",
        ];
        let others = alone
            .iter()
            .filter(|alone| full && **alone != self.features);
        looks.extend(others.map(|&features| Look {
            title: match features {
                "" => format!("{} without a backend", self.triple),
                backend => format!("{} with {backend} alone", self.triple),
            },
            what: &["--lib"],
            features,
        }));
        looks
    }

    /// clippy checks what it lints, and so is all that is run.
    fn clippy(&self, workspace: &Workspace, toolchain: &Toolchain, look: &Look<'_>) -> Command {
        let mut clippy = toolchain.cargo(workspace, TARGET_DIR);
        clippy.args(["clippy", "--quiet", "--locked", "--package", "tombolo"]);
        clippy.args(look.what).args(["--target", self.triple]);
        clippy.arg(format!("-Zbuild-std={}", self.std));
        clippy.args(["--no-default-features", "--features", look.features]);
        // Half of what is compiled is compiled to be run once, by cargo: build scripts and macros.
        clippy.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
        clippy.args(["--", "-D", "warnings"]);
        // Takes the standard library's own `thread_local!` for the user's on systems without native thread locals.
        clippy.args(["-A", "clippy::missing-const-for-thread-local"]);
        clippy
    }

    /// The tests that need no device, with the features that the library has by itself.
    fn tests(&self, workspace: &Workspace, toolchain: &Toolchain, runner: Runner) -> Command {
        let mut test = toolchain.cargo(workspace, TARGET_DIR);
        test.args(["test", "--locked", "--package", "tombolo", "--lib"]);
        test.args(["--target", self.triple]);
        test.arg(format!("-Zbuild-std={}", self.std));
        runner.configure(&mut test, self.triple, toolchain);
        test
    }
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let targets = chosen(&args.target)?;
    let mut parts: Vec<Part> = targets
        .iter()
        .flat_map(|target| target.parts)
        .copied()
        .collect();
    let runners = targets.iter().filter_map(|target| target.runner);
    if args.run {
        parts.extend(runners.flat_map(Runner::parts));
    }
    let toolchain = Toolchain::provide(workspace, &parts)?;
    say(format!(
        "builds for other systems use {}",
        toolchain.describe()
    ));
    for target in targets {
        for look in target.looks(args.full) {
            step(&look.title, || {
                process::run(&mut target.clippy(workspace, &toolchain, &look))
            })?;
        }
        if let Some(runner) = target.runner.filter(|_| args.run) {
            step(&format!("{} under {runner:?}", target.triple), || {
                process::run(&mut target.tests(workspace, &toolchain, runner))
            })?;
        }
    }
    Ok(())
}

/// The targets of these names, all if there are none.
fn chosen(names: &[String]) -> Result<Vec<&'static Target>, Error> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        let found = TARGETS.iter().find(|target| target.triple == name);
        found.ok_or_else(|| Error::UnknownTarget {
            name: name.clone(),
            known: TARGETS
                .iter()
                .map(|target| target.triple)
                .collect::<Vec<_>>()
                .join(", "),
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_looked_at_alone_and_with_all_others() {
        let manifest = std::fs::read_to_string(Workspace::find().unwrap().manifest()).unwrap();
        let (_, features) = manifest.split_once("\n[features]\n").unwrap();
        let (features, _) = features.split_once("\n\n").unwrap();
        let features = features
            .lines()
            .filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
        for feature in features.filter(|name| *name != "default") {
            for target in TARGETS {
                let looks = target.looks(true);
                assert!(
                    looks.iter().any(|look| look.features == feature),
                    "{feature}"
                );
                assert!(looks.iter().any(|look| look.features.is_empty()));
            }
            let together = |target: &Target| target.features.split(',').any(|name| name == feature);
            assert!(TARGETS.iter().any(together), "no target has {feature}");
        }
    }

    #[test]
    fn without_the_full_matrix_each_target_is_looked_at_once() {
        for target in TARGETS {
            let looks = target.looks(false);
            assert_eq!(looks.len(), 1);
            assert_eq!(
                (looks[0].what, looks[0].features),
                (target.what, target.features)
            );
        }
    }

    #[test]
    fn targets_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), TARGETS.len());
        let one = chosen(&["wasm32-unknown-unknown".to_owned()]).unwrap();
        assert_eq!(one.len(), 1);
        let error = chosen(&["vax".to_owned()]).err().unwrap().to_string();
        assert!(
            error.contains("vax") && error.contains("aarch64-apple-darwin"),
            "{error}"
        );
    }
}
