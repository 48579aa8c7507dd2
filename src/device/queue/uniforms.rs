//! The uniform values of the open batch: gathered on the host, and written with a single copy in front of the batch.

use super::Recorder;

/// Host copy of the uniform values of the open batch, and their buffer.
pub(super) struct UniformRing {
    buffer: Option<wgpu::Buffer>,
    /// Changes whenever the buffer does, for the bind-group cache.
    generation: u64,
    data: Vec<u8>,
    alignment: usize,
}

impl UniformRing {
    pub(super) fn new(limits: &wgpu::Limits) -> Self {
        Self {
            buffer: None,
            generation: 0,
            data: Vec::new(),
            alignment: (limits.min_uniform_buffer_offset_alignment)
                .max(limits.min_storage_buffer_offset_alignment)
                .max(16) as usize,
        }
    }

    /// Drops the values of the open batch.
    pub(super) fn clear(&mut self) {
        self.data.clear();
    }

    /// The values of the batch that is closed, and the buffer for them; `spare` takes the values of the next batch.
    pub(super) fn take(&mut self, spare: Vec<u8>) -> Option<(wgpu::Buffer, Vec<u8>)> {
        let values = std::mem::replace(&mut self.data, spare);
        let buffer = self.buffer.clone().filter(|_| !values.is_empty())?;
        Some((buffer, values))
    }
}

impl Recorder<'_> {
    /// Makes room for `bytes` of uniform values, closing the batch when its ring is full.
    pub(crate) fn reserve_uniforms(&mut self, bytes: usize) {
        let ring = &self.state.uniforms;
        let capacity = ring.buffer.as_ref().map_or(0, wgpu::Buffer::size) as usize;
        if ring.data.len() + bytes <= capacity {
            return;
        }
        if !ring.data.is_empty() {
            // The values recorded so far belong to the buffer that is full. The batch is submitted with the next
            // command: the queue stays in hand here.
            if self.close().is_none() {
                self.state.uniforms.clear();
            }
        }
        if bytes > capacity || capacity == 0 {
            let size = bytes.next_power_of_two().max(64 << 10) as u64;
            let buffer = self.device.raw.create_buffer(&wgpu::BufferDescriptor {
                label: Some("tombolo uniforms"),
                size,
                usage: wgpu::BufferUsages::UNIFORM
                    | wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let ring = &mut self.state.uniforms;
            ring.buffer = Some(buffer);
            ring.generation += 1;
        }
    }

    /// Bytes that a value of `len` bytes takes in the ring.
    pub(crate) fn uniform_footprint(&self, len: usize) -> usize {
        len.next_multiple_of(self.state.uniforms.alignment)
    }

    /// Places a value in the ring; room must have been reserved. Returns its byte offset.
    pub(crate) fn push_uniform(&mut self, value: &[u8], size: usize) -> u32 {
        let alignment = self.state.uniforms.alignment;
        let data = &mut self.state.uniforms.data;
        let offset = data.len();
        data.extend_from_slice(value);
        data.resize(offset + size.max(value.len()), 0);
        let end = data.len().next_multiple_of(alignment);
        data.resize(end, 0);
        offset as u32
    }

    /// The ring's buffer and its generation; present once room was reserved.
    pub(crate) fn uniform_buffer(&self) -> Option<(wgpu::Buffer, u64)> {
        let ring = &self.state.uniforms;
        ring.buffer.clone().map(|buffer| (buffer, ring.generation))
    }

    /// The generation of the ring's buffer; 0 where there is none.
    pub(crate) fn uniform_generation(&self) -> u64 {
        self.state.uniforms.generation
    }
}
