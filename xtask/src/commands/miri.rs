//! `cargo xtask miri`: tests of the host's logic in Miri, an interpreter of Rust that finds undefined behaviour and data races.
//!
//! Miri runs no code of other languages, so no driver and no compiled kernel: only rooms without a device run here. Miri takes
//! some thousand times as long as a processor, so tests of many cases have few under `cfg!(miri)`, and others are left out by
//! name ([`LEFT_OUT`]). Miri's own clock and random numbers make each run like the last. The pinned nightly toolchain and Miri
//! come from rustup, which adds missing components; Miri compiles the standard library once.

use std::ffi::OsString;
use std::process::Command;

use crate::error::Error;
use crate::nightly;
use crate::process::{self, step};
use crate::workspace::Workspace;

/// Tests of one package.
struct Group {
    package: &'static str,
    features: &'static [&'static str],
    /// Parts of the names of the tests.
    names: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    // Without a backend: fewer dependencies to compile once more, and none could run.
    Group {
        package: "tombolo",
        features: &["--no-default-features"],
        names: &[
            // The allocator of addresses.
            "addresses::region",
            // The planner of copies, and sets of ranges.
            "memory::migrate",
            "memory::ranges",
            "memory::places",
            // Ports and their seals.
            "rpc::port",
            // Format strings, values and records.
            "print::",
        ],
    },
    // The order of submissions, and of waiting threads.
    Group {
        package: "tombolo-cpu",
        features: &[],
        names: &["exec::timeline"],
    },
];

/// Parts of the names of tests left out, each with the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    ("loom", "loom switches stacks in assembler"),
    (
        "rpc::port::model",
        "searches every interleaving of a model, which has no unsafe code and no threads",
    ),
];

/// Random cases of each test without a number of its own.
const CASES: &str = "4";

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// Only tests of the library with these parts in their names: `-- memory::ranges`
    #[arg(last = true)]
    names: Vec<OsString>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    if !args.names.is_empty() {
        let mut command = miri(workspace, &GROUPS[0])?;
        return process::run(command.args(&args.names));
    }
    for group in GROUPS {
        let mut command = miri(workspace, group)?;
        command.args(group.names);
        for (name, _) in LEFT_OUT {
            command.args(["--skip", name]);
        }
        step(&format!("{} in Miri", group.package), || {
            process::run(&mut command)
        })?;
    }
    Ok(())
}

/// A call of the tests of a package in Miri, to which names of tests are added.
fn miri(workspace: &Workspace, group: &Group) -> Result<Command, Error> {
    let mut command = nightly::pinned_cargo(workspace, &["miri", "rust-src"])?;
    command.args(["miri", "test", "--locked", "--lib"]);
    command.args(["--package", group.package]);
    command.args(group.features).arg("--");
    // Random tests look for their number of cases, and else for files of earlier failures, but Miri keeps files from programs.
    command.env(
        "MIRIFLAGS",
        "-Zmiri-env-forward=PROPTEST_CASES -Zmiri-env-forward=PROPTEST_DISABLE_FAILURE_PERSISTENCE",
    );
    command.env("PROPTEST_CASES", CASES);
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A renamed room would have no test in Miri, and nobody would be told.
    #[test]
    fn rooms_with_these_names_exist() {
        let root = Workspace::find().unwrap().root().to_owned();
        let folders = [("tombolo", "src"), ("tombolo-cpu", "cpu/src")];
        for group in GROUPS {
            let (_, folder) = (folders.iter())
                .find(|(package, _)| *package == group.package)
                .unwrap();
            for name in group.names {
                let room = root.join(folder).join(name.replace("::", "/"));
                let exists = room.is_dir() || room.with_extension("rs").is_file();
                assert!(exists, "{name}");
            }
        }
    }
}
