//! Transfers from a device to the host: copied into mappable memory, in pieces, so that the host works on the first
//! piece while the device copies the next.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::clock::Instant;
use crate::device::outcome::ExecutionError;
use crate::device::staging::Lent;
use crate::device::submissions::{Batch, Submissions};
use crate::device::wait::{Waits, ended};
use crate::device::{DeviceShared, capture};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::staging::{self, Coming, Missing, Piece, pieces, pump};

/// Bytes per piece, in both directions: enough to make the fixed cost of a piece negligible.
pub(super) const PIECE: u64 = 8 << 20;

/// One piece, in a closed batch.
pub(super) struct Download {
    /// Who wakes whoever awaits the bytes.
    device: Weak<DeviceShared>,
    submissions: Arc<Submissions>,
    coming: Coming,
    /// The bytes of the buffer.
    pub range: Range<u64>,
}

/// The name of a copy in errors.
pub(super) const WHAT: &str = "a copy to the host";

/// Why bytes did not arrive.
pub(super) enum Missed {
    Deadline,
    /// The bytes come only after the asking thread has answered a call.
    InHandler(ExecutionError),
    Failed(ExecutionError),
}

impl From<Missing> for Missed {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Deadline => Self::Deadline,
            Missing::InHandler(error) => Self::InHandler(error),
            Missing::Lost(reason) => Self::Failed(ExecutionError::DeviceLost { reason }),
            Missing::Refused(message) => Self::Failed(ExecutionError::Refused { message }),
        }
    }
}

impl Download {
    /// Starts to bring `range`, which is not empty, of the buffer at offset `base` of a wgpu buffer. Recorded commands
    /// are submitted first only with `after_recorded`, for commands with writes to the range.
    pub(super) fn start(
        buffer: &BufferShared,
        base: u64,
        range: Range<u64>,
        after_recorded: bool,
    ) -> Result<Vec<Self>, MemoryError> {
        let device = &buffer.device;
        device.lost.check().map_err(Arc::new)?;
        if after_recorded {
            device.flush()?;
        }
        pieces(range, PIECE)
            .map(|piece| Self::begin(buffer, base, piece))
            .collect()
    }

    fn begin(buffer: &BufferShared, base: u64, piece: Piece) -> Result<Self, MemoryError> {
        let device = &buffer.device;
        // Whole words are copied; [`Self::take`] leaves out the bytes around the range.
        let words = piece.words();
        let bytes = words.end - words.start;
        let memory = staging::download(device, WHAT, bytes)?;
        // The lock is kept, so that no unseen command is recorded in between.
        let mut queue = device.queue.lock(device);
        let (commands, error) = capture(&device.raw, || {
            let mut encoder =
                (device.raw).create_command_encoder(&wgpu::CommandEncoderDescriptor {
                    label: Some("tombolo copy to the host"),
                });
            let from = (&buffer.raw, base + words.start);
            encoder.copy_buffer_to_buffer(from.0, from.1, memory.buffer(), 0, bytes);
            encoder.finish()
        });
        if let Some(error) = error {
            return Err(staging::refusal(device, WHAT, bytes, &error));
        }
        let batch = queue.submit_now(commands)?;
        drop(queue);
        Ok(Self {
            device: Arc::downgrade(device),
            submissions: Arc::clone(&device.submissions),
            range: piece.bytes.clone(),
            coming: Coming::begin(&device.raw, batch, memory, piece),
        })
    }

    /// The words around `range`, copied to `memory` by a closed batch that may not be submitted yet.
    pub(super) fn sent(
        device: &Arc<DeviceShared>,
        batch: Arc<Batch>,
        memory: Lent,
        range: Range<u64>,
    ) -> Self {
        let piece = Piece {
            bytes: range.clone(),
        };
        Self {
            device: Arc::downgrade(device),
            submissions: Arc::clone(&device.submissions),
            coming: Coming::behind(&device.raw, batch, memory, piece),
            range,
        }
    }

    /// The bytes on their way, for a wait of another kind.
    pub(super) fn into_coming(self) -> Coming {
        self.coming
    }

    /// The submissions of the device.
    pub(super) fn submissions(&self) -> &Arc<Submissions> {
        &self.submissions
    }

    /// The copy.
    pub(super) fn batch(&self) -> &Arc<Batch> {
        self.coming.batch()
    }

    /// Waits for the bytes where the caller awaits them. Where it blocks, [`Self::arrive`] waits, unless it may not.
    ///
    /// # Errors
    /// [`ExecutionError::WouldBlock`].
    pub(super) async fn come(
        &self,
        waits: &impl Fn(&Arc<DeviceShared>) -> Waits,
    ) -> Result<(), ExecutionError> {
        let Some(device) = self.device.upgrade() else {
            return Ok(());
        };
        match waits(&device) {
            Waits::Blocks => may_wait(&self.submissions),
            Waits::Awaits(device) => {
                ended(device.as_deref(), &self.submissions, self.batch()).await;
                #[cfg(web)]
                self.coming.settled().await;
                Ok(())
            }
        }
    }

    /// Waits for the bytes.
    pub(super) fn arrive(&self, deadline: Option<Instant>) -> Result<(), Missed> {
        // Bytes under way when the device was lost count as lost.
        if let Some(reason) = self.submissions.lost().get() {
            return Err(Missing::Lost(reason).into());
        }
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        Ok(self.coming.arrive(&self.submissions, left)?)
    }

    /// Passes the bytes, which have arrived, to `use_them`; once.
    pub(super) fn take(&self, use_them: impl FnOnce(&[u8])) -> Result<(), Missed> {
        Ok(self.coming.read(use_them)?)
    }

    /// As [`Self::take`], in pieces with their places; `use_them` may call wgpu.
    pub(super) fn take_copied(&self, use_them: impl FnMut(usize, &[u8])) -> Result<(), Missed> {
        Ok(self.coming.read_copied(use_them)?)
    }
}

/// Refuses a wait of a read that blocks.
fn may_wait(submissions: &Submissions) -> Result<(), ExecutionError> {
    submissions.may_wait("a read of a buffer", "`.await` `Buffer::read_async`")
}

/// Bytes on their way into memory of the host, each piece with the memory that it goes to.
#[derive(Default)]
pub(super) struct Arriving<'a> {
    staged: Vec<(Download, &'a mut [u8])>,
    #[cfg(embedded)]
    lent: Vec<super::lent::Lent<'a>>,
}

impl<'a> Arriving<'a> {
    /// Adds pieces that bring all of `to`, from byte `start` of the buffer on.
    pub(super) fn stage(&mut self, pieces: Vec<Download>, start: u64, to: &'a mut [u8]) {
        let (mut rest, mut at) = (to, start);
        for piece in pieces {
            let end = piece.range.end;
            let (part, behind) = rest.split_at_mut((end - at) as usize);
            (rest, at) = (behind, end);
            self.staged.push((piece, part));
        }
    }

    /// Adds a copy by a device to memory that it was lent.
    #[cfg(embedded)]
    pub(super) fn lend(&mut self, lent: super::lent::Lent<'a>) {
        self.lent.push(lent);
    }

    /// As [`Download::come`], for all of the bytes.
    ///
    /// # Errors
    /// [`ExecutionError::WouldBlock`].
    pub(super) async fn come(
        &self,
        waits: &impl Fn(&Arc<DeviceShared>) -> Waits,
    ) -> Result<(), ExecutionError> {
        for (piece, _) in &self.staged {
            piece.come(waits).await?;
        }
        #[cfg(embedded)]
        for lent in &self.lent {
            may_wait(&lent.device().submissions)?;
        }
        Ok(())
    }

    /// Waits for all of the bytes.
    pub(super) fn arrive(self) -> Result<(), Missed> {
        pump::run_all(
            self.staged,
            |(piece, _)| piece.arrive(None),
            |(piece, part)| piece.take(|from| part.copy_from_slice(from)),
        )?;
        #[cfg(embedded)]
        for lent in self.lent {
            lent.arrive()?;
        }
        Ok(())
    }
}
