//! The embedded adapter's sanitizer, as seen by launches: a finding in a launch is the launch's failure.
//!
//! The adapter keeps findings by device ([`tombolo_cpu::sanitizer`]), each with the debug marker before the dispatch. A
//! launch on a sanitized device puts a marker of its own before its dispatches, and when ended asks for the findings
//! behind the marker. Findings in dispatches of the program's own commands on the same wgpu device, which are no
//! launches, are in the log, where the adapter writes all findings.

use std::fmt;
#[cfg(embedded)]
use std::sync::{Arc, Mutex, PoisonError};

/// A place in a program's text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextPosition {
    /// The name of the program, or of a source of the program
    pub file: String,
    /// 1-based line
    pub line: u32,
    /// 1-based column, in characters
    pub column: u32,
    /// The line with a marker below
    pub excerpt: String,
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A defect of a kernel, as held by [`ExecutionError::Sanitizer`](super::ExecutionError::Sanitizer).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelDefect {
    /// The nature of the defect
    pub kind: DefectKind,
    /// The variable, if named
    pub variable: Option<String>,
    /// The place of the access or barrier
    pub position: TextPosition,
    /// `global_invocation_id` of the invocation
    pub invocation: [u32; 3],
    /// `workgroup_id` of the invocation
    pub group: [u32; 3],
    /// How often the launch did the same at the same place
    pub occurrences: u64,
}

/// The nature of a [`KernelDefect`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefectKind {
    /// An index is not less than the number of elements.
    OutOfBounds {
        /// The index, as unsigned bits
        index: u32,
        /// The number of elements
        length: u32,
    },
    /// Two invocations accessed the same bytes, one wrote, and nothing orders the two.
    Race {
        /// The invocation's access: `read`, `write`, `atomic read` or `atomic write`
        access: &'static str,
        /// The other invocation's earlier access, in the same run
        other_access: &'static str,
        /// Where
        other_position: TextPosition,
        /// `global_invocation_id` of the other invocation
        other_invocation: [u32; 3],
        /// What would order the accesses
        remedy: &'static str,
    },
    /// Not all invocations of the work-group came to the barrier.
    BarrierApart {
        /// Another barrier, with an invocation waiting there; `None` if that invocation has ended
        other_position: Option<TextPosition>,
        /// `global_invocation_id` of the invocation elsewhere
        other_invocation: [u32; 3],
    },
    /// An index is the result of a sum, a difference or a product that does not fit its type.
    IndexOverflow,
    /// Memory was read before any write.
    Unwritten,
}

/// An invocation as text.
struct Invocation([u32; 3]);

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "({x}, {y}, {z})")
    }
}

impl fmt::Display for KernelDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.variable.as_deref().unwrap_or("a value");
        let (position, invocation) = (&self.position, Invocation(self.invocation));
        match &self.kind {
            DefectKind::OutOfBounds { index, length } => write!(
                f,
                "index {index} of `{name}`, which has {length} elements, at {position} by invocation {invocation}"
            )?,
            DefectKind::Race {
                access,
                other_access,
                other_position,
                other_invocation,
                remedy,
            } => write!(
                f,
                "data race on `{name}`: {access} at {position} by invocation {invocation}, and {other_access} at \
                 {other_position} by invocation {}: put {remedy} between the two, or make both atomic",
                Invocation(*other_invocation)
            )?,
            DefectKind::BarrierApart {
                other_position,
                other_invocation,
            } => {
                let other = Invocation(*other_invocation);
                write!(
                    f,
                    "barrier in control flow that is not uniform: invocation {invocation} waits at {position}, and "
                )?;
                match other_position {
                    Some(place) => write!(f, "invocation {other} at {place}"),
                    None => write!(f, "invocation {other} has ended"),
                }?;
            }
            DefectKind::IndexOverflow => write!(
                f,
                "an index overflowed where it was computed, at {position} by invocation {invocation}: compute it in a wider type"
            )?,
            DefectKind::Unwritten => write!(
                f,
                "`{name}` is read at {position} by invocation {invocation}, and was never written"
            )?,
        }
        write!(f, "\n{}", self.position.excerpt)
    }
}

/// All defects of a launch as text, the first one in full.
pub(super) struct Listed<'a>(pub(super) &'a [KernelDefect]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("a defect that was not kept"),
            [first] => first.fmt(f),
            [first, rest @ ..] => write!(f, "{first}\nand at {} other places", rest.len()),
        }
    }
}

/// The findings of a sanitized device not yet asked for by a launch.
#[cfg(embedded)]
#[derive(Default)]
pub(crate) struct Findings {
    unclaimed: Mutex<Vec<tombolo_cpu::sanitizer::Finding>>,
    /// What was executed
    pub(crate) executed: super::executed::Executed,
}

#[cfg(embedded)]
impl Findings {
    /// The beginning of launches' markers before dispatches.
    pub(super) const MARKER: &'static str = "tombolo launch ";

    /// Findings of a device, if it is sanitized or counts statements.
    pub(crate) fn open(device: &wgpu::Device) -> Option<Self> {
        let counts = super::embedded::counts(device);
        (super::embedded::sanitizes(device) || counts).then(|| Self {
            executed: match counts {
                true => super::executed::Executed::open(),
                false => Default::default(),
            },
            ..Self::default()
        })
    }

    /// A marker for a launch.
    pub(crate) fn marker() -> Arc<str> {
        format!("{}{}", Self::MARKER, super::unique_id()).into()
    }

    /// Takes the findings behind a marker, whose launch has ended.
    pub(crate) fn behind(
        &self,
        device: &wgpu::Device,
        marker: &Arc<str>,
    ) -> Vec<tombolo_cpu::sanitizer::Finding> {
        let mut unclaimed = self
            .unclaimed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = super::embedded::take_findings(device).into_iter();
        // Nobody would ever ask for others.
        unclaimed.extend(found.filter(|finding| {
            let marker = finding.marker.as_deref();
            marker.is_some_and(|marker| marker.starts_with(Self::MARKER))
        }));
        let (own, others) = unclaimed
            .drain(..)
            .partition(|finding| finding.marker.as_ref() == Some(marker));
        *unclaimed = others;
        own
    }
}

/// A finding of the adapter as the defect that it is, with its places in the program's text.
#[cfg(embedded)]
pub(crate) fn defect(
    finding: &tombolo_cpu::sanitizer::Finding,
    position: &dyn Fn(Option<std::ops::Range<usize>>) -> TextPosition,
) -> KernelDefect {
    use tombolo_cpu::sanitizer::{Access, FindingKind, Space, TextPlace};
    let at = |place: &TextPlace| {
        let span = place.span.clone();
        position(span.map(|span| span.start as usize..span.end as usize))
    };
    let access = |access: Access| match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::AtomicRead => "atomic read",
        Access::AtomicWrite => "atomic write",
    };
    let kind = match &finding.kind {
        FindingKind::OutOfBounds { index, length, .. } => DefectKind::OutOfBounds {
            index: *index,
            length: *length,
        },
        FindingKind::Race {
            access: own, other, ..
        } => DefectKind::Race {
            access: access(*own),
            other_access: access(other.access),
            other_position: at(&other.place),
            other_invocation: other.invocation.global,
            remedy: match finding.space {
                Space::WorkGroup => "workgroupBarrier()",
                _ if other.invocation.group == finding.invocation.group => "storageBarrier()",
                _ => "the end of a launch",
            },
        },
        FindingKind::BarrierApart { other, other_place } => DefectKind::BarrierApart {
            other_position: other_place.as_ref().map(at),
            other_invocation: other.global,
        },
        FindingKind::IndexOverflow => DefectKind::IndexOverflow,
        _ => DefectKind::Unwritten,
    };
    KernelDefect {
        kind,
        variable: finding.variable.clone(),
        position: at(&finding.place),
        invocation: finding.invocation.global,
        group: finding.invocation.group,
        occurrences: finding.occurrences,
    }
}
