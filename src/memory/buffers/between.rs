//! Copies between buffers of two devices ([`DeviceBuffer`](crate::DeviceBuffer)): through the host, as the bytes of a
//! context's buffer go where the devices have no memory in common.
//!
//! The copy out of the source is submitted at once. The copy into the target is recorded, and its batch is held back until
//! the bytes have come ([`Hop`]), which a thread of the target's context sees to.

use std::ops::Range;
use std::sync::Arc;

use super::download::Download;
use super::fetch::staged;
use super::hop::{End, Hop};
use crate::device::Event;
use crate::device::outcome::Outcome;
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::places::{Place, copy};
use crate::memory::staging;

/// Copies the bytes of `source`, which are not empty and in whole words of the buffer, to as many bytes `target` of a buffer
/// of another device. `padded` says that nothing lies behind the target in its last word.
///
/// # Errors
/// [`MemoryError::OutOfMemory`] without room for staging memory, [`MemoryError::Execution`].
pub(crate) fn copy_between(
    (from, source): (&BufferShared, &Range<u64>),
    (to, target, padded): (&BufferShared, &Range<u64>, bool),
) -> Result<Event, MemoryError> {
    let (owner, device) = (&from.device, &to.device);
    // Some drivers keep a submitting thread while a kernel runs.
    let may = owner.submissions.may_submit("a transfer from there");
    may.map_err(Arc::new)?;
    device.lost.check().map_err(Arc::new)?;
    let pieces = Download::start(from, 0, source.clone(), true)?;
    let outcome = Outcome::of_transfer(owner, from.depends_on(source));
    let hop = |pieces| Hop::new(pieces, Arc::clone(&outcome));
    let loads = staged((owner, device), pieces, Vec::new(), &outcome, hop)?;
    let mut queue = device.queue.lock(device);
    if queue.has_commands() {
        // Earlier commands need not wait for the bytes.
        queue.pass_on();
    }
    let mut copied = Ok(());
    for load in &loads {
        if let Some(memory) = &load.memory {
            let bytes = load.range.end - load.range.start;
            let at = target.start + (load.range.start - source.start);
            let spot = Place::in_buffer(memory, load.at, true);
            let goal = Place::in_buffer(&to.raw, at, padded && at + bytes == target.end);
            copied = copied.and(copy(&mut queue, device, &spot, &goal, bytes));
        }
        if let Some(hop) = &load.hop {
            queue.dependencies().hold_for(Arc::clone(hop) as _);
        }
    }
    // Also behind a refusal: some pieces may be recorded.
    to.overwritten(target);
    to.poison(target.clone(), &outcome);
    let batch = queue.batch();
    queue.commit();
    drop(queue);
    for load in loads {
        if let Some(hop) = &load.hop {
            let threads = &device.context.buffers.transfer_threads;
            threads.send(hop, owner, device);
        }
        if let Some(memory) = load.memory {
            let end = End::of(device, Arc::clone(&batch));
            staging::of(device).give_upload(memory, end);
        }
    }
    copied.map(|()| Event::of_batch(device, batch).with_outcome(Some(outcome)))
}
