//! What surrounds the shared heap: Rust collections in it, atomic views, transfers in queue order.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::Fixture;
use hashbrown::{DefaultHashBuilder, HashMap};
use tombolo::allocator_api2::vec::Vec as HeapVec;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, Kernel, Program, Ptr, SharedHeap,
    buffers::{MemoryError, ReadError},
    heap::{HeapAllocator, HeapError, HeapSize},
};

cases![
    collections_are_arguments,
    kernels_follow_pointers_into_collections,
    blocks_outlive_their_collection_until_launches_end,
    views_talk_to_running_kernels,
    freed_words_outlive_launches_and_views,
    copies_are_ordered_with_launches,
    copies_between_heap_and_buffers,
    copies_of_parts_of_words,
    large_transfers_between_segments,
    fills_of_every_size,
    devices_own_memory_is_copied,
    wrong_transfers_are_refused,
    transfers_wait_for_the_host,
    failures_travel_with_copies,
    no_values_are_no_error,
    prefetching_moves_nothing,
];

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

const SUM: &str = "
alias Values = array<u32>;
struct Slice { values: usm_ptr, len: u32, sum: u32 }
@group(0) @binding(0) var<uniform> slices: usm_ptr;
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let s = usm_Slice(usm_add(slices, id.x * 16u));
    var sum = 0u;
    for (var i = 0u; i < s.len; i++) { sum += usm_Values(s.values)[i]; }
    s.sum = sum;
}";

#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Slice {
    values: Ptr<u32>,
    len: u32,
    sum: u32,
}

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("heap_api.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn increment(kernel: &Kernel, data: Ptr<u32>, len: u32) {
    kernel
        .launch()
        .pointer("data", data, len as usize)
        .invocations(len)
        .submit()
        .unwrap();
}

fn allocator(heap: &SharedHeap) -> HeapAllocator {
    // SAFETY: the tests here run one at a time, and wait for the launches that reach a collection before
    // they touch what these write.
    unsafe { heap.allocator() }
}

/// The device of the fixture, and one that has the heap and its own memory apart.
fn both(f: &Fixture, test: impl Fn(&Device)) {
    test(&f.device);
    test(&f.open(|options| options.unified_memory = Some(false)));
}

fn collections_are_arguments(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    let before = heap.allocations().len();
    let mut values = HeapVec::new_in(allocator(&heap));
    let mut expected: Vec<u32> = Vec::new();
    for round in 0..6u32 {
        // Each round grows the block, so that it moves.
        let more = (0..100 << round).map(|i| i * 3);
        values.extend(more.clone());
        expected.extend(more);
        let place = heap.pointer_to(values.as_ptr()).unwrap();
        let len = values.len();
        let event = kernel
            .launch()
            .pointer("data", place, len)
            .invocations(len as u32)
            .submit()
            .unwrap();
        event.wait().unwrap();
        expected.iter_mut().for_each(|x| *x += 1);
        assert_eq!(values[..], expected[..]);
    }
    drop(values);
    assert_eq!(heap.allocations().len(), before);
}

fn kernels_follow_pointers_into_collections(f: &Fixture) {
    type Map = HashMap<u32, HeapVec<u32, HeapAllocator>, DefaultHashBuilder, HeapAllocator>;
    let heap = f.context.heap().unwrap();
    let allocator = allocator(&heap);
    let mut map = Map::new_in(allocator.clone());
    for i in 0..500u32 {
        map.entry(i % 40)
            .or_insert_with(|| HeapVec::new_in(allocator.clone()))
            .push(i * i);
    }
    let slices: Vec<Slice> = (0..40)
        .map(|key| Slice {
            values: heap.pointer_to(map[&key].as_ptr()).unwrap(),
            len: map[&key].len() as u32,
            sum: 0,
        })
        .collect();
    let place = heap.alloc_slice(&slices).unwrap();
    kernel(&f.device, SUM)
        .launch()
        .value("slices", &place)
        .workgroups(40)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    for (key, slice) in heap.read(place, 40).unwrap().iter().enumerate() {
        let expected: u32 = (0..500)
            .filter(|i| i % 40 == key as u32)
            .map(|i| i * i)
            .sum();
        assert_eq!(slice.sum, expected, "{key}");
    }
    heap.free(place).unwrap();
}

fn blocks_outlive_their_collection_until_launches_end(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let copy: DeviceBuffer<u32> = f.device.zeroed(5000).unwrap();
    for round in 0..20u32 {
        let mut values = HeapVec::new_in(allocator(&heap));
        values.extend((0..5000).map(|i| i ^ round));
        let place = heap.pointer_to(values.as_ptr()).unwrap();
        let event = copy.copy_from_heap(0, place, 5000).unwrap();
        // The copy has not even been submitted.
        drop(values);
        assert_eq!(heap.find(place), None);
        let others: Vec<Ptr<u32>> = (0..4)
            .map(|_| heap.alloc_slice(&[u32::MAX; 5000]).unwrap())
            .collect();
        event.wait().unwrap();
        let expected: Vec<u32> = (0..5000).map(|i| i ^ round).collect();
        assert_eq!(copy.read().unwrap(), expected);
        others.iter().for_each(|&other| heap.free(other).unwrap());
    }
}

fn views_talk_to_running_kernels(f: &Fixture) {
    if f.tells_that_kernels_read_old_words() {
        return;
    }
    // The kernel announces itself, waits a bounded time for the host's word, and answers from it. Many
    // work-groups wait one after the other, so that the host gets its turn on a busy machine.
    let kernel = kernel(
        &f.device,
        "@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
         @compute @workgroup_size(1) fn main() {
            let token = atomicLoad(&words[2]);
            atomicStore(&words[0], token);
            atomicAdd(&words[4], 1u);
            for (var i = 0u; i < 60000u; i++) {
                if atomicLoad(&words[1]) == token + 1u {
                    atomicStore(&words[3], token + 2u);
                    break;
                }
            }
         }",
    );
    let heap = f.context.heap().unwrap();
    let words = heap.alloc_zeroed::<u32>(5).unwrap();
    let view = heap.atomic_u32_slice(words, 5).unwrap();
    let answer = heap.atomic_u32(words.add(3)).unwrap();
    let (mut groups, mut answered) = (0, false);
    for attempt in 0..20u32 {
        let token = 1000 + attempt * 10;
        view[2].store(token, Release);
        let event = kernel
            .launch()
            .pointer("words", words, 5)
            .workgroups(256)
            .submit()
            .unwrap();
        f.device.flush().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while view[0].load(Acquire) != token {
            assert!(Instant::now() < deadline, "the kernel is not heard");
            std::hint::spin_loop();
        }
        view[1].store(token + 1, Release);
        // Counting along with the kernel loses nothing.
        for _ in 0..100 {
            view[4].fetch_add(1000, AcqRel);
        }
        event.wait().unwrap();
        groups += 256 + 100_000;
        answered |= answer
            .compare_exchange(token + 2, 0, AcqRel, Acquire)
            .is_ok();
        if answered {
            break;
        }
    }
    assert!(answered, "no kernel saw the host's word while it ran");
    assert_eq!(view[4].load(Acquire), groups);
    assert!(matches!(
        heap.read(words, 1).unwrap_err(),
        HeapError::AtomicView { .. }
    ));
    drop((view, answer));
    assert_eq!(heap.read(words.add(4), 1).unwrap(), [groups]);
    heap.free(words).unwrap();
}

fn freed_words_outlive_launches_and_views(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    let words = heap.alloc_zeroed::<u32>(64).unwrap();
    let view = heap.atomic_u32_slice(words, 64).unwrap();
    increment(&kernel, words, 64);
    heap.free(words).unwrap();
    f.device.finish().unwrap();
    // The launch has ended, but somebody still looks.
    let used = heap.statistics().in_use;
    assert!(view.iter().all(|word| word.load(Acquire) == 1));
    drop(view);
    assert_eq!(heap.statistics().in_use, used - 256);

    // The other way round: the view goes first.
    let words = heap.alloc_zeroed::<u32>(64).unwrap();
    let view = heap.atomic_u32(words).unwrap();
    increment(&kernel, words, 64);
    heap.free(words).unwrap();
    let used = heap.statistics().in_use;
    drop(view);
    assert_eq!(heap.statistics().in_use, used);
    f.device.finish().unwrap();
    assert_eq!(heap.statistics().in_use, used - 256);
}

fn copies_are_ordered_with_launches(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    let data = heap.alloc_zeroed::<u32>(640).unwrap();
    let log = heap.alloc_zeroed::<u32>(640 * 8).unwrap();
    for round in 0..8u64 {
        increment(&kernel, data, 640);
        f.device.heap_copy(data, log.add(640 * round), 640).unwrap();
    }
    f.device.heap_fill(data, 77, 320).unwrap();
    increment(&kernel, data, 640);
    // Within one allocation, side by side.
    let event = f.device.heap_copy(data, data.add(320), 320).unwrap();
    event.wait().unwrap();
    let seen = heap.read(log, 640 * 8).unwrap();
    for (round, values) in seen.chunks(640).enumerate() {
        assert_eq!(values, [round as u32 + 1; 640]);
    }
    assert_eq!(heap.read(data, 640).unwrap(), [78; 640]);
    for ptr in [data, log] {
        heap.free(ptr).unwrap();
    }
}

fn copies_between_heap_and_buffers(f: &Fixture) {
    both(f, |device| {
        let heap = f.context.heap().unwrap();
        let values: Vec<u32> = (0..1000).map(|i| i * 17).collect();
        let from = heap.alloc_slice(&values).unwrap();
        let to = heap.alloc_zeroed::<u32>(1000).unwrap();
        let buffer = device.buffer(&[9u32; 1000]).unwrap();
        buffer.copy_from_heap(100, from.add(7), 800).unwrap();
        buffer.copy_to_heap(99, to.add(3), 802).unwrap();
        let mut expected = vec![9; 1000];
        expected[100..900].copy_from_slice(&values[7..807]);
        assert_eq!(buffer.read().unwrap(), expected);
        let seen = heap.read(to, 1000).unwrap();
        assert_eq!(seen[3..805], expected[99..901]);
        assert!(seen[..3].iter().chain(&seen[805..]).all(|&x| x == 0));
        // The host's writes are seen by copies that come later.
        heap.write(from, &[5u32; 10]).unwrap();
        buffer.copy_from_heap(0, from, 20).unwrap();
        let seen = buffer.read_range(0..20).unwrap();
        assert_eq!((&seen[..10], &seen[10..]), (&[5; 10][..], &values[10..20]));
        heap.free(from).unwrap();
        heap.free(to).unwrap();
    });
}

fn copies_of_parts_of_words(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let bytes: Vec<u8> = (0..37).collect();
    let from = heap.alloc_slice(&bytes).unwrap();
    let to = heap.alloc_slice(&[0xee_u8; 40]).unwrap();
    let small = heap.alloc_zeroed::<u8>(37).unwrap();
    let buffer: DeviceBuffer<u8> = f.device.zeroed(37).unwrap();
    // Up to the end on both sides: what is behind is padding.
    f.device.heap_copy(from, small, 37).unwrap();
    buffer.copy_from_heap(0, small, 37).unwrap();
    assert_eq!(buffer.read().unwrap(), bytes);
    buffer.copy_to_heap(16, small, 20).unwrap();
    let mut expected = bytes.clone();
    expected.copy_within(16..36, 0);
    assert_eq!(heap.read(small, 37).unwrap(), expected);
    // Of a longer allocation, three bytes behind the last one stay.
    f.device.heap_copy(from, to, 37).unwrap();
    let mut longer = [0xee; 40];
    longer[..37].copy_from_slice(&bytes);
    assert_eq!(heap.read(to, 40).unwrap(), longer);
    f.device.heap_copy(from.byte_add(2), small, 8).unwrap();
    expected[..8].copy_from_slice(&bytes[2..10]);
    assert_eq!(heap.read(small, 37).unwrap(), expected);
    buffer.copy_from_heap(1, from, 35).unwrap();
    let mut moved = bytes.clone();
    moved[1..36].copy_from_slice(&bytes[..35]);
    assert_eq!(buffer.read().unwrap(), moved);
    for ptr in [from, to, small] {
        heap.free(ptr).unwrap();
    }
}

fn large_transfers_between_segments(f: &Fixture) {
    const LEN: usize = 120 << 20;
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(640 << 20)).unwrap();
    let device = context.device_named(f.device.name()).unwrap();
    let heap = context.heap().unwrap();
    let from = heap.alloc_zeroed::<u8>(LEN).unwrap();
    let to = heap.alloc_zeroed::<u8>(LEN).unwrap();
    let pattern: [u8; 37] = std::array::from_fn(|i| i as u8 ^ 0x5a);
    let whole = LEN / 37;
    device.heap_fill(from.cast(), pattern, whole).unwrap();
    device.heap_copy(from, to, LEN).unwrap().wait().unwrap();
    let host = heap.host().unwrap();
    for ptr in [from, to] {
        let seen = host.slice(ptr, LEN).unwrap();
        let mut patterns = seen.chunks_exact(37);
        let wrong = patterns.position(|chunk| chunk != pattern);
        assert_eq!(wrong, None);
        assert!(seen[whole * 37..].iter().all(|&byte| byte == 0));
    }
}

/// Fills `len` patterns from byte `start` on, and compares every byte around them.
fn filled<const N: usize>(device: &Device, start: u64, len: usize)
where
    [u8; N]: bytemuck::Pod,
{
    const BYTES: usize = 1001;
    let heap = device.heap().unwrap();
    let bytes = heap.alloc_slice(&[0xee_u8; BYTES]).unwrap();
    let mut expected = vec![0xee; BYTES];
    for zero in [false, true] {
        let pattern: [u8; N] = std::array::from_fn(|i| if zero { 0 } else { (i * 7 + 1) as u8 });
        for k in 0..len * N {
            expected[start as usize + k] = pattern[k % N];
        }
        device
            .heap_fill(bytes.byte_add(start).cast(), pattern, len)
            .unwrap();
        assert_eq!(heap.read(bytes, BYTES).unwrap(), expected, "{start} {N}");
    }
    heap.free(bytes).unwrap();
}

fn fills_of_every_size(f: &Fixture) {
    for start in [0, 1, 3] {
        filled::<1>(&f.device, start, 900);
        filled::<2>(&f.device, start, 401);
        filled::<3>(&f.device, start, 101);
        filled::<16>(&f.device, start, 62);
        filled::<37>(&f.device, start, 26);
    }
}

fn devices_own_memory_is_copied(f: &Fixture) {
    both(f, |device| {
        let heap = f.context.heap().unwrap();
        let values: Vec<u32> = (0..300).map(|i| i * 5 + 1).collect();
        let shared = heap.alloc_slice(&values).unwrap();
        let back = heap.alloc_zeroed::<u32>(300).unwrap();
        let (a, b) = (
            device.malloc::<u32>(300).unwrap(),
            device.malloc::<u32>(300).unwrap(),
        );
        device.heap_copy(shared, a, 300).unwrap();
        device.heap_fill(b, 8u32, 300).unwrap();
        device.heap_copy(a.add(10), b.add(20), 100).unwrap();
        device.heap_copy(b, b.add(150), 150).unwrap();
        device.heap_copy(b, back, 300).unwrap();
        let mut expected = vec![8; 300];
        expected[20..120].copy_from_slice(&values[10..110]);
        expected.copy_within(0..150, 150);
        assert_eq!(heap.read(back, 300).unwrap(), expected);
        let buffer: DeviceBuffer<u32> = device.zeroed(300).unwrap();
        buffer.copy_from_heap(0, b, 300).unwrap();
        assert_eq!(buffer.read().unwrap(), expected);
        buffer.copy_to_heap(0, a.add(1), 299).unwrap();
        device.heap_copy(a.add(1), back, 299).unwrap();
        assert_eq!(heap.read(back, 299).unwrap(), expected[..299]);
        assert!(matches!(
            device.heap_copy(a, a.add(1), 10).unwrap_err(),
            HeapError::Overlap { .. }
        ));
        for (from, to, len) in [(a, back, 301), (back, a.add(300), 1), (a, b.add(1), 300)] {
            let error = device.heap_copy(from, to, len).unwrap_err();
            assert!(matches!(error, HeapError::NotAllocated { .. }), "{error}");
        }
        device.free(a).unwrap();
        device.free(b).unwrap();
        heap.free(shared).unwrap();
        heap.free(back).unwrap();
    });
}

fn wrong_transfers_are_refused(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_slice(&[1u32; 100]).unwrap();
    let other = heap.alloc_slice(&[2u32; 100]).unwrap();
    let buffer = f.device.buffer(&[3u32; 100]).unwrap();
    let leaves = |result: Result<tombolo::Event, HeapError>| match result.unwrap_err() {
        HeapError::NotAllocated { .. } => {}
        other => panic!("{other}"),
    };
    leaves(f.device.heap_copy(data, other, 101));
    leaves(f.device.heap_copy(data.add(1), other, 100));
    leaves(f.device.heap_copy(data, other.add(100), 1));
    leaves(f.device.heap_copy(data, other, usize::MAX));
    leaves(f.device.heap_fill(data.add(99), 7, 2));
    leaves(f.device.heap_fill(data, 7, usize::MAX / 4));
    leaves(f.device.heap_prefetch(data, 101));
    leaves(buffer.copy_from_heap(0, data.add(50), 51));
    leaves(buffer.copy_to_heap(0, data.add(50), 51));
    for start in [1, u64::MAX] {
        for result in [
            buffer.copy_from_heap(start, data, 100),
            buffer.copy_to_heap(start, data, 100),
        ] {
            assert!(matches!(
                result.unwrap_err(),
                HeapError::Buffer(MemoryError::OutOfRange { .. })
            ));
        }
    }
    for (from, to) in [(data, data), (data, data.add(49)), (data.add(49), data)] {
        assert!(matches!(
            f.device.heap_copy(from, to, 50).unwrap_err(),
            HeapError::Overlap { .. }
        ));
    }
    assert!(matches!(
        f.device.heap_copy(Ptr::null(), data, 1).unwrap_err(),
        HeapError::Null { .. }
    ));
    assert!(matches!(
        f.device.heap_fill(data.byte_add(2), 1, 1).unwrap_err(),
        HeapError::Misaligned { .. }
    ));
    // Nothing of all that has happened.
    assert_eq!(heap.read(data, 100).unwrap(), [1; 100]);
    assert_eq!(heap.read(other, 100).unwrap(), [2; 100]);
    assert_eq!(buffer.read().unwrap(), [3; 100]);
    heap.free(data).unwrap();
    heap.free(other).unwrap();
}

fn transfers_wait_for_the_host(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_slice(&[1u32; 64]).unwrap();
    let buffer = f.device.buffer(&[3u32; 64]).unwrap();
    let host = heap.host().unwrap();
    for result in [
        f.device.heap_copy(data, data.add(32), 32),
        f.device.heap_fill(data, 5, 64),
        buffer.copy_from_heap(0, data, 64),
        buffer.copy_to_heap(0, data, 64),
    ] {
        assert!(matches!(result.unwrap_err(), HeapError::HostAccess { .. }));
    }
    assert_eq!(host.read(data, 64).unwrap(), [1; 64]);
    drop(host);
    buffer.copy_to_heap(0, data, 64).unwrap();
    assert_eq!(heap.read(data, 64).unwrap(), [3; 64]);
    heap.free(data).unwrap();
}

fn failures_travel_with_copies(f: &Fixture) {
    let context = Context::new().unwrap();
    let device = context.device_named(f.device.name()).unwrap();
    let heap = context.heap().unwrap();
    let kernel = kernel(
        &device,
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main() {
            let turns = data[0]; var n = 0u;
            for (var i = 0u; i < turns; i++) { n += 1u; }
            data[1] = n;
         }",
    );
    let fails = f.is_lavapipe();
    let target = heap.alloc_zeroed::<u32>(2).unwrap();
    // From a buffer that a failed launch has written: the heap's next reader is told.
    let buffer = device.buffer(&[200_000u32, 0]).unwrap();
    kernel
        .launch()
        .buffer("data", &buffer)
        .workgroups(1)
        .submit()
        .unwrap();
    buffer.copy_to_heap(0, target, 2).unwrap();
    match heap.read(target, 2) {
        Ok(values) => assert!(!fails && values == [200_000, 200_000]),
        Err(error) => assert!(fails && matches!(error, HeapError::Execution(_)), "{error}"),
    }
    // From the heap, where a failed launch has been: the buffer's reader is told.
    let data = heap.alloc_slice(&[200_000u32, 0]).unwrap();
    let copy = device.buffer(&[0u32; 2]).unwrap();
    let take = || {
        copy.copy_from_heap(0, data, 2).unwrap();
        copy.read()
    };
    assert_eq!(take().unwrap(), [200_000, 0]);
    kernel
        .launch()
        .pointer("data", data, 2)
        .workgroups(1)
        .submit()
        .unwrap();
    match take() {
        Ok(values) => assert!(!fails && values == [200_000, 200_000]),
        Err(error) => assert!(fails && matches!(error, ReadError::Execution(_)), "{error}"),
    }
    // Once the host has been told, the heap is taken as it is.
    assert_eq!(heap.host().is_err(), fails);
    take().unwrap();
}

fn no_values_are_no_error(f: &Fixture) {
    let null = Ptr::<u32>::null();
    let buffer: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let heap = f.context.heap().unwrap();
    let _host = heap.host().unwrap();
    for event in [
        f.device.heap_copy(null, null, 0),
        f.device.heap_fill(null, 1, 0),
        f.device.heap_fill(Ptr::null(), (), 100),
        f.device.heap_prefetch(null, 0),
        buffer.copy_from_heap(4, null, 0),
        buffer.copy_to_heap(0, null, 0),
    ] {
        event.unwrap().wait().unwrap();
    }
    assert!(buffer.copy_to_heap(5, null, 0).is_err());
}

fn prefetching_moves_nothing(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_slice(&[4u32; 100]).unwrap();
    let host = heap.host().unwrap();
    // Not even the host is in the way.
    f.device.heap_prefetch(data, 100).unwrap().wait().unwrap();
    assert_eq!(host.slice(data, 100).unwrap(), [4; 100]);
    drop(host);
    heap.free(data).unwrap();
}
