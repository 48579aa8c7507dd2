//! Mappable buffers for read-backs, kept for reuse: making one costs more than filling a small one.

use std::sync::Mutex;

use crate::device::wait::lock;

/// Idle staging memory beyond this many bytes is given back.
const KEEP_BYTES: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct StagingPool {
    idle: Mutex<Vec<wgpu::Buffer>>,
}

impl StagingPool {
    /// A mappable buffer of at least `bytes`; from the pool, or new.
    pub(crate) fn take(&self, device: &wgpu::Device, bytes: u64) -> wgpu::Buffer {
        let size = bytes.next_power_of_two().max(256);
        {
            let mut idle = lock(&self.idle);
            if let Some(at) = idle.iter().position(|buffer| buffer.size() == size) {
                return idle.swap_remove(at);
            }
        }
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tombolo read-back"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// Takes an unmapped buffer back.
    pub(crate) fn give(&self, buffer: wgpu::Buffer) {
        let mut idle = lock(&self.idle);
        let held: u64 = idle.iter().map(wgpu::Buffer::size).sum();
        if held + buffer.size() <= KEEP_BYTES {
            idle.push(buffer);
        }
    }
}
