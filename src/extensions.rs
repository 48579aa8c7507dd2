//! Extensions: what rooms keep for each device, for each context and for each kernel, and what must die with these
//! owners: caches, pools, places of globals.
//!
//! The owners lie lower than the rooms. Each owner holds one struct of this file, and each field of the struct belongs
//! to one room, which alone reaches into the field's type. So an owner names this file and no room above itself, and
//! a new kind of state is a field here and a type in its room. All fields are made with their owner, so a look at a
//! field is an offset; what is dear is made by the field's type on first use.

use crate::globals::memory::DeviceGlobals;
use crate::kernel::cache::{KernelCache, ModuleCache};
use crate::kernel::globals::GlobalTable;
use crate::launch::PlacedGlobals;
use crate::launch::bind::LaunchExtension;
use crate::memory::MemoryExtension;
use crate::memory::buffers::ContextBuffers;
use crate::memory::heap::ContextHeap;
use crate::rpc::backoff::KeptBackoff;

/// What rooms keep for one device.
#[derive(Default)]
pub(crate) struct DeviceExtensions {
    pub(crate) memory: MemoryExtension,
    pub(crate) kernels: KernelCache,
    /// Where the device's global variables lie.
    pub(crate) globals: DeviceGlobals,
    pub(crate) launch: LaunchExtension,
    pub(crate) backoff: KeptBackoff,
}

/// What rooms keep for all devices of a context. An adopted device is alone in its context.
#[derive(Default)]
pub(crate) struct ContextExtensions {
    pub(crate) modules: ModuleCache,
    /// The names of global variables.
    pub(crate) globals: GlobalTable,
    pub(crate) heap: ContextHeap,
    pub(crate) buffers: ContextBuffers,
}

/// What rooms keep for one kernel.
#[derive(Default)]
pub(crate) struct KernelExtensions {
    pub(crate) globals: PlacedGlobals,
}
