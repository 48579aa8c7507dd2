//! Rectangles of elements in buffers: parts of arrays of two or three dimensions, and the commands on rectangles.
//!
//! - [`Rect`]: where a rectangle lies, checked by the constructors.
//! - [`rows`]: the same in bytes, as rows at fixed distances, with the arithmetic of all commands.
//! - [`record`]: copies of rows between two buffers, by wgpu's copies for few or long rows and by a kernel
//!   ([`dispatch`]) for others.
//! - [`commands`]: the commands of a device's buffers.

mod commands;
mod dispatch;
mod record;
pub(crate) mod rows;
#[cfg(test)]
mod tests;

use self::rows::Rows;
use crate::error_text::debug_by_text;

/// A rectangle (or box) of elements in memory with an array of two or three dimensions, as OpenCL's
/// `clEnqueueCopyBufferRect` and CUDA's `cudaMemcpy3D` take.
///
/// Element (x, y, z) of the rectangle is element
/// `(origin.x + x) + (origin.y + y) * row_pitch + (origin.z + z) * slice_pitch` of the memory. All figures are in
/// elements, not in bytes. A rectangle without elements is allowed: commands do nothing then. Rows may run past the
/// end of a line of the array, as with CUDA's pointers: pitches say where rows lie, and nothing else.
///
/// ```
/// use tombolo::buffers::Rect;
///
/// // 4 columns and 2 rows of an array with 10 columns, from column 3 and row 1 on.
/// let rect = Rect::plane([3, 1], [4, 2], 10)?;
/// assert_eq!((rect.len(), rect.end()), (8, 27));
/// # Ok::<(), tombolo::buffers::RectError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rect {
    origin: [u64; 3],
    extent: [u64; 3],
    row_pitch: u64,
    slice_pitch: u64,
    /// One past the last element.
    end: u64,
}

/// Why a rectangle was refused, or a command on rectangles.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RectError {
    /// The rows of the rectangle would overlap.
    #[error(
        "a row pitch of {row_pitch} elements is less than the {columns} of a row: rows would overlap"
    )]
    RowPitch {
        /// The row pitch, in elements.
        row_pitch: u64,
        /// The extent in x, in elements.
        columns: u64,
    },
    /// The slices of the rectangle would overlap.
    #[error(
        "a slice pitch of {slice_pitch} elements is less than the {needed} from the first element of a slice to its \
         last: slices would overlap"
    )]
    SlicePitch {
        /// The slice pitch, in elements.
        slice_pitch: u64,
        /// The least slice pitch for the rows, in elements.
        needed: u64,
    },
    /// The last element has no number.
    #[error(
        "a rectangle of {extent:?} elements ends beyond all memory: check its pitches and its origin"
    )]
    TooLarge {
        /// The extent in x, y and z, in elements.
        extent: [u64; 3],
    },
    /// The rectangle reaches beyond the memory.
    #[error(
        "{what}: the last element of the rectangle is element {last} of {argument}, which has {len}: take a smaller \
         extent, or other pitches"
    )]
    OutOfRange {
        /// The command.
        what: &'static str,
        /// The memory: `"the source"` or `"the target"`.
        argument: &'static str,
        /// The number of the last element.
        last: u64,
        /// Elements in the memory.
        len: u64,
    },
    /// Source and target have different extents.
    #[error("{what}: {from:?} elements cannot go to {to:?}: give both rectangles one extent")]
    Extents {
        /// The command.
        what: &'static str,
        /// The source's extent in x, y and z.
        from: [u64; 3],
        /// The target's extent.
        to: [u64; 3],
    },
    /// Source and target of a copy within one buffer have elements in common.
    #[error(
        "copy: both rectangles have element {element} of one buffer: copy through another buffer"
    )]
    Overlap {
        /// The first element in common, in elements of the buffer.
        element: u64,
    },
}

debug_by_text!(RectError {
    RowPitch,
    SlicePitch,
    TooLarge,
    OutOfRange,
    Extents,
    Overlap,
});

impl Rect {
    /// A rectangle of `extent` elements in x, y and z from `origin` on, in an array with `row_pitch` elements from a row
    /// to the next and `slice_pitch` from a slice to the next. In an array of `[nx, ny, nz]` elements without gaps these
    /// are `nx` and `nx * ny`.
    ///
    /// # Errors
    /// [`RectError::RowPitch`], [`RectError::SlicePitch`], [`RectError::TooLarge`].
    pub fn new(
        origin: [u64; 3],
        extent: [u64; 3],
        row_pitch: u64,
        slice_pitch: u64,
    ) -> Result<Self, RectError> {
        let [columns, rows, slices] = extent;
        if row_pitch < columns {
            return Err(RectError::RowPitch { row_pitch, columns });
        }
        let others = rows.saturating_sub(1).saturating_mul(row_pitch);
        let needed = others.saturating_add(columns);
        if rows > 0 && slice_pitch < needed {
            return Err(RectError::SlicePitch {
                slice_pitch,
                needed,
            });
        }
        let is_empty = extent.contains(&0);
        let end = || {
            let [x, y, z] = origin;
            let y = y.checked_add(rows - 1)?.checked_mul(row_pitch)?;
            let z = z.checked_add(slices - 1)?.checked_mul(slice_pitch)?;
            x.checked_add(columns)?.checked_add(y)?.checked_add(z)
        };
        let end = if is_empty { Some(0) } else { end() };
        Ok(Self {
            origin,
            extent,
            row_pitch,
            slice_pitch,
            end: end.ok_or(RectError::TooLarge { extent })?,
        })
    }

    /// A rectangle of `extent` elements in x and y from `origin` on, in an array with `row_pitch` elements from a row to
    /// the next, as for `cudaMemcpy2D` (where pitch and width are in bytes).
    ///
    /// # Errors
    /// As [`Rect::new`].
    pub fn plane(origin: [u64; 2], extent: [u64; 2], row_pitch: u64) -> Result<Self, RectError> {
        let [x, y] = origin;
        let [columns, rows] = extent;
        let slice_pitch = rows.saturating_mul(row_pitch);
        Self::new([x, y, 0], [columns, rows, 1], row_pitch, slice_pitch)
    }

    /// All of an array of `extent` elements in x, y and z without gaps: x is the fastest.
    ///
    /// # Errors
    /// [`RectError::TooLarge`].
    pub fn packed(extent: [u64; 3]) -> Result<Self, RectError> {
        // Without elements the pitch is not used.
        let slice = match extent.contains(&0) {
            true => Some(extent[0].saturating_mul(extent[1])),
            false => extent[0].checked_mul(extent[1]),
        };
        let slice = slice.ok_or(RectError::TooLarge { extent })?;
        Self::new([0; 3], extent, extent[0], slice)
    }

    /// The first element, in x, y and z.
    pub fn origin(&self) -> [u64; 3] {
        self.origin
    }

    /// Elements in x, y and z.
    pub fn extent(&self) -> [u64; 3] {
        self.extent
    }

    /// Elements from a row to the next.
    pub fn row_pitch(&self) -> u64 {
        self.row_pitch
    }

    /// Elements from a slice to the next.
    pub fn slice_pitch(&self) -> u64 {
        self.slice_pitch
    }

    /// Elements of the rectangle.
    pub fn len(&self) -> u64 {
        // No more than `end`, unless a factor is zero.
        let counts = self.extent.iter();
        counts.fold(1, |all, &count| all.saturating_mul(count))
    }

    /// True when the rectangle has no elements.
    pub fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// The least length of the memory, one past the last element; 0 for a rectangle without elements.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Checks the rectangle to lie within `len` elements.
    ///
    /// # Errors
    /// [`RectError::OutOfRange`].
    pub(crate) fn check(
        &self,
        what: &'static str,
        argument: &'static str,
        len: u64,
    ) -> Result<(), RectError> {
        match self.end.checked_sub(1) {
            Some(last) if last >= len => Err(RectError::OutOfRange {
                what,
                argument,
                last,
                len,
            }),
            _ => Ok(()),
        }
    }

    /// Checks the extent of `to` to be the same.
    ///
    /// # Errors
    /// [`RectError::Extents`].
    pub(crate) fn check_extent(&self, what: &'static str, to: &Self) -> Result<(), RectError> {
        if self.extent == to.extent {
            return Ok(());
        }
        Err(RectError::Extents {
            what,
            from: self.extent,
            to: to.extent,
        })
    }

    /// The rows in bytes of a rectangle with elements, and memory: the end bounds all products.
    pub(crate) fn rows(&self, element_bytes: usize) -> Rows {
        let bytes = |elements: u64| elements.saturating_mul(element_bytes as u64);
        let [x, y, z] = self.origin;
        Rows {
            start: bytes(x + y * self.row_pitch + z * self.slice_pitch),
            row_pitch: bytes(self.row_pitch),
            slice_pitch: bytes(self.slice_pitch),
            bytes: bytes(self.extent[0]),
            rows: self.extent[1],
            slices: self.extent[2],
        }
    }
}
