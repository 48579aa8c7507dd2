//! Buffers for pools, tables and faults, kept by each device for the next launch.

use std::sync::{Arc, Mutex};

use crate::device::DeviceShared;
use crate::device::wait::lock;
use crate::memory::{DeviceBuffer, MemoryError};

/// Most bytes kept; buffers beyond go with the launch.
const KEPT_BYTES: u64 = 64 << 20;

/// Buffers without a launch.
#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<Vec<wgpu::Buffer>>);

impl Pools {
    /// A buffer of at least `words` words, with any contents: a kept buffer that is not much larger, or a new buffer.
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`], [`MemoryError::OutOfMemory`].
    pub(crate) fn take(
        &self,
        device: &Arc<DeviceShared>,
        words: u64,
        most: u64,
    ) -> Result<DeviceBuffer<u32>, MemoryError> {
        // Sizes of powers of two fit again.
        let words = words.next_power_of_two().max(1024).min(most).max(words);
        let mut kept = lock(&self.0);
        if let Some(at) = kept.iter().position(|kept| kept.size() == 4 * words) {
            let raw = kept.swap_remove(at);
            return Ok(DeviceBuffer::wrap(device, raw, words));
        }
        drop(kept);
        DeviceBuffer::allocate(device, words)
    }

    /// Keeps a buffer whose last launch has ended.
    pub(crate) fn give(&self, buffer: DeviceBuffer<u32>) {
        let raw = buffer.raw().clone();
        drop(buffer);
        let mut kept = lock(&self.0);
        let bytes: u64 = kept.iter().map(wgpu::Buffer::size).sum();
        if bytes + raw.size() <= KEPT_BYTES {
            kept.push(raw);
        }
    }
}
