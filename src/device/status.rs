//! Status records: the few words that a kernel leaves behind to say how it ended.
//!
//! Each launch that can fail gets one record, bound to its kernel at a dynamic offset. Where the
//! device has live memory the host reads the record where the kernel wrote it; elsewhere the batch
//! copies the records it used into a buffer that is mapped when the batch is done.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::live::LiveBuffer;
use super::wait::lock;
use super::words::Words;

/// Words of one record; word 0 is the loop guard's.
pub(crate) const RECORD_WORDS: u32 = 16;
/// Bytes of one record as bound to a kernel.
pub(crate) const RECORD_BYTES: u64 = RECORD_WORDS as u64 * 4;
/// The words of one record.
pub(crate) type Record = [u32; RECORD_WORDS as usize];

/// Records in one pool: more guarded launches than this in flight make the queue wait for the oldest.
const RECORDS: u32 = 256;
/// How long the callback of a finished copy may take to be run.
const CALLBACK_TIME: Duration = Duration::from_secs(1);

/// The records of one device.
#[derive(Debug)]
pub(crate) struct StatusPool {
    memory: Memory,
    stride: u64,
    free: Vec<u32>,
}

#[derive(Debug)]
enum Memory {
    Live(LiveBuffer),
    Mirrored(wgpu::Buffer),
}

/// What the kernels of one batch wrote, once it can be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mirror(Arc<(Mutex<Option<Arrival>>, Condvar)>);

/// The words, or `None` where they could not be read.
type Arrival = Option<Vec<u32>>;

/// A batch's copy of the records, to be mapped after it has been submitted.
pub(crate) struct PendingMirror {
    buffer: wgpu::Buffer,
    mirror: Mirror,
}

impl StatusPool {
    pub(crate) fn new(device: &wgpu::Device, live: Option<LiveBuffer>, stride: u64) -> Self {
        let memory = match live {
            Some(buffer) => Memory::Live(buffer),
            None => Memory::Mirrored(device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("tombolo status"),
                size: u64::from(RECORDS) * stride,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })),
        };
        Self {
            memory,
            stride,
            free: (0..RECORDS).rev().collect(),
        }
    }

    /// Bytes that a live buffer for this pool needs, given the distance between records.
    pub(crate) fn bytes(stride: u64) -> u64 {
        u64::from(RECORDS) * stride
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        match &self.memory {
            Memory::Live(live) => live.buffer(),
            Memory::Mirrored(buffer) => buffer,
        }
    }

    /// Takes a record; `None` when all are in flight.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let record = self.free.pop()?;
        if let Memory::Live(live) = &self.memory {
            for word in 0..RECORD_WORDS {
                let _ = live.store_u32(u64::from(record) * self.stride + u64::from(word) * 4, 0);
            }
        }
        Some(record)
    }

    pub(crate) fn release(&mut self, record: u32) {
        self.free.push(record);
    }

    pub(crate) fn offset(&self, record: u32) -> u32 {
        // RECORDS * stride stays far below 4 GiB for every alignment that WebGPU allows.
        record * self.stride as u32
    }

    /// Commands that must come before a launch that uses `record`.
    pub(crate) fn prepare(&self, encoder: &mut wgpu::CommandEncoder, record: u32) {
        if let Memory::Mirrored(buffer) = &self.memory {
            encoder.clear_buffer(buffer, u64::from(self.offset(record)), Some(RECORD_BYTES));
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.memory, Memory::Live(_))
    }

    /// Commands that bring the records of a batch home, at its end.
    pub(crate) fn collect(
        &self,
        device: &wgpu::Device,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Option<PendingMirror> {
        let Memory::Mirrored(buffer) = &self.memory else {
            return None;
        };
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tombolo status mirror"),
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        Some(PendingMirror {
            buffer: staging,
            mirror: Mirror::default(),
        })
    }

    /// A record, or `None` while it cannot be read yet.
    pub(crate) fn read(&self, record: u32, mirror: Option<&Mirror>) -> Option<Record> {
        let at = u64::from(self.offset(record));
        let mut words = Record::default();
        match (&self.memory, mirror) {
            (Memory::Live(live), _) => {
                for (word, index) in words.iter_mut().zip(0u64..) {
                    *word = live.load_u32(at + 4 * index)?;
                }
            }
            (Memory::Mirrored(_), Some(mirror)) => {
                let (arrival, arrived) = &*mirror.0;
                // Another thread that polls may have taken the callback and not run it yet. It may run
                // others before, which want locks that are held here: the wait is bounded.
                let (arrival, _) = arrived
                    .wait_timeout_while(lock(arrival), CALLBACK_TIME, |a| a.is_none())
                    .unwrap_or_else(PoisonError::into_inner);
                let first = (at / 4) as usize;
                let there = arrival.as_ref()?.as_ref()?;
                let there = there.get(first..first + words.len())?;
                words.copy_from_slice(there);
            }
            (Memory::Mirrored(_), None) => return None,
        }
        Some(words)
    }
}

impl Mirror {
    /// Takes all words, once they are there: the batch has completed. `None` where they cannot be had.
    pub(crate) fn take(&self) -> Option<Vec<u32>> {
        let (arrival, arrived) = &*self.0;
        arrived
            .wait_timeout_while(lock(arrival), CALLBACK_TIME, |a| a.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .take()?
    }
}

impl PendingMirror {
    /// A copy in a buffer of whoever asks.
    pub(crate) fn of(buffer: wgpu::Buffer) -> Self {
        Self {
            buffer,
            mirror: Mirror::default(),
        }
    }

    /// Maps the copy; the words arrive when the device is polled after the batch has completed.
    pub(crate) fn map(self) -> Mirror {
        let mirror = self.mirror.clone();
        let (buffer, target) = (self.buffer.clone(), self.mirror);
        self.buffer
            .map_async(wgpu::MapMode::Read, .., move |result| {
                let mapped = result.is_ok();
                let words = result.ok().and_then(|()| {
                    let view = buffer.get_mapped_range(..).ok()?;
                    Some(bytemuck::pod_collect_to_vec(&view[..]))
                });
                // Before anybody knows: the buffer may be used again at once.
                if mapped {
                    buffer.unmap();
                }
                let (arrival, arrived) = &*target.0;
                *lock(arrival) = Some(words);
                arrived.notify_all();
            });
        mirror
    }
}
