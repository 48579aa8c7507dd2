//! What travels between the heap and its copies, and what becomes of it: fresh and trimmed memory, growth,
//! segments, devices that are gone.

use crate::cases;
use crate::harness::Fixture;
use crate::mirror::{INCREMENT, Node, THIN, increment, kernel, list, mirrored, open, walk};
use tombolo::{
    Context, Device, DeviceBuffer, Kernel, Ptr, SharedHeap,
    heap::{HeapError, HeapPlacement, HeapSize},
};

cases![
    fresh_memory_on_a_page_that_a_launch_changes,
    fresh_memory_where_a_launch_has_written,
    fresh_memory_reaches_every_mirror,
    changes_beside_fresh_memory_outlast_a_launch_elsewhere,
    freed_memory_holds_what_kernels_left,
    growth_keeps_pointers_and_launches_valid,
    growth_keeps_what_was_found_and_agreed,
    segments,
    only_what_changed_travels,
    changes_outlive_their_device,
    a_lost_device_takes_its_changes_along,
    unaligned_arguments_after_growth,
    trimmed_memory_comes_back_as_zeros,
    mirrors_shrink_with_the_heap,
];

fn fresh_memory_on_a_page_that_a_launch_changes(f: &Fixture) {
    let (_context, device, heap) = open(f);
    // The alignment of slices puts them beside each other, on one page.
    let old = heap.alloc_slice(&[10u32; 16]).unwrap();
    increment(&device, old, 16);
    let came_down = heap.mirror_statistics().downloaded;
    let mut all = vec![(old, 11)];
    for round in 0..6u32 {
        let fresh = heap.alloc_slice(&[round; 16]).unwrap();
        let untouched = heap.alloc_slice(&[round + 50; 16]).unwrap();
        increment(&device, old, 16);
        increment(&device, fresh, 16);
        all[0].1 += 1;
        all.extend([(fresh, round + 1), (untouched, round + 50)]);
    }
    // The host had no reason to ask.
    assert_eq!(heap.mirror_statistics().downloaded, came_down);
    let host = heap.host().unwrap();
    for (ptr, value) in &all {
        assert_eq!(host.slice(*ptr, 16).unwrap(), [*value; 16]);
    }
}

fn fresh_memory_where_a_launch_has_written(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let kept = heap.alloc_zeroed::<u32>(16).unwrap();
    for launch_again in [false, true] {
        let data = heap.alloc_zeroed::<u32>(16).unwrap();
        increment(&device, data, 16);
        device.finish().unwrap();
        // The launch has ended, but the host has not seen what it wrote.
        heap.free(data).unwrap();
        let fresh = heap.alloc_zeroed::<u32>(16).unwrap();
        assert_eq!(fresh, data);
        let mut expected = 0;
        if launch_again {
            increment(&device, fresh, 16);
            expected = 1;
        }
        let host = heap.host().unwrap();
        assert_eq!(host.slice(fresh, 16).unwrap(), [expected; 16]);
        drop(host);
        // And the device sees what the host sees.
        increment(&device, fresh, 16);
        increment(&device, kept, 16);
        let host = heap.host().unwrap();
        assert_eq!(host.slice(fresh, 16).unwrap(), [expected + 1; 16]);
        drop(host);
        heap.free(fresh).unwrap();
    }
}

fn fresh_memory_reaches_every_mirror(f: &Fixture) {
    let (context, one, heap) = open(f);
    let two = mirrored(&context, f);
    let old = heap.alloc_zeroed::<u32>(16).unwrap();
    for again in [false, true] {
        increment(&two, old, 16);
        increment(&one, old, 16);
        // The first device is ahead and has seen it, or not.
        let fresh = heap.alloc_slice(&[5u32; 16]).unwrap();
        if again {
            increment(&one, old, 16);
        }
        increment(&two, fresh, 16);
        increment(&one, fresh, 16);
        assert_eq!(heap.host().unwrap().slice(fresh, 16).unwrap(), [7; 16]);
    }
    assert_eq!(heap.host().unwrap().slice(old, 16).unwrap(), [5; 16]);
    // Also through a device that has changed nothing.
    let look = kernel(
        &one,
        "@group(0) @binding(0) var<storage, read> data: array<u32>;
        @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() { sink[0] = data[0]; }",
    );
    let sink: DeviceBuffer<u32> = one.zeroed(1).unwrap();
    let mut look = look
        .launch()
        .pointer("data", old, 16)
        .buffer("sink", &sink)
        .workgroups(1);
    increment(&two, old, 16);
    look.submit().unwrap();
    let fresh = heap.alloc_slice(&[8u32; 16]).unwrap();
    look.submit().unwrap();
    increment(&two, fresh, 16);
    assert_eq!(heap.host().unwrap().slice(fresh, 16).unwrap(), [9; 16]);
    assert_eq!(sink.read().unwrap(), [6]);
}

/// Adds one to so many words behind a pointer.
const ADD: &str = "
alias Words = array<u32>;
@group(0) @binding(0) var<uniform> words: usm_ptr;
@group(0) @binding(1) var<uniform> count: u32;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < count { let place = usm_Words(words); place[id.x] += 1u; }
}";

fn add(kernel: &Kernel, words: Ptr<u32>, count: u32) {
    let launch = kernel.launch().value("words", &words);
    let mut launch = launch.value("count", &count).invocations(count);
    launch.submit().unwrap();
}

/// What follows pointers is found by a search, and an upload to its page searches before the host asks.
fn changes_beside_fresh_memory_outlast_a_launch_elsewhere(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let kernel = kernel(&device, ADD);
    let old = heap.alloc_slice(&[10u32; 16]).unwrap();
    let elsewhere = heap.alloc_bytes(4 * 4096, 4096).unwrap().cast::<u32>();
    for round in 0..3 {
        add(&kernel, old, 16);
        let fresh = heap.alloc_slice(&[round; 16]).unwrap();
        assert_eq!(fresh.address() / 4096, old.address() / 4096);
        // Brings the fresh bytes up, and leaves their page alone.
        add(&kernel, elsewhere, 2048);
        assert_eq!(heap.read(old, 16).unwrap(), [11 + round; 16]);
        assert_eq!(heap.read(fresh, 16).unwrap(), [round; 16]);
        assert!(heap.read(elsewhere, 2048).unwrap() == [round + 1; 2048]);
    }
}

/// A copy that is compared with a shadow, beside a device with the heap in place.
fn freed_memory_holds_what_kernels_left(f: &Fixture) {
    let (context, device, heap) = open(f);
    let importing = context.device_named(f.device.name()).unwrap();
    let kept = heap.alloc_zeroed::<u32>(16).unwrap();
    let kernel = kernel(&device, ADD);
    for _ in 0..2 {
        increment(&importing, kept, 16);
        add(&kernel, kept, 16);
    }
    // The last block of the heap.
    let block = heap.alloc_zeroed::<u32>(4096).unwrap();
    add(&kernel, block, 4096);
    device.finish().unwrap();
    heap.free(block).unwrap();
    increment(&importing, kept, 16);
    let again = heap.alloc_zeroed::<u32>(4096).unwrap();
    assert_eq!(again, block);
    add(&kernel, again, 4096);
    assert!(heap.read(again, 4096).unwrap() == [1; 4096]);
    assert_eq!(heap.read(kept, 16).unwrap(), [5; 16]);
}

fn growth_keeps_pointers_and_launches_valid(f: &Fixture) {
    let (context, device, heap) = open(f);
    grow_between_launches(&device, &heap);
    drop((context, device, heap));
    let heap = HeapSize::Bytes(512 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
    let importing = context.device_named(f.device.name()).unwrap();
    grow_between_launches(&importing, &context.heap().unwrap());
}

fn grow_between_launches(device: &Device, heap: &SharedHeap) {
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    let kernel = kernel(device, INCREMENT);
    // Made before the heap grew, and submitted again and again.
    let mut launch = kernel.launch().pointer("data", data, 64).invocations(64);
    let first = list(heap, 10);
    let thin = self::kernel(device, THIN);
    let sum: DeviceBuffer<f32> = device.zeroed(1).unwrap();
    let mut blocks = Vec::new();
    for round in 0..4 {
        let block = heap.alloc_slice(&vec![round; 3 << 20]).unwrap();
        launch.submit().unwrap();
        increment(device, block, 3 << 20);
        launch.submit().unwrap();
        blocks.push(block);
    }
    thin.launch()
        .value("first", &first)
        .buffer("sum", &sum)
        .workgroups(1)
        .submit()
        .unwrap();
    let host = heap.host().unwrap();
    assert_eq!(host.slice(data, 64).unwrap(), [8; 64]);
    for (round, &block) in blocks.iter().enumerate() {
        let seen = host.slice(block, 3 << 20).unwrap();
        assert!(seen.iter().all(|&x| x == round as u32 + 1));
    }
    drop(host);
    assert_eq!(sum.read().unwrap(), [45.0]);
    assert_eq!(walk(heap, first).len(), 5);
    assert!(heap.committed() > 40 << 20);
}

fn segments(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let first = heap
        .alloc(Node {
            value: 1.0,
            tag: 0,
            next: Ptr::null(),
        })
        .unwrap();
    // Together more than lavapipe binds at once.
    let mut blocks = [(); 2].map(|()| heap.alloc_zeroed::<u32>(25 << 20).unwrap());
    blocks.sort_by_key(|block| block.address());
    let [near, far] = blocks;
    let last = far.cast::<Node>();
    let mut host = heap.host().unwrap();
    host.get_mut(first).unwrap().next = last;
    *host.get_mut(last).unwrap() = Node {
        value: 2.0,
        tag: 1,
        next: Ptr::null(),
    };
    drop(host);
    if f.is_lavapipe() {
        assert!(last.address() - heap.base().address() >= 128 << 20);
    }
    let before = heap.mirror_statistics();
    let sum: DeviceBuffer<f32> = device.zeroed(1).unwrap();
    let kernel = kernel(
        &device,
        "struct Node { value: f32, tag: u32, next: usm_ptr }
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> sum: array<f32>;
        @compute @workgroup_size(1) fn main() {
            let a = usm_Node(first);
            let b = usm_Node(a.next);
            sum[0] = a.value + b.value;
            a.tag = 70u;
            b.tag = 71u;
        }",
    );
    kernel
        .launch()
        .value("first", &first)
        .buffer("sum", &sum)
        .workgroups(1)
        .submit()
        .unwrap();
    let ends = [near, far].map(|block| block.add((25 << 20) - 64));
    for end in ends {
        increment(&device, end, 64);
    }
    assert_eq!(sum.read().unwrap(), [3.0]);
    let tags: Vec<u32> = walk(&heap, first).iter().map(|n| n.tag).collect();
    assert_eq!(tags, [70, 71]);
    for end in ends {
        assert_eq!(heap.host().unwrap().slice(end, 64).unwrap(), [1; 64]);
    }
    let after = heap.mirror_statistics();
    assert!(after.uploaded - before.uploaded <= 2 * 4096);
    // Four pages, and a bit for each of the heap's.
    assert!(after.downloaded - before.downloaded <= 4 * 4096 + (512 << 20) / 4096 / 8);
}

fn only_what_changed_travels(f: &Fixture) {
    let (_context, device, heap) = open(f);
    // 12 MiB of a heap of 16.
    let nodes = vec![
        Node {
            value: 1.0,
            tag: 7,
            next: Ptr::null()
        };
        3 << 18
    ];
    let nodes = heap.alloc_slice(&nodes).unwrap();
    let one = nodes.add(123_456);
    let kernel = kernel(
        &device,
        "struct Node { value: f32, tag: u32, next: usm_ptr }
        @group(0) @binding(0) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() { let n = usm_Node(at); n.tag += 1u; }",
    );
    let touch = || {
        let mut launch = kernel.launch().value("at", &one).workgroups(1);
        launch.submit().unwrap();
    };
    let moved = |work: &dyn Fn()| {
        let before = heap.mirror_statistics();
        work();
        let after = heap.mirror_statistics();
        (
            after.uploaded - before.uploaded,
            after.downloaded - before.downloaded,
        )
    };
    let bits = (16 << 20) / 4096 / 8;
    // The first time all of it goes up.
    let (up, down) = moved(&touch);
    assert!((12 << 20..=(12 << 20) + 2 * 4096).contains(&up), "{up}");
    assert_eq!(down, 0);
    // One page comes down, and nothing when nothing ran since.
    assert_eq!(moved(&|| drop(heap.host().unwrap())), (0, 4096 + bits));
    assert_eq!(moved(&|| drop(heap.host().unwrap())), (0, 0));
    // The device has what it has written itself.
    assert_eq!(moved(&touch), (0, 0));
    assert_eq!(moved(&touch), (0, 0));
    let change = || heap.host().unwrap().get_mut(one).unwrap().value = 3.5;
    assert_eq!(moved(&change), (0, 4096 + bits));
    assert_eq!(moved(&touch), (4096, 0));
    // What was borrowed for writing goes up, whatever was written.
    change();
    assert_eq!(moved(&touch), (4096, 0));
    assert_eq!(moved(&touch), (0, 0));
    // What is new goes up by itself, although the rest of its page is uncertain.
    let fresh = heap.alloc(1u32).unwrap();
    assert_eq!(moved(&touch), (16, 0));
    let host = heap.host().unwrap();
    let expected = Node {
        value: 3.5,
        tag: 14,
        next: Ptr::null(),
    };
    assert_eq!(*host.get(one).unwrap(), expected);
    assert_eq!(*host.get(fresh).unwrap(), 1);
    drop(host);
    // Pages that came down before do not come again.
    let mut launch = (kernel.launch())
        .value("at", &nodes.add(654_321))
        .workgroups(1);
    launch.submit().unwrap();
    assert_eq!(moved(&|| drop(heap.host().unwrap())), (0, 4096 + bits));
    assert_eq!(heap.mirror_statistics().mirrors, 1);
    // A heap that the device has in place moves nothing, wherever it would lie by choice.
    let device = f.open_alone(|options| options.heap_placement = HeapPlacement::InPlace);
    let heap = device.heap().unwrap();
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    let before = heap.mirror_statistics();
    increment(&device, data, 64);
    drop(heap.host().unwrap());
    assert_eq!(heap.mirror_statistics(), before);
    heap.free(data).unwrap();
}

fn changes_outlive_their_device(f: &Fixture) {
    let (context, device, heap) = open(f);
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    increment(&device, data, 64);
    drop(device);
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [1; 64]);
    increment(&mirrored(&context, f), data, 64);
    increment(&mirrored(&context, f), data, 64);
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [3; 64]);
}

fn a_lost_device_takes_its_changes_along(f: &Fixture) {
    let (context, device, heap) = open(f);
    let data = heap.alloc_slice(&[5u32; 64]).unwrap();
    increment(&device, data, 64);
    device.raw().destroy();
    assert!(matches!(
        heap.host().map(|_| ()).unwrap_err(),
        HeapError::Execution(_)
    ));
    // Told once; the heap is what the host had, and other devices go on with it.
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [5; 64]);
    increment(&mirrored(&context, f), data, 64);
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [6; 64]);
}

fn growth_keeps_what_was_found_and_agreed(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let kernel = kernel(&device, ADD);
    let old = heap.alloc_slice(&[10u32; 16]).unwrap();
    let [elsewhere, agreed] = [(); 2].map(|()| heap.alloc_bytes(4096, 4096).unwrap().cast());
    heap.fill(agreed, u32::MAX, 1024).unwrap();
    add(&kernel, elsewhere, 16);
    assert_eq!(heap.read(elsewhere, 16).unwrap(), [1; 16]);
    // Found by the upload of what is allocated beside it.
    add(&kernel, old, 16);
    let fresh = heap.alloc_slice(&[1u32; 16]).unwrap();
    assert_eq!(fresh.address() / 4096, old.address() / 4096);
    add(&kernel, elsewhere, 16);
    let before = heap.committed();
    let _block = heap.alloc_zeroed::<u32>(6 << 20).unwrap();
    assert!(heap.committed() > before);
    // Zeros, as if nothing had ever been there.
    add(&kernel, agreed, 1024);
    assert_eq!(heap.read(old, 16).unwrap(), [11; 16]);
    assert!(heap.read(agreed, 1024).unwrap() == [0; 1024]);
}

fn unaligned_arguments_after_growth(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    let kernel = kernel(&device, INCREMENT);
    let mut launch = (kernel.launch())
        .pointer("data", data.add(1), 7)
        .invocations(7);
    launch.submit().unwrap();
    let _block = heap.alloc_zeroed::<u32>(6 << 20).unwrap();
    launch.submit().unwrap();
    let host = heap.host().unwrap();
    assert_eq!(host.slice(data.add(1), 7).unwrap(), [2; 7]);
    assert_eq!(*host.get(data).unwrap(), 0);
    assert_eq!(*host.get(data.add(8)).unwrap(), 0);
}

fn trimmed_memory_comes_back_as_zeros(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let kept = heap.alloc_zeroed::<u32>(16).unwrap();
    for looks in [true, false] {
        let block = heap.alloc_slice(&vec![3u32; 6 << 20]).unwrap();
        increment(&device, block, 6 << 20);
        if looks {
            drop(heap.host().unwrap());
        }
        device.finish().unwrap();
        heap.free(block).unwrap();
        assert!(heap.trim() > 0);
        let again = heap.alloc_zeroed::<u32>(6 << 20).unwrap();
        increment(&device, again, 16);
        increment(&device, kept, 16);
        let host = heap.host().unwrap();
        let seen = host.slice(again, 6 << 20).unwrap();
        assert_eq!(seen[..16], [1; 16]);
        assert!(seen[16..].iter().all(|&x| x == 0));
        drop(host);
        heap.free(again).unwrap();
        heap.trim();
    }
    assert_eq!(heap.host().unwrap().slice(kept, 16).unwrap(), [2; 16]);
}

fn mirrors_shrink_with_the_heap(f: &Fixture) {
    let (context, device, heap) = open(f);
    let gone = mirrored(&context, f);
    let kept = heap.alloc_zeroed::<u32>(16).unwrap();
    for looks in [true, false] {
        // Two segments on lavapipe.
        let blocks = [(); 2].map(|()| heap.alloc_zeroed::<u32>(25 << 20).unwrap());
        for (device, block) in [&device, &gone].into_iter().zip(blocks) {
            increment(device, block, 64);
            increment(device, kept, 16);
        }
        let full = heap.mirror_statistics().held;
        assert!(full >= 2 * (200 << 20), "{full}");
        if looks {
            drop(heap.host().unwrap());
        }
        for device in [&device, &gone] {
            device.finish().unwrap();
        }
        for block in blocks {
            heap.free(block).unwrap();
        }
        assert!(heap.trim() > 150 << 20);
        // Changes that have not come down stay.
        assert_eq!(heap.mirror_statistics().held, 2 * (16 << 20));
        increment(&device, kept, 16);
        let expected = if looks { 3 } else { 6 };
        assert_eq!(
            heap.host().unwrap().slice(kept, 16).unwrap(),
            [expected; 16]
        );
    }
    drop(gone);
    heap.trim();
    assert_eq!(heap.mirror_statistics().held, 16 << 20);
}
