//! How long a thread that waits for MPI pauses between two looks.

use std::time::{Duration, Instant};

/// The distance between two looks.
#[derive(Default)]
pub(crate) struct Backoff {
    begun: Option<Instant>,
    looks: u32,
}

impl Backoff {
    /// Looks follow each other without a pause for so long: a message of a neighbour takes less.
    const SPIN: Duration = Duration::from_micros(50);
    /// Then the thread sleeps between looks, and gives its core to kernels that run on the processor. It does not yield: whoever yields
    /// beside busy threads comes back a time slice later, which is some milliseconds, and whoever sleeps when the time is over.
    const SLEEP: Duration = Duration::from_micros(20);

    /// Whether it is time for something rarer.
    pub(crate) fn is_slow(&self) -> bool {
        self.looks.is_multiple_of(16) && self.looks > 0
    }

    pub(crate) fn pause(&mut self) {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.looks = self.looks.wrapping_add(1);
        match begun.elapsed() < Self::SPIN {
            true => std::hint::spin_loop(),
            false => std::thread::sleep(Self::SLEEP),
        }
    }
}
