//! Others that need the queue again and again, and a server whose callers wait.
//!
//! A launch between two leases takes as long as two or three without: it waits for the one to end, and its owner for the other to be
//! submitted. So others that follow each other closely go ahead of the next lease a few times
//! ([`LeasePolicy::gives_way`](super::LeasePolicy::gives_way)), and calls wait for as many launches. Who comes alone is not waited for.

use std::time::Duration;

use super::core::{Core, Stage};
use crate::clock::Instant;

/// Others that need the queue within such a time of each other are said to follow each other.
const CLOSE: Duration = Duration::from_millis(1);
/// Between two looks for the next one, where kernels run on the processors of the host.
const LOOK: Duration = Duration::from_micros(20);

/// When a lease has last made room for others.
#[derive(Debug, Default)]
pub(super) struct Yielding(Option<Instant>);

impl Yielding {
    /// How long to wait for each of the next ones, if they follow each other. Behind a lease that has made room at `now`.
    fn gap(&mut self, now: Instant) -> Option<Duration> {
        let last = self.0.replace(now)?;
        Some(now - last).filter(|&gap| gap < CLOSE)
    }

    /// Waits until as many have asked for the queue as go ahead of a lease, or one that should have does not.
    pub fn give_way(&mut self, core: &Core) {
        let Some(gap) = self.gap(Instant::now()) else {
            return;
        };
        let device = core.device.as_ref();
        let is_shared = device.is_some_and(|device| device.capabilities().software);
        for _ in 0..core.policy.gives_way {
            let (known, begun) = (core.interrupts(), Instant::now());
            while core.interrupts() == known {
                if begun.elapsed() >= gap || core.stage() != Stage::Running {
                    return;
                }
                match is_shared {
                    true => std::thread::sleep(LOOK),
                    false => std::hint::spin_loop(),
                }
            }
        }
        self.0 = Some(Instant::now());
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
        assert_eq!(yielding.gap(at(0)), None, "the first one");
        assert_eq!(yielding.gap(at(80)), Some(Duration::from_micros(80)));
        assert_eq!(yielding.gap(at(100)), Some(Duration::from_micros(20)));
        assert_eq!(yielding.gap(at(5_000)), None, "one that comes alone");
        assert_eq!(yielding.gap(at(5_999)), Some(Duration::from_micros(999)));
    }
}
