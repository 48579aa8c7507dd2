//! Memory standing still while a kernel runs: the heap, for a kernel only reading there, is bound read-only.
//!
//! The binding is for graphics processors: on an NVIDIA H200 a chain of pointers takes 1.00 of the time of a chain of
//! indices and not 1.06, in two segments 1.2 and not 1.57. On lavapipe two segments take 1.55 and not 1.48: the heap is
//! bound for writing there.
//!
//! The binding is right only where nobody writes meanwhile. A kernel can wait for others' writes by atomics alone: a
//! kernel with an atomic in storage keeps a writable heap, and so does a kernel asking for coherent or volatile memory.

use naga::{AddressSpace, Module, StorageAccess};

use super::compiled::HeapUse;
use crate::kernel::bindings::RuntimeBindings;
use crate::kernel::heap_setup::HeapSetup;
use crate::kernel::passes::pointers::{PointerFacts, may_see_others};

/// How the heap is bound to a kernel with these `facts`: read-only, where allowed and faster.
pub(super) fn heap(
    module: &mut Module,
    facts: &PointerFacts,
    setup: &HeapSetup,
    bindings: &RuntimeBindings,
) -> HeapUse {
    let mut heap = HeapUse::of(facts, setup);
    // The host reads both reports when the kernel is over.
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
