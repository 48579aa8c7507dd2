//! `cargo xtask coverage`: which lines of the host's code the tests without a device run, by cargo-llvm-cov.
//!
//! The tests beside the code are run, compiled with counters: the library's, the CPU adapter's and the primitives'. Tests of
//! devices are left out: most of the time is spent in compiled kernels, and which of the host's lines run depends on the adapters
//! of the machine. So rooms whose code begins with a device have low figures here, and are no less tested. Lines of tests are no
//! part of the table. cargo-llvm-cov is used where installed, and built once below `target/` elsewhere; the compiler's own
//! readers of counters are the component `llvm-tools`, which rustup adds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::error::Error;
use crate::process::{self, say};
use crate::tools::Tool;
use crate::workspace::Workspace;

const TOOL: Tool = Tool {
    name: "cargo-llvm-cov",
    version: "0.9.1",
    install: &[],
};

/// Tests without a device, of the published crates.
const TESTS: &[&str] = &[
    "--package",
    "tombolo",
    "--package",
    "tombolo-cpu",
    "--package",
    "tombolo-kernels",
    "--lib",
];

/// Files whose lines are no code of the runtime: tests, models by which the code is judged, and packages for tests and tasks.
const LEFT_OUT: &str = r"(tests?[_a-z]*\.rs|_tests\.rs|/tests?/|/tests_[a-z]+/|/model(_[a-z]+)?\.rs|/model/|/xtask/|/cpu/reference/)";

/// The folders of sources, within which each folder is a room.
const SOURCES: [&str; 3] = ["cpu/src", "kernels/src", "src"];

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// Files with fewest covered lines to list, below the rooms
    #[arg(long, value_name = "N", default_value_t = 0)]
    files: usize,
    /// Passed on to `cargo llvm-cov` in place of the tests without a device: `-- --package tombolo --lib memory::`
    #[arg(last = true)]
    cargo: Vec<OsString>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    provide_readers(workspace)?;
    let program = TOOL.provide(workspace)?;
    let folder = workspace.coverage_dir();
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    let mut tests = llvm_cov(workspace, &program);
    tests.args(["--locked", "--no-report"]);
    match args.cargo.is_empty() {
        true => tests.args(TESTS),
        false => tests.args(&args.cargo),
    };
    say(format!("running `{}`", process::display(&tests)));
    process::run_aside(&mut tests)?;
    let mut pages = report(workspace, &program);
    process::run_aside(pages.args(["--html", "--output-dir"]).arg(&folder))?;
    let mut lines = report(workspace, &program);
    lines.args(["--lcov", "--output-path"]);
    process::run_aside(lines.arg(folder.join("lcov.info")))?;
    let mut sums = report(workspace, &program);
    let sums = process::output_with_messages(sums.args(["--json", "--summary-only"]))?;
    let files = files(&sums, workspace.root());
    if files.is_empty() {
        return Err(Error::NoCoverage);
    }
    let table = table(&files, args.files);
    let path = folder.join("rooms.txt");
    fs::write(&path, &table).map_err(Error::io("write", &path))?;
    print!("{table}");
    let page = folder.join("html/index.html");
    say(format!(
        "this table is {}, and every line {}",
        path.display(),
        page.display()
    ));
    Ok(())
}

fn llvm_cov(workspace: &Workspace, program: &Path) -> Command {
    let mut command = workspace.command_at(program.into());
    command.arg("llvm-cov");
    command.env("CARGO_TARGET_DIR", workspace.coverage_dir());
    command
}

/// A call that reads the counters of the tests.
fn report(workspace: &Workspace, program: &Path) -> Command {
    let mut command = llvm_cov(workspace, program);
    command.args(["report", "--ignore-filename-regex", LEFT_OUT]);
    command
}

/// Has the toolchain in use read its own counters. Without rustup the programs have to be named.
fn provide_readers(workspace: &Workspace) -> Result<(), Error> {
    let named = ["LLVM_COV", "LLVM_PROFDATA"];
    if named.iter().all(|name| std::env::var_os(name).is_some()) {
        return Ok(());
    }
    if !process::in_path(&format!("rustup{}", std::env::consts::EXE_SUFFIX)) {
        return Err(Error::NoLlvmTools);
    }
    let rustup = || workspace.command_at("rustup".into());
    let has = process::output(rustup().args(["component", "list", "--installed"]))?;
    if has.lines().any(|line| line.starts_with("llvm-tools")) {
        return Ok(());
    }
    say("rustup adds the component llvm-tools to the toolchain in use");
    process::run_aside(rustup().args(["component", "add", "llvm-tools"]))
}

/// Lines of code, and the lines that ran.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Lines {
    all: u64,
    ran: u64,
}

impl Lines {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.ran += other.ran;
    }

    fn percent(self) -> f64 {
        100.0 * self.ran as f64 / self.all.max(1) as f64
    }
}

/// The lines of each file of the sources, from the summary that llvm-cov exports as JSON: of each file the name, and in the
/// summary the count of lines and of covered lines.
fn files(summary: &str, root: &Path) -> BTreeMap<String, Lines> {
    let summary: Value = serde_json::from_str(summary).unwrap_or_default();
    let list = summary["data"][0]["files"].as_array();
    let line = |file: &Value| {
        let path = Path::new(file["filename"].as_str()?);
        let path = path.strip_prefix(root).ok()?;
        let parts: Vec<_> = (path.iter()).map(|part| part.to_string_lossy()).collect();
        let lines = &file["summary"]["lines"];
        let lines = Lines {
            all: lines["count"].as_u64()?,
            ran: lines["covered"].as_u64()?,
        };
        Some((parts.join("/"), lines))
    };
    list.into_iter().flatten().filter_map(line).collect()
}

/// The room of a file: the first folder, or the first module, below the folder of the sources.
fn room(file: &str) -> Option<String> {
    let in_source = |source: &&str| {
        file.strip_prefix(*source)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let source = SOURCES.into_iter().find(in_source)?;
    let (first, _) = file[source.len() + 1..]
        .split_once('/')
        .unwrap_or((&file[source.len() + 1..], ""));
    Some(format!("{source}/{}", first.trim_end_matches(".rs")))
}

/// A line for each room, one for each crate, and the `most` files with most lines that did not run.
fn table(files: &BTreeMap<String, Lines>, most: usize) -> String {
    let mut rooms: BTreeMap<String, Lines> = BTreeMap::new();
    let mut crates: BTreeMap<&str, Lines> = BTreeMap::new();
    for (file, lines) in files {
        let Some(room) = room(file) else { continue };
        rooms.entry(room).or_default().add(*lines);
        let source = SOURCES
            .into_iter()
            .find(|source| file.starts_with(*source))
            .unwrap_or_default();
        crates.entry(source).or_default().add(*lines);
    }
    let mut table = String::from("   %   lines that ran of lines\n");
    let mut row = |lines: Lines, name: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "{:>5.1} {:>6} of {:>6}  {name}",
            lines.percent(),
            lines.ran,
            lines.all
        );
    };
    for (room, lines) in &rooms {
        row(*lines, room);
    }
    for (source, lines) in &crates {
        row(*lines, &format!("{source}, all rooms"));
    }
    let mut least: Vec<_> = files.iter().collect();
    least.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.all - lines.ran));
    for (file, lines) in least.into_iter().take(most) {
        row(*lines, file);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = r#"{"data": [{"files": [
        {"filename": "/r/src/memory/heap/state.rs", "summary": {"lines": {"count": 30, "covered": 24}}},
        {"filename": "/r/src/memory/mod.rs", "summary": {"lines": {"count": 10, "covered": 6}}},
        {"filename": "/r/src/span.rs", "summary": {"lines": {"count": 4, "covered": 0}}},
        {"filename": "/r/cpu/src/hal/device.rs", "summary": {"lines": {"count": 8, "covered": 8}}},
        {"filename": "/elsewhere/src/lib.rs", "summary": {"lines": {"count": 9, "covered": 9}}}]}]}"#;

    #[test]
    fn lines_are_added_by_rooms_and_crates() {
        let files = files(SUMMARY, Path::new("/r"));
        assert_eq!(files.len(), 4);
        let table = table(&files, 1);
        let lines: Vec<&str> = table.lines().skip(1).map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "100.0      8 of      8  cpu/src/hal",
                "75.0     30 of     40  src/memory",
                "0.0      0 of      4  src/span",
                "100.0      8 of      8  cpu/src, all rooms",
                "68.2     30 of     44  src, all rooms",
                "80.0     24 of     30  src/memory/heap/state.rs",
            ]
        );
    }

    #[test]
    fn rooms_are_folders_and_modules_of_the_sources() {
        assert_eq!(room("src/rpc/port/layout.rs").unwrap(), "src/rpc");
        assert_eq!(room("src/rpc.rs").unwrap(), "src/rpc");
        assert_eq!(room("kernels/src/sort/mod.rs").unwrap(), "kernels/src/sort");
        assert_eq!(room("examples/tour/main.rs"), None);
        assert!(files("no JSON", Path::new("/r")).is_empty());
    }
}
