//! Read-backs of buffers: reads that are enqueued, and whose bytes are waited for later.
//!
//! # How it works
//! 1. With the buffer locked, the host's own bytes are copied, and copies out of the devices that have the rest are
//!    submitted ([`State::export`]). So the values are those of this moment, whatever is enqueued later.
//! 2. The pieces become the parts of a [`ReadBack`], which waits for each of them on the device that it comes from.
//! 3. A buffer in the heap is copied by a device that has used it, into memory of that device, and read back from there.
//!
//! A device that is lost before the copies are submitted is left out: others may have the bytes. A later loss is the
//! read-back's own error, since a second plan would bring later values.

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

use super::Buffer;
use super::common::await_all;
use super::error::BufferError;
use super::root::{HostBytes, Locked, Root, State};
use crate::device::DeviceShared;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::host_memory;
use crate::memory::migrate::{Access, Place, Step, Want};
use crate::memory::readback::{Part, ReadBack};
use crate::span::span;

/// The name of a read-back.
const WHAT: &str = "read";

impl<T: Pod> Buffer<T> {
    /// Starts reading a range of elements and returns at once: the values are those after everything enqueued before, and
    /// any number of read-backs may be on their way. Nothing enqueued later changes the values.
    ///
    /// Where the buffer is in the heap and other devices are writing the range, this waits for them, as every command of the
    /// host does there.
    ///
    /// ```
    /// # use tombolo::{Context, buffers::ReadBack};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = Context::new()?;
    /// let values = context.buffer_from_vec((0..1000u32).collect())?;
    /// values.prefetch(&context.device()?)?;
    /// let parts: Vec<_> = (0..10).map(|i| values.read_back(i * 100..i * 100 + 100)).collect();
    /// values.fill(7, ..)?;
    /// for (i, part) in (0..).zip(parts) {
    ///     let part: ReadBack<u32> = part?;
    ///     assert_eq!(part.wait()?[0], i * 100); // or `part.await?`
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`], [`BufferError::Mapped`], [`BufferError::Lost`]; [`BufferError::Memory`] where there is no
    /// room for staging memory, or for the host's bytes; [`BufferError::Heap`] for a buffer in the heap. The read-back itself
    /// fails with [`ReadError::Execution`](crate::buffers::ReadError::Execution) where a launch that wrote the values has
    /// failed, or a device was lost on the way: others may have the bytes, so read again.
    pub fn read_back(&self, range: impl RangeBounds<u64>) -> Result<ReadBack<T>, BufferError> {
        let range = self.byte_range(WHAT, range)?;
        let _span = span!("read", bytes = range.end - range.start);
        Ok(self.root.read_back(range)?.cast())
    }
}

impl Root {
    fn read_back(&self, range: Range<u64>) -> Result<ReadBack<u8>, BufferError> {
        if range.is_empty() {
            return Ok(ReadBack::ready(Vec::new()));
        }
        loop {
            let mut state = self.enter(WHAT)?;
            state.check_maps(WHAT, &range, false, None)?;
            state.notice_losses();
            if state.is_shared() {
                return self.heap_read_back(state, range);
            }
            match self.begin_read_back(&mut state, &range) {
                Err(_) if state.suspect_losses() => {}
                begun => return begun,
            }
        }
    }

    /// Copies the host's bytes, and has devices copy the rest.
    fn begin_read_back(
        &self,
        state: &mut State,
        range: &Range<u64>,
    ) -> Result<ReadBack<u8>, BufferError> {
        let want = Want {
            place: Place::HOST,
            range: range.clone(),
            access: Access::Read,
        };
        let plan = state.residency.plan(&[want], &state.routes);
        let plan = plan.map_err(|error| state.refusal(error))?;
        let mut outcomes = state.host_depends_on(range);
        // Each byte comes from one place, so the steps are disjoint.
        let mut steps: Vec<&Step> = plan.steps.iter().collect();
        steps.sort_by_key(|step| step.range.start);
        let (mut parts, mut at) = (Vec::new(), range.start);
        for step in steps {
            parts.extend(here(state.host.as_deref(), at..step.range.start)?);
            at = step.range.end;
            match state.export(step.from, &step.range)? {
                Some((shared, depends_on, pieces)) => {
                    outcomes.extend(depends_on);
                    let device = &shared.device;
                    let coming = pieces.into_iter().map(|piece| piece.into_coming());
                    parts.extend(coming.map(|coming| Part::Coming(Arc::clone(device), coming)));
                }
                None => parts.extend(here(None, step.range.clone())?),
            }
        }
        parts.extend(here(state.host.as_deref(), at..range.end)?);
        self.commit(state, &plan)?;
        for step in &plan.steps {
            // The bytes come to the program, and not to the buffer's own memory of the host.
            let dropped = state.residency.evicted(Place::HOST, step.range.clone());
            dropped.map_err(|error| state.refusal(error))?;
        }
        Ok(ReadBack::of_parts(parts, outcomes))
    }

    /// Has a device copy the bytes out of the heap. The buffer is unlocked during waits for the heap, since holders of the
    /// heap may ask for the buffer.
    fn heap_read_back(
        &self,
        mut state: Locked<'_>,
        range: Range<u64>,
    ) -> Result<ReadBack<u8>, BufferError> {
        let bytes = range.end - range.start;
        // The address is fixed while the buffer lives.
        let Some((heap, ptr)) = (state.in_heap()).map(|(heap, ptr)| (heap.clone(), ptr)) else {
            // Before the first use: the initial values, or zeros.
            let parts = here(state.host.as_deref(), range)?.into_iter().collect();
            return Ok(ReadBack::of_parts(parts, Vec::new()));
        };
        let mut outcomes = state.host_taint.touching(&range);
        let at = ptr.byte_add(range.start);
        let Some((place, device)) = state.user_of_heap() else {
            // No device has used the buffer; kernels may have, through pointers.
            drop(state);
            let host = heap.host()?;
            let values = host_memory::copied(WHAT, host.slice(at, bytes as usize)?)?;
            return Ok(ReadBack::of_parts(vec![Part::Here(values)], outcomes));
        };
        let others = state.before(&device, place, &range, Access::Read);
        drop(state);
        await_all(others)?;
        let copied = DeviceBuffer::<u8>::allocate(&device, bytes)?;
        let event = copied.copy_from_heap(0, at, bytes)?;
        let coming = copied.read_back(..)?;
        let mut state = self.lock();
        if let Some(batch) = event.batch() {
            // A seat may have been given to another device meanwhile.
            if state.devices.place_of(&device) == Some(place) {
                state.begin(&device, place, &range, Access::Read, batch, true);
            }
        }
        outcomes.extend(state.host_taint.touching(&range));
        Ok(coming.behind(outcomes))
    }
}

/// A copy of the host's bytes of a range, which may be empty; zeros for bytes never written.
fn here(host: Option<&dyn HostBytes>, range: Range<u64>) -> Result<Option<Part>, BufferError> {
    let range = range.start as usize..range.end as usize;
    if range.is_empty() {
        return Ok(None);
    }
    let bytes = match host {
        Some(host) => host_memory::copied(WHAT, &host.bytes()[range])?,
        None => host_memory::zeroed(WHAT, range.len())?,
    };
    Ok(Some(Part::Here(bytes)))
}

impl State {
    /// A device that has used the buffer in the heap.
    fn user_of_heap(&self) -> Option<(Place, Arc<DeviceShared>)> {
        let users = self.devices.iter();
        let mut open = users.filter_map(|(place, device)| Some((place, device.upgrade()?)));
        open.find(|(_, device)| !device.lost.is_raised())
    }
}
