//! Read-backs: the device's bytes on their way to the host, without anybody having to wait.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytemuck::Pod;

use super::buffer::{DeviceBuffer, MemoryError, bounds};
use super::places::check_words;
use super::{host_memory, staging};
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::wait::{Progress, lock, wait_for};
use crate::device::{DeviceShared, capture};

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

/// Values on their way to the host: wait for them, poll for them, or `.await` them.
///
/// The read-back is submitted when it is made. The values arrive once; dropping the read-back drops
/// them.
#[must_use = "a read-back that nobody asks for its values was a copy for nothing"]
pub struct ReadBack<T> {
    device: Arc<DeviceShared>,
    index: Option<wgpu::SubmissionIndex>,
    arrival: Arc<Arrival>,
    /// What is mapped; `None` where the values were here from the beginning.
    mapped: Option<Mapped>,
    /// Launches of uncertain outcome that wrote what is read.
    depends_on: Vec<Arc<Outcome>>,
    element: PhantomData<fn() -> T>,
}

/// Memory with the bytes in it, once it is mapped.
#[derive(Clone)]
struct Mapped {
    staging: wgpu::Buffer,
    /// What was copied there.
    words: Range<u64>,
    /// What was asked for, in the buffer that it came from.
    bytes: Range<u64>,
    owner: Weak<DeviceShared>,
}

/// Bytes on the host, in whole words: most values have the alignment of those, and need not be copied once more.
struct Bytes {
    words: Vec<u32>,
    /// Those that were asked for.
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

impl Mapped {
    /// The bytes; the memory is given back.
    fn collect(self) -> Result<Bytes, MemoryError> {
        let Range { start, end } = self.words;
        let (skip, len) = (self.bytes.start - start, self.bytes.end - self.bytes.start);
        let bytes = match self.staging.get_mapped_range(0..end - start) {
            Ok(view) => Bytes::of(&view, skip as usize..(skip + len) as usize),
            Err(error) => Err(unmapped(error.to_string())),
        };
        self.staging.unmap();
        if let Some(device) = self.owner.upgrade() {
            staging::of(&device).give_download(self.staging);
        }
        bytes
    }
}

#[derive(Default)]
struct Arrival {
    state: Mutex<ArrivalState>,
    arrived: Condvar,
}

#[derive(Default)]
struct ArrivalState {
    bytes: Option<Result<Bytes, MemoryError>>,
    taken: bool,
    waker: Option<Waker>,
}

impl Arrival {
    fn deliver(&self, bytes: Result<Bytes, MemoryError>) {
        let waker = {
            let mut state = lock(&self.state);
            state.bytes = Some(bytes);
            state.waker.take()
        };
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What a read-back calls itself.
const WHAT: &str = "read";

fn unmapped(message: String) -> MemoryError {
    MemoryError::Refused {
        what: "mapping a read-back",
        message,
    }
}

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
        let arrival = Arc::new(Arrival::default());
        let device = Arc::clone(&self.shared.device);
        let done = |index, mapped, depends_on| ReadBack {
            device: Arc::clone(&device),
            index,
            arrival: Arc::clone(&arrival),
            mapped,
            depends_on,
            element: PhantomData,
        };
        if bytes.is_empty() {
            arrival.deliver(Bytes::of(&[], 0..0));
            return Ok(done(None, None, Vec::new()));
        }
        self.needs(WHAT, wgpu::BufferUsages::COPY_SRC)?;
        // Whole words are copied; what surrounds the range is cut off on the host.
        check_words(WHAT, &bytes, self.shared.raw.size())?;
        let (first, last) = (bytes.start / 4 * 4, bytes.end.next_multiple_of(4));
        let staging = staging::of(&device).download(&device, WHAT, last - first)?;
        device.open_gates(None);
        let (batch, depends_on) = {
            let mut queue = device.queue.lock(&device);
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(&self.shared.raw, first, &staging, 0, last - first);
            });
            // With the queue in hand, so that nobody else's launch comes between.
            let depends_on = self.shared.depends_on(&bytes);
            let batch = queue.batch();
            queue.flush()?;
            (batch, depends_on)
        };
        let index = match batch.submission() {
            Some(Ok(index)) => index.clone(),
            Some(Err(error)) => return Err(Arc::clone(error).into()),
            None => {
                return Err(MemoryError::Refused {
                    what: WHAT,
                    message: "its batch was not submitted".into(),
                });
            }
        };
        let mapped = Mapped {
            staging: staging.clone(),
            words: first..last,
            bytes,
            owner: Arc::downgrade(&device),
        };
        let (collected, target) = (mapped.clone(), Arc::clone(&arrival));
        let ((), error) = capture(&device.raw, || {
            staging.map_async(wgpu::MapMode::Read, 0..last - first, move |result| {
                target.deliver(match result {
                    Ok(()) => collected.collect(),
                    Err(error) => Err(unmapped(error.to_string())),
                });
            });
        });
        if let Some(error) = error {
            return Err(MemoryError::Refused {
                what: WHAT,
                message: error.to_string(),
            });
        }
        // The callback has the only other one, so that it shows when it is gone.
        Ok(done(Some(index), Some(mapped), depends_on))
    }
}

impl<T> ReadBack<T> {
    /// Values that are here already.
    pub(crate) fn ready(device: &Arc<DeviceShared>, bytes: Vec<u8>) -> Self {
        let arrival = Arc::new(Arrival::default());
        arrival.deliver(Bytes::of(&bytes, 0..bytes.len()));
        Self {
            device: Arc::clone(device),
            index: None,
            arrival,
            mapped: None,
            depends_on: Vec::new(),
            element: PhantomData,
        }
    }

    /// The same bytes as values of another type, of which they have to be a whole number.
    pub(crate) fn cast<U>(self) -> ReadBack<U> {
        ReadBack {
            device: self.device,
            index: self.index,
            arrival: self.arrival,
            mapped: self.mapped,
            depends_on: self.depends_on,
            element: PhantomData,
        }
    }
}

impl<T: Pod> ReadBack<T> {
    /// Waits for the values.
    ///
    /// # Errors
    /// [`ReadError::Execution`] with the failure of the launch that should have written them.
    pub fn wait(self) -> Result<Vec<T>, ReadError> {
        self.take(None)
    }

    /// Waits for the values at most `timeout`.
    ///
    /// # Errors
    /// [`ReadError::Deadline`] when they are still on their way; ask again later.
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
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        if let Some(index) = &self.index {
            match wait_for(&self.device.raw, &self.device.lost, index, timeout) {
                Progress::Done => {}
                Progress::Pending => return Err(ReadError::Deadline),
                Progress::Lost(reason) => {
                    return Err(Arc::new(ExecutionError::DeviceLost { reason }).into());
                }
            }
        }
        // Another thread's poll may have collected the callback and not yet run it.
        let mut state = lock(&self.arrival.state);
        while state.bytes.is_none() {
            if state.taken {
                return Err(ReadError::Taken);
            }
            if let Some(bytes) = self.left_behind(&state) {
                state.bytes = Some(bytes);
                break;
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return Err(ReadError::Deadline);
            }
            let waited = self
                .arrival
                .arrived
                .wait_timeout(state, Duration::from_millis(1));
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
        let bytes = state.bytes.take();
        state.taken = true;
        drop(state);
        self.open(bytes)
    }

    /// The bytes for which no callback will come: wgpu drops those of a poll that another one has overtaken. Whether the
    /// memory is mapped shows when it is asked for.
    fn left_behind(&self, arrival: &ArrivalState) -> Option<Result<Bytes, MemoryError>> {
        // With the state in hand: a callback that is there cannot deliver now, and so is not gone either.
        let mapped = self.mapped.as_ref()?;
        (arrival.bytes.is_none() && Arc::strong_count(&self.arrival) == 1)
            .then(|| mapped.clone().collect())
    }

    fn open(&self, bytes: Option<Result<Bytes, MemoryError>>) -> Result<Vec<T>, ReadError> {
        if !self.depends_on.is_empty() {
            self.device.settle();
            self.depends_on.iter().for_each(|outcome| outcome.resolve());
            if let Some(error) = self.depends_on.iter().find_map(|o| o.failure()) {
                return Err(error.into());
            }
        }
        match bytes {
            Some(Ok(bytes)) => Ok(bytes.into_values()?),
            Some(Err(error)) => Err(error.into()),
            None => Err(ReadError::Taken),
        }
    }
}

impl<T: Pod> Future for ReadBack<T> {
    type Output = Result<Vec<T>, ReadError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut state = lock(&self.arrival.state);
            let left_behind = match state.taken {
                true => None,
                false => self.left_behind(&state),
            };
            if let Some(bytes) = state.bytes.take().or(left_behind) {
                state.taken = true;
                drop(state);
                return Poll::Ready(self.open(Some(bytes)));
            }
            if state.taken {
                return Poll::Ready(Err(ReadError::Taken));
            }
            state.waker = Some(context.waker().clone());
        }
        if let Some(reason) = self.device.lost.get() {
            return Poll::Ready(Err(Arc::new(ExecutionError::DeviceLost { reason }).into()));
        }
        if let Some(index) = &self.index {
            let device = &self.device;
            device.waiter.wake_after(
                &device.raw,
                &device.lost,
                index.clone(),
                context.waker().clone(),
            );
        }
        Poll::Pending
    }
}

impl<T> std::fmt::Debug for ReadBack<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadBack")
            .field("arrived", &lock(&self.arrival.state).bytes.is_some())
            .finish_non_exhaustive()
    }
}
