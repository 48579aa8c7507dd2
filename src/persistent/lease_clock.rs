//! Ends leases on time while their relay is held up.
//!
//! A relay looking after a lease waits inside the driver, and a driver may keep the relay there: NVIDIA's holds a lock
//! of the process while a device is opened, until the card has switched contexts, and the switch waits for the lease
//! (`device::release`). The lease would end at the relay's request. So a thread never entering a driver asks in the
//! relay's place.

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::clock::Instant;
use crate::device::wait::lock;

/// The clock of the process.
static CLOCK: OnceLock<Option<LeaseClock>> = OnceLock::new();

/// Leases, and their due times.
#[derive(Default)]
struct LeaseClock {
    leases: Mutex<Leases>,
    changed: Condvar,
}

#[derive(Default)]
struct Leases {
    last: u64,
    running: Vec<Running>,
}

struct Running {
    number: u64,
    due: Instant,
    ask: Box<dyn FnOnce() + Send>,
}

/// A lease under watch: until this value is dropped.
pub(super) struct Watched {
    clock: &'static LeaseClock,
    number: u64,
}

/// Calls `ask` once so much time has passed, unless the value returned was dropped before. `ask` must not enter a
/// driver, nor wait; its contents are dropped with the returned value at the latest, by the same thread. `None` where
/// no thread could be had: then nobody asks.
pub(super) fn ask_after(time: Duration, ask: impl FnOnce() + Send + 'static) -> Option<Watched> {
    let clock = CLOCK.get_or_init(start).as_ref()?;
    let due = Instant::now().checked_add(time)?;
    Some(clock.add(due, Box::new(ask)))
}

/// The clock goes from here on to the end of the process.
fn start() -> Option<LeaseClock> {
    let spawned = std::thread::Builder::new()
        .name("tombolo leases".to_owned())
        .spawn(|| {
            // The value is there once `get_or_init` returns.
            if let Some(clock) = CLOCK.wait() {
                clock.run();
            }
        });
    match spawned {
        Ok(_) => Some(LeaseClock::default()),
        Err(error) => {
            log::warn!("a lease may last longer than its time, for want of a thread: {error}");
            None
        }
    }
}

impl LeaseClock {
    fn add(&'static self, due: Instant, ask: Box<dyn FnOnce() + Send>) -> Watched {
        let mut leases = lock(&self.leases);
        leases.last += 1;
        let number = leases.last;
        let is_first = leases.running.iter().all(|other| due < other.due);
        leases.running.push(Running { number, due, ask });
        if is_first {
            self.changed.notify_one();
        }
        Watched {
            clock: self,
            number,
        }
    }

    fn run(&self) {
        let mut leases = lock(&self.leases);
        loop {
            let first = leases.running.iter().map(|lease| lease.due).min();
            let Some(due) = first else {
                let woken = self.changed.wait(leases);
                leases = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let woken = self.changed.wait_timeout(leases, left);
                leases = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            // Asked with the lock: a thread dropping `Watched` waits for the lock, and holds the server meanwhile.
            if let Some(index) = leases.running.iter().position(|lease| lease.due == due) {
                (leases.running.swap_remove(index).ask)();
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut leases = lock(&self.clock.leases);
        let index = (leases.running.iter()).position(|lease| lease.number == self.number);
        let gone = index.map(|index| leases.running.swap_remove(index));
        drop(leases);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn leases_are_asked_when_they_are_due_and_in_that_order() {
        let (tell, told) = channel();
        let ask = |time, number: u32| {
            let tell = tell.clone();
            ask_after(time, move || tell.send(number).unwrap()).unwrap()
        };
        let late = ask(LONG, 0);
        let _now = ask(Duration::ZERO, 1);
        assert_eq!(told.recv_timeout(DEADLINE), Ok(1));
        let _soon = ask(Duration::from_millis(1), 2);
        assert_eq!(told.recv_timeout(DEADLINE), Ok(2));
        drop(late);
        drop(tell);
        // Every asker is gone, asked or not.
        assert_eq!(
            told.recv_timeout(DEADLINE),
            Err(RecvTimeoutError::Disconnected)
        );
    }

    #[test]
    fn who_drops_a_watched_lease_has_the_last_hold_of_what_asks() {
        let held = Arc::new(());
        let other = Arc::clone(&held);
        let watched = ask_after(LONG, move || drop(other));
        assert_eq!(Arc::strong_count(&held), 2);
        drop(watched);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
