//! Pointers that kernels follow, compared with what is allocated: in the shared heap, in copies of it, and in a device's
//! own memory.

use crate::cases;
use crate::harness::Fixture;
use crate::pointers::kernel;
use tombolo::{
    Constants, Device, DeviceBuffer, DeviceOptions, Kernel, Program, Ptr, SharedHeap,
    device::{ExecutionError, WaitError},
    kernel::KernelOptions,
};

cases![
    pointers_into_no_live_allocation_fail,
    values_and_arrays_end_with_their_allocation,
    what_is_allocated_later_is_known,
    launches_before_a_free_are_not_touched_by_it,
    what_is_granted_again_is_alive,
    device_memory_is_known_as_well,
    several_devices_know_the_same,
    without_the_table_the_span_is_what_counts,
    changes_of_the_table_travel_together,
];

/// Adds one to what is at `at`, and says what it was.
const ADD: &str = "@group(0) @binding(0) var<uniform> at: usm_ptr;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(1) fn main() {
    let place = usm_u32(at);
    sink[0] = *place;
    *place += 1u;
}";

/// The same for element `index` of an array of words.
const INDEX: &str = "alias Words = array<u32>;
@group(0) @binding(0) var<uniform> at: usm_ptr;
@group(0) @binding(1) var<uniform> index: u32;
@group(0) @binding(2) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(1) fn main() {
    let words = usm_Words(at);
    sink[0] = words[index];
    words[index] += 1u;
}";

/// The same for a structure of four words.
const QUAD: &str = "struct Quad { a: u32, b: u32, c: u32, d: u32 }
@group(0) @binding(0) var<uniform> at: usm_ptr;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(1) fn main() {
    let quad = usm_Quad(at);
    let old = *quad;
    sink[0] = old.a;
    quad.d = old.d + 1u;
}";

/// A device that checks, in a context of its own.
fn alone(f: &Fixture, change: impl FnOnce(&mut DeviceOptions)) -> (Device, SharedHeap) {
    let device = f.open_alone(|options| {
        options.checked_pointers = true;
        options.checked_allocations = true;
        change(options);
    });
    let heap = device.heap().unwrap();
    (device, heap)
}

/// What a launch did: the word that it found, or the reason of its fault and what lies there.
fn run<T: 'static>(
    kernel: &Kernel,
    device: &Device,
    at: Ptr<T>,
    index: Option<u32>,
) -> Result<u32, String> {
    let sink: DeviceBuffer<u32> = device.buffer(&[0xdead_beef]).unwrap();
    let launch = kernel
        .launch()
        .value("at", &at.cast::<u32>())
        .buffer("sink", &sink);
    let launch = match index {
        Some(index) => launch.value("index", &index),
        None => launch,
    };
    let event = launch.workgroups(1).submit().unwrap();
    match event.wait() {
        Ok(_) => Ok(sink.read().unwrap()[0]),
        Err(WaitError::Failed(error)) => match &*error {
            ExecutionError::Pointer {
                address,
                found,
                reason,
                ..
            } => {
                if index.is_none() {
                    assert_eq!(*address, at.address(), "{error}");
                }
                assert!(error.to_string().contains(&**found), "{error}");
                // The heap tells of it once, too.
                let _ = device.heap().unwrap().host().map(|_| ());
                Err(format!("{reason}: {found}"))
            }
            other => panic!("{other}"),
        },
        Err(other) => panic!("{other}"),
    }
}

/// With memory that the host and the device share, and with a copy.
fn kinds(f: &Fixture, case: impl Fn(&Device, &SharedHeap)) {
    for live in [true, false] {
        let (device, heap) = alone(f, |options| options.live_memory = live);
        case(&device, &heap);
    }
}

fn pointers_into_no_live_allocation_fail(f: &Fixture) {
    kinds(f, |device, heap| {
        let add = kernel(device, ADD);
        let first = heap.alloc_slice(&[1u32, 2, 3, 4, 5]).unwrap();
        let second = heap.alloc_slice(&[7u32; 8]).unwrap();
        let large = heap.alloc_zeroed::<u8>(3 << 20).unwrap();
        assert_eq!(run(&add, device, first, None), Ok(1));
        assert_eq!(run(&add, device, first.add(4), None), Ok(5));
        assert_eq!(run(&add, device, second, None), Ok(7));

        let end = run(&add, device, first.add(5), None).unwrap_err();
        assert!(end.contains("no live allocation"), "{end}");
        assert!(
            end.contains("the end of an allocation of 20 bytes"),
            "{end}"
        );
        assert!(end.contains("pointer_allocations.rs:"), "{end}");
        let padding = run(&add, device, first.add(6), None).unwrap_err();
        assert!(
            padding.contains("4 bytes past the end of an allocation of 20 bytes"),
            "{padding}"
        );
        let far = run(&add, device, large.byte_add((3 << 20) + (1 << 20)), None).unwrap_err();
        assert!(
            far.contains("1048576 bytes past the end of an allocation of 3145728 bytes"),
            "{far}"
        );

        heap.free(second).unwrap();
        let freed = run(&add, device, second.add(2), None).unwrap_err();
        assert!(
            freed.contains("byte 8 of an allocation of 32 bytes that was freed at"),
            "{freed}"
        );
        assert_eq!(
            freed.matches("pointer_allocations.rs:").count(),
            2,
            "{freed}"
        );
        heap.free(large).unwrap();
        let freed = run(&add, device, large.byte_add(2 << 20), None).unwrap_err();
        assert!(
            freed.contains("byte 2097152 of an allocation of 3145728 bytes that was freed"),
            "{freed}"
        );

        // What faults wrote is nothing, and what is alive has been added to.
        assert_eq!(heap.read(first, 5).unwrap(), [2, 2, 3, 4, 6]);
        let again = heap.alloc_slice(&[11u32; 8]).unwrap();
        assert_eq!(run(&add, device, again.add(2), None), Ok(11));
    });
}

fn values_and_arrays_end_with_their_allocation(f: &Fixture) {
    kinds(f, |device, heap| {
        let words = heap.alloc_slice(&[1u32, 2, 3, 4, 5, 6]).unwrap();
        let behind = heap.alloc_slice(&[9u32; 4]).unwrap();
        let quad = kernel(device, QUAD);
        for at in 0..3 {
            assert_eq!(run(&quad, device, words.add(at), None), Ok(at as u32 + 1));
        }
        // One of four words is beyond the end.
        let fault = run(&quad, device, words.add(3), None).unwrap_err();
        assert!(
            fault.contains("byte 12 of a live allocation of 24 bytes"),
            "{fault}"
        );
        let index = kernel(device, INDEX);
        let known = heap.read(words, 6).unwrap();
        for (at, word) in (0..6).zip(known) {
            assert_eq!(run(&index, device, words, Some(at)), Ok(word));
            if at > 0 {
                // From its middle as well.
                assert_eq!(
                    run(&index, device, words.add(1), Some(at - 1)),
                    Ok(word + 1)
                );
            }
        }
        for (from, at) in [(0, 6), (1, 5), (0, 1 << 18), (5, 1), (0, u32::MAX)] {
            let fault = run(&index, device, words.add(from), Some(at)).unwrap_err();
            assert!(fault.starts_with("an index behind a pointer"), "{fault}");
        }
        assert_eq!(heap.read(behind, 4).unwrap(), [9; 4]);
    });
}

fn what_is_allocated_later_is_known(f: &Fixture) {
    // No whole number of granules: behind the end is padding, whatever comes next.
    const WORDS: u64 = (4 << 20) - 3;
    kinds(f, |device, heap| {
        let add = kernel(device, ADD);
        let first = heap.alloc(1u32).unwrap();
        assert_eq!(run(&add, device, first, None), Ok(1));
        // The heap grows, and the table with it.
        let large: Vec<Ptr<u32>> = (0..2)
            .map(|i| {
                let large = heap.alloc_zeroed::<u32>(WORDS as usize).unwrap();
                heap.write(large.add(WORDS - 1), &[100 + i]).unwrap();
                large
            })
            .collect();
        for (i, large) in (100..).zip(&large) {
            assert_eq!(run(&add, device, large.add(WORDS - 1), None), Ok(i));
            let fault = run(&add, device, large.add(WORDS), None);
            assert!(fault.is_err(), "{fault:?}");
        }
        for large in large {
            heap.free(large).unwrap();
        }
        let gone = heap.alloc(5u32).unwrap();
        heap.free(gone).unwrap();
        for round in 0..6u32 {
            let one = heap.alloc(round).unwrap();
            assert_eq!(run(&add, device, one, None), Ok(round));
            heap.free(one).unwrap();
            assert!(run(&add, device, one, None).unwrap_err().contains("freed"));
        }
    });
}

fn launches_before_a_free_are_not_touched_by_it(f: &Fixture) {
    kinds(f, |device, heap| {
        let add = kernel(device, ADD);
        for round in 0..10u32 {
            let sink: DeviceBuffer<u32> = device.zeroed(1).unwrap();
            let at = heap.alloc(round).unwrap();
            let mut launch = add
                .launch()
                .value("at", &at.cast::<u32>())
                .buffer("sink", &sink)
                .workgroups(1);
            let before = launch.submit().unwrap();
            heap.free(at).unwrap();
            let behind = launch.submit().unwrap();
            before.wait().unwrap();
            let error = behind.wait().unwrap_err();
            assert!(error.to_string().contains("freed"), "{error}");
            let _ = heap.host().map(|_| ());
        }
    });
}

/// What tells a device of a free may still be to come when the place is granted again.
fn what_is_granted_again_is_alive(f: &Fixture) {
    kinds(f, |device, heap| {
        let add = kernel(device, ADD);
        let other = heap.alloc(7u32).unwrap();
        let begin = |at: Ptr<u32>| {
            let sink: DeviceBuffer<u32> = device.zeroed(1).unwrap();
            let mut launch = add
                .launch()
                .value("at", &at.cast::<u32>())
                .buffer("sink", &sink)
                .workgroups(1);
            (launch.submit().unwrap(), sink)
        };
        begin(other).0.wait().unwrap();
        for round in 0..10u32 {
            let gone = heap.alloc(99u32).unwrap();
            begin(gone).0.wait().unwrap();
            heap.free(gone).unwrap();
            let (before, _) = begin(other);
            let again = heap.alloc(round).unwrap();
            assert_eq!(again, gone);
            let (behind, sink) = begin(again);
            before.wait().unwrap();
            behind.wait().unwrap();
            assert_eq!(sink.read().unwrap(), [round]);
            heap.free(again).unwrap();
        }
    });
}

fn device_memory_is_known_as_well(f: &Fixture) {
    kinds(f, |device, _| {
        let add = kernel(device, ADD);
        let index = kernel(device, INDEX);
        let own = device.malloc::<u32>(100).unwrap();
        let other = device.malloc::<u32>(1000).unwrap();
        let source = device.buffer(&[3u32; 100]).unwrap();
        source.copy_to_heap(0, own, 100).unwrap();
        assert_eq!(run(&add, device, own.add(99), None), Ok(3));
        assert_eq!(run(&index, device, own, Some(99)), Ok(4));
        assert!(run(&index, device, own, Some(100)).is_err());
        let end = run(&add, device, own.add(100), None).unwrap_err();
        assert!(
            end.contains("the end of an allocation of 400 bytes"),
            "{end}"
        );
        device.free(other).unwrap();
        let freed = run(&add, device, other.add(999), None).unwrap_err();
        assert!(
            freed.contains("byte 3996 of an allocation of 4000 bytes that was freed"),
            "{freed}"
        );
        // The same bytes, when they are granted again.
        let again = device.malloc::<u32>(1000).unwrap();
        source.copy_to_heap(0, again, 100).unwrap();
        assert_eq!(run(&add, device, again.add(50), None), Ok(3));
        assert!(run(&add, device, again.add(1 << 20), None).is_err());
        assert!(run(&add, device, again.add(1000), None).is_err());
    });
}

fn several_devices_know_the_same(f: &Fixture) {
    let devices = [true, false].map(|live| {
        f.open(|options| {
            options.checked_pointers = true;
            options.checked_allocations = true;
            options.live_memory = live;
        })
    });
    let heap = f.context.heap().unwrap();
    let kernels = [0, 1].map(|i| kernel(&devices[i], ADD));
    for round in 0..4 {
        let at = heap.alloc(round).unwrap();
        for i in [0, 1] {
            let which = (round as usize + i) % 2;
            assert_eq!(
                run(&kernels[which], &devices[which], at, None),
                Ok(round + i as u32)
            );
        }
        heap.free(at).unwrap();
        for which in [0, 1] {
            let fault = run(&kernels[which], &devices[which], at, None).unwrap_err();
            assert!(fault.contains("freed"), "{fault}");
        }
    }
}

fn without_the_table_the_span_is_what_counts(f: &Fixture) {
    let (device, heap) = alone(f, |options| options.checked_allocations = false);
    let add = kernel(&device, ADD);
    let at = heap.alloc_slice(&[1u32; 4]).unwrap();
    let beyond = at.byte_add(1 << 20);
    assert_eq!(run(&add, &device, beyond, None), Ok(0));
    let out = run(&add, &device, heap.base().byte_add((4 << 30) - 64), None).unwrap_err();
    assert!(out.contains("out of the heap"), "{out}");
    // A kernel may ask for more, or less, than its device.
    let program = Program::new("add.wgsl", ADD).unwrap();
    let mut options = KernelOptions::default();
    options.checked_allocations = Some(true);
    let strict = device
        .kernel_with(&program, "main", &Constants::new(), options)
        .unwrap();
    assert_eq!(run(&strict, &device, at, None), Ok(1));
    assert!(run(&strict, &device, beyond, None).is_err());
}

/// However many allocations lie apart, their words of the table take one staging buffer for a launch.
fn changes_of_the_table_travel_together(f: &Fixture) {
    const MANY: usize = 64;
    let (device, heap) = alone(f, |options| options.live_memory = false);
    let add = kernel(&device, ADD);
    let sink: DeviceBuffer<u32> = device.buffer(&[0xdead_beef]).unwrap();
    let mut launch = (add.launch().value("at", &Ptr::<u32>::null()))
        .buffer("sink", &sink)
        .workgroups(1);
    let mut taken = |at: Ptr<u32>| {
        launch.set_value("at", &at).unwrap();
        let count = || {
            let statistics = device.transfer_statistics();
            statistics.staging_made + statistics.staging_reused
        };
        let before = count();
        launch.submit().unwrap().wait().unwrap();
        count() - before
    };
    let mut all: Vec<Ptr<u32>> = (0..2 * MANY as u32)
        .map(|i| heap.alloc(i).unwrap())
        .collect();
    taken(all[0]);
    let free_every_other = |all: &[Ptr<u32>], count: usize| {
        for at in all.iter().step_by(2).take(count) {
            heap.free(*at).unwrap();
        }
    };
    let mut fill = |all: &mut [Ptr<u32>], count: usize| {
        free_every_other(all, count);
        // The freed words are zeros, which the device writes by itself.
        taken(all[1]);
        for at in all.iter_mut().step_by(2).take(count) {
            *at = heap.alloc(7).unwrap();
        }
        taken(all[0])
    };
    let one = fill(&mut all, 1);
    let many = fill(&mut all, MANY);
    assert_eq!(many, one);
    // And every one of the words has arrived.
    for at in &all {
        run(&add, &device, *at, None).unwrap();
    }
}
