//! Memory on devices is given up when others need it more, or somebody says so.
//!
//! Room is had by the bytes that buffers have on a device, against a cap, and by the driver's refusal. The root that
//! was not used for longest gives up its memory; what is nowhere else comes to the host first. Roots of the same
//! launch are locked and so are left alone; where nothing can go, the launch is refused and all contents are where
//! they were.

use std::sync::Arc;

use super::device_allocation::{DeviceAllocation, trim_blocks};
use super::download::{Missed, take_all};
use super::error::BufferError;
use super::root::{Home, Root, State};
use crate::device::outcome::ExecutionError;
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared};
use crate::memory::MemoryExtension;
use crate::memory::heap::SharedHeap;
use crate::memory::migrate::Place;

use super::statistics::BufferMemory;

impl Root {
    /// Has the buffer that was not used for longest give up its memory at `place`; false if none could. Buffers that
    /// somebody works with at this moment are left alone, as are those of the same launch.
    pub(super) fn make_room(
        &self,
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> Result<bool, BufferError> {
        if trim_blocks(device) > 0 {
            return Ok(true);
        }
        let mut victims: Vec<(u64, Arc<Root>)> = Vec::new();
        for root in self.context().roots() {
            if root.id == self.id {
                continue;
            }
            let used_at = root.try_lock().and_then(|state| {
                // Memory of the host is not what the device lacks.
                let copy = state.copy(place).filter(|copy| !copy.is_common())?;
                Some(copy.used_at)
            });
            victims.extend(used_at.map(|used_at| (used_at, root)));
        }
        victims.sort_by_key(|(used_at, _)| *used_at);
        for (_, victim) in victims {
            if let Some(mut state) = victim.try_lock()
                && state.copy(place).is_some_and(|copy| !copy.is_common())
            {
                victim.evict(&mut state, place)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives up the memory at `place`, after what is nowhere else has come to the host. Waits for that.
    pub(super) fn evict(&self, state: &mut State, place: Place) -> Result<(), BufferError> {
        if state.copy(place).is_none() {
            return Ok(());
        }
        let eviction = state.residency.evictable(place, &self.context().routes());
        self.bring_down(state, &eviction.plan)?;
        self.commit(state, &eviction.plan)?;
        state
            .residency
            .evicted(place, 0..self.bytes)
            .map_err(|error| self.refusal(error))?;
        let is_common = state.copy(place).is_some_and(DeviceAllocation::is_common);
        if is_common {
            // What one has there the others have.
            for place in state.common_places() {
                state.take_copy(place);
                // Nothing was only there: it is no longer one memory with the others.
                state.residency.lost(place);
            }
            self.leave_common(state);
        } else if let Some(copy) = state.take_copy(place) {
            copy.give_up();
        }
        state.statistics.evictions += 1;
        self.context().count(|totals| totals.evictions += 1);
        Ok(())
    }

    /// Makes the copies of a plan that lead to the host's memory, and waits for them. Not yet in the books.
    pub(super) fn bring_down(
        &self,
        state: &mut State,
        plan: &crate::memory::migrate::Plan,
    ) -> Result<(), BufferError> {
        let mut under_way = Vec::new();
        for step in plan.steps.iter().filter(|step| step.to.is_host()) {
            if let Some((_, depends_on, pieces)) = state.export(step.from, &step.range)? {
                under_way.push((step.range.clone(), depends_on, pieces));
            }
        }
        for (range, depends_on, pieces) in under_way {
            let target = state.host_bytes("a copy to the host", self.bytes)?;
            take_all(pieces, 0, target).map_err(missed)?;
            state.host_taint.overwrite(&range);
            for outcome in &depends_on {
                state.host_taint.add(range.clone(), outcome);
            }
        }
        Ok(())
    }
}

/// Bytes that did not arrive although nobody was in a hurry.
pub(super) fn missed(why: Missed) -> BufferError {
    let error = match why {
        Missed::Failed(error) => error,
        Missed::Deadline => ExecutionError::Refused {
            message: "a copy to the host did not arrive".to_owned(),
        },
    };
    BufferError::Execution(Arc::new(error))
}

impl State {
    /// Where the buffer lies in the heap, if it lives there and was used before.
    pub(super) fn in_heap(&self) -> Option<(&SharedHeap, crate::memory::Ptr<u8>)> {
        match &self.home {
            Home::Heap {
                heap: Some(heap),
                ptr,
                ..
            } if !ptr.is_null() => Some((heap, *ptr)),
            _ => None,
        }
    }

    /// Whether it lives in the heap, used or not.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.home, Home::Heap { .. })
    }
}

impl Device {
    /// Gives up all memory that buffers of the context have on this device, after what is nowhere else has come to the
    /// host; waits for that. Buffers that somebody works with at this moment are left alone. Returns the bytes that were
    /// given up.
    ///
    /// # Errors
    /// The first failure of a buffer, which stays as it was; the others are given up all the same.
    pub fn trim_buffers(&self) -> Result<u64, BufferError> {
        let context = self.shared.buffers_extension.get::<super::ContextBuffers>();
        let place = context.place_of(&self.shared)?;
        let before = self.buffer_memory().used;
        let mut failed = None;
        for root in context.roots() {
            let Some(mut state) = root.try_lock() else {
                continue;
            };
            state.notice_losses();
            if let Err(error) = root.evict(&mut state, place) {
                failed.get_or_insert(error);
            }
        }
        trim_blocks(&self.shared);
        match failed {
            Some(error) => Err(error),
            None => Ok(before.saturating_sub(self.buffer_memory().used)),
        }
    }

    /// Gives the device back the blocks of memory in which no buffer has anything; buffers stay where they are. Returns
    /// the bytes of the blocks. It happens by itself when there is no room for a buffer.
    pub fn trim_buffer_blocks(&self) -> u64 {
        trim_blocks(&self.shared)
    }

    /// The memory that buffers of the context ([`Buffer`](crate::Buffer)) have on this device.
    pub fn buffer_memory(&self) -> BufferMemory {
        let memory = *lock(
            &self
                .shared
                .memory_extension
                .get::<MemoryExtension>()
                .buffers,
        );
        let blocks = lock(&self.shared.memory_extension.get::<MemoryExtension>().blocks).figures();
        BufferMemory {
            blocks: blocks.blocks,
            block_bytes: blocks.bytes,
            block_used: blocks.used,
            largest_free: blocks.largest_free,
            cap: self.shared.options.buffer_bytes,
            ..memory
        }
    }
}

impl State {
    /// A part as a device sees it where the buffer has memory.
    pub(super) fn view_on(
        &self,
        device: &Arc<DeviceShared>,
        place: Place,
        part: &super::residency_guard::PartView,
    ) -> Result<crate::memory::BufferView, BufferError> {
        if let Some((heap, ptr)) = self.in_heap() {
            let mut view = (heap.shared).argument(device, ptr.byte_add(part.offset), part.bytes)?;
            (view.element_bytes, view.element) = (part.element_bytes, part.element);
            return Ok(view);
        }
        let Some(copy) = self.copy(place) else {
            // Never: whoever asks has had the memory made under the same lock.
            return Err(BufferError::NoRoom {
                device: device.capabilities.name.clone(),
                bytes: part.bytes,
                used: 0,
                cap: None,
            });
        };
        Ok(crate::memory::BufferView {
            shared: Arc::clone(&copy.shared),
            offset: copy.base + part.offset,
            bytes: part.bytes,
            element_bytes: part.element_bytes,
            element: part.element,
            address: 0,
            out_of_range: None,
            padded: part.is_last(),
        })
    }
}
