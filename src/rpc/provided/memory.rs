//! `malloc` and `free` for kernels.
//!
//! A launch sees the part of the heap bound at its creation. So memory for kernels comes from a single allocation, made
//! when the services are built: every kernel able to call them was launched later, and sees the allocation.
//!
//! Later growth of the heap would be beyond the binding of a running launch. A region of its own keeps the books
//! ([`allocations`](super::allocations)) on the host, where no kernel writes; the host touches none of the bytes, so that
//! the arena works on every device, also where services may not look into the bytes.

use std::sync::{Arc, Mutex};

use super::allocations::{Books, KernelAllocations};
use super::status::FreeStatus;
use crate::device::wait::lock;
use crate::memory::{HeapError, Ptr, SharedHeap};
use crate::rpc::{HostServices, HostServicesBuilder, ServiceError};

/// The source of kernels' allocations.
pub(super) struct Arena {
    heap: SharedHeap,
    base: Ptr<u8>,
    bytes: u64,
    /// By offsets from the base; never in the memory itself, written by kernels.
    books: Mutex<Books>,
}

impl HostServicesBuilder {
    /// Gives kernels pointers to hand over: into this heap. [`HostServicesBuilder::files`] and
    /// [`HostServicesBuilder::texts`] read and write there, in live allocations alone, where
    /// [`HostServicesBuilder::files`] allows. The first heap counts.
    pub fn heap(self, heap: &SharedHeap) -> Self {
        self.provided
            .heap_accessor
            .heap
            .get_or_init(|| heap.clone());
        self
    }

    /// Lets kernels allocate up to `bytes` bytes of the heap: `malloc(bytes: u32) -> usm_ptr`, aligned to 16 bytes,
    /// null where there is no room, and `free(p: usm_ptr) -> u32`, with the statuses of
    /// [`FreeStatus`](crate::calls::FreeStatus).
    ///
    /// All of this is a single allocation of `heap`, made now: memory invisible to running kernels would be of no use
    /// to kernels. The host finds the targets of received pointers there. Memory left allocated by a kernel is there
    /// for the next kernel, and lives until the services, and launches using them, are dropped;
    /// [`HostServices::kernel_allocations`] lists such memory, and the log has a warning if the services are dropped with
    /// any. Memory from `malloc` is not zeroed, and freed memory may be given out again at once, as in C.
    ///
    /// This holds on every device: the host keeps its books apart and touches none of the bytes. Where functions with a
    /// pointer are refused during launches ([`FileStatus::NoPointers`](crate::calls::FileStatus::NoPointers)), allocated
    /// memory is for kernels to read and write, and for the host after their end, and not for reading files.
    ///
    /// Implies [`HostServicesBuilder::heap`].
    pub fn memory(mut self, heap: &SharedHeap, bytes: u64) -> Self {
        let arena = match Arena::new(heap, bytes) {
            Ok(arena) => arena,
            Err(error) => {
                let message = error.to_string();
                self.mistake.get_or_insert(ServiceError::Memory { message });
                return self;
            }
        };
        let heap_accessor = Arc::clone(&self.provided.heap_accessor);
        if heap_accessor.arena.set(arena).is_err() {
            let message = "kernels have been given memory before".to_owned();
            self.mistake.get_or_insert(ServiceError::Memory { message });
            return self;
        }
        let freeing = Arc::clone(&heap_accessor);
        self.heap(heap)
            .call("fn malloc(bytes: u32) -> usm_ptr", move |bytes: u32| {
                let arena = heap_accessor.arena.get();
                arena.map_or(Ptr::null(), |arena| arena.allocate(bytes.into()))
            })
            .call("fn free(p: usm_ptr) -> u32", move |p: Ptr<u8>| {
                let arena = freeing.arena.get();
                let freed = arena.map_or(FreeStatus::Unknown, |arena| arena.free(p));
                freed.code()
            })
    }
}

impl HostServices {
    /// The memory that kernels have allocated by `malloc` and not freed ([`HostServicesBuilder::memory`]), with sizes, order
    /// and the most that was live at a time. All figures are zero for services without memory. Calls of running kernels
    /// may change the answer at any time: ask behind the end of a launch.
    pub fn kernel_allocations(&self) -> KernelAllocations {
        let arena = self.shared.provided.heap_accessor.arena.get();
        arena.map_or_else(KernelAllocations::default, |arena| {
            lock(&arena.books).list(arena.base, arena.bytes)
        })
    }

    /// Warns of memory that kernels have not freed, and will not: the services are stopped.
    pub(in crate::rpc) fn warn_of_leaks(&self) {
        let arena = self.shared.provided.heap_accessor.arena.get();
        if let Some(leak) = arena.and_then(|arena| lock(&arena.books).leak()) {
            log::warn!("{leak}");
        }
    }
}

impl Arena {
    fn new(heap: &SharedHeap, bytes: u64) -> Result<Self, HeapError> {
        let base = heap.alloc_bytes(bytes, 256)?;
        Ok(Self {
            heap: heap.clone(),
            base,
            bytes,
            books: Mutex::new(Books::new(bytes)),
        })
    }

    /// Null where there is no room.
    pub fn allocate(&self, bytes: u64) -> Ptr<u8> {
        let found = lock(&self.books).allocate(bytes);
        found.map_or(Ptr::null(), |at| self.base.byte_add(at))
    }

    pub fn free(&self, p: Ptr<u8>) -> FreeStatus {
        if p.is_null() {
            return FreeStatus::Done;
        }
        match self.offset(p.address()) {
            Some(at) => lock(&self.books).free(at),
            None => FreeStatus::Unknown,
        }
    }

    fn offset(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base.address())?;
        (offset < self.bytes).then_some(offset)
    }

    /// Whether bytes may be touched: outside of the arena, or allocated here.
    pub fn allows(&self, address: u64, bytes: u64) -> bool {
        let Some(at) = self.offset(address) else {
            // From elsewhere into here would be across two allocations of the heap.
            return true;
        };
        let found = lock(&self.books).find(at);
        let end = at.checked_add(bytes);
        found.is_some_and(|found| end.is_some_and(|end| end <= found.address + found.requested))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Kept from reuse by the heap while a kernel may still look.
        let _ = self.heap.free(self.base);
    }
}
