//! Memory that stands still while a kernel runs: the heap, for a kernel that only reads there, is bound read-only.
//!
//! Graphics processors read such memory through another cache, and may load ahead of a branch: on an NVIDIA H200 a pointer
//! into one of two segments costs 1.12 of an index and not 1.66, and the walk of `examples/octree` 1.02 and not 1.21. Both are
//! right only where nobody writes meanwhile. A kernel can wait for others' writes by atomics alone, so that a kernel with an
//! atomic in storage keeps a heap that it could write, and so does one that asks for coherent or volatile memory.

use naga::{AddressSpace, Module, StorageAccess};

use super::compiled::HeapUse;
use crate::kernel::bindings::RuntimeBindings;
use crate::kernel::passes::pointers::{PointerFacts, may_see_others};

/// Binds the heap read-only to a kernel of which `facts` are known, where that may be.
pub(super) fn bind_heap(
    module: &mut Module,
    facts: &PointerFacts,
    heap: &mut HeapUse,
    bindings: &RuntimeBindings,
) {
    // What these tell the host is read when the kernel is over.
    let reports = [bindings.status(), bindings.print()];
    if facts.writes || may_see_others(module, &reports) {
        return;
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
}
