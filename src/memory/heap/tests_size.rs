//! How heaps grow, contract and refuse, without a device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::device::probe::{NotProbed, ProbeReport};
use crate::device::{Capabilities, Finding, HeapSizeError, ImportFinding};

const MIB: u64 = 1 << 20;

/// A heap whose clock the test sets, in milliseconds.
pub(super) fn with_clock(size: HeapSize) -> (SharedHeap, Arc<AtomicU64>) {
    let (now, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let clock = Arc::clone(&now);
    let clock = move || start + Duration::from_millis(clock.load(Ordering::Relaxed));
    let heap = SharedHeap::with(size, 1 << 30, Box::new(clock)).unwrap();
    (heap, now)
}

/// A heap of up to 256 MiB that contracts after ten seconds, with a single value, grown to 64 MiB or more, and just
/// become mostly free.
fn mostly_free() -> (SharedHeap, Arc<AtomicU64>, Ptr<u64>) {
    let (heap, now) = with_clock(HeapSize::Adaptive {
        bound: HeapBound::Bytes(256 * MIB),
        contract_after: Duration::from_secs(10),
        start: 0,
    });
    let kept = heap.alloc(9u64).unwrap();
    let block = heap.alloc_bytes(60 * MIB, 16).unwrap();
    now.store(1_000_000, Ordering::Relaxed);
    heap.free(block).unwrap();
    assert!(heap.committed() >= 60 * MIB);
    (heap, now, kept)
}

#[test]
fn the_end_of_the_heap_is_given_back() {
    let heap = SharedHeap::new(HeapSize::Bytes(64 * MIB)).unwrap();
    let kept = heap.alloc(9u64).unwrap();
    let blocks: Vec<_> = (0..3)
        .map(|_| heap.alloc_zeroed::<u8>(12 << 20).unwrap())
        .collect();
    let full = heap.committed();
    assert!(full >= 36 * MIB);
    // Memory behind the last allocation goes; the requested size stays.
    let ample = heap.trim();
    assert!(full - ample >= 36 * MIB && full - ample < 37 * MIB);
    assert_eq!(heap.trim(), 0);
    for &block in &blocks {
        heap.free(block).unwrap();
    }
    let given = heap.trim();
    assert_eq!(heap.committed(), full - ample - given);
    assert_eq!(heap.committed(), 16 * MIB);
    assert_eq!(*heap.host().unwrap().get(kept).unwrap(), 9);
    // The memory comes back zeroed, at the same addresses.
    let again = heap.alloc_zeroed::<u8>(24 << 20).unwrap();
    let host = heap.host().unwrap();
    assert!(host.slice(again, 24 << 20).unwrap().iter().all(|&b| b == 0));
}

#[test]
fn nothing_is_given_back_while_the_host_looks() {
    let heap = SharedHeap::new(HeapSize::Bytes(64 * MIB)).unwrap();
    let block = heap.alloc_zeroed::<u8>(40 << 20).unwrap();
    let host = heap.host().unwrap();
    let seen = host.slice(block, 40 << 20).unwrap();
    heap.free(block).unwrap();
    assert_eq!(heap.trim(), 0);
    assert!(seen.iter().all(|&byte| byte == 0));
    drop(host);
    assert!(heap.trim() >= 24 * MIB);
}

#[test]
fn adaptive_heaps_contract_when_anything_touches_them_late_enough() {
    type Touch = fn(&SharedHeap, Ptr<u64>);
    let touches: [(&str, Touch); 5] = [
        ("an access of the host", |heap, kept| {
            assert_eq!(*heap.host().unwrap().get(kept).unwrap(), 9);
        }),
        ("an allocation", |heap, _| {
            heap.alloc(1u32).unwrap();
        }),
        ("a free", |heap, kept| heap.free(kept).unwrap()),
        ("a view", |heap, kept| {
            drop(heap.atomic_u32(kept.cast()).unwrap());
        }),
        ("a trim", |heap, _| assert!(heap.trim() > 0)),
    ];
    for (name, touch) in touches {
        let (heap, now, kept) = mostly_free();
        let full = heap.committed();
        now.fetch_add(9_999, Ordering::Relaxed);
        drop(heap.host().unwrap());
        assert_eq!(heap.committed(), full, "too early: {name}");
        now.fetch_add(1, Ordering::Relaxed);
        // Untouched since.
        assert_eq!(heap.committed(), full, "{name}");
        touch(&heap, kept);
        assert_eq!(heap.committed(), 16 * MIB, "{name}");
    }
}

#[test]
fn a_heap_that_was_needed_meanwhile_does_not_contract() {
    let (heap, now, _) = mostly_free();
    let full = heap.committed();
    now.fetch_add(6_000, Ordering::Relaxed);
    let block = heap.alloc_bytes(60 * MIB, 16).unwrap();
    now.fetch_add(6_000, Ordering::Relaxed);
    heap.free(block).unwrap();
    now.fetch_add(6_000, Ordering::Relaxed);
    drop(heap.host().unwrap());
    assert_eq!(heap.committed(), full);
    now.fetch_add(4_000, Ordering::Relaxed);
    drop(heap.host().unwrap());
    assert_eq!(heap.committed(), 16 * MIB);
}

#[test]
fn heaps_of_other_sizes_keep_what_they_have() {
    let (heap, now) = with_clock(HeapSize::Bytes(256 * MIB));
    let block = heap.alloc_bytes(60 * MIB, 16).unwrap();
    let full = heap.committed();
    heap.free(block).unwrap();
    now.store(u64::from(u32::MAX), Ordering::Relaxed);
    drop(heap.host().unwrap());
    assert_eq!(heap.committed(), full);
}

#[test]
fn the_bound_of_an_adaptive_heap_is_told_beyond_it() {
    let (heap, _) = with_clock(HeapSize::Adaptive {
        bound: HeapBound::Bytes(64 * MIB),
        contract_after: Duration::from_secs(10),
        start: 0,
    });
    assert_eq!(heap.bound(), 64 * MIB);
    let held: Vec<_> = (0..3)
        .map(|_| heap.alloc_bytes(20 * MIB, 16).unwrap())
        .collect();
    match heap.alloc_bytes(20 * MIB, 16).unwrap_err() {
        HeapError::OutOfMemory {
            bytes,
            in_use,
            bound,
            largest_free,
            instead,
        } => {
            assert_eq!((bytes, in_use, bound), (20 * MIB, 60 * MIB, 64 * MIB));
            assert!(largest_free < 4 * MIB);
            assert!(instead.contains("larger HeapSize"), "{instead}");
        }
        other => panic!("{other}"),
    }
    // Never is another error than not now.
    match heap.alloc_bytes(64 * MIB, 16).unwrap_err() {
        HeapError::TooLarge { limit, instead, .. } => {
            assert_eq!(limit, 64 * MIB - (64 << 10));
            assert!(instead.contains("larger HeapSize"), "{instead}");
        }
        other => panic!("{other}"),
    }
    held.iter().for_each(|&block| heap.free(block).unwrap());
    heap.alloc_bytes(64 * MIB - (64 << 10), 16).unwrap();
}

#[test]
fn the_free_end_of_a_heap_that_has_begun_serves_what_fits_it() {
    // One small value must not cut the heap into parts.
    let heap = SharedHeap::new(HeapSize::Bytes(64 * MIB)).unwrap();
    let small = heap.alloc(1u8).unwrap();
    heap.alloc_bytes(60 * MIB, 16).unwrap();
    heap.free(small).unwrap();
}

#[test]
fn one_segment_is_the_most_that_an_allocation_has() {
    let heap = SharedHeap::new(HeapSize::Bytes(300 * MIB)).unwrap();
    match heap.alloc_bytes(SEGMENT_BYTES + 1, 16).unwrap_err() {
        HeapError::TooLarge {
            bytes,
            limit,
            instead,
        } => {
            assert_eq!((bytes, limit), (SEGMENT_BYTES + 1, SEGMENT_BYTES));
            assert!(instead.contains("segments of 128 MiB"), "{instead}");
        }
        other => panic!("{other}"),
    }
    // The first segment lacks its guard, and the third is cut off by the bound.
    let whole = heap.alloc_bytes(SEGMENT_BYTES, 1 << 12).unwrap();
    assert_eq!(whole.address() - heap.base().address(), SEGMENT_BYTES);
    assert!(matches!(
        heap.alloc_bytes(SEGMENT_BYTES, 16).unwrap_err(),
        HeapError::OutOfMemory { .. }
    ));
    // An alignment can be impossible, too.
    assert!(matches!(
        heap.alloc_bytes(MIB, 1 << 30).unwrap_err(),
        HeapError::TooLarge { limit: 0, .. }
    ));
    for align in [1 << 40, 1 << 63] {
        assert!(matches!(
            heap.alloc_bytes(16, align).unwrap_err(),
            HeapError::TooLarge { limit: 0, .. }
        ));
    }
}

#[test]
fn bounds_follow_the_size() {
    let bound = |size: HeapSize| size.bound(1 << 30);
    let most = (4 << 30) - (64 << 10);
    assert_eq!(bound(HeapSize::Bytes(most)), most);
    assert_eq!(bound(HeapSize::Fraction(1.0)), 1 << 30);
    assert_eq!(bound(HeapSize::Fraction(0.5)), 1 << 29);
    assert_eq!(bound(HeapSize::Default), 1 << 27);
    assert_eq!(bound(HeapSize::adaptive()), 3 << 28);
    assert_eq!(HeapSize::adaptive().bound(1 << 40), most);
    let least = bound(HeapSize::Bytes(0));
    assert!(least > 64 << 10);
    assert_eq!(bound(HeapSize::Fraction(0.0)), least);
    let odd = bound(HeapSize::Bytes((64 << 20) + 1));
    assert!(odd > 64 << 20 && odd % 4096 == 0);
    // By itself, a heap knows the machine's memory only.
    let alone = SharedHeap::new(HeapSize::Default).unwrap().bound();
    assert_eq!(alone, HeapSize::Default.bound(size::system_memory()));
}

#[test]
fn sizes_that_are_none_are_refused() {
    let adaptive = |bound| HeapSize::Adaptive {
        bound,
        contract_after: Duration::ZERO,
        start: 0,
    };
    for none in [
        f64::NAN,
        -0.1,
        1.000_001,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e9,
    ] {
        for size in [
            HeapSize::Fraction(none),
            adaptive(HeapBound::Fraction(none)),
        ] {
            let refused = SharedHeap::new(size).unwrap_err();
            match &refused {
                HeapError::Size(HeapSizeError::Fraction { fraction }) => {
                    assert_eq!(fraction.to_bits(), none.to_bits());
                }
                other => panic!("{other}"),
            }
            assert!(refused.to_string().contains("between 0 and 1"), "{refused}");
        }
    }
    let most = (4 << 30) - (64 << 10);
    for beyond in [most + 1, 4 << 30, u64::MAX] {
        for size in [HeapSize::Bytes(beyond), adaptive(HeapBound::Bytes(beyond))] {
            let refused = SharedHeap::new(size).unwrap_err();
            assert!(
                matches!(refused, HeapError::Size(HeapSizeError::Bytes { bytes, limit })
                    if bytes == beyond && limit == most),
                "{refused}"
            );
        }
        let refused = crate::Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(beyond));
        assert!(matches!(
            refused.unwrap_err(),
            crate::device::DeviceError::HeapSize(HeapSizeError::Bytes { .. })
        ));
    }
    for size in [
        HeapSize::Fraction(0.0),
        HeapSize::Fraction(1.0),
        HeapSize::Bytes(0),
    ] {
        assert!(SharedHeap::new(size).is_ok());
    }
}

/// The behaviour of a process with an address space limited to so many bytes; in a process of its own.
#[cfg(target_os = "linux")]
mod limited {
    use super::*;

    const KIBIBYTES: &str = "TOMBOLO_TEST_ADDRESS_SPACE";

    fn run(kibibytes: u64) {
        let name = "memory::heap::tests_size::limited::child";
        let test = std::env::current_exe().unwrap();
        let done = std::process::Command::new("sh")
            .args(["-c", "ulimit -v $0 && exec \"$@\""])
            .arg(kibibytes.to_string())
            .arg(test)
            .args([name, "--exact", "--ignored", "--test-threads=1"])
            .env(KIBIBYTES, kibibytes.to_string())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && told.contains("1 passed"),
            "{kibibytes} KiB: {told}"
        );
    }

    #[test]
    fn heaps_have_the_address_space_that_is_left() {
        for gibibytes in [16, 8, 6, 5, 3, 2, 1] {
            run(gibibytes << 20);
        }
        run(400 << 10);
    }

    #[test]
    #[ignore = "run by `heaps_have_the_address_space_that_is_left` in a process with less address space"]
    fn child() {
        let bytes = std::env::var(KIBIBYTES).unwrap().parse::<u64>().unwrap() << 10;
        let heap = SharedHeap::new(HeapSize::Fraction(1.0)).unwrap();
        assert!(heap.base().address().is_multiple_of(4 << 30));
        // Half of the total, at least: windows are powers of two.
        let most = (4u64 << 30) - (64 << 10);
        let left = bytes - (300 << 20);
        assert!(
            heap.bound() >= most.min(left / 2),
            "{} of {bytes}",
            heap.bound()
        );
        assert!(heap.bound() <= bytes);
        let ptr = heap.alloc_slice(&[7u32; 1000]).unwrap();
        assert_eq!(heap.read(ptr, 1000).unwrap(), [7; 1000]);
        drop(heap);
        let asked = 32 * MIB;
        let small = SharedHeap::new(HeapSize::Bytes(asked)).unwrap();
        assert_eq!(small.bound(), asked);
        drop(small);
        if bytes < 4 << 30 {
            let refused = Window::reserve(4 << 30).unwrap_err();
            assert!(
                matches!(&refused, WindowError::Reserve { size, reason } if *size == 4 << 30 && !reason.is_empty()),
                "{refused}"
            );
        }
        // A size in bytes is had in full, or refused.
        let large = SharedHeap::new(HeapSize::Bytes(3 << 30));
        match bytes > 4 << 30 {
            true => assert_eq!(large.unwrap().bound(), 3 << 30),
            false => {
                let refused = large.unwrap_err();
                assert!(matches!(refused, HeapError::NoWindow(_)));
                assert!(refused.to_string().contains("ulimit -v"), "{refused}");
            }
        }
    }
}

fn device(imports: bool, working_set: Option<u64>) -> Capabilities {
    let mut probe = ProbeReport::not_probed(NotProbed::TurnedOff);
    if imports {
        probe.host_import = Finding::Measured(ImportFinding {
            shared: true,
            live: true,
            alignment: 4096,
            longest: 1 << 30,
        });
    }
    let info = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan);
    let features = wgpu::Features::empty();
    let mut device = Capabilities::new(&info, features, &wgpu::Limits::default(), probe);
    device.working_set_bytes = working_set;
    device
}

#[test]
fn the_smallest_working_set_of_those_that_share_counts() {
    let room = ContextHeap::default();
    room.set_size(HeapSize::Fraction(0.5));
    room.count(&device(true, Some(800 * MIB)));
    room.count(&device(true, Some(400 * MIB)));
    room.count(&device(true, None));
    // The device has a separate copy.
    room.count(&device(false, Some(MIB)));
    let heap = room.heap().unwrap();
    assert_eq!(heap.bound(), 200 * MIB);
    // Later ones count, too, as far as the heap is not laid out already.
    room.count(&device(true, Some(360 * MIB)));
    assert_eq!(heap.bound(), 180 * MIB);
    heap.alloc(1u8).unwrap();
    room.count(&device(true, Some(100 * MIB)));
    assert_eq!(heap.bound(), SEGMENT_BYTES);
    room.count(&device(true, Some(800 * MIB)));
    assert_eq!(heap.bound(), SEGMENT_BYTES);
    // No device has more than the machine.
    let room = ContextHeap::default();
    room.count(&device(true, Some(u64::MAX)));
    let machine = HeapSize::Default.bound(size::system_memory());
    assert_eq!(room.heap().unwrap().bound(), machine);
}

/// The largest free range of a segment, by a plain walk over the held ranges.
fn largest_gap(held: &[(u64, u64)], bound: u64) -> u64 {
    let mut held = held.to_vec();
    held.sort_unstable();
    let mut largest = 0;
    for segment in (0..bound).step_by(SEGMENT_BYTES as usize) {
        let end = (segment + SEGMENT_BYTES).min(bound);
        let mut at = segment.max(64 << 10);
        for &(from, to) in held
            .iter()
            .filter(|(from, _)| (segment..end).contains(from))
        {
            largest = largest.max(from - at);
            at = to;
        }
        largest = largest.max(end - at);
    }
    largest
}

proptest! {
    /// Against a model of sizes alone: every fitting request is granted as long as there is plenty, nothing crosses a
    /// segment, and memory is behind all allocations.
    #[test]
    fn allocations_lie_in_segments_and_memory(
        steps in prop::collection::vec((0u8..4, 1u64..100, 0usize..64), 1..60),
    ) {
        let heap = SharedHeap::new(HeapSize::Bytes(700 * MIB)).unwrap();
        let mut held: Vec<(u64, u64)> = Vec::new();
        let fill = |_: &mut [std::mem::MaybeUninit<u8>]| {};
        for (step, size, which) in steps {
            match step {
                0 | 1 => {
                    let bytes = size * MIB;
                    // Nothing is written: untouched memory costs nothing.
                    match heap.allocate(bytes, 4096, Some(Hold::Owned), fill) {
                        Ok(ptr) => {
                            let start = ptr.address() - heap.base().address();
                            let end = start + bytes;
                            prop_assert!(end <= heap.committed());
                            prop_assert_eq!(start / SEGMENT_BYTES, (end - 1) / SEGMENT_BYTES);
                            let apart = |&(s, e): &(u64, u64)| end <= s || e <= start;
                            prop_assert!(held.iter().all(apart));
                            held.push((start, end));
                        }
                        Err(HeapError::OutOfMemory { .. }) => {
                            prop_assert!(largest_gap(&held, 700 * MIB) < bytes);
                        }
                        Err(other) => prop_assert!(false, "{}", other),
                    }
                }
                2 if !held.is_empty() => {
                    let (start, _) = held.swap_remove(which % held.len());
                    heap.shared.give_back(heap.base().address() + start);
                }
                _ => {
                    let before = heap.committed();
                    prop_assert_eq!(heap.trim(), before - heap.committed());
                    let last = held.iter().map(|(_, e)| *e).max().unwrap_or(0);
                    prop_assert!(heap.committed() >= last);
                    prop_assert!(heap.committed() <= last.max(16 * MIB) + MIB);
                }
            }
        }
    }
}
