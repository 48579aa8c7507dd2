//! Mapped memory on its way to being filled by the host.

use super::rows::Rows;
use crate::device::pinned::{Unreachable, pinned};

/// A view of mapped memory whose words get bytes from byte `first` on, which is below 4, and zeros otherwise.
pub(crate) struct Filling<'m> {
    device: &'m wgpu::Device,
    memory: &'m wgpu::Buffer,
    view: wgpu::BufferViewMut,
    /// Of the view, in bytes.
    first: usize,
    end: usize,
}

impl<'m> Filling<'m> {
    /// For `bytes` bytes. The memory stays mapped, and is unmapped after the drop.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub(crate) fn begin(
        device: &'m wgpu::Device,
        memory: &'m wgpu::Buffer,
        first: usize,
        bytes: usize,
    ) -> Result<Self, Unreachable> {
        let end = first + bytes;
        let view = memory.get_mapped_range_mut(0..end.next_multiple_of(4) as u64);
        Ok(Self {
            device,
            memory,
            view: view.map_err(|error| Unreachable::of(device, memory, &error))?,
            first,
            end,
        })
    }

    /// Writes the bytes with place `at` among all, behind those in front.
    ///
    /// # Errors
    /// [`Unreachable::Gone`].
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Unreachable> {
        const ZEROS: [u8; 4] = [0; 4];
        let (view, first, end) = (&mut self.view, self.first, self.end);
        pinned(self.device, self.memory, || {
            let mut put = |at: usize, bytes: &[u8]| {
                view.slice(at..at + bytes.len()).copy_from_slice(bytes);
            };
            if at == 0 {
                put(0, &ZEROS[..first]);
            }
            put(first + at, bytes);
            if first + at + bytes.len() == end {
                put(end, &ZEROS[..end.next_multiple_of(4) - end]);
            }
        })
    }
    /// Writes rows, which lie in `bytes` without gaps, and zeros behind each. All of the memory is for the rows.
    ///
    /// # Errors
    /// [`Unreachable::Gone`].
    pub(crate) fn write_rows(&mut self, rows: Rows, bytes: &[u8]) -> Result<(), Unreachable> {
        const ZEROS: [u8; wgpu::COPY_BYTES_PER_ROW_ALIGNMENT as usize] =
            [0; wgpu::COPY_BYTES_PER_ROW_ALIGNMENT as usize];
        let (view, first) = (&mut self.view, self.first);
        let (row_bytes, stride) = (rows.bytes as usize, rows.stride as usize);
        pinned(self.device, self.memory, || {
            for (row, bytes) in bytes.chunks_exact(row_bytes).enumerate() {
                let at = first + row * stride;
                let (end, next) = (at + row_bytes, at + stride);
                view.slice(at..end).copy_from_slice(bytes);
                view.slice(end..next).copy_from_slice(&ZEROS[..next - end]);
            }
        })
    }
}
