//! The missing parts of a device, on the way there.

use super::buffers::{CHUNK, MirrorBuffers, Upload};
use super::runs::push;
use super::search::LISTED;
use super::{Mirror, PAGE, PAGE_WORDS, PageSet, Shadow, Table, word_range};
use rangemap::RangeSet;

use crate::device::wait::lock;
use crate::device::{Aspect, DeviceShared};
use crate::memory::heap::{HeapError, HeapShared, Hold, State};
use crate::memory::host_memory;
use crate::memory::ranges::within;

/// A page without anything.
const ZEROS: &[u32] = &[0; PAGE_WORDS];

/// Parts missing on a device.
struct Wanted {
    pages: PageSet,
    /// Bytes of pages that may have the device's own changes, too.
    fresh: RangeSet<u64>,
    /// The device has no changes of its own.
    in_step: bool,
}

impl HeapShared {
    /// Sends the missing parts to the device. The answer is how many bytes these were.
    pub(super) fn bring_up(
        &self,
        table: &mut Table,
        device: &DeviceShared,
    ) -> Result<u64, HeapError> {
        let in_step = table.ahead.is_none();
        let Some(mirror) = table.by_device.get_mut(&device.id) else {
            return Ok(0);
        };
        let wanted = {
            let mut state = lock(&self.state);
            self.check_holds(&state, device)?;
            // Allocations by other threads from here on do not go up with the rest.
            state.mirror_ahead = true;
            wanted(&mut state, device.id, mirror.buffers.covered, in_step)
        };
        let sent = match wanted.pages.is_empty() && wanted.fresh.is_empty() {
            true => Ok((0, 0)),
            false => self.send(mirror, device, &wanted),
        };
        match sent {
            Ok((uploaded, searched)) => {
                table.ahead = Some(device.id);
                self.mirrors.count(|statistics| {
                    statistics.uploaded += uploaded;
                    statistics.searched += searched;
                });
                Ok(uploaded)
            }
            Err(error) => {
                // Nothing of it is known to be there.
                mirror.shadow = Shadow::Unknown;
                let mut state = lock(&self.state);
                let State { stale, fresh, .. } = &mut *state;
                stale
                    .entry(device.id)
                    .or_default()
                    .insert_all(&wanted.pages);
                fresh.extend(wanted.fresh);
                if in_step {
                    // No launch follows.
                    state.mirror_ahead = false;
                    let fresh = std::mem::take(&mut state.fresh);
                    fresh.iter().for_each(|range| state.changed(range));
                }
                Err(error)
            }
        }
    }

    /// Refuses launches while the host may change memory without asking.
    fn check_holds(&self, state: &State, device: &DeviceShared) -> Result<(), HeapError> {
        let Some((&id, hold)) = state.holds.iter().next() else {
            return Ok(());
        };
        // Only a device that could use the heap in place can be advised to.
        let what = match device.capabilities.has(Aspect::HostImport) {
            true => {
                "a launch on a device that keeps a copy of the heap, and has none with HeapPlacement::InPlace"
            }
            false => "a launch on a device that keeps a copy of the heap",
        };
        let address = self.base() + state.region.get(id).map_or(0, |found| found.address);
        Err(match hold {
            Hold::Atomics { .. } => HeapError::AtomicView { what, address },
            Hold::Owned => HeapError::Owned { what, address },
        })
    }

    /// Sends the wanted parts. The answer is how many bytes have travelled, and how many were compared.
    fn send(
        &self,
        mirror: &mut Mirror,
        device: &DeviceShared,
        wanted: &Wanted,
    ) -> Result<(u64, u64), HeapError> {
        let (mut uploaded, mut searched) = (0, 0);
        let is_known = !matches!(mirror.shadow, Shadow::Unknown);
        if wanted.pages.is_everything() {
            match &mirror.shadow {
                // A device that works in place at times is sent everything then.
                Shadow::Unknown if self.may_choose(device) => {}
                // The second time, at least: devices with the heap in place work beside this one.
                Shadow::Unknown => mirror.shadow = kept(mirror.buffers.covered),
                Shadow::Zeros | Shadow::Kept(_) => searched = mirror.buffers.covered,
            }
        }
        let mut upload = Upload::default();
        let mut at = 0;
        loop {
            at = self.gather(mirror, at, wanted, is_known, &mut upload);
            if upload.pages.is_empty() {
                break;
            }
            uploaded += upload.bytes.len() as u64;
            mirror.buffers.write(device, &mut upload, !wanted.in_step)?;
            upload.clear();
            if at >= mirror.buffers.covered {
                break;
            }
            MirrorBuffers::flush(device)?;
        }
        if let Shadow::Zeros = mirror.shadow {
            mirror.shadow = Shadow::Unknown;
        }
        Ok((uploaded, searched))
    }

    /// Collects the parts missing on the device, from byte `at` of the heap on, until a chunk is full. Where the device's
    /// bytes are known, pages without a difference are left out of everything. The answer is where to go on.
    fn gather(
        &self,
        mirror: &mut Mirror,
        mut at: u64,
        wanted: &Wanted,
        is_known: bool,
        upload: &mut Upload,
    ) -> u64 {
        let state = lock(&self.state);
        let end = state.committed.min(mirror.buffers.covered);
        let step = mirror.buffers.step;
        let compares = is_known && wanted.pages.is_everything();
        while at < end && (upload.bytes.len() as u64) < CHUNK && upload.pages.len() < LISTED {
            let number = at / PAGE;
            let whole = wanted.pages.next(number).filter(|page| page * PAGE < end);
            let fresh = within(&wanted.fresh, &(at..end)).next();
            let fresh = fresh.map(|part| part.start / PAGE);
            let Some(next) = whole.into_iter().chain(fresh).min() else {
                return mirror.buffers.covered;
            };
            at = next * PAGE;
            let page = at..at + PAGE;
            at = page.end;
            let memory = self.words(&state, page.start, PAGE_WORDS);
            let first = (page.start / 4) as usize;
            let is_whole = whole == Some(next);
            let is_zero = || memory == ZEROS;
            if is_whole {
                let is_there = compares
                    && match &mirror.shadow {
                        Shadow::Zeros => is_zero(),
                        Shadow::Kept(known) => memory == &known[first..first + PAGE_WORDS],
                        Shadow::Unknown => false,
                    };
                if is_there {
                    continue;
                }
                if is_zero() {
                    push(&mut upload.clears, page.clone(), step);
                } else {
                    push(&mut upload.runs, page.clone(), step);
                    upload.bytes.extend_from_slice(bytemuck::cast_slice(memory));
                }
                if let Shadow::Kept(known) = &mut mirror.shadow {
                    known[first..first + PAGE_WORDS].copy_from_slice(memory);
                }
            } else {
                for part in within(&wanted.fresh, &page) {
                    let part = word_range(&part, page.start);
                    let bytes = |word: usize| page.start + 4 * word as u64;
                    push(&mut upload.runs, bytes(part.start)..bytes(part.end), step);
                    let words = &memory[part.clone()];
                    upload.bytes.extend_from_slice(bytemuck::cast_slice(words));
                    if let Shadow::Kept(known) = &mut mirror.shadow {
                        known[first..][part].copy_from_slice(words);
                    }
                }
            }
            upload.pages.push(next);
        }
        if at < end { at } else { mirror.buffers.covered }
    }
}

/// Takes what the mirror of device `id` lacks out of the books, for memory that it covers.
fn wanted(state: &mut State, id: u64, covered: u64, in_step: bool) -> Wanted {
    let mut fresh = std::mem::take(&mut state.fresh);
    // An allocation may have come since the mirror was made to cover the heap: such bytes go up with the next launch.
    state.fresh = within(&fresh, &(covered..u64::MAX)).collect();
    fresh.remove(covered..u64::MAX);
    let committed = state.committed;
    let mut pages = PageSet::default();
    for (&device, stale) in &mut state.stale {
        if device == id {
            pages = stale.take_below(covered, committed);
        } else {
            fresh.iter().for_each(|range| stale.insert(range));
        }
    }
    Wanted {
        pages,
        fresh,
        in_step,
    }
}

/// A shadow of so many bytes, if the host has memory for it: without one, more travels.
fn kept(bytes: u64) -> Shadow {
    let words = host_memory::zeroed("a shadow of the heap", (bytes / 4) as usize);
    words.map_or(Shadow::Unknown, Shadow::Kept)
}
