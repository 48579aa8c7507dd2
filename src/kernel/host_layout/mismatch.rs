//! The report where a Rust structure and a WGSL structure disagree.

use thiserror::Error;

use super::RustLayout;
use crate::kernel::error::{KernelError, quoted};
use crate::kernel::layout::TypeLayout;

/// Why a Rust structure and a WGSL type disagree.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum LayoutMismatch {
    /// The program declares no type of that name.
    #[error("`{program}` declares no type `{wanted}`; it declares {}", quoted(.available))]
    UnknownType {
        /// Name of the program.
        program: String,
        /// The name asked for.
        wanted: String,
        /// The existing structures and aliases.
        available: Vec<String>,
    },
    /// The type is no structure.
    #[error(
        "`{wanted}` of `{program}` is {wgsl} and no structure: compare the structure that it is made of"
    )]
    NotAStruct {
        /// Name of the program.
        program: String,
        /// The name asked for.
        wanted: String,
        /// The named object.
        wgsl: TypeLayout,
    },
    /// The layout of the type is unknown: the size depends on a constant without a value, or the declaration makes no
    /// sense with the values of the constants.
    #[error("the layout of `{wanted}` of `{program}` is not known: {source}")]
    Unknown {
        /// Name of the program.
        program: String,
        /// The name asked for.
        wanted: String,
        /// The obstacle.
        source: Box<KernelError>,
    },
    /// The layouts differ.
    #[error("{0}")]
    Differs(Box<LayoutDifference>),
}

/// Everything in which two layouts differ. `Display` gives the fault in full, with both layouts side by side.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LayoutDifference {
    /// Name of the program.
    pub program: String,
    /// The Rust side.
    pub rust: RustLayout,
    /// The WGSL side.
    pub wgsl: TypeLayout,
    /// The faults, in the order of the Rust structure; never empty.
    pub faults: Vec<LayoutFault>,
    /// The possible explanation.
    pub notes: Vec<String>,
}

/// By the names, the places and the faults: the types of Rust's fields have no comparison.
impl PartialEq for LayoutDifference {
    fn eq(&self, other: &Self) -> bool {
        self.program == other.program
            && (self.rust.name, self.rust.size) == (other.rust.name, other.rust.size)
            && self.wgsl == other.wgsl
            && self.faults == other.faults
            && self.notes == other.notes
    }
}

/// A difference of two layouts. Fields within fields are named by paths (`body.mass`; `bodies[].mass` for elements of
/// an array), and bytes count from the start of the outer structure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutFault {
    /// A field without a member of the same name in WGSL.
    MissingInWgsl {
        /// The field.
        field: String,
        /// The name missing in the WGSL structure.
        member: String,
    },
    /// A member without a field in Rust.
    MissingInRust {
        /// The member.
        field: String,
        /// Its offset in WGSL, in bytes.
        offset: u64,
        /// Its size in WGSL, in bytes.
        size: u64,
    },
    /// A field lies elsewhere.
    Offset {
        /// The field.
        field: String,
        /// Its offset in Rust, in bytes.
        rust: u64,
        /// Its offset in WGSL, in bytes.
        wgsl: u64,
        /// The remedy.
        hint: Option<String>,
    },
    /// A field has another size.
    Size {
        /// The field.
        field: String,
        /// Its size in Rust, in bytes.
        rust: u64,
        /// The size in WGSL, in bytes; for a runtime-sized array, that of an element.
        wgsl: u64,
        /// The remedy.
        hint: Option<String>,
    },
    /// A field has another scalar of the same width. Calls tell so; [`Program::check_layout`](crate::Program::check_layout)
    /// compares places alone.
    Type {
        /// The field.
        field: String,
        /// Its type in Rust.
        rust: String,
        /// The type in WGSL.
        wgsl: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A field is a structure in Rust and none in WGSL.
    Kind {
        /// The field.
        field: String,
        /// The type of the member.
        wgsl: String,
    },
    /// The whole structure has another size, so the elements of an array of it are apart by another stride. Where a
    /// runtime-sized array follows, left out in Rust, the sizes are those of the part before.
    Total {
        /// The structure: empty for the outermost, else the path of the field.
        field: String,
        /// Its size in Rust, in bytes.
        rust: u64,
        /// Its size in WGSL, in bytes.
        wgsl: u64,
        /// The remedy.
        hint: Option<String>,
    },
}

impl LayoutFault {
    /// The differing field or member; empty for the outermost structure itself.
    pub fn field(&self) -> &str {
        match self {
            Self::MissingInWgsl { field, .. }
            | Self::MissingInRust { field, .. }
            | Self::Offset { field, .. }
            | Self::Size { field, .. }
            | Self::Type { field, .. }
            | Self::Kind { field, .. }
            | Self::Total { field, .. } => field,
        }
    }

    /// Bytes by which it is further on, or larger, in WGSL than in Rust; negative for the opposite. `None` where
    /// there is nothing to compare.
    pub fn off_by(&self) -> Option<i64> {
        match self {
            Self::Offset { rust, wgsl, .. }
            | Self::Size { rust, wgsl, .. }
            | Self::Total { rust, wgsl, .. } => Some(wgsl.wrapping_sub(*rust) as i64),
            _ => None,
        }
    }
}
