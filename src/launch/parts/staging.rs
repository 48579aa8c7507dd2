//! Arguments unbindable in place on the adapter: such arguments are copied to staging memory of the launch at its
//! start, and bytes the kernel may have written are copied back at its end, in the order of the queue and exactly in
//! the given range.
//!
//! A single decision for slices of device buffers, parts of buffers of the context, and pointers into the heap
//! ([`Launch::is_staged`]). An argument is staged where
//!
//! - the argument begins at an offset the adapter does not bind;
//! - the argument ends inside a word of 4 bytes with something else behind: kernels write whole words;
//! - the argument is a uniform in the heap of a kernel that reaches the heap, a double binding in wgpu's eyes;
//! - the argument is a uniform, and another argument is written in the same buffer: a buffer has a single use in a
//!   dispatch. A storage argument beside a written one is bound for writing, too
//!   ([`aliases`](crate::launch::aliases)), and staged only beyond the 64 arguments that a variant can name.
//!
//! Arguments in the argument table outside the heap are copied anyway ([`table`](super::table)), and are not staged
//! besides. Counts of an indirect grid are staged in the heap, which the kernel may have bound for writing, and in a
//! buffer with a written argument.
//!
//! Refusing slices of device buffers at odd offsets would make the two kinds of buffers behave differently, and taking
//! such slices as whole words would write beyond them. The copies are counted (`TransferStatistics::staged_arguments`),
//! so a program can see the cost of odd offsets. A device with a copy of the heap reads staged counts in the copy, and
//! so takes the device's turn.

use super::{Ground, Part, Parts, Rank, Stop, Submission, buffers};
use crate::device::queue::Recorder;
use crate::device::{DeviceShared, unique_id};
use crate::kernel::compile::Variant;
use crate::kernel::reflect::{ArgumentInfo, ArgumentKind};
use crate::launch::arguments::Given;
use crate::launch::{Grid, Launch, LaunchError};
use crate::memory::BufferView;
use crate::memory::buffer::{BufferShared, USAGE};
use crate::memory::places::{Place, copy};
use crate::memory::staging;

/// Bytes of the counts of an indirect grid.
pub(in crate::launch) const GRID_BYTES: u64 = 12;

/// Copies of arguments; the memory is kept with the arguments.
pub(in crate::launch) struct Staging;

impl<'s> Part<'s> for Staging {
    const RANK: Rank = Rank::Roots;

    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        Ok(launch.make_staging()?.then_some(Self))
    }

    fn copy_in(
        &mut self,
        to: &Submission<'_>,
        queue: &mut Recorder<'_>,
    ) -> Result<(), LaunchError> {
        to.launch.stage_in(queue, to.device)
    }

    fn after(&mut self, to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        to.launch.stage_out(queue, to.device)
    }
}

impl Launch {
    /// Whether the argument in `slot`, whose values are at `home`, is copied to staging memory while the launch runs.
    pub(in crate::launch) fn is_staged(&self, slot: usize, home: &BufferView) -> bool {
        if home.bytes == 0 {
            return false;
        }
        let limits = &self.kernel.device.limits;
        let compiled = &self.kernel.shared.compiled;
        let in_heap = home.shared.is_heap;
        let reached = in_heap && compiled.heap.is_some();
        let kind = self.interface().arguments.get(slot).map(|info| &info.kind);
        match kind {
            Some(ArgumentKind::Uniform { .. }) => {
                let alignment = u64::from(limits.min_uniform_buffer_offset_alignment);
                reached
                    || !home.offset.is_multiple_of(alignment)
                    || self.is_beside_written(slot, home)
            }
            Some(ArgumentKind::Storage { .. }) => {
                let nameless = !Variant::names(slot) && !reached && !self.writes(slot);
                if nameless && self.is_beside_written(slot, home) {
                    return true;
                }
                match (compiled.table.contains(&slot), reached) {
                    (true, _) => false,
                    (false, true) => !home.is_bindable(4),
                    (false, false) => !home.is_bindable(limits.min_storage_buffer_offset_alignment),
                }
            }
            _ => false,
        }
    }

    /// Whether another argument than the one in `slot` is written in the buffer of `home`.
    fn is_beside_written(&self, slot: usize, home: &BufferView) -> bool {
        let mut others = self.given.iter().enumerate();
        others.any(|(other, given)| match given {
            Some(Given::Buffer { view, .. }) => {
                other != slot && view.shared.raw == home.shared.raw && self.writes(other)
            }
            _ => false,
        })
    }

    /// Whether the counts of the grid, in `buffer`, are copied to staging memory before the launch.
    fn stages_grid(&self, buffer: &BufferView) -> bool {
        buffer.shared.is_heap || self.is_beside_written(usize::MAX, buffer)
    }

    /// Whether the argument in `slot` is bound elsewhere than at `home`: in staging memory, or in memory for arguments
    /// of the table.
    pub(in crate::launch) fn is_bound_elsewhere(&self, slot: usize, home: &BufferView) -> bool {
        let table = &self.kernel.shared.compiled.table;
        self.is_staged(slot, home) || (table.contains(&slot) && !home.shared.is_heap)
    }

    /// Has memory made for staged arguments, and returns whether there are any. The memory is kept for the next
    /// submission: launches of a device run in order.
    fn make_staging(&mut self) -> Result<bool, LaunchError> {
        let mut any = false;
        for slot in 0..self.given.len() {
            let Some(Given::Buffer { view, staging, .. }) = &self.given[slot] else {
                continue;
            };
            let size = match self.is_staged(slot, view) {
                true => {
                    let info = &self.interface().arguments[slot];
                    Some(staged_bytes(info, view).next_multiple_of(4))
                }
                false => None,
            };
            any |= size.is_some();
            if staging.as_ref().map(|memory| memory.raw.size()) == size {
                continue;
            }
            let device = &self.kernel.device;
            let made = match size {
                Some(size) => {
                    let raw = make(device, size)?;
                    Some(BufferShared::new(device, raw, unique_id(), false))
                }
                None => None,
            };
            if let Some(Given::Buffer { staging, .. }) = &mut self.given[slot] {
                *staging = made;
            }
            self.bound = None;
        }
        let stages_grid = match &self.grid {
            Some(Grid::Indirect { buffer, .. }) => self.stages_grid(buffer),
            _ => false,
        };
        any |= stages_grid;
        if let Some(Grid::Indirect { staging, .. }) = &mut self.grid {
            match (stages_grid, &staging) {
                (true, None) => *staging = Some(make(&self.kernel.device, GRID_BYTES)?),
                (false, Some(_)) => *staging = None,
                _ => {}
            }
        }
        Ok(any)
    }

    /// Records the copies to staging memory. The heap must be entered: some values lie there.
    fn stage_in(&self, queue: &mut Recorder<'_>, device: &DeviceShared) -> Result<(), LaunchError> {
        let arguments = self.interface().arguments.iter().zip(&self.given);
        for (slot, (info, given)) in arguments.enumerate() {
            let Some(Given::Buffer {
                view,
                overwrites,
                staging: Some(memory),
            }) = given
            else {
                continue;
            };
            let bytes = staged_bytes(info, view);
            staging::of(device).staged_argument(bytes);
            clear_behind(queue, &memory.raw, 0, bytes);
            if !(*overwrites && self.writes(slot)) {
                let to = Place::in_buffer(&memory.raw, 0, true);
                copy(queue, device, &view.place(), &to, bytes)?;
            }
        }
        if let Some(Grid::Indirect {
            buffer,
            offset,
            staging: Some(memory),
        }) = &self.grid
        {
            let from = Place::in_buffer(&buffer.shared.raw, buffer.offset + offset, false);
            let to = Place::in_buffer(memory, 0, false);
            copy(queue, device, &from, &to, GRID_BYTES)?;
        }
        Ok(())
    }

    /// Records the copies of the kernel's possible writes to their home.
    fn stage_out(
        &self,
        queue: &mut Recorder<'_>,
        device: &DeviceShared,
    ) -> Result<(), LaunchError> {
        let arguments = self.interface().arguments.iter().zip(&self.given);
        for (slot, (info, given)) in arguments.enumerate() {
            if let Some(Given::Buffer {
                view,
                staging: Some(memory),
                ..
            }) = given
                && self.writes(slot)
            {
                let from = Place::in_buffer(&memory.raw, 0, true);
                copy(
                    queue,
                    device,
                    &from,
                    &view.place(),
                    staged_bytes(info, view),
                )?;
            }
        }
        Ok(())
    }

    /// Whether the kernel may write the argument in `slot`.
    pub(in crate::launch) fn writes(&self, slot: usize) -> bool {
        let info = self.interface().arguments.get(slot);
        info.is_some_and(|info| matches!(info.kind, ArgumentKind::Storage { writable: true, .. }))
    }

    /// An argument's name in messages.
    pub(in crate::launch) fn argument(&self, slot: usize) -> String {
        let info = self.interface().arguments.get(slot);
        info.map_or_else(
            || buffers::INDIRECT_NAME.to_owned(),
            |info| info.name.clone(),
        )
    }
}

/// Bytes of an argument in staging memory: of a uniform as many as the kernel declares, regardless of the buffer's
/// length.
fn staged_bytes(info: &ArgumentInfo, home: &BufferView) -> u64 {
    match &info.kind {
        ArgumentKind::Uniform { layout } => home.bytes.min(u64::from(layout.size)),
        _ => home.bytes,
    }
}

/// Records zeros behind the last of `bytes` bytes in its word: kernels see whole words.
pub(in crate::launch) fn clear_behind(
    queue: &mut Recorder<'_>,
    memory: &wgpu::Buffer,
    start: u64,
    bytes: u64,
) {
    if !bytes.is_multiple_of(4) {
        let last = start + bytes / 4 * 4;
        queue.encode(|encoder| encoder.clear_buffer(memory, last, Some(4)));
    }
}

fn make(device: &DeviceShared, size: u64) -> Result<wgpu::Buffer, LaunchError> {
    Ok(staging::make(
        device,
        "making room for an argument",
        &wgpu::BufferDescriptor {
            label: Some("tombolo staged argument"),
            size,
            usage: USAGE,
            mapped_at_creation: false,
        },
    )?)
}
