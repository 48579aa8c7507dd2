//! Memory on devices, made on first use.

use std::sync::Arc;

use super::device_allocation::{BINDABLE, DeviceAllocation, Reservation};
use super::error::BufferError;
use super::root::{Home, Root, State};
use crate::device::DeviceShared;
use crate::device::wait::lock;
use crate::memory::MemoryError;
use crate::memory::migrate::Place;

/// A root that has left this many blocks gets memory of its own.
const MOST_DEPARTURES: u8 = 2;

impl Root {
    /// Has memory for the buffer at `place`, on `device`, outside of the blocks of `avoid`. Other buffers may be
    /// evicted; no contents are lost.
    pub(super) fn settle_in(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
        avoid: &[u64],
    ) -> Result<(), BufferError> {
        if self.settle_in_heap(state)? {
            // All devices and the host see the same bytes there.
            if !state.residency.memory_of(place).contains(Place::HOST) {
                state.residency.share(Place::HOST, place);
            }
            return Ok(());
        }
        if state.copy(place).is_none() && self.settle_in_common(state, device, place) {
            return Ok(());
        }
        let Some(old) = state.copy(place) else {
            let mut copy = self.have_memory(state.departures, device, avoid)?;
            if copy.is_used() {
                copy.clear(self.context().tick());
            }
            state.put_copy(place, copy);
            return Ok(());
        };
        if !old.block().is_some_and(|block| avoid.contains(&block)) {
            return Ok(());
        }
        let departures = state.departures.saturating_add(1);
        let mut copy = self.have_memory(departures, device, avoid)?;
        state.departures = departures;
        if let Some(old) = state.take_copy(place) {
            copy.take_over(&old, self.context().tick());
        }
        state.put_copy(place, copy);
        state.statistics.relocations += 1;
        self.context().count(|totals| totals.relocations += 1);
        Ok(())
    }

    /// Memory of `device` for the whole buffer, outside of the blocks of `avoid`.
    fn have_memory(
        &self,
        departures: u8,
        device: &Arc<DeviceShared>,
        avoid: &[u64],
    ) -> Result<DeviceAllocation, BufferError> {
        let size = self.bytes.next_multiple_of(4).max(4);
        let cap = device.options.buffer_bytes;
        loop {
            if departures < MOST_DEPARTURES
                && let Some(carved) = DeviceAllocation::carved(device, size, avoid)
            {
                return Ok(carved);
            }
            let room = &device.extensions.memory;
            let (used, cap) = match Reservation::new(room, size, cap) {
                Ok(reserved) => match DeviceAllocation::alone(device, reserved) {
                    Ok(alone) => return Ok(alone),
                    // Imports of the host's memory take room with some drivers.
                    Err(MemoryError::OutOfMemory { .. })
                        if self.context().exchange.trim(device) > 0 =>
                    {
                        continue;
                    }
                    Err(MemoryError::OutOfMemory { .. }) => (lock(&room.buffers).reserved, None),
                    Err(error) => return Err(error.into()),
                },
                Err(used) => (used, cap),
            };
            if !self.make_room(device)? {
                return Err(BufferError::NoRoom {
                    device: device.capabilities.name.clone(),
                    bytes: self.bytes,
                    used,
                    cap,
                });
            }
        }
    }

    /// Has memory allocated in the heap, if the buffer lives there.
    pub(super) fn settle_in_heap(&self, state: &mut State) -> Result<bool, BufferError> {
        let Home::Heap { heap, ptr, owned } = &mut state.home else {
            return Ok(false);
        };
        if ptr.is_null() && *owned {
            let found = self.heap()?;
            // Filled with the allocation, which waits for no launch.
            let bytes = state.host.as_ref().map_or(&[][..], |host| host.bytes());
            let made = found.alloc_filled(self.bytes.max(1), BINDABLE, bytes)?;
            (*ptr, *heap) = (made, Some(found));
            state.host = None;
        }
        Ok(true)
    }
}
