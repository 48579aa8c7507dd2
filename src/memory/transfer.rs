//! Commands that move bytes: host to device, and device to device.

use std::sync::Arc;

use bytemuck::Pod;

use super::MemoryError;
use super::buffer::DeviceBuffer;
use super::buffers::{End, copy_between};
use super::places::{Place, copy, needed_of_target};
use super::staging::{self, send};
use crate::device::Event;
use crate::span::span;

impl<T: Pod> DeviceBuffer<T> {
    /// Writes `values` from element `start` on. The values are taken at once; the write happens after
    /// everything recorded before it. Elements may have any size: exactly their bytes are written. Large writes to a
    /// device that has nothing to do begin at once, without a [`Device::flush`](crate::Device::flush); so do, on the embedded
    /// adapter, small ones over bytes that were written before.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::OutOfMemory`] where there is no room for staging memory, after which the
    /// range may hold some of the values if they are more than a few megabytes;
    /// [`MemoryError::Execution`] when the device is gone. For imported buffers [`MemoryError::MissingUsage`], which is
    /// `COPY_DST`, and `STORAGE` as well where the elements begin or end inside a word; [`MemoryError::Misaligned`] where
    /// the buffer ends inside the last word of the range.
    pub fn write(&self, start: u64, values: &[T]) -> Result<Event, MemoryError> {
        const WHAT: &str = "write";
        let range = self.byte_range(WHAT, start, values.len() as u64)?;
        let _span = span!("write", bytes = range.end - range.start);
        let device = &self.shared.device;
        if range.is_empty() {
            return Ok(Event::complete(device));
        }
        let target = self.place(WHAT, &range)?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let count = bytes.len() as u64;
        // Where the bytes are in their words on the device, so words can be copied.
        let at = range.start % 4;
        self.needs(WHAT, needed_of_target((at, true), &target, count))?;
        #[cfg(embedded)]
        if super::at_once::write(&self.shared, &range, bytes) {
            return Ok(Event::complete(device));
        }
        if send::is_large(bytes) {
            let padded = target.padded;
            let buffer = &self.shared;
            let target = send::Target {
                buffer,
                range,
                padded,
            };
            return send::send(WHAT, &target, bytes);
        }
        let pool = staging::of(device);
        let memory = pool.filled(device, WHAT, at, bytes)?;
        let source = Place::in_buffer(&memory, at, true);
        let mut queue = device.queue.lock(device);
        let copied = copy(&mut queue, device, &source, &target, count);
        if copied.is_ok() {
            self.shared.overwritten(&range);
        }
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        // What was recorded before a refusal still copies out of it.
        pool.give_upload(memory, End::of(device, Arc::clone(&batch)));
        copied.map(|()| Event::of_batch(device, batch))
    }

    /// Copies `count` elements from element `start` of this buffer to element `to_start` of `to`. Elements may have any size:
    /// exactly their bytes are written.
    ///
    /// A buffer of the same device is copied to on the device. A buffer of another device, of any context, gets the bytes
    /// through the host, behind everything recorded before on either device; nobody waits for them, and the event is the
    /// target's. For bytes that devices hand to each other again and again a [`Buffer`](crate::Buffer) knows shorter ways.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`], [`MemoryError::Overlap`] inside one buffer;
    /// [`MemoryError::OutOfMemory`] where there is no room for a scratch buffer, or for staging memory. For imported
    /// buffers [`MemoryError::MissingUsage`] and [`MemoryError::Misaligned`], as [`DeviceBuffer::write`]. Between devices
    /// [`MemoryError::Execution`] where one of them is gone, or this thread serves a call of the first.
    pub fn copy_to(
        &self,
        start: u64,
        to: &DeviceBuffer<T>,
        to_start: u64,
        count: u64,
    ) -> Result<Event, MemoryError> {
        const WHAT: &str = "copy";
        let from = self.byte_range(WHAT, start, count)?;
        let target = to.byte_range(WHAT, to_start, count)?;
        let _span = span!("copy", bytes = from.end - from.start);
        let device = &self.shared.device;
        if from.is_empty() {
            return Ok(Event::complete(&to.shared.device));
        }
        let same = self.shared.raw == to.shared.raw;
        if same && from.start < target.end && target.start < from.end {
            return Err(MemoryError::Overlap {
                from: start..start + count,
                to: to_start..to_start + count,
            });
        }
        let (source, goal) = (self.place(WHAT, &from)?, to.place(WHAT, &target)?);
        let length = from.end - from.start;
        self.needs(WHAT, wgpu::BufferUsages::COPY_SRC)?;
        to.needs(
            WHAT,
            needed_of_target((source.start, source.padded), &goal, length),
        )?;
        if !Arc::ptr_eq(device, &to.shared.device) {
            return copy_between((&self.shared, &from), (&to.shared, &target, goal.padded));
        }
        let mut queue = device.queue.lock(device);
        copy(&mut queue, device, &source, &goal, length)?;
        let depends_on = self.shared.depends_on(&from);
        to.shared.overwritten(&target);
        for outcome in &depends_on {
            to.shared.poison(target.clone(), outcome);
        }
        let batch = queue.batch();
        queue.commit();
        Ok(Event::of_batch(device, batch))
    }
}
