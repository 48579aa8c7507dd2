//! Rectangles of a device's buffers: copies on the device, reads and writes.

use std::sync::Arc;

use bytemuck::Pod;

use super::record::{self, GROUP_BYTES, Way};
use super::rows::{Rows, Transfer};
use super::{Rect, RectError};
use crate::device::Event;
use crate::device::outcome::Outcome;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::buffers::End;
use crate::memory::places::check_words;
use crate::memory::readback::settle_all;
use crate::memory::staging::{self, Coming, Piece, check_submitted};
use crate::memory::{MemoryError, ReadError, host_memory};
use crate::span::span;

const READ: &str = "read of a rectangle";
const WRITE: &str = "write of a rectangle";
const COPY: &str = "copy of a rectangle";

const SOURCE: &str = "the source";
const TARGET: &str = "the target";

impl<T: Pod> DeviceBuffer<T> {
    /// Copies the elements of rectangle `from` of this buffer to those of rectangle `to_rect` of `to`, on the device. Elements
    /// may have any size: exactly their bytes are written. Both may be the same buffer.
    ///
    /// # Errors
    /// [`MemoryError::Rect`] where the extents differ, a rectangle reaches beyond its buffer, or both share elements of the same
    /// buffer; [`MemoryError::OtherDevice`]; [`MemoryError::OutOfMemory`] where there is no room for a scratch
    /// buffer. For imported buffers [`MemoryError::MissingUsage`]: `STORAGE` for many short rows and for rows
    /// beginning or ending inside words of 4 bytes, else `COPY_SRC` and `COPY_DST`; [`MemoryError::Misaligned`], as
    /// [`DeviceBuffer::write`]; [`MemoryError::Refused`], after which the target may have some of the rows.
    pub fn copy_rect_to(
        &self,
        from: &Rect,
        to: &DeviceBuffer<T>,
        to_rect: &Rect,
    ) -> Result<Event, MemoryError> {
        from.check_extent(COPY, to_rect)?;
        from.check(COPY, SOURCE, self.len)?;
        to_rect.check(COPY, TARGET, to.len)?;
        let device = &self.shared.device;
        if !Arc::ptr_eq(device, &to.shared.device) {
            return Err(MemoryError::OtherDevice {
                what: COPY,
                first: device.capabilities.name.clone(),
                second: to.shared.device.capabilities.name.clone(),
            });
        }
        if from.is_empty() {
            return Ok(Event::complete(device));
        }
        let element = size_of::<T>();
        let transfer = Transfer {
            from: from.rows(element),
            to: to_rect.rows(element),
        };
        let is_same = self.shared.raw == to.shared.raw;
        if is_same {
            let common = transfer.from.merged().first_common(&transfer.to.merged());
            if let Some(byte) = common {
                let element = byte / element as u64;
                return Err(RectError::Overlap { element }.into());
            }
        }
        let transfer = transfer.merged();
        if transfer.from.count() == 1 {
            let [start, to_start, count] =
                [transfer.from.start, transfer.to.start, transfer.from.bytes]
                    .map(|bytes| bytes / element as u64);
            return self.copy_to(start, to, to_start, count);
        }
        self.check_rows(COPY, &transfer.from)?;
        to.check_rows(COPY, &transfer.to)?;
        let way = Way::between(&transfer);
        self.needs(COPY, source_usage(way))?;
        to.needs(COPY, target_usage(way, transfer.to.are_words()))?;
        let mut queue = device.queue.lock(device);
        let buffers = (&self.shared.raw, &to.shared.raw);
        let copied = record::copy(&mut queue, device, buffers, &transfer);
        let depends_on = self.shared.depends_on_rows(&transfer.from);
        if copied.is_ok() {
            to.shared.overwritten_rows(&transfer.to);
        }
        // Also behind a refusal: some rows may be recorded.
        for outcome in &depends_on {
            to.shared.poison_rows(&transfer.to, outcome);
        }
        let batch = queue.batch();
        queue.commit();
        copied?;
        Ok(Event::of_batch(device, batch))
    }

    /// Reads the elements of a rectangle, without gaps, x fastest and z slowest; waits until everything recorded before is
    /// done. A single transfer brings all rows.
    ///
    /// # Errors
    /// As [`DeviceBuffer::read_range`], but [`MemoryError::Rect`] for a rectangle beyond the buffer. For imported buffers
    /// [`MemoryError::MissingUsage`] also without `STORAGE` where there are many short rows.
    pub fn read_rect(&self, rect: &Rect) -> Result<Vec<T>, ReadError> {
        rect.check(READ, SOURCE, self.len)
            .map_err(MemoryError::from)?;
        // Not more than the buffer has.
        let mut values = host_memory::zeroed(READ, rect.len() as usize)?;
        let packed = Rect::packed(rect.extent()).map_err(MemoryError::from)?;
        self.read_rect_into(rect, &mut values, &packed)?;
        Ok(values)
    }

    /// Reads the elements of rectangle `from` into rectangle `to` of `values`, and leaves the others alone; waits
    /// until everything recorded before is done. A single transfer brings all rows.
    ///
    /// # Errors
    /// As [`DeviceBuffer::read_rect`], and [`MemoryError::Rect`] where `to` reaches beyond `values` or has another extent.
    /// `values` may have changed after an error of another kind.
    pub fn read_rect_into(
        &self,
        from: &Rect,
        values: &mut [T],
        to: &Rect,
    ) -> Result<(), ReadError> {
        from.check_extent(READ, to).map_err(MemoryError::from)?;
        from.check(READ, SOURCE, self.len)
            .map_err(MemoryError::from)?;
        to.check(READ, TARGET, values.len() as u64)
            .map_err(MemoryError::from)?;
        if from.is_empty() {
            return Ok(());
        }
        let element = size_of::<T>();
        let transfer = Transfer {
            from: from.rows(element),
            to: to.rows(element),
        };
        let transfer = transfer.merged();
        if transfer.from.count() == 1 {
            let [first, end] = [transfer.to.start, transfer.to.span().end]
                .map(|bytes| (bytes / element as u64) as usize);
            return self.read_into(
                transfer.from.start / element as u64,
                &mut values[first..end],
            );
        }
        self.may_wait()?;
        let _span = span!("read", bytes = from.len() * element as u64);
        let (coming, depends_on, staged) = self.begin_rows(&transfer.from)?;
        let device = &self.shared.device;
        coming.arrive(&device.submissions, None)?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
        coming.read(|arrived| staged.take(arrived, bytes, &transfer))?;
        settle_all(device, &depends_on)
    }

    /// Begins the transfer of rows to staging memory. Returns their writers of unknown outcome, and their places there.
    fn begin_rows(&self, rows: &Rows) -> Result<(Coming, Vec<Arc<Outcome>>, Staged), MemoryError> {
        let device = &self.shared.device;
        self.check_rows(READ, rows)?;
        // The words around a row may have other bytes: the host skips the surplus.
        let way = Way::of(rows, true);
        self.needs(READ, source_usage(way))?;
        let staged = Staged {
            rows: record::in_staging(rows, way),
            way,
        };
        // Pitches, not the rows alone: the words around the last row come along.
        let bytes = (rows.count() * staged.rows.row_pitch).next_multiple_of(4);
        let memory = staging::download(device, READ, bytes)?;
        device.complete_dependencies(None);
        let mut queue = device.queue.lock(device);
        let buffers = (&self.shared.raw, memory.buffer());
        let recorded = record::copy_to_staging(&mut queue, device, buffers, rows, way);
        // With the queue in hand, so nobody else's launch comes between.
        let depends_on = self.shared.depends_on_rows(rows);
        let batch = queue.batch();
        // Also behind a refusal, so no recorded copy writes to memory of the next read.
        queue.flush()?;
        drop(queue);
        recorded?;
        check_submitted("a read", &batch)?;
        let coming = Coming::begin(&device.raw, batch, memory, Piece { bytes: 0..bytes });
        Ok((coming, depends_on, staged))
    }

    /// Writes the elements of rectangle `from` of `values` to rectangle `to` of this buffer. The values are taken at
    /// once; the write happens after all earlier commands. For values without gaps `from` is
    /// [`Rect::packed`]. Elements may have any size: exactly their bytes are written.
    ///
    /// # Errors
    /// [`MemoryError::Rect`] where the extents differ, or a rectangle reaches beyond the buffer or the values; else as
    /// [`DeviceBuffer::write`]. For imported buffers [`MemoryError::MissingUsage`] also without `STORAGE` where there are many
    /// short rows.
    pub fn write_rect(&self, to: &Rect, values: &[T], from: &Rect) -> Result<Event, MemoryError> {
        from.check_extent(WRITE, to)?;
        from.check(WRITE, SOURCE, values.len() as u64)?;
        to.check(WRITE, TARGET, self.len)?;
        let device = &self.shared.device;
        if from.is_empty() {
            return Ok(Event::complete(device));
        }
        let element = size_of::<T>();
        let transfer = Transfer {
            from: from.rows(element),
            to: to.rows(element),
        };
        let transfer = transfer.merged();
        if transfer.from.count() == 1 {
            let [first, end] = [transfer.from.start, transfer.from.span().end]
                .map(|bytes| (bytes / element as u64) as usize);
            return self.write(transfer.to.start / element as u64, &values[first..end]);
        }
        let _span = span!("write", bytes = from.len() * element as u64);
        self.check_rows(WRITE, &transfer.to)?;
        let is_words = transfer.to.are_words();
        let way = Way::of(&transfer.to, is_words);
        self.needs(WRITE, target_usage(way, is_words))?;
        self.write_rows(bytemuck::cast_slice(values), &transfer, way)
    }

    /// Fills staging memory with all rows, and records the copies to the buffer.
    fn write_rows(
        &self,
        values: &[u8],
        transfer: &Transfer,
        way: Way,
    ) -> Result<Event, MemoryError> {
        let device = &self.shared.device;
        let pool = staging::of(device);
        let mut groups = Vec::new();
        for group in transfer.groups(transfer.to.bytes + 3, GROUP_BYTES) {
            let staged = record::for_staging(&transfer.to, way, &group);
            let source = |row: u64| {
                let row = transfer.from.row(row);
                &values[row.start as usize..row.end as usize]
            };
            let memory = match group.end - group.start {
                // Perhaps long: not copied twice.
                1 => {
                    let at = staged.at(group.start);
                    pool.filled(device, WRITE, at, source(group.start))?
                }
                _ => {
                    let size = staged.row(group.end - 1).end as usize;
                    let mut bytes = host_memory::zeroed::<u8>(WRITE, size)?;
                    for row in group.clone() {
                        let goal = staged.row(row);
                        bytes[goal.start as usize..goal.end as usize].copy_from_slice(source(row));
                    }
                    pool.filled(device, WRITE, 0, &bytes)?
                }
            };
            groups.push((memory, group, staged));
        }
        let mut queue = device.queue.lock(device);
        let mut recorded = Ok(());
        for (memory, group, staged) in &groups {
            let transfer = Transfer {
                from: *staged,
                to: transfer.to,
            };
            let buffers = (memory, &self.shared.raw);
            let part = (way, group.clone());
            recorded = record::copy_from_staging(&mut queue, device, buffers, &transfer, part);
            if recorded.is_err() {
                break;
            }
        }
        if recorded.is_ok() {
            self.shared.overwritten_rows(&transfer.to);
        }
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        // Copies recorded before a refusal still read this memory.
        for (memory, ..) in groups {
            pool.give_upload(memory, End::of(device, Arc::clone(&batch)));
        }
        recorded.map(|()| Event::of_batch(device, batch))
    }

    /// Checks all rows' words to be within the buffer.
    fn check_rows(&self, what: &'static str, rows: &Rows) -> Result<(), MemoryError> {
        check_words(what, &rows.span(), self.shared.raw.size())
    }
}

/// The usage of a source: bound by the kernel.
fn source_usage(way: Way) -> wgpu::BufferUsages {
    match way {
        Way::OneByOne => wgpu::BufferUsages::COPY_SRC,
        Way::ByKernel => wgpu::BufferUsages::STORAGE,
    }
}

/// The usage of a target: a kernel writes bytes beyond wgpu's copies.
fn target_usage(way: Way, are_words: bool) -> wgpu::BufferUsages {
    match (way, are_words) {
        (Way::OneByOne, true) => wgpu::BufferUsages::COPY_DST,
        (Way::OneByOne, false) => wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::STORAGE,
        (Way::ByKernel, _) => wgpu::BufferUsages::STORAGE,
    }
}

/// Rows arriving in staging memory.
struct Staged {
    rows: Rows,
    way: Way,
}

impl Staged {
    /// Takes the rows out of the arrived bytes.
    fn take(&self, arrived: &[u8], to: &mut [u8], transfer: &Transfer) {
        for row in 0..transfer.to.count() {
            let skip = match self.way {
                Way::OneByOne => transfer.from.at(row) % 4,
                Way::ByKernel => 0,
            };
            let at = (self.rows.at(row) + skip) as usize;
            let goal = transfer.to.row(row);
            let goal = &mut to[goal.start as usize..goal.end as usize];
            if let Some(bytes) = arrived.get(at..at + goal.len()) {
                goal.copy_from_slice(bytes);
            }
        }
    }
}
