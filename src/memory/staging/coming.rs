//! Bytes on their way to the host: copied by a batch into staging memory, and mapped behind the batch.

use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use super::pieces::Piece;
use crate::clock::Instant;
use crate::device::mapping::{Mapped, Mapping};
use crate::device::outcome::ExecutionError;
use crate::device::pinned::Unreachable;
use crate::device::staging::Lent;
use crate::device::submissions::{Batch, Progress, Submissions};
use crate::memory::MemoryError;
use crate::memory::readback::ReadError;

/// What does not block.
pub(crate) const AWAIT_READ: &str = "`.await` what `read_back` returns";

/// Bytes on their way into staging memory.
pub(crate) struct Coming {
    batch: Arc<Batch>,
    /// Begun once the batch is submitted: wgpu refuses submissions with memory that is being mapped.
    mapping: OnceLock<Mapping>,
    /// Given back after the unmapping, with the bytes read or abandoned.
    memory: Lent,
    raw: wgpu::Device,
    piece: Piece,
    /// What a thread that must not wait is told: the name of the copy, and what does not block.
    names: &'static [&'static str; 2],
}

impl Coming {
    /// The words of `piece`, copied to `memory` by `batch`, which is submitted.
    pub(crate) fn begin(raw: &wgpu::Device, batch: Arc<Batch>, memory: Lent, piece: Piece) -> Self {
        let coming = Self::behind(raw, batch, memory, piece);
        coming.mapping();
        coming
    }

    /// The same, by a closed batch that may not be submitted yet: the memory is mapped by the first wait behind that.
    pub(crate) fn behind(
        raw: &wgpu::Device,
        batch: Arc<Batch>,
        memory: Lent,
        piece: Piece,
    ) -> Self {
        let coming = Self::with(raw, batch, OnceLock::new(), memory, piece);
        if let Some(Ok(())) = coming.batch.submission() {
            coming.mapping();
        }
        coming
    }

    /// The same, read through a mapping that is under way.
    pub(crate) fn new(batch: Arc<Batch>, mapping: Mapping, memory: Lent, piece: Piece) -> Self {
        let raw = mapping.device().clone();
        Self::with(&raw, batch, OnceLock::from(mapping), memory, piece)
    }

    fn with(
        raw: &wgpu::Device,
        batch: Arc<Batch>,
        mapping: OnceLock<Mapping>,
        memory: Lent,
        piece: Piece,
    ) -> Self {
        Self {
            batch,
            mapping,
            memory,
            raw: raw.clone(),
            piece,
            names: &["a copy to the host", AWAIT_READ],
        }
    }

    /// The mapping, begun now unless it was. The batch is submitted.
    fn mapping(&self) -> &Mapping {
        let words = self.piece.words();
        let begin = || self.memory.map(&self.raw, 0..words.end - words.start);
        self.mapping.get_or_init(begin)
    }

    /// Has a thread that must not wait told of the copy by this name, and of what does not block.
    pub(crate) fn named(self, names: &'static [&'static str; 2]) -> Self {
        Self { names, ..self }
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
        self.mapping().wake(waker);
    }

    /// Waits until the memory is mapped, while the page goes on. The batch has ended.
    #[cfg(web)]
    pub(crate) async fn settled(&self) {
        self.mapping().settled().await;
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
                let [what, instead] = *self.names;
                return Err(Missing::InHandler(submissions.refused(what, instead)));
            }
            Progress::Lost(reason) => return Err(Missing::Lost(reason)),
        }
        let mapping = self.mapping();
        match mapping.wait(submissions, deadline) {
            Mapped::Ready => Ok(()),
            Mapped::Pending => Err(Missing::Deadline),
            Mapped::Failed(message) => Err(match submissions.lost().get() {
                Some(reason) => Missing::Lost(reason),
                None if mapping.is_gone() => Unreachable::Gone.into(),
                None => Missing::Refused(message),
            }),
        }
    }

    /// As [`Self::read`], by [`Mapping::take_copied`].
    pub(crate) fn read_copied(&self, mut read: impl FnMut(usize, &[u8])) -> Result<(), Missing> {
        let first = (self.piece.bytes.start - self.piece.words().start) as usize;
        let wanted = first..first + self.len();
        let read = self.mapping().take_copied(|at, bytes| {
            let here = at.max(wanted.start)..(at + bytes.len()).min(wanted.end);
            if !here.is_empty() {
                let part = &bytes[here.start - at..here.end - at];
                read(here.start - wanted.start, part);
            }
        });
        Ok(read?)
    }

    /// Passes the bytes, which have arrived, to `read`, once, by [`Mapping::take`].
    pub(crate) fn read(&self, read: impl FnOnce(&[u8])) -> Result<(), Missing> {
        let first = (self.piece.bytes.start - self.piece.words().start) as usize;
        let wanted = first..first + self.len();
        Ok(self.mapping().take(|bytes| read(&bytes[wanted]))?)
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

impl From<Unreachable> for Missing {
    fn from(unreachable: Unreachable) -> Self {
        match unreachable {
            Unreachable::Gone => Self::Lost(unreachable.to_string()),
            Unreachable::Refused(message) => Self::Refused(message),
        }
    }
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
