//! `cargo xtask bench`: the benches, on every adapter of the machine, and the table of BENCHMARKS.md.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::commands::test;
use crate::env::AdapterEnv;
use crate::error::Error;
use crate::process::{self, say, step};
use crate::provide::Switches;
use crate::rows::machines::{self, Machine};
use crate::rows::{self, Row, behind};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    switches: Switches,
    /// Put the rows into the table of BENCHMARKS.md; by default they are printed
    #[arg(long)]
    write: bool,
    /// Measure nothing: make the table of rows behind their goals anew from the rows of BENCHMARKS.md, as after a merge
    #[arg(long, conflicts_with_all = ["write", "benches"])]
    renew: bool,
    /// The benches to run; all of them where none is named
    benches: Vec<String>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    if args.renew {
        return change(&workspace.benchmarks(), |page| behind::renew(&page));
    }
    let wanted = chosen(benches(workspace)?, &args.benches)?;
    let provided = test::provide_for_tests(workspace, &args.switches)?;
    let env = test::environment(workspace, provided.as_ref())?;
    let today = date(SystemTime::now());
    let machine = machine(workspace, &env, &today, args.write)?;
    let mut rows = Vec::new();
    for Bench {
        name: bench,
        package,
    } in &wanted
    {
        let output = step(&format!("bench {bench}"), || {
            let mut command = workspace.cargo();
            command.args(["bench", "--package", package, "--bench", bench]);
            env.apply(&mut command);
            process::output_with_messages(&mut command)
        })?;
        rows.extend(printed(bench, &today, &output)?);
    }
    report(workspace, &rows, machine.as_ref())
}

/// What this machine is, where rows are to be written; before anything is measured, since a failure afterwards would lose the rows.
pub fn machine(
    workspace: &Workspace,
    env: &AdapterEnv,
    today: &str,
    writes: bool,
) -> Result<Option<Machine>, Error> {
    let read = || step("the machine", || Machine::read(workspace, env, today));
    writes.then(read).transpose()
}

/// Prints a bench's output and returns the rows; fails without any row.
pub fn printed(bench: &str, today: &str, output: &str) -> Result<Vec<Row>, Error> {
    let found = rows_of(bench, today, output);
    if found.is_empty() {
        return Err(Error::NoRows {
            bench: bench.to_owned(),
        });
    }
    print!("{output}");
    Ok(found)
}

/// Names the rows that miss their goals, and puts all rows into the table where there is a machine to name beside the rows.
pub fn report(workspace: &Workspace, rows: &[Row], machine: Option<&Machine>) -> Result<(), Error> {
    for row in rows.iter().filter(|row| row.reaches_goal() == Some(false)) {
        say(format!(
            "goal missed: {} {} on {}: {}, goal {}",
            row.bench, row.name, row.adapter, row.median, row.goal
        ));
    }
    match machine {
        Some(machine) => write(&workspace.benchmarks(), rows, machine),
        None => Ok(()),
    }
}

fn rows_of(bench: &str, today: &str, output: &str) -> Vec<Row> {
    let parse = |line| Row::parse(bench, today, line);
    output.lines().filter_map(parse).collect()
}

/// Puts the rows and the machine into the page.
fn write(path: &Path, rows: &[Row], machine: &Machine) -> Result<(), Error> {
    change(path, |page| {
        let page = rows::merge(&page, rows)?;
        machines::merge(&behind::renew(&page)?, machine)
    })
}

/// Changes the page, and names the rows that are behind without a reason.
fn change(path: &Path, change: impl FnOnce(String) -> Option<String>) -> Result<(), Error> {
    let page = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let page = change(page).ok_or_else(|| Error::NoTable { path: path.into() })?;
    for line in behind::behind(&page).unwrap_or_default() {
        if line.why.is_empty() {
            say(format!(
                "{}: {} on {} is behind its goal; write the reason into its line",
                path.display(),
                line.row.name,
                line.row.adapter
            ));
        }
    }
    fs::write(path, page).map_err(Error::io("write", path))
}

/// A bench: the name of the bench's rows in the table, and the package of the bench.
#[derive(Clone)]
struct Bench {
    name: String,
    package: &'static str,
}

/// The benches with the given names, or all benches.
fn chosen(known: Vec<Bench>, names: &[String]) -> Result<Vec<Bench>, Error> {
    if names.is_empty() {
        return Ok(known);
    }
    let find = |name: &String| {
        let found = known.iter().find(|bench| bench.name == *name);
        found.cloned().ok_or_else(|| Error::UnknownBench {
            name: name.clone(),
            known: (known.iter().map(|bench| bench.name.as_str()))
                .collect::<Vec<_>>()
                .join(", "),
        })
    };
    names.iter().map(find).collect()
}

/// The benches of all packages.
fn benches(workspace: &Workspace) -> Result<Vec<Bench>, Error> {
    let mut benches = Vec::new();
    for (folder, package) in workspace.packages_with_benches() {
        let names = names_in(&folder.join("benches"))?;
        benches.extend(names.into_iter().map(|name| Bench { name, package }));
    }
    Ok(benches)
}

/// The benches of a folder: files, and folders with a `main.rs`.
fn names_in(folder: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        let is_bench =
            path.join("main.rs").is_file() || path.extension().is_some_and(|e| e == "rs");
        if let Some(stem) = path.file_stem().filter(|_| is_bench) {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The day in UTC, as `2026-01-31` (the algorithm of Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub fn date(now: SystemTime) -> String {
    let seconds = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    // Years begin in March, so that the leap day is the last day of a year.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_bench_of_the_manifest_is_found_and_no_other() {
        let workspace = Workspace::find().unwrap();
        for (folder, _) in workspace.packages_with_benches() {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            let names = names_in(&folder.join("benches")).unwrap();
            for name in &names {
                assert!(
                    manifest.contains(&format!("[[bench]]\nname = \"{name}\"")),
                    "{name}"
                );
            }
            assert_eq!(manifest.matches("[[bench]]").count(), names.len());
        }
    }

    #[test]
    fn names_of_benches_are_looked_up_in_all_packages() {
        let known = || benches(&Workspace::find().unwrap()).unwrap();
        let found = chosen(known(), &["primitives".into(), "launch".into()]).unwrap();
        let packages: Vec<_> = found.iter().map(|bench| bench.package).collect();
        assert_eq!(packages, ["tombolo-kernels", "tombolo"]);
        let unknown = chosen(known(), &["lunch".into()]);
        assert!(matches!(unknown, Err(Error::UnknownBench { name, .. }) if name == "lunch"));
    }

    #[test]
    fn the_page_has_a_table() {
        let workspace = Workspace::find().unwrap();
        let page = fs::read_to_string(workspace.benchmarks()).unwrap();
        // Writing nothing changes nothing: the table of today already has the form of a written table.
        assert_eq!(rows::merge(&page, &[]).as_deref(), Some(page.as_str()));
    }

    #[test]
    fn rows_are_found_among_other_lines() {
        let output =
            "llvmpipe\nratio a/llvmpipe = 1.0 (0.9..1.1) goal <= 1.1\n\ntime b = 2 (1..3)\n";
        assert_eq!(rows_of("launch", "today", output).len(), 2);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01");
        assert_eq!(at(951_782_400), "2000-02-29");
        assert_eq!(at(951_868_800), "2000-03-01");
        assert_eq!(at(1_767_225_599), "2025-12-31");
        assert_eq!(at(1_767_225_600), "2026-01-01");
    }
}
