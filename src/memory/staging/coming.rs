//! Bytes on their way to the host: copied by a batch into staging memory, which is mapped behind it.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::pieces::Piece;
use crate::device::DeviceShared;
use crate::device::mapping::{Mapped, Mapping};
use crate::device::outcome::ExecutionError;
use crate::device::submissions::{Batch, Progress, Submissions};
use crate::memory::MemoryError;
use crate::memory::readback::ReadError;

/// Staging memory that goes back to its device's pool, unmapped, when this is dropped.
pub(crate) struct Lent {
    buffer: wgpu::Buffer,
    owner: Weak<DeviceShared>,
}

impl Lent {
    /// Memory for a copy of `bytes` bytes to the host, which is not mapped.
    ///
    /// # Errors
    /// As [`super::make`].
    pub(crate) fn take(
        device: &Arc<DeviceShared>,
        what: &'static str,
        bytes: u64,
    ) -> Result<Self, MemoryError> {
        Ok(Self {
            buffer: super::of(device).download(device, what, bytes)?,
            owner: Arc::downgrade(device),
        })
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(device) = self.owner.upgrade() {
            super::of(&device).give_download(self.buffer.clone());
        }
    }
}

/// Bytes in memory that a device fills.
pub(crate) struct Coming {
    batch: Arc<Batch>,
    mapping: Mapping,
    /// Given back after it was unmapped, when the bytes were read or nobody wants them.
    _memory: Lent,
    piece: Piece,
}

impl Coming {
    /// The words of `piece`, which `batch` copies to `memory`, to which `mapping` leads.
    pub(crate) fn new(batch: Arc<Batch>, mapping: Mapping, memory: Lent, piece: Piece) -> Self {
        Self {
            batch,
            mapping,
            _memory: memory,
            piece,
        }
    }

    /// The copy.
    pub(crate) fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// Bytes that were asked for.
    pub(crate) fn len(&self) -> usize {
        self.piece.len() as usize
    }

    /// Has `waker` woken when the bytes may be there.
    pub(crate) fn wake(&self, waker: &Waker) {
        self.mapping.wake(waker);
    }

    /// Waits until the bytes can be read, for at most `timeout`.
    pub(crate) fn arrive(
        &self,
        submissions: &Submissions,
        timeout: Option<Duration>,
    ) -> Result<(), Missing> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match submissions.wait(&self.batch, timeout) {
            Progress::Done => {}
            Progress::Pending => return Err(Missing::Deadline),
            Progress::Lost(reason) => return Err(Missing::Lost(reason)),
        }
        match self.mapping.wait(submissions, deadline) {
            Mapped::Ready => Ok(()),
            Mapped::Pending => Err(Missing::Deadline),
            Mapped::Failed(message) => Err(match submissions.lost().get() {
                Some(reason) => Missing::Lost(reason),
                None => Missing::Refused(message),
            }),
        }
    }

    /// Hands the bytes, which have arrived, to `read`; once.
    pub(crate) fn read(&self, read: impl FnOnce(&[u8])) -> Result<(), Missing> {
        let first = (self.piece.bytes.start - self.piece.words().start) as usize;
        let wanted = first..first + self.len();
        let read = self.mapping.take(|bytes| read(&bytes[wanted]));
        read.map_err(Missing::Refused)
    }
}

/// Why bytes are not there.
pub(crate) enum Missing {
    Deadline,
    /// With the device.
    Lost(String),
    /// wgpu did not map them; in its words.
    Refused(String),
}

impl From<Missing> for ReadError {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Deadline => Self::Deadline,
            Missing::Lost(reason) => Arc::new(ExecutionError::DeviceLost { reason }).into(),
            Missing::Refused(message) => {
                let what = "mapping a read-back";
                MemoryError::Refused { what, message }.into()
            }
        }
    }
}

/// What became of a batch that was to be submitted.
///
/// # Errors
/// [`MemoryError::Execution`].
pub(crate) fn check_submitted(what: &'static str, batch: &Batch) -> Result<(), MemoryError> {
    match batch.submission() {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(Arc::clone(error).into()),
        None => Err(Arc::new(ExecutionError::InCallback { what }).into()),
    }
}
