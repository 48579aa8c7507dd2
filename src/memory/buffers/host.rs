//! The host's side of buffers: writing, filling, and telling them where to be; reading is in [`super::read`].

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

use super::error::BufferError;
use super::residency_guard::{PartView, ResidencyGuard, Use, roots};
use super::root::{Root, State};
use super::{Buffer, ContextBuffers};
use crate::device::queue::Batch;
use crate::device::wait::Waits;
use crate::device::{Device, DeviceShared, Event};
use crate::memory::fill::fill_bytes;
use crate::memory::host_memory;
use crate::memory::migrate::{Access, Place, Want};
use crate::memory::places::copy;
use crate::span::span;

impl<T: Pod> Buffer<T> {
    /// Reads the whole buffer, or this part; waits for all writes to the bytes.
    ///
    /// # Errors
    /// [`BufferError::Execution`] with the failure of the launch that should have written the values;
    /// [`BufferError::Lost`]; [`BufferError::Mapped`] if the bytes are mapped for writing; [`BufferError::Memory`]
    /// without host memory for the values. For a buffer in the heap [`BufferError::Heap`], with
    /// [`HeapError::HostAccess`](crate::heap::HeapError::HostAccess) if this thread has a
    /// [`HostAccess`](crate::heap::HostAccess).
    pub fn read(&self) -> Result<Vec<T>, BufferError> {
        self.read_range(..)
    }

    /// Reads a range of elements; waits for all writes to the range.
    ///
    /// # Errors
    /// As [`Buffer::read`], and [`BufferError::OutOfRange`].
    pub fn read_range(&self, range: impl RangeBounds<u64>) -> Result<Vec<T>, BufferError> {
        const WHAT: &str = "read";
        let range = self.byte_range(WHAT, range)?;
        let count = (range.end - range.start) as usize / size_of::<T>();
        let mut values = host_memory::zeroed(WHAT, count)?;
        self.root
            .read_into(WHAT, range, bytemuck::cast_slice_mut(&mut values), None)?;
        Ok(values)
    }

    /// Reads elements from element `start` on into `values`, as many as these are; waits for all writes to them.
    ///
    /// # Errors
    /// As [`Buffer::read_range`]. `values` may have changed then.
    pub fn read_into(&self, start: u64, values: &mut [T]) -> Result<(), BufferError> {
        const WHAT: &str = "read";
        let range = self.byte_range(WHAT, start..start.saturating_add(values.len() as u64))?;
        let bytes = bytemuck::cast_slice_mut(values);
        self.root.read_into(WHAT, range, bytes, None)
    }

    /// Reads the whole buffer, or this part, after all writes to the bytes and without blocking: in a browser there is no other
    /// form. What is written while the future is pending may be among the values or not.
    ///
    /// ```no_run
    /// # async fn page(values: tombolo::Buffer<u32>) -> Result<(), tombolo::Error> {
    /// println!("{:?}", values.read_async().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Buffer::read`]; for a buffer in the heap [`BufferError::Execution`] with
    /// [`ExecutionError::WouldBlock`](crate::device::ExecutionError::WouldBlock) where threads never wait: read it through
    /// [`SharedHeap::host_async`](crate::SharedHeap::host_async).
    pub async fn read_async(&self) -> Result<Vec<T>, BufferError> {
        const WHAT: &str = "read";
        let range = self.byte_range(WHAT, ..)?;
        let count = (range.end - range.start) as usize / size_of::<T>();
        let mut values = host_memory::zeroed(WHAT, count)?;
        let bytes = bytemuck::cast_slice_mut(&mut values);
        let waits = |device: &Arc<DeviceShared>| Waits::Awaits(Some(Arc::clone(device)));
        (self.root)
            .read_into_by(WHAT, range, bytes, None, (waits, false))
            .await?;
        Ok(values)
    }

    /// Writes `values` from element `start` on. The values are taken at once, into the buffer's memory of the host: commands
    /// enqueued before read the old values, and commands enqueued later the new ones. The event is complete.
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`], [`BufferError::Mapped`]; [`BufferError::Memory`] without host memory for the
    /// buffer. For a buffer in the heap, after a wait for its launches, [`BufferError::Heap`], as [`Buffer::read`].
    pub fn write(&self, start: u64, values: &[T]) -> Result<Event, BufferError> {
        const WHAT: &str = "write";
        let range = self.byte_range(WHAT, start..start.saturating_add(values.len() as u64))?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let all = 0..bytes.len();
        (self.root).change(WHAT, &range, None, [all].into_iter(), |to, _| {
            to.copy_from_slice(bytes);
        })?;
        Ok(Event::of_host())
    }

    /// Sets a range of elements to `value`, on a device with memory for the buffer, or else on the host. Works for
    /// every element size and alignment. The event is the device's, or complete where the host has made the fill.
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`], [`BufferError::Mapped`]; [`BufferError::Memory`] when the device refuses, or
    /// without host memory for the buffer. For a buffer in the heap, after a wait for its launches,
    /// [`BufferError::Heap`], as [`Buffer::read`].
    pub fn fill(&self, value: T, range: impl RangeBounds<u64>) -> Result<Event, BufferError> {
        const WHAT: &str = "fill";
        let range = self.byte_range(WHAT, range)?;
        let _span = span!("fill", bytes = range.end - range.start);
        if range.is_empty() {
            return Ok(Event::of_host());
        }
        let mut state = self.root.enter(WHAT)?;
        state.check_maps(WHAT, &range, true, None)?;
        state.notice_losses();
        state.forget_ended();
        let pattern = bytemuck::bytes_of(&value);
        let places = state.places();
        let most = |place: &&Place| state.copy(**place).map_or(0, |copy| copy.used_at);
        let Some(place) = places.iter().max_by_key(most).copied() else {
            drop(state);
            let all = 0..(range.end - range.start) as usize;
            (self.root).change(WHAT, &range, None, [all].into_iter(), |to, _| {
                host_memory::repeat(to, pattern);
            })?;
            return Ok(Event::of_host());
        };
        state.after_others(place, &range, Access::Overwrite)?;
        let Some(copy) = state.copy(place) else {
            return Ok(Event::of_host());
        };
        let (shared, at) = (Arc::clone(&copy.shared), copy.at(&range));
        let device = &shared.device;
        let mut queue = device.queue.lock(device);
        fill_bytes(&mut queue, device, &shared.raw, pattern, &at)?;
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        state.wrote_on_device(self.root.context(), device, place, range, &batch);
        Ok(Event::of_batch(device, batch))
    }

    /// Copies this part to `to`, a part of as many elements: on the device with the last use of this buffer, or else, and
    /// where that device has no room for both, on the host. The old bytes of `to` are not moved. Two parts of one buffer must
    /// have no bytes in common. The event is the device's; where the host copies, after a wait for the bytes of this part, it is
    /// complete.
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`] if the lengths differ; [`BufferError::Overlap`]; as [`Buffer::prefetch`] for both, but for
    /// a lack of room, or as [`Buffer::read`] and [`Buffer::write`] where the host copies; [`BufferError::Mapped`].
    pub fn copy_to(&self, to: &Buffer<T>) -> Result<Event, BufferError> {
        const WHAT: &str = "copy";
        if self.len != to.len {
            return Err(BufferError::OutOfRange {
                what: WHAT,
                start: 0,
                end: self.len,
                len: to.len,
            });
        }
        let (from, target) = (self.part(), to.part());
        let (source, goal) = (from.range(), target.range());
        let _span = span!("copy", bytes = source.end - source.start);
        let same = Arc::ptr_eq(&self.root, &to.root);
        if same && source.start < goal.end && goal.start < source.end {
            return Err(BufferError::Overlap {
                from: source,
                to: goal,
            });
        }
        let place = {
            let state = self.root.enter(WHAT)?;
            let used = |place: &Place| state.copy(*place).map_or(0, |copy| copy.used_at);
            let last = state.places().into_iter().max_by_key(used);
            last.and_then(|place| Some(Arc::clone(&state.copy(place)?.shared.device)))
        };
        let copied = match place {
            Some(device) if !from.is_shared() && !target.is_shared() => {
                copy_on(&device, WHAT, from, target)
            }
            _ => return to.write(0, &self.read()?),
        };
        match copied {
            // The device was nobody's choice, so that no room there is nobody's error.
            Err(BufferError::NoRoom { .. }) => to.write(0, &self.read()?),
            other => other,
        }
    }

    /// Brings the latest bytes of the buffer or part to `device`; other places keep their copies. Bytes already there
    /// do not move. Launches do the same; bytes asked for early travel while the devices do other work.
    ///
    /// # Errors
    /// [`BufferError::NoRoom`], [`BufferError::Lost`], [`BufferError::OtherContext`]; [`BufferError::Mapped`] if the
    /// bytes are mapped for writing.
    pub fn prefetch(&self, device: &Device) -> Result<Event, BufferError> {
        let mut state = self.root.enter("prefetch")?;
        self.bring_to(&mut state, device)
    }

    /// Brings the latest bytes of the buffer or part to `device`, as [`Buffer::prefetch`] does, and gives up the whole
    /// buffer's memory everywhere else, except memory with the only latest copy of some bytes.
    ///
    /// # Errors
    /// As [`Buffer::prefetch`].
    pub fn migrate(&self, device: &Device) -> Result<Event, BufferError> {
        let mut state = self.root.enter("migrate")?;
        let event = self.bring_to(&mut state, device)?;
        let here = self.root.place_on(&mut state, &device.shared)?;
        for place in state.places() {
            let eviction = state.residency.evictable(place, &state.routes);
            if place != here
                && !state.residency.memory_of(here).contains(place)
                && eviction.plan.steps.is_empty()
            {
                self.root.evict(&mut state, place)?;
            }
        }
        let host = state.residency.evicted(Place::HOST, 0..self.root.bytes);
        if host.is_ok() && !state.is_shared() {
            state.host = None;
        }
        Ok(event)
    }

    /// Has memory made on `device` without contents: this part is undefined afterwards, and nothing is copied.
    ///
    /// # Errors
    /// As [`Buffer::prefetch`].
    pub fn migrate_undefined(&self, device: &Device) -> Result<(), BufferError> {
        self.root.check_device(&device.shared)?;
        self.discard()?;
        let mut state = self.root.enter("migrate")?;
        let place = self.root.place_on(&mut state, &device.shared)?;
        self.root.settle_in(&mut state, &device.shared, place, &[])
    }

    /// Discards the contents of this part: undefined until the next write, and not copied. Failures of launches that
    /// wrote the part are forgotten.
    ///
    /// # Errors
    /// [`BufferError::Mapped`].
    pub fn discard(&self) -> Result<(), BufferError> {
        let range = self.bytes();
        let mut state = self.root.enter("discard")?;
        state.check_maps("discard", &range, true, None)?;
        let discarded = state.residency.discard(range.clone());
        discarded.map_err(|error| state.refusal(error))?;
        state.overwritten_everywhere(&range);
        Ok(())
    }

    /// Accepts the contents after a failed launch, whatever the bytes are: reading no longer yields the error. Does
    /// nothing in a callback of wgpu run by a command on this buffer.
    pub fn clear_error(&self) {
        let range = self.bytes();
        if let Some(mut state) = self.root.look() {
            state.overwritten_everywhere(&range);
        }
    }

    /// Gives up the memory of the whole buffer on `device`; bytes with no other latest copy come to the host first.
    ///
    /// # Errors
    /// [`BufferError::OtherContext`], and failures of the device.
    pub fn evict(&self, device: &Device) -> Result<(), BufferError> {
        self.root.check_device(&device.shared)?;
        let mut state = self.root.enter("evict")?;
        state.notice_losses();
        match state.devices.place_of(&device.shared) {
            Some(place) => self.root.evict(&mut state, place),
            None => Ok(()),
        }
    }

    fn bring_to(&self, state: &mut State, device: &Device) -> Result<Event, BufferError> {
        let device = &device.shared;
        let root = &self.root;
        root.check_device(device)?;
        device.lost.check().map_err(Arc::new)?;
        let range = self.bytes();
        state.check_maps("a move", &range, false, None)?;
        state.notice_losses();
        state.forget_ended();
        let place = root.place_on(state, device)?;
        root.settle_in(state, device, place, &[])?;
        let want = Want {
            place,
            range,
            access: Access::Read,
        };
        root.bring(state, &[want], device, place)?;
        // Bytes asked for earlier may still be on their way.
        let batch = state.copy(place).and_then(|copy| copy.last.clone());
        Ok(match batch {
            Some(batch) => Event::of_batch(device, batch),
            None => Event::complete(device),
        })
    }
}

impl Root {
    /// Changes `parts` of `range` on the host, by offsets from the range's start: `change` gets the bytes and the
    /// offsets of each part, and the bytes are the latest from then on. In the heap the host waits for its turn with
    /// nothing locked: holders of the heap may ask for the buffer meanwhile.
    ///
    /// # Errors
    /// [`BufferError::Mapped`], unless by the mapping `own`; [`BufferError::Heap`], [`BufferError::Memory`]. Nothing
    /// has changed then.
    pub(super) fn change(
        &self,
        what: &'static str,
        range: &Range<u64>,
        own: Option<u64>,
        parts: impl Iterator<Item = Range<usize>>,
        mut change: impl FnMut(&mut [u8], Range<usize>),
    ) -> Result<(), BufferError> {
        let _span = span!("write", bytes = range.end - range.start);
        if range.is_empty() {
            return Ok(());
        }
        let mut state = self.enter(what)?;
        state.check_maps(what, range, true, own)?;
        let mut access = None;
        if self.settle_in_heap(&mut state)? {
            let place = (state.in_heap()).map(|(heap, ptr)| (heap.clone(), ptr));
            if let Some((heap, ptr)) = place {
                // The address is fixed while the buffer lives.
                drop(state);
                access = Some((heap.host()?, ptr.byte_add(range.start)));
                state = self.lock();
                state.check_maps(what, range, true, own)?;
            }
        }
        let bytes = match &mut access {
            Some((host, at)) => host.slice_mut(*at, (range.end - range.start) as usize)?,
            None => {
                let bytes = state.host_bytes(what, self.bytes)?;
                &mut bytes[range.start as usize..range.end as usize]
            }
        };
        let mut changed = Vec::new();
        for part in parts {
            change(&mut bytes[part.clone()], part.clone());
            changed.push(range.start + part.start as u64..range.start + part.end as u64);
        }
        for range in changed {
            state.host_taint.overwrite(&range);
            let wrote = state.residency.wrote(Place::HOST, range);
            wrote.map_err(|error| state.refusal(error))?;
        }
        Ok(())
    }
}

impl State {
    /// A command of the runtime has written on a device.
    fn wrote_on_device(
        &mut self,
        context: &ContextBuffers,
        device: &Arc<DeviceShared>,
        place: Place,
        range: Range<u64>,
        batch: &Arc<Batch>,
    ) {
        // Cannot fail: parts are within the buffer.
        let _ = self.residency.wrote(place, range.clone());
        let now = context.tick();
        if let Some(copy) = self.copy_mut(place) {
            copy.overwritten(&range);
            copy.used(batch, Some(range.clone()), now);
        }
        self.begin(device, place, &range, Access::Overwrite, batch, false);
    }

    /// Clears the failures of a range in all places.
    fn overwritten_everywhere(&mut self, range: &Range<u64>) {
        self.host_taint.overwrite(range);
        for place in self.places() {
            if let Some(copy) = self.copy(place) {
                copy.overwritten(range);
            }
        }
    }
}

/// Copies one part to another on a device.
fn copy_on(
    device: &Arc<DeviceShared>,
    what: &'static str,
    from: PartView,
    to: PartView,
) -> Result<Event, BufferError> {
    let roots = roots([&from, &to].into_iter());
    let mut residency = ResidencyGuard::begin(device, &device.context.buffers, &roots)?;
    let uses = [(from, Access::Read), (to, Access::Overwrite)].map(|(part, access)| Use {
        part,
        access,
        argument: what.to_owned(),
    });
    residency.bring(&uses).map_err(|(_, error)| error)?;
    let [source, target] = &uses;
    let at = residency.view(&source.part)?.place();
    let goal = residency.view(&target.part)?.place();
    let inherits = residency.depends_on(&source.part);
    let mut queue = device.queue.lock(device);
    copy(&mut queue, device, &at, &goal, source.part.bytes)?;
    let batch = queue.batch();
    queue.commit();
    drop(queue);
    residency.recorded(&uses, &batch, None);
    residency.poison(&target.part, &inherits);
    Ok(Event::of_batch(device, batch))
}
