//! Commands that move bytes: host to device, and device to device.

use std::sync::Arc;

use bytemuck::Pod;

use super::buffer::{DeviceBuffer, MemoryError};
use crate::device::{Event, capture};

impl<T: Pod> DeviceBuffer<T> {
    /// Writes `values` from element `start` on. The values are taken at once; the write happens after
    /// everything recorded before it.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::Misaligned`] where elements smaller than 4 bytes
    /// start or end inside a word that the buffer goes on behind.
    pub fn write(&self, start: u64, values: &[T]) -> Result<Event, MemoryError> {
        const WHAT: &str = "write";
        let range = self.byte_range(WHAT, start, values.len() as u64)?;
        let device = &self.shared.device;
        if range.is_empty() {
            return Ok(Event::complete(device));
        }
        self.needs(WHAT, wgpu::BufferUsages::COPY_DST)?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let to_end = start + values.len() as u64 == self.len;
        let padded = range.end.next_multiple_of(4);
        // Behind the last element there is only padding, which may be overwritten.
        let fits = range.end % 4 == 0 || (to_end && padded <= self.shared.raw.size());
        if range.start % 4 != 0 || !fits {
            return Err(MemoryError::Misaligned {
                what: WHAT,
                start: range.start,
                end: range.end,
            });
        }
        let whole = bytes.len() / 4 * 4;
        let mut tail = [0u8; 4];
        tail[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        let tail = (whole < bytes.len()).then_some(tail);

        let mut queue = device.queue.lock(device);
        let (result, error) = capture(&device.raw, || {
            if queue.has_commands() {
                // wgpu's own write would overtake the commands of the open batch.
                let staging = device.raw.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("tombolo upload"),
                    size: padded - range.start,
                    usage: wgpu::BufferUsages::COPY_SRC,
                    mapped_at_creation: true,
                });
                match staging.get_mapped_range_mut(..) {
                    Ok(mut view) => {
                        view.slice(..bytes.len()).copy_from_slice(bytes);
                    }
                    Err(error) => return Err(error.to_string()),
                }
                staging.unmap();
                queue.encode(|encoder| {
                    let to = &self.shared.raw;
                    encoder.copy_buffer_to_buffer(&staging, 0, to, range.start, staging.size());
                });
            } else {
                let to = &self.shared.raw;
                let queue_raw = &device.queue_raw;
                if whole > 0 {
                    queue_raw.write_buffer(to, range.start, &bytes[..whole]);
                }
                if let Some(tail) = tail {
                    queue_raw.write_buffer(to, range.start + whole as u64, &tail);
                }
                // The write travels with the next submission; make sure that there is one.
                queue.encode(|_| {});
            }
            Ok(())
        });
        let message = match (result, error) {
            (Ok(()), None) => {
                self.shared.overwritten(&range);
                let batch = queue.batch();
                queue.commit();
                return Ok(Event::of_batch(device, batch));
            }
            (Ok(()), Some(error)) => error.to_string(),
            (Err(message), _) => message,
        };
        Err(MemoryError::Refused {
            what: WHAT,
            message,
        })
    }

    /// Copies `count` elements from element `start` of this buffer to element `to_start` of `to`, on
    /// the device.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`], [`MemoryError::Overlap`] inside one buffer,
    /// [`MemoryError::OtherDevice`], [`MemoryError::Misaligned`] for elements smaller than 4 bytes.
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
        let device = &self.shared.device;
        if !Arc::ptr_eq(device, &to.shared.device) {
            return Err(MemoryError::OtherDevice {
                what: WHAT,
                first: device.capabilities.name.clone(),
                second: to.shared.device.capabilities.name.clone(),
            });
        }
        if from.is_empty() {
            return Ok(Event::complete(device));
        }
        self.needs(WHAT, wgpu::BufferUsages::COPY_SRC)?;
        to.needs(WHAT, wgpu::BufferUsages::COPY_DST)?;
        for range in [&from, &target] {
            if range.start % 4 != 0 || range.end % 4 != 0 {
                return Err(MemoryError::Misaligned {
                    what: WHAT,
                    start: range.start,
                    end: range.end,
                });
            }
        }
        let same = self.shared.raw == to.shared.raw;
        if same && from.start < target.end && target.start < from.end {
            return Err(MemoryError::Overlap {
                from: start..start + count,
                to: to_start..to_start + count,
            });
        }
        let length = from.end - from.start;
        let mut queue = device.queue.lock(device);
        if same {
            // wgpu refuses copies inside one buffer: the bytes go through another one.
            let (between, error) = capture(&device.raw, || {
                device.raw.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("tombolo copy"),
                    size: length,
                    usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                })
            });
            if let Some(error) = error {
                return Err(MemoryError::Refused {
                    what: WHAT,
                    message: error.to_string(),
                });
            }
            let raw = &self.shared.raw;
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(raw, from.start, &between, 0, length);
                encoder.copy_buffer_to_buffer(&between, 0, raw, target.start, length);
            });
        } else {
            let (source, destination) = (&self.shared.raw, &to.shared.raw);
            queue.encode(|encoder| {
                let at = target.start;
                encoder.copy_buffer_to_buffer(source, from.start, destination, at, length);
            });
        }
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
