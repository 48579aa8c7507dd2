//! How time is taken.

use std::fmt;
use std::time::{Duration, Instant};

/// A clock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The time that goes by
    Wall,
    /// The time of all threads of the process on processors
    #[cfg(unix)]
    Cpu,
}

/// A point in time.
pub enum Moment {
    Wall(Instant),
    #[cfg(unix)]
    Cpu(Duration),
}

/// A system whose clock of processor time this benchmark does not know.
#[derive(Debug)]
pub struct NotMeasured;

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(
            "not measured: processor time is known on Unix only; leave out the argument `cpu`",
        )
    }
}

impl std::error::Error for NotMeasured {}

impl Clock {
    /// The clock of processor time.
    ///
    /// # Errors
    /// If the system has none that is known here: zeros in its place would make ratios that are no numbers.
    pub fn of_processors() -> Result<Self, NotMeasured> {
        #[cfg(unix)]
        return Ok(Clock::Cpu);
        #[cfg(not(unix))]
        Err(NotMeasured)
    }

    pub fn now(self) -> Moment {
        match self {
            Clock::Wall => Moment::Wall(Instant::now()),
            #[cfg(unix)]
            Clock::Cpu => Moment::Cpu(on_processors()),
        }
    }
}

impl Moment {
    pub fn elapsed(&self) -> Duration {
        match self {
            Moment::Wall(begin) => begin.elapsed(),
            #[cfg(unix)]
            Moment::Cpu(begin) => on_processors().saturating_sub(*begin),
        }
    }
}

#[cfg(unix)]
fn on_processors() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is writable memory. With this clock the call does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
