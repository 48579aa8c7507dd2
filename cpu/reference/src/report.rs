//! What a run noticed about a kernel, and where.

use core::fmt;

/// A function of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionId {
    EntryPoint,
    Function(naga::Handle<naga::Function>),
}

/// A place in a kernel's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    pub function: FunctionId,
    pub span: naga::Span,
}

/// An invocation of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InvocationId {
    pub workgroup: [u32; 3],
    pub local: [u32; 3],
}

impl fmt::Display for InvocationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([gx, gy, gz], [x, y, z]) = (self.workgroup, self.local);
        write!(
            formatter,
            "({x}, {y}, {z}) of work-group ({gx}, {gy}, {gz})"
        )
    }
}

/// One side of a data race.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RaceSide {
    pub invocation: InvocationId,
    pub site: Site,
    pub write: bool,
    pub atomic: bool,
}

/// What kind of fault a finding is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FindingKind {
    /// An access whose index is no element, as it was before any policy changed it.
    OutOfRange { index: i64, length: u64 },
    /// A read of memory that nobody has written, and that is zero only because runtimes clear it.
    Uninitialized { offset: u64 },
    /// Two accesses of one place that nothing orders, of different invocations, of which one writes
    /// and one at least is not atomic.
    Race { offset: u64, other: RaceSide },
    /// A pointer given to `workgroupUniformLoad` that differs between invocations.
    DivergentUniformLoad { other: InvocationId },
    /// A subgroup operation that takes its value from a lane that does not take part.
    InactiveLane { lane: u32 },
}

/// Something that a kernel should not have done. The run went on.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: FindingKind,
    /// The variable, where there is one with a name.
    pub variable: Option<String>,
    pub invocation: InvocationId,
    pub site: Site,
}

impl Finding {
    /// One line of text: what happened, and where in `source`.
    pub fn describe(&self, module: &naga::Module, entry_point: &str, source: &str) -> String {
        let variable = self.variable.as_deref().unwrap_or("a value");
        let place = |site: &Site| describe_site(site, module, entry_point, source);
        let what = match &self.kind {
            FindingKind::OutOfRange { index, length } => {
                format!("index {index} of `{variable}`, which has {length} elements")
            }
            FindingKind::Uninitialized { offset } => {
                format!("byte {offset} of `{variable}` is read and was never written")
            }
            FindingKind::Race { offset, other } => format!(
                "byte {offset} of `{variable}` is also {}{} by invocation {} at {}",
                if other.atomic { "atomically " } else { "" },
                if other.write { "written" } else { "read" },
                other.invocation,
                place(&other.site),
            ),
            FindingKind::DivergentUniformLoad { other } => {
                format!(
                    "workgroupUniformLoad of `{variable}`: invocation {other} loads from elsewhere"
                )
            }
            FindingKind::InactiveLane { lane } => {
                format!("the value of lane {lane} of the subgroup, which takes no part")
            }
        };
        format!(
            "{what}: invocation {} at {}",
            self.invocation,
            place(&self.site)
        )
    }
}

/// The function and the line of a site.
pub fn describe_site(
    site: &Site,
    module: &naga::Module,
    entry_point: &str,
    source: &str,
) -> String {
    let function = match site.function {
        FunctionId::EntryPoint => entry_point,
        FunctionId::Function(handle) => module.functions[handle]
            .name
            .as_deref()
            .unwrap_or("a function"),
    };
    match site.span.is_defined() {
        true => format!(
            "`{function}`, line {}",
            site.span.location(source).line_number
        ),
        false => format!("`{function}`"),
    }
}
