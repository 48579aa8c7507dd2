//! Errors of a program, or of the values for its specialization. Everything here is found on the host, before anything
//! is submitted to a device.

use thiserror::Error;

use super::constants::{ConstantInfo, ConstantType, ConstantValue, OverrideKey};
use super::diagnostic::Diagnostic;
use super::globals::GlobalConflict;
use super::host_layout::LayoutDifference;
use crate::error_text::debug_by_text;

/// Incompatible options of a [`ProgramBuilder`](super::ProgramBuilder).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramMistake {
    /// No source was given.
    #[error("it has no source: give it one, by `source`")]
    NoSource,
    /// Two different sources have one name.
    #[error(
        "two of its sources are named `{name}`, and differ: messages could not tell them apart"
    )]
    TwoSources {
        /// The name.
        name: String,
    },
    /// An imported file cannot be read.
    #[error(
        "its import `{name}` cannot be read ({reason}): give the path of a text file, or the text itself, by `source`"
    )]
    Unreadable {
        /// The path.
        name: String,
        /// The system's words.
        reason: String,
    },
    /// The program is to call the functions of more than one side.
    #[error(
        "it is given both `{first}` and `{second}`, and the kernels of a program call one side: call the others from a \
         second program"
    )]
    TwoCallees {
        /// The option given first.
        first: &'static str,
        /// The other option.
        second: &'static str,
    },
    /// Functions cannot be named after a ring.
    #[error(
        "its ring `{name}` cannot be part of the names of functions: begin with a letter, and go on with letters, digits and \
         underscores"
    )]
    RingName {
        /// The name.
        name: String,
    },
    /// Two rings of different kinds have one name.
    #[error(
        "two of its rings have one name, as `{first}` and as `{second}`: give each a name of its own"
    )]
    TwoRings {
        /// The variable of the first ring.
        first: String,
        /// The variable of the other ring.
        second: String,
    },
}

debug_by_text!(ProgramMistake {
    NoSource,
    TwoSources,
    Unreadable,
    TwoCallees,
    RingName,
    TwoRings,
});

/// Why a program or its specialization was refused.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The text does not follow the grammar of WGSL.
    #[error("{0}")]
    Syntax(Box<Diagnostic>),
    /// The text is grammatical, but contains a wrong name, type or constant expression, or enables an extension missing
    /// on the device.
    #[error("{0}")]
    Type(Box<Diagnostic>),
    /// The program breaks a rule of WGSL, or needs a feature missing on the device.
    #[error("{0}")]
    Validation(Box<Diagnostic>),
    /// The text is too demanding for its readers, such as endlessly nested brackets
    /// ([`Program::LIMITS`](super::Program::LIMITS)); or the kernel is too demanding for the device's compiler.
    #[error("{diagnostic}")]
    TooComplex {
        /// The excessive thing.
        what: &'static str,
        /// How much the text has.
        found: u64,
        /// How much is accepted.
        limit: u64,
        /// The place in the source.
        diagnostic: Box<Diagnostic>,
    },
    /// The program could not be read for a reason outside of its text.
    #[error("`{program}` could not be read: {message}")]
    Internal {
        /// Name of the program.
        program: String,
        /// The error.
        message: String,
    },
    /// A faulty `print`, `assert` or `panic`: the format string does not fit the arguments, or an argument cannot be
    /// shown.
    #[error("{0}")]
    Print(Box<Diagnostic>),
    /// A pointer is used in a way impossible to follow.
    #[error("{0}")]
    Pointer(Box<Diagnostic>),
    /// The kernel makes an atomic operation of 64 bits, which the device has not
    /// ([`Aspect::Atomic64`](crate::device::Aspect::Atomic64)).
    #[error("{diagnostic}")]
    Atomics64 {
        /// Name of the program.
        program: String,
        /// The entry point.
        entry: String,
        /// The operation, as WGSL names it, or the type, where a variable of it is all there is.
        operation: String,
        /// The place in the source.
        diagnostic: Box<Diagnostic>,
    },
    /// The program has no compute entry point of that name.
    #[error("`{program}` has no compute entry point `{wanted}`; it has {}", quoted(.available))]
    UnknownEntryPoint {
        /// Name of the program.
        program: String,
        /// The name asked for.
        wanted: String,
        /// The existing compute entry points.
        available: Vec<String>,
    },
    /// A value was set for a constant not declared by the program.
    #[error("`{program}` declares no specialization constant {wanted}; it declares {}", listed(.available))]
    UnknownConstant {
        /// Name of the program.
        program: String,
        /// The name or id that was set.
        wanted: OverrideKey,
        /// The existing constants.
        available: Vec<ConstantInfo>,
    },
    /// A value was set whose type is not the declared type.
    #[error(
        "the specialization constant `{name}` is of type {expected} and cannot be set to {given} ({}); \
         give it a value of type {expected}", kind(.given)
    )]
    WrongConstantType {
        /// Name of the constant.
        name: String,
        /// Its declared type.
        expected: ConstantType,
        /// The value that was set.
        given: ConstantValue,
    },
    /// A value impossible for the declared type was set: too large, too small, infinite or not a number.
    #[error(
        "{given} is no value of the specialization constant `{name}`, which is of type {ty} (and must be finite)"
    )]
    ConstantOutOfRange {
        /// Name of the constant.
        name: String,
        /// Its declared type.
        ty: ConstantType,
        /// The value that was set.
        given: ConstantValue,
    },
    /// The options of a builder contradict each other.
    #[error("{}: {mistake}", match .program.as_str() { "" => "a program".to_owned(), name => format!("`{name}`") })]
    Builder {
        /// Name of the program, if there is one.
        program: String,
        /// The contradiction, and the remedy.
        mistake: ProgramMistake,
    },
    /// The entry point uses constants with neither a value nor a default.
    #[error(
        "`{entry}` of `{program}` needs a value for {}, which has no default; the program declares {}",
        listed(.missing), listed(.available)
    )]
    MissingConstant {
        /// Name of the program.
        program: String,
        /// The entry point.
        entry: String,
        /// Every constant without a value.
        missing: Vec<ConstantInfo>,
        /// All constants of the program.
        available: Vec<ConstantInfo>,
    },
    /// A constant was set both by name and by id.
    #[error("the specialization constant `{name}` was set twice, by its name and by @id({}); set it once", .id.unwrap_or(0))]
    AmbiguousConstant {
        /// Name of the constant.
        name: String,
        /// The constant's id.
        id: Option<u16>,
    },
    /// An array's length came out as zero, negative, or not computable.
    #[error("{diagnostic}")]
    PrivateArrayLength {
        /// Name of the array's variable, member or type.
        array: String,
        /// The function around the declaration, if any.
        function: Option<String>,
        /// The length; none if not computable.
        length: Option<i128>,
        /// The place in the source.
        diagnostic: Box<Diagnostic>,
    },
    /// The private memory needed by the entry point is more than the device takes, or the scratch memory needed by the
    /// spilled arrays of a work-group ([`SpillPolicy`](super::SpillPolicy)).
    #[error("{diagnostic}")]
    PrivateArrayTooLarge {
        /// Name of the largest array.
        array: String,
        /// The function around the declaration, if any.
        function: Option<String>,
        /// Bytes of the array.
        bytes: u64,
        /// Bytes of all arrays of an invocation at the same time.
        total: u64,
        /// Bytes allowed to an invocation.
        limit: u64,
        /// The place in the source.
        diagnostic: Box<Diagnostic>,
    },
    /// The alignment asked for an array is none.
    #[error("{diagnostic}")]
    PrivateAlignment {
        /// Name of the array.
        array: String,
        /// The alignment asked for; none if not computable.
        align: Option<i128>,
        /// The alignment of the array's element type, a divisor of the alignment; 0 for a variable other than an array.
        element: u32,
        /// The place in the source.
        diagnostic: Box<Diagnostic>,
    },
    /// The kernel asks for more than the device has.
    #[error(
        "`{entry}` of `{program}` needs {wanted} {what}, and {device} has at most {limit}: {instead}"
    )]
    Limit {
        /// Name of the program.
        program: Box<str>,
        /// The entry point.
        entry: Box<str>,
        /// The scarce resource.
        what: &'static str,
        /// How much the kernel needs.
        wanted: u64,
        /// How much the device has.
        limit: u64,
        /// The device's name.
        device: Box<str>,
        /// The remedy.
        instead: &'static str,
    },
    /// A device global named by the entry point differs from another declaration.
    #[error("`{program}`: {conflict}")]
    Global {
        /// Name of the program.
        program: Box<str>,
        /// The difference, and its place.
        conflict: Box<GlobalConflict>,
    },
    /// A function of the host does not fit the program: its types are not the program's, or have other sizes.
    #[error("`{program}` cannot call `{function}` of the host: {why}")]
    HostCall {
        /// The program's name.
        program: String,
        /// The signature of the function.
        function: String,
        /// The misfit.
        why: String,
    },
    /// A structure that a function of the host takes or returns lies differently in Rust, or has fields of other types. The
    /// Rust type is declared by [`shared!`](crate::shared), or named by
    /// [`HostServicesBuilder::shared`](crate::calls::HostServicesBuilder::shared).
    #[error(
        "{value} of `{function}` is another structure in Rust: declare it alike on both sides: {difference}"
    )]
    HostCallLayout {
        /// The signature of the function.
        function: String,
        /// The argument, or the result.
        value: String,
        /// The fields, with types and offsets of both.
        difference: Box<LayoutDifference>,
    },
    /// A request beyond this device or this kind of module.
    #[error("`{program}`: {what} is not supported: {why}")]
    FeatureNotSupported {
        /// Name of the program.
        program: String,
        /// The request.
        what: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// wgpu or the driver refused the finished module.
    #[error("`{entry}` of `{program}` could not be made into a pipeline: {message}")]
    Pipeline {
        /// Name of the program.
        program: String,
        /// The entry point.
        entry: String,
        /// Their messages.
        message: String,
    },
}

debug_by_text!(KernelError {
    Builder,
    Syntax,
    Type,
    Validation,
    TooComplex,
    Internal,
    Print,
    Pointer,
    Atomics64,
    UnknownEntryPoint,
    UnknownConstant,
    WrongConstantType,
    ConstantOutOfRange,
    MissingConstant,
    AmbiguousConstant,
    PrivateArrayLength,
    PrivateArrayTooLarge,
    PrivateAlignment,
    Limit,
    Global,
    HostCall,
    HostCallLayout,
    FeatureNotSupported,
    Pipeline,
});

impl KernelError {
    /// The place in the source, if the error has one.
    pub fn diagnostic(&self) -> Option<&Diagnostic> {
        match self {
            Self::Syntax(diagnostic)
            | Self::Pointer(diagnostic)
            | Self::Print(diagnostic)
            | Self::Type(diagnostic)
            | Self::Validation(diagnostic)
            | Self::PrivateArrayLength { diagnostic, .. }
            | Self::TooComplex { diagnostic, .. }
            | Self::Atomics64 { diagnostic, .. }
            | Self::PrivateArrayTooLarge { diagnostic, .. }
            | Self::PrivateAlignment { diagnostic, .. } => Some(diagnostic),
            _ => None,
        }
    }
}

pub(super) fn quoted(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names
            .iter()
            .map(|n| format!("`{n}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn listed(constants: &[ConstantInfo]) -> String {
    match constants {
        [] => "none".to_owned(),
        constants => constants
            .iter()
            .map(|c| format!("`{c}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn kind(value: &ConstantValue) -> &'static str {
    value.ty().map_or("an integer", |ty| ty.wgsl())
}
