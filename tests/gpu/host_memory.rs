//! Sizes that no host has memory for: an error that names the size, and a process that goes on.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, DeviceBuffer,
    buffers::{BufferError, MemoryError, Placement},
    heap::HeapError,
};

cases![
    buffers_larger_than_any_memory,
    heaps_and_devices_say_what_they_allow,
];

/// More bytes than any address space of today has.
const ENDLESS: usize = 1 << 58;

fn is_host_memory(error: BufferError, bytes: u64) {
    match error {
        BufferError::Memory(MemoryError::HostMemory { bytes: found, what }) => {
            assert_eq!(found, bytes, "{what}");
        }
        other => panic!("{other}"),
    }
}

fn buffers_larger_than_any_memory(f: &Fixture) {
    let all = ENDLESS as u64 * 4;
    for placement in [Placement::Auto, Placement::Device] {
        let buffer: Buffer<u32> = f.context.buffer_with(ENDLESS, placement).unwrap();
        is_host_memory(buffer.read().unwrap_err(), all);
        is_host_memory(buffer.read_range(1..).unwrap_err(), all - 4);
        is_host_memory(buffer.write(0, &[1]).unwrap_err(), all);
        is_host_memory(buffer.fill(1, ..).unwrap_err(), all);
        is_host_memory(buffer.fill(1, 5..6).unwrap_err(), all);
        is_host_memory(buffer.map(..).map(|_| ()).unwrap_err(), all);
        is_host_memory(buffer.map_mut(2..).map(|_| ()).unwrap_err(), all - 8);
        is_host_memory(buffer.map_overwrite(..).map(|_| ()).unwrap_err(), all);
        let other: Buffer<u32> = f.context.buffer_with(ENDLESS, placement).unwrap();
        is_host_memory(buffer.copy_to(&other).unwrap_err(), all);
        is_host_memory(other.copy_to(&buffer).unwrap_err(), all);
        // No map is left behind, and small parts that nobody wrote can be read.
        assert_eq!(buffer.read_range(7..9).unwrap(), [0, 0]);
        let mapped = buffer.map_overwrite(3..5).unwrap();
        assert_eq!(*mapped, [0, 0]);
        drop(mapped);
        // On a device it does not fit either, and that is another error.
        let error = buffer.prefetch(&f.device).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, BufferError::Memory(MemoryError::TooLarge { .. })),
            "{error}"
        );
    }
    let shared: Buffer<u32> = f.context.buffer_with(ENDLESS, Placement::Shared).unwrap();
    is_host_memory(shared.read().unwrap_err(), all);
    is_host_memory(shared.map_overwrite(..).map(|_| ()).unwrap_err(), all);
    for error in [
        shared.write(0, &[1]).unwrap_err(),
        shared.fill(1, ..).unwrap_err(),
    ] {
        let is_it = matches!(error, BufferError::Heap(HeapError::TooLarge { .. }));
        assert!(is_it, "{error}");
    }
    // Sizes of 2^40 words, which some systems promise and cannot keep, touch nothing that is not asked for.
    let large: Buffer<u32> = f.context.buffer(1 << 40).unwrap();
    assert_eq!(large.read_range(1 << 39..(1 << 39) + 2).unwrap(), [0, 0]);
    drop(large);
}

fn heaps_and_devices_say_what_they_allow(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let ptr = heap.alloc(1u32).unwrap();
    let read = heap.read(ptr, usize::MAX).map(|_| ()).unwrap_err();
    assert!(matches!(read, HeapError::NotAllocated { .. }), "{read}");
    let filled = heap.fill(ptr, 1, usize::MAX / 2).unwrap_err();
    assert!(matches!(filled, HeapError::NotAllocated { .. }), "{filled}");
    let found = heap.alloc_zeroed::<u64>(ENDLESS).unwrap_err();
    assert!(matches!(found, HeapError::TooLarge { .. }), "{found}");
    let found = f.device.malloc::<u64>(usize::MAX).unwrap_err();
    assert!(matches!(found, HeapError::TooLarge { .. }), "{found}");
    for len in [ENDLESS, usize::MAX] {
        let found = f.device.zeroed::<u64>(len).map(|_| ()).unwrap_err();
        assert!(matches!(found, MemoryError::TooLarge { .. }), "{found}");
    }
    let buffer: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    for (start, count) in [(0, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (4, 1)] {
        let found = buffer
            .fill(1, start..start.saturating_add(count))
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(found, MemoryError::OutOfRange { .. }), "{found}");
        let found = buffer
            .copy_to(start, &buffer, 0, count)
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(found, MemoryError::OutOfRange { .. }), "{found}");
    }
    heap.free(ptr).unwrap();
}
