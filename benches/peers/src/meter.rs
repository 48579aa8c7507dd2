//! Pairs of measurements by a clock that can be chosen.

use crate::clock::Clock;
use crate::support;
use crate::{Error, PAIRS};

/// How pairs are measured.
#[derive(Clone, Copy)]
pub struct Meter {
    pub clock: Clock,
}

/// Seconds that a measurement takes at least, where so many launches can fill them.
const LEAST: f64 = 0.02;
const MOST_LAUNCHES: u32 = 100;

impl Meter {
    /// How many launches make a measurement long enough, by one that is measured.
    pub fn times(self, mut launch: impl FnMut() -> Result<(), Error>) -> Result<u32, Error> {
        let one = self.seconds(&mut launch)?;
        // A time of zero makes a number that is too large for the cast, which saturates.
        Ok(((LEAST / one).ceil() as u32).clamp(1, MOST_LAUNCHES))
    }

    /// Ratios of ours to theirs, run in turn after a warm-up. Who goes second finds warmer caches: both take turns.
    pub fn pairs(
        self,
        ours: impl FnMut() -> Result<(), Error>,
        theirs: impl FnMut() -> Result<(), Error>,
    ) -> Result<Vec<f64>, Error> {
        support::pairs_by(|work| self.seconds(work), PAIRS, ours, theirs)
    }

    fn seconds(self, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error> {
        let begun = self.clock.now();
        work()?;
        Ok(begun.elapsed().as_secs_f64())
    }
}
