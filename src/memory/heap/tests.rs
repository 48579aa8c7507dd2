//! The heap's host side, without a device.

use std::time::Duration;

use super::*;
use bytemuck::{Pod, Zeroable};

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: u64,
    next: Ptr<Node>,
}

fn heap() -> SharedHeap {
    SharedHeap::new(HeapSize::Bytes(64 << 20)).unwrap()
}

#[test]
fn values_are_linked_by_their_own_addresses() {
    let heap = heap();
    let mut first = Ptr::null();
    for value in 0..1000 {
        first = heap.alloc(Node { value, next: first }).unwrap();
    }
    let host = heap.host().unwrap();
    let (mut at, mut seen) = (first, Vec::new());
    while !at.is_null() {
        let node = host.get(at).unwrap();
        seen.push(node.value);
        at = node.next;
    }
    assert_eq!(seen, (0..1000).rev().collect::<Vec<_>>());
    // The address is the address: nothing is translated.
    assert_eq!(
        host.get(first).unwrap() as *const Node as u64,
        first.address()
    );
    assert_eq!(first.address() >> 32, heap.base().address() >> 32);
}

#[test]
fn every_pointer_is_checked() {
    let heap = heap();
    let node = heap
        .alloc(Node {
            value: 7,
            next: Ptr::null(),
        })
        .unwrap();
    let mut host = heap.host().unwrap();
    host.get_mut(node).unwrap().value = 8;
    assert_eq!(host.get(node).unwrap().value, 8);
    assert_eq!(*host.get(node.cast::<u32>().add(1)).unwrap(), 0);
    let wrong = |error: HeapError| error;
    assert!(matches!(
        wrong(host.get(Ptr::<u32>::null()).unwrap_err()),
        HeapError::Null { .. }
    ));
    assert!(matches!(
        host.get(node.byte_add(4)).unwrap_err(),
        HeapError::Misaligned { align: 8, .. }
    ));
    // The last fitting value, and the first that does not fit.
    assert!(host.get(node.byte_add(8).cast::<u64>()).is_ok());
    assert!(matches!(
        host.get(node.byte_add(8)).unwrap_err(),
        HeapError::NotAllocated { bytes: 16, .. }
    ));
    assert!(matches!(
        host.slice(node, 2).unwrap_err(),
        HeapError::NotAllocated { bytes: 32, .. }
    ));
    assert!(host.slice(node, usize::MAX).is_err());
    for address in [1, 8, heap.base().address(), (1 << 48) - 8] {
        assert!(matches!(
            host.get(Ptr::<u8>::from_address(address)).unwrap_err(),
            HeapError::NotAllocated { .. }
        ));
    }
    assert!(matches!(
        host.get(Ptr::<u8>::from_address(u64::MAX)).unwrap_err(),
        HeapError::DeviceMemory { .. }
    ));
}

#[test]
fn freed_memory_is_gone_and_reused_after_the_access() {
    let heap = heap();
    let a = heap.alloc([1u64; 32]).unwrap();
    {
        let host = heap.host().unwrap();
        let seen = host.get(a).unwrap();
        heap.free(a).unwrap();
        // The borrow stays good: the place is not reused during a look.
        let b = heap.alloc([2u64; 32]).unwrap();
        assert_ne!(a, b);
        assert_eq!(*seen, [1; 32]);
        assert!(host.get(a).is_err());
        heap.free(b).unwrap();
    }
    assert_eq!(heap.allocations(), []);
    assert!(matches!(
        heap.free(a).unwrap_err(),
        HeapError::NotAllocated { .. }
    ));
    assert_eq!(heap.alloc([3u64; 32]).unwrap(), a);
    assert!(matches!(
        heap.free(a.byte_add(8)).unwrap_err(),
        HeapError::Interior { .. }
    ));
    assert_eq!(heap.allocations().len(), 1);
}

#[test]
fn interior_pointers_find_their_allocation() {
    let heap = heap();
    let values = heap.alloc_slice(&[5u32; 100]).unwrap();
    let found = heap.find(values.add(99).byte_add(3)).unwrap();
    assert_eq!((found.base, found.size), (values.cast(), 400));
    assert_eq!(heap.find(values.add(100)), None);
    assert_eq!(heap.find(Ptr::<u8>::null()), None);
}

#[test]
fn growth_moves_nothing_and_ends_at_the_bound() {
    let heap = heap();
    let first = heap.alloc(42u64).unwrap();
    let mut blocks = Vec::new();
    let error = loop {
        match heap.alloc_zeroed::<u8>(1 << 20) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    match error {
        HeapError::OutOfMemory { bytes, bound, .. } => {
            assert_eq!((bytes, bound), (1 << 20, 64 << 20));
        }
        other => panic!("{other}"),
    }
    for absurd in [usize::MAX, usize::MAX / 8] {
        assert!(matches!(
            heap.alloc_zeroed::<u64>(absurd).unwrap_err(),
            HeapError::TooLarge { .. }
        ));
    }
    assert!(blocks.len() >= 60, "{}", blocks.len());
    assert_eq!(*heap.host().unwrap().get(first).unwrap(), 42);
    assert!(matches!(
        heap.alloc_zeroed::<u8>(64 << 20).unwrap_err(),
        HeapError::TooLarge { .. }
    ));
    for block in blocks {
        heap.free(block).unwrap();
    }
    assert!(heap.alloc_zeroed::<u8>(1 << 20).is_ok());
}

#[test]
fn layouts_are_checked_and_alignments_kept() {
    let heap = heap();
    assert!(matches!(
        heap.alloc_bytes(0, 8).unwrap_err(),
        HeapError::Layout { .. }
    ));
    assert!(matches!(
        heap.alloc_bytes(8, 5).unwrap_err(),
        HeapError::Layout { bytes: 8, align: 5 }
    ));
    for align in [1, 2, 4, 8, 64, 256, 4096, 1 << 20] {
        for size in [1, 8, 512, 2048] {
            let ptr = heap.alloc_bytes(size, align).unwrap();
            assert_eq!(ptr.address() % align, 0);
            assert!(
                heap.host()
                    .unwrap()
                    .slice(ptr, size as usize)
                    .unwrap()
                    .iter()
                    .all(|&b| b == 0)
            );
        }
    }
}

#[test]
fn accesses_wait_for_each_other() {
    let heap = heap();
    let counter = heap.alloc(0u64).unwrap();
    assert!(matches!(
        {
            let _held = heap.host().unwrap();
            heap.host().map(|_| ()).unwrap_err()
        },
        HeapError::HostAccess { .. }
    ));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let scratch = heap.alloc([0u32; 9]).unwrap();
                    *heap.host().unwrap().get_mut(counter).unwrap() += 1;
                    heap.free(scratch).unwrap();
                }
            });
        }
        let held = heap.host().unwrap();
        let waited = scope.spawn(|| heap.host_timeout(Duration::from_millis(1)).map(|_| ()));
        assert!(matches!(waited.join().unwrap(), Err(HeapError::Deadline)));
        drop(held);
    });
    assert_eq!(*heap.host().unwrap().get(counter).unwrap(), 1600);
    assert_eq!(heap.allocations().len(), 1);
}

#[test]
fn only_what_was_asked_for_may_be_borrowed() {
    let heap = heap();
    for len in [1, 7, 8, 37] {
        let bytes = heap.alloc_slice(&vec![1u8; len]).unwrap();
        assert_eq!(heap.find(bytes).unwrap().size, len as u64);
        let host = heap.host().unwrap();
        assert_eq!(host.slice(bytes, len).unwrap(), vec![1; len]);
        assert!(host.slice(bytes, len + 1).is_err());
    }
}

/// Whoever has the turn may wait for a kernel that waits for the very thread that asks.
#[test]
fn statistics_and_trims_do_not_wait_for_the_turn() {
    let heap = heap();
    drop(heap.alloc_slice(&[1u8; 32 << 20]).map(|all| heap.free(all)));
    let turn = heap.shared.mirrors.write();
    let (said, heard) = std::sync::mpsc::channel();
    let asking = heap.clone();
    std::thread::spawn(move || said.send((asking.mirror_statistics(), asking.trim())));
    let answer = heard.recv_timeout(Duration::from_secs(60));
    drop(turn);
    assert_eq!(answer, Ok((MirrorStatistics::default(), 0)));
    assert!(heap.trim() > 0);
}
