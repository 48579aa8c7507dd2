//! `cargo xtask cross`: whether everything compiles, without a warning, for other systems than the machine's own.
//!
//! By default each target is looked at once, with all features: library, examples and tests, as far as the target has any, and
//! on targets with the adapter on the CPU the adapter with its tests. CI runs the default. `--full` adds the library with each
//! feature alone and with none: the full matrix multiplies the time and finds the faults that the other systems' own developers
//! would find.
//!
//! `--run` runs tests, for Windows under Wine and for ARM under QEMU: the tests of the adapter on the CPU, with code for the
//! processor of QEMU and by the conventions of Wine; the tests without a device; and the suite of devices on the adapter on the
//! CPU. `--run-only` leaves out everything else, and the words behind `--` choose tests by their names.
//!
//! Quickest is a toolchain with the standard library of the targets (`rustup target add`); other toolchains build the library
//! first.

use std::process::Command;

use crate::error::Error;
use crate::process::{self, say, step};
use crate::toolchain::{Part, Std, Toolchain, wine};
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
    /// Also run the tests, where there is a program that can: Wine for Windows, QEMU for ARM
    #[arg(long)]
    run: bool,
    /// Run the tests and look at nothing
    #[arg(long, conflicts_with = "full")]
    run_only: bool,
    /// Part of the names of tests: only these are run. One, which is what the suite of devices takes
    #[arg(last = true)]
    filter: Option<String>,
}

/// Where the outputs go, below the build directory.
const TARGET_DIR: &str = "cross";

/// A system to build for.
struct Target {
    triple: &'static str,
    /// The parts of the standard library to build.
    std: &'static str,
    /// Cargo's selection among library, examples, tests and benches.
    what: &'static [&'static str],
    /// Every feature with a meaning on the target.
    features: &'static str,
    /// The parts of the toolchain that rustc needs for the target.
    parts: &'static [Part],
    /// How the target's programs are run here.
    runner: Option<Runner>,
}

/// The tests to run, in the packages with such tests: of the adapter on the CPU, without a device, and the suite of devices. In
/// one call: a call without any test of the standard harness builds the standard library without the library's own part of the
/// harness, and then everything again upon such a library.
const TESTS: &[&str] = &[
    "--lib", "--test", "compute", "--test", "texel", "--test", "gpu",
];

/// The packages of [`TESTS`].
const PACKAGES: &[&str] = &["--package", "tombolo-cpu", "--package", "tombolo"];

/// The packages that compile some thousand kernels in the tests; without optimization the compiling takes most of the time.
const COMPILERS: &[&str] = &["tombolo-cpu", "cranelift-codegen", "regalloc2", "naga"];

/// Other packages where the tests spend their time: optimized where each instruction is imitated by several.
const IMITATED: &[&str] = &[
    "tombolo",
    "cranelift-frontend",
    "wgpu",
    "wgpu-core",
    "wgpu-hal",
];

/// Tests that hold up a driver's own commands, or import memory into several drivers: no driver of the machine is a driver of
/// the other system.
const NEED_DRIVERS: &[&str] = &[
    "buffers::tests_loss",
    "heap::tests_drop",
    "import::tests",
    "a_copy_that_is_submitted_while_its_device_is_lost_has_ended_when_its_memory_is_the_programs_again",
];

/// Tests that start their own program, or another of the system's: QEMU runs a single program, and no program started from
/// there.
const STARTS_PROGRAMS: &[&str] = &[
    "files_are_full_at_the_limit_of_the_process",
    "threads_that_the_system_refuses_are_an_error",
    "ports_that_the_host_has_no_memory_for_are_refused",
    "tests_size::limited",
    "nothing_panics_while_everything_runs",
    "nothing_panics_with_copies",
    "the_environment_chooses",
    "memory_that_is_used_up_is_an_error",
    "a_process_without_tests_has_not_passed",
    "operations_on_one_word_lose_nothing_on_many_threads",
    "ports_are_not_lost_to_many_threads",
];

/// Modules of tests with functions of less than a microsecond, a time by which a kernel's thread knows quick functions: where a
/// processor is imitated, reading the clock takes as long.
const IS_QUICK: &[&str] = &["rpc_kernel_threads"];

/// Modules of models in loom. Loom ends the threads of a model by panics on stacks of its own: on Windows with MinGW's unwinder
/// such a panic finds no end, and ends the process. The models know of no system.
const UNWINDS_OTHER_STACKS: &[&str] = &["tests_loom"];

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

/// A runner of another system's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    /// Windows' on Linux.
    Wine,
    /// ARM's on other processors.
    Qemu,
}

impl Runner {
    /// The parts for linking and running.
    fn parts(self) -> &'static [Part] {
        match self {
            Self::Wine => &[Part::WindowsImports, Part::WindowsLinker, Part::Wine],
            Self::Qemu => &[Part::ArmLinker, Part::Qemu],
        }
    }

    /// Parts of the names of tests that cannot be run so.
    fn left_out(self) -> impl Iterator<Item = &'static str> {
        let others: &[&[&str]] = match self {
            Self::Wine => &[UNWINDS_OTHER_STACKS],
            Self::Qemu => &[STARTS_PROGRAMS, IS_QUICK],
        };
        let others = others.iter().copied().flatten();
        NEED_DRIVERS.iter().chain(others).copied()
    }

    /// Packages optimized besides [`COMPILERS`].
    fn optimized(self) -> &'static [&'static str] {
        match self {
            Self::Wine => &[],
            Self::Qemu => IMITATED,
        }
    }

    /// Makes stand-ins for the libraries that the runner lacks.
    fn prepare(self, toolchain: &Toolchain) -> Result<(), Error> {
        match self {
            Self::Wine => wine::build_stand_ins(toolchain),
            Self::Qemu => Ok(()),
        }
    }

    /// Tells cargo how to link for the target and how to run the resulting programs.
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
                // Not by a link among the programs: Wine looks for its server and libraries from the place of the call.
                let unpacked = root.join("usr/lib/wine/wine64");
                let program = match unpacked.is_file() {
                    true => unpacked,
                    false => "wine".into(),
                };
                command
                    .env(variable("LINKER"), "x86_64-w64-mingw32-gcc")
                    .env(variable("RUNNER"), program)
                    .env("WINEPATH", wine::path(&wine::stand_ins(toolchain)))
                    // Nothing of the user's own Wine is touched, and nobody is asked whether to install Gecko. Wine's own
                    // Direct3D and Vulkan are left out: both lead to missing drivers, after more than a second for each
                    // instance of wgpu.
                    .env("WINEPREFIX", root.with_file_name("wine-prefix"))
                    .env("WINEDLLOVERRIDES", "mscoree,mshtml,d3d12,vulkan-1=")
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

/// A crate with some of its features, as cargo is told.
#[derive(Debug, PartialEq, Eq)]
struct Look<'a> {
    title: String,
    package: &'static str,
    what: &'a [&'a str],
    features: &'a str,
}

impl Target {
    /// Whether a feature has a meaning on the target.
    fn has(&self, feature: &str) -> bool {
        self.features.split(',').any(|name| name == feature)
    }

    /// The crates to look at: everything with all features, and for the full matrix the library with each and with none.
    fn looks(&self, full: bool) -> Vec<Look<'_>> {
        let mut looks = vec![Look {
            title: self.triple.to_owned(),
            package: "tombolo",
            what: self.what,
            features: self.features,
        }];
        if self.has("embedded") {
            looks.push(Look {
                title: format!("{}: the adapter on the CPU", self.triple),
                package: "tombolo-cpu",
                what: &["--all-targets"],
                features: "",
            });
        }
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
            package: "tombolo",
            what: &["--lib"],
            features,
        }));
        looks
    }

    /// clippy checks the linted code, too, so clippy alone is run.
    fn clippy(&self, workspace: &Workspace, toolchain: &Toolchain, look: &Look<'_>) -> Command {
        let mut clippy = cheap(toolchain.cargo(workspace, TARGET_DIR));
        clippy.args(["clippy", "--quiet", "--locked", "--package", look.package]);
        clippy.args(look.what);
        toolchain.build_for(&mut clippy, self.triple, self.std);
        clippy.args(["--no-default-features", "--features", look.features]);
        // Half of the compiled code is compiled for cargo to run once: build scripts and macros.
        clippy.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
        clippy.args(["--", "-D", "warnings"]);
        // Takes the standard library's own `thread_local!` for the user's on systems without native thread locals.
        clippy.args(["-A", "clippy::missing-const-for-thread-local"]);
        clippy
    }

    /// The tests, with the library's own choice of features. A failing test keeps no other from being run.
    fn tests(
        &self,
        workspace: &Workspace,
        toolchain: &Toolchain,
        runner: Runner,
        filter: Option<&str>,
    ) -> Command {
        let mut test = cheap(toolchain.cargo(workspace, TARGET_DIR));
        test.args(["test", "--locked", "--no-fail-fast"])
            .args(PACKAGES)
            .args(TESTS);
        toolchain.build_for(&mut test, self.triple, self.std);
        runner.configure(&mut test, self.triple, toolchain);
        test.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
        for package in COMPILERS.iter().chain(runner.optimized()) {
            let optimized = format!("profile.dev.package.{package}.opt-level=1");
            test.args(["--config", &optimized]);
        }
        // No driver of the machine is a driver of the other system.
        test.env("WGPU_BACKEND", "noop");
        test.arg("--").args(filter);
        for name in runner.left_out() {
            test.args(["--skip", name]);
        }
        test
    }
}

/// Without debug information and incremental compilation: both make builds slow and large, and nobody here uses either.
fn cheap(mut command: Command) -> Command {
    command
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0");
    command
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
    let runs = args.run || args.run_only;
    if runs {
        parts.extend(runners.flat_map(Runner::parts));
    }
    let triples: Vec<&str> = targets.iter().map(|target| target.triple).collect();
    let toolchain = Toolchain::provide(workspace, Std::For(&triples), &parts)?;
    say(format!(
        "builds for other systems use {}",
        toolchain.describe()
    ));
    for target in targets {
        let looks = match args.run_only {
            true => Vec::new(),
            false => target.looks(args.full),
        };
        for look in looks {
            step(&look.title, || {
                process::run(&mut target.clippy(workspace, &toolchain, &look))
            })?;
        }
        let Some(runner) = target.runner.filter(|_| runs) else {
            continue;
        };
        runner.prepare(&toolchain)?;
        let title = format!("the tests for {} under {runner:?}", target.triple);
        let mut tests = target.tests(workspace, &toolchain, runner, args.filter.as_deref());
        step(&title, || process::run(&mut tests))?;
    }
    Ok(())
}

/// The targets of the given names, all targets without names.
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
                let mut looks = target.looks(true);
                looks.retain(|look| look.package == "tombolo");
                assert!(
                    looks.iter().any(|look| look.features == feature),
                    "{feature}"
                );
                assert!(looks.iter().any(|look| look.features.is_empty()));
            }
            let together = TARGETS.iter().any(|target| target.has(feature));
            assert!(together, "no target has {feature}");
        }
    }

    #[test]
    fn without_the_full_matrix_each_crate_is_looked_at_once() {
        for target in TARGETS {
            let looks = target.looks(false);
            assert_eq!(
                (looks[0].package, looks[0].what, looks[0].features),
                ("tombolo", target.what, target.features)
            );
            let others: Vec<&str> = looks[1..].iter().map(|look| look.package).collect();
            let embedded = target.features.contains("embedded");
            assert_eq!(others, ["tombolo-cpu"][..usize::from(embedded)]);
        }
    }

    /// A test left out under a wrong name would be run.
    #[test]
    fn tests_that_are_left_out_exist() {
        fn texts(dir: &std::path::Path, all: &mut String) {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                match entry.path() {
                    path if path.is_dir() => texts(&path, all),
                    path => all.push_str(&std::fs::read_to_string(path).unwrap_or_default()),
                }
            }
        }
        let workspace = Workspace::find().unwrap();
        let mut all = String::new();
        for dir in ["src", "tests/gpu", "cpu/src", "cpu/tests"] {
            texts(&workspace.root().join(dir), &mut all);
        }
        for name in Runner::Qemu.left_out().chain(Runner::Wine.left_out()) {
            let is_there = |part: &str| {
                ["fn ", "mod "].iter().any(|kind| {
                    let begins = |end: &str| all.contains(&format!("{kind}{part}{end}"));
                    [" ", "(", ";"].into_iter().any(begins)
                })
            };
            assert!(name.split("::").all(is_there), "{name}");
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
