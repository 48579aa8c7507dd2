//! Others in need of the queue again and again, and a server whose callers wait.
//!
//! A launch between two leases takes as long as two or three without: the launch waits for the earlier lease to end,
//! and its owner for the later lease to be submitted. So others following each other closely go ahead of the next lease
//! a few times ([`LeasePolicy::gives_way`](super::LeasePolicy::gives_way)), and calls wait for as many launches. A lone
//! submission is not waited for.
//!
//! Where kernels run on the processors of the host, callers yield processors meanwhile ([`Core::others_first`]): a
//! launch beside a caller looking for an answer took twice as long.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::{Core, Stage};
use crate::clock::Instant;

/// Others in need of the queue within such a time of each other are said to follow each other; where kernels run on the
/// processors of the host, later. Slower followers lose little by taking turns, and calls wait in vain so long at most.
const CLOSE: Duration = Duration::from_micros(250);
/// See [`CLOSE`].
const CLOSE_ON_HOST: Duration = Duration::from_millis(1);
/// Between two looks for the next one, where kernels run on the processors of the host.
const LOOK: Duration = Duration::from_micros(20);

/// When a lease has last made room for others.
#[derive(Debug, Default)]
pub(super) struct Yielding(Option<Instant>);

impl Yielding {
    /// How long to wait for each of the next submissions, if they follow each other. Behind a lease that has made room
    /// at `now`.
    fn gap(&mut self, now: Instant, close: Duration) -> Option<Duration> {
        let last = self.0.replace(now)?;
        Some(now - last).filter(|&gap| gap < close)
    }

    /// Waits until as many have asked for the queue as go ahead of a lease, or an expected one fails to ask.
    pub fn give_way(&mut self, core: &Core) {
        let device = core.device.as_ref();
        let is_on_host = device.is_some_and(|device| device.capabilities().software);
        let close = if is_on_host { CLOSE_ON_HOST } else { CLOSE };
        let Some(gap) = self.gap(Instant::now(), close) else {
            return;
        };
        core.others_first.store(is_on_host, Ordering::Relaxed);
        if Self::all_come(core, gap, is_on_host) {
            self.0 = Some(Instant::now());
        }
        core.others_first.store(false, Ordering::Relaxed);
    }

    /// Whether as many have asked for the queue as go ahead of a lease, each within `gap` of the one before.
    fn all_come(core: &Core, gap: Duration, is_on_host: bool) -> bool {
        for _ in 0..core.policy.gives_way {
            let (known, begun) = (core.interrupts(), Instant::now());
            while core.interrupts() == known {
                if begun.elapsed() >= gap || core.stage() != Stage::Running {
                    return false;
                }
                match is_on_host {
                    true => std::thread::sleep(LOOK),
                    false => std::hint::spin_loop(),
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_follow_each_other_are_waited_for() {
        let begun = Instant::now();
        let at = |microseconds| begun + Duration::from_micros(microseconds);
        let mut yielding = Yielding::default();
        let mut gap = |microseconds| yielding.gap(at(microseconds), Duration::from_micros(250));
        assert_eq!(gap(0), None, "the first one");
        assert_eq!(gap(80), Some(Duration::from_micros(80)));
        assert_eq!(gap(100), Some(Duration::from_micros(20)));
        assert_eq!(gap(5_000), None, "one that comes alone");
        assert_eq!(gap(5_249), Some(Duration::from_micros(249)));
        assert_eq!(gap(5_499), None, "one that comes later");
    }
}
