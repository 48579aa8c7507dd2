//! Services of the runtime: files, texts, arguments, the clock, random seeds, the exit status, and memory for kernels
//! to allocate. Provided services are registered functions like a program's own; their specialty is that their
//! constants and structures are appended to programs (`kernel::calls::prelude`), and that string literals stand for
//! texts (`kernel::calls::texts`).
//!
//! - [`heap_accessor`]: the one way from services into the shared heap.
//! - [`slab`]: handles, invalid after their return.
//! - [`files`], the [`streams`] beside them, and the operations of [`open_file`] on either; [`names`], the operations
//!   by name; [`access`] is the program's grants, [`quota`] their amount, and [`folder`] the system's view of folders.
//! - [`texts`], [`memory`] with the books of [`allocations`], and in [`machine`] what fits a line.
//!
//! Every input from a kernel is checked, and answered with a status.

mod access;
mod allocations;
mod files;
mod folder;
mod heap_accessor;
mod machine;
mod memory;
mod names;
mod open_file;
mod quota;
mod slab;
mod status;
mod streams;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_names;
#[cfg(test)]
mod tests_others;
#[cfg(test)]
mod tests_room;
mod texts;

use std::sync::{Arc, OnceLock};

use self::heap_accessor::HeapAccessor;
use self::machine::Exit;
use self::texts::Texts;

pub(super) use self::quota::outlive_file_size_limit;

pub use self::access::{FileAccess, RootMode};
pub use self::allocations::{KernelAllocation, KernelAllocations};
pub use self::status::{FileStatus, FreeStatus};

/// State shared by the provided services.
#[derive(Default)]
pub(crate) struct Provided {
    pub(super) heap_accessor: Arc<HeapAccessor>,
    pub(super) texts: Arc<Texts>,
    pub(super) exit: Arc<Exit>,
    /// Set by the first service taking or giving texts.
    pub(super) has_texts: OnceLock<()>,
}

/// A 64-bit value from a `vec2<u32>`, low word first.
fn wide(words: [u32; 2]) -> u64 {
    u64::from(words[0]) | u64::from(words[1]) << 32
}

/// And back.
fn narrow(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}
