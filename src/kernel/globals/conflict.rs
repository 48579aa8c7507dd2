//! Messages about a name with different meanings on two sides.

use std::fmt;

use super::{GlobalScope, InitMode};
use crate::error_text::debug_by_text;

/// A place with a declaration of a device global, and the declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlobalPlace {
    /// The place: `count.wgsl:3`, or the declaration in Rust.
    pub place: String,
    /// The type in its language.
    pub type_name: String,
    /// Bytes of the variable.
    pub bytes: u64,
    /// The layout in full, one line for each member; empty for types without members.
    pub layout: String,
}

impl fmt::Display for GlobalPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            type_name,
            bytes,
            layout,
        } = self;
        write!(f, "{place}: {type_name} ({bytes} bytes)")?;
        match layout.as_str() {
            "" => Ok(()),
            layout => write!(f, "\n{}", layout.trim_end()),
        }
    }
}

/// Why two uses of one name cannot be the same device global. Nothing was changed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlobalConflict {
    /// The types differ.
    #[error(
        "the device global `{name}` is declared twice, and the declarations differ{why}; give one of them another \
         name, or its program a prefix (ProgramBuilder::global_prefix)\n  {first}\n  {second}"
    )]
    Type {
        /// The variable's name, with its program's prefix.
        name: String,
        /// The declaration that was known.
        first: Box<GlobalPlace>,
        /// The differing declaration.
        second: Box<GlobalPlace>,
        /// The difference, if known: begins with `: `, or is empty.
        why: String,
    },
    /// Two declarations in Rust give the variable different properties.
    #[error(
        "the device global `{name}` is declared with other properties: {first} and {second}; declare it once and use \
         that declaration everywhere"
    )]
    Properties {
        /// The variable's name.
        name: String,
        /// The properties that were known.
        first: String,
        /// The differing declarations.
        second: String,
    },
    /// The variable was in use before the declaration of this property.
    #[error(
        "the device global `{name}` is in use already ({used_by}), without {property}: declare it before the first \
         kernel that names it is made (DeviceGlobal::declare)"
    )]
    Late {
        /// The variable's name.
        name: String,
        /// The user of the variable.
        used_by: String,
        /// The property that comes too late.
        property: &'static str,
    },
    /// The variable is larger than its offset in a chunk can tell.
    #[error(
        "the device global `{name}` has {bytes} bytes, and {limit} is the most: use a device buffer"
    )]
    TooLarge {
        /// The variable's name.
        name: String,
        /// Its size in bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

debug_by_text!(GlobalConflict {
    Type,
    Properties,
    Late,
    TooLarge,
});

/// The properties in words, for messages.
pub(super) fn properties(
    scope: GlobalScope,
    access: super::GlobalAccess,
    init: InitMode,
    initial: bool,
) -> String {
    let initial = match initial {
        true => "an initial value",
        false => "zero at first",
    };
    format!("{scope}, host access {access}, init mode {init}, {initial}")
}
