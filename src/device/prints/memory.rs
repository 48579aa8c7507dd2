//! The buffers for kernels' records.

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::live::{LiveBuffer, Reader};
use super::super::words::Words;
use super::super::{Aspect, DeviceShared, capture, unique_id};
use crate::print::record::{HEAD, HEADER_WORDS};

/// A record buffer.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Identity, for the bind-group cache.
    pub(crate) id: u64,
    /// Words behind the header.
    pub(super) words: usize,
    pub(super) store: Store,
}

#[derive(Debug)]
pub(super) enum Store {
    Live(LiveBuffer),
    Mirrored {
        buffer: wgpu::Buffer,
        staging: wgpu::Buffer,
    },
}

impl Memory {
    pub(super) fn new(device: &DeviceShared, words: usize) -> Result<Self, String> {
        let bytes = (HEADER_WORDS + words) as u64 * 4;
        let store = match live(device, bytes) {
            Some(live) => Store::Live(live),
            None => {
                let make = |usage| {
                    let descriptor = wgpu::BufferDescriptor {
                        label: Some("tombolo print"),
                        size: bytes,
                        usage,
                        mapped_at_creation: false,
                    };
                    device.raw.create_buffer(&descriptor)
                };
                use wgpu::BufferUsages as Usage;
                let (store, error) = capture(&device.raw, || Store::Mirrored {
                    buffer: make(Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST),
                    staging: make(Usage::MAP_READ | Usage::COPY_DST),
                });
                match error {
                    Some(error) => return Err(error.to_string()),
                    None => store,
                }
            }
        };
        Ok(Self {
            id: unique_id(),
            words,
            store,
        })
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        match &self.store {
            Store::Live(live) => live.buffer(),
            Store::Mirrored { buffer, .. } => buffer,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.store, Store::Live(_))
    }

    /// The current words; only for live memory.
    pub(super) fn live(&self) -> &[AtomicU32] {
        match &self.store {
            Store::Live(live) => live.words(),
            Store::Mirrored { .. } => &[],
        }
    }

    /// The current value of a word; only for live memory.
    pub(super) fn word(&self, index: usize) -> Option<u32> {
        Some(self.live().get(index)?.load(Ordering::Acquire))
    }

    /// Resets the buffer to the state of a new one. Mirrored ones are cleared by the batch.
    pub(super) fn zero(&self) {
        if let Store::Live(live) = &self.store {
            let used = self.word(HEAD).unwrap_or(0) as usize;
            let words = live.words().iter();
            for word in words.take(HEADER_WORDS + used.min(self.words)) {
                word.store(0, Ordering::Release);
            }
        }
    }
}

fn live(device: &DeviceShared, bytes: u64) -> Option<LiveBuffer> {
    if !device.capabilities.has(Aspect::LiveMemory) {
        return None;
    }
    let backend = device.capabilities.backend;
    LiveBuffer::new(&device.raw, backend, Reader::Host, bytes, "tombolo print")
        .inspect_err(|error| log::warn!("printing without live memory: {error}"))
        .ok()
}
