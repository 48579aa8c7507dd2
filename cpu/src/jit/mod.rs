//! Machine code: for which machine, and where it lives.

mod memory;
pub(crate) mod target;

pub(crate) use memory::CodeMemory;
