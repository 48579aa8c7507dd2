//! What host and device know of each other's bytes, where it would be easy to know too much: over a heap that gave memory
//! back, over the loss of a device, and over device globals that lie in the heap.

use crate::cases;
use crate::harness::Fixture;
use crate::mirror::{increment, kernel, list, mirrored, open};
use tombolo::{Device, DeviceGlobal, Ptr, SharedHeap, device::Aspect, heap::HeapError};

cases![
    a_shadow_ends_where_the_heap_was_cut_off,
    what_was_allocated_before_a_loss_reaches_other_devices,
    globals_in_the_heap_come_down,
    one_half_word_of_a_page_is_enough_to_be_found,
    kernels_that_only_read_leave_nothing_to_search,
    readers_on_two_devices_send_each_other_nothing,
];

/// The host compares with a shadow where a device works in place beside a mirror. Behind the end of a heap that gave memory
/// back, a device's memory begins as zeros again, whatever was there.
fn a_shadow_ends_where_the_heap_was_cut_off(f: &Fixture) {
    const WORDS: u32 = 6 << 20;
    let (context, device, heap) = open(f);
    let in_place = context.device_at(f.index).unwrap();
    if !in_place.has(Aspect::HostImport) {
        return;
    }
    let kept = heap.alloc_zeroed::<u32>(16).unwrap();
    let values: Vec<u32> = (0..WORDS).map(|i| i | 1).collect();
    let block = heap.alloc_slice(&values).unwrap();
    // The second look beside a device that works in place is what a shadow is kept of.
    for device in [&device, &in_place, &device, &in_place, &device] {
        increment(device, kept, 16);
    }
    drop(heap.host().unwrap());
    device.finish().unwrap();
    in_place.finish().unwrap();
    heap.free(block).unwrap();
    assert!(heap.trim() > 0);
    // The same bytes at the same place.
    let again = heap.alloc_slice(&values).unwrap();
    assert_eq!(again.address(), block.address());
    increment(&in_place, kept, 16);
    increment(&device, again, WORDS);
    let host = heap.host().unwrap();
    let seen = host.slice(again, WORDS as usize).unwrap();
    let wrong = seen
        .iter()
        .zip(&values)
        .find(|(seen, value)| **seen != **value + 1);
    assert_eq!(wrong, None);
    assert_eq!(host.slice(kept, 16).unwrap(), [6; 16]);
}

/// Memory that the host fills while a device has changes of its own is the host's, also when these are lost.
fn what_was_allocated_before_a_loss_reaches_other_devices(f: &Fixture) {
    let (context, device, heap) = open(f);
    let other = mirrored(&context, f);
    let data = heap.alloc_slice(&[5u32; 4096]).unwrap();
    increment(&other, data, 4096);
    increment(&device, data, 64);
    let fresh = heap.alloc_slice(&[9u32; 4096]).unwrap();
    assert_eq!(heap.mirror_statistics().mirrors, 2);
    device.raw().destroy();
    let error = heap.host().map(|_| ()).unwrap_err();
    assert!(matches!(error, HeapError::Execution(_)), "{error}");
    // Nothing of the lost device is kept for as long as a handle of it is.
    assert_eq!(heap.mirror_statistics().mirrors, 1);
    increment(&other, fresh, 4096);
    increment(&other, data, 64);
    let host = heap.host().unwrap();
    assert!(host.slice(fresh, 4096).unwrap() == [10; 4096]);
    assert_eq!(host.slice(data, 64).unwrap(), [7; 64]);
    drop(device);
}

/// A kernel that names a variable in the heap writes the heap, though it follows no pointer and has no argument there.
fn globals_in_the_heap_come_down(f: &Fixture) {
    static COUNTS: DeviceGlobal<[u32; 64]> = DeviceGlobal::new("mirror_agreement_counts");
    let (context, device, heap) = open(f);
    let other = context.device_at(f.index).unwrap();
    let count = kernel(
        &device,
        "var<storage, read_write> mirror_agreement_counts: array<u32, 64>;
         @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
            mirror_agreement_counts[i] += i + 1u;
         }",
    );
    let beside = heap.alloc_zeroed::<u32>(16).unwrap();
    for times in 1..5 {
        count.launch().workgroups(1).submit().unwrap();
        // All pages of the heap go to the copy again, the variable's among them.
        increment(&other, beside, 16);
        let expected: Vec<u32> = (1..=64).map(|i| i * times).collect();
        increment(&device, beside, 16);
        assert_eq!(COUNTS.on(&device).read().unwrap()[..], expected);
        assert_eq!(
            heap.host().unwrap().slice(beside, 16).unwrap(),
            [2 * times; 16]
        );
    }
}

/// Changes one bit in each of as many pages as a page has half words, in each at another place; and again with every place in
/// the next page, since a work-group of the search looks at four pages.
fn one_half_word_of_a_page_is_enough_to_be_found(f: &Fixture) {
    const PAGE_WORDS: usize = 1024;
    const PAGES: usize = 2 * PAGE_WORDS;
    let (_context, device, heap) = open(f);
    let kernel = kernel(
        &device,
        "alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<uniform> shift: u32;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let place = usm_Words(words);
            let page = (id.x + shift) % 2048u;
            place[1024u * page + id.x / 2u] ^= 0x8000u << (16u * (id.x % 2u));
        }",
    );
    let bytes = heap.alloc_bytes(8 << 20, 4096).unwrap();
    let words = bytes.cast::<u32>();
    let mut expected = vec![0u32; PAGES * PAGE_WORDS];
    for shift in 0..4 {
        let launch = kernel.launch().value("words", &words);
        let launch = launch.value("shift", &(shift as u32));
        launch.invocations(PAGES as u32).submit().unwrap();
        for half in 0..PAGES {
            let page = (half + shift) % PAGES;
            expected[PAGE_WORDS * page + half / 2] ^= 0x8000 << (16 * (half % 2));
        }
        let host = heap.host().unwrap();
        let seen = host.slice(words, PAGES * PAGE_WORDS).unwrap();
        let missed = (0..PAGES).find(|page| {
            let page = PAGE_WORDS * page..PAGE_WORDS * (page + 1);
            seen[page.clone()] != expected[page]
        });
        assert_eq!(missed, None, "shifted by {shift}");
    }
}

/// Adds up the values of a list, into a place in the heap that is an argument.
const SUM: &str = "
struct Node { value: f32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> first: usm_ptr;
@group(0) @binding(1) var<storage, read_write> sum: array<f32>;
@compute @workgroup_size(1) fn main() {
    var p = first;
    var total = 0.0;
    while !usm_is_null(p) { let n = usm_Node(p); total += n.value; p = n.next; }
    sum[0] = total;
}";

fn sum(device: &Device, heap: &SharedHeap, nodes: u32) -> Ptr<f32> {
    let first = list(heap, nodes);
    let place = heap.alloc_bytes(4096, 4096).unwrap().cast::<f32>();
    heap.fill(place, -1.0, 1024).unwrap();
    let kernel = kernel(device, SUM);
    let launch = kernel.launch().value("first", &first);
    let mut launch = launch.pointer("sum", place, 1).workgroups(1);
    launch.submit().unwrap();
    place
}

/// What has come down from mirrors, and how much of the heap was searched, during some work.
fn came_down(heap: &SharedHeap, work: impl FnOnce()) -> (u64, u64) {
    let before = heap.mirror_statistics();
    work();
    let after = heap.mirror_statistics();
    (
        after.downloaded - before.downloaded,
        after.searched - before.searched,
    )
}

/// Such a kernel writes its arguments at most, whose place is known.
fn kernels_that_only_read_leave_nothing_to_search(f: &Fixture) {
    let (_context, device, heap) = open(f);
    let place = sum(&device, &heap, 100);
    let look = || assert_eq!(heap.read(place, 2).unwrap(), [4950.0, -1.0]);
    // The page of the sum.
    assert_eq!(came_down(&heap, look), (4096, 0));
    // A kernel that writes through a pointer may have written anywhere.
    let touch = kernel(
        &device,
        "alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() {
            let words = usm_Words(at);
            words[3] = 0x40a00000u;
        }",
    );
    let launch = touch.launch().value("at", &place).workgroups(1);
    { launch }.submit().unwrap();
    let look = || assert_eq!(heap.read(place, 4).unwrap(), [4950.0, -1.0, -1.0, 5.0]);
    let (down, searched) = came_down(&heap, look);
    assert!(down > 4096 && searched >= 4096, "{down} {searched}");
}

/// Turns of devices that read bring nothing down but the pages of their arguments.
fn readers_on_two_devices_send_each_other_nothing(f: &Fixture) {
    let (context, device, heap) = open(f);
    let other = mirrored(&context, f);
    // The first time a device is sent everything that is not zero, which is looked for.
    for device in [&device, &other] {
        sum(device, &heap, 1);
    }
    drop(heap.host().unwrap());
    let (mut places, mut expected) = (Vec::new(), Vec::new());
    let seen = came_down(&heap, || {
        for nodes in 1..5 {
            for device in [&device, &other] {
                places.push(sum(device, &heap, nodes));
                expected.push((0..nodes).map(|tag| tag as f32).sum::<f32>());
            }
        }
        device.finish().unwrap();
        other.finish().unwrap();
    });
    let looks = came_down(&heap, || {
        let values: Vec<f32> = (places.iter())
            .map(|&place| heap.read(place, 1).unwrap()[0])
            .collect();
        assert_eq!(values, expected);
    });
    assert_eq!((seen.0 + looks.0, seen.1 + looks.1), (8 * 4096, 0));
}
