//! Bytes on their way to the host: copied by a batch into staging memory, and mapped behind the batch.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::pieces::Piece;
use crate::clock::Instant;
use crate::device::DeviceShared;
use crate::device::mapping::{Mapped, Mapping};
use crate::device::outcome::ExecutionError;
use crate::device::submissions::{Batch, Progress, Submissions};
use crate::memory::MemoryError;
use crate::memory::readback::ReadError;

/// What does not block.
pub(crate) const AWAIT_READ: &str = "`.await` what `read_back` returns";

/// Staging memory, given back unmapped to the device's pool on drop.
pub(crate) struct Lent {
    buffer: wgpu::Buffer,
    owner: Weak<DeviceShared>,
}

impl Lent {
    /// Unmapped memory for a copy of `bytes` bytes to the host.
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

/// Bytes on their way into staging memory.
pub(crate) struct Coming {
    batch: Arc<Batch>,
    mapping: Mapping,
    /// Given back after the unmapping, with the bytes read or abandoned.
    _memory: Lent,
    piece: Piece,
}

impl Coming {
    /// The words of `piece`, copied by `batch` to `memory` and read through `mapping`.
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

    /// Bytes asked for.
    pub(crate) fn len(&self) -> usize {
        self.piece.len() as usize
    }

    /// Has `waker` woken when the bytes may be there.
    pub(crate) fn wake(&self, waker: &Waker) {
        self.mapping.wake(waker);
    }

    /// Waits until the memory is mapped, while the page goes on. The batch has ended.
    #[cfg(web)]
    pub(crate) async fn settled(&self) {
        self.mapping.settled().await;
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
            Progress::Refused => {
                let what = "a copy to the host";
                return Err(Missing::InHandler(submissions.refused(what, AWAIT_READ)));
            }
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

    /// Passes the bytes, which have arrived, to `read`; once.
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
    /// The asking thread serves a call of a kernel in front of the copy.
    InHandler(ExecutionError),
    /// With the device.
    Lost(String),
    /// wgpu's error for a failed mapping.
    Refused(String),
}

impl From<Missing> for ReadError {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Deadline => Self::Deadline,
            Missing::InHandler(error) => Arc::new(error).into(),
            Missing::Lost(reason) => Arc::new(ExecutionError::DeviceLost { reason }).into(),
            Missing::Refused(message) => {
                let what = "mapping a read-back";
                MemoryError::Refused { what, message }.into()
            }
        }
    }
}

/// The error of a batch, if the submission was refused or is not done yet.
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
