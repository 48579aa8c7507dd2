//! Transfers that own a pinned vector, and so wait for nothing: the vector comes back with the end.
//!
//! # How it works
//! 1. The copy between the buffer and the device's import of the vector ([`imports::span`]) is recorded as any other
//!    command, and its batch is submitted. The command keeps the import, and the import the pages of the vector, whatever
//!    becomes of the vector and of the [`PinnedTransfer`].
//! 2. Nobody reaches the vector meanwhile: the transfer has it. The vector is the program's again once nothing of the
//!    batch runs any more (`Submissions::wait_over`), which a lost device may leave unknown; the vector is not given back
//!    then.
//! 3. Where a device has no import, or the bytes are no whole words, a write takes the bytes at once, and a read comes
//!    through staging memory ([`ReadBack`]). The vector comes back with the end of the same command.
//!
//! [`imports::span`]: super::imports::span

use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytemuck::Pod;

use super::PinnedVec;
use super::imports::{Span, span};
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::submissions::Batch;
use crate::device::{DeviceShared, Event, WaitError};
use crate::memory::buffer::{DeviceBuffer, bounds};
use crate::memory::places::{is_in_words, needed_of_target};
use crate::memory::readback::{ReadBack, ReadError, settle_all};
use crate::memory::{MemoryError, host_memory};
use crate::span::span as trace;

const WRITE: &str = "write of pinned memory";
const READ: &str = "read to pinned memory";

/// A transfer with the pinned vector that it is from or to: wait, poll, or `.await` the vector.
///
/// The transfer is submitted when it is made, and is made whether or not anybody waits: dropping this gives the vector up,
/// whose memory lasts until the device has done with it.
#[must_use = "the vector comes back from here; dropped, it is gone"]
pub struct PinnedTransfer<T: Pod> {
    /// `None` once the vector was taken.
    pending: Option<(PinnedVec<T>, Way)>,
    event: Event,
}

/// How the bytes go.
enum Way {
    /// By a copy of the device, with the writers of the bytes of a read.
    Direct(Arc<DeviceShared>, Vec<Arc<Outcome>>),
    /// Out of staging memory, which has the bytes; or there are none.
    Sent,
    /// Into staging memory, and from there to these bytes of the vector.
    Coming(ReadBack<u8>, Range<usize>),
}

/// Why a transfer of pinned memory was refused, or has failed, with the vector.
pub struct PinnedError<T: Pod> {
    /// What went wrong.
    pub error: ReadError,
    /// The vector, whose values of the range of a read may have changed. `None` where it was taken before, where the transfer
    /// goes on ([`ReadError::Deadline`], and waits that this thread is refused), and where it is unknown whether a lost
    /// device still has the memory.
    pub values: Option<PinnedVec<T>>,
}

impl<T: Pod> PinnedError<T> {
    fn new(error: impl Into<ReadError>, values: Option<PinnedVec<T>>) -> Self {
        let error = error.into();
        Self { error, values }
    }
}

impl<T: Pod> fmt::Display for PinnedError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: Pod> fmt::Debug for PinnedError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: Pod> std::error::Error for PinnedError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T: Pod> From<PinnedError<T>> for ReadError {
    fn from(error: PinnedError<T>) -> Self {
        error.error
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// Starts to write a range of `values` from element `start` on, after everything recorded before, and returns at once:
    /// the vector is given back with the end. On devices that import the vector ([`PinnedVec::import`]) the device copies
    /// from there; elsewhere, and for bytes that are no whole words, this is [`DeviceBuffer::write`].
    ///
    /// ```
    /// # use tombolo::{Context, buffers::PinnedTransfer};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = Context::new()?;
    /// let device = context.device()?;
    /// let buffer = device.zeroed::<u32>(1 << 16)?;
    /// // Two vectors in turn: one is filled while the device reads the other.
    /// let mut free = vec![context.pinned_vec::<u32>(1 << 16)?, context.pinned_vec(1 << 16)?];
    /// let mut flying: Vec<PinnedTransfer<u32>> = Vec::new();
    /// for round in 0..4 {
    ///     let mut values = match free.pop() {
    ///         Some(values) => values,
    ///         None => flying.remove(0).wait()?, // or `.await?`
    ///     };
    ///     values.fill(round);
    ///     flying.push(buffer.write_pinned(0, values, ..)?);
    ///     // A launch that works on the buffer comes here.
    /// }
    /// let values = flying.remove(1).wait()?;
    /// let values = buffer.read_pinned(0, values, 5..9)?.wait()?;
    /// assert_eq!(values[5..9], [3; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`DeviceBuffer::write`], and [`MemoryError::OutOfRange`] beyond the end of `values`; with the vector.
    pub fn write_pinned(
        &self,
        start: u64,
        values: PinnedVec<T>,
        range: impl RangeBounds<u64>,
    ) -> Result<PinnedTransfer<T>, PinnedError<T>> {
        match self.start_write(start, &values, bounds(range, values.len() as u64)) {
            Ok((event, way)) => Ok(PinnedTransfer::new(values, event, way)),
            Err(error) => Err(PinnedError::new(error, Some(values))),
        }
    }

    /// Starts to read elements from element `start` on into a range of `values`, after everything recorded before, and
    /// returns at once: the vector is given back with the end, and its other values are those from before. On devices that
    /// import the vector the device copies there; elsewhere, and for bytes that are no whole words, the bytes come through
    /// staging memory, and are copied by whoever takes the vector.
    ///
    /// # Errors
    /// As [`DeviceBuffer::read_back`], and [`MemoryError::OutOfRange`] beyond the end of `values`; with the vector. The transfer
    /// itself fails with [`ReadError::Execution`] as a [`ReadBack`] does.
    pub fn read_pinned(
        &self,
        start: u64,
        values: PinnedVec<T>,
        range: impl RangeBounds<u64>,
    ) -> Result<PinnedTransfer<T>, PinnedError<T>> {
        match self.start_read(start, &values, bounds(range, values.len() as u64)) {
            Ok((event, way)) => Ok(PinnedTransfer::new(values, event, way)),
            Err(error) => Err(PinnedError::new(error, Some(values))),
        }
    }

    fn start_write(
        &self,
        start: u64,
        values: &PinnedVec<T>,
        range: Range<u64>,
    ) -> Result<(Event, Way), MemoryError> {
        let part = part_of(WRITE, values, &range)?;
        let bytes = self.byte_range(WRITE, start, part.len() as u64)?;
        let _span = trace!("write", bytes = bytes.end - bytes.start);
        let device = &self.shared.device;
        if bytes.is_empty() {
            return Ok((Event::complete(device), Way::Sent));
        }
        let target = self.place(WRITE, &bytes)?;
        let found = is_in_words(&bytes, target.padded)
            .then(|| import_of(device, part))
            .flatten();
        let Some(source) = found else {
            let event = self.write(start, part)?;
            return Ok((event, Way::Sent));
        };
        let count = bytes.end - bytes.start;
        self.needs(WRITE, needed_of_target((0, true), &target, count))?;
        let way = Way::Direct(Arc::clone(device), Vec::new());
        device.lost.check().map_err(Arc::new)?;
        let record = |encoder: &mut wgpu::CommandEncoder| {
            for (pinned, part, at) in source.copies(bytes.clone()) {
                let count = part.end - part.start;
                encoder.copy_buffer_to_buffer(pinned, part.start, &self.shared.raw, at, count);
            }
        };
        let (event, ()) = command(device, record, || self.shared.overwritten(&bytes));
        source.count(device, count);
        Ok((event, way))
    }

    fn start_read(
        &self,
        start: u64,
        values: &PinnedVec<T>,
        range: Range<u64>,
    ) -> Result<(Event, Way), MemoryError> {
        let part = part_of(READ, values, &range)?;
        let bytes = self.byte_range(READ, start, part.len() as u64)?;
        let _span = trace!("read", bytes = bytes.end - bytes.start);
        let device = &self.shared.device;
        if bytes.is_empty() {
            return Ok((Event::complete(device), Way::Sent));
        }
        let found = (bytes.start.is_multiple_of(4))
            .then(|| import_of(device, part))
            .flatten();
        let Some(target) = found else {
            let read = self.read_back(start..start + part.len() as u64)?.cast();
            let element = size_of::<T>();
            let place = range.start as usize * element..range.end as usize * element;
            let event = read.event().unwrap_or_else(|| Event::complete(device));
            return Ok((event, Way::Coming(read, place)));
        };
        self.needs(READ, wgpu::BufferUsages::COPY_SRC)?;
        device.lost.check().map_err(Arc::new)?;
        let record = |encoder: &mut wgpu::CommandEncoder| {
            for (pinned, part, at) in target.copies(bytes.clone()) {
                let count = part.end - part.start;
                encoder.copy_buffer_to_buffer(&self.shared.raw, at, pinned, part.start, count);
            }
        };
        let (event, depends_on) = command(device, record, || self.shared.depends_on(&bytes));
        target.count(device, bytes.end - bytes.start);
        Ok((event, Way::Direct(Arc::clone(device), depends_on)))
    }
}

/// The values of a range of a vector.
fn part_of<'v, T: Pod>(
    what: &'static str,
    values: &'v PinnedVec<T>,
    range: &Range<u64>,
) -> Result<&'v [T], MemoryError> {
    let Range { start, end } = *range;
    let len = values.len() as u64;
    // Both fit: they are at most the length.
    let found = (start <= end && end <= len).then(|| &values[start as usize..end as usize]);
    found.ok_or(MemoryError::OutOfRange {
        what,
        start,
        end,
        len,
    })
}

/// The device's import of the memory around some values, if there is one and the values are whole words. Keeps the memory.
fn import_of<T: Pod>(device: &Arc<DeviceShared>, part: &[T]) -> Option<Span<'static>> {
    span(device, part.as_ptr().cast(), size_of_val(part))
}

/// Records a command, calls `noted` with the queue in hand, and has the command submitted.
fn command<R>(
    device: &Arc<DeviceShared>,
    record: impl FnOnce(&mut wgpu::CommandEncoder),
    noted: impl FnOnce() -> R,
) -> (Event, R) {
    let mut queue = device.queue.lock(device);
    queue.encode(record);
    let noted = noted();
    let batch = queue.batch();
    match device.submissions.is_served_here() {
        // Some drivers keep a submitting thread while a kernel runs.
        true => queue.commit(),
        false => queue.pass_on(),
    }
    drop(queue);
    (Event::of_batch(device, batch), noted)
}

/// Whether nothing of the batch runs any more, after a wait for that. The batch has ended, or will never run.
fn is_over(device: &DeviceShared, batch: &Batch) -> bool {
    let submissions = &device.submissions;
    if batch.submission().is_some() && !submissions.standing(batch).is_over() {
        let _ = submissions.wait_over(batch, None);
    }
    submissions.standing(batch).is_over()
}

/// Whether the transfer goes on behind such an answer of a wait.
fn goes_on(told: &ReadError) -> bool {
    match told {
        ReadError::Deadline => true,
        ReadError::Execution(error) => matches!(
            **error,
            ExecutionError::InHandler { .. }
                | ExecutionError::InCallback { .. }
                | ExecutionError::WouldBlock { .. }
        ),
        ReadError::Memory(_) | ReadError::Taken => false,
    }
}

fn told(waited: Result<(), WaitError>) -> Result<(), ReadError> {
    waited.map_err(|error| match error {
        WaitError::Deadline => ReadError::Deadline,
        WaitError::Failed(error) => ReadError::Execution(error),
    })
}

impl<T: Pod> PinnedTransfer<T> {
    fn new(values: PinnedVec<T>, event: Event, way: Way) -> Self {
        Self {
            pending: Some((values, way)),
            event,
        }
    }

    /// The end of the device's part of the transfer, to have other commands come behind
    /// ([`Device::after`](crate::Device::after)) or to wait for several at once. The values of a read are in the vector once
    /// the vector is taken.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Waits for the vector.
    ///
    /// # Errors
    /// [`PinnedError`] with the failure of the device, or of the launch that should have written the values of a read; with
    /// [`ExecutionError::InHandler`] in a function of the host serving a call of the device: the vector is given up then.
    pub fn wait(mut self) -> Result<PinnedVec<T>, PinnedError<T>> {
        self.take(None)
    }

    /// Waits for the vector at most `timeout`.
    ///
    /// # Errors
    /// As [`PinnedTransfer::wait`]; [`ReadError::Deadline`] for a transfer that goes on, so ask again later;
    /// [`ReadError::Taken`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<PinnedVec<T>, PinnedError<T>> {
        self.take(Some(timeout))
    }

    /// The vector, if the transfer has ended; never blocks.
    ///
    /// # Errors
    /// As [`PinnedTransfer::wait`], and [`ReadError::Taken`].
    pub fn try_take(&mut self) -> Result<Option<PinnedVec<T>>, PinnedError<T>> {
        match self.take(Some(Duration::ZERO)) {
            Ok(values) => Ok(Some(values)),
            Err(PinnedError {
                error: ReadError::Deadline,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, timeout: Option<Duration>) -> Result<PinnedVec<T>, PinnedError<T>> {
        let ended = match &self.pending {
            Some((_, Way::Coming(read, _))) => read.arrive(timeout),
            Some(_) => told(match timeout {
                Some(timeout) => self.event.wait_timeout(timeout),
                None => self.event.wait(),
            }),
            None => Err(ReadError::Taken),
        };
        self.finish(ended)
    }

    /// The vector of a transfer that has ended so.
    fn finish(&mut self, ended: Result<(), ReadError>) -> Result<PinnedVec<T>, PinnedError<T>> {
        if let Err(error) = &ended
            && goes_on(error)
        {
            return Err(PinnedError::new(error.clone(), None));
        }
        let Some((mut values, way)) = self.pending.take() else {
            return Err(PinnedError::new(ReadError::Taken, None));
        };
        let (ended, is_back) = match way {
            Way::Direct(device, depends_on) => {
                let batch = self.event.batch();
                let is_back = batch.is_none_or(|batch| is_over(&device, batch));
                let ended = ended.and_then(|()| settle_all(&device, &depends_on));
                (ended, is_back)
            }
            Way::Sent => (ended, true),
            Way::Coming(read, place) => {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
                let to = &mut bytes[place];
                let arrived = |()| host_memory::overwritten(READ, to, |to| read.wait_for_bytes(to));
                let ended = ended.and_then(arrived);
                (ended, true)
            }
        };
        // Memory that a device may still have lasts as long as that, without its vector.
        let values = is_back.then_some(values);
        match (ended, values) {
            (Ok(()), Some(values)) => Ok(values),
            (Ok(()), None) => {
                let reason = "the end of a transfer is unknown".to_owned();
                let error = Arc::new(ExecutionError::DeviceLost { reason });
                Err(PinnedError::new(error, None))
            }
            (Err(error), values) => Err(PinnedError::new(error, values)),
        }
    }
}

// No field is pinned: a vector's values lie elsewhere.
impl<T: Pod> Unpin for PinnedTransfer<T> {}

impl<T: Pod> Future for PinnedTransfer<T> {
    type Output = Result<PinnedVec<T>, PinnedError<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let ended = match &this.pending {
            Some((_, Way::Coming(read, _))) => ready!(read.poll_bytes(context)),
            Some(_) => {
                let mut future = this.event.clone().into_future();
                told(ready!(Pin::new(&mut future).poll(context)))
            }
            None => Err(ReadError::Taken),
        };
        Poll::Ready(this.finish(ended))
    }
}

impl<T: Pod> fmt::Debug for PinnedTransfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedTransfer")
            .field("event", &self.event)
            .field("taken", &self.pending.is_none())
            .finish_non_exhaustive()
    }
}
