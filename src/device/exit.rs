//! The end of the process.
//!
//! Threads of the runtime deliver prints, wake futures, or move bytes between devices, and may be the last to let go of
//! a device, and with it of a driver. When the process ends, drivers take themselves apart, and a thread that is inside
//! one then, or unloads it, brings the process down: of programs that ended right after they had dropped a device one
//! in a hundred crashed. So whoever drops a device waits for its threads where he can ([`Worker`]); and they come through
//! a door before they touch a device, which whoever ends the process closes first, as soon as all that are inside have
//! come out. Servers and services have threads of their own, which end where those are stopped or dropped.

use std::cell::Cell;
#[cfg(any(unix, test))]
use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
#[cfg(any(unix, test))]
use std::time::{Duration, Instant};

use super::wait::lock;

/// How long the end of the process waits for those inside. They come out within milliseconds, unless a device is at
/// work that somebody awaits.
#[cfg(unix)]
const MOST: Duration = Duration::from_secs(2);

/// Between two looks of whoever closes the door.
#[cfg(any(unix, test))]
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
struct Door {
    lock: RwLock<()>,
    is_closed: AtomicBool,
}

impl Door {
    const fn new() -> Self {
        Self {
            lock: RwLock::new(()),
            is_closed: AtomicBool::new(false),
        }
    }

    fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        // Behind a closed door this waits for ever.
        let _inside = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        let _back = Back(INSIDE.replace(true));
        work()
    }

    /// Closes the door for good; `false` if some are still inside after `most`, or this thread is itself.
    #[cfg(any(unix, test))]
    fn close(&self, most: Duration) -> bool {
        let begun = Instant::now();
        while !INSIDE.get() && !self.is_closed.load(Ordering::Acquire) {
            match self.lock.try_write() {
                Ok(closed) => {
                    self.is_closed.store(true, Ordering::Release);
                    std::mem::forget(closed);
                    return true;
                }
                Err(TryLockError::Poisoned(_)) => return false,
                Err(TryLockError::WouldBlock) if begun.elapsed() >= most => return false,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Does what touches a device, or may let go of the last handle of one, on a thread that nobody waits for. Once the
/// process ends it never returns.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> T {
    DOOR.inside(work)
}

/// How often the door is watched at most: drivers register what they do at the end when they are first used, and there
/// are not more of them.
const WATCHES: usize = 32;

/// Has the door closed when the process ends. To be called when a driver has been used: what was registered last is
/// done first.
pub(crate) fn watch() {
    static WATCHED: AtomicUsize = AtomicUsize::new(0);
    if WATCHED.fetch_add(1, Ordering::Relaxed) < WATCHES {
        system::watch();
    } else {
        WATCHED.store(WATCHES, Ordering::Relaxed);
    }
}

/// A thread that whoever drops what it works for waits for, so that it is not the last to hold a device.
#[derive(Debug, Default)]
pub(crate) struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    pub(crate) fn is(&self, thread: JoinHandle<()>) {
        *lock(&self.0) = Some(thread);
    }

    /// Waits for it, unless it is this thread itself. It must have been told to end.
    ///
    /// Threads that are inside wait for nobody, since two might wait for each other; and behind a closed door no thread ends.
    pub(crate) fn join(&self) {
        self.join_unless(&DOOR);
    }

    fn join_unless(&self, door: &Door) {
        let thread = lock(&self.0).take();
        if let Some(thread) = thread
            && !INSIDE.get()
            && !door.is_closed.load(Ordering::Acquire)
            && thread.thread().id() != std::thread::current().id()
        {
            // It says so itself if it panics.
            let _ = thread.join();
        }
    }
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
        // Nobody comes in any more, and it is closed once.
        assert!(door.lock.try_read().is_err());
        assert!(door.close(Duration::ZERO));
    }

    #[test]
    fn who_ends_the_process_from_inside_does_not_wait_for_himself() {
        let door = Door::new();
        assert!(!door.inside(|| door.close(Duration::from_secs(3600))));
        assert!(door.close(Duration::ZERO));
    }

    #[test]
    fn whoever_drops_what_a_thread_works_for_waits_for_it() {
        let door = Door::new();
        let start = || {
            let worker = Worker::default();
            let ((leave, may_leave), (left, has_left)) = (channel::<()>(), channel());
            worker.is(std::thread::spawn(move || {
                let _ = may_leave.recv_timeout(Duration::from_secs(60));
                left.send(()).unwrap();
            }));
            (worker, leave, has_left)
        };
        let (worker, leave, has_left) = start();
        leave.send(()).unwrap();
        worker.join_unless(&door);
        has_left.try_recv().unwrap();
        // From inside, and when the process ends, nobody waits for threads that may not end.
        let (worker, leave, has_left) = start();
        door.inside(|| worker.join_unless(&door));
        has_left.try_recv().unwrap_err();
        leave.send(()).unwrap();
        let (worker, leave, has_left) = start();
        assert!(door.close(Duration::ZERO));
        worker.join_unless(&door);
        has_left.try_recv().unwrap_err();
        leave.send(()).unwrap();
    }
}
