//! The end of the process.
//!
//! Some threads of the runtime are nobody's to wait for: they deliver prints, wake futures, or move bytes between
//! devices, and may be the last to let go of a device. When the process ends, drivers take themselves apart, and a
//! thread that is inside one then brings it down: of programs that ended right after they had dropped a device on
//! SwiftShader one in a hundred crashed. So these threads come through a door before they touch a device, and whoever
//! ends the process closes it first, as soon as all that are inside have come out.

use std::cell::Cell;
use std::sync::{Once, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

/// How long the end of the process waits for those inside. They come out within milliseconds, unless a device is at
/// work that somebody awaits.
const MOST: Duration = Duration::from_secs(2);

/// Between two looks of whoever closes the door.
const LOOK: Duration = Duration::from_micros(200);

static DOOR: Door = Door::new();

thread_local! {
    /// Without a destructor, so that it is there when the process ends.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What [`INSIDE`] is set back to, also where the work panics.
struct Back(bool);

impl Drop for Back {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

#[derive(Debug)]
struct Door(RwLock<()>);

impl Door {
    const fn new() -> Self {
        Self(RwLock::new(()))
    }

    fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        // Behind a closed door this waits for ever.
        let _inside = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let _back = Back(INSIDE.replace(true));
        work()
    }

    /// Closes the door for good; `false` if some are still inside after `most`, or this thread is itself.
    fn close(&self, most: Duration) -> bool {
        let begun = Instant::now();
        while !INSIDE.get() {
            match self.0.try_write() {
                Ok(closed) => {
                    std::mem::forget(closed);
                    return true;
                }
                Err(TryLockError::Poisoned(_)) => return false,
                Err(TryLockError::WouldBlock) if begun.elapsed() >= most => return false,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
        false
    }
}

/// Does what touches a device, or may let go of the last handle of one, on a thread that nobody waits for. Once the
/// process ends it never returns.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> T {
    DOOR.inside(work)
}

/// Has the door closed when the process ends. To be called when drivers have been loaded: what was registered last is
/// done first.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(system::watch);
}

#[cfg(unix)]
mod system {
    use super::{DOOR, MOST};

    extern "C" fn close() {
        DOOR.close(MOST);
    }

    #[allow(unsafe_code)]
    pub(super) fn watch() {
        // SAFETY: `close` is a function for good, takes nothing, does not unwind, and neither allocates nor touches
        // anything that ends before it.
        if unsafe { libc::atexit(close) } != 0 {
            log::debug!("the end of the process will not wait for threads of the runtime");
        }
    }
}

/// Elsewhere the system ends threads before libraries.
#[cfg(not(unix))]
mod system {
    pub(super) fn watch() {}
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_door_closes_when_all_have_come_out() {
        let door = Door::new();
        let (entered, has_entered) = channel();
        let (leave, may_leave) = channel::<()>();
        std::thread::scope(|scope| {
            let door = &door;
            let inside = scope.spawn(move || {
                door.inside(|| {
                    entered.send(()).unwrap();
                    may_leave.recv_timeout(Duration::from_secs(60)).unwrap();
                });
            });
            has_entered.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(!door.close(Duration::ZERO));
            leave.send(()).unwrap();
            assert!(door.close(Duration::from_secs(60)));
            inside.join().unwrap();
        });
        // Nobody comes in any more.
        assert!(door.0.try_read().is_err());
    }

    #[test]
    fn who_ends_the_process_from_inside_does_not_wait_for_himself() {
        let door = Door::new();
        assert!(!door.inside(|| door.close(Duration::from_secs(3600))));
        assert!(door.close(Duration::ZERO));
    }
}
