//! Read-backs: the device's bytes on their way to the host, without anybody having to wait.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytemuck::Pod;

use super::buffer::{DeviceBuffer, MemoryError, bounds};
use super::places::check_words;
use super::{host_memory, staging};
use crate::device::DeviceShared;
use crate::device::mapping::{Mapped, Mapping};
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::submissions::{Batch, Progress};
use crate::device::wait::lock;

/// Why there are no values.
#[derive(Debug, Clone, thiserror::Error)]
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
    element: PhantomData<fn() -> T>,
}

/// Where the values are.
enum State {
    Coming(Arc<Coming>),
    /// They were here from the beginning.
    Here(Result<Bytes, MemoryError>),
    Taken,
}

/// Values in memory that the device fills.
struct Coming {
    batch: Arc<Batch>,
    mapping: Mapping,
    /// Given back, unmapped, when the values were taken, or are unwanted.
    _staging: Staging,
    /// What was copied there.
    words: Range<u64>,
    /// The requested bytes, in the buffer of their origin.
    bytes: Range<u64>,
}

/// Memory of a device's pool.
struct Staging {
    buffer: wgpu::Buffer,
    owner: Weak<DeviceShared>,
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(device) = self.owner.upgrade() {
            staging::of(&device).give_download(self.buffer.clone());
        }
    }
}

/// Bytes on the host, in whole words: most values have the alignment of those, and need not be copied once more.
struct Bytes {
    words: Vec<u32>,
    /// The requested ones.
    wanted: Range<usize>,
}

impl Bytes {
    /// Those of `range`, out of whole words.
    fn of(view: &[u8], wanted: Range<usize>) -> Result<Self, MemoryError> {
        let words = match bytemuck::try_cast_slice::<u8, u32>(view) {
            Ok(words) => host_memory::copied(WHAT, words)?,
            Err(_) => host_memory::values_of(WHAT, view)?,
        };
        Ok(Self { words, wanted })
    }

    fn into_values<T: Pod>(self) -> Result<Vec<T>, MemoryError> {
        let Self { words, wanted } = self;
        let words = match wanted == (0..words.len() * 4) {
            true => match bytemuck::allocation::try_cast_vec(words) {
                Ok(values) => return Ok(values),
                Err((_, words)) => words,
            },
            false => words,
        };
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        host_memory::values_of(WHAT, &bytes[wanted])
    }
}

/// The name of a read-back.
const WHAT: &str = "read";

impl<T: Pod> DeviceBuffer<T> {
    /// Reads the whole buffer; waits until everything recorded before is done.
    ///
    /// # Errors
    /// [`ReadError::Execution`] with the failure of the launch that should have written the values.
    pub fn read(&self) -> Result<Vec<T>, ReadError> {
        self.read_back(..)?.wait()
    }

    /// Reads a range of elements; waits until everything recorded before is done.
    ///
    /// # Errors
    /// As [`DeviceBuffer::read`], and [`MemoryError::OutOfRange`].
    pub fn read_range(&self, range: impl RangeBounds<u64>) -> Result<Vec<T>, ReadError> {
        self.read_back(range)?.wait()
    }

    /// Starts reading a range of elements and returns at once.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::OutOfMemory`] where there is no room for staging memory;
    /// [`MemoryError::Execution`] when the device is gone or refused the batch. For imported buffers
    /// [`MemoryError::MissingUsage`] without `COPY_SRC`, and [`MemoryError::Misaligned`] where the buffer ends inside the
    /// last word of the range.
    pub fn read_back(&self, range: impl RangeBounds<u64>) -> Result<ReadBack<T>, MemoryError> {
        let range = bounds(range, self.len);
        let bytes = self.byte_range(WHAT, range.start, range.end.saturating_sub(range.start))?;
        let device = Arc::clone(&self.shared.device);
        let begun = |state, depends_on| ReadBack {
            device: Arc::clone(&device),
            state: Mutex::new(state),
            depends_on,
            element: PhantomData,
        };
        if bytes.is_empty() {
            return Ok(begun(State::Here(Bytes::of(&[], 0..0)), Vec::new()));
        }
        self.needs(WHAT, wgpu::BufferUsages::COPY_SRC)?;
        // Whole words are copied; what surrounds the range is cut off on the host.
        check_words(WHAT, &bytes, self.shared.raw.size())?;
        let (first, last) = (bytes.start / 4 * 4, bytes.end.next_multiple_of(4));
        let buffer = staging::of(&device).download(&device, WHAT, last - first)?;
        let staging = Staging {
            buffer: buffer.clone(),
            owner: Arc::downgrade(&device),
        };
        device.complete_dependencies(None);
        let (batch, depends_on) = {
            let mut queue = device.queue.lock(&device);
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(&self.shared.raw, first, &buffer, 0, last - first);
            });
            // With the queue in hand, so nobody else's launch comes between.
            let depends_on = self.shared.depends_on(&bytes);
            let batch = queue.batch();
            queue.flush()?;
            (batch, depends_on)
        };
        match batch.submission() {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(Arc::clone(error).into()),
            None => return Err(Arc::new(ExecutionError::InCallback { what: "a read" }).into()),
        }
        let coming = Coming {
            batch,
            mapping: Mapping::begin(&device.raw, &buffer, 0..last - first),
            _staging: staging,
            words: first..last,
            bytes,
        };
        Ok(begun(State::Coming(Arc::new(coming)), depends_on))
    }
}

impl<T> ReadBack<T> {
    /// Values that are here already.
    pub(crate) fn ready(device: &Arc<DeviceShared>, bytes: Vec<u8>) -> Self {
        let wanted = 0..bytes.len();
        Self {
            device: Arc::clone(device),
            state: Mutex::new(State::Here(Bytes::of(&bytes, wanted))),
            depends_on: Vec::new(),
            element: PhantomData,
        }
    }

    /// The same bytes as values of another type, of which they have to be a whole number.
    pub(crate) fn cast<U>(self) -> ReadBack<U> {
        ReadBack {
            device: self.device,
            state: self.state,
            depends_on: self.depends_on,
            element: PhantomData,
        }
    }
}

impl Coming {
    /// Waits until the values can be read, for at most `timeout`.
    fn arrive(&self, device: &DeviceShared, timeout: Option<Duration>) -> Result<(), ReadError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let submissions = &device.submissions;
        let lost = |reason| Err(Arc::new(ExecutionError::DeviceLost { reason }).into());
        match submissions.wait(&self.batch, timeout) {
            Progress::Done => {}
            Progress::Pending => return Err(ReadError::Deadline),
            Progress::Lost(reason) => return lost(reason),
        }
        match self.mapping.wait(submissions, deadline) {
            Mapped::Ready => Ok(()),
            Mapped::Pending => Err(ReadError::Deadline),
            Mapped::Failed(message) => match device.lost.get() {
                Some(reason) => lost(reason),
                None => Err(mapping_refused(message)),
            },
        }
    }

    fn read(&self) -> Result<Bytes, ReadError> {
        let (skip, len) = (
            self.bytes.start - self.words.start,
            self.bytes.end - self.bytes.start,
        );
        let wanted = skip as usize..(skip + len) as usize;
        let read = self.mapping.take(|bytes| Bytes::of(bytes, wanted));
        Ok(read.map_err(mapping_refused)??)
    }
}

fn mapping_refused(message: String) -> ReadError {
    let what = "mapping a read-back";
    MemoryError::Refused { what, message }.into()
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
            coming.arrive(&self.device, timeout)?;
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
        let taken = std::mem::replace(&mut *lock(&self.state), State::Taken);
        let bytes = match taken {
            State::Coming(coming) => coming.read()?,
            State::Here(bytes) => bytes?,
            State::Taken => return Err(ReadError::Taken),
        };
        if !self.depends_on.is_empty() {
            self.device.settle();
            self.depends_on.iter().for_each(|outcome| outcome.resolve());
            if let Some(error) = self.depends_on.iter().find_map(|o| o.failure()) {
                return Err(error.into());
            }
        }
        Ok(bytes.into_values()?)
    }
}

impl<T: Pod> Future for ReadBack<T> {
    type Output = Result<Vec<T>, ReadError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(coming) = self.coming() {
            // Before the look: a callback in between wakes.
            coming.mapping.wake(context.waker());
            match coming.arrive(&self.device, Some(Duration::ZERO)) {
                Ok(()) => {}
                Err(ReadError::Deadline) => {
                    let device = &self.device;
                    let waker = context.waker();
                    (device.waiter).wake_after(&device.submissions, &coming.batch, waker);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
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
