//! Memory that stands still while a kernel runs: the heap, for a kernel that only reads there, is bound read-only.
//!
//! That is for graphics processors: on an NVIDIA H200 a chain of pointers takes 1.00 of the time of one of indices and not 1.06,
//! in two segments 1.2 and not 1.57. On lavapipe two segments take 1.55 and not 1.48, so that the heap is bound for writing there.
//!
//! It is right only where nobody writes meanwhile. A kernel can wait for others' writes by atomics alone, so that a kernel with
//! an atomic in storage keeps a heap that it could write, and so does one that asks for coherent or volatile memory.

use naga::{AddressSpace, Module, StorageAccess};

use super::compiled::HeapUse;
use crate::kernel::bindings::RuntimeBindings;
use crate::kernel::heap_setup::HeapSetup;
use crate::kernel::passes::pointers::{PointerFacts, may_see_others};

/// How the heap is bound to a kernel of which `facts` are known: read-only, where that may be and is faster.
pub(super) fn heap(
    module: &mut Module,
    facts: &PointerFacts,
    setup: &HeapSetup,
    bindings: &RuntimeBindings,
) -> HeapUse {
    let mut heap = HeapUse::of(facts, setup);
    // What these tell the host is read when the kernel is over.
    let reports = [bindings.status(), bindings.print()];
    // Pointers are read apart on lavapipe alone.
    if setup.pointers_apart || facts.writes || may_see_others(module, &reports) {
        return heap;
    }
    heap.read_only = true;
    let segments = bindings.segments(0..heap.segments + heap.device_segments);
    for (_, variable) in module.global_variables.iter_mut() {
        if let AddressSpace::Storage { access } = &mut variable.space
            && (variable.binding).is_some_and(|place| segments.contains(&place))
        {
            *access = StorageAccess::LOAD;
        }
    }
    heap
}
