//! Sub-buffers: parts of a root buffer, and parts of parts.

use std::ops::Range;

use super::{Access, MigrateError, Place, Want};

/// A part of a root buffer: an offset and a length, in bytes. It has no state, so that views that overlap, and the
/// root itself, cannot disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct View {
    offset: u64,
    len: u64,
}

impl View {
    /// All of a root buffer of `len` bytes.
    #[must_use]
    pub const fn root(len: u64) -> Self {
        Self { offset: 0, len }
    }

    /// Where it starts, in bytes of the root.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes, as only a root may.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All its bytes, as bytes of the root.
    #[must_use]
    pub const fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }

    /// The part `range` of this view, itself a view of the same root.
    ///
    /// # Errors
    ///
    /// [`MigrateError::EmptyView`] and [`MigrateError::OutOfRange`].
    pub fn part(&self, range: Range<u64>) -> Result<Self, MigrateError> {
        let bytes = self.part_bytes(range.clone())?;
        if bytes.is_empty() {
            return Err(MigrateError::EmptyView {
                offset: range.start,
            });
        }
        Ok(Self {
            offset: bytes.start,
            len: bytes.end - bytes.start,
        })
    }

    /// Bytes `range` of this view, as bytes of the root.
    ///
    /// # Errors
    ///
    /// [`MigrateError::OutOfRange`].
    pub fn part_bytes(&self, range: Range<u64>) -> Result<Range<u64>, MigrateError> {
        if range.start > range.end || range.end > self.len {
            return Err(MigrateError::OutOfRange {
                start: range.start,
                end: range.end,
                len: self.len,
            });
        }
        Ok(self.offset + range.start..self.offset + range.end)
    }

    /// Whether an adapter that binds at multiples of `align` can bind it.
    ///
    /// # Errors
    ///
    /// [`MigrateError::Misaligned`].
    pub fn check_alignment(&self, align: u64) -> Result<(), MigrateError> {
        let align = align.max(1);
        if self.offset.is_multiple_of(align) {
            Ok(())
        } else {
            Err(MigrateError::Misaligned {
                offset: self.offset,
                align,
            })
        }
    }

    /// The want of all of it.
    #[must_use]
    pub fn want(&self, place: Place, access: Access) -> Want {
        Want {
            place,
            range: self.bytes(),
            access,
        }
    }
}
