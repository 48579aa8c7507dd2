//! Staging memory of copies to the host: mappable buffers that a batch copies into, kept for the next copy.
//!
//! Whatever comes to the host takes its memory here: read-backs, status records, timestamps, calls that travel with
//! launches, and pages of mirrors. The other direction, and what transfers do with both, is in `memory::staging`.

mod shelf;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

pub(crate) use shelf::{Readiness, Shelf, size_class};

use super::mapping::Mapping;
use super::wait::lock;

/// The kept memory. Owners of memory for longer than a device lives (a mirror of the heap) have memory of their own.
#[derive(Debug, Default)]
pub(crate) struct Downloads {
    kept: Arc<Mutex<Shelf<wgpu::Buffer>>>,
    made: AtomicU64,
    reused: AtomicU64,
}

/// Memory for one copy. Memory whose copy was submitted and [mapped](Self::map) is given back on drop, unmapped by then;
/// other memory is dropped: wgpu may have refused to make it, or a recorded copy may still write it.
#[derive(Debug)]
pub(crate) struct Lent {
    buffer: wgpu::Buffer,
    owner: Weak<Mutex<Shelf<wgpu::Buffer>>>,
    is_kept: AtomicBool,
}

impl Downloads {
    /// An unmapped, mappable buffer of at least `bytes` bytes; `most` is the device's limit for a buffer. Errors are
    /// wgpu's, for the caller to capture.
    pub(crate) fn take(&self, raw: &wgpu::Device, most: u64, bytes: u64) -> Lent {
        let kept = lock(&self.kept).take(bytes, |_| Readiness::Ready);
        let counter = match kept {
            Some(_) => &self.reused,
            None => &self.made,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let buffer = kept.unwrap_or_else(|| {
            raw.create_buffer(&wgpu::BufferDescriptor {
                label: Some("tombolo download"),
                size: size_class(bytes, most),
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        Lent {
            buffer,
            owner: Arc::downgrade(&self.kept),
            is_kept: AtomicBool::new(false),
        }
    }

    /// Buffers made and buffers reused so far.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.made, &self.reused].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Bytes of kept memory.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.kept).bytes()
    }

    /// Drops all kept memory.
    pub(crate) fn clear(&self) {
        let gone = lock(&self.kept).clear();
        drop(gone);
    }
}

impl Lent {
    /// A buffer whose owner keeps it.
    pub(crate) fn of_owner(buffer: wgpu::Buffer) -> Self {
        Self {
            buffer,
            owner: Weak::new(),
            is_kept: AtomicBool::new(false),
        }
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Maps the bytes of a copy that was submitted, and has the memory given back on drop, by when the mapping must be
    /// gone.
    pub(crate) fn map(&self, device: &wgpu::Device, bytes: Range<u64>) -> Mapping {
        self.is_kept.store(true, Ordering::Relaxed);
        Mapping::begin(device, &self.buffer, bytes)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade().filter(|_| *self.is_kept.get_mut()) {
            let gone = lock(&owner).give(self.buffer.clone(), self.buffer.size());
            drop(gone);
        }
    }
}
