//! Memory larger than one binding, on every adapter: devices are opened so that they bind no more than
//! 1 MiB at once, and lists lie in many such segments, of shared memory and of the device's own.

use crate::cases;
use crate::harness::Fixture;
use crate::segment_lists::{
    ARENA, COUNTS, LINK, Node, SEGMENT, Setup, TIERS, bytes, exercise, kernel, kernel_with, open,
    own_arenas, segment, shared_arenas,
};
use tombolo::{
    Context, DeviceBuffer, DeviceOptions, Ptr,
    device::{ExecutionError, WaitError},
    heap::{HeapError, HeapSize},
    kernel::{KernelError, TranslationMode},
    launch::LaunchError,
};

cases![
    the_limit_holds,
    lists_across_segments_of_the_heap,
    lists_across_blocks_of_the_heap,
    lists_across_tags_of_device_memory,
    lists_across_segments_of_both,
    the_heap_shrinks_under_kernels,
    arguments_and_transfers_in_later_segments,
    as_many_segments_as_the_adapter_binds,
    faults_in_later_segments,
    devices_that_come_too_late_are_told,
];

fn the_limit_holds(f: &Fixture) {
    let of = |bytes| {
        f.open(|options| options.storage_binding_bytes = bytes)
            .capabilities()
            .storage_binding_bytes
    };
    let most = f.device.capabilities().storage_binding_bytes;
    assert_eq!(of(None), most);
    assert_eq!(of(Some(u64::MAX)), most);
    assert_eq!(of(Some(0)), 1 << 20);
    assert_eq!(of(Some(3 << 20)), 3 << 20);
    // What is bound at once is no longer than that, be it a buffer or memory of the heap.
    let device = f.open(|options| options.storage_binding_bytes = Some(SEGMENT));
    let buffer: DeviceBuffer<u32> = device.zeroed((SEGMENT / 2) as usize).unwrap();
    let source = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(1) fn main() { data[0] = arrayLength(&data); }";
    let kernel = kernel(&device, source, "main", TranslationMode::DeviceFavored);
    let error = kernel
        .launch()
        .buffer("data", &buffer)
        .workgroups(1)
        .submit()
        .unwrap_err();
    assert!(error.to_string().contains("1048576"), "{error}");
    kernel
        .launch()
        .buffer("data", buffer.slice(..SEGMENT / 4))
        .workgroups(1)
        .submit()
        .unwrap();
    assert_eq!(buffer.read().unwrap()[0], 1 << 18);
}

fn lists_across_segments_of_the_heap(f: &Fixture) {
    for mirrored in TIERS {
        for (count, checked) in COUNTS {
            let (_context, device, heap) = open(
                f,
                Setup {
                    mirrored,
                    checked,
                    split: false,
                },
            );
            let arenas = shared_arenas(&heap, count);
            exercise(&device, &heap, &arenas, TranslationMode::SharedFavored);
        }
    }
}

fn lists_across_blocks_of_the_heap(f: &Fixture) {
    // Of one binding: what the heap had first, and what it grew by.
    for live in [true, false] {
        let size = HeapSize::Bytes(96 << 20);
        let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
        let mut options = DeviceOptions::default();
        options.live_memory = live;
        let device = context.device_named_with(f.device.name(), options).unwrap();
        let heap = context.heap().unwrap();
        let poison = vec![0xee_u8; ARENA];
        let mut arenas = Vec::new();
        let mut before = None;
        for _ in 0..3 {
            let arena: Ptr<Node> = heap.alloc_slice(&poison).unwrap().cast();
            if let Some(before) = before {
                // In memory that was not there when the kernels ran before.
                assert!(arena.address() - heap.base().address() >= before);
            }
            arenas.push(arena);
            exercise(&device, &heap, &arenas, TranslationMode::DeviceFavored);
            before = Some(heap.committed());
            let gap = heap.committed() - heap.statistics().in_use;
            heap.alloc_bytes(gap, 16).unwrap();
            for &arena in &arenas {
                heap.fill(arena.cast::<u8>(), 0xee, ARENA).unwrap();
            }
        }
    }
}

fn lists_across_tags_of_device_memory(f: &Fixture) {
    for mirrored in TIERS {
        for (count, checked) in COUNTS {
            let (_context, device, heap) = open(
                f,
                Setup {
                    mirrored,
                    checked,
                    split: true,
                },
            );
            let arenas = own_arenas(&device, count);
            exercise(&device, &heap, &arenas, TranslationMode::DeviceFavored);
        }
    }
}

fn lists_across_segments_of_both(f: &Fixture) {
    for (shared, own, checked, mode) in [
        (1, 1, true, TranslationMode::DeviceFavored),
        (2, 2, false, TranslationMode::DeviceFavored),
        (2, 2, true, TranslationMode::SharedFavored),
        (5, 3, false, TranslationMode::SharedFavored),
        (2, 6, true, TranslationMode::DeviceFavored),
    ] {
        for mirrored in TIERS {
            let (_context, device, heap) = open(
                f,
                Setup {
                    mirrored,
                    checked,
                    split: true,
                },
            );
            let mut arenas = shared_arenas(&heap, shared);
            arenas.extend(own_arenas(&device, own));
            // So that neighbours in the list are of different kinds.
            arenas.rotate_left(1);
            exercise(&device, &heap, &arenas, mode);
            for arena in arenas {
                match heap.find(arena) {
                    Some(_) => heap.free(arena).unwrap(),
                    None => device.free(arena).unwrap(),
                }
            }
        }
    }
}

const BUMP: &str = "
struct Node { value: u32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> at: usm_ptr;
@compute @workgroup_size(1) fn main() { let n = usm_Node(at); n.value += 1u; }";

fn the_heap_shrinks_under_kernels(f: &Fixture) {
    for mirrored in TIERS {
        let (_context, device, heap) = open(
            f,
            Setup {
                mirrored,
                checked: true,
                split: true,
            },
        );
        let own = own_arenas(&device, 1);
        let kept = shared_arenas(&heap, 1);
        let run = |more: &[Ptr<Node>]| {
            for arena in &own {
                let event = device.heap_fill(arena.cast::<u8>(), 0xee, ARENA);
                event.unwrap().wait().unwrap();
            }
            heap.fill(kept[0].cast::<u8>(), 0xee, ARENA).unwrap();
            let arenas = [&own, &kept, more].concat();
            exercise(&device, &heap, &arenas, TranslationMode::DeviceFavored);
        };
        run(&[]);
        for _ in 0..2 {
            let poison = vec![0xee_u8; ARENA];
            let more: Vec<Ptr<Node>> = (0..3)
                .map(|_| heap.alloc_slice(&poison).unwrap().cast())
                .collect();
            assert!(more.iter().any(|&ptr| segment(&heap, ptr) == 3));
            run(&more);
            // Made for all the segments that there are now.
            let bump = kernel(&device, BUMP, "main", TranslationMode::DeviceFavored);
            let bumped = |at: Ptr<Node>| {
                let mut launch = bump.launch().value("at", &at).workgroups(1);
                launch.submit().unwrap().wait().unwrap();
                bytes(&device, &heap, at)[..4] == [0xef, 0xee, 0xee, 0xee]
            };
            for arena in more.iter().chain(&own) {
                device.heap_fill(arena.cast::<u8>(), 0xee, 4).unwrap();
                assert!(bumped(*arena));
            }
            for arena in more {
                heap.free(arena).unwrap();
            }
            assert!(heap.trim() > 0);
            for arena in kept.iter().chain(&own) {
                device.heap_fill(arena.cast::<u8>(), 0xee, 4).unwrap();
                assert!(bumped(*arena));
            }
            run(&[]);
        }
    }
}

fn arguments_and_transfers_in_later_segments(f: &Fixture) {
    const LEN: usize = 1000;
    let source = "
        @group(0) @binding(0) var<storage, read> source: array<u32>;
        @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&sink) { sink[id.x] = source[id.x] * 3u + 1u; }
        }";
    for mirrored in TIERS {
        for split in [false, true] {
            let (_context, device, heap) = open(
                f,
                Setup {
                    mirrored,
                    checked: true,
                    split,
                },
            );
            let shared = shared_arenas(&heap, 3);
            let own = match split {
                true => own_arenas(&device, 2),
                false => Vec::new(),
            };
            let all: Vec<Ptr<u32>> = shared.iter().chain(&own).map(|ptr| ptr.cast()).collect();
            let kernel = kernel(&device, source, "main", TranslationMode::DeviceFavored);
            let values: Vec<u32> = (0..LEN as u32).map(|i| i * 17 + 5).collect();
            let first = heap.alloc_slice(&values).unwrap();
            // From one to the next, at the end of each by a copy and a fill.
            let mut from = first;
            let mut expected = values;
            for &to in &all {
                for x in &mut expected {
                    *x = x.wrapping_mul(3).wrapping_add(1);
                }
                let mut launch = kernel
                    .launch()
                    .pointer("source", from, LEN)
                    .pointer("sink", to.add(64), LEN)
                    .invocations(LEN as u32);
                launch.submit().unwrap().wait().unwrap();
                let end = to.add((ARENA / 4 - LEN) as u64);
                device.heap_fill(end.add(1), 77u32, 3).unwrap();
                device
                    .heap_copy(to.add(64), end.add(100), LEN - 100)
                    .unwrap();
                from = to.add(64);
            }
            for (i, &to) in all.iter().enumerate() {
                let seen = bytes(&device, &heap, to.cast());
                let words: &[u32] = bytemuck::cast_slice(&seen);
                let mut expected = vec![0xeeee_eeee_u32; ARENA / 4];
                let mut values: Vec<u32> = (0..LEN as u32).map(|i| i * 17 + 5).collect();
                for _ in 0..=i {
                    for x in &mut values {
                        *x = x.wrapping_mul(3).wrapping_add(1);
                    }
                }
                expected[64..64 + LEN].copy_from_slice(&values);
                let end = ARENA / 4 - LEN;
                expected[end + 1..end + 4].fill(77);
                expected[end + 100..].copy_from_slice(&values[..LEN - 100]);
                assert!(words == expected, "place {i}");
            }
        }
    }
}

fn as_many_segments_as_the_adapter_binds(f: &Fixture) {
    let (_context, device, heap) = open(
        f,
        Setup {
            mirrored: false,
            checked: false,
            split: true,
        },
    );
    let bindings = device.capabilities().storage_bindings_per_stage;
    // A device has no more than 64 in any case.
    let most = (bindings as usize - 2).min(64);
    let own = own_arenas(&device, most);
    let error = device.malloc::<u8>(ARENA).unwrap_err();
    match &error {
        HeapError::OutOfSegments {
            segments,
            bindings: named,
            ..
        } => assert_eq!((*segments, *named), (most, bindings)),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains(&bindings.to_string()), "{error}");
    // Small ones still fit, and so does what takes the place of something else.
    let small = device.malloc::<u8>(1000).unwrap();
    device.free(own[1]).unwrap();
    assert_eq!(device.malloc::<u8>(ARENA).unwrap(), own[1].cast());
    device.free(small).unwrap();
    let much = device.malloc::<u8>(SEGMENT as usize + 1).unwrap_err();
    assert!(matches!(much, HeapError::TooLarge { .. }), "{much}");
    exercise(&device, &heap, &own, TranslationMode::DeviceFavored);
    if most < bindings as usize - 2 {
        // There is room for arguments.
        return;
    }
    // Arguments of the kernel's own, of which words of one kind cannot take the place, are one too many, and the
    // error says what of.
    let poke = format!(
        "{LINK}
        @group(0) @binding(3) var<storage, read_write> a: array<atomic<u32>>;
        @group(0) @binding(4) var<storage, read_write> b: array<atomic<i32>>;
        @compute @workgroup_size(1) fn poke() {{
            atomicMax(&a[0], usm_Node(place(0u)).value); atomicMax(&b[0], i32(usm_Node(place(1u)).tag));
        }}"
    );
    match kernel_with(&device, &poke, "poke", TranslationMode::DeviceFavored) {
        Err(KernelError::Limit {
            what,
            wanted,
            limit,
            instead,
            ..
        }) => {
            assert_eq!(what, "storage buffers");
            assert_eq!((wanted, limit), (u64::from(bindings) + 1, bindings.into()));
            assert!(instead.contains("segment"), "{instead}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a kernel with too many bindings was made"),
    }
    // A kernel that was made before is told at its next launch.
    let (_context, device, heap) = open(
        f,
        Setup {
            mirrored: false,
            checked: false,
            split: true,
        },
    );
    let arenas = heap.alloc_slice(&own_arenas(&device, 1)).unwrap();
    let kernel = kernel(&device, &poke, "poke", TranslationMode::DeviceFavored);
    let sink: DeviceBuffer<u32> = device.zeroed(1).unwrap();
    let other: DeviceBuffer<u32> = device.zeroed(1).unwrap();
    let mut launch = kernel
        .launch()
        .value("arenas", &arenas)
        .value("count", &1u32)
        .buffer("a", &sink)
        .buffer("b", &other)
        .workgroups(1);
    launch.submit().unwrap().wait().unwrap();
    assert_eq!(sink.read().unwrap(), [0xeeee_eeee]);
    own_arenas(&device, most - 1);
    let error = launch.submit().unwrap_err();
    let LaunchError::Kernel(error) = error else {
        panic!("{error}")
    };
    assert!(matches!(*error, KernelError::Limit { .. }), "{error}");
}

fn faults_in_later_segments(f: &Fixture) {
    for mirrored in TIERS {
        let (_context, device, heap) = open(
            f,
            Setup {
                mirrored,
                checked: true,
                split: true,
            },
        );
        let mut arenas = shared_arenas(&heap, 2);
        let own = own_arenas(&device, 6);
        arenas.extend(&own);
        let kernel = kernel(&device, BUMP, "main", TranslationMode::DeviceFavored);
        let run = |at: Ptr<Node>| {
            let mut launch = kernel.launch().value("at", &at).workgroups(1);
            launch.submit().unwrap().wait()
        };
        // The last node of a segment is there, and what lies behind the last segment is not.
        let last_tag = own.iter().map(|ptr| ptr.address() >> 48).max().unwrap();
        let end = Ptr::<Node>::from_address(last_tag << 48 | (SEGMENT - 16));
        run(end).unwrap();
        let committed = heap.committed();
        let wrong = [
            end.byte_add(16),
            end.byte_add(1 << 20),
            Ptr::from_address((last_tag + 1) << 48),
            Ptr::from_address(last_tag << 48 | 1 << 32),
            heap.base().byte_add(committed).cast(),
        ];
        for at in wrong {
            match run(at) {
                Err(WaitError::Failed(error)) => match &*error {
                    ExecutionError::Pointer { address, .. } => assert_eq!(*address, at.address()),
                    other => panic!("{other}"),
                },
                other => panic!("{at:?}: {other:?}"),
            }
            assert!(matches!(heap.host(), Err(HeapError::Execution(_))));
        }
        for arena in arenas {
            assert!(
                bytes(&device, &heap, arena)
                    .iter()
                    .all(|&byte| byte == 0xee)
            );
        }
    }
}

fn devices_that_come_too_late_are_told(f: &Fixture) {
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(24 << 20)).unwrap();
    let heap = context.heap().unwrap();
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    for live in [true, false] {
        let mut options = DeviceOptions::default();
        options.storage_binding_bytes = Some(SEGMENT);
        options.live_memory = live;
        let device = context.device_named_with(f.device.name(), options).unwrap();
        let source = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
            @compute @workgroup_size(1) fn main() { data[0] = 1u; }";
        let error = kernel(&device, source, "main", TranslationMode::DeviceFavored)
            .launch()
            .pointer("data", data, 64)
            .workgroups(1)
            .submit()
            .unwrap_err();
        let LaunchError::Heap(HeapError::Unsupported { why, .. }) = &error else {
            panic!("{error}")
        };
        assert!(why.contains("open the device first"), "{error}");
    }
    // The others work as ever.
    assert_eq!(heap.read(data, 64).unwrap(), [0; 64]);
}
