//! Transfers between a buffer and pinned memory: one copy by the device, which has ended when the transfer returns.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::imports::{Span, span};
use crate::device::outcome::ExecutionError;
use crate::device::queue::Recorder;
use crate::device::submissions::{Batch, ClosedBatch, Commands, Progress, Standing, Submissions};
use crate::device::wait::lock;
use crate::device::{DeviceShared, Event, capture};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::host_memory::Destination;
use crate::memory::readback::{ReadError, settle_all};
use crate::memory::staging::{self, check_submitted, send};

/// Where the bytes of a write can be copied from directly.
pub(crate) fn source(device: &Arc<DeviceShared>, bytes: &[u8]) -> Option<Span> {
    span(device, bytes.as_ptr(), bytes.len())
}

/// Writes the `count` bytes of `from`, as many as the target has. The device has nothing else to do.
///
/// # Errors
/// [`MemoryError::Execution`], [`MemoryError::Refused`].
pub(crate) fn send(
    mut queue: Recorder<'_>,
    what: &'static str,
    target: &send::Target<'_>,
    from: &Span,
) -> Result<Event, MemoryError> {
    let device = &target.buffer.device;
    let raw = &target.buffer.raw;
    let count = target.range.end - target.range.start;
    let commands = record(device, what, |encoder| {
        let mut at = target.range.start;
        for (pinned, part) in from.parts(count) {
            let len = part.end - part.start;
            encoder.copy_buffer_to_buffer(pinned, part.start, raw, at, len);
            at += len;
        }
    })?;
    target.buffer.overwritten(&target.range);
    let copy = Running::submit(device, &mut queue, commands);
    drop(queue);
    check_submitted(what, copy.batch())?;
    copy.finish().map_err(Arc::new)?;
    staging::of(device).count_pinned(count);
    Ok(Event::of_batch(device, Arc::clone(copy.batch())))
}

/// Reads `bytes` of a buffer into `to` after everything recorded before, if `to` lies in pinned memory; otherwise gives
/// `to` back.
///
/// # Errors
/// [`ReadError::Execution`], [`MemoryError::Refused`].
pub(crate) fn receive<'a>(
    buffer: &BufferShared,
    what: &'static str,
    bytes: &Range<u64>,
    to: Destination<'a>,
) -> Result<Option<Destination<'a>>, ReadError> {
    let device = &buffer.device;
    let (start, len) = to.place();
    // A read of nothing has no copy to make.
    let in_words = bytes.start.is_multiple_of(4) && len as u64 == bytes.end - bytes.start;
    let Some(pinned) = (in_words && len > 0)
        .then(|| span(device, start, len))
        .flatten()
    else {
        return Ok(Some(to));
    };
    device.complete_dependencies(None);
    let commands = record(device, what, |encoder| {
        let mut at = bytes.start;
        for (raw, part) in pinned.parts(len as u64) {
            let len = part.end - part.start;
            encoder.copy_buffer_to_buffer(&buffer.raw, at, raw, part.start, len);
            at += len;
        }
    })?;
    let (copy, depends_on) = {
        let mut queue = device.queue.lock(device);
        // With the queue in hand, so that nobody else's launch comes between.
        let depends_on = buffer.depends_on(bytes);
        (Running::submit(device, &mut queue, commands), depends_on)
    };
    check_submitted(what, copy.batch())?;
    copy.finish().map_err(Arc::new)?;
    #[allow(unsafe_code)]
    // SAFETY: the device has written all of the bytes: the copy was submitted, and has ended well.
    unsafe {
        to.assume_written();
    }
    staging::of(device).count_pinned(len as u64);
    settle_all(device, &depends_on)?;
    Ok(None)
}

fn record(
    device: &DeviceShared,
    what: &'static str,
    commands: impl FnOnce(&mut wgpu::CommandEncoder),
) -> Result<wgpu::CommandBuffer, MemoryError> {
    let (recorded, error) = capture(&device.raw, || {
        let mut encoder =
            (device.raw).create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        commands(&mut encoder);
        encoder.finish()
    });
    match error {
        None => Ok(recorded),
        Some(error) => Err(MemoryError::Refused {
            what,
            message: error.to_string(),
        }),
    }
}

/// A copy that the device may be making: its memory is borrowed until this is dropped.
struct Running<'a> {
    submissions: &'a Submissions,
    batch: Arc<Batch>,
    /// Until the batch is submitted.
    commands: Arc<Mutex<Option<wgpu::CommandBuffer>>>,
}

impl<'a> Running<'a> {
    /// Submits the copy behind everything recorded before.
    fn submit(
        device: &'a DeviceShared,
        queue: &mut Recorder<'_>,
        commands: wgpu::CommandBuffer,
    ) -> Self {
        let commands = Arc::new(Mutex::new(Some(commands)));
        let taken = Arc::clone(&commands);
        let closed = ClosedBatch::with(Commands::Late(Box::new(move || {
            let commands = lock(&taken).take();
            commands.ok_or_else(|| "a copy was given up".to_owned())
        })));
        let copy = Self {
            submissions: &device.submissions,
            batch: Arc::clone(&closed.batch),
            commands,
        };
        queue.line_up([closed]);
        queue.submit_until(&copy.batch);
        copy
    }

    fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// Waits until the copy has ended.
    fn finish(&self) -> Result<(), ExecutionError> {
        loop {
            match self.submissions.wait_over(&self.batch, None) {
                Progress::Done => return Ok(()),
                Progress::Lost(reason) => return Err(ExecutionError::DeviceLost { reason }),
                Progress::Refused => {
                    let what = "a copy of pinned memory";
                    return Err(self.submissions.refused(what, "copy by a device buffer"));
                }
                // Without a deadline: looks again.
                Progress::Pending => {}
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // What was not submitted never is: a callback of the program has to leave before the line moves on.
        if lock(&self.commands).take().is_some() {
            return;
        }
        // A thread that has taken the commands is about to submit them.
        while self.batch.submission().is_none() {
            std::thread::yield_now();
        }
        if matches!(self.submissions.standing(&self.batch), Standing::Submitted) {
            let _ = self.submissions.wait_over(&self.batch, None);
        }
    }
}
