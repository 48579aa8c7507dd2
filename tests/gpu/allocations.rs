//! Allocations and what can be asked of a pointer, for memory of the heap and of the device's own, on devices
//! whose memory is unified and on devices where it is apart.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::Pod;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, Kernel, Program, Ptr, SharedHeap,
    device::{ExecutionError, WaitError},
    heap::{HeapError, PointerKind},
    launch::LaunchError,
};

cases![
    every_alignment_and_size,
    wrong_sizes_and_alignments,
    pointers_are_asked,
    odd_sizes_end_where_they_say,
    pointers_of_another_context,
    lists_in_device_memory_alone,
    pointers_to_pointers,
    values_at_every_aligned_place,
    patterns_of_every_size,
];

fn both(f: &Fixture, test: impl Fn(&Device, &SharedHeap)) {
    for unified in [None, Some(false)] {
        let device = f.open(|options| options.unified_memory = unified);
        test(&device, &device.heap().unwrap());
    }
}

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("allocations.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn every_alignment_and_size(f: &Fixture) {
    both(f, |device, heap| {
        let mut held: Vec<(u64, u64)> = Vec::new();
        for align in [1, 2, 4, 8, 16, 32, 64, 128, 4096, 1 << 20] {
            for size in [1, 8, 512, 2048, 5000] {
                let shared = heap.alloc_bytes(size, align).unwrap();
                let own = device.malloc_bytes(size, align).unwrap();
                assert_eq!(
                    (shared.kind(), own.kind()),
                    (PointerKind::Shared, PointerKind::Device)
                );
                for ptr in [shared, own] {
                    assert_eq!(ptr.address() % align, 0, "{ptr:?} {align}");
                    let found = device.find(ptr).unwrap();
                    assert_eq!((found.base, found.size), (ptr, size));
                    let range = (ptr.address(), ptr.address() + size);
                    assert!(
                        held.iter()
                            .all(|&(start, end)| range.1 <= start || end <= range.0)
                    );
                    held.push(range);
                }
                // The host reads one kind, and copies the other.
                assert_eq!(
                    heap.read(shared, size as usize).unwrap(),
                    vec![0; size as usize]
                );
                device.heap_fill(own, 7u8, size as usize).unwrap();
                device.heap_copy(own, shared, size as usize).unwrap();
                assert_eq!(
                    heap.read(shared, size as usize).unwrap(),
                    vec![7; size as usize]
                );
            }
        }
        for (start, _) in held {
            let ptr = Ptr::<u8>::from_address(start);
            match ptr.kind() {
                PointerKind::Device => device.free(ptr).unwrap(),
                _ => heap.free(ptr).unwrap(),
            }
        }
    });
}

fn wrong_sizes_and_alignments(f: &Fixture) {
    both(f, |device, heap| {
        let before = heap.allocations().len();
        for (bytes, align) in [(0, 8), (64, 5), (64, 0), (64, 24), (0, 5), (64, u64::MAX)] {
            for error in [
                heap.alloc_bytes(bytes, align).unwrap_err(),
                device.malloc_bytes(bytes, align).unwrap_err(),
            ] {
                match error {
                    HeapError::Layout { bytes: b, align: a } => assert_eq!((b, a), (bytes, align)),
                    other => panic!("{other}"),
                }
            }
        }
        for error in [
            heap.alloc_bytes(u64::MAX, 16).unwrap_err(),
            heap.alloc_bytes(1 << 40, 16).unwrap_err(),
            heap.alloc_bytes(16, 1 << 40).unwrap_err(),
            heap.alloc_zeroed::<u64>(usize::MAX).unwrap_err(),
            device.malloc_bytes(u64::MAX, 16).unwrap_err(),
            device.malloc_bytes(1 << 40, 16).unwrap_err(),
            device.malloc_bytes(16, 1 << 40).unwrap_err(),
            device.malloc::<u64>(usize::MAX).unwrap_err(),
        ] {
            assert!(matches!(error, HeapError::TooLarge { .. }), "{error}");
        }
        assert_eq!(heap.allocations().len(), before);
    });
}

fn pointers_are_asked(f: &Fixture) {
    both(f, |device, heap| {
        let shared = heap.alloc_zeroed::<u32>(100).unwrap();
        let own = device.malloc::<u32>(100).unwrap();
        let other = device.malloc::<u32>(1).unwrap();
        for ptr in [shared, own] {
            for inside in [0, 1, 2, 255, 399] {
                let found = device.find(ptr.byte_add(inside)).unwrap();
                assert_eq!((found.base, found.size), (ptr.cast(), 400));
                assert_eq!(found.base.kind(), ptr.kind());
            }
            assert_eq!(
                device
                    .find(ptr.add(100))
                    .map(|found| found.base == ptr.cast()),
                None
            );
        }
        // The heap knows of its own alone; a tag that was made up leads nowhere.
        assert_eq!(heap.find(shared).map(|found| found.size), Some(400));
        assert_eq!(heap.find(own), None);
        let tag = own.address() >> 48;
        for wrong in [
            0,
            1,
            u64::MAX,
            shared.address() | tag << 48,
            own.address() ^ 9 << 48,
            own.address() ^ 1 << 40,
        ] {
            assert_eq!(
                device.find(Ptr::<u8>::from_address(wrong)),
                None,
                "{wrong:#x}"
            );
        }
        assert_eq!(device.find(other).unwrap().size, 4);
        for ptr in [own, other] {
            device.free(ptr).unwrap();
            assert_eq!(device.find(ptr), None);
        }
        heap.free(shared).unwrap();
        assert_eq!(device.find(shared), None);
    });
}

fn odd_sizes_end_where_they_say(f: &Fixture) {
    both(f, |device, heap| {
        for size in [1usize, 3, 5, 7, 9, 15, 17] {
            let values: Vec<u8> = (1..=size as u8).collect();
            let from = heap.alloc_slice(&values).unwrap();
            let own = device.malloc::<u8>(size).unwrap();
            let back = heap.alloc_zeroed::<u8>(size).unwrap();
            device.heap_copy(from, own, size).unwrap();
            device.heap_copy(own, back, size).unwrap();
            assert_eq!(heap.read(back, size).unwrap(), values);
            let big = heap.alloc_zeroed::<u8>(size + 1).unwrap();
            for error in [
                device.heap_copy(own, big, size + 1).unwrap_err(),
                device.heap_copy(big, own, size + 1).unwrap_err(),
                device.heap_fill(own, 1, size + 1).unwrap_err(),
            ] {
                assert!(matches!(error, HeapError::NotAllocated { .. }), "{error}");
            }
            for ptr in [from, back, big] {
                heap.free(ptr).unwrap();
            }
            device.free(own).unwrap();
        }
    });
}

/// `multictxt`: what belongs to another context is nobody's here.
fn pointers_of_another_context(f: &Fixture) {
    let stranger = Context::new().unwrap();
    let theirs = stranger.heap().unwrap();
    let their_device = stranger.device_named(f.device.name()).unwrap();
    let shared = theirs.alloc_slice(&[5u32; 64]).unwrap();
    let tagged = their_device.malloc::<u32>(64).unwrap();
    their_device.heap_fill(tagged, 6u32, 64).unwrap();
    let device = f.open(|options| options.checked_pointers = true);
    let heap = device.heap().unwrap();
    let mine = heap.alloc_slice(&[9u32; 64]).unwrap();
    let buffer: DeviceBuffer<u32> = device.zeroed(64).unwrap();
    let argument = kernel(
        &device,
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main() { data[0] = 1u; }",
    );
    let followed = kernel(
        &device,
        "@group(0) @binding(0) var<uniform> at: usm_ptr;
         @compute @workgroup_size(1) fn main() { let p = usm_u32(at); *p = 1u; }",
    );
    for ptr in [shared, tagged] {
        let is_foreign = |error: HeapError| match error {
            HeapError::NotAllocated { .. } => {}
            HeapError::DeviceMemory { .. } => assert_eq!(ptr, tagged),
            other => panic!("{ptr:?}: {other}"),
        };
        assert_eq!((heap.find(ptr), device.find(ptr)), (None, None));
        is_foreign(heap.read(ptr, 1).unwrap_err());
        is_foreign(heap.host().unwrap().get(ptr).map(|_| ()).unwrap_err());
        is_foreign(heap.write(ptr, &[1]).unwrap_err());
        is_foreign(heap.copy(ptr, mine, 64).unwrap_err());
        is_foreign(heap.free(ptr).unwrap_err());
        is_foreign(device.free(ptr).unwrap_err());
        is_foreign(device.heap_copy(ptr, mine, 64).unwrap_err());
        is_foreign(device.heap_copy(mine, ptr, 64).unwrap_err());
        is_foreign(device.heap_fill(ptr, 1, 64).unwrap_err());
        is_foreign(device.heap_prefetch(ptr, 64).unwrap_err());
        is_foreign(buffer.copy_from_heap(0, ptr, 64).unwrap_err());
        is_foreign(buffer.copy_to_heap(0, ptr, 64).unwrap_err());
        let mut launch = argument.launch().pointer("data", ptr, 64).workgroups(1);
        match launch.submit().unwrap_err() {
            LaunchError::Heap(error) => is_foreign(error),
            other => panic!("{other}"),
        }
        let mut launch = followed.launch().value("at", &ptr).workgroups(1);
        match launch.submit().unwrap().wait() {
            Err(WaitError::Failed(error)) => match &*error {
                ExecutionError::Pointer { address, .. } => assert_eq!(*address, ptr.address()),
                other => panic!("{other}"),
            },
            other => panic!("{ptr:?}: {other:?}"),
        }
        assert!(heap.host().is_err());
    }
    // Nothing came of it, here or there.
    assert_eq!(heap.read(mine, 64).unwrap(), [9; 64]);
    assert_eq!(theirs.read(shared, 64).unwrap(), [5; 64]);
    their_device.heap_copy(tagged, shared, 64).unwrap();
    assert_eq!(theirs.read(shared, 64).unwrap(), [6; 64]);
    heap.free(mine).unwrap();
}

/// `dmemll`: a list that no host ever sees, and what is left of it.
fn lists_in_device_memory_alone(f: &Fixture) {
    both(f, |device, _| {
        let nodes = device.malloc::<[u32; 4]>(50).unwrap();
        let build = kernel(
            device,
            "struct Node { value: u32, tag: u32, next: usm_ptr }
             @group(0) @binding(0) var<uniform> nodes: usm_ptr;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if id.x >= 50u { return; }
                let n = usm_Node(usm_element(nodes, id.x * 7u % 50u, 16u));
                n.value = id.x;
                n.tag = 3u;
                n.next = usm_element(nodes, (id.x + 1u) * 7u % 50u, 16u);
                if id.x == 49u { n.next = usm_null(); }
             }",
        );
        let walk = kernel(
            device,
            "struct Node { value: u32, tag: u32, next: usm_ptr }
             @group(0) @binding(0) var<uniform> nodes: usm_ptr;
             @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
             @compute @workgroup_size(1) fn main() {
                var p = nodes; var count = 0u; var sum = 1u;
                while !usm_is_null(p) && count < 1000u {
                    let n = usm_Node(p);
                    sum = sum * 5u + n.value; count += n.tag; n.value = 0u;
                    p = n.next;
                }
                sink[0] = sum; sink[1] = count;
             }",
        );
        build
            .launch()
            .value("nodes", &nodes)
            .invocations(50)
            .submit()
            .unwrap();
        let sink: DeviceBuffer<u32> = device.zeroed(2).unwrap();
        let mut launch = walk
            .launch()
            .value("nodes", &nodes)
            .buffer("sink", &sink)
            .workgroups(1);
        for values in [true, false] {
            launch.submit().unwrap();
            let value = |i: u32| if values { i } else { 0 };
            let sum = (0..50).fold(1u32, |sum, i| sum.wrapping_mul(5).wrapping_add(value(i)));
            assert_eq!(sink.read().unwrap(), [sum, 150]);
        }
        device.free(nodes).unwrap();
    });
}

fn pointers_to_pointers(f: &Fixture) {
    both(f, |device, heap| {
        // Four steps through both kinds of memory; the last cell is changed on the way.
        let value = heap.alloc_slice(&[11u32, 22, 33]).unwrap();
        let inner = device.malloc::<Ptr<u32>>(4).unwrap();
        let middle = heap.alloc_slice(&[Ptr::null(), inner]).unwrap();
        let outer = heap.alloc(middle.add(1)).unwrap();
        let up = heap
            .alloc_slice(&[value.add(1), value, Ptr::null(), value.add(2)])
            .unwrap();
        device.heap_copy(up, inner, 4).unwrap();
        kernel(
            device,
            "alias Cell = usm_ptr;
             alias Cells = array<usm_ptr>;
             @group(0) @binding(0) var<uniform> outer: usm_ptr;
             @compute @workgroup_size(1) fn main() {
                let cells = usm_Cells(*usm_Cell(*usm_Cell(outer)));
                let first = usm_u32(cells[0]);
                let last = usm_u32(cells[3]);
                *first += *last * 100u;
                cells[2] = cells[1];
                cells[3] = usm_add(cells[1], 4u);
             }",
        )
        .launch()
        .value("outer", &outer)
        .workgroups(1)
        .submit()
        .unwrap();
        assert_eq!(heap.read(value, 3).unwrap(), [11, 3322, 33]);
        device.heap_copy(inner, up, 4).unwrap();
        assert_eq!(
            heap.read(up, 4).unwrap(),
            [value.add(1), value, value, value.add(1)]
        );
        heap.free(value).unwrap();
        heap.free(middle).unwrap();
        heap.free(outer).unwrap();
        heap.free(up).unwrap();
        device.free(inner).unwrap();
    });
}

fn values_at_every_aligned_place(f: &Fixture) {
    // A structure aligned to 4 bytes, and pairs aligned to 8, at every place that allows it, none rounder.
    both(f, |device, heap| {
        let shared = heap.alloc_slice(&[0xeeee_eeee_u32; 256]).unwrap();
        let own = device.malloc::<u32>(256).unwrap();
        let odd = kernel(
            device,
            "struct Odd { a: u32, b: f32, c: u32 }
             @group(0) @binding(0) var<uniform> at: usm_ptr;
             @group(0) @binding(1) var<uniform> pairs: usm_ptr;
             @compute @workgroup_size(1) fn main() {
                for (var i = 0u; i < 6u; i++) {
                    let o = usm_Odd(usm_add(at, i * 28u));
                    o.a = i; o.b = f32(i) + 0.5; o.c = ~i;
                    let v = usm_vec2u(usm_add(pairs, i * 24u));
                    v.y = i + 7u;
                }
             }",
        );
        for ptr in [shared, own] {
            device.heap_fill(ptr, 0xeeee_eeee_u32, 256).unwrap();
            odd.launch()
                .value("at", &ptr.add(1))
                .value("pairs", &ptr.add(130))
                .workgroups(1)
                .submit()
                .unwrap();
            let mut expected = [0xeeee_eeee_u32; 256];
            for i in 0..6u32 {
                let at = 1 + 7 * i as usize;
                expected[at..at + 3].copy_from_slice(&[i, (i as f32 + 0.5).to_bits(), !i]);
                expected[131 + 6 * i as usize] = i + 7;
            }
            if ptr == own {
                device.heap_copy(own, shared, 256).unwrap();
            }
            assert_eq!(heap.read(shared, 256).unwrap(), expected);
        }
        heap.free(shared).unwrap();
        device.free(own).unwrap();
    });
}

/// Fills by the device, in both kinds of memory, and by the host.
fn filled<const N: usize>(device: &Device, heap: &SharedHeap)
where
    [u8; N]: Pod,
{
    const BYTES: usize = 300;
    let pattern: [u8; N] = std::array::from_fn(|i| (i * 37 + N) as u8);
    let shared = heap.alloc_slice(&[0xee_u8; BYTES]).unwrap();
    let own = device.malloc::<u8>(BYTES).unwrap();
    for (start, len) in [(0, 1), (0, BYTES / N), (1, (BYTES - 1) / N), (6, 3)] {
        let mut expected = vec![0xee_u8; BYTES];
        for k in 0..len * N {
            expected[start + k] = pattern[k % N];
        }
        for way in ["own", "shared", "host"] {
            heap.fill(shared, 0xee_u8, BYTES).unwrap();
            let to = if way == "own" { own } else { shared };
            device.heap_fill(own, 0xee_u8, BYTES).unwrap();
            let at = to.byte_add(start as u64).cast();
            match way {
                "host" => heap.fill(at, pattern, len).unwrap(),
                _ => device.heap_fill(at, pattern, len).unwrap().wait().unwrap(),
            }
            if way == "own" {
                device.heap_copy(own, shared, BYTES).unwrap();
            }
            assert!(
                heap.read(shared, BYTES).unwrap() == expected,
                "{N} bytes, {len} times from {start}: {way}"
            );
        }
    }
    heap.free(shared).unwrap();
    device.free(own).unwrap();
}

fn patterns_of_every_size(f: &Fixture) {
    macro_rules! sizes {
        ($device:expr, $heap:expr, $($n:literal)*) => { $( filled::<$n>($device, $heap); )* };
    }
    both(f, |device, heap| {
        sizes!(device, heap, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        sizes!(device, heap, 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    });
}
