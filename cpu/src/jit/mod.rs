//! Machine code: the target machine, the memory of code, and reports to tools.

#[cfg(all(feature = "gdb", target_os = "linux"))]
pub(crate) mod gdb;
mod memory;
pub(crate) mod perf;
pub(crate) mod target;

pub(crate) use memory::CodeMemory;
