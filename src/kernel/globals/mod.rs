//! The database of device globals: for each context one table of names, with type, properties and place.
//!
//! A name gets its place on first use by either side: on the host by a copy or an explicit declaration, in a module
//! when its first kernel is specialized. Places are offsets in *chunks*, the same on every device of the context, so a
//! single module serves all devices; the memory behind a chunk is each device's own and comes later
//! (`crate::globals::memory`). Places never move. Variables of the same kernel share a chunk wherever there is room,
//! because a kernel binds a single chunk.
//!
//! The table is asked when kernels are made and when the host copies, never by a launch.
//!
//! Types are compared without the names of structures and aliases, and an atomic counts as the scalar inside: one
//! kernel counts and the next reads the counts. `CacheStatistics::global_lookups` shows when the table is asked.
//!
//! A variable of device scope lives as long as the name, and the memory as long as the device. A variable of image
//! scope belongs to the kernels of a module, cached kernels included; programs of equal name, text and prefix are one
//! module, as for the caches. While no kernel names the variable, the value is kept on the host, and moves into the
//! first new instance.

mod compare;
mod conflict;
mod table;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use conflict::{GlobalConflict, GlobalPlace};
pub(crate) use table::{GlobalTable, HostView, Instance};

use super::host_layout::RustLayout;
use super::layout::TypeLayout;

/// The unit with an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GlobalScope {
    /// An instance for each device, shared by all its kernels.
    Device,
    /// One instance for each module (program) on each device: `device_image_scope`.
    Image,
}

/// What the host may do with a device global: `host_access`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GlobalAccess {
    /// Only read the variable.
    Read,
    /// Only write the variable.
    Write,
    /// Read and write the variable.
    ReadWrite,
    /// Neither.
    None,
}

/// When a device global gets its initial value again: `init_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitMode {
    /// When the device is reset (`Device::reset_globals`).
    Reset,
    /// When the device is programmed anew (`Device::reprogram_globals`).
    Reprogram,
    /// Never by the runtime: the variable begins with its declared initial value, or, without a declared value, with
    /// the bytes in memory, and keeps the value in every reset. For large tables filled by a kernel or a copy.
    Never,
}

impl fmt::Display for GlobalScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device scope",
            Self::Image => "image scope",
        })
    }
}

impl fmt::Display for GlobalAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read_write",
            Self::None => "none",
        })
    }
}

impl fmt::Display for InitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "reset",
            Self::Reprogram => "reprogram",
            Self::Never => "never",
        })
    }
}

/// A device global used by a kernel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GlobalUse {
    /// The variable's name in WGSL, without its program's prefix.
    pub name: String,
    /// True for `read_write`: launches count it as written.
    pub writable: bool,
    /// The variable's layout.
    pub layout: TypeLayout,
    /// The type in full, without the names of structures and aliases, for comparison with another module's. An atomic
    /// counts as its scalar: a kernel counts, the next kernel reads the counts.
    pub(crate) canonical: String,
    /// The variable's number in the module.
    pub(crate) number: u32,
    /// The source with the declaration, and the 1-based line there; none if not known.
    pub(crate) place: Option<(String, u32)>,
}

/// A declaration in Rust.
#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub name: &'static str,
    pub type_name: &'static str,
    pub bytes: u64,
    pub layout: Option<&'static RustLayout>,
    pub scope: GlobalScope,
    pub access: GlobalAccess,
    pub init: InitMode,
    pub initial: Option<Arc<[u8]>>,
}

/// What is a module: programs of equal name, text and prefix have the same kernels, and are the same module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModuleIdentity {
    pub name: Arc<str>,
    pub source: Arc<str>,
    pub prefix: Arc<str>,
}
