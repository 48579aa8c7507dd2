//! Extensions: what rooms keep for each device, for each context and for each kernel, and what must die with these
//! owners: caches, pools, places of globals.
//!
//! The owners lie lower than the rooms. Each owner holds one struct of this file, and each field of the struct belongs
//! to one room, which alone reaches into the field's type. So an owner names this file and no room above itself, and
//! a new kind of state is a field here and a type in its room. All fields are made with their owner; what is dear is made
//! by the field's type on first use.
//!
//! Owners hold the structs [`Closed`]: whether an owner may go to another thread is asked in every crate that has one in a
//! type of its own, and an answer by way of all rooms, and of what these hold of wgpu, is too long for the compiler's
//! ordinary limit.

use std::fmt;
use std::ops::Deref;

use crate::device::heap_shape::HeapSource;
use crate::globals::memory::DeviceGlobals;
use crate::kernel::cache::{KernelCache, ModuleCache};
use crate::kernel::globals::GlobalTable;
use crate::launch::PlacedGlobals;
use crate::launch::bind::LaunchExtension;
use crate::memory::MemoryExtension;
use crate::memory::buffers::ContextBuffers;
use crate::memory::heap::ContextHeap;
use crate::rpc::KeptKernelThreads;
use crate::rpc::backoff::KeptBackoff;

/// A value that is known to go from thread to thread, without a look into its type.
pub(crate) struct Closed<T: 'static>(Box<dyn Holds<T>>);

trait Holds<T>: Send + Sync {
    fn held(&self) -> &T;
}

impl<T: Send + Sync> Holds<T> for T {
    fn held(&self) -> &T {
        self
    }
}

impl<T: Default + Send + Sync> Default for Closed<T> {
    fn default() -> Self {
        Self(Box::new(T::default()))
    }
}

impl<T> Deref for Closed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (*self.0).held()
    }
}

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").finish_non_exhaustive()
    }
}

pub(crate) type DeviceExtensions = Closed<OfDevice>;
pub(crate) type ContextExtensions = Closed<OfContext>;
pub(crate) type KernelExtensions = Closed<OfKernel>;

/// What rooms keep for one device.
#[derive(Default)]
pub(crate) struct OfDevice {
    pub(crate) memory: MemoryExtension,
    pub(crate) kernels: KernelCache,
    /// Where the device's global variables lie.
    pub(crate) globals: DeviceGlobals,
    pub(crate) launch: LaunchExtension,
    pub(crate) backoff: KeptBackoff,
    pub(crate) kernel_threads: KeptKernelThreads,
}

/// What rooms keep for all devices of a context. An adopted device is alone in its context.
#[derive(Default)]
pub(crate) struct OfContext {
    pub(crate) modules: ModuleCache,
    /// The names of global variables.
    pub(crate) globals: GlobalTable,
    pub(crate) heap: ContextHeap,
    pub(crate) buffers: ContextBuffers,
}

impl OfContext {
    /// Whom kernels ask for the heap.
    pub(crate) fn heap_source(&self) -> &dyn HeapSource {
        &self.heap
    }
}

/// What rooms keep for one kernel.
#[derive(Default)]
pub(crate) struct OfKernel {
    pub(crate) globals: PlacedGlobals,
}
