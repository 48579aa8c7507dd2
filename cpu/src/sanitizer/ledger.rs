//! Results of a device's dispatches: findings, and the executions and times of statements.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Finding, TextPlace};

/// Findings kept by a device until somebody takes them. Later findings are counted, and named in the log.
const KEPT: usize = 4096;

/// How often the statements of a kernel were executed, by all dispatches of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// The entry point
    pub kernel: String,
    /// The last debug marker before the dispatches, where dispatches are told apart
    pub marker: Option<Arc<str>>,
    /// Lines with statements of the functions called by the kernel, in the order of the text
    pub lines: Vec<Line>,
}

/// A line of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The first statement beginning there
    pub place: TextPlace,
    /// Executions of the statement, by all invocations
    pub count: u64,
    /// Time taken by the statements of the line, in all executions: about, since every statement is called out, and since the
    /// processor has several statements in work at a time
    pub time: Duration,
}

/// Whose executions are counted: a kernel, and the marker before its dispatches.
type Of = (String, Option<Arc<str>>);

/// Executions of statements, and the time taken.
pub(super) type Places = HashMap<TextPlace, (u64, Duration)>;

/// The findings and counts of a device.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    findings: Vec<Finding>,
    dropped: u64,
    /// By kernel and marker, in the order of their first dispatches
    coverage: Vec<(Of, Places)>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, findings: Vec<Finding>) {
        for finding in &findings {
            log::error!("{finding}");
        }
        let mut state = self.lock();
        let room = KEPT - state.findings.len();
        state.dropped += findings.len().saturating_sub(room) as u64;
        state.findings.extend(findings.into_iter().take(room));
    }

    pub(crate) fn take(&self) -> Vec<Finding> {
        let mut state = self.lock();
        if state.dropped > 0 {
            log::warn!("{} findings are named in the log only", state.dropped);
        }
        state.dropped = 0;
        std::mem::take(&mut state.findings)
    }

    pub(crate) fn count(&self, kernel: &str, marker: Option<&Arc<str>>, counts: Places) {
        let of = (kernel.to_owned(), marker.cloned());
        add(&mut self.lock().coverage, &of, counts);
    }

    /// Counts since the last call, by marker.
    pub(crate) fn take_coverage(&self) -> Vec<Coverage> {
        let taken = std::mem::take(&mut self.lock().coverage);
        taken.iter().map(by_line).collect()
    }

    /// Counts by line: of statements on the same line, the first one's, and the time of all. Where lines are not known, by statement.
    pub(crate) fn coverage(&self) -> Vec<Coverage> {
        let mut kernels = Vec::new();
        for ((kernel, _), places) in &self.lock().coverage {
            add(&mut kernels, &(kernel.clone(), None), places.clone());
        }
        kernels.iter().map(by_line).collect()
    }
}

/// Adds executions to the earlier counts of the same kernel and marker.
fn add(coverage: &mut Vec<(Of, Places)>, of: &Of, counts: Places) {
    let known = coverage.iter().position(|(known, _)| known == of);
    let at = known.unwrap_or_else(|| {
        coverage.push((of.clone(), Places::new()));
        coverage.len() - 1
    });
    let Some((_, places)) = coverage.get_mut(at) else {
        return;
    };
    for (place, (count, time)) in counts {
        let (sum, times) = places.entry(place).or_default();
        *sum = sum.saturating_add(count);
        *times = times.saturating_add(time);
    }
}

fn by_line(((kernel, marker), places): &(Of, Places)) -> Coverage {
    let mut lines: Vec<Line> = places
        .iter()
        .map(|(place, &(count, time))| Line {
            place: place.clone(),
            count,
            time,
        })
        .collect();
    let key = |line: &Line| {
        (
            line.place.line,
            line.place.span.clone().map(|span| span.start),
        )
    };
    lines.sort_by_key(key);
    lines.dedup_by(|next, first| {
        let line = |line: &Line| line.place.line.map(|(line, _)| line);
        let same = line(next).is_some() && line(next) == line(first);
        if same {
            first.time = first.time.saturating_add(next.time);
        }
        same
    });
    Coverage {
        kernel: kernel.clone(),
        marker: marker.clone(),
        lines,
    }
}

/// The text of a module, where wgpu hands it on.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) file: Arc<str>,
    pub(crate) text: Arc<str>,
}
