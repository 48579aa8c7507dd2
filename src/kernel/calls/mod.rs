//! Functions of the host called by kernels: their declarations, and the WGSL of a call.
//!
//! A declaration is a WGSL signature, `fn lookup(key: u32, at: vec3<f32>) -> Node`. A program that mentions `lookup`
//! (or `lookup_try`, `lookup_post`, `lookup_begin`) gets functions of these names appended behind its text, written by
//! [`wgsl`] and [`forms`] from `shaders/rpc*.wgsl` and from the memory layout of the types, whose scalars are [`leaves`].
//!
//! The WGSL follows from how naga lays out the types of the *program*, and sizes are compared with Rust's when the
//! program is read, and structures field by field where their Rust layout is known. Each name of a service that comes with
//! the runtime costs a kernel nothing unless the kernel calls it. A format string is a number to the host, and its values
//! travel with their types ([`printed`]).

pub(crate) mod bind;
mod constants;
mod forms;
pub(crate) mod group_turns;
#[cfg(test)]
pub(crate) mod handed;
pub(crate) mod leaves;
pub(crate) mod padding_lanes;
pub(crate) mod prelude;
pub(crate) mod printed;
pub(crate) mod service_numbers;
pub(crate) mod signature;
mod subgroups;
pub(crate) mod texts;
pub(crate) mod wgsl;

use std::sync::Arc;

use super::host_layout::ValueLayouts;
pub(crate) use constants::mixed;
pub(crate) use signature::Signature;
pub(crate) use wgsl::CallAppendix;

/// In the number of a function: the packet has a count and the arguments of so many calls.
pub(crate) const GROUP: u32 = 1;

/// What the function begins with by which an invocation calls `f` in a packet of its own.
const ALONE: &str = "tombolo_alone_";

/// The invocations of a subgroup for whose calls a port has room where they share packets: as many as subgroups of most
/// graphics processors have. More go in several packets.
pub(crate) const PACKED_CALLS: usize = 32;

/// A function of the host, in the view of kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallDeclaration {
    pub signature: Signature,
    /// Bytes of each argument in Rust.
    pub arguments: Vec<usize>,
    /// Bytes of the result in Rust; 0 for none.
    pub result: usize,
    /// The layouts of structures among the Rust types.
    pub layouts: ValueLayouts,
    /// A stream: opened, fed and read word by word, and closed.
    pub stream: bool,
}

impl CallDeclaration {
    /// The number that stands for the function in a port: FNV-1a of the name, independent of other declarations.
    pub fn opcode(&self) -> u32 {
        opcode(&self.signature.name)
    }

    /// The opcodes of the function: for a stream an opcode for opening and another for each kind of packet, for other
    /// functions an opcode for a single call and another for many ([`GROUP`]).
    pub fn opcodes(&self) -> impl Iterator<Item = u32> {
        let kinds = if self.stream { 4 } else { 2 };
        (0..kinds).map(|kind| self.opcode() ^ kind)
    }

    /// Words of all arguments: each begins a word.
    pub fn argument_words(&self) -> usize {
        self.arguments.iter().map(|bytes| bytes.div_ceil(4)).sum()
    }

    /// Words of the result.
    pub fn result_words(&self) -> usize {
        self.result.div_ceil(4)
    }
}

/// See [`CallDeclaration::opcode`].
pub(crate) fn opcode(name: &str) -> u32 {
    (name.bytes()).fold(0x811C_9DC5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The functions that a program may call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallSet(pub Arc<[Arc<CallDeclaration>]>);

impl CallSet {
    /// The function of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<CallDeclaration>> {
        self.0.iter().find(|call| call.signature.name == name)
    }
}
