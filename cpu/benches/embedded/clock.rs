//! How time is taken.

use std::time::{Duration, Instant};

/// A clock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The time that goes by
    Wall,
    /// The time of all threads of the process on processors
    Cpu,
}

/// A point in time.
pub enum Moment {
    Wall(Instant),
    Cpu(Duration),
}

impl Clock {
    pub fn now(self) -> Moment {
        match self {
            Clock::Wall => Moment::Wall(Instant::now()),
            Clock::Cpu => Moment::Cpu(on_processors()),
        }
    }
}

impl Moment {
    pub fn elapsed(&self) -> Duration {
        match self {
            Moment::Wall(begin) => begin.elapsed(),
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

#[cfg(not(unix))]
fn on_processors() -> Duration {
    Duration::ZERO
}
