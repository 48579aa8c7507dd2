//! Read-backs: the device's bytes on their way to the host, without anybody having to wait.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytemuck::Pod;

use super::MemoryError;
use super::buffer::{DeviceBuffer, bounds};
use super::host_memory::{self, Destination};
use super::pinned::direct;
use super::places::check_words;
use super::staging::{self, AWAIT_READ, Band, Coming, Far, Missing, Piece, Rows};
use super::staging::{check_submitted, pump, receive};
use super::texture::TextureShared;
use crate::device::DeviceShared;
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::wait::lock;
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
    device: Arc<DeviceShared>,
    state: Mutex<State>,
    /// Launches of uncertain outcome among the writers of the read bytes.
    depends_on: Vec<Arc<Outcome>>,
    /// How the values lie in the bytes that are coming, where they are texels.
    rows: Option<Rows>,
    element: PhantomData<fn() -> T>,
}

/// Where the values are.
enum State {
    Coming(Arc<Coming>),
    /// They were here from the beginning.
    Here(Vec<u8>),
    Taken,
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
            return Ok(ReadBack::ready(device, Vec::new()));
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
        Ok(Self {
            device: Arc::clone(device),
            state: Mutex::new(State::Coming(Arc::new(coming))),
            depends_on,
            rows: far.rows(),
            element: PhantomData,
        })
    }

    /// Values that are here already.
    pub(crate) fn ready(device: &Arc<DeviceShared>, bytes: Vec<u8>) -> Self {
        Self {
            device: Arc::clone(device),
            state: Mutex::new(State::Here(bytes)),
            depends_on: Vec::new(),
            rows: None,
            element: PhantomData,
        }
    }

    /// The same bytes as values of another type, of which they have to be a whole number.
    pub(crate) fn cast<U>(self) -> ReadBack<U> {
        ReadBack {
            device: self.device,
            state: self.state,
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
        if let Some(coming) = self.coming() {
            coming.arrive(&self.device.submissions, timeout)?;
        }
        self.open()
    }

    fn coming(&self) -> Option<Arc<Coming>> {
        match &*lock(&self.state) {
            State::Coming(coming) => Some(Arc::clone(coming)),
            State::Here(_) | State::Taken => None,
        }
    }

    /// The values, out of what has arrived.
    fn open(&self) -> Result<Vec<T>, ReadError> {
        let taken = self.take_state();
        let values = match taken {
            State::Coming(coming) => {
                let bytes = self
                    .rows
                    .map_or(coming.len(), |rows| rows.joined() as usize);
                let len = bytes / size_of::<T>().max(1);
                host_memory::filled(WHAT, len, |to| read_all(&coming, self.rows, to))?
            }
            State::Here(bytes) => host_memory::values_of(WHAT, &bytes)?,
            State::Taken => return Err(ReadError::Taken),
        };
        settle_all(&self.device, &self.depends_on)?;
        Ok(values)
    }

    /// Whether what the writers have to say is known, as far as this thread may not wait for that.
    fn is_settled(&self) -> bool {
        if self.depends_on.is_empty() || !self.device.submissions.never_blocks() {
            return true;
        }
        self.device.settle();
        self.depends_on.iter().all(|outcome| {
            outcome.resolve();
            outcome.is_settled()
        })
    }

    /// Waits for the values, of which the bytes go to `to`.
    fn wait_for_bytes(self, to: Destination<'_>) -> Result<(), ReadError> {
        if let Some(coming) = self.coming() {
            coming.arrive(&self.device.submissions, None)?;
        }
        match self.take_state() {
            State::Coming(coming) => read_all(&coming, self.rows, to)?,
            State::Here(bytes) => to.put(&bytes),
            State::Taken => return Err(ReadError::Taken),
        }
        settle_all(&self.device, &self.depends_on)
    }

    fn take_state(&self) -> State {
        std::mem::replace(&mut *lock(&self.state), State::Taken)
    }
}

fn read_all(coming: &Coming, rows: Option<Rows>, to: Destination<'_>) -> Result<(), ReadError> {
    Ok(coming.read(|bytes| match rows {
        Some(rows) => rows.join(bytes, to),
        None => pump::copy(bytes, to),
    })?)
}

/// Waits for what launches have to say that have ended.
///
/// # Errors
/// The first failure.
pub(super) fn settle_all(
    device: &DeviceShared,
    outcomes: &[Arc<Outcome>],
) -> Result<(), ReadError> {
    if outcomes.is_empty() {
        return Ok(());
    }
    device.settle();
    outcomes.iter().for_each(|outcome| outcome.resolve());
    match outcomes.iter().find_map(|outcome| outcome.failure()) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

impl<T: Pod> Future for ReadBack<T> {
    type Output = Result<Vec<T>, ReadError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(coming) = self.coming() {
            // A thread that polls futures there waits with the thread that the kernel waits for.
            let submissions = &self.device.submissions;
            let may = submissions.may_submit_behind(coming.batch(), WHAT);
            if let Err(error) = may {
                return Poll::Ready(Err(Arc::new(error).into()));
            }
            // Before the look: a callback in between wakes.
            coming.wake(context.waker());
            match coming.arrive(submissions, Some(Duration::ZERO)) {
                Ok(()) => {}
                Err(Missing::Deadline) => {
                    let device = &self.device;
                    let waker = context.waker();
                    (device.waiter).wake_after(&device.submissions, coming.batch(), waker);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        if !self.is_settled() {
            // Status records of the writers are on their way, which were mapped before these bytes.
            if let Some(coming) = self.coming() {
                let device = &self.device;
                (device.waiter).wake_after(&device.submissions, coming.batch(), context.waker());
                return Poll::Pending;
            }
        }
        Poll::Ready(self.open())
    }
}

impl<T> std::fmt::Debug for ReadBack<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadBack")
            .field("taken", &matches!(*lock(&self.state), State::Taken))
            .finish_non_exhaustive()
    }
}
