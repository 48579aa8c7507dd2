//! The memory of a heap on a page: one block of ordinary memory, and addresses that are numbers.
//!
//! WebAssembly has addresses of 32 bits and no reserved ones, so that there is nothing to cut a window out of. But no device of
//! a page uses the host's memory in place either: each has a mirror, to which an address is a number. So the heap's base is a
//! number, [`BASE`], of which the low word is zero, as that of a window is: kernels, mirrors and pointers are the same as with
//! one. Only the host translates, here.
//!
//! - The size is fixed, since growing would move what the host has borrowed; all of it is taken, and zeroed, at once.
//! - An address of Rust is none of the heap's: `SharedHeap::pointer_to` translates.

// Places in the block are reached through pointers.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::{GUARD_BYTES, HeapError, WINDOW_BYTES};

/// The heap's first address: null is not in the heap, and offsets are the low words of addresses.
pub(super) const BASE: u64 = WINDOW_BYTES;

/// The block.
pub(super) struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the process, not to a thread, and `self` owns it.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives only its address: whoever uses that answers for it, as with a window.
unsafe impl Sync for Block {}

impl Block {
    /// What the start of the block, and so the places of aligned offsets, are multiples of.
    pub(super) const ALIGNMENT: u64 = GUARD_BYTES;

    /// A block of `bytes` zeros, a multiple of [`Self::ALIGNMENT`] that is not 0.
    ///
    /// # Errors
    /// [`HeapError::NoWindow`] where there is no memory for it.
    pub(super) fn new(bytes: u64) -> Result<Self, HeapError> {
        let none = || {
            HeapError::NoWindow(format!(
                "there are no {} MiB in one piece; give the context a smaller HeapSize",
                bytes >> 20
            ))
        };
        let size = usize::try_from(bytes).ok().filter(|size| *size > 0);
        let layout = size.and_then(|size| {
            let alignment = Self::ALIGNMENT as usize;
            Layout::from_size_align(size, alignment).ok()
        });
        let layout = layout.ok_or_else(none)?;
        // SAFETY: the layout has a size, checked above.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(none)?;
        Ok(Self { start, layout })
    }

    /// Bytes of the block.
    pub(super) fn size(&self) -> u64 {
        self.layout.size() as u64
    }

    /// The place of an offset, of which the caller knows that it lies in the block.
    pub(super) fn pointer(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset <= self.size());
        self.start.as_ptr().wrapping_add(offset as usize)
    }

    /// The heap's address of a place; none of the heap's for a place elsewhere.
    pub(super) fn address_of(&self, place: u64) -> u64 {
        let offset = place.wrapping_sub(self.start.addr().get() as u64);
        match offset < self.size() {
            true => BASE + offset,
            false => 0,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `start` is what was allocated with this layout, and nobody uses it any more: borrows hold the heap.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HeapSize, SharedHeap};
    use super::*;

    #[test]
    fn addresses_are_numbers_and_values_are_where_they_say() {
        let heap = SharedHeap::in_block(HeapSize::Bytes(4 << 20), 1 << 30).unwrap();
        assert_eq!(heap.base().address(), BASE);
        assert_eq!(heap.bound(), 4 << 20);
        let a = heap.alloc_slice(&[1u32, 2, 3]).unwrap();
        let b = heap.alloc(7u64).unwrap();
        assert!(a.address() >= BASE + GUARD_BYTES && b.address() < BASE + (4 << 20));
        let mut host = heap.host().unwrap();
        assert_eq!(host.slice(a, 3).unwrap(), [1, 2, 3]);
        *host.get_mut(b).unwrap() = 8;
        let place: *const u64 = host.get(b).unwrap();
        assert_ne!(place as u64, b.address());
        assert_eq!(heap.pointer_to(place), Some(b));
        assert_eq!(heap.pointer_to(&raw const b), None);
        drop(host);
        assert_eq!(heap.read(b, 1).unwrap(), [8]);
        heap.free(a).unwrap();
        heap.free(b).unwrap();
        assert!(heap.allocations().is_empty());
    }

    #[test]
    fn a_block_ends_where_it_ends() {
        let heap = SharedHeap::in_block(HeapSize::Bytes(1 << 20), 1 << 30).unwrap();
        let most = heap.alloc_zeroed::<u8>((1 << 20) - GUARD_BYTES as usize);
        let full = heap.alloc(1u8).unwrap_err();
        assert!(matches!(full, HeapError::OutOfMemory { .. }), "{full}");
        heap.free(most.unwrap()).unwrap();
        let large = heap.alloc_zeroed::<u8>(1 << 20).unwrap_err();
        assert!(matches!(large, HeapError::TooLarge { .. }), "{large}");
        // Alignments beyond that of the block would hold for the device alone.
        let aligned = heap
            .alloc_bytes(1, 2 * Block::ALIGNMENT)
            .unwrap_err()
            .to_string();
        assert!(aligned.contains("64 KiB"), "{aligned}");
        // Given back and taken again, memory is zeros.
        let values = heap.alloc_slice(&[u64::MAX; 1000]).unwrap();
        heap.free(values).unwrap();
        heap.trim();
        let values = heap.alloc_zeroed::<u64>(1000).unwrap();
        assert_eq!(heap.read(values, 1000).unwrap(), [0; 1000]);
    }

    #[test]
    fn kernels_follow_addresses_that_are_numbers() {
        use crate::device::hooks;
        use crate::{Constants, Context, DeviceOptions, Program};

        let _alone = hooks::alone();
        let program = Program::new(
            "block.wgsl",
            "struct Node { next: usm_ptr, value: u32 }
            @group(0) @binding(0) var<uniform> first: usm_ptr;
            @compute @workgroup_size(1) fn main() {
                var at = first;
                while !usm_is_null(at) { let node = usm_Node(at); node.value *= 3u; at = node.next; }
            }",
        )
        .unwrap();
        for adapter in Context::new().unwrap().adapters() {
            let context = Context::new().unwrap();
            // As on a page.
            let options = DeviceOptions {
                live_memory: false,
                wait: crate::device::WaitPolicy::Never,
                ..DeviceOptions::default()
            };
            let device = context.device_at_with(adapter.index, options).unwrap();
            let heap = SharedHeap::in_block(HeapSize::Bytes(32 << 20), 1 << 30).unwrap();
            (device.shared.context.heap).put(heap);
            let heap = context.heap().unwrap();
            assert_eq!(heap.base().address(), BASE);
            let (mut first, mut nodes) = (0, Vec::new());
            for value in 0..100u64 {
                let node = heap.alloc([first, value]).unwrap();
                first = node.address();
                nodes.push(node);
            }
            let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
            let mut launch = kernel.launch().value("first", &first).workgroups(1);
            for times in [3, 9] {
                pollster::block_on(launch.submit().unwrap()).unwrap();
                let host = pollster::block_on(heap.host_async()).unwrap();
                for (value, node) in (0..).zip(&nodes) {
                    assert_eq!(
                        host.get(*node).unwrap()[1],
                        value * times,
                        "{}",
                        adapter.name
                    );
                }
            }
            assert_eq!(heap.mirror_statistics().mirrors, 1);
        }
    }

    #[test]
    fn rust_values_with_the_heaps_allocator_are_given_back() {
        let heap = SharedHeap::in_block(HeapSize::Bytes(1 << 20), 1 << 30).unwrap();
        // SAFETY: no device uses the heap.
        let allocator = unsafe { heap.allocator() };
        let mut values = allocator_api2::vec::Vec::new_in(allocator);
        values.extend(0..1000u32);
        let ptr = heap.pointer_to(&raw const values[7]).unwrap();
        assert!(ptr.address() > BASE);
        drop(values);
        assert!(heap.allocations().is_empty());
    }
}
