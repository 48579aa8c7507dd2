//! Eviction: buffers give up memory on devices, to make room or on request.
//!
//! A device has no room when a cap on the bytes of buffers is reached, or the driver refuses. Then the least recently
//! used root gives up its memory, after bytes with no other copy have come to the host. Roots of the same launch are
//! locked, and so left alone; if no root can be evicted, the launch is refused, and all contents are unchanged.

use std::ops::Range;
use std::sync::Arc;

use super::device_allocation::{DeviceAllocation, trim_blocks};
use super::download::{Arriving, Missed};
use super::error::BufferError;
use super::root::{Home, Root, State};
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared};
use crate::memory::heap::SharedHeap;
use crate::memory::migrate::{Place, Step};

use super::statistics::BufferMemory;

/// The name of a copy to the buffer's memory on the host.
const WHAT: &str = "a copy to the host";

impl Root {
    /// Evicts the least recently used buffer with memory on the device; false if there is none. Locked buffers, as are
    /// those of the same launch, are left alone.
    pub(super) fn make_room(&self, device: &Arc<DeviceShared>) -> Result<bool, BufferError> {
        if trim_blocks(device) > 0 {
            return Ok(true);
        }
        let mut victims: Vec<(u64, Arc<Root>)> = Vec::new();
        for root in self.context().roots() {
            if root.id == self.id {
                continue;
            }
            let used_at = root
                .try_lock()
                .and_then(|state| Some(state.own_memory(device)?.1.used_at));
            victims.extend(used_at.map(|used_at| (used_at, root)));
        }
        victims.sort_by_key(|(used_at, _)| *used_at);
        for (_, victim) in victims {
            if let Some(mut state) = victim.try_lock()
                && let Some((place, _)) = state.own_memory(device)
            {
                victim.evict(&mut state, place)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives up the memory at `place`, after bytes with no other copy have come to the host; waits for the bytes.
    pub(super) fn evict(&self, state: &mut State, place: Place) -> Result<(), BufferError> {
        if state.copy(place).is_none() {
            return Ok(());
        }
        let eviction = state.residency.evictable(place, &state.routes);
        self.bring_down(state, &eviction.plan)?;
        self.commit(state, &eviction.plan)?;
        state
            .residency
            .evicted(place, 0..self.bytes)
            .map_err(|error| state.refusal(error))?;
        let is_common = state.copy(place).is_some_and(DeviceAllocation::is_common);
        if is_common {
            // All members have the same bytes.
            for place in state.common_places() {
                state.take_copy(place);
                // The bytes are elsewhere, too: this only separates the place from the common memory.
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

    /// Makes the copies of a plan to the host's memory, and waits for the bytes. The caller commits the plan.
    pub(super) fn bring_down(
        &self,
        state: &mut State,
        plan: &crate::memory::migrate::Plan,
    ) -> Result<(), BufferError> {
        let mut steps: Vec<&Step> = plan.steps.iter().filter(|s| s.to.is_host()).collect();
        if steps.is_empty() {
            return Ok(());
        }
        // Each byte comes from one place, so the steps are disjoint.
        steps.sort_by_key(|step| step.range.start);
        state.host_bytes(WHAT, self.bytes)?;
        // Out of the books while the bytes come, which are the latest nowhere on the host before.
        let mut host = state.host.take();
        let bytes = host.as_mut().map_or(&mut [][..], |host| host.bytes_mut());
        let brought = bring_all(state, &steps, bytes);
        state.host = host;
        for (range, outcomes) in brought? {
            state.host_taint.overwrite(&range);
            for outcome in &outcomes {
                state.host_taint.add(range.clone(), outcome);
            }
        }
        Ok(())
    }
}

/// A range that has come to the host, and the outcomes on which it depends.
type Brought = (Range<u64>, Vec<Arc<Outcome>>);

/// Copies what steps in rising order bring to `bytes` of the host, the whole buffer's, and waits. Returns the outcomes of each
/// range.
fn bring_all(
    state: &mut State,
    steps: &[&Step],
    bytes: &mut [u8],
) -> Result<Vec<Brought>, BufferError> {
    let (mut arriving, mut brought) = (Arriving::default(), Vec::new());
    let (mut rest, mut at) = (bytes, 0);
    for step in steps {
        let range = &step.range;
        let (_, behind) = rest.split_at_mut((range.start - at) as usize);
        let (part, behind) = behind.split_at_mut((range.end - range.start) as usize);
        (rest, at) = (behind, range.end);
        let exported = state.export_to(step.from, range, part, true, &mut arriving)?;
        brought.extend(exported.map(|exported| (range.clone(), exported.outcomes)));
    }
    arriving.arrive().map_err(missed)?;
    Ok(brought)
}

/// The error for bytes that did not arrive, in a wait without a deadline.
pub(super) fn missed(why: Missed) -> BufferError {
    let error = match why {
        Missed::Failed(error) | Missed::InHandler(error) => error,
        Missed::Deadline => ExecutionError::Refused {
            message: "a copy to the host did not arrive".to_owned(),
        },
    };
    BufferError::Execution(Arc::new(error))
}

impl State {
    /// The buffer's memory on the device, and its place there, unless it is common: that takes host memory.
    fn own_memory(&self, device: &Arc<DeviceShared>) -> Option<(Place, &DeviceAllocation)> {
        let place = self.devices.place_of(device)?;
        let copy = self.copy(place).filter(|copy| !copy.is_common())?;
        Some((place, copy))
    }

    /// Refuses, before any submission, a transfer from the device at `place` on a thread that serves a call of the device.
    pub(super) fn may_submit_at(
        &self,
        place: Place,
        what: &'static str,
    ) -> Result<(), BufferError> {
        let Some(copy) = self.copy(place) else {
            return Ok(());
        };
        let submissions = &copy.shared.device.submissions;
        Ok(submissions.may_submit(what).map_err(Arc::new)?)
    }

    /// The buffer's address in the heap, if the buffer lives there and was used before.
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

    /// Whether the buffer lives in the heap, used or not.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.home, Home::Heap { .. })
    }
}

impl Device {
    /// Gives up all memory of the context's buffers on this device; waits for bytes with no other copy to come to the
    /// host. Buffers in use by another thread at this moment are left alone. Returns the bytes given up on the device. As
    /// [`Device::trim_buffer_blocks`], this gives back idle exchange memory.
    ///
    /// # Errors
    /// The first failure of a buffer, which keeps its memory; the others are evicted all the same.
    pub fn trim_buffers(&self) -> Result<u64, BufferError> {
        let context = &self.shared.context.buffers;
        let before = self.buffer_memory().used;
        let mut failed = None;
        for root in context.roots() {
            let Some(mut state) = root.try_lock() else {
                continue;
            };
            state.notice_losses();
            let Some(place) = state.devices.place_of(&self.shared) else {
                continue;
            };
            if let Err(error) = root.evict(&mut state, place) {
                failed.get_or_insert(error);
            }
        }
        self.trim_buffer_blocks();
        match failed {
            Some(error) => Err(error),
            None => Ok(before.saturating_sub(self.buffer_memory().used)),
        }
    }

    /// Gives empty blocks of buffer memory back to the device; no buffer moves. Returns the bytes of the blocks. Also
    /// done by the runtime when there is no room for a buffer.
    ///
    /// Memory of the host goes back to the system that this device, or no open device, has imported for transfers between
    /// devices, as far as nobody uses it ([`Context::exchange_memory`](crate::Context::exchange_memory)). Pages that wgpu has
    /// not let go of yet go back with a later call.
    pub fn trim_buffer_blocks(&self) -> u64 {
        self.shared.context.buffers.exchange.trim(&self.shared);
        trim_blocks(&self.shared)
    }

    /// The memory of the context's buffers ([`Buffer`](crate::Buffer)) on this device.
    pub fn buffer_memory(&self) -> BufferMemory {
        let memory = *lock(&self.shared.extensions.memory.buffers);
        let blocks = lock(&self.shared.extensions.memory.blocks).figures();
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
    /// A part as a binding on a device with memory for the buffer.
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
            // Unreachable: callers have had the memory made under the same lock.
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
