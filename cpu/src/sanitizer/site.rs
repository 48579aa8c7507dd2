//! Sites: the subjects of calls from instrumented kernels. Sites are known when a kernel is compiled.
//!
//! A call passes words: `workgroup_id` (3), `local_invocation_index`, and then the words of the site:
//!
//! | site | words |
//! | --- | --- |
//! | [`What::Access`] | the index into an array of bindings, if there is one; the index of each step |
//! | [`What::Index`] | the index |
//! | [`What::Overflow`] | whether it happened |
//! | others | none |

use std::{ops::Range, sync::Arc};

use super::{Access, Space};

/// Words of each call.
pub(super) const ROWS: usize = 4;

/// A place with a check or a count in a kernel's text.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) function: Arc<str>,
    /// Bytes of the text
    pub(crate) span: Option<Range<u32>>,
    pub(crate) what: What,
}

/// The event at a site.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Access(Accessed),
    /// An element of a value is selected among so many
    Index {
        length: u32,
    },
    /// Invocations wait for one another
    Barrier {
        workgroup: bool,
        storage: bool,
    },
    /// Whether the computation of an index overflowed
    Overflow,
    /// The invocation goes on behind a barrier of its subgroup
    SubgroupBarrier,
    /// A variable of a function begins to exist, with an initial value or without
    Declare {
        slot: u32,
        written: bool,
    },
    /// An invocation ends
    End,
    /// A statement is executed; the number tells statements of the module apart, however often inlined
    Statement(usize),
}

/// An access of memory.
#[derive(Clone, Debug)]
pub(crate) struct Accessed {
    pub(crate) access: Access,
    pub(crate) space: Space,
    pub(crate) variable: Option<Arc<str>>,
    pub(crate) memory: Memory,
    /// How many bindings there are, in an array of bindings
    pub(crate) bindings: Option<u32>,
    /// Bytes from the start of the memory to the place, without the parts added by indices
    pub(crate) offset: u32,
    /// Where the variable begins in the memory
    pub(crate) start: u32,
    /// Bytes between elements and their number; `None` for as many as the bound part of a buffer has
    pub(crate) steps: Vec<(u32, Option<u32>)>,
    /// Accessed bytes from the place on: offsets and lengths
    pub(crate) runs: Vec<(u32, u32)>,
}

/// The shadow concerned by an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// A buffer written by kernels
    Shared,
    WorkGroup,
    /// A slot of the invocation
    Slot(u32),
    /// Nobody writes
    Constant,
}

impl Site {
    /// Words passed by a call for the site.
    pub(super) fn rows(&self) -> usize {
        ROWS + match &self.what {
            What::Access(accessed) => {
                usize::from(accessed.bindings.is_some()) + accessed.steps.len()
            }
            What::Index { .. } | What::Overflow => 1,
            _ => 0,
        }
    }
}
