//! Errors of buffers, of the heap and of device globals that no other case provokes: each that is documented is met by
//! somebody, with its numbers.

use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, with_large_stack};
use tombolo::{
    Buffer, Constants, Context, DeviceBuffer, DeviceGlobal, DeviceOptions, Program, Ptr,
    buffers::{BufferError, MemoryError, Placement, ReadError},
    device::{Aspect, LiveError, PipelineCacheError},
    globals::{GlobalError, scope},
    heap::{HeapError, HeapSize, PointerKind},
};

cases![
    buffers_of_one_device,
    reads_of_buffers,
    parts_and_placements,
    pointers_of_every_wrong_kind,
    allocations_of_every_wrong_kind,
    device_memory_of_every_wrong_kind,
    heaps_on_devices_that_cannot,
    live_words,
    device_globals,
    pipeline_caches,
];

fn buffers_of_one_device(f: &Fixture) {
    let device = &f.device;
    let zero_sized = device.zeroed::<[u32; 0]>(4).map(|_| ()).unwrap_err();
    assert!(
        matches!(zero_sized, MemoryError::ZeroSized { .. }),
        "{zero_sized}"
    );
    let raw = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 20,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    let odd = device
        .import::<[u32; 2]>(raw.clone())
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(
            odd,
            MemoryError::ElementSize {
                bytes: 20,
                element_bytes: 8,
                ..
            }
        ),
        "{odd}"
    );
    let zero_sized = device.import::<[u32; 0]>(raw).map(|_| ()).unwrap_err();
    assert!(
        matches!(zero_sized, MemoryError::ZeroSized { .. }),
        "{zero_sized}"
    );
    let buffer: DeviceBuffer<u32> = device.zeroed(8).unwrap();
    let other: DeviceBuffer<u32> = f.open(|_| {}).zeroed(8).unwrap();
    let rect = tombolo::buffers::Rect::plane([0, 0], [2, 2], 3).unwrap();
    let refused = buffer.copy_rect_to(&rect, &other, &rect).map(|_| ());
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, MemoryError::OtherDevice { .. }),
        "{refused}"
    );
    // A value larger than a binding.
    let small = f.open(|options| options.storage_binding_bytes = Some(1 << 20));
    let values: DeviceBuffer<[[u32; 512]; 600]> = small.zeroed(2).unwrap();
    with_large_stack(|| {
        let refused = values.fill([[1; 512]; 600], ..2).map(|_| ()).unwrap_err();
        assert!(matches!(refused, MemoryError::TooLarge { bytes, .. } if bytes == 4 * 512 * 600));
        values.fill([[0; 512]; 600], ..2).unwrap();
    });
}

fn reads_of_buffers(f: &Fixture) {
    let buffer: DeviceBuffer<u32> = f.device.zeroed(8).unwrap();
    let beyond = |error: ReadError| match error {
        ReadError::Memory(MemoryError::OutOfRange {
            start, end, len, ..
        }) => {
            assert_eq!((start, end, len), (7, 9, 8));
        }
        other => panic!("{other}"),
    };
    beyond(buffer.read_range(7..9).unwrap_err());
    let back = buffer.read_back(7..9).map(|_| ()).unwrap_err();
    assert!(matches!(back, MemoryError::OutOfRange { .. }), "{back}");
    // Turned round it is empty.
    assert!(buffer.read_range(5..5).unwrap().is_empty());
    // A kernel that goes on until its loop is long over, asked for at once.
    let device = f.open(|options| options.loop_guard = tombolo::device::LoopGuardPolicy::Off);
    let program = Program::new(
        "long.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             var x = data[id.x];
             for (var i = 0u; i < 6000u; i++) { x = x * 1664525u + 1013904223u; }
             data[id.x] = x;
         }",
    );
    let kernel = device
        .kernel(&program.unwrap(), "main", &Constants::new())
        .unwrap();
    let data: DeviceBuffer<u32> = device.zeroed(1 << 16).unwrap();
    let mut launch = kernel.launch().buffer("data", &data).invocations(1 << 16);
    for _ in 0..6 {
        launch.submit().unwrap();
    }
    let back = data.read_back(..1).unwrap();
    let late = back.wait_timeout(Duration::ZERO);
    assert!(matches!(late, Err(ReadError::Deadline)), "{late:?}");
    assert!(back.try_take().unwrap().is_none());
    let values = back.wait_timeout(Duration::from_secs(120)).unwrap();
    assert_ne!(values, [0]);
    for taken in [back.wait_timeout(Duration::ZERO), back.wait()] {
        assert!(matches!(taken, Err(ReadError::Taken)), "{taken:?}");
    }
}

fn parts_and_placements(f: &Fixture) {
    for placement in [Placement::Auto, Placement::Shared] {
        let buffer: Buffer<u32> = f.context.buffer_with(10, placement).unwrap();
        let (a, b) = (buffer.slice(..4).unwrap(), buffer.slice(3..7).unwrap());
        let error = a.copy_to(&b).unwrap_err();
        assert!(
            matches!(&error, BufferError::Overlap { from, to } if (from, to) == (&(0..16), &(12..28))),
            "{error}"
        );
        let error = a.copy_to(&buffer).unwrap_err();
        assert!(
            matches!(
                error,
                BufferError::OutOfRange {
                    end: 4,
                    len: 10,
                    ..
                }
            ),
            "{error}"
        );
        let mapped = buffer.map(..).unwrap();
        for error in [
            buffer.discard().unwrap_err(),
            buffer.fill(1, 9..).unwrap_err(),
            buffer.write(9, &[1]).unwrap_err(),
            buffer.map_overwrite(9..).map(|_| ()).unwrap_err(),
        ] {
            assert!(
                matches!(error, BufferError::Mapped { writing: false, .. }),
                "{error}"
            );
        }
        drop(mapped);
        let other = Context::new().unwrap();
        let foreign = other.device_named(f.device.name()).unwrap();
        for error in [
            buffer.prefetch(&foreign).map(|_| ()).unwrap_err(),
            buffer.migrate(&foreign).map(|_| ()).unwrap_err(),
            buffer.migrate_undefined(&foreign).unwrap_err(),
            buffer.evict(&foreign).unwrap_err(),
        ] {
            assert!(matches!(error, BufferError::OtherContext { .. }), "{error}");
        }
    }
    let heap = f.context.heap().unwrap();
    let ptr = heap.alloc_slice(&[1u32; 4]).unwrap();
    let error = f.context.buffer_in(ptr, 5).map(|_| ()).unwrap_err();
    let is_it = matches!(error, BufferError::Heap(HeapError::NotAllocated { .. }));
    assert!(is_it, "{error}");
    let error = f
        .context
        .buffer_in(ptr.cast::<[u32; 0]>(), 5)
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, BufferError::ZeroSized { .. }), "{error}");
    heap.free(ptr).unwrap();
}

/// Pointers that lead nowhere, and how each is told.
fn wrong(error: &HeapError, which: usize) -> bool {
    match which {
        0 => matches!(error, HeapError::Null { .. }),
        1 => matches!(error, HeapError::Misaligned { align: 4, .. }),
        2 | 3 => matches!(error, HeapError::NotAllocated { .. }),
        _ => matches!(
            error,
            HeapError::DeviceMemory { .. } | HeapError::NotAllocated { .. }
        ),
    }
}

fn pointers_of_every_wrong_kind(f: &Fixture) {
    let (device, heap) = (&f.device, f.context.heap().unwrap());
    let good = heap.alloc_slice(&[7u32; 16]).unwrap();
    let buffer: DeviceBuffer<u32> = device.zeroed(16).unwrap();
    let freed = heap.alloc_slice(&[1u32; 300]).unwrap();
    heap.free(freed).unwrap();
    let elsewhere = Ptr::<u32>::from_address(!0 << 2);
    assert_eq!(elsewhere.kind(), PointerKind::Device);
    let pointers = [
        Ptr::null(),
        good.byte_add(1),
        good.add(13),
        freed,
        elsewhere,
    ];
    for (which, ptr) in pointers.into_iter().enumerate() {
        let mut errors = vec![
            device.heap_copy(ptr, good, 4).map(|_| ()).unwrap_err(),
            device.heap_copy(good, ptr, 4).map(|_| ()).unwrap_err(),
            device.heap_fill(ptr, 1, 4).map(|_| ()).unwrap_err(),
            device.heap_prefetch(ptr, 4).map(|_| ()).unwrap_err(),
            buffer.copy_from_heap(0, ptr, 4).map(|_| ()).unwrap_err(),
            buffer.copy_to_heap(0, ptr, 4).map(|_| ()).unwrap_err(),
            heap.read(ptr, 4).map(|_| ()).unwrap_err(),
            heap.write(ptr, &[1; 4]).unwrap_err(),
            heap.fill(ptr, 1, 4).unwrap_err(),
            heap.copy(ptr, good, 4).unwrap_err(),
            heap.copy(good, ptr, 4).unwrap_err(),
            heap.atomic_u32_slice(ptr, 4).map(|_| ()).unwrap_err(),
        ];
        let mut host = heap.host().unwrap();
        errors.push(host.slice(ptr, 4).map(|_| ()).unwrap_err());
        errors.push(host.slice_mut(ptr, 4).map(|_| ()).unwrap_err());
        if which != 2 {
            errors.push(host.get(ptr).map(|_| ()).unwrap_err());
            errors.push(host.get_mut(ptr).map(|_| ()).unwrap_err());
        }
        for error in errors {
            assert!(wrong(&error, which), "{which}: {error}");
        }
    }
    for (start, count) in [(13, 4), (u64::MAX, 1), (0, u64::MAX)] {
        for error in [
            buffer
                .copy_from_heap(start, good, count)
                .map(|_| ())
                .unwrap_err(),
            buffer
                .copy_to_heap(start, good, count)
                .map(|_| ())
                .unwrap_err(),
        ] {
            let is_it = matches!(error, HeapError::Buffer(MemoryError::OutOfRange { .. }));
            assert!(is_it, "{error}");
        }
    }
    let error = device
        .heap_copy(good, good.add(1), 4)
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, HeapError::Overlap { .. }), "{error}");
    // Nothing was changed by all of that.
    assert_eq!(heap.read(good, 16).unwrap(), [7; 16]);
    let late = heap.host().unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| heap.host_timeout(Duration::ZERO).map(|_| ()));
        assert!(matches!(other.join().unwrap(), Err(HeapError::Deadline)));
    });
    drop(late);
    heap.free(good).unwrap();
}

fn allocations_of_every_wrong_kind(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    for (bytes, align) in [(0, 16), (8, 0), (8, 3), (8, u64::MAX)] {
        let error = heap.alloc_bytes(bytes, align).unwrap_err();
        assert!(
            matches!(error, HeapError::Layout { bytes: b, align: a } if (b, a) == (bytes, align)),
            "{error}"
        );
    }
    assert!(matches!(
        heap.alloc_slice::<u32>(&[]).unwrap_err(),
        HeapError::Layout { .. }
    ));
    assert!(matches!(
        heap.alloc_zeroed::<u32>(0).unwrap_err(),
        HeapError::Layout { .. }
    ));
    let ptr = heap.alloc_slice(&[1u32; 8]).unwrap();
    assert!(matches!(
        heap.free(ptr.add(1)),
        Err(HeapError::Interior { .. })
    ));
    assert!(matches!(
        heap.free(Ptr::<u32>::null()),
        Err(HeapError::Null { .. })
    ));
    heap.free(ptr).unwrap();
    assert!(matches!(
        heap.free(ptr),
        Err(HeapError::NotAllocated { .. })
    ));
    // A heap that is full, and one that could never hold it.
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(4 << 20)).unwrap();
    let small = context.heap().unwrap();
    let most = small.alloc_bytes(3 << 20, 16).unwrap();
    let error = small.alloc_bytes(2 << 20, 16).unwrap_err();
    assert!(
        matches!(error, HeapError::OutOfMemory { bytes, .. } if bytes == 2 << 20),
        "{error}"
    );
    let error = small.alloc_bytes(5 << 20, 16).unwrap_err();
    assert!(matches!(error, HeapError::TooLarge { .. }), "{error}");
    small.free(most).unwrap();
}

fn device_memory_of_every_wrong_kind(f: &Fixture) {
    for unified in [None, Some(false)] {
        let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(64 << 20)).unwrap();
        let mut options = DeviceOptions::default();
        options.unified_memory = unified;
        options.storage_binding_bytes = Some(1 << 20);
        let device = context.device_named_with(f.device.name(), options).unwrap();
        assert!(matches!(
            device.malloc::<u32>(0),
            Err(HeapError::Layout { .. })
        ));
        assert!(matches!(
            device.malloc_bytes(8, 3),
            Err(HeapError::Layout { .. })
        ));
        let error = device.malloc_bytes(2 << 20, 16).unwrap_err();
        assert!(matches!(error, HeapError::TooLarge { .. }), "{error}");
        let ptr = device.malloc::<u32>(8).unwrap();
        assert!(matches!(
            device.free(Ptr::<u32>::null()),
            Err(HeapError::Null { .. })
        ));
        assert!(matches!(
            device.free(ptr.add(1)),
            Err(HeapError::Interior { .. })
        ));
        let shared = context.heap().unwrap().alloc(1u32).unwrap();
        assert!(matches!(
            device.free(shared),
            Err(HeapError::NotAllocated { .. })
        ));
        device.free(ptr).unwrap();
        assert!(matches!(
            device.free(ptr),
            Err(HeapError::NotAllocated { .. })
        ));
        let mut all = Vec::new();
        let full = loop {
            match device.malloc_bytes(1 << 19, 16) {
                Ok(ptr) => all.push(ptr),
                Err(error) => break error,
            }
        };
        match device.has(Aspect::UnifiedMemory) {
            true => assert!(matches!(full, HeapError::OutOfMemory { .. }), "{full}"),
            false => assert!(matches!(full, HeapError::OutOfSegments { .. }), "{full}"),
        }
        for ptr in all {
            device.free(ptr).unwrap();
        }
    }
}

fn heaps_on_devices_that_cannot(f: &Fixture) {
    // A device that binds less than the parts in which the heap was laid out before it came.
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(64 << 20)).unwrap();
    let heap = context.heap().unwrap();
    let ptr = heap.alloc_zeroed::<u8>(8 << 20).unwrap();
    let mut options = DeviceOptions::default();
    options.storage_binding_bytes = Some(1 << 20);
    let device = context.device_named_with(f.device.name(), options).unwrap();
    let buffer: DeviceBuffer<u8> = device.zeroed(16).unwrap();
    for error in [
        device
            .heap_copy(ptr, ptr.add(100), 4)
            .map(|_| ())
            .unwrap_err(),
        device.heap_fill(ptr, 1, 4).map(|_| ()).unwrap_err(),
        device.heap_prefetch(ptr, 4).map(|_| ()).unwrap_err(),
        buffer.copy_from_heap(0, ptr, 4).map(|_| ()).unwrap_err(),
        buffer.copy_to_heap(0, ptr, 4).map(|_| ()).unwrap_err(),
    ] {
        assert!(matches!(error, HeapError::Unsupported { .. }), "{error}");
        assert!(
            error.to_string().contains("open the device first"),
            "{error}"
        );
    }
}

fn live_words(f: &Fixture) {
    let without = f.open(|options| options.live_memory = false);
    let error = without.live(4).map(|_| ()).unwrap_err();
    assert!(matches!(error, LiveError::Unsupported { .. }), "{error}");
    if !f.device.has(Aspect::LiveMemory) {
        return;
    }
    for len in [0, usize::MAX, 1 << 60] {
        let error = f.device.live(len).map(|_| ()).unwrap_err();
        assert!(matches!(error, LiveError::Size { .. }), "{len}: {error}");
    }
    let live = f.device.live(4).unwrap();
    assert_eq!((live.load(4), live.store(4, 1)), (None, None));
    assert_eq!(
        (live.load(usize::MAX), live.store(usize::MAX, 1)),
        (None, None)
    );
}

fn device_globals(f: &Fixture) {
    static HERE: DeviceGlobal<[u32; 8]> = DeviceGlobal::new("memory_errors_here");
    static IMAGE: DeviceGlobal<
        [u32; 4],
        tombolo::globals::host_access::ReadWrite,
        scope::PerImage,
    > = DeviceGlobal::new("memory_errors_image").image_scope();
    let device = &f.device;
    let on = HERE.on(device);
    on.write(&[1; 8]).unwrap();
    let buffer: DeviceBuffer<u32> = device.zeroed(8).unwrap();
    let is_invalid = |error: GlobalError| assert!(error.is_invalid(), "{error}");
    is_invalid(on.copy_in(&[1u32; 2], 7).map(|_| ()).unwrap_err());
    is_invalid(on.copy_out::<u32>(7, 2).map(|_| ()).unwrap_err());
    is_invalid(on.memcpy_in(&[1; 2], 31).map(|_| ()).unwrap_err());
    is_invalid(on.memcpy_out(31, 2).map(|_| ()).unwrap_err());
    is_invalid(
        on.memcpy_out(usize::MAX, usize::MAX)
            .map(|_| ())
            .unwrap_err(),
    );
    is_invalid(on.copy_to_buffer(7, &buffer, 0, 2).map(|_| ()).unwrap_err());
    is_invalid(
        on.copy_from_buffer(7, &buffer, 0, 2)
            .map(|_| ())
            .unwrap_err(),
    );
    is_invalid(on.get(8).unwrap_err());
    is_invalid(on.set(usize::MAX, &1).map(|_| ()).unwrap_err());
    assert_eq!(on.read().unwrap(), [1; 8]);
    // No module names it: its value is the host's, and no device has it.
    let on = IMAGE.on(device);
    on.write(&[3; 4]).unwrap();
    assert_eq!(on.read().unwrap(), [3; 4]);
    for error in [
        on.copy_to_buffer(0, &buffer, 0, 2).map(|_| ()).unwrap_err(),
        on.copy_from_buffer(0, &buffer, 0, 2)
            .map(|_| ())
            .unwrap_err(),
    ] {
        assert!(matches!(error, GlobalError::NotOnDevice { .. }), "{error}");
    }
    // The same name with another type.
    static OTHER: DeviceGlobal<[u32; 9]> = DeviceGlobal::new("memory_errors_here");
    let error = OTHER.on(device).read().map(|_| ()).unwrap_err();
    assert!(matches!(error, GlobalError::Conflict { .. }), "{error}");
    let error = OTHER.on(device).address().map(|_| ()).unwrap_err();
    assert!(matches!(error, GlobalError::Conflict { .. }), "{error}");
}

fn pipeline_caches(f: &Fixture) {
    let error = f.device.save_pipeline_cache().unwrap_err();
    assert!(
        matches!(error, PipelineCacheError::NotEnabled { .. }),
        "{error}"
    );
    if !f.device.has(Aspect::PipelineCache) {
        return;
    }
    // Where the folder should be there is a file.
    let place = std::env::temp_dir().join(format!("tombolo-errors-{}", std::process::id()));
    std::fs::write(&place, b"in the way").unwrap();
    let device = f.open(|options| options.pipeline_cache = Some(place.join("cache")));
    let error = device.save_pipeline_cache().unwrap_err();
    assert!(matches!(error, PipelineCacheError::Io { .. }), "{error}");
    std::fs::remove_file(&place).unwrap();
    device.save_pipeline_cache().unwrap();
    drop(device);
    std::fs::remove_dir_all(&place).unwrap();
}
