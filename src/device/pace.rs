//! The back-off of threads that look for something by which nothing wakes them: the end of a batch without a signal, a
//! mapping, an answer in a port.

use std::thread;
use std::time::Duration;

/// The distances between two looks of such a thread.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    looks: u32,
}

/// Looks that follow each other at once.
const AT_ONCE: u32 = 8;

impl Pace {
    /// The longest distance, which bounds how late an end is seen.
    const MOST: Duration = Duration::from_millis(1);

    /// The pace of a thread that has looked in vain for long, and sleeps between two looks from now on.
    pub(crate) fn asleep() -> Self {
        Self { looks: AT_ONCE - 1 }
    }

    /// The next distance: nothing at first, then 16 µs, doubling.
    pub(crate) fn next(&mut self) -> Duration {
        self.looks = self.looks.saturating_add(1);
        match self.looks.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(sleeps) => (Duration::from_micros(16) * (1 << sleeps.min(6))).min(Self::MOST),
        }
    }

    /// Lets others have the processor until the next look; not beyond `left`.
    pub(crate) fn rest(&mut self, left: Option<Duration>) {
        let time = self.next();
        let time = left.map_or(time, |left| time.min(left));
        match time.is_zero() {
            true => thread::yield_now(),
            false => thread::sleep(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_follow_at_once_then_at_distances_that_double() {
        let distances = |mut pace: Pace, count| -> Vec<u64> {
            let next = (0..count).map(|_| pace.next().as_micros() as u64);
            next.collect()
        };
        let sleeps = [16, 32, 64, 128, 256, 512, 1000, 1000];
        assert_eq!(distances(Pace::asleep(), 8), sleeps);
        let all = distances(Pace::default(), 15);
        assert_eq!((&all[..7], &all[7..]), (&[0; 7][..], &sleeps[..]));
    }
}
