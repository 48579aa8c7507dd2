//! Changes by kernels on a device, on the way to the host.

use std::ops::Range;

use super::policy::Look;
use super::{Mirror, PAGE, PageSet, Shadow, Table, word_range};
use crate::device::wait::{Waits, lock};
use crate::memory::heap::{HeapError, HeapShared};
use crate::memory::ranges::within;

/// So many possibly changed pages are fetched without a search.
pub(super) const FEW: u64 = 64;

/// The bytes moved by a download.
#[derive(Default)]
struct Moved {
    downloaded: u64,
    searched: u64,
}

impl Moved {
    fn look(&self) -> Look {
        Look {
            moved: self.downloaded,
            searched: self.searched,
        }
    }
}

impl HeapShared {
    /// Brings down the changes of the last turn's device, once the device's launches are done.
    pub(super) async fn bring_down(
        &self,
        table: &mut Table,
        waits: Waits,
    ) -> Result<(), HeapError> {
        let Some(id) = table.ahead else {
            return Ok(());
        };
        let Some(mirror) = table.by_device.get_mut(&id) else {
            table.ahead = None;
            table.written = PageSet::default();
            return Ok(());
        };
        match self.download(id, mirror, &table.written, &waits).await {
            Ok(moved) => {
                if let Some(device) = mirror.owner.upgrade() {
                    let is_changed = !table.written.is_empty();
                    self.looked(&device, is_changed.then_some(moved.look()));
                }
                self.mirrors.count(|statistics| {
                    statistics.downloaded += moved.downloaded;
                    statistics.searched += moved.searched;
                });
                table.ahead = None;
                table.written = PageSet::default();
                Ok(())
            }
            Err(error) => {
                // Other errors of execution, such as the error of a function of the host for which the download would
                // be a wait for the function's own caller, leave the changes on the device.
                if error.is_loss() {
                    // The device is lost together with its changes: the heap goes on without them.
                    table.by_device.remove(&id);
                    self.mirrors.take_stock(table);
                    table.ahead = None;
                    table.written = PageSet::default();
                    let mut state = lock(&self.state);
                    state.stale.remove(&id);
                    state.mirror_ahead = false;
                    let fresh = std::mem::take(&mut state.fresh);
                    fresh.iter().for_each(|range| state.changed(range));
                }
                Err(error)
            }
        }
    }

    async fn download(
        &self,
        id: u64,
        mirror: &mut Mirror,
        written: &PageSet,
        waits: &Waits,
    ) -> Result<Moved, HeapError> {
        let mut moved = Moved::default();
        let mut runs = Vec::new();
        if !written.is_empty() {
            let Mirror {
                owner,
                buffers,
                shadow,
            } = mirror;
            buffers.submit(owner.upgrade().as_deref())?;
            let has_shadow = matches!(shadow, Shadow::Kept(_));
            let mut sink = |offset: u64, bytes: &[u8]| {
                moved.downloaded += bytes.len() as u64;
                self.merge(shadow, offset, bytes);
            };
            match written.count() {
                Some(count) if count <= FEW => {
                    runs = buffers.fetch_pages(written, waits, &mut sink).await?;
                }
                _ => {
                    let last = lock(&self.state).region.last();
                    let end = match has_shadow {
                        // A block freed since still holds the kernels' writes, and the shadow has to know.
                        true => buffers.covered,
                        // Kernels have no business beyond: writes there are not brought down.
                        false => last.map_or(0, |last| last.end().next_multiple_of(PAGE)),
                    };
                    let travelled;
                    (runs, travelled) = buffers.changes(end, waits).await?;
                    buffers.read(&runs, waits, &mut sink).await?;
                    moved.downloaded += travelled;
                    moved.searched = buffers.covered.min(end);
                }
            }
            buffers.forget_changes();
        }
        let mut state = lock(&self.state);
        state.mirror_ahead = false;
        let others = state.stale.iter_mut().filter(|(device, _)| **device != id);
        for (_, pages) in others {
            runs.iter().for_each(|run| pages.insert(run));
        }
        let fresh = std::mem::take(&mut state.fresh);
        fresh.iter().for_each(|range| state.changed(range));
        Ok(moved)
    }

    /// Takes over whole pages of the device: except memory allocated since the device's turn began (the host's), the
    /// host has changed nothing there since both agreed.
    fn merge(&self, shadow: &mut Shadow, offset: u64, bytes: &[u8]) {
        let state = lock(&self.state);
        let end = state.committed.min(offset + bytes.len() as u64);
        let range = offset..end;
        let count = (end.saturating_sub(offset) / 4) as usize;
        let kept: Vec<(Range<usize>, Vec<u32>)> = within(&state.fresh, &range)
            .map(|part| word_range(&part, offset))
            .map(|part| {
                let words = self.words(&state, offset, count)[part.clone()].to_vec();
                (part, words)
            })
            .collect();
        let at = self.host_pointer(self.base() + offset);
        // SAFETY: the range is committed memory of the window, aligned to pages, and holds initialised
        // bytes. The turn is held alone and nothing is in flight but this device's own launches, so no
        // kernel reaches it; no `HostAccess` has been given out, so nobody borrows it; and memory is
        // handed out under the lock of the state, which is held.
        #[allow(unsafe_code)]
        let memory = unsafe { std::slice::from_raw_parts_mut(at, count * 4) };
        memory.copy_from_slice(&bytes[..count * 4]);
        let words: &mut [u32] = bytemuck::cast_slice_mut(memory);
        if let Shadow::Kept(known) = shadow {
            let first = (offset / 4) as usize;
            known[first..first + count].copy_from_slice(words);
        }
        for (part, kept) in kept {
            words[part].copy_from_slice(&kept);
        }
        debug_assert!(offset.is_multiple_of(PAGE));
    }
}
