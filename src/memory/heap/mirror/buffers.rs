//! The buffers of a mirror, and the copies between them and the host.
//!
//! Everything here works with wgpu's own handles and not with the device's: the device may be dropped while the mirror
//! still holds its last launch's writes.

mod growth;

use std::ops::Range;
use std::sync::Arc;

use super::runs::push;
use super::search::{Mode, Search, grid, lists, random_keys};
use super::{PAGE, PageSet};
use crate::device::end::QueueEnd;
use crate::device::heap_shape::segment_bytes;
use crate::device::staging::Downloads;
use crate::device::submissions::{ClosedBatch, Submissions};
use crate::device::wait::{Waits, ended};
use crate::device::{DeviceShared, ExecutionError, capture};
use crate::memory::buffers::End;
use crate::memory::heap::HeapError;
use crate::memory::heap::state::AWAIT_HOST;
use crate::memory::staging::{self, Coming, Missing, Piece};

/// Bytes moved at once: staging memory beyond this buys nothing.
pub(super) const CHUNK: u64 = 16 << 20;

/// A segment of the heap on a device with a copy.
struct Part {
    /// Identity for the bind-group cache.
    id: u64,
    /// The kernels' view.
    heap: wgpu::Buffer,
    /// The sums of the pages at the last agreement between host and device.
    known: wgpu::Buffer,
    /// A bit for each page that differed.
    changed: wgpu::Buffer,
    /// What the next search is about: the mode, and the pages.
    listed: wgpu::Buffer,
    group: wgpu::BindGroup,
}

/// A part of the heap on its way to a device.
#[derive(Default)]
pub(super) struct Upload {
    /// Ranges of the heap, ascending, and their contents one behind the other.
    pub(super) runs: Vec<Range<u64>>,
    pub(super) bytes: Vec<u8>,
    /// Ranges that are zeros, ascending.
    pub(super) clears: Vec<Range<u64>>,
    /// The numbers of the pages with bytes of either, ascending: [`LISTED`](super::search::LISTED) at most.
    pub(super) pages: Vec<u64>,
}

impl Upload {
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.bytes.clear();
        self.clears.clear();
        self.pages.clear();
    }
}

/// A device's copy of the heap.
pub(super) struct MirrorBuffers {
    raw: wgpu::Device,
    queue: wgpu::Queue,
    submissions: Arc<Submissions>,
    end: Arc<QueueEnd>,
    /// The device's name.
    name: String,
    /// Bytes of a whole segment.
    pub(super) step: u64,
    /// Bytes of the heap that the parts cover.
    pub(super) covered: u64,
    parts: Vec<Part>,
    search: Search,
    downloads: Downloads,
    /// The bits of changed pages were heard.
    heard: bool,
}

impl MirrorBuffers {
    pub(super) fn new(device: &DeviceShared) -> Result<Self, HeapError> {
        let name = device.capabilities.name.clone();
        let keys = random_keys(&name)?;
        let (search, error) = capture(&device.raw, || Search::new(device, &keys));
        refused(&name, error)?;
        Ok(Self {
            raw: device.raw.clone(),
            queue: device.queue_raw.clone(),
            submissions: Arc::clone(&device.submissions),
            end: Arc::clone(&device.queue_end),
            name,
            step: segment_bytes(&device.limits),
            covered: 0,
            parts: Vec::new(),
            search,
            downloads: Downloads::default(),
            heard: false,
        })
    }

    /// The buffers in kernels' bindings, with their identities.
    pub(super) fn segments(&self) -> Vec<(u64, wgpu::Buffer)> {
        let of = |part: &Part| (part.id, part.heap.clone());
        self.parts.iter().map(of).collect()
    }

    /// Writes an upload behind everything recorded so far. Where the device may have changed the pages, `searches` has them
    /// searched before.
    pub(super) fn write(
        &mut self,
        device: &DeviceShared,
        upload: &mut Upload,
        searches: bool,
    ) -> Result<(), HeapError> {
        #[cfg(test)]
        {
            use crate::device::hooks;
            let sent = hooks::Point::HeapSent(device.id);
            hooks::reach(sent);
            if hooks::is_refused(sent) {
                return Err(self.failed("refused by a test".to_owned()));
            }
        }
        // Behind the bytes: the modes, and the pages of each part.
        let (lists, words) = lists(self.step, &upload.pages);
        let at = upload.bytes.len() as u64;
        let bytes = &mut upload.bytes;
        bytes.extend_from_slice(bytemuck::cast_slice(&words));
        let pool = staging::of(device);
        let staging = pool
            .filled(device, "an upload of the shared heap", 0, bytes)
            .map_err(|error| self.failed(error.to_string()))?;
        let forget = searches && std::mem::take(&mut self.heard);
        let (batch, error) = capture(&self.raw, || {
            let mut queue = device.queue.lock(device);
            queue.encode(|encoder| {
                if searches {
                    // Before the search: the next download must find what the search finds.
                    if forget {
                        self.clear_changed(encoder);
                    }
                    self.search_lists(encoder, &lists, Mode::Find, (&staging, at));
                }
                for clear in &upload.clears {
                    let (index, at) = (clear.start / self.step, clear.start % self.step);
                    if let Some(part) = self.parts.get(index as usize) {
                        let bytes = clear.end - clear.start;
                        encoder.clear_buffer(&part.heap, at, Some(bytes));
                    }
                }
                let mut from = 0;
                for run in &upload.runs {
                    let (index, at) = (run.start / self.step, run.start % self.step);
                    let len = run.end - run.start;
                    if let Some(part) = self.parts.get(index as usize) {
                        encoder.copy_buffer_to_buffer(&staging, from, &part.heap, at, len);
                    }
                    from += len;
                }
                self.search_lists(encoder, &lists, Mode::Learn, (&staging, at));
            });
            queue.batch()
        });
        pool.give_upload(staging, End::of(device, batch));
        refused(&self.name, error)
    }

    fn clear_changed(&self, encoder: &mut wgpu::CommandEncoder) {
        for part in &self.parts {
            encoder.clear_buffer(&part.changed, 0, None);
        }
    }

    /// Searches the lists of [`lists`], whose words are in a buffer, from a byte on.
    fn search_lists(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        lists: &[(usize, Range<u64>)],
        mode: Mode,
        (words, at): (&wgpu::Buffer, u64),
    ) {
        for (index, list) in lists {
            let Some(part) = self.parts.get(*index) else {
                continue;
            };
            let of_mode = at + 4 * (mode as u64 - 1);
            encoder.copy_buffer_to_buffer(words, of_mode, &part.listed, 0, 4);
            let (from, bytes) = (at + 4 * list.start, 4 * (list.end - list.start));
            encoder.copy_buffer_to_buffer(words, from, &part.listed, 4, bytes);
            let mut pass = self.search.pass(encoder);
            pass.set_bind_group(0, &part.group, &[]);
            let [groups, rows] = grid(list.end - list.start);
            pass.dispatch_workgroups(groups, rows, 1);
        }
    }

    /// Sees to the submission of the device's recorded commands.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`] where the open batch stays behind.
    pub(super) fn submit(&self, device: Option<&DeviceShared>) -> Result<(), HeapError> {
        match device {
            Some(device) => match device.queue.lock(device).flush() {
                Err(error) if matches!(*error, ExecutionError::InHandler { .. }) => {
                    Err(error.into())
                }
                // Failures are the events' to tell; a batch that was refused has changed nothing.
                _ => Ok(()),
            },
            // The last handle is gone: if another thread is just dropping the handle, that thread submits.
            None => {
                self.end.wait(None);
                Ok(())
            }
        }
    }

    /// Sends recorded commands off, to release an upload's staging memory early.
    pub(super) fn flush(device: &DeviceShared) -> Result<(), HeapError> {
        Ok(device.queue.lock(device).flush()?)
    }

    /// The pages below byte `end` changed by kernels and unknown to [`Self::forget_changes`], as runs, and the bytes moved for finding
    /// them. Recorded commands have to be submitted before.
    pub(super) async fn changes(
        &mut self,
        end: u64,
        waits: &Waits,
    ) -> Result<(Vec<Range<u64>>, u64), HeapError> {
        let total: u64 = self.parts.iter().map(|part| part.changed.size()).sum();
        let forget = std::mem::take(&mut self.heard);
        let record = |encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer| {
            if forget {
                self.clear_changed(encoder);
            }
            for part in &self.parts {
                // The mode that searches all pages.
                encoder.clear_buffer(&part.listed, 0, Some(4));
            }
            {
                let mut pass = self.search.pass(encoder);
                for (index, part) in self.parts.iter().enumerate() {
                    let start = index as u64 * self.step;
                    let bytes = end.saturating_sub(start).min(part.heap.size());
                    if bytes > 0 {
                        let [groups, rows] = grid(bytes.div_ceil(PAGE));
                        pass.set_bind_group(0, &part.group, &[]);
                        pass.dispatch_workgroups(groups, rows, 1);
                    }
                }
            }
            let mut at = 0;
            for part in &self.parts {
                let size = part.changed.size();
                encoder.copy_buffer_to_buffer(&part.changed, 0, staging, at, size);
                at += size;
            }
        };
        let mut runs = Vec::new();
        let mut words = Vec::with_capacity(total as usize);
        let show = |bytes: &[u8]| words.extend_from_slice(bytes);
        self.fetch(total, waits, record, show).await?;
        let mut rest = words.as_slice();
        for (index, part) in self.parts.iter().enumerate() {
            let base = index as u64 * self.step;
            let (words, behind) = rest.split_at(part.changed.size() as usize);
            rest = behind;
            for (word, bits) in words.chunks_exact(4).enumerate() {
                let mut bits = u32::from_le_bytes([bits[0], bits[1], bits[2], bits[3]]);
                while bits != 0 {
                    let page = word as u64 * 32 + u64::from(bits.trailing_zeros());
                    bits &= bits - 1;
                    let start = page * PAGE;
                    let end = (start + PAGE).min(part.heap.size());
                    if start >= end {
                        // Known before the segment was cut off there.
                        continue;
                    }
                    push(&mut runs, base + start..base + end, self.step);
                }
            }
        }
        Ok((runs, total))
    }

    /// Reads the given pages, [`FEW`](super::down::FEW) at most, as [`Self::read`] does, and takes note of them as they are. The
    /// answer are the runs.
    pub(super) async fn fetch_pages(
        &self,
        pages: &PageSet,
        waits: &Waits,
        mut sink: impl FnMut(u64, &[u8]),
    ) -> Result<Vec<Range<u64>>, HeapError> {
        let (mut numbers, mut runs) = (Vec::new(), Vec::new());
        let mut next = pages.next(0);
        // The heap may have been cut off.
        while let Some(page) = next.filter(|page| page * PAGE < self.covered) {
            numbers.push(page);
            push(&mut runs, page * PAGE..(page + 1) * PAGE, self.step);
            next = pages.next(page + 1);
        }
        if numbers.is_empty() {
            return Ok(runs);
        }
        let (lists, words) = lists(self.step, &numbers);
        let len = |run: &Range<u64>| run.end - run.start;
        let record = |encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer| {
            // In front of the submission.
            (self.queue).write_buffer(&self.search.asked, 0, bytemuck::cast_slice(&words));
            self.copy_out(encoder, &runs, staging);
            self.search_lists(encoder, &lists, Mode::Learn, (&self.search.asked, 0));
        };
        let show = along(&runs, &mut sink);
        self.fetch(runs.iter().map(len).sum(), waits, record, show)
            .await?;
        Ok(runs)
    }

    /// Copies runs, one behind the other.
    fn copy_out(&self, encoder: &mut wgpu::CommandEncoder, runs: &[Range<u64>], to: &wgpu::Buffer) {
        let mut written = 0;
        for run in runs {
            let (index, at) = (run.start / self.step, run.start % self.step);
            let len = run.end - run.start;
            if let Some(part) = self.parts.get(index as usize) {
                encoder.copy_buffer_to_buffer(&part.heap, at, to, written, len);
            }
            written += len;
        }
    }

    /// The changes reached the host.
    pub(super) fn forget_changes(&mut self) {
        self.heard = true;
    }

    /// Reads `runs`; `sink` gets each offset with the bytes from there on, possibly in several pieces.
    pub(super) async fn read(
        &self,
        runs: &[Range<u64>],
        waits: &Waits,
        mut sink: impl FnMut(u64, &[u8]),
    ) -> Result<(), HeapError> {
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for run in runs {
            let mut start = run.start;
            while start < run.end {
                let end = run.end.min(start + CHUNK);
                pieces.push(start..end);
                start = end;
            }
        }
        let len = |piece: &Range<u64>| piece.end - piece.start;
        let mut rest = pieces.as_slice();
        while !rest.is_empty() {
            let mut total = 0;
            let fits = |piece: &&Range<u64>| {
                total += len(piece);
                total <= CHUNK
            };
            // At least one: no piece is larger.
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let record = |encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer| {
                self.copy_out(encoder, now, staging);
            };
            let show = along(now, &mut sink);
            self.fetch(now.iter().map(len).sum(), waits, record, show)
                .await?;
        }
        Ok(())
    }

    /// Submits commands with `bytes` bytes of results in a mappable buffer, waits, and shows the bytes.
    async fn fetch(
        &self,
        bytes: u64,
        waits: &Waits,
        record: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer),
        mut show: impl FnMut(&[u8]),
    ) -> Result<(), HeapError> {
        match waits {
            Waits::Blocks => self.submissions.may_wait(FETCH, AWAIT_HOST),
            Waits::Awaits(_) => self.submissions.may_submit(FETCH),
        }
        .map_err(Arc::new)?;
        let ((memory, commands), error) = capture(&self.raw, || {
            let memory = self.downloads.take(&self.raw, bytes, bytes);
            let mut encoder = self
                .raw
                .create_command_encoder(&wgpu::CommandEncoderDescriptor {
                    label: Some("shared heap download"),
                });
            record(&mut encoder, memory.buffer());
            (memory, encoder.finish())
        });
        refused(&self.name, error)?;
        let closed = ClosedBatch::of(commands);
        let batch = self.submissions.send_now(&self.queue, closed);
        match batch.submission() {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(Arc::clone(error).into()),
            None => return Err(Arc::new(ExecutionError::InCallback { what: FETCH }).into()),
        }
        let piece = Piece { bytes: 0..bytes };
        let coming = Coming::begin(&self.raw, batch, memory, piece).named(&[FETCH, AWAIT_HOST]);
        if let Waits::Awaits(device) = waits {
            ended(device.as_deref(), &self.submissions, coming.batch()).await;
            #[cfg(web)]
            coming.settled().await;
        }
        let arrived = coming.arrive(&self.submissions, None);
        // Copied first: what is shown goes to the heap under locks that other threads hold while they use wgpu.
        let shown = arrived.and_then(|()| coming.read_copied(|_, bytes| show(bytes)));
        shown.map_err(|missing| match missing {
            Missing::InHandler(error) => Arc::new(error).into(),
            Missing::Lost(reason) => Arc::new(ExecutionError::DeviceLost { reason }).into(),
            Missing::Deadline => self.failed("it was not mapped".to_owned()),
            Missing::Refused(message) => self.failed(message),
        })
    }

    fn failed(&self, message: String) -> HeapError {
        HeapError::Mirror {
            device: self.name.clone(),
            message,
        }
    }
}

/// Shows bytes of runs, which come one behind another and in pieces, to `sink` with their offsets. Pieces are cut where
/// runs end, and otherwise between pages as long as the runs in front are whole pages.
fn along(runs: &[Range<u64>], mut sink: impl FnMut(u64, &[u8])) -> impl FnMut(&[u8]) {
    let mut later = runs.iter().cloned();
    let mut now = 0..0;
    move |mut bytes| {
        while !bytes.is_empty() {
            if now.is_empty() {
                let Some(next) = later.next() else {
                    return;
                };
                now = next;
            }
            let len = (now.end - now.start).min(bytes.len() as u64);
            let (here, behind) = bytes.split_at(len as usize);
            sink(now.start, here);
            (now.start, bytes) = (now.start + len, behind);
        }
    }
}

/// What a copy to the host calls itself.
const FETCH: &str = "a copy of the heap";

fn refused(name: &str, error: Option<wgpu::Error>) -> Result<(), HeapError> {
    match error {
        None => Ok(()),
        Some(error) => Err(HeapError::Mirror {
            device: name.to_string(),
            message: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_to_their_runs_however_they_come() {
        let bytes: Vec<u8> = (0..60).collect();
        let runs = [100..120u64, 200..201, 300..339];
        for len in [1, 7, 20, 21, 60] {
            let mut seen = vec![0xffu8; 400];
            let mut show = along(&runs, |at, bytes: &[u8]| {
                seen[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
            });
            bytes.chunks(len).for_each(&mut show);
            // Beyond the runs there is nowhere to go.
            show(&[1, 2, 3]);
            drop(show);
            let mut expected = vec![0xffu8; 400];
            expected[100..120].copy_from_slice(&bytes[..20]);
            expected[200] = 20;
            expected[300..339].copy_from_slice(&bytes[21..]);
            assert_eq!(seen, expected, "in pieces of {len}");
        }
    }
}
