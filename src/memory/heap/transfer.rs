//! Transfers within the heap, and between heap and host slices, by the host.
//!
//! Transfers of a [`SharedHeap`] take a [`HostAccess`] for their own duration, and so wait for the launches in flight;
//! several in a row are better made with a single access. Transfers made by a device in the order of its queue are
//! [`Device::heap_copy`](crate::Device::heap_copy) and its like.

use bytemuck::Pod;

use super::{HeapError, HostAccess, SharedHeap};
use crate::memory::host_memory;
use crate::memory::pointer::Ptr;

/// Whether two ranges of `bytes` bytes overlap.
pub(super) fn check_apart(from: u64, to: u64, bytes: u64) -> Result<(), HeapError> {
    if from.abs_diff(to) < bytes {
        return Err(HeapError::Overlap { from, to, bytes });
    }
    Ok(())
}

impl HostAccess {
    /// Copies `len` values from `from` to `to`. No values are never an error.
    ///
    /// # Errors
    /// As [`HostAccess::get`] for both ranges, and [`HeapError::Overlap`].
    pub fn copy<T: Pod>(&mut self, from: Ptr<T>, to: Ptr<T>, len: usize) -> Result<(), HeapError> {
        if len == 0 {
            return Ok(());
        }
        let source = self.resolve("a copy from", from, len)?;
        let target = self.resolve_mut("a copy to", to, len)?;
        // Cannot overflow: both ranges lie in allocations.
        let bytes = len as u64 * size_of::<T>() as u64;
        check_apart(from.address(), to.address(), bytes)?;
        // SAFETY: `resolve` has checked both ranges as for borrows of `len` values, they do not overlap,
        // and `&mut self` rules out every borrow.
        #[allow(unsafe_code)]
        unsafe {
            std::ptr::copy_nonoverlapping(source, target, len);
        }
        Ok(())
    }

    /// Sets the `len` values from `ptr` on to `value`. The value is the pattern: `[u8; 37]` repeats 37
    /// bytes.
    ///
    /// # Errors
    /// As [`HostAccess::get`]; no values are never an error.
    pub fn fill<T: Pod>(&mut self, ptr: Ptr<T>, value: T, len: usize) -> Result<(), HeapError> {
        self.slice_mut(ptr, len)?.fill(value);
        Ok(())
    }

    /// Writes `values` from `ptr` on.
    ///
    /// # Errors
    /// As [`HostAccess::get`]; no values are never an error.
    pub fn write<T: Pod>(&mut self, ptr: Ptr<T>, values: &[T]) -> Result<(), HeapError> {
        self.slice_mut(ptr, values.len())?.copy_from_slice(values);
        Ok(())
    }

    /// A copy of the `len` values from `ptr` on.
    ///
    /// # Errors
    /// As [`HostAccess::get`]; no values are never an error. [`HeapError::Buffer`] where the host has no memory for the
    /// copy.
    pub fn read<T: Pod>(&self, ptr: Ptr<T>, len: usize) -> Result<Vec<T>, HeapError> {
        Ok(host_memory::copied("a read", self.slice(ptr, len)?)?)
    }
}

impl SharedHeap {
    /// Waits for the launches in flight and copies `len` values from `from` to `to`. No values are never
    /// an error, and wait for nothing.
    ///
    /// # Errors
    /// As [`SharedHeap::host`] and [`HostAccess::copy`].
    pub fn copy<T: Pod>(&self, from: Ptr<T>, to: Ptr<T>, len: usize) -> Result<(), HeapError> {
        match len {
            0 => Ok(()),
            _ => self.host()?.copy(from, to, len),
        }
    }

    /// Waits for the launches in flight and sets the `len` values from `ptr` on to `value`, which may be
    /// of any size. No values are never an error, and wait for nothing.
    ///
    /// # Errors
    /// As [`SharedHeap::host`] and [`HostAccess::fill`].
    pub fn fill<T: Pod>(&self, ptr: Ptr<T>, value: T, len: usize) -> Result<(), HeapError> {
        match len {
            0 => Ok(()),
            _ => self.host()?.fill(ptr, value, len),
        }
    }

    /// Waits for the launches in flight and writes `values` from `ptr` on. No values are never an error,
    /// and wait for nothing.
    ///
    /// # Errors
    /// As [`SharedHeap::host`] and [`HostAccess::write`].
    pub fn write<T: Pod>(&self, ptr: Ptr<T>, values: &[T]) -> Result<(), HeapError> {
        match values {
            [] => Ok(()),
            _ => self.host()?.write(ptr, values),
        }
    }

    /// Waits for the launches in flight and copies the `len` values from `ptr` on. No values are never an
    /// error, and wait for nothing.
    ///
    /// # Errors
    /// As [`SharedHeap::host`] and [`HostAccess::read`].
    pub fn read<T: Pod>(&self, ptr: Ptr<T>, len: usize) -> Result<Vec<T>, HeapError> {
        match len {
            0 => Ok(Vec::new()),
            _ => self.host()?.read(ptr, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::heap::HeapSize;

    fn heap() -> SharedHeap {
        SharedHeap::new(HeapSize::Bytes(64 << 20)).unwrap()
    }

    /// Fills `len` patterns from byte `start` on, and compares every byte around them.
    fn filled<const N: usize>(heap: &SharedHeap, start: u64, len: usize) {
        const BYTES: usize = 1000;
        let bytes = heap.alloc_slice(&[0xee_u8; BYTES]).unwrap();
        let pattern: [u8; N] = std::array::from_fn(|i| (i * 7 + 1) as u8);
        let mut expected = vec![0xee; BYTES];
        for k in 0..len * N {
            expected[start as usize + k] = pattern[k % N];
        }
        let to = bytes.byte_add(start).cast();
        heap.fill(to, pattern, len).unwrap();
        assert_eq!(heap.read(bytes, BYTES).unwrap(), expected);
        assert_eq!(heap.read(to, len).unwrap(), vec![pattern; len]);
        heap.free(bytes).unwrap();
    }

    #[test]
    fn patterns_of_every_size() {
        let heap = heap();
        for start in [0, 1, 3] {
            filled::<1>(&heap, start, 900);
            filled::<2>(&heap, start, 401);
            filled::<3>(&heap, start, 101);
            filled::<16>(&heap, start, 62);
            filled::<37>(&heap, start, 26);
            filled::<37>(&heap, start, 0);
        }
    }

    #[test]
    fn copies_move_what_they_should() {
        let heap = heap();
        let values: Vec<u64> = (0..100).map(|i| i * i).collect();
        let from = heap.alloc_slice(&values).unwrap();
        let to = heap.alloc_zeroed::<u64>(100).unwrap();
        heap.copy(from.add(10), to.add(5), 80).unwrap();
        let mut expected = vec![0; 100];
        expected[5..85].copy_from_slice(&values[10..90]);
        assert_eq!(heap.read(to, 100).unwrap(), expected);
        assert_eq!(heap.read(from, 100).unwrap(), values);
        // Neighbours within one allocation touch and do not overlap.
        heap.copy(from, from.add(50), 50).unwrap();
        assert_eq!(heap.read(from.add(50), 50).unwrap(), values[..50]);
        for (a, b, len) in [(0, 49, 50), (49, 0, 50), (7, 7, 1), (0, 1, 99)] {
            assert!(matches!(
                heap.copy(from.add(a), from.add(b), len).unwrap_err(),
                HeapError::Overlap { .. }
            ));
        }
    }

    #[test]
    fn ranges_are_checked_and_no_values_are_no_error() {
        let heap = heap();
        let (a, b) = (
            heap.alloc_zeroed::<u32>(10).unwrap(),
            heap.alloc_zeroed::<u32>(10).unwrap(),
        );
        let leaves = |result: Result<(), HeapError>| match result.unwrap_err() {
            HeapError::NotAllocated { .. } => {}
            other => panic!("{other}"),
        };
        leaves(heap.copy(a, b, 11));
        leaves(heap.copy(a.add(1), b, 10));
        leaves(heap.copy(a, b.add(1), 10));
        leaves(heap.copy(a, b, usize::MAX));
        leaves(heap.fill(a, 1, 11));
        leaves(heap.write(a.add(8), &[1, 2, 3]));
        leaves(heap.read(a.add(10), 1).map(|_| ()));
        assert!(matches!(
            heap.fill(a.byte_add(1), 1, 1).unwrap_err(),
            HeapError::Misaligned { .. }
        ));
        assert_eq!(heap.read(a, 10).unwrap(), [0; 10]);
        assert_eq!(heap.read(b, 10).unwrap(), [0; 10]);

        let null = Ptr::<u32>::null();
        // Not even an access is needed.
        let mut host = heap.host().unwrap();
        heap.copy(null, null, 0).unwrap();
        heap.fill(null, 7, 0).unwrap();
        heap.write(null, &[]).unwrap();
        assert!(heap.read(null, 0).unwrap().is_empty());
        host.copy(null, null, 0).unwrap();
        host.fill(null, 7, 0).unwrap();
        host.write(null, &[]).unwrap();
        assert!(host.read(null, 0).unwrap().is_empty());
        assert!(matches!(
            heap.fill(a, 1, 1).unwrap_err(),
            HeapError::HostAccess { .. }
        ));
        assert!(matches!(
            host.fill(null, 7, 1).unwrap_err(),
            HeapError::Null { .. }
        ));
    }
}
