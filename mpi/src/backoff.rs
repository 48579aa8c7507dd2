//! How long a thread waiting for MPI pauses between two looks.

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
    /// Then the thread sleeps between looks, and gives its core to kernels on the processor. The thread does not yield:
    /// beside busy threads, a yielding thread comes back a time slice later, after some milliseconds, and a sleeping thread
    /// when the time is over.
    const SLEEP: Duration = Duration::from_micros(20);

    /// Whether the time has come for something rarer.
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
