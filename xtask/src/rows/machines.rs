//! The machines that wrote rows, as a table of BENCHMARKS.md: for each day the processor, the compiler and the adapters' drivers.
//!
//! Rows of another machine keep the day of their measurement, and the line of that day and machine stays as long as a row of
//! the day is in the table of rows.

use std::fs;
use std::thread;

use serde_json::Value;

use super::{cells, of_page, put_between};
use crate::env::AdapterEnv;
use crate::error::Error;
use crate::process;
use crate::workspace::Workspace;

/// Stands before the table in BENCHMARKS.md.
pub const BEGIN: &str = "<!-- machines: begin -->";
/// Stands behind the table.
pub const END: &str = "<!-- machines: end -->";

const HEAD: &str = "| measured | processors | compiler | adapters |\n\
                    | --- | --- | --- | --- |\n";

/// A machine on a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub day: String,
    /// How many, and what they call themselves.
    pub processors: String,
    pub compiler: String,
    /// Each with its driver.
    pub adapters: String,
}

impl Machine {
    /// Looks at this machine. The adapters are those that the example `doctor` finds.
    pub fn read(workspace: &Workspace, env: &AdapterEnv, day: &str) -> Result<Self, Error> {
        let mut doctor = workspace.cargo();
        doctor.args(["run", "--quiet", "--release", "--example", "doctor"]);
        doctor.args(["--", "--json"]);
        env.apply(&mut doctor);
        let found = process::output_with_messages(&mut doctor)?;
        let compiler = process::output(workspace.command_at("rustc".into()).arg("--version"))?;
        let count = thread::available_parallelism().map_or(1, usize::from);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor(&cpuinfo);
        Ok(Self {
            day: day.to_owned(),
            processors: format!("{count} x {processor}"),
            compiler: compiler
                .split(" (")
                .next()
                .unwrap_or_default()
                .trim()
                .into(),
            adapters: adapters(&found),
        })
    }

    fn from_table(line: &str) -> Option<Self> {
        let [day, processors, compiler, adapters] = cells(line)?.try_into().ok()?;
        Some(Self {
            day,
            processors,
            compiler,
            adapters,
        })
    }

    fn line(&self) -> String {
        let Self {
            day,
            processors,
            compiler,
            adapters,
        } = self;
        format!("| {day} | {processors} | {compiler} | {adapters} |\n")
    }
}

/// The name of the first processor in a text such as Linux's `/proc/cpuinfo`.
fn processor(cpuinfo: &str) -> &str {
    let model = |line: &'_ str| line.trim_end().starts_with("model name");
    let line = cpuinfo.lines().find(|line| model(line));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim())
}

/// The adapters in the doctor's answer, each with its driver.
fn adapters(doctor: &str) -> String {
    let found: Value = serde_json::from_str(doctor).unwrap_or_default();
    let adapters = found["adapters"].as_array().into_iter().flatten();
    let text = |adapter: &Value, what| adapter[what].as_str().unwrap_or("unknown").to_owned();
    let one = |adapter| format!("{}: {}", text(adapter, "name"), text(adapter, "driver"));
    adapters.map(one).collect::<Vec<_>>().join("; ")
}

/// The page with the machine in the table; lines of days without rows go. `None` where markers are missing.
pub fn merge(page: &str, machine: &Machine) -> Option<String> {
    let rows = of_page(page)?;
    let (_, rest) = page.split_once(BEGIN)?;
    let (table, _) = rest.split_once(END)?;
    let old = table.lines().filter_map(Machine::from_table).skip(2); // the head, and the line below it
    let mut machines: Vec<Machine> = old
        .filter(|old| old != machine && rows.iter().any(|row| row.measured == old.day))
        .chain([machine.clone()])
        .collect();
    machines.sort_by(|a, b| (&a.day, &a.adapters).cmp(&(&b.day, &b.adapters)));
    let lines: String = machines.iter().map(Machine::line).collect();
    put_between(page, BEGIN, END, &format!("{HEAD}{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{self, Row};

    fn machine(day: &str, adapters: &str) -> Machine {
        Machine {
            day: day.into(),
            processors: "2 x Some CPU".into(),
            compiler: "rustc 1.95.0".into(),
            adapters: adapters.into(),
        }
    }

    #[test]
    fn machines_stay_as_long_as_rows_of_their_day() {
        let (begin, end) = (rows::BEGIN, rows::END);
        let page = format!("{BEGIN}\n{END}\n{begin}\n{end}\n");
        let row = |day, line| Row::parse("launch", day, line).unwrap();
        let first = row("2026-01-02", "ratio a/NVIDIA = 1.5 (1..2)");
        let page = rows::merge(&page, &[first]).unwrap();
        let page = merge(&page, &machine("2026-01-02", "NVIDIA: 580")).unwrap();
        let second = row("2026-01-03", "ratio a/llvmpipe = 1.5 (1..2)");
        let page = rows::merge(&page, &[second]).unwrap();
        // Twice the same machine is one line.
        let page = merge(&page, &machine("2026-01-03", "llvmpipe: Mesa")).unwrap();
        let page = merge(&page, &machine("2026-01-03", "llvmpipe: Mesa")).unwrap();
        let lines = |page: &str| {
            let (_, rest) = page.split_once(BEGIN).unwrap();
            let (table, _) = rest.split_once(END).unwrap();
            let of_days = table.lines().filter(|line| line.starts_with("| 2026"));
            of_days.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(&page),
            [
                "| 2026-01-02 | 2 x Some CPU | rustc 1.95.0 | NVIDIA: 580 |",
                "| 2026-01-03 | 2 x Some CPU | rustc 1.95.0 | llvmpipe: Mesa |"
            ]
        );
        let again = row("2026-01-04", "ratio a/NVIDIA = 1.4 (1..2)");
        let page = rows::merge(&page, &[again]).unwrap();
        let page = merge(&page, &machine("2026-01-04", "NVIDIA: 581")).unwrap();
        assert_eq!(lines(&page).len(), 2, "{page}");
        assert!(!page.contains("580"));
        assert_eq!(merge("no table", &machine("2026-01-04", "")), None);
    }

    #[test]
    fn the_doctor_and_the_kernel_tell_what_the_machine_is() {
        let doctor =
            r#"{"adapters": [{"name": "A", "driver": "a 1"}, {"name": "B", "driver": "b"}]}"#;
        assert_eq!(adapters(doctor), "A: a 1; B: b");
        assert_eq!(adapters("no answer"), "");
        let cpuinfo = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU\n";
        assert_eq!(processor(cpuinfo), "Some CPU");
        assert_eq!(processor(""), std::env::consts::ARCH);
    }
}
