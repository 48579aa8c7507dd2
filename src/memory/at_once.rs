//! Small transfers of an embedded device that has nothing to do: the calling thread copies between the program's memory and
//! the buffer's, which is memory of the host, with no staging memory and no submission.
//!
//! # How it works
//! 1. wgpu is polled, as a wait for a copy would: the loss of a device that was destroyed is told by a poll alone.
//! 2. With the queue in hand, so that no thread records or submits anything meanwhile: nothing is recorded, nothing is in line,
//!    everything has ended that was submitted, and all launches are settled. So the copy has its place behind all of them,
//!    and no failure of a launch is left to be told.
//! 3. The adapter copies with its line of submissions to itself, and refuses where a program's own handles of wgpu have
//!    something under way, or wgpu something to submit or to clear: `tombolo_cpu::Device::read_at_once`.
//!
//! Whatever is not met, the transfer goes its usual way. Buffers that a program has brought along always do: they may be
//! mapped, or of another device, which wgpu has to say.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::buffer::BufferShared;
use super::host_memory::Destination;
use super::staging::{self, LARGEST_SMALL};
use crate::device::queue::Recorder;
use crate::device::{DeviceShared, embedded};

/// The queue of a buffer's device, which has nothing to do.
fn idle(device: &Arc<DeviceShared>) -> Option<Recorder<'_>> {
    let is_idle = |queue: &Recorder<'_>| queue.is_settled() && queue.is_idle();
    if !is_idle(&device.queue.lock(device)) {
        return None;
    }
    // Callbacks of the program run here, and may record something.
    device.submissions.collect();
    let queue = device.queue.lock(device);
    (is_idle(&queue) && !device.lost.is_raised()).then_some(queue)
}

fn may_be(buffer: &BufferShared, range: &Range<u64>) -> bool {
    let count = range.end - range.start;
    buffer.is_own && (1..=LARGEST_SMALL).contains(&count)
}

/// Writes `bytes`, as many as the range of the buffer has, unless that takes a command: whether it was done.
pub(super) fn write(buffer: &BufferShared, range: &Range<u64>, bytes: &[u8]) -> bool {
    let device = &buffer.device;
    if !may_be(buffer, range) || bytes.len() as u64 != range.end - range.start {
        return false;
    }
    let Some(queue) = idle(device) else {
        return false;
    };
    // SAFETY: the device has made the buffer, for usages that do not let it be mapped.
    if !unsafe { embedded::write_at_once(&device.raw, &buffer.raw, range.start, bytes) } {
        return false;
    }
    buffer.overwritten(range);
    drop(queue);
    staging::of(device).count_at_once(range.end - range.start);
    true
}

/// Reads a range of the buffer into `to`, or gives `to` back where that takes a command.
pub(super) fn read<'a>(
    buffer: &BufferShared,
    range: &Range<u64>,
    mut to: Destination<'a>,
) -> Option<Destination<'a>> {
    let device = &buffer.device;
    let (start, count) = to.place();
    if !may_be(buffer, range) || count as u64 != range.end - range.start {
        return Some(to);
    }
    let queue = idle(device).filter(|_| buffer.depends_on(range).is_empty());
    let Some(queue) = queue else {
        return Some(to);
    };
    let place = (start, count);
    // SAFETY: the device has made the buffer, for usages that do not let it be mapped. The destination is borrowed exclusively.
    if !unsafe { embedded::read_at_once(&device.raw, &buffer.raw, range.start, place) } {
        return Some(to);
    }
    drop(queue);
    // SAFETY: all bytes were copied.
    unsafe {
        to.assume_written();
    }
    staging::of(device).count_at_once(range.end - range.start);
    None
}
