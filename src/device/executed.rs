//! Lines of kernels executed by launches, on the embedded adapter: how often, and for how long.
//!
//! The adapter counts statements by the debug marker before their dispatch, and a launch has a marker of its own
//! ([`sanitizer`](super::sanitizer)). When the launch has ended, its statements become lines of the program's text here.

use std::time::Duration;
#[cfg(embedded)]
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::OpenOptions,
    io::Write as _,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::TextPosition;

/// The lines of a kernel that were executed, or could have been.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelLines {
    /// The entry point
    pub kernel: String,
    /// Lines with statements, by file and line
    pub lines: Vec<ExecutedLine>,
}

/// A line of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutedLine {
    /// The first statement that begins there
    pub position: TextPosition,
    /// Executions of that statement, by all invocations
    pub count: u64,
    /// Time of the line's statements in all executions, about: each statement is called out
    pub time: Duration,
}

/// The executed lines of a device's launches.
#[cfg(embedded)]
#[derive(Default)]
pub(crate) struct Executed {
    state: Mutex<State>,
    /// The file for a report at the end (`TOMBOLO_COVERAGE`)
    report: Option<PathBuf>,
}

#[cfg(embedded)]
#[derive(Default)]
struct State {
    /// Counts not yet asked for by launches
    unclaimed: Vec<tombolo_cpu::sanitizer::Coverage>,
    kernels: BTreeMap<Arc<str>, BTreeMap<(String, u32), ExecutedLine>>,
}

#[cfg(embedded)]
impl Executed {
    /// The lines of a device, with a report where the environment wants one.
    pub(crate) fn open() -> Self {
        Self {
            report: super::embedded::coverage_file(),
            ..Self::default()
        }
    }

    /// Adds the report to its file, if there is to be one. Other processes may do the same: one write, at the end of the file.
    pub(crate) fn write_report(&self) {
        let Some(path) = &self.report else {
            return;
        };
        let report = lcov(&self.lines());
        let file = OpenOptions::new().append(true).create(true).open(path);
        if let Err(error) = file.and_then(|mut file| file.write_all(report.as_bytes())) {
            log::error!(
                "the report on executed lines is not written to {}: {error}",
                path.display()
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the statements of an ended launch, by the launch's marker and kernel. `position` has places in the
    /// program's text.
    pub(crate) fn count(
        &self,
        device: &wgpu::Device,
        (marker, kernel): (&Arc<str>, &Arc<str>),
        position: &dyn Fn(Range<usize>) -> Option<TextPosition>,
    ) {
        let mut state = self.lock();
        let State { unclaimed, kernels } = &mut *state;
        // Nobody would ever ask for others.
        unclaimed.extend(
            super::embedded::take_coverage(device)
                .into_iter()
                .filter(|of| {
                    let marker = of.marker.as_deref();
                    marker.is_some_and(|marker| {
                        marker.starts_with(super::sanitizer::Findings::MARKER)
                    })
                }),
        );
        let own = unclaimed.extract_if(.., |of| of.marker.as_ref() == Some(marker));
        let mut statements: BTreeMap<_, (u64, Duration)> = BTreeMap::new();
        for line in own.flat_map(|coverage| coverage.lines) {
            if let Some(span) = &line.place.span {
                let (count, time) = statements.entry((span.start, span.end)).or_default();
                *count = count.saturating_add(line.count);
                *time = time.saturating_add(line.time);
            }
        }
        let places = statements
            .into_iter()
            .filter_map(|((start, end), of)| Some((position(start as usize..end as usize)?, of)));
        let lines = kernels.entry(Arc::clone(kernel)).or_default();
        for (position, (count, time)) in by_beginning(places) {
            add(lines, position, count, time);
        }
        if lines.is_empty() {
            kernels.remove(kernel);
        }
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<KernelLines> {
        let state = self.lock();
        let kernel = |(kernel, lines): (&Arc<str>, &BTreeMap<_, ExecutedLine>)| KernelLines {
            kernel: kernel.to_string(),
            lines: lines.values().cloned().collect(),
        };
        state.kernels.iter().map(kernel).collect()
    }
}

/// The parts of statements by where they begin: a statement and its first expression, which begin at the same place, are executed
/// once, however many parts they are counted in.
#[cfg(embedded)]
fn by_beginning(
    parts: impl Iterator<Item = (TextPosition, (u64, Duration))>,
) -> Vec<(TextPosition, (u64, Duration))> {
    let mut found: Vec<(TextPosition, (u64, Duration))> = Vec::new();
    // Parts with one beginning stand side by side, unless sources are mixed.
    for (position, (count, time)) in parts {
        match found.iter_mut().rev().find(|(known, _)| *known == position) {
            Some((_, (most, sum))) => {
                *most = count.max(*most);
                *sum = sum.saturating_add(time);
            }
            None => found.push((position, (count, time))),
        }
    }
    found
}

/// The lines as a tracefile of LCOV (geninfo(1)): a record for each kernel and file.
#[cfg(embedded)]
fn lcov(kernels: &[KernelLines]) -> String {
    let mut text = String::new();
    for kernel in kernels {
        let mut of_file = kernel.lines.as_slice();
        while let Some(first) = of_file.first() {
            let file = &first.position.file;
            let count = (of_file.iter()).take_while(|line| line.position.file == *file);
            let (lines, others) = of_file.split_at(count.count());
            of_file = others;
            let hit = lines.iter().filter(|line| line.count > 0).count();
            // Writing to a string does not fail.
            let _ = writeln!(text, "TN:{}\nSF:{file}", kernel.kernel);
            for line in lines {
                let _ = writeln!(text, "DA:{},{}", line.position.line, line.count);
            }
            let _ = writeln!(text, "LF:{}\nLH:{hit}\nend_of_record", lines.len());
        }
    }
    text
}

/// Adds a statement to its line; the first statement's count is the line's.
#[cfg(embedded)]
fn add(
    lines: &mut BTreeMap<(String, u32), ExecutedLine>,
    position: TextPosition,
    count: u64,
    time: Duration,
) {
    let key = (position.file.clone(), position.line);
    match lines.get_mut(&key) {
        None => {
            lines.insert(
                key,
                ExecutedLine {
                    position,
                    count,
                    time,
                },
            );
        }
        Some(line) => {
            line.time = line.time.saturating_add(time);
            if position.column < line.position.column {
                (line.position, line.count) = (position, count);
            } else if position.column == line.position.column {
                line.count = line.count.saturating_add(count);
            }
        }
    }
}

#[cfg(all(test, embedded))]
mod tests {
    use super::*;

    fn line(file: &str, line: u32, count: u64) -> ExecutedLine {
        ExecutedLine {
            position: TextPosition {
                file: file.into(),
                line,
                column: 1,
                excerpt: String::new(),
            },
            count,
            time: Duration::ZERO,
        }
    }

    #[test]
    fn a_statement_counted_in_parts_is_executed_once() {
        let parts = [
            ("a.wgsl", 3, 8u64),
            ("a.wgsl", 4, 2),
            ("a.wgsl", 4, 2),
            ("b.wgsl", 4, 5),
        ];
        let second = Duration::from_secs(1);
        let parts = parts
            .map(|(file, number, count)| (line(file, number, count).position, (count, second)));
        let found: Vec<_> = (by_beginning(parts.into_iter()).into_iter())
            .map(|(position, (count, time))| (position.file, position.line, count, time.as_secs()))
            .collect();
        let expected = [
            ("a.wgsl", 3, 8, 1),
            ("a.wgsl", 4, 2, 2),
            ("b.wgsl", 4, 5, 1),
        ];
        let expected =
            expected.map(|(file, line, count, time)| (file.to_owned(), line, count, time));
        assert_eq!(found, expected);
    }

    #[test]
    fn reports_have_a_record_for_each_kernel_and_file() {
        let kernels = [
            KernelLines {
                kernel: "blur".into(),
                lines: vec![
                    line("a.wgsl", 3, 8),
                    line("a.wgsl", 4, 0),
                    line("b.wgsl", 1, 2),
                ],
            },
            KernelLines {
                kernel: "idle".into(),
                lines: Vec::new(),
            },
        ];
        let expected = "TN:blur\nSF:a.wgsl\nDA:3,8\nDA:4,0\nLF:2\nLH:1\nend_of_record\n\
            TN:blur\nSF:b.wgsl\nDA:1,2\nLF:1\nLH:1\nend_of_record\n";
        assert_eq!(lcov(&kernels), expected);
        assert_eq!(lcov(&[]), "");
    }

    #[test]
    fn reports_of_several_devices_are_added_to_one_file() {
        let folder = std::env::temp_dir().join(format!("tombolo-coverage-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("kernels.info");
        for round in 1..3 {
            let executed = Executed {
                report: Some(path.clone()),
                ..Executed::default()
            };
            let mut lines = BTreeMap::new();
            add(&mut lines, line("a.wgsl", 3, 8).position, 8, Duration::ZERO);
            executed.lock().kernels.insert("blur".into(), lines);
            executed.write_report();
            let record = "TN:blur\nSF:a.wgsl\nDA:3,8\nLF:1\nLH:1\nend_of_record\n";
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                record.repeat(round)
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
