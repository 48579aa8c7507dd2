//! When an unending lease counts as stuck.
//!
//! Time alone does not tell: where kernels run on the host's processors, and so do the compilers of all drivers, a busy
//! machine may give kernels and compilers nothing for seconds. So the machine has to show its time for this process.
//!
//! # How it works
//!
//! 1. Until the limit has passed without a sign of life, nothing is suspected.
//! 2. From then on the thread looking after the lease keeps a processor busy for a moment at each look, and adds up its
//!    time with a processor. While the thread had none, two readings of the clock lie far apart: such gaps do not
//!    count.
//! 3. When an eighth of the limit has come together, the lease is stuck: on a fair machine each of its threads had as
//!    much beside the looking one, and still there was no sign of life.
//!
//! The processor time of the process would not do: a stuck lease on a card takes none, and other threads of the process
//! may take all there is.

use std::time::Duration;

use crate::clock::Instant;

/// A first lease without a taken call by then, and without an end, is stuck. Drivers compiling a kernel at its first
/// launch take several seconds for a kernel with many calls of the host, and longer on a busy machine.
pub(super) const BEGINS_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// The part of the limit for which the looking thread must have had a processor.
const PART: u32 = 8;
/// How long the looking thread keeps a processor busy at a look, at most.
const MOMENT: Duration = Duration::from_millis(10);
/// Two readings of the clock lying further apart have something else in between.
const GAP: Duration = Duration::from_micros(500);

/// The evidence against a lease without signs of life.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// How long the looking thread had a processor since.
    had: Duration,
}

impl Suspicion {
    /// Whether a lease without signs of life for the time `waited` is stuck, where a lease may take `limit`. Asked at
    /// each look; takes ten milliseconds of the processor at most, and none before the limit.
    pub(super) fn confirms(&mut self, waited: Duration, limit: Duration) -> bool {
        // A page has a single thread, not to be kept, and too coarse a clock.
        match cfg!(web) {
            true => waited >= limit,
            false => self.confirms_by(waited, limit, Instant::now),
        }
    }

    fn confirms_by(
        &mut self,
        waited: Duration,
        limit: Duration,
        mut now: impl FnMut() -> Instant,
    ) -> bool {
        if waited < limit {
            self.had = Duration::ZERO;
            return false;
        }
        let wanted = limit / PART;
        let begun = now();
        let mut last = begun;
        while self.had < wanted && last.saturating_duration_since(begun) < MOMENT {
            std::hint::spin_loop();
            let time = now();
            let gap = time.saturating_duration_since(last);
            if gap <= GAP {
                self.had += gap;
            }
            last = time;
        }
        self.had >= wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// A clock of a thread having a processor for `run` at a time, and then none for `rest`.
    fn clock(run: Duration, rest: Duration) -> impl FnMut() -> Instant {
        let (step, mut time, mut ran) = (Duration::from_micros(50), Instant::now(), Duration::ZERO);
        move || {
            ran += step;
            time += step;
            if ran >= run {
                ran = Duration::ZERO;
                time += rest;
            }
            time
        }
    }

    /// After how long a lease is stuck, with a look every 15 ms of the clock at most.
    fn stuck_after(mut now: impl FnMut() -> Instant) -> Duration {
        let begun = now();
        let mut suspicion = Suspicion::default();
        loop {
            let waited = now() - begun;
            if suspicion.confirms_by(waited, LIMIT, &mut now) {
                assert!(waited >= LIMIT);
                return now() - begun;
            }
            assert!(waited < 10_000 * LIMIT, "a lease is never stuck");
        }
    }

    #[test]
    fn a_lease_is_stuck_once_the_machine_had_time_for_it() {
        let ms = Duration::from_millis;
        // A processor for itself.
        let idle = stuck_after(clock(ms(1_000_000), ms(0)));
        assert!(
            idle >= LIMIT && idle < LIMIT + LIMIT / PART + ms(20),
            "{idle:?}"
        );
        // Every hundredth millisecond: the lease has its eighth all the same.
        let busy = stuck_after(clock(ms(1), ms(99)));
        assert!(busy >= LIMIT + 90 * (LIMIT / PART), "{busy:?}");
    }

    #[test]
    fn no_time_for_the_process_speaks_against_no_lease() {
        let starved = || clock(Duration::from_micros(50), Duration::from_millis(30));
        let mut now = starved();
        let mut suspicion = Suspicion::default();
        for _ in 0..10_000 {
            assert!(!suspicion.confirms_by(100 * LIMIT, LIMIT, &mut now));
        }
        assert_eq!(suspicion.had, Duration::ZERO);
    }

    #[test]
    fn a_sign_of_life_clears_a_lease() {
        let mut now = clock(Duration::MAX, Duration::ZERO);
        let mut suspicion = Suspicion::default();
        let looks = (LIMIT / PART).as_millis() / MOMENT.as_millis();
        for _ in 0..looks {
            assert!(!suspicion.confirms_by(LIMIT, LIMIT, &mut now));
        }
        assert!(!suspicion.confirms_by(LIMIT - Duration::from_nanos(1), LIMIT, &mut now));
        for _ in 0..looks {
            assert!(!suspicion.confirms_by(LIMIT, LIMIT, &mut now));
        }
        assert!(suspicion.confirms_by(LIMIT, LIMIT, &mut now));
        // A server never taking a lease for stuck.
        assert!(!suspicion.confirms_by(LIMIT, Duration::MAX, &mut now));
    }
}
