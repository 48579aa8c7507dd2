//! The table on an adapter: every row's verdict, and which of them were known.

use std::fmt;

use super::{Job, Opened, RunError, run};
use crate::conformance::deviations::{AdapterTraits, DEVIATIONS, Deviation, How, known};
use crate::conformance::{Mismatch, Row, Strictness};

/// Rows of a batch. More would need more memory at a time, fewer more submissions.
const BATCH: usize = 64;

/// What came of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    Wrong(Vec<Mismatch>),
    /// wgpu or the driver does not take the kernel.
    Refused(RunError),
    /// The adapter has not what the row needs.
    NotProvided,
}

/// Verdicts of rows, in their order.
pub struct Judgement<'r> {
    pub verdicts: Vec<(&'r Row, Verdict)>,
    adapter: AdapterTraits,
}

/// A verdict that nobody expected.
#[derive(Debug)]
pub enum Surprise<'r> {
    /// A row deviates in a way that is not known.
    Deviates { row: &'r Row, verdict: &'r Verdict },
    /// A known deviation is not there any more.
    Conforms(&'static Deviation),
}

/// Runs rows on an adapter.
///
/// # Errors
/// If the device fails.
pub fn judge<'r>(
    opened: &Opened,
    rows: &'r [Row],
    strictness: Strictness,
) -> Result<Judgement<'r>, RunError> {
    let mut verdicts = Vec::new();
    for batch in rows.chunks(BATCH) {
        let provided = |row: &&Row| row.needs.and(opened.provides) == opened.provides;
        let jobs: Vec<Job<'_>> = batch
            .iter()
            .filter(provided)
            .map(|row| Job {
                text: &row.text,
                entry_point: "main",
                buffers: &row.buffers,
                workgroups: [row.workgroups, 1, 1],
            })
            .collect();
        let mut results = run(opened, &jobs)?.into_iter();
        for row in batch {
            let verdict = match provided(&row).then(|| results.next()).flatten() {
                None => Verdict::NotProvided,
                Some(Err(error)) => Verdict::Refused(error),
                Some(Ok(buffers)) => match row.check(&buffers, strictness) {
                    mismatches if mismatches.is_empty() => Verdict::Right,
                    mismatches => Verdict::Wrong(mismatches),
                },
            };
            verdicts.push((row, verdict));
        }
    }
    Ok(Judgement {
        verdicts,
        adapter: opened.traits(),
    })
}

impl Opened {
    /// What known deviations go by.
    pub fn traits(&self) -> AdapterTraits {
        AdapterTraits {
            name: self.info.name.clone(),
            spir_v: self.info.backend == wgpu::Backend::Vulkan,
        }
    }
}

impl Judgement<'_> {
    /// Verdicts that the list of known deviations does not explain, and entries of it that explain
    /// nothing although their rows were run.
    pub fn surprises(&self) -> Vec<Surprise<'_>> {
        let mut surprises = Vec::new();
        for (row, verdict) in &self.verdicts {
            let how = match verdict {
                Verdict::Right | Verdict::NotProvided => continue,
                Verdict::Wrong(_) => How::Wrong,
                Verdict::Refused(_) => How::Refused,
            };
            if known(&self.adapter, &row.name).is_none_or(|deviation| deviation.how != how) {
                surprises.push(Surprise::Deviates { row, verdict });
            }
        }
        for deviation in DEVIATIONS
            .iter()
            .filter(|deviation| deviation.applies(&self.adapter))
        {
            let mut run = self
                .verdicts
                .iter()
                .filter(|(row, verdict)| {
                    deviation.covers(&row.name) && *verdict != Verdict::NotProvided
                })
                .peekable();
            if run.peek().is_some() && run.all(|(_, verdict)| *verdict == Verdict::Right) {
                surprises.push(Surprise::Conforms(deviation));
            }
        }
        surprises
    }

    /// How many rows were right, wrong, refused, and not provided for.
    pub fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for (_, verdict) in &self.verdicts {
            counts[match verdict {
                Verdict::Right => 0,
                Verdict::Wrong(_) => 1,
                Verdict::Refused(_) => 2,
                Verdict::NotProvided => 3,
            }] += 1;
        }
        counts
    }
}

impl fmt::Display for Surprise<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Surprise::Deviates {
                row,
                verdict: Verdict::Wrong(mismatches),
            } => {
                write!(
                    formatter,
                    "{}: {} results are wrong",
                    row.name,
                    mismatches.len()
                )?;
                mismatches
                    .iter()
                    .take(3)
                    .try_for_each(|mismatch| write!(formatter, "\n    {mismatch}"))
            }
            Surprise::Deviates {
                row,
                verdict: Verdict::Refused(error),
            } => write!(formatter, "{}: {error}", row.name),
            Surprise::Deviates { row, verdict } => write!(formatter, "{}: {verdict:?}", row.name),
            Surprise::Conforms(deviation) => {
                write!(
                    formatter,
                    "rows `{}` conform, and were known to deviate: {}",
                    deviation.rows, deviation.reason
                )
            }
        }
    }
}
