//! Status records: a few words left behind by a kernel, with its result.
//!
//! Each launch that can fail gets a record, bound to its kernel at a dynamic offset. Where the
//! device has live memory the host reads the record in place; elsewhere the batch copies its
//! records into a buffer, mapped when the batch is done.
//!
//! Both forms are tested on every adapter, by forcing the tier down.

use std::sync::{Arc, Mutex};

use super::live::LiveBuffer;
use super::mapping::{Mapped, Mapping};
use super::pace::Pace;
use super::staging::{Downloads, Lent};
use super::submissions::Submissions;
use super::wait::lock;
use super::words::Words;

/// Words of one record; word 0 is the loop guard's.
pub(crate) const RECORD_WORDS: u32 = 16;
/// Bytes of one record as bound to a kernel.
pub(crate) const RECORD_BYTES: u64 = RECORD_WORDS as u64 * 4;
/// The words of one record.
pub(crate) type Record = [u32; RECORD_WORDS as usize];

/// Records in a pool: with more guarded launches in flight the queue waits for the oldest.
const RECORDS: u32 = 256;

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

/// The records written by the kernels of a batch, once readable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mirror(Arc<Mutex<Copied>>);

#[derive(Debug, Default)]
enum Copied {
    /// The batch is not submitted.
    #[default]
    Open,
    Mapping {
        mapping: Mapping,
        /// Given back after the unmapping.
        _memory: Lent,
    },
    There(Arc<Vec<u32>>),
    /// The words cannot be had.
    Gone,
}

/// The state of a kernel's writes on the host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reading<T> {
    There(T),
    /// The copy is not mapped yet: the next poll behind the end of the batch does that.
    Pending,
    /// The record cannot be read back.
    Gone,
}

/// A batch's copy of the records, to be mapped after submission.
pub(crate) struct PendingMirror {
    memory: Lent,
    bytes: u64,
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

    /// Bytes of a live buffer for this pool, given the distance between records.
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

    /// Whether all records are in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn release(&mut self, record: u32) {
        self.free.push(record);
    }

    pub(crate) fn offset(&self, record: u32) -> u32 {
        // RECORDS * stride stays far below 4 GiB for every alignment that WebGPU allows.
        record * self.stride as u32
    }

    /// Commands to record before a launch that uses `record`.
    pub(crate) fn prepare(&self, encoder: &mut wgpu::CommandEncoder, record: u32) {
        if let Memory::Mirrored(buffer) = &self.memory {
            encoder.clear_buffer(buffer, u64::from(self.offset(record)), Some(RECORD_BYTES));
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.memory, Memory::Live(_))
    }

    /// Commands to copy the records of a batch for the host, at its end.
    pub(crate) fn collect(
        &self,
        device: &wgpu::Device,
        downloads: &Downloads,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Option<PendingMirror> {
        let Memory::Mirrored(buffer) = &self.memory else {
            return None;
        };
        let bytes = buffer.size();
        let memory = downloads.take(device, bytes, bytes);
        encoder.copy_buffer_to_buffer(buffer, 0, memory.buffer(), 0, bytes);
        Some(PendingMirror::of(memory, bytes))
    }

    /// A record, whose batch has ended.
    pub(crate) fn read(&self, record: u32, mirror: Option<&Mirror>) -> Reading<Record> {
        let at = u64::from(self.offset(record));
        let mut words = Record::default();
        match (&self.memory, mirror) {
            (Memory::Live(live), _) => {
                for (word, index) in words.iter_mut().zip(0u64..) {
                    match live.load_u32(at + 4 * index) {
                        Some(found) => *word = found,
                        None => return Reading::Gone,
                    }
                }
            }
            (Memory::Mirrored(_), Some(mirror)) => {
                let there = match mirror.words() {
                    Reading::There(there) => there,
                    Reading::Pending => return Reading::Pending,
                    Reading::Gone => return Reading::Gone,
                };
                let first = (at / 4) as usize;
                match there.get(first..first + words.len()) {
                    Some(there) => words.copy_from_slice(there),
                    None => return Reading::Gone,
                }
            }
            (Memory::Mirrored(_), None) => return Reading::Gone,
        }
        Reading::There(words)
    }
}

impl Mirror {
    /// All words, whose batch has ended. Never waits: a caller finding pending records polls, and asks again.
    pub(crate) fn words(&self) -> Reading<Arc<Vec<u32>>> {
        let mut copied = lock(&self.0);
        if let Copied::Mapping { mapping, .. } = &*copied {
            *copied = match mapping.state() {
                Mapped::Pending => return Reading::Pending,
                Mapped::Ready => match mapping.take(bytemuck::pod_collect_to_vec) {
                    Ok(words) => Copied::There(Arc::new(words)),
                    Err(_) => Copied::Gone,
                },
                Mapped::Failed(_) => Copied::Gone,
            };
        }
        match &*copied {
            Copied::There(words) => Reading::There(Arc::clone(words)),
            Copied::Open | Copied::Gone | Copied::Mapping { .. } => Reading::Gone,
        }
    }
}

impl Mirror {
    /// All words of an ended batch, or nothing where unreadable. Asks wgpu for the records; not to be called with a
    /// lock that the program's callbacks may want.
    pub(crate) fn wait(&self, submissions: &Submissions) -> Option<Arc<Vec<u32>>> {
        let mut pace = Pace::default();
        loop {
            match self.words() {
                Reading::There(words) => return Some(words),
                Reading::Gone => return None,
                Reading::Pending if cfg!(web) || submissions.lost().is_raised() => return None,
                Reading::Pending => {
                    submissions.collect();
                    pace.rest(None);
                }
            }
        }
    }
}

impl PendingMirror {
    /// A copy of `bytes` bytes in this memory.
    pub(crate) fn of(memory: Lent, bytes: u64) -> Self {
        Self {
            memory,
            bytes,
            mirror: Mirror::default(),
        }
    }

    /// Where the words will be.
    pub(crate) fn mirror(&self) -> Mirror {
        self.mirror.clone()
    }

    /// Maps the copy: its batch was submitted.
    pub(crate) fn map(self, device: &wgpu::Device) {
        let mapping = self.memory.map(device, 0..self.bytes);
        *lock(&self.mirror.0) = Copied::Mapping {
            mapping,
            _memory: self.memory,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::device::hooks;

    #[test]
    fn words_are_there_when_the_copy_is_mapped() {
        let _alone = hooks::alone();
        let context = Context::new().unwrap();
        for adapter in context.adapters() {
            let device = context.device_at(adapter.index).unwrap();
            let raw = device.raw();
            let pool = StatusPool::new(raw, None, 64);
            let Memory::Mirrored(records) = &pool.memory else {
                panic!("records in live memory");
            };
            let mut words = vec![0u32; (records.size() / 4) as usize];
            words[16..32].copy_from_slice(&[9; 16]);
            device
                .raw_queue()
                .write_buffer(records, 0, bytemuck::cast_slice(&words));
            let mut encoder =
                raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let pending = pool
                .collect(raw, &device.shared.downloads, &mut encoder)
                .unwrap();
            let mirror = pending.mirror();
            // Nothing was submitted.
            assert_eq!(mirror.words(), Reading::Gone);
            device.raw_queue().submit([encoder.finish()]);
            pending.map(raw);
            let submissions = &device.shared.submissions;
            let found = loop {
                match pool.read(1, Some(&mirror)) {
                    Reading::Pending => submissions.collect(),
                    found => break found,
                }
            };
            assert_eq!(found, Reading::There([9; 16]));
            // And the records stay.
            assert_eq!(pool.read(0, Some(&mirror)), Reading::There([0; 16]));
            assert_eq!(pool.read(300, Some(&mirror)), Reading::Gone);
            assert_eq!(pool.read(0, None), Reading::Gone);
        }
    }
}
