//! Memory of the heap that kernels allocate and free.

use tombolo::{HostServices, Ptr, calls::FreeStatus};

use crate::cases;
use crate::harness::Fixture;
use crate::services::{MINUTE, POISON, kernels, run};

cases![
    many_invocations_allocate_and_free,
    what_was_not_allocated_is_not_freed,
    what_kernels_have_not_freed_is_listed,
];

fn many_invocations_allocate_and_free(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let services = HostServices::builder()
        .memory(&heap, 1 << 20)
        .start()
        .unwrap();
    // Each takes 1 to 16 words, fills them, gives every other one back, and takes the same again.
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
        fn fill(p: usm_ptr, id: u32) {
            let words = usm_Words(p);
            for (var i = 0u; i <= id % 16u; i++) { words[i] = id * 100u + i; }
        }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let bytes = 4u * (id.x % 16u + 1u);
            var p = malloc(bytes);
            if usm_is_null(p) { return; }
            fill(p, id.x);
            var freed = 0u;
            if id.x % 2u == 1u {
                freed = free(p);
                p = malloc(bytes);
                if usm_is_null(p) { return; }
                fill(p, id.x);
            }
            out[id.x] = vec4(p, freed, bytes);
        }";
    let [kernel] = kernels(&f.device, &services, source, ["main"]);
    let out = f.device.buffer(&[[POISON; 4]; 1024]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    launch
        .invocations(1024)
        .submit()
        .unwrap()
        .wait_timeout(MINUTE)
        .unwrap();
    let found = out.read().unwrap();
    let mut ranges = Vec::new();
    for (id, &[low, high, freed, bytes]) in found.iter().enumerate() {
        let id = id as u32;
        assert_eq!((freed, bytes), (id % 2, 4 * (id % 16 + 1)));
        let p = Ptr::<u32>::from_address(u64::from(low) | u64::from(high) << 32);
        let words: Vec<u32> = (0..=id % 16).map(|i| id * 100 + i).collect();
        assert_eq!(heap.read(p, words.len()).unwrap(), words, "invocation {id}");
        ranges.push((p.address(), p.address() + u64::from(bytes)));
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

fn what_was_not_allocated_is_not_freed(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let foreign = heap.alloc_slice(&[5u32; 64]).unwrap();
    let services = HostServices::builder()
        .memory(&heap, 64 << 10)
        .start()
        .unwrap();
    let source = format!(
        "@compute @workgroup_size(1) fn main() {{
            let p = malloc(100u);
            out[0] = free(usm_add(p, 16u));
            out[1] = free(p);
            out[2] = free(p);
            out[3] = free(vec2({}u, {}u));
            out[4] = free(usm_null());
            out[5] = free(vec2(0xffffffffu));
            // Twice as much as there is, and then all of it.
            out[6] = u32(usm_is_null(malloc(131072u)));
            let all = malloc(65536u);
            out[7] = u32(usm_is_null(all));
            out[8] = u32(usm_is_null(malloc(1u)));
            out[9] = free(all);
            out[10] = u32(usm_is_null(malloc(1u)));
        }}",
        foreign.address() as u32,
        (foreign.address() >> 32) as u32
    );
    let [interior, done, unknown] =
        [FreeStatus::Interior, FreeStatus::Done, FreeStatus::Unknown].map(FreeStatus::code);
    let expected = [
        interior, done, unknown, unknown, done, unknown, 1, 0, 1, done, 0,
    ];
    assert_eq!(run(f, &services, &source, 1, 11), expected);
    assert_eq!(heap.read(foreign, 64).unwrap(), [5; 64]);
    heap.free(foreign).unwrap();
}

fn what_kernels_have_not_freed_is_listed(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let services = HostServices::builder()
        .memory(&heap, 64 << 10)
        .start()
        .unwrap();
    let memory = services.kernel_allocations();
    assert_eq!((memory.live.len(), memory.peak_bytes), (0, 0));
    assert_eq!(memory.capacity, 64 << 10);
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<vec2<u32>>;
        @compute @workgroup_size(1) fn allocate() {
            out[0] = malloc(100u);
            out[1] = malloc(2000u);
            out[2] = malloc(7u);
            out[3] = malloc(1u << 20u);
            out[4] = vec2(free(out[1]));
        }
        @compute @workgroup_size(1) fn again() {
            out[1] = malloc(50u);
            out[4] = vec2(free(out[0]));
        }";
    let kernels = kernels(&f.device, &services, source, ["allocate", "again"]);
    let out = f.device.buffer(&[[POISON; 2]; 5]).unwrap();
    let run = |kernel: &tombolo::Kernel| {
        let launch = kernel.launch().services(&services).buffer("out", &out);
        let event = launch.workgroups(1).submit().unwrap();
        event.wait_timeout(MINUTE).unwrap();
        out.read().unwrap()
    };
    let address = |words: [u32; 2]| u64::from(words[0]) | u64::from(words[1]) << 32;
    let listed = || {
        let memory = services.kernel_allocations();
        let live = memory.live.iter();
        let live: Vec<_> = live
            .map(|allocation| {
                (
                    allocation.pointer.address(),
                    allocation.bytes,
                    allocation.order,
                )
            })
            .collect();
        let figures = [memory.bytes, memory.peak_bytes, memory.made, memory.refused];
        (live, figures)
    };
    let first = run(&kernels[0]);
    assert_eq!((first[3], first[4]), ([0; 2], [FreeStatus::Done.code(); 2]));
    let expected = vec![(address(first[0]), 100, 0), (address(first[2]), 7, 2)];
    assert_eq!(listed(), (expected, [107, 2107, 3, 1]));
    // A later kernel finds the memory, and frees some of it.
    let second = run(&kernels[1]);
    assert_eq!(second[4], [FreeStatus::Done.code(); 2]);
    let expected = vec![(address(first[2]), 7, 2), (address(second[1]), 50, 3)];
    assert_eq!(listed(), (expected, [57, 2107, 4, 1]));
    // Services without memory have none to list.
    let other = HostServices::builder().clock().start().unwrap();
    assert_eq!(other.kernel_allocations(), Default::default());
}
