//! Read-backs: the device's bytes on their way to the host, without anybody having to wait.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytemuck::Pod;
use smallvec::SmallVec;

use super::MemoryError;
use super::buffer::{DeviceBuffer, bounds};
use super::host_memory::{self, Destination};
use super::pinned::direct;
use super::places::check_words;
use super::staging::{self, AWAIT_READ, Band, Coming, Far, Missing, Piece, Rows};
use super::staging::{check_submitted, pump, receive};
use super::texture::TextureShared;
use crate::clock::Instant;
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::wait::lock;
use crate::device::{DeviceShared, Event};
use crate::error_text::debug_by_text;
use crate::span::span;

/// Why there are no values.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The read was refused before it was recorded.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The launch that wrote the values failed, or the device was lost on the way.
    #[error(transparent)]
    Execution(#[from] Arc<ExecutionError>),
    /// The deadline passed first; the read-back goes on.
    #[error("the deadline passed before the values arrived; they are still on their way")]
    Deadline,
    /// The values were taken before.
    #[error("the values of this read-back were taken before")]
    Taken,
}

debug_by_text!(ReadError {
    Memory,
    Execution,
    Deadline,
    Taken,
});

/// Values on their way to the host: wait, poll, or `.await`.
///
/// The read-back is submitted when it is made. The values arrive once; dropping the read-back drops
/// them.
#[must_use = "a read-back that nobody asks for its values was a copy for nothing"]
pub struct ReadBack<T> {
    state: Mutex<State>,
    /// The devices that the bytes come from, which settle the writers. None where the host had all of them.
    devices: SmallVec<[Arc<DeviceShared>; 1]>,
    /// Launches of uncertain outcome among the writers of the read bytes.
    depends_on: Vec<Arc<Outcome>>,
    /// How the values lie in the bytes that are coming, where they are texels.
    rows: Option<Rows>,
    element: PhantomData<fn() -> T>,
}

/// Where the values are.
enum State {
    /// In parts, one behind the other.
    Coming(Arc<[Part]>),
    Taken,
}

/// Some of the bytes, without gaps behind those before.
pub(super) enum Part {
    Coming(Arc<DeviceShared>, Coming),
    /// They were here from the beginning.
    Here(Vec<u8>),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Coming(_, coming) => coming.len(),
            Self::Here(bytes) => bytes.len(),
        }
    }

    /// What is on its way, with the device that it comes from.
    fn coming(&self) -> Option<(&Arc<DeviceShared>, &Coming)> {
        match self {
            Self::Coming(device, coming) => Some((device, coming)),
            Self::Here(_) => None,
        }
    }
}

/// The name of a read-back.
const WHAT: &str = "read";

impl<T: Pod> DeviceBuffer<T> {
    /// Reads the whole buffer; waits until everything recorded before is done.
    ///
    /// # Errors
    /// [`ReadError::Execution`] with the failure of the launch that should have written the values; with
    /// [`ExecutionError::InHandler`] in a function of the host that serves a call of the device;
    /// [`MemoryError::HostMemory`].
    pub fn read(&self) -> Result<Vec<T>, ReadError> {
        self.read_range(..)
    }

    /// Reads a range of elements; waits until everything recorded before is done.
    ///
    /// # Errors
    /// As [`DeviceBuffer::read`], and [`MemoryError::OutOfRange`].
    pub fn read_range(&self, range: impl RangeBounds<u64>) -> Result<Vec<T>, ReadError> {
        self.may_wait()?;
        let range = bounds(range, self.len);
        let bytes = self.readable(&range)?;
        let _span = span!("read", bytes = bytes.end - bytes.start);
        let count = (range.end - range.start) as usize;
        host_memory::filled(WHAT, count, |to| match receive::is_large(&bytes) {
            true => match direct::receive(&self.shared, WHAT, &bytes, to)? {
                Some(to) => receive::receive(&self.shared, WHAT, bytes, to),
                None => Ok(()),
            },
            false => self.read_small(bytes, to),
        })
    }

    /// Reads elements from element `start` on into `values`, as many as these are; waits until everything recorded before
    /// is done. Faster than [`DeviceBuffer::read_range`] where the memory is used again and again: new memory is given
    /// pages by the system while it is filled; fastest into a [`PinnedVec`](crate::buffers::PinnedVec), to which the device
    /// copies directly.
    ///
    /// # Errors
    /// As [`DeviceBuffer::read_range`]. `values` may have changed then.
    pub fn read_into(&self, start: u64, values: &mut [T]) -> Result<(), ReadError> {
        self.may_wait()?;
        let bytes = self.readable(&(start..start.saturating_add(values.len() as u64)))?;
        let _span = span!("read", bytes = bytes.end - bytes.start);
        host_memory::overwritten(WHAT, bytemuck::cast_slice_mut(values), |to| {
            let Some(to) = direct::receive(&self.shared, WHAT, &bytes, to)? else {
                return Ok(());
            };
            match receive::is_large(&bytes) {
                true => receive::receive(&self.shared, WHAT, bytes, to),
                false => self.read_small(bytes, to),
            }
        })
    }

    /// Reads bytes that are no more than go through one staging buffer.
    fn read_small(&self, bytes: Range<u64>, to: Destination<'_>) -> Result<(), ReadError> {
        #[cfg(embedded)]
        let Some(to) = super::at_once::read(&self.shared, &bytes, to) else {
            return Ok(());
        };
        self.begin(bytes)?.wait_for_bytes(to)
    }

    /// Refuses a wait on a thread that serves a call of the device, before anything is submitted: some drivers block a
    /// submission while a kernel runs.
    pub(super) fn may_wait(&self) -> Result<(), ReadError> {
        let submissions = &self.shared.device.submissions;
        Ok(submissions.may_wait(WHAT, AWAIT_READ).map_err(Arc::new)?)
    }

    /// Starts reading a range of elements and returns at once.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::OutOfMemory`] where there is no room for staging memory;
    /// [`MemoryError::Execution`] when the device is gone or refused the batch. For imported buffers
    /// [`MemoryError::MissingUsage`] without `COPY_SRC`, and [`MemoryError::Misaligned`] where the buffer ends inside the
    /// last word of the range.
    pub fn read_back(&self, range: impl RangeBounds<u64>) -> Result<ReadBack<T>, MemoryError> {
        let bytes = self.readable(&bounds(range, self.len))?;
        self.begin(bytes)
    }

    /// Where elements lie that can be read.
    fn readable(&self, range: &Range<u64>) -> Result<Range<u64>, MemoryError> {
        let bytes = self.byte_range(WHAT, range.start, range.end.saturating_sub(range.start))?;
        if !bytes.is_empty() {
            self.needs(WHAT, wgpu::BufferUsages::COPY_SRC)?;
            // Whole words are copied; what surrounds the range is cut off on the host.
            check_words(WHAT, &bytes, self.shared.raw.size())?;
        }
        Ok(bytes)
    }

    fn begin(&self, bytes: Range<u64>) -> Result<ReadBack<T>, MemoryError> {
        let device = &self.shared.device;
        if bytes.is_empty() {
            return Ok(ReadBack::ready(Vec::new()));
        }
        let piece = Piece { bytes };
        let (buffer, words, range) = (self.shared.raw.clone(), piece.words(), piece.bytes.clone());
        ReadBack::begin(device, &Far::Words { buffer, words }, piece, || {
            self.shared.depends_on(&range)
        })
    }
}

impl<T> ReadBack<T> {
    /// The texels of a band, on their way.
    ///
    /// # Errors
    /// As [`DeviceBuffer::read_back`].
    pub(super) fn of_texels(texture: &TextureShared, band: Band) -> Result<Self, MemoryError> {
        let bytes = 0..band.rows.spread();
        let far = Far::Texels {
            texture: texture.raw.clone(),
            band,
        };
        Self::begin(&texture.device, &far, Piece { bytes }, || {
            texture.depends_on()
        })
    }

    /// Submits the copy of `piece`; `depends_on` are the outcomes under the bytes, asked for with the queue in hand.
    fn begin(
        device: &Arc<DeviceShared>,
        far: &Far,
        piece: Piece,
        depends_on: impl FnOnce() -> Vec<Arc<Outcome>>,
    ) -> Result<Self, MemoryError> {
        let memory = staging::download(device, WHAT, far.staged())?;
        device.complete_dependencies(None);
        let mut queue = device.queue.lock(device);
        queue.encode(|encoder| far.fetch(encoder, memory.buffer()));
        // With the queue in hand, so nobody else's launch comes between.
        let depends_on = depends_on();
        let batch = queue.batch();
        queue.flush()?;
        drop(queue);
        check_submitted("a read", &batch)?;
        let coming = Coming::begin(&device.raw, batch, memory, piece);
        let part = Part::Coming(Arc::clone(device), coming);
        let read_back = Self::of_parts(vec![part], depends_on);
        Ok(Self {
            rows: far.rows(),
            ..read_back
        })
    }

    /// Values that are here already.
    pub(crate) fn ready(bytes: Vec<u8>) -> Self {
        Self::of_parts(vec![Part::Here(bytes)], Vec::new())
    }

    /// Values whose bytes are those of all parts, of which `depends_on` are the writers of unknown outcome.
    pub(super) fn of_parts(parts: Vec<Part>, depends_on: Vec<Arc<Outcome>>) -> Self {
        let mut devices: SmallVec<[Arc<DeviceShared>; 1]> = SmallVec::new();
        for (device, _) in parts.iter().filter_map(Part::coming) {
            if !devices.iter().any(|known| Arc::ptr_eq(known, device)) {
                devices.push(Arc::clone(device));
            }
        }
        Self {
            state: Mutex::new(State::Coming(parts.into())),
            devices,
            depends_on,
            rows: None,
            element: PhantomData,
        }
    }

    /// With further writers of unknown outcome.
    pub(super) fn behind(mut self, outcomes: Vec<Arc<Outcome>>) -> Self {
        self.depends_on.extend(outcomes);
        self
    }

    /// The same bytes as values of another type, of which they have to be a whole number.
    pub(crate) fn cast<U>(self) -> ReadBack<U> {
        ReadBack {
            state: self.state,
            devices: self.devices,
            depends_on: self.depends_on,
            rows: self.rows,
            element: PhantomData,
        }
    }
}

impl<T: Pod> ReadBack<T> {
    /// Waits for the values.
    ///
    /// # Errors
    /// [`ReadError::Execution`] with the failure of the writing launch.
    pub fn wait(self) -> Result<Vec<T>, ReadError> {
        self.take(None)
    }

    /// Waits for the values at most `timeout`.
    ///
    /// # Errors
    /// [`ReadError::Deadline`] for values still on their way; ask again later.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Vec<T>, ReadError> {
        self.take(Some(timeout))
    }

    /// The values, if they have arrived; never blocks.
    ///
    /// # Errors
    /// As [`ReadBack::wait`].
    pub fn try_take(&self) -> Result<Option<Vec<T>>, ReadError> {
        match self.take(Some(Duration::ZERO)) {
            Ok(values) => Ok(Some(values)),
            Err(ReadError::Deadline) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take(&self, timeout: Option<Duration>) -> Result<Vec<T>, ReadError> {
        self.arrive(timeout)?;
        self.open()
    }

    /// Waits for all of the bytes, at most `timeout`.
    pub(super) fn arrive(&self, timeout: Option<Duration>) -> Result<(), ReadError> {
        let Some(parts) = self.parts() else {
            return Ok(());
        };
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        for (device, coming) in parts.iter().filter_map(Part::coming) {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let arrived = coming.arrive(&device.submissions, left);
            arrived.map_err(|missing| missed(device, missing))?;
        }
        Ok(())
    }

    fn parts(&self) -> Option<Arc<[Part]>> {
        match &*lock(&self.state) {
            State::Coming(parts) => Some(Arc::clone(parts)),
            State::Taken => None,
        }
    }

    /// The values, out of what has arrived.
    fn open(&self) -> Result<Vec<T>, ReadError> {
        let State::Coming(parts) = self.take_state() else {
            return Err(ReadError::Taken);
        };
        let all = || parts.iter().map(Part::len).sum();
        let bytes = self.rows.map_or_else(all, |rows| rows.joined() as usize);
        let len = bytes / size_of::<T>().max(1);
        let values = host_memory::filled(WHAT, len, |to| read_all(&parts, self.rows, to))?;
        self.settle()?;
        Ok(values)
    }

    /// Whether what the writers have to say is known, as far as this thread may not wait for that.
    fn is_settled(&self) -> bool {
        let mut devices = self.devices.iter();
        if self.depends_on.is_empty() || !devices.any(|device| device.submissions.never_blocks()) {
            return true;
        }
        self.devices.iter().for_each(|device| device.settle());
        self.depends_on.iter().all(|outcome| {
            outcome.resolve();
            outcome.is_settled()
        })
    }

    /// Waits for what the writers have to say, which have ended.
    fn settle(&self) -> Result<(), ReadError> {
        settle_by(
            self.devices.iter().map(|device| &**device),
            &self.depends_on,
        )
    }

    /// Waits for the values, of which the bytes go to `to`.
    pub(super) fn wait_for_bytes(self, to: Destination<'_>) -> Result<(), ReadError> {
        self.arrive(None)?;
        let State::Coming(parts) = self.take_state() else {
            return Err(ReadError::Taken);
        };
        read_all(&parts, self.rows, to)?;
        self.settle()
    }

    fn take_state(&self) -> State {
        std::mem::replace(&mut *lock(&self.state), State::Taken)
    }
}

/// Why bytes did not come. Raises the flag of a device that is found to be lost, so that others are asked next.
fn missed(device: &DeviceShared, missing: Missing) -> ReadError {
    let is_loss = matches!(missing, Missing::Lost(_) | Missing::Refused(_));
    if is_loss && !device.lost.is_raised() && !device.submissions.answers() {
        device.lost.raise("it was destroyed, or answers no more");
    }
    match device.lost.get().filter(|_| is_loss) {
        Some(reason) => Missing::Lost(reason).into(),
        None => missing.into(),
    }
}

fn read_all(parts: &[Part], rows: Option<Rows>, mut to: Destination<'_>) -> Result<(), ReadError> {
    for part in parts {
        let here = match rows {
            // The rows are the part's, and the destination theirs.
            Some(_) => to.split_off(usize::MAX),
            None => to.split_off(part.len()),
        };
        match part {
            Part::Coming(device, coming) => {
                let read = coming.read(|bytes| match rows {
                    Some(rows) => rows.join(bytes, here),
                    None => pump::copy(bytes, here),
                });
                read.map_err(|missing| missed(device, missing))?;
            }
            Part::Here(bytes) => here.put(bytes),
        }
    }
    Ok(())
}

/// Waits for what launches have to say that have ended.
///
/// # Errors
/// The first failure.
pub(super) fn settle_all(
    device: &DeviceShared,
    outcomes: &[Arc<Outcome>],
) -> Result<(), ReadError> {
    settle_by([device].into_iter(), outcomes)
}

/// As [`settle_all`], for launches of several devices.
fn settle_by<'d>(
    devices: impl Iterator<Item = &'d DeviceShared>,
    outcomes: &[Arc<Outcome>],
) -> Result<(), ReadError> {
    if outcomes.is_empty() {
        return Ok(());
    }
    devices.for_each(DeviceShared::settle);
    outcomes.iter().for_each(|outcome| outcome.resolve());
    match outcomes.iter().find_map(|outcome| outcome.failure()) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

impl<T: Pod> ReadBack<T> {
    /// Whether the values can be taken without a wait. Wakes the task when they may be.
    pub(super) fn poll_bytes(&self, context: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        let parts = self.parts();
        let coming = || parts.iter().flat_map(|parts| parts.iter());
        for (device, coming) in coming().filter_map(Part::coming) {
            // A thread that polls futures there waits with the thread that the kernel waits for.
            let submissions = &device.submissions;
            let may = submissions.may_submit_behind(coming.batch(), WHAT);
            if let Err(error) = may {
                return Poll::Ready(Err(Arc::new(error).into()));
            }
            // Before the look: a callback in between wakes.
            coming.wake(context.waker());
            match coming.arrive(submissions, Some(Duration::ZERO)) {
                Ok(()) => {}
                Err(Missing::Deadline) => {
                    (device.waiter).wake_after(submissions, coming.batch(), context.waker());
                    return Poll::Pending;
                }
                Err(missing) => return Poll::Ready(Err(missed(device, missing))),
            }
        }
        if !self.is_settled() {
            // Status records of the writers are on their way, which were mapped before these bytes.
            if let Some((device, coming)) = coming().filter_map(Part::coming).last() {
                let submissions = &device.submissions;
                (device.waiter).wake_after(submissions, coming.batch(), context.waker());
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The end of the device's last copy; `None` for what the host had.
    pub(super) fn event(&self) -> Option<Event> {
        let parts = self.parts()?;
        let (device, coming) = parts.iter().filter_map(Part::coming).last()?;
        Some(Event::of_batch(device, Arc::clone(coming.batch())))
    }
}

impl<T: Pod> Future for ReadBack<T> {
    type Output = Result<Vec<T>, ReadError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_bytes(context)
            .map(|there| there.and_then(|()| self.open()))
    }
}

impl<T> std::fmt::Debug for ReadBack<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadBack")
            .field("taken", &matches!(*lock(&self.state), State::Taken))
            .finish_non_exhaustive()
    }
}
