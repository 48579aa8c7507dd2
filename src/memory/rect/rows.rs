//! Rows of bytes at fixed distances: a rectangle as copies see it.
//!
//! Rows have numbers, slice by slice. Rows share no bytes, and begin in the order of the numbers: [`Rect`](super::Rect)
//! checks the pitches, so a row is found by a division.

use std::ops::Range;

/// Rows of a place, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// First byte of the first row.
    pub start: u64,
    /// Bytes from a row to the next; any number where a slice has a single row.
    pub row_pitch: u64,
    /// Bytes from a slice to the next; any number for a single slice.
    pub slice_pitch: u64,
    /// Bytes of a row.
    pub bytes: u64,
    /// Rows of a slice.
    pub rows: u64,
    pub slices: u64,
}

/// Rows and their targets: as many, and as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub from: Rows,
    pub to: Rows,
}

impl Rows {
    /// How many there are in all.
    pub fn count(&self) -> u64 {
        self.rows * self.slices
    }

    /// The first byte of a row.
    pub fn at(&self, row: u64) -> u64 {
        let (y, z) = (row % self.rows, row / self.rows);
        // Unused pitches may be of any size. Else nothing wraps, except rows that begin before the memory, for which no
        // command asks (`packed`).
        (self.start)
            .wrapping_add(y.wrapping_mul(self.row_pitch))
            .wrapping_add(z.wrapping_mul(self.slice_pitch))
    }

    /// The bytes of a row.
    pub fn row(&self, row: u64) -> Range<u64> {
        let start = self.at(row);
        start..start + self.bytes
    }

    /// From the first byte of the first row to the last byte of the last.
    pub fn span(&self) -> Range<u64> {
        self.start..self.at(self.count() - 1) + self.bytes
    }

    /// The same rows without gaps, with row `first` at byte 0 and `pitch` bytes from row to row.
    pub fn packed(&self, first: u64, pitch: u64) -> Self {
        Self {
            start: 0u64.wrapping_sub(first.wrapping_mul(pitch)),
            row_pitch: pitch,
            slice_pitch: pitch.wrapping_mul(self.rows),
            ..*self
        }
    }

    /// The same rows almost without gaps, from row `first` on, each as far behind the begin of a word as here, and row
    /// `first` in the first word.
    pub fn aligned(&self, first: u64) -> Self {
        let like = |least: u64, pitch: u64| least + pitch.wrapping_sub(least) % 4;
        let row_pitch = like(self.bytes, self.row_pitch);
        let slice_pitch = like(row_pitch * self.rows, self.slice_pitch);
        let mut rows = Self {
            start: 0,
            row_pitch,
            slice_pitch,
            ..*self
        };
        rows.start = (self.at(first) % 4).wrapping_sub(rows.at(first));
        rows
    }

    /// How many rows begin before a byte.
    fn beginning_before(&self, byte: u64) -> u64 {
        let Some(last) = byte.checked_sub(1).and_then(|b| b.checked_sub(self.start)) else {
            return 0;
        };
        let (z, last) = match self.slices {
            1 => (0, last),
            slices => {
                let z = (last / self.slice_pitch).min(slices - 1);
                (z, last - z * self.slice_pitch)
            }
        };
        let y = match self.rows {
            1 => 0,
            rows => (last / self.row_pitch).min(rows - 1),
        };
        z * self.rows + y + 1
    }

    /// The numbers of the rows with bytes of `range`.
    pub fn meeting(&self, range: &Range<u64>) -> Range<u64> {
        if range.start >= range.end {
            return 0..0;
        }
        let mut first = self.beginning_before(range.start);
        if first > 0 && self.row(first - 1).end > range.start {
            first -= 1;
        }
        first..self.beginning_before(range.end).max(first)
    }

    /// The first byte in common; the work is a step for each row.
    pub fn first_common(&self, other: &Self) -> Option<u64> {
        self.meeting(&other.span()).find_map(|row| {
            let row = self.row(row);
            let met = other.meeting(&row);
            (!met.is_empty()).then(|| other.at(met.start).max(row.start))
        })
    }

    /// Whether all rows begin and end with words.
    pub fn are_words(&self) -> bool {
        let is_word = |bytes: u64| bytes.is_multiple_of(4);
        is_word(self.start)
            && is_word(self.bytes)
            && (self.rows == 1 || is_word(self.row_pitch))
            && (self.slices == 1 || is_word(self.slice_pitch))
    }

    /// Slices become rows where a slice is a single row.
    fn flattened(self) -> Self {
        match self.rows {
            1 => Self {
                row_pitch: self.slice_pitch,
                slice_pitch: 0,
                rows: self.slices,
                slices: 1,
                ..self
            },
            _ => self,
        }
    }

    /// Whether the rows of a slice follow each other without gaps.
    fn is_dense(&self) -> bool {
        self.rows == 1 || self.row_pitch == self.bytes
    }

    fn joined(self) -> Self {
        Self {
            bytes: self.bytes * self.rows,
            rows: 1,
            ..self
        }
    }

    /// The same bytes in as few rows as may be.
    pub fn merged(self) -> Self {
        Transfer {
            from: self,
            to: self,
        }
        .merged()
        .from
    }
}

impl Transfer {
    /// The same bytes in as few rows as may be: a single row where neither side has gaps.
    pub fn merged(self) -> Self {
        let mut merged = self;
        for _ in 0..2 {
            let Self { from, to } = merged;
            if from.is_dense() && to.is_dense() {
                merged = Self {
                    from: from.joined().flattened(),
                    to: to.joined().flattened(),
                };
            }
        }
        merged
    }

    /// Numbers of rows in groups, so each group has at most `most` bytes with `pitch` for each row, and at
    /// least 1 row. All groups of four rows or more, but for the last, have a multiple of four.
    pub fn groups(&self, pitch: u64, most: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let count = self.from.count();
        let step = match most / pitch.max(1) {
            few @ 0..4 => few.max(1),
            many => many / 4 * 4,
        };
        let mut at = 0u64;
        std::iter::from_fn(move || {
            let group = at..count.min(at.saturating_add(step));
            at = group.end;
            (group.start < group.end).then_some(group)
        })
    }
}
