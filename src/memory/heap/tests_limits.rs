//! The largest allocations, what a full heap tells, and where an adaptive heap begins.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::size::Binder;
use super::tests_size::with_clock;
use super::*;
use crate::device::HeapSizeError;

const MIB: u64 = 1 << 20;

/// What stands for a device that binds the heap, and the heap's hold of it.
fn device() -> (Arc<dyn Any + Send + Sync>, Binder) {
    let device: Arc<dyn Any + Send + Sync> = Arc::new(());
    let binder = Arc::downgrade(&device);
    (device, binder)
}

/// What is free in pieces, and what no heap can have, have remedies of their own.
#[test]
fn a_full_heap_tells_what_helps() {
    let remedy = |heap: &SharedHeap, bytes| match heap.alloc_bytes(bytes, 16).unwrap_err() {
        HeapError::OutOfMemory { instead, .. } => instead,
        other => panic!("{other}"),
    };
    let heap = SharedHeap::new(HeapSize::Bytes(64 * MIB)).unwrap();
    let blocks: Vec<_> = (0..63)
        .map(|_| heap.alloc_bytes(MIB, 16).unwrap())
        .collect();
    for block in blocks.iter().step_by(2) {
        heap.free(*block).unwrap();
    }
    let told = remedy(&heap, 4 * MIB);
    assert!(told.contains("in no one gap"), "{told}");
}

/// An allocation beyond the usual segments has one of its own, as wide as every device binds.
#[test]
fn wide_allocations_lie_in_what_every_device_binds() {
    const KIB: u64 = 1 << 10;
    let heap = SharedHeap::new(HeapSize::Bytes(64 * MIB)).unwrap();
    // A machine in small.
    let (_wide, binder) = device();
    heap.shared.keep_within(&binder, 4 * MIB);
    lock(&heap.shared.state).part = MIB;
    let small = heap.alloc(1u32).unwrap();
    let offset = |ptr: Ptr<u8>| ptr.address() - heap.base().address();
    let mut wide = Vec::new();
    for kib in [1600, 2400, 1025, 3200, 4096, 3000] {
        let ptr = heap.alloc_bytes(kib * KIB, 4096).unwrap();
        let (first, last) = (offset(ptr), offset(ptr) + kib * KIB - 1);
        assert_eq!(first / (4 * MIB), last / (4 * MIB), "{kib} at {first:#x}");
        wide.push(ptr);
    }
    // What is between them serves others, which lie in the usual segments.
    let others: Vec<_> = (0..20)
        .map(|_| heap.alloc_bytes(600 * KIB, 16).unwrap())
        .collect();
    assert!(others.iter().any(|&other| offset(other) < 16 * MIB));
    for &other in &others {
        let (first, last) = (offset(other), offset(other) + 600 * KIB - 1);
        assert_eq!(first / (4 * MIB), last / (4 * MIB));
    }
    match heap.alloc_bytes(4 * MIB + 1, 16).unwrap_err() {
        HeapError::TooLarge { limit, .. } => assert_eq!(limit, 4 * MIB),
        other => panic!("{other}"),
    }
    let live = wide.into_iter().chain(others);
    live.for_each(|ptr| heap.free(ptr).unwrap());
    heap.free(small).unwrap();
    // A device that binds less limits what comes.
    heap.trim();
    let (device, binder) = device();
    heap.shared.keep_within(&binder, 2 * MIB);
    match heap.alloc_bytes(2 * MIB + 1, 16).unwrap_err() {
        HeapError::TooLarge { limit, .. } => assert_eq!(limit, 2 * MIB),
        other => panic!("{other}"),
    }
    // One that is gone does not.
    drop(device);
    let ptr = heap.alloc_bytes(3 * MIB, 16).unwrap();
    heap.free(ptr).unwrap();
    let heap = SharedHeap::new(HeapSize::Bytes(1 << 30)).unwrap();
    let (device, binder) = self::device();
    heap.shared.keep_within(&binder, 1 << 29);
    drop(device);
    // Between devices, what the last one bound is not refused.
    let ptr = heap.alloc_bytes(200 * MIB, 16).unwrap();
    heap.free(ptr).unwrap();
    let (_device, binder) = self::device();
    heap.shared.keep_within(&binder, 1 << 29);
    match heap.alloc_bytes((1 << 29) + 1, 16).unwrap_err() {
        HeapError::TooLarge { limit, instead, .. } => {
            assert_eq!(limit, 1 << 29);
            let names_limit = instead.contains("max_storage_buffer_binding_size");
            assert!(names_limit, "{instead}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_adaptive_heap_starts_with_what_it_is_told_to() {
    let size = |start, bound| HeapSize::Adaptive {
        bound,
        contract_after: Duration::from_secs(10),
        start,
    };
    let (heap, now) = with_clock(size(100 * MIB, HeapBound::Bytes(200 * MIB)));
    let first = heap.alloc(1u32).unwrap();
    assert_eq!(heap.committed(), 100 * MIB);
    let more = heap.alloc_bytes(120 * MIB, 16).unwrap();
    assert!(heap.committed() > 120 * MIB);
    heap.free(more).unwrap();
    heap.free(first).unwrap();
    now.fetch_add(60_000, Ordering::Relaxed);
    drop(heap.host().unwrap());
    now.fetch_add(60_000, Ordering::Relaxed);
    drop(heap.host().unwrap());
    assert_eq!(heap.committed(), 100 * MIB);
    for bound in [HeapBound::Bytes(64 * MIB), HeapBound::Fraction(0.0)] {
        match SharedHeap::new(size(100 * MIB, bound)).unwrap_err() {
            HeapError::Size(error @ HeapSizeError::Start { start, bound }) => {
                assert!(start == 100 * MIB && bound < start);
                assert!(error.to_string().contains("smaller start"), "{error}");
            }
            other => panic!("{other}"),
        }
    }
}
