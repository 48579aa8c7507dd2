//! What a walk finds in a declaration.

use std::ops::Range;

use crate::kernel::declarations::{Context, Reference};

/// An `array<E, L>` in the text.
#[derive(Clone, Debug)]
pub(crate) struct ArrayUse {
    /// Index of the surrounding declaration.
    pub declaration: usize,
    /// Bytes of the element type.
    pub element: Range<usize>,
    /// Bytes of the length expression.
    pub length: Range<usize>,
    /// Declarations that the length mentions, directly or through local constants.
    pub mentions: Vec<usize>,
    /// Whether the length or the element mentions local constants, which mean nothing outside the function.
    pub local: bool,
    /// The declaration whose bare name the length is.
    pub bare: Option<(usize, Range<usize>)>,
    /// The memory that the type will be used in.
    pub context: Context,
    /// Whether the mention is in the result type of a function.
    pub in_result: bool,
    /// Bytes of the name of the array's variable, member, parameter or alias; the array's own where there is none.
    pub owner: Range<usize>,
}

/// An `@align(A)` in front of a variable.
#[derive(Clone, Debug)]
pub(crate) struct AlignAttribute {
    /// From `@` to the closing parenthesis.
    pub span: Range<usize>,
    /// The expression.
    pub expression: Range<usize>,
    /// Declarations that the expression mentions.
    pub mentions: Vec<usize>,
}

/// A variable in function or private space; or a `let` or a parameter, which may pass its type on to a variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// Index of the declaration itself, or around it.
    pub declaration: usize,
    pub name: String,
    pub name_span: Range<usize>,
    /// Declarations mentioned by the type; if the type is not written out, by the initializer.
    pub mentions: Vec<usize>,
    /// Local variables that the initializer mentions, if the type is not written out.
    pub locals: Vec<String>,
    /// Indices of the arrays spelled out in the type, or else the initializer.
    pub arrays: Range<usize>,
    pub align: Option<AlignAttribute>,
    /// Whether this is a variable indeed.
    pub stored: bool,
}

/// The contents of a declaration.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub references: Vec<Reference>,
    pub result: Vec<usize>,
    pub arrays: Vec<ArrayUse>,
    pub variables: Vec<Variable>,
    /// The first local constant with too many dependencies: its bytes, and their number.
    pub excess: Option<(Range<usize>, usize)>,
}
