//! The policy for spilling: a setting of devices and kernels, which `kernel::passes::spill` carries out.

use std::fmt;

/// Whether private arrays move to scratch memory in the memory of the device.
///
/// A spilled array has no limit but the scratch memory of one work-group
/// ([`DeviceOptions::scratch_bytes`](crate::DeviceOptions::scratch_bytes)), and costs an access to memory where a private
/// array may lie in registers or caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SpillPolicy {
    /// Private arrays stay what they are; where they take more than
    /// [`Capabilities::private_memory_bytes`](crate::device::Capabilities::private_memory_bytes), the kernel is refused.
    Never,
    /// The largest arrays move where all arrays together take more than
    /// [`Capabilities::private_memory_bytes`](crate::device::Capabilities::private_memory_bytes).
    #[default]
    Auto,
    /// Every array moves.
    Always,
}

/// For people: the variant in words.
impl fmt::Display for SpillPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::Auto => "where private arrays are too large",
            Self::Always => "always",
        })
    }
}
