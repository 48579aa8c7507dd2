//! A device's copy of an allocation table: buffers bound by its kernels, kept the same as the host's words.
//!
//! # How it works
//!
//! 1. An allocated range is written at once where the host and running kernels use the same memory: a kernel may get
//!    the address from a called function. No kernel that runs knows of the range otherwise. The queue writes the range
//!    once more in front of the next launch: the record of an earlier freeing may still be to come.
//! 2. A freed range is written by the device's queue, behind the launches recorded before the freeing, which may still
//!    use the range, and in front of the next launch. So are all ranges where the host cannot write at once.
//! 3. A growing table is made anew from the host's words; recorded launches go on with the old buffers.

use std::ops::Range;
use std::sync::Arc;

use rangemap::RangeSet;

use crate::device::heap_shape::segment_bytes;
use crate::device::live::{LiveBuffer, Reader};
use crate::device::words::Words;
use crate::device::{Aspect, DeviceShared, capture, unique_id};
use crate::memory::buffers::End;
use crate::memory::heap::HeapError;
use crate::memory::staging;

/// Why words are other ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory::heap) enum Change {
    Allocated,
    Freed,
}

/// The buffers of one device.
#[derive(Default)]
pub(in crate::memory::heap) struct TableCopy {
    parts: Vec<Part>,
    /// Words that the parts hold.
    covered: usize,
    /// Bytes of the table that the device does not have yet.
    stale: RangeSet<u64>,
}

struct Part {
    /// Identity for the bind-group cache.
    id: u64,
    memory: PartMemory,
}

enum PartMemory {
    /// The host writes the table during launches.
    Live(LiveBuffer),
    Queued(wgpu::Buffer),
}

impl Part {
    fn buffer(&self) -> &wgpu::Buffer {
        match &self.memory {
            PartMemory::Live(live) => live.buffer(),
            PartMemory::Queued(buffer) => buffer,
        }
    }
}

/// Words of a table that are to be written on a device.
pub(in crate::memory::heap) struct Upload {
    part: wgpu::Buffer,
    /// Byte in the part.
    at: u64,
    words: Vec<u32>,
}

/// Words in one part on a device.
fn part_words(device: &DeviceShared) -> usize {
    (segment_bytes(&device.limits) / 4) as usize
}

fn bytes(words: Range<usize>) -> Range<u64> {
    words.start as u64 * 4..words.end as u64 * 4
}

impl TableCopy {
    /// The buffers in kernels' bindings, with their identities.
    pub(in crate::memory::heap) fn buffers(&self) -> Vec<(u64, wgpu::Buffer)> {
        let of = |part: &Part| (part.id, part.buffer().clone());
        self.parts.iter().map(of).collect()
    }

    /// The words of `range` are other ones now.
    pub(in crate::memory::heap) fn change(
        &mut self,
        device: &DeviceShared,
        words: &[u32],
        range: Range<usize>,
        change: Change,
    ) {
        let range = range.start..range.end.min(self.covered);
        if range.is_empty() {
            return;
        }
        let step = part_words(device);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / step + 1) * step);
            if let Some(PartMemory::Live(live)) = self.parts.get(at / step).map(|part| &part.memory)
                && change == Change::Allocated
            {
                let first = at % step;
                let places = live.words().get(first..first + (end - at));
                let new = words.get(at..end).unwrap_or_default();
                for (place, word) in places.unwrap_or_default().iter().zip(new) {
                    place.store(*word, std::sync::atomic::Ordering::Release);
                }
            }
            self.stale.insert(bytes(at..end));
            at = end;
        }
    }

    /// Has the device hold all of `words`. Existing parts keep their place, the last one apart.
    pub(in crate::memory::heap) fn cover(
        &mut self,
        device: &DeviceShared,
        words: &[u32],
    ) -> Result<(), HeapError> {
        if words.len() == self.covered {
            return Ok(());
        }
        let step = part_words(device);
        let kept = self.covered.min(words.len()) / step;
        let mut new = Vec::new();
        for part in words.chunks(step).skip(kept) {
            new.push(Part {
                id: unique_id(),
                memory: part_memory(device, part)?,
            });
        }
        for old in self.parts.drain(kept.min(self.parts.len())..) {
            if let Some(tell) = device.buffer_gone.get() {
                tell(device, old.id);
            }
        }
        self.parts.extend(new);
        self.covered = words.len();
        // A table made anew is up to date.
        self.stale.remove(bytes(kept * step..usize::MAX / 8));
        Ok(())
    }

    /// The missing parts on the device, taken from `words`, which count as written from now on.
    pub(in crate::memory::heap) fn take_stale(
        &mut self,
        device: &DeviceShared,
        words: &[u32],
    ) -> Vec<Upload> {
        let step = part_words(device);
        let mut uploads = Vec::new();
        for run in std::mem::take(&mut self.stale) {
            let end = ((run.end / 4) as usize).min(self.covered);
            let mut at = (run.start / 4) as usize;
            while at < end {
                let until = end.min((at / step + 1) * step);
                if let (Some(part), Some(words)) = (self.parts.get(at / step), words.get(at..until))
                {
                    uploads.push(Upload {
                        part: part.buffer().clone(),
                        at: (at % step) as u64 * 4,
                        words: words.to_vec(),
                    });
                }
                at = until;
            }
        }
        uploads
    }
}

/// Runs of words, one behind the other in as few staging buffers as hold all runs: a buffer for each run would be as
/// many buffers as there are allocations between two launches.
#[derive(Debug, Default, PartialEq)]
struct Packed {
    /// The words of each staging buffer.
    buffers: Vec<Vec<u32>>,
    /// The bytes of each run, with the number of its buffer and the byte there; `None` for nothing but zeros.
    runs: Vec<(u64, Option<(usize, u64)>)>,
}

impl Packed {
    /// Packs `runs` in buffers of at most `most` bytes; no run is larger.
    fn of(runs: impl Iterator<Item = Vec<u32>>, most: u64) -> Self {
        let bytes = |words: &[u32]| words.len() as u64 * 4;
        let mut packed = Self::default();
        for run in runs {
            let size = bytes(&run);
            if run.iter().all(|word| *word == 0) {
                packed.runs.push((size, None));
                continue;
            }
            let last = packed.buffers.last_mut();
            let start = match last.filter(|last| bytes(last) + size <= most) {
                Some(last) => {
                    let start = bytes(last);
                    last.extend(run);
                    start
                }
                None => {
                    packed.buffers.push(run);
                    0
                }
            };
            packed
                .runs
                .push((size, Some((packed.buffers.len() - 1, start))));
        }
        packed
    }
}

/// Records `uploads` behind everything recorded on the device so far.
pub(in crate::memory::heap) fn record(
    device: &Arc<DeviceShared>,
    uploads: Vec<Upload>,
) -> Result<(), HeapError> {
    if uploads.is_empty() {
        return Ok(());
    }
    let unsupported = |why: String| HeapError::Unsupported {
        device: device.capabilities.name.clone(),
        why: format!("the table of what is allocated could not be written: {why}"),
    };
    let pool = staging::of(device);
    let split = |upload: Upload| ((upload.part, upload.at), upload.words);
    let (places, runs): (Vec<_>, Vec<_>) = uploads.into_iter().map(split).unzip();
    let packed = Packed::of(runs.into_iter(), device.limits.max_buffer_size);
    let mut sources = Vec::with_capacity(packed.buffers.len());
    for words in &packed.buffers {
        let filled = pool.filled(device, WHAT, 0, bytemuck::cast_slice(words));
        sources.push(filled.map_err(|error| unsupported(error.to_string()))?);
    }
    let (batch, error) = capture(&device.raw, || {
        let mut queue = device.queue.lock(device);
        queue.encode(|encoder| {
            for ((part, at), (size, place)) in places.iter().zip(&packed.runs) {
                match place.and_then(|(source, from)| Some((sources.get(source)?, from))) {
                    None => encoder.clear_buffer(part, *at, Some(*size)),
                    Some((source, from)) => {
                        encoder.copy_buffer_to_buffer(source, from, part, *at, *size);
                    }
                }
            }
        });
        queue.batch()
    });
    for source in sources {
        pool.give_upload(source, End::of(device, Arc::clone(&batch)));
    }
    match error {
        None => Ok(()),
        Some(error) => Err(unsupported(error.to_string())),
    }
}

/// The name of a copy of words of the table in errors.
const WHAT: &str = "a copy of the table of what is allocated";

/// Memory of `device` that holds `words`.
fn part_memory(device: &DeviceShared, words: &[u32]) -> Result<PartMemory, HeapError> {
    const LABEL: &str = "tombolo allocation table";
    let unsupported = |why: String| HeapError::Unsupported {
        device: device.capabilities.name.clone(),
        why: format!("it has no memory for a table of what is allocated: {why}"),
    };
    let size = words.len().max(1) as u64 * 4;
    if device.capabilities.has(Aspect::LiveMemory) {
        let backend = device.capabilities.backend;
        let live = LiveBuffer::new(&device.raw, backend, Reader::Kernel, size, LABEL);
        let live = live.map_err(|error| unsupported(error.to_string()))?;
        for (place, word) in live.words().iter().zip(words) {
            place.store(*word, std::sync::atomic::Ordering::Release);
        }
        return Ok(PartMemory::Live(live));
    }
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
    let first = bytemuck::cast_slice(words);
    match staging::make_filled(device, WHAT, LABEL, usage, size, first) {
        Ok(buffer) => Ok(PartMemory::Queued(buffer)),
        Err(error) => Err(unsupported(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_share_staging_buffers_as_far_as_they_fit() {
        let runs = [
            vec![1, 0],
            vec![0, 0, 0],
            vec![3],
            vec![0],
            vec![4, 5],
            vec![6],
        ];
        let packed = |most| Packed::of(runs.iter().cloned(), most);
        let all = packed(1 << 20);
        assert_eq!(all.buffers, [vec![1, 0, 3, 4, 5, 6]]);
        let at = |byte| Some((0, byte));
        let expected = [
            (8, at(0)),
            (12, None),
            (4, at(8)),
            (4, None),
            (8, at(12)),
            (4, at(20)),
        ];
        assert_eq!(all.runs, expected);
        // Twelve bytes a buffer: exactly three words fit.
        let few = packed(12);
        assert_eq!(few.buffers, [vec![1, 0, 3], vec![4, 5, 6]]);
        assert_eq!(
            (few.runs[4], few.runs[5]),
            ((8, Some((1, 0))), (4, Some((1, 8))))
        );
        // Zeros take no buffer.
        let none = Packed::of([vec![0; 7]].into_iter(), 28);
        assert_eq!((none.buffers.len(), none.runs), (0, vec![(28, None)]));
    }
}
