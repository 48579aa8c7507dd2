//! Lines of kernels executed by launches, on the embedded adapter: how often, and for how long.
//!
//! The adapter counts statements by the debug marker before their dispatch, and a launch has a marker of its own
//! ([`sanitizer`](super::sanitizer)). When the launch has ended, its statements become lines of the program's text here.

use std::time::Duration;
#[cfg(embedded)]
use std::{
    collections::BTreeMap,
    ops::Range,
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
        for line in own.flat_map(|coverage| coverage.lines) {
            let span = line.place.span.clone();
            let range = span.map(|span| span.start as usize..span.end as usize);
            let Some(position) = range.and_then(position) else {
                continue;
            };
            let lines = kernels.entry(Arc::clone(kernel)).or_default();
            add(lines, position, line.count, line.time);
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
