//! Large copies between a buffer's memory on an embedded device and memory of the host where it lies: one copy, as
//! [`borrowed`](crate::memory::pinned::borrowed) says, where others take staging memory and a second copy.
//!
//! - *To the host*: a read lends the device the program's memory, and an eviction the buffer's own on the host. The copy has
//!   the place of a staged one ([`Download`](super::download::Download)): in front of the open batch, or behind it where that
//!   writes the bytes.
//! - *To the device*: a device that has nothing to do copies from the buffer's memory on the host, and the command that asks
//!   for the bytes goes on behind the copy, as it would behind the filling of staging memory. Beside other work of the device
//!   the bytes are staged: commands are enqueued without a wait for what runs.

use std::ops::Range;
use std::sync::Arc;

use super::download::{self, Missed};
use crate::device::submissions::{Batch, Progress};
use crate::device::{DeviceShared, capture};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::pinned::{Span, borrowed, direct};
use crate::memory::staging::{self, AWAIT_READ, Missing, send};

/// The name of a transfer to a device in errors.
const WHAT: &str = "a copy to a device";

/// A copy by a device to memory that it was lent.
pub(super) struct Lent<'a> {
    device: Arc<DeviceShared>,
    batch: Arc<Batch>,
    bytes: u64,
    /// Until the copy has ended, or is given up.
    span: Span<'a>,
}

impl<'a> Lent<'a> {
    /// Starts to bring `range` of the buffer at offset `base` of a wgpu buffer to `to`, which has as many bytes, as
    /// [`Download::start`](super::download::Download::start) does; or gives `to` back where nothing is lent.
    pub(super) fn start(
        buffer: &BufferShared,
        base: u64,
        range: &Range<u64>,
        after_recorded: bool,
        to: &'a mut [u8],
    ) -> Result<Result<Self, &'a mut [u8]>, MemoryError> {
        let device = &buffer.device;
        let bytes = range.end - range.start;
        let from = base + range.start..base + range.end;
        let span = match borrowed::target_of(device, to, from.start) {
            Ok(span) => span,
            Err(to) => return Ok(Err(to)),
        };
        device.lost.check().map_err(Arc::new)?;
        if after_recorded {
            device.flush()?;
        }
        // The lock is kept, so that no unseen command is recorded in between.
        let mut queue = device.queue.lock(device);
        let (commands, error) = capture(&device.raw, || {
            let mut encoder =
                (device.raw).create_command_encoder(&wgpu::CommandEncoderDescriptor {
                    label: Some("tombolo copy to lent memory"),
                });
            for (lent, part, at) in span.copies(from) {
                let count = part.end - part.start;
                encoder.copy_buffer_to_buffer(&buffer.raw, at, lent, part.start, count);
            }
            encoder.finish()
        });
        if let Some(error) = error {
            return Err(staging::refusal(device, download::WHAT, bytes, &error));
        }
        let batch = queue.submit_now(commands)?;
        drop(queue);
        Ok(Ok(Self {
            device: Arc::clone(device),
            batch,
            bytes,
            span,
        }))
    }

    pub(super) fn device(&self) -> &DeviceShared {
        &self.device
    }

    /// The copy.
    pub(super) fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// Waits for the bytes.
    pub(super) fn arrive(self) -> Result<(), Missed> {
        let submissions = &self.device.submissions;
        // Bytes under way when the device was lost count as lost.
        if let Some(reason) = submissions.lost().get() {
            return Err(Missing::Lost(reason).into());
        }
        let missing = match submissions.wait(&self.batch, None) {
            Progress::Done => {
                self.span.count(&self.device, self.bytes);
                return Ok(());
            }
            Progress::Pending => Missing::Deadline,
            Progress::Refused => {
                Missing::InHandler(submissions.refused(download::WHAT, AWAIT_READ))
            }
            Progress::Lost(reason) => Missing::Lost(reason),
        };
        Err(missing.into())
    }
}

/// Copies `bytes` of the host to `range` of a buffer of wgpu, and returns the batch, which has ended; `None` where the bytes
/// are better staged. Behind the last byte of the range there may be other bytes in its word.
pub(super) fn upload(
    buffer: &BufferShared,
    range: Range<u64>,
    bytes: &[u8],
) -> Result<Option<Arc<Batch>>, MemoryError> {
    let device = &buffer.device;
    if device.submissions.may_wait(WHAT, AWAIT_READ).is_err() {
        return Ok(None);
    }
    let Some(source) = borrowed::source(device, bytes, range.start) else {
        return Ok(None);
    };
    let queue = device.queue.lock(device);
    if !queue.is_idle() {
        return Ok(None);
    }
    let target = send::Target {
        buffer,
        range,
        padded: false,
    };
    let sent = direct::send(queue, WHAT, &target, &source)?;
    Ok(sent.batch().cloned())
}
