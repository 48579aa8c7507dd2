//! Machine code: for which machine, where it lives, and what tools are told of it.

#[cfg(all(feature = "gdb", target_os = "linux"))]
pub(crate) mod gdb;
mod memory;
pub(crate) mod perf;
pub(crate) mod target;

pub(crate) use memory::CodeMemory;
