//! How long recent waits took: a hint to threads when to look again instead of being woken.
//!
//! A thread asleep until the end of a long submission is woken late: 0.1 to 0.3 ms on an NVIDIA H200, or 4 % of a copy
//! of 256 MiB. But programs wait for the same again and again. So a thread sleeps until shortly before the likely end
//! by recent waits, and looks from then on.
//!
//! The processor time is bounded: a wait leaves a single time, and a vain look forgets the time, so each wait causes at
//! most a single [`window`] of vain looking.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Times kept: a program may wait for several kinds of work in turn.
const KEPT: usize = 4;
/// Longer waits gain nothing visible.
const LONGEST: Duration = Duration::from_millis(100);

/// How long the last long waits took, from submission to end, in microseconds; 0 for none. Hints: threads coming
/// between each other cost a time, and nothing else.
#[derive(Debug, Default)]
pub(super) struct Recent {
    times: [AtomicU32; KEPT],
    /// The place of the next time where all places are taken.
    next: AtomicUsize,
}

/// A time to look in, counted from the submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) range: Range<Duration>,
    place: usize,
}

/// When to look for an end after `time`. Early enough for a thread late twice: when woken to look, and when woken by
/// the end after `time`.
fn window(time: Duration) -> Range<Duration> {
    let [before, after] = [
        (time / 8).clamp(Duration::from_micros(400), Duration::from_micros(600)),
        (time / 16).clamp(Duration::from_micros(50), Duration::from_micros(250)),
    ];
    time.saturating_sub(before)..time + after
}

impl Recent {
    /// Notes how long a submission took to end.
    pub(super) fn note(&self, time: Duration) {
        if time > LONGEST {
            return;
        }
        let near = window(time);
        let known = (0..KEPT).find(|&place| near.contains(&self.time(place)));
        let place = known
            .or_else(|| (0..KEPT).find(|&place| self.time(place).is_zero()))
            .unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) % KEPT);
        // `LONGEST` in microseconds is far from the most of a `u32`.
        self.times[place].store(time.as_micros() as u32, Ordering::Relaxed);
    }

    /// The next time to look in, of a submission made `elapsed` ago.
    pub(super) fn next(&self, elapsed: Duration) -> Option<Window> {
        (0..KEPT)
            .filter(|&place| !self.time(place).is_zero())
            .map(|place| Window {
                range: window(self.time(place)),
                place,
            })
            .filter(|window| elapsed < window.range.end)
            .min_by_key(|window| window.range.start)
    }

    /// Forgets the time of a window after a vain look to the window's end.
    pub(super) fn was_in_vain(&self, window: &Window) {
        self.times[window.place].store(0, Ordering::Relaxed);
    }

    fn time(&self, place: usize) -> Duration {
        Duration::from_micros(self.times[place].load(Ordering::Relaxed).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    /// How late an end after `time` is seen by a thread that takes `waking` to be woken, and for how long the thread looks: an
    /// account of what [`Submissions::park`](super::super::Submissions) does.
    fn wait(recent: &Recent, time: u64, waking: u64) -> [u64; 2] {
        let end = micros(time);
        let (mut now, mut looked) = (Duration::ZERO, Duration::ZERO);
        let seen = loop {
            match recent.next(now) {
                Some(window) if now < window.range.start => {
                    if end < window.range.start {
                        break end + micros(waking);
                    }
                    now = window.range.start + micros(waking);
                }
                Some(window) => {
                    let until = end.clamp(now, window.range.end);
                    looked += until - now;
                    now = until;
                    if end <= now {
                        break now;
                    }
                    recent.was_in_vain(&window);
                }
                None => break end + micros(waking),
            }
        };
        recent.note(seen);
        [seen - end, looked].map(|time| time.as_micros() as u64)
    }

    #[test]
    fn the_same_again_is_seen_at_once() {
        for time in [400, 1_000, 5_000, 20_000, 90_000] {
            let recent = Recent::default();
            let [late, looked] = wait(&recent, time, 150);
            assert_eq!((late, looked), (150, 0), "{time}: nothing is known yet");
            for _ in 0..10 {
                let [late, looked] = wait(&recent, time, 150);
                assert_eq!(late, 0, "{time}");
                assert!(looked <= 600, "{time}: {looked} µs looked");
            }
            // A little more or less is the same.
            let more = (time / 50).min(200);
            for vary in [time - more, time, time + more, time] {
                assert_eq!(wait(&recent, vary, 150)[0], 0, "{time}: {vary}");
            }
        }
    }

    #[test]
    fn several_kinds_of_work_are_told_apart() {
        let recent = Recent::default();
        let mut late = 0;
        for _ in 0..20 {
            late = [9_000, 5_000, 2_000]
                .map(|time| wait(&recent, time, 150)[0])
                .iter()
                .sum();
        }
        // The longest is seen at once; each of the others is, unless the wait for a longer one has passed its time since.
        assert!(late <= 300, "{late}");
        for _ in 0..5 {
            wait(&recent, 2_000, 150);
        }
        assert_eq!(wait(&recent, 2_000, 150)[0], 0);
        assert_eq!(wait(&recent, 9_000, 150)[0], 0);
    }

    #[test]
    fn work_of_no_rule_costs_a_window_for_each_wait() {
        let recent = Recent::default();
        // As good as random, from 1 to 60 ms.
        let (mut random, mut looked, waits) = (1u64, 0, 2_000);
        for _ in 0..waits {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            looked += wait(&recent, 1_000 + (random >> 33) % 59_000, 150)[1];
        }
        assert!(looked <= waits * 850, "{} µs for each", looked / waits);
    }

    #[test]
    fn waits_of_other_orders_are_left_alone() {
        let recent = Recent::default();
        recent.note(LONGEST + micros(1));
        assert_eq!(recent.next(Duration::ZERO), None);
        recent.note(micros(5_000));
        let window = recent.next(Duration::ZERO).unwrap();
        assert_eq!(window.range, micros(4_400)..micros(5_250));
        // Behind it nobody looks, and in vain nobody looks twice.
        assert_eq!(recent.next(micros(5_250)), None);
        recent.was_in_vain(&window);
        assert_eq!(recent.next(Duration::ZERO), None);
    }
}
