//! Reports of a sanitizer.

use std::{fmt, ops::Range, sync::Arc};

/// A defect of a kernel, seen during a run. The run went on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The entry point
    pub kernel: String,
    /// The nature of the defect
    pub kind: FindingKind,
    /// The address space of the memory
    pub space: Space,
    /// The variable, if named
    pub variable: Option<String>,
    /// The invocation noticed
    pub invocation: Invocation,
    /// The place in the text where the invocation was noticed
    pub place: TextPlace,
    /// How often the dispatch did the same at the same place
    pub occurrences: u64,
    /// The last debug marker in the same encoder before the dispatch: tells dispatches apart
    pub marker: Option<Arc<str>>,
}

/// The nature of a [`Finding`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingKind {
    /// An index is not less than the number of elements. The access was moved to the last element.
    OutOfBounds {
        /// The nature of the access
        access: Access,
        /// The index as unsigned bits: negative indices are above `i32::MAX`
        index: u32,
        /// The number of elements
        length: u32,
    },
    /// Two invocations accessed the same bytes, and nothing orders the accesses.
    Race {
        /// The access by the invocation of the finding, after the other access in the schedule of the run
        access: Access,
        /// The first byte accessed by both, from the start of the variable; work-group memory is laid out by the adapter, every
        /// scalar in four or eight bytes without padding
        offset: u64,
        /// The other invocation
        other: Side,
    },
    /// Some invocations of a work-group wait at a barrier, and others are not there.
    BarrierApart {
        /// An invocation elsewhere
        other: Invocation,
        /// The barrier where the other invocation waits; `None` if it has ended
        other_place: Option<TextPlace>,
    },
    /// An index is the result of a sum, a difference or a product outside the range of its type.
    IndexOverflow,
    /// Unwritten memory was read.
    Unwritten {
        /// The first such byte, from the start of the variable, as for races
        offset: u64,
    },
}

/// One of two racing invocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The invocation
    pub invocation: Invocation,
    /// The access of the invocation
    pub access: Access,
    /// Where the text says so
    pub place: TextPlace,
}

/// The effect of an access on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load
    Read,
    /// A store
    Write,
    /// An atomic load, or a load of decorated memory
    AtomicRead,
    /// An atomic store or read-modify-write
    AtomicWrite,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::AtomicRead => "atomic read",
            Self::AtomicWrite => "atomic write",
        })
    }
}

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Space {
    /// A storage buffer
    Storage,
    /// A uniform buffer
    Uniform,
    /// Memory of a work-group
    WorkGroup,
    /// Private variables, and variables of functions
    Private,
    /// Immediates of the pass
    Immediate,
    /// Constants, and computed values
    Value,
    /// No memory: control flow
    Control,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Storage => "storage buffer",
            Self::Uniform => "uniform buffer",
            Self::WorkGroup => "work-group variable",
            Self::Private => "private variable",
            Self::Immediate => "immediate",
            Self::Value => "value",
            Self::Control => "control flow",
        })
    }
}

/// An invocation of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Invocation {
    /// `global_invocation_id`
    pub global: [u32; 3],
    /// `local_invocation_id`
    pub local: [u32; 3],
    /// `workgroup_id`
    pub group: [u32; 3],
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([gx, gy, gz], [x, y, z], [wx, wy, wz]) = (self.global, self.local, self.group);
        write!(
            f,
            "({gx}, {gy}, {gz}), which is ({x}, {y}, {z}) of work-group ({wx}, {wy}, {wz})"
        )
    }
}

/// A place in the text of a module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TextPlace {
    /// The function
    pub function: Arc<str>,
    /// The label of the module, where wgpu hands the text on: with
    /// [`InstanceFlags::DEBUG`](https://docs.rs/wgpu/30/wgpu/struct.InstanceFlags.html), set in debug builds
    pub file: Option<Arc<str>>,
    /// Bytes of the text parsed by naga, if the module has its places
    pub span: Option<Range<u32>>,
    /// Line and column (in bytes), from 1, where wgpu hands the text on
    pub line: Option<(u32, u32)>,
}

impl TextPlace {
    /// Line and column (in bytes), from 1, of the place in the text of the module.
    pub fn line_in(&self, text: &str) -> Option<(u32, u32)> {
        let start = self.span.as_ref()?.start as usize;
        let before = text.get(..start)?;
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        Some((line as u32, column as u32))
    }
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line, &self.span) {
            (Some(file), Some((line, column)), _) => write!(f, "{file}:{line}:{column}")?,
            (None, Some((line, column)), _) => write!(f, "line {line}, column {column}")?,
            (_, None, Some(span)) => write!(f, "bytes {}..{} of the text", span.start, span.end)?,
            (_, None, None) => return write!(f, "`{}`", self.function),
        }
        write!(f, " in `{}`", self.function)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = match &self.variable {
            Some(name) => format!("`{name}`"),
            None => format!("a {}", self.space),
        };
        let (kernel, invocation, place) = (&self.kernel, &self.invocation, &self.place);
        write!(f, "kernel `{kernel}`: ")?;
        match &self.kind {
            FindingKind::OutOfBounds {
                access,
                index,
                length,
            } => write!(
                f,
                "{access} out of bounds: index {} of {variable}, which has {length} elements, at {place}, by invocation \
                 {invocation}",
                Index(*index)
            ),
            FindingKind::Race {
                access,
                offset,
                other,
            } => write!(
                f,
                "data race on byte {offset} of {variable}: {access} at {place} by invocation {invocation}, and {} at {} by \
                 invocation {}: order the two by {}, or make both atomic",
                other.access,
                other.place,
                other.invocation,
                self.remedy(other)
            ),
            FindingKind::BarrierApart { other, other_place } => {
                write!(
                    f,
                    "barrier in control flow that is not uniform: invocation {invocation} waits at {place}, and "
                )?;
                match other_place {
                    Some(place) => write!(f, "invocation {other} at {place}"),
                    None => write!(f, "invocation {other} has ended"),
                }
            }
            FindingKind::IndexOverflow => write!(
                f,
                "an index at {place} overflowed where it was computed, by invocation {invocation}: compute it in a wider type, \
                 or leave the check out if it is to wrap"
            ),
            FindingKind::Unwritten { offset } => write!(
                f,
                "byte {offset} of {variable} is read at {place} by invocation {invocation}, and was never written"
            ),
        }?;
        match self.occurrences {
            0 | 1 => Ok(()),
            more => write!(f, " ({more} times)"),
        }
    }
}

impl Finding {
    /// A way to order two accesses.
    fn remedy(&self, other: &Side) -> &'static str {
        match self.space {
            Space::WorkGroup => "workgroupBarrier()",
            _ if other.invocation.group == self.invocation.group => "storageBarrier()",
            _ => "a dispatch of its own for each",
        }
    }
}

/// An index as written by programs.
struct Index(u32);

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i32::try_from(self.0) {
            Ok(index) => index.fmt(f),
            Err(_) => write!(f, "{} (as i32: {})", self.0, self.0 as i32),
        }
    }
}
