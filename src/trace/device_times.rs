//! The times of devices in a trace: each launch lies between two timestamps, and both go to the file.
//!
//! A device's clock begins at a moment known only to the driver. A launch has ended before the host learns of the end,
//! so the smallest distance ever seen between the two is the best guess of the clock's beginning.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::chrome::Recording;
use crate::device::completion_hook::CompletionHook;
use crate::device::outcome::ExecutionError;
use crate::device::profile::TimingSlot;
use crate::device::wait::lock;

/// The trace that is being recorded.
static CURRENT: Mutex<Weak<Recording>> = Mutex::new(Weak::new());

/// Makes `recording` the owner of the devices' times; `false` while there is another.
pub(super) fn begin(recording: &Arc<Recording>) -> bool {
    let mut current = lock(&CURRENT);
    // A subscriber keeps the recording for good.
    let is_free = !current.upgrade().is_some_and(|known| known.is_open());
    if is_free {
        *current = Arc::downgrade(recording);
    }
    is_free
}

/// The trace that is being recorded, if any.
pub(crate) fn current() -> Option<Arc<Recording>> {
    lock(&CURRENT).upgrade().filter(|known| known.is_open())
}

/// A launch whose times go to a trace.
pub(crate) struct TracedLaunch {
    pub recording: Weak<Recording>,
    pub slot: TimingSlot,
    pub device: String,
    pub kernel: String,
}

impl CompletionHook for TracedLaunch {
    fn is_readable(&self) -> bool {
        !matches!(self.slot.times_now(), Some(None))
    }

    fn ended(&self, done: bool) -> Result<(), ExecutionError> {
        if done
            && let Some(recording) = self.recording.upgrade()
            && let Some((started, ended)) = self.slot.times_now().flatten()
        {
            recording.device_ran(&self.device, &self.kernel, started, ended);
        }
        Ok(())
    }
}

/// Where the clock of a device begins, by the clock of a trace.
#[derive(Debug, Default)]
pub(super) struct ClockOffset(Option<i128>);

impl ClockOffset {
    /// The time of the trace, in nanoseconds, at a time of the device; `now` the device's time `ended` is past.
    pub(super) fn place(&mut self, now: Duration, ended: Duration, time: Duration) -> u64 {
        let seen = now.as_nanos() as i128 - ended.as_nanos() as i128;
        let least = self.0.map_or(seen, |known| known.min(seen));
        self.0 = Some(least);
        (time.as_nanos() as i128 + least).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_as_close_as_the_quickest_answer() {
        let ms = Duration::from_millis;
        let mut clock = ClockOffset::default();
        // The device's clock is 100 ms ahead; the host learns of the end 5, 1 and 3 ms later.
        assert_eq!(clock.place(ms(25), ms(120), ms(110)), 15_000_000);
        assert_eq!(clock.place(ms(41), ms(140), ms(130)), 31_000_000);
        assert_eq!(clock.place(ms(63), ms(160), ms(150)), 51_000_000);
        // Nothing lies before the beginning of the trace.
        assert_eq!(clock.place(ms(64), ms(164), ms(20)), 0);
    }
}
