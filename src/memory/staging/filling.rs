//! Mapped memory on its way to being filled by the host.

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
}
