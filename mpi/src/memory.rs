//! Memory to send messages from and to receive messages into, without an extra copy.
//!
//! A request owns its memory until MPI is done with the memory, and then gives the memory back: borrowed memory could be let
//! go by `mem::forget` while the network still writes there. So messages use the following kinds of memory:
//!
//! | memory | the bytes | the way to a device |
//! | --- | --- | --- |
//! | [`PinnedVec`] | of the host, imported by devices | one copy by the device, without staging |
//! | `Vec<T, HeapAllocator>` of `allocator_api2` | in the shared heap | none: kernels follow pointers there |
//! | [`MappedRead`], [`MappedWrite`] | the host's view of a range of a `Buffer` | the planner brings the range, and no more |
//! | `Vec`, `Box<[T]>`, `Arc` of memory only to send | of the host | staged |
//!
//! [`part`] takes a range of memory of any kind.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use tombolo::allocator_api2;
use tombolo::buffers::{MappedRead, MappedWrite, PinnedVec};
use tombolo::heap::HeapAllocator;

use crate::error::{MpiError, Operation};

/// Memory to send a message from.
///
/// # Safety
/// The elements stay at their address while the value is neither changed nor dropped, also when the value is moved, and
/// nobody writes the elements meanwhile.
pub unsafe trait SendMemory: Send + 'static {
    /// The type of the elements.
    type Item: Pod;

    /// The elements.
    fn elements(&self) -> &[Self::Item];
}

/// Memory to receive a message into.
///
/// # Safety
/// As [`SendMemory`], and nobody reads the elements either.
pub unsafe trait ReceiveMemory: Send + 'static {
    /// The type of the elements.
    type Item: Pod;

    /// The elements, about to change.
    fn elements_mut(&mut self) -> &mut [Self::Item];
}

/// Memory that is a slice of its elements. Each use of the macro says why the elements stay in place.
macro_rules! slices {
    (unsafe SendMemory for $($memory:ty),*) => {$(
        // SAFETY: promised by the macro's caller.
        unsafe impl<T: Pod + Send> SendMemory for $memory {
            type Item = T;

            fn elements(&self) -> &[T] {
                self
            }
        }
    )*};
    (unsafe ReceiveMemory for $($memory:ty),*) => {$(
        // SAFETY: as above.
        unsafe impl<T: Pod + Send> ReceiveMemory for $memory {
            type Item = T;

            fn elements_mut(&mut self) -> &mut [T] {
                &mut self[..]
            }
        }
    )*};
    (unsafe both for $($memory:ty),*) => {
        slices!(unsafe SendMemory for $($memory),*);
        slices!(unsafe ReceiveMemory for $($memory),*);
    };
}

// SAFETY: the elements lie in a separate region, owned by the vector; devices write there only while borrowing the vector.
slices!(unsafe both for PinnedVec<T>);

// SAFETY: the elements lie in an allocation owned by the vector, or by the box.
slices!(unsafe both for Vec<T>, Box<[T]>);

// SAFETY: the elements lie in a block of the heap, owned by the vector. The maker of the allocator answers for launches
// reaching the block (`SharedHeap::allocator`): a message counts as a use of the collection by the host.
slices!(unsafe both for allocator_api2::vec::Vec<T, HeapAllocator>);

// SAFETY: the mapping owns the values, and refuses launches that would write the range.
slices!(unsafe SendMemory for MappedRead<T>);

// SAFETY: the mapping owns the values, and refuses launches using the range. All elements count as changed: elements behind
// a shorter message keep the values of the mapping.
slices!(unsafe ReceiveMemory for MappedWrite<T>);

// SAFETY: the elements stay in place behind a count, and nobody writes shared memory.
unsafe impl<M: SendMemory + Sync> SendMemory for Arc<M> {
    type Item = M::Item;

    fn elements(&self) -> &[M::Item] {
        (**self).elements()
    }
}

/// A range of memory; from [`part`].
#[derive(Debug)]
pub struct Part<M> {
    memory: M,
    range: Range<usize>,
}

impl<M> Part<M> {
    /// The whole memory again.
    pub fn into_whole(self) -> M {
        self.memory
    }
}

/// A range of elements of `memory`, to be sent or received into.
///
/// # Errors
/// [`MpiError::Length`] for a range with the start behind the end, or with the end behind the memory's.
pub fn part<M: SendMemory>(memory: M, range: Range<usize>) -> Result<Part<M>, MpiError> {
    let len = memory.elements().len();
    if range.start > range.end || range.end > len {
        return Err(MpiError::Length {
            operation: Operation::new("a part of memory", None, None),
            what: "the memory",
            len,
            needed: range.end.max(range.start),
        });
    }
    Ok(Part { memory, range })
}

// SAFETY: the elements are some of the memory's elements, and the range was checked against the memory's length, which does
// not change while the memory is owned here.
unsafe impl<M: SendMemory> SendMemory for Part<M> {
    type Item = M::Item;

    fn elements(&self) -> &[M::Item] {
        let all = self.memory.elements();
        all.get(self.range.clone()).unwrap_or_default()
    }
}

// SAFETY: as above.
unsafe impl<M: ReceiveMemory> ReceiveMemory for Part<M> {
    type Item = M::Item;

    fn elements_mut(&mut self) -> &mut [M::Item] {
        let all = self.memory.elements_mut();
        all.get_mut(self.range.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_within_their_memory() {
        let mut middle = part(vec![1u32, 2, 3, 4], 1..3).unwrap();
        assert_eq!(middle.elements(), [2, 3]);
        middle.elements_mut()[0] = 9;
        assert_eq!(middle.into_whole(), [1, 9, 3, 4]);
        #[allow(clippy::reversed_empty_ranges)]
        for wrong in [3..5, 3..2] {
            let error = part(vec![1u32, 2, 3, 4], wrong).unwrap_err();
            assert!(matches!(error, MpiError::Length { len: 4, .. }), "{error}");
        }
    }

    /// Requests go from thread to thread.
    #[test]
    fn memory_goes_from_thread_to_thread() {
        fn is_both<M: SendMemory + ReceiveMemory>() {}
        fn is_sent<M: SendMemory>() {}
        fn is_received<M: ReceiveMemory>() {}
        is_both::<PinnedVec<u32>>();
        is_both::<allocator_api2::vec::Vec<u32, HeapAllocator>>();
        is_both::<Part<Vec<u8>>>();
        is_sent::<MappedRead<f32>>();
        is_received::<MappedWrite<f32>>();
        is_sent::<Arc<PinnedVec<u32>>>();
    }
}
