//! Kernels with the heap bound read-only.

use naga::{AddressSpace, StorageAccess};

use super::{Code, CompileOptions, compile};
use crate::device::spill_policy::SpillPolicy;
use crate::kernel::globals::GlobalTable;
use crate::kernel::heap_setup::HeapSetup;
use crate::kernel::{Constants, Program};

fn options(heap: HeapSetup) -> CompileOptions {
    CompileOptions {
        capabilities: naga::valid::Capabilities::all().bits(),
        private_limit: 1 << 16,
        spill: SpillPolicy::Auto,
        scratch_bytes: 1 << 20,
        loop_budget: None,
        nesting: None,
        splits_extrema: false,
        folds_wrongly: false,
        auto_workgroup: 64,
        heap,
    }
}

/// Whether the heap of a kernel with this body and these variables is bound read-only; its plan and its module agree.
fn is_still(variables: &str, body: &str, heap: HeapSetup) -> bool {
    let text = format!(
        "struct Node {{ value: u32, tag: u32, next: usm_ptr }}
alias Count = atomic<u32>;
struct Counts {{ other: u32, all: array<atomic<u32>, 2> }}
@group(0) @binding(0) var<storage, read> starts: array<usm_ptr>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
{variables}
fn sum(p: usm_ptr) -> u32 {{ return usm_Node(p).value; }}
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let p = starts[id.x];
    {body}
}}"
    );
    let program = Program::new("still.wgsl", text).expect("a program");
    let options = options(heap);
    let names = GlobalTable::default();
    let made = compile(&program, "main", &Constants::new(), &options, &names).expect("a kernel");
    let heap = made.heap.expect("the heap");
    let Code::Naga { module, .. } = &made.code else {
        panic!("no module");
    };
    let segments = made.bindings.segments(0..heap.segments);
    let mut found = 0;
    for (_, variable) in module.global_variables.iter() {
        if (variable.binding).is_some_and(|place| segments.contains(&place)) {
            found += 1;
            let AddressSpace::Storage { access } = variable.space else {
                panic!("{variable:?}");
            };
            let writes = access.contains(StorageAccess::STORE);
            assert_eq!(writes, !heap.read_only, "{body}");
        }
    }
    assert_eq!(found, heap.segments);
    // Also without parts refused by naga itself.
    let flags = naga::valid::ValidationFlags::all();
    let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::all());
    validator.validate(module).expect("a valid module");
    heap.read_only
}

#[test]
fn the_heap_of_kernels_that_only_read_is_bound_read_only() {
    let checked = HeapSetup {
        checked: true,
        allocations: 1,
        ..HeapSetup::default()
    };
    let apart = HeapSetup {
        pointers_apart: true,
        ..HeapSetup::default()
    };
    assert!(!is_still("", "sums[id.x] = sum(p);", apart));
    let segments = HeapSetup {
        segments: 2,
        segment_bytes: 1 << 20,
        ..HeapSetup::default()
    };
    for heap in [HeapSetup::default(), checked, segments] {
        let is_still = |variables: &str, body: &str| is_still(variables, body, heap.clone());
        assert!(is_still("", "sums[id.x] = sum(p) + usm_Node(p).tag;"));
        // Atomics of work-groups are for the kernel alone.
        let own = "var<workgroup> own: atomic<u32>;";
        assert!(is_still(own, "sums[id.x] = sum(p) + atomicLoad(&own);"));
        assert!(!is_still("", "let n = usm_Node(p); n.value = 1u;"));
        assert!(!is_still(
            "",
            "let n = usm_Node(p); sums[id.x] = sum(p); n.tag += 1u;"
        ));
        assert!(!is_still("", "sums[id.x] = atomicAdd(usm_Count(p), 1u);"));
        assert!(!is_still("", "sums[id.x] = atomicLoad(usm_Count(p));"));
        // With an atomic anywhere in storage the kernel may wait for somebody's writes.
        let flag = "@group(0) @binding(2) var<storage, read_write> flag: atomic<u32>;";
        assert!(!is_still(flag, "sums[id.x] = sum(p) + atomicLoad(&flag);"));
        let inside = "@group(0) @binding(2) var<storage, read_write> counts: array<Counts>;";
        let body = "sums[id.x] = sum(p) + atomicLoad(&counts[0].all[1]);";
        assert!(!is_still(inside, body));
    }
}
