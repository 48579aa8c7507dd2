//! Mapped ranges: values of a buffer borrowed by the host until the unmapping.

use std::ops::{
    Deref, DerefMut, Index, IndexMut, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive,
    RangeTo, RangeToInclusive,
};

use bytemuck::Pod;

use super::Buffer;
use super::error::BufferError;
use super::root::Mapping;
use crate::device::unique_id;
use crate::memory::host_memory;

/// The name of writing back in errors.
const WHAT: &str = "unmap";

/// Values of a [`Buffer`] at the time of mapping, as a slice (`Deref`). Launches that write the range are refused while
/// the mapping lives.
#[derive(Debug)]
pub struct MappedRead<T: Pod> {
    values: Vec<T>,
    hold: Hold<T>,
}

/// Values of a [`Buffer`], to be changed: a slice. Launches that use the range are refused while the mapping lives.
///
/// Only *touched* elements are written back, by [`MappedWrite::unmap`] or on drop. Changes through `mapped[i]` and
/// `mapped[a..b]` touch these elements alone. Borrowing the slice for writing (`DerefMut`, as `mapped.fill(0)`,
/// `mapped.iter_mut()` and `mapped.sort_unstable()` do) touches all elements, whatever the borrower changes: for a few
/// elements of a long range, index first (`mapped[a..b].fill(0)`).
///
/// ```no_run
/// # let context = tombolo::Context::new()?;
/// let buffer = context.buffer_from(&[3u32, 1, 2])?;
/// let mut mapped = buffer.map_mut(..)?;
/// mapped.sort_unstable();
/// mapped.unmap()?;
/// # Ok::<(), tombolo::Error>(())
/// ```
#[derive(Debug)]
pub struct MappedWrite<T: Pod> {
    values: Vec<T>,
    /// In rising order, apart from each other.
    touched: Vec<Range<usize>>,
    hold: Hold<T>,
}

/// The mapping in the buffer's books, until it is dropped.
#[derive(Debug)]
struct Hold<T: Pod> {
    buffer: Buffer<T>,
    id: u64,
    /// The first element, in the buffer.
    start: u64,
}

impl<T: Pod> Buffer<T> {
    /// Maps a range of elements for reading; waits for all writes to the range.
    ///
    /// # Errors
    /// As [`Buffer::read_range`].
    pub fn map(&self, range: impl RangeBounds<u64>) -> Result<MappedRead<T>, BufferError> {
        let (hold, values) = self.hold("map", range, false, true)?;
        Ok(MappedRead { values, hold })
    }

    /// Maps a range of elements for reading and writing; waits for all writes to the range.
    ///
    /// # Errors
    /// As [`Buffer::read_range`], and [`BufferError::Mapped`] if any byte of the range is mapped.
    pub fn map_mut(&self, range: impl RangeBounds<u64>) -> Result<MappedWrite<T>, BufferError> {
        let (hold, values) = self.hold("map for writing", range, true, true)?;
        Ok(MappedWrite {
            values,
            touched: Vec::new(),
            hold,
        })
    }

    /// Maps a range of elements for writing, without a read or a wait: the values begin as zeros.
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`]; [`BufferError::Mapped`] if any byte of the range is mapped; [`BufferError::Memory`]
    /// without host memory for the values.
    pub fn map_overwrite(
        &self,
        range: impl RangeBounds<u64>,
    ) -> Result<MappedWrite<T>, BufferError> {
        let (hold, values) = self.hold("map for writing", range, true, false)?;
        Ok(MappedWrite {
            values,
            touched: Vec::new(),
            hold,
        })
    }

    fn hold(
        &self,
        what: &'static str,
        range: impl RangeBounds<u64>,
        writing: bool,
        reads: bool,
    ) -> Result<(Hold<T>, Vec<T>), BufferError> {
        let elements = self.elements(what, range)?;
        let bytes = self.byte_range(what, elements.clone())?;
        let id = unique_id();
        {
            let mut state = self.root.enter(what)?;
            state.check_maps(what, &bytes, writing, None)?;
            state.maps.push(Mapping {
                id,
                range: bytes.clone(),
                writing,
            });
        }
        // From here on the mapping ends by `Drop`.
        let hold = Hold {
            buffer: self.clone(),
            id,
            start: elements.start,
        };
        let mut values = host_memory::zeroed(what, (elements.end - elements.start) as usize)?;
        if reads {
            let into = bytemuck::cast_slice_mut(&mut values);
            self.root.read_into(what, bytes, into, Some(id))?;
        }
        Ok((hold, values))
    }
}

impl<T: Pod> Drop for Hold<T> {
    fn drop(&mut self) {
        self.buffer.root.unmap(self.id);
    }
}

impl<T: Pod> Deref for MappedRead<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T: Pod> MappedRead<T> {
    /// The buffer.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.hold.buffer
    }
}

impl<T: Pod> Deref for MappedWrite<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

/// Touches all elements.
impl<T: Pod> DerefMut for MappedWrite<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.touch(0..self.values.len());
        &mut self.values
    }
}

impl<T: Pod> MappedWrite<T> {
    /// The buffer.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.hold.buffer
    }

    /// The touched elements, counted from the beginning of the mapped range.
    pub fn touched(&self) -> &[Range<usize>] {
        &self.touched
    }

    /// Writes the touched elements back, and ends the mapping.
    ///
    /// # Errors
    /// [`BufferError::Heap`] for a buffer in the heap if this thread has a [`HostAccess`](crate::heap::HostAccess), or
    /// a launch that used the heap has failed; [`BufferError::Memory`] without host memory for the buffer. The touched
    /// elements are lost then.
    pub fn unmap(mut self) -> Result<(), BufferError> {
        self.write_back()
    }

    fn write_back(&mut self) -> Result<(), BufferError> {
        let touched = std::mem::take(&mut self.touched);
        let (buffer, element) = (&self.hold.buffer, size_of::<T>() as u64);
        let first = buffer.offset + self.hold.start * element;
        let (Some(start), Some(end)) = (touched.first(), touched.last()) else {
            return Ok(());
        };
        // One access for all ranges: in the heap each access would wait for launches in flight.
        let (start, end) = (start.start, end.end);
        let all = first + start as u64 * element..first + end as u64 * element;
        let values: &[u8] = bytemuck::cast_slice(&self.values[start..end]);
        let parts = touched.iter().map(|range| {
            let element = element as usize;
            (range.start - start) * element..(range.end - start) * element
        });
        (buffer.root).change(WHAT, &all, Some(self.hold.id), parts, |to, part| {
            to.copy_from_slice(&values[part]);
        })
    }

    fn touch(&mut self, new: Range<usize>) {
        if new.end <= self.values.len() {
            touch(&mut self.touched, new);
        }
    }
}

/// Adds a range to disjoint ranges in rising order.
fn touch(touched: &mut Vec<Range<usize>>, new: Range<usize>) {
    if new.is_empty() {
        return;
    }
    let first = touched.partition_point(|old| old.end < new.start);
    let last = touched.partition_point(|old| old.start <= new.end);
    let mut whole = new;
    if let Some(old) = touched.get(first..last)
        && let (Some(a), Some(b)) = (old.first(), old.last())
    {
        whole = whole.start.min(a.start)..whole.end.max(b.end);
    }
    touched.splice(first..last, [whole]);
}

impl<T: Pod> Drop for MappedWrite<T> {
    fn drop(&mut self) {
        if let Err(error) = self.write_back() {
            log::error!("what was mapped for writing did not come back: {error}");
        }
    }
}

impl<T: Pod> Index<usize> for MappedWrite<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.values[at]
    }
}

impl<T: Pod> IndexMut<usize> for MappedWrite<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.touch(at..at.saturating_add(1));
        &mut self.values[at]
    }
}

macro_rules! by_range {
    ($($range:ty: |$of:ident, $len:ident| $bounds:expr),* $(,)?) => {$(
        impl<T: Pod> Index<$range> for MappedWrite<T> {
            type Output = [T];

            fn index(&self, at: $range) -> &[T] {
                &self.values[at]
            }
        }

        impl<T: Pod> IndexMut<$range> for MappedWrite<T> {
            fn index_mut(&mut self, $of: $range) -> &mut [T] {
                let $len = self.values.len();
                self.touch($bounds);
                &mut self.values[$of]
            }
        }
    )*};
}

by_range! {
    Range<usize>: |range, _len| range.clone(),
    RangeFrom<usize>: |range, len| range.start..len,
    RangeTo<usize>: |range, _len| 0..range.end,
    RangeInclusive<usize>: |range, _len| *range.start()..range.end().saturating_add(1),
    RangeToInclusive<usize>: |range, _len| 0..range.end.saturating_add(1),
    RangeFull: |range, len| 0..len,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn touched_ranges_are_those_of_a_map_of_elements(ranges in prop::collection::vec((0usize..60, 0usize..9), 0..40)) {
            let (mut touched, mut model) = (Vec::new(), [false; 70]);
            for (start, len) in ranges {
                touch(&mut touched, start..start + len);
                model[start..start + len].fill(true);
            }
            let mut found = [false; 70];
            for (at, range) in touched.iter().enumerate() {
                prop_assert!(range.start < range.end);
                prop_assert!(at == 0 || touched[at - 1].end < range.start);
                found[range.clone()].fill(true);
            }
            prop_assert_eq!(found, model);
        }
    }
}
