//! Order: whether a submission follows the runtime's last one directly, with no other of the wgpu device in between.
//!
//! A staged [`signal`](super::signal) is taken by the next submission to reach the driver, possibly the program's own
//! on another thread. So a signal is believed only where no other submission can have taken the signal.
//!
//! # How it works
//!
//! 1. wgpu-core gives every submission of a device an index, one more than the last, under a lock held until the driver
//!    has the submission (30.0.1, `Queue::allocate_submission` and `Queue::submit_pending_submission`). Every other
//!    call able to submit takes an index as well, needed or not: `on_submitted_work_done`, `map_async`, and the end of
//!    a frame.
//! 2. `wgpu::Queue::submit` returns the index, readable as text alone. A text of another form proves nothing.
//! 3. Behind each submission of the runtime comes a marker, taking an index, too. The *stride* is the distance of two
//!    submissions with a marker and nothing else in between. Another version of wgpu may count otherwise, so the stride
//!    is measured, once per process, on a device without other users.
//! 4. The last index is noted when its marker is registered. A submission whose index is a stride larger has only the
//!    marker in front: a marker takes as many indices as there are.
//!
//! ```text
//!     the last submission   its marker   stage   the submission
//!              7                 8                     9           stride 2: nothing else was submitted in between
//!              7                 8                    10           somebody has taken index 9, and perhaps the signal
//! ```

use std::fmt::{self, Debug, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::capture;
use super::contained::contained;

/// The stride of wgpu in this process.
static STRIDE: OnceLock<u64> = OnceLock::new();

/// The largest stride to be believed.
const MOST: u64 = 4;

/// The indices of the submissions of one device.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The largest index of a submission of the runtime whose marker is registered; 0 before the first.
    last: AtomicU64,
}

impl Order {
    /// Where the runtime's submissions stand. Asked before the signal of the next submission is staged.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The marker behind the submission with this index is registered. A callback may have made a later submission
    /// inside the call of the earlier submission.
    pub(super) fn marked(&self, index: u64) {
        self.last.fetch_max(index, Ordering::AcqRel);
    }

    /// Whether the submission with this index has taken the signal staged for the submission, when the signal is known
    /// to be taken. No other submission can have, if this submission comes directly behind the runtime's submission
    /// `last`, and has reached the driver.
    ///
    /// A call with a reported error has either failed, and a later submission has taken the signal; or the error
    /// belongs to a callback. Callbacks run only behind a submission in the driver's hands. `next` makes another
    /// submission, and returns its index.
    pub(super) fn is_own(
        &self,
        last: u64,
        index: u64,
        is_failure: bool,
        next: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let stride = STRIDE.get().copied();
        stride.is_some_and(|stride| self.is_own_by(stride, last, index, is_failure, next))
    }

    fn is_own_by(
        &self,
        stride: u64,
        last: u64,
        index: u64,
        is_failure: bool,
        next: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let is_next = last > 0 && last.checked_add(stride) == Some(index);
        // Only callbacks submit meanwhile: another thread has no turn.
        let ran_callbacks = || self.last() > index;
        is_next && (!is_failure || ran_callbacks() || next() == index.checked_add(1))
    }
}

/// Measures the stride, unless it is known. Nobody else may have the device yet.
pub(super) fn measure(device: &wgpu::Device, queue: &wgpu::Queue) {
    if STRIDE.get().is_some() {
        return;
    }
    let (indices, error) = capture(device, || {
        contained(|| {
            let first = queue.submit([]);
            queue.on_submitted_work_done(|| {});
            (first, queue.submit([]))
        })
    });
    if let (Ok((first, second)), None) = (indices, error)
        && let Some(stride) = stride_of(index_of(&first), index_of(&second))
    {
        // Another thread, with a device of its own, finds the same.
        let _ = STRIDE.set(stride);
    }
}

fn stride_of(first: Option<u64>, second: Option<u64>) -> Option<u64> {
    let stride = second?.checked_sub(first?)?;
    (1..=MOST).contains(&stride).then_some(stride)
}

/// The number in `SubmissionIndex { index: 12 }`.
pub(super) fn index_of(index: &impl Debug) -> Option<u64> {
    let mut text = Text::default();
    write!(text, "{index:?}").ok()?;
    let text = std::str::from_utf8(text.bytes.get(..text.len)?).ok()?;
    let digits = text.strip_prefix("SubmissionIndex { index: ")?;
    let digits = digits.strip_suffix(" }")?;
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    are_digits.then(|| digits.parse().ok()).flatten()
}

/// A short text without memory of its own.
struct Text {
    bytes: [u8; 64],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            bytes: [0; 64],
            len: 0,
        }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let free = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
