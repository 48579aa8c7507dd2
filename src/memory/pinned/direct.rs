//! Transfers between a buffer and pinned or [borrowed](super::borrowed) memory: one copy by the device, which has ended when
//! the transfer returns.

use std::ops::Range;
use std::sync::{Arc, Mutex};

#[cfg(embedded)]
use super::borrowed;
use super::imports::{Span, span};
use crate::device::outcome::ExecutionError;
use crate::device::queue::Recorder;
use crate::device::submissions::{Batch, ClosedBatch, Commands, Progress, Submissions};
use crate::device::wait::lock;
use crate::device::{DeviceShared, Event, capture};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::host_memory::Destination;
use crate::memory::places::is_in_words;
use crate::memory::readback::{ReadError, settle_all};
use crate::memory::staging::{check_submitted, send};

/// Where the bytes of a write to `target`, as many, can be copied from directly.
pub(crate) fn source<'a>(target: &send::Target<'_>, bytes: &'a [u8]) -> Option<Span<'a>> {
    let device = &target.buffer.device;
    let found = is_in_words(&target.range, target.padded)
        .then(|| span(device, bytes.as_ptr(), bytes.len()))
        .flatten();
    #[cfg(embedded)]
    let found = found.or_else(|| borrowed::source(device, bytes, target.range.start));
    found
}

/// Where `bytes` of a buffer of the device, as many, can be copied to directly.
fn target<'a>(
    device: &Arc<DeviceShared>,
    bytes: &Range<u64>,
    to: &'a mut Destination<'_>,
) -> Option<Span<'a>> {
    let (start, len) = to.place();
    // A read of nothing has no copy to make.
    if len == 0 || len as u64 != bytes.end - bytes.start {
        return None;
    }
    let found = (bytes.start.is_multiple_of(4))
        .then(|| span(device, start, len))
        .flatten();
    #[cfg(embedded)]
    let found = found.or_else(|| borrowed::target(device, to, bytes.start));
    found
}

/// Writes the bytes of `from`, as many as the target has. The device has nothing else to do.
///
/// # Errors
/// [`MemoryError::Execution`], [`MemoryError::Refused`].
pub(crate) fn send(
    mut queue: Recorder<'_>,
    what: &'static str,
    target: &send::Target<'_>,
    from: &Span<'_>,
) -> Result<Event, MemoryError> {
    let device = &target.buffer.device;
    let raw = &target.buffer.raw;
    let commands = record(device, what, |encoder| {
        for (pinned, part, at) in from.copies(target.range.clone()) {
            encoder.copy_buffer_to_buffer(pinned, part.start, raw, at, part.end - part.start);
        }
    })?;
    target.buffer.overwritten(&target.range);
    let copy = Running::submit(device, &mut queue, commands, from.is_on_loan());
    drop(queue);
    check_submitted(what, copy.batch())?;
    copy.finish().map_err(Arc::new)?;
    from.count(device, target.range.end - target.range.start);
    Ok(Event::of_batch(device, Arc::clone(copy.batch())))
}

/// Reads `bytes` of a buffer into `to` after everything recorded before, if the device copies to where `to` lies; otherwise
/// gives `to` back.
///
/// # Errors
/// [`ReadError::Execution`], [`MemoryError::Refused`].
pub(crate) fn receive<'a>(
    buffer: &BufferShared,
    what: &'static str,
    bytes: &Range<u64>,
    mut to: Destination<'a>,
) -> Result<Option<Destination<'a>>, ReadError> {
    let device = &buffer.device;
    let Some(span) = target(device, bytes, &mut to) else {
        return Ok(Some(to));
    };
    device.complete_dependencies(None);
    let commands = record(device, what, |encoder| {
        for (pinned, part, at) in span.copies(bytes.clone()) {
            let count = part.end - part.start;
            encoder.copy_buffer_to_buffer(&buffer.raw, at, pinned, part.start, count);
        }
    })?;
    let (copy, depends_on) = {
        let mut queue = device.queue.lock(device);
        // With the queue in hand, so that nobody else's launch comes between.
        let depends_on = buffer.depends_on(bytes);
        let is_on_loan = span.is_on_loan();
        let copy = Running::submit(device, &mut queue, commands, is_on_loan);
        (copy, depends_on)
    };
    check_submitted(what, copy.batch())?;
    copy.finish().map_err(Arc::new)?;
    span.count(device, bytes.end - bytes.start);
    drop((copy, span));
    #[allow(unsafe_code)]
    // SAFETY: the device has written all of the bytes: the copy was submitted, and has ended well.
    unsafe {
        to.assume_written();
    }
    settle_all(device, &depends_on)?;
    Ok(None)
}

fn record(
    device: &DeviceShared,
    what: &'static str,
    commands: impl FnOnce(&mut wgpu::CommandEncoder),
) -> Result<wgpu::CommandBuffer, MemoryError> {
    let (recorded, error) = capture(&device.raw, || {
        let mut encoder = (device.raw)
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some(what) });
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

/// A copy that the device may be making: imported memory is borrowed until this is dropped.
struct Running<'a> {
    submissions: &'a Submissions,
    batch: Arc<Batch>,
    /// The memory is on loan, and the end of the loan keeps it safe: nobody has to wait for a copy that is given up.
    is_on_loan: bool,
    /// Until the batch is submitted.
    commands: Arc<Mutex<Option<wgpu::CommandBuffer>>>,
}

impl<'a> Running<'a> {
    /// Submits the copy behind everything recorded before.
    fn submit(
        device: &'a DeviceShared,
        queue: &mut Recorder<'_>,
        commands: wgpu::CommandBuffer,
        is_on_loan: bool,
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
            is_on_loan,
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
            let progress = match self.is_on_loan {
                true => self.submissions.wait(&self.batch, None),
                false => self.submissions.wait_over(&self.batch, None),
            };
            match progress {
                Progress::Done => return Ok(()),
                Progress::Lost(reason) => return Err(ExecutionError::DeviceLost { reason }),
                Progress::Refused => {
                    let what = "a copy to or from the host";
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
        if lock(&self.commands).take().is_some() || self.is_on_loan {
            return;
        }
        // A thread that has taken the commands is about to submit them.
        while self.batch.submission().is_none() {
            std::thread::yield_now();
        }
        // Also behind a refusal: a loss that was seen during the submission says nothing of what the driver has got.
        if !self.submissions.standing(&self.batch).is_over() {
            let _ = self.submissions.wait_over(&self.batch, None);
        }
    }
}
