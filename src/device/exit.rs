//! The end of the process.
//!
//! Threads of the runtime deliver prints, wake futures, or move bytes between devices, and may be the last to let go of
//! a device, and with it of a driver. At the end of the process drivers take themselves apart, and a thread inside a
//! driver at that time, or unloading one, brings the process down: of programs ending right after a device was dropped,
//! one in a hundred crashed. So dropping a device waits for the threads of the device where possible ([`Worker`]); and
//! each thread passes a [`ShutdownGuard`] before touching a device. The end of the process closes that guard first, as
//! soon as all threads inside have come out. Servers and services have threads of their own, ending when the server or
//! service is stopped or dropped.

use std::cell::Cell;
#[cfg(any(unix, test))]
use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
#[cfg(any(unix, test))]
use std::time::Duration;

use super::wait::lock;
#[cfg(any(unix, test))]
use crate::clock::Instant;

/// How long the end of the process waits for those inside. Threads come out within milliseconds, unless a device is at
/// work on an awaited command.
#[cfg(unix)]
const MOST: Duration = Duration::from_secs(2);

/// How long it waits for devices that end inside: a driver may take seconds for one, and is not to be unloaded meanwhile.
#[cfg(unix)]
const MOST_FOR_DEVICES: Duration = Duration::from_secs(30);

/// Between two looks of the thread that closes the guard.
#[cfg(any(unix, test))]
const LOOK: Duration = Duration::from_micros(200);

static SHUTDOWN: ShutdownGuard = ShutdownGuard::new();

thread_local! {
    /// Without a destructor, to be there at the end of the process.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Resets [`INSIDE`], also after a panic of the work.
struct Back(bool);

impl Drop for Back {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

#[derive(Debug)]
struct ShutdownGuard {
    lock: RwLock<()>,
    is_closed: AtomicBool,
    /// Devices whose ends are under way inside.
    ending: AtomicUsize,
}

impl ShutdownGuard {
    const fn new() -> Self {
        Self {
            lock: RwLock::new(()),
            is_closed: AtomicBool::new(false),
            ending: AtomicUsize::new(0),
        }
    }

    fn ending<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Ended<'g>(&'g AtomicUsize);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Release);
            }
        }
        // Around: nobody sees the count gone and the thread inside.
        self.ending.fetch_add(1, Ordering::Release);
        let _ended = Ended(&self.ending);
        self.inside(work)
    }

    fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        // Behind a closed guard this waits for ever.
        let _inside = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        let _back = Back(INSIDE.replace(true));
        work()
    }

    /// Closes the guard for good; `false` if threads are still inside after `most`, and where a device ends there after
    /// `for_devices`, or if this thread is inside.
    #[cfg(any(unix, test))]
    fn close(&self, most: Duration, for_devices: Duration) -> bool {
        let begun = Instant::now();
        let mut last = begun;
        while !INSIDE.get() && !self.is_closed.load(Ordering::Acquire) {
            // Before the attempt: a device that has ended then is not inside any more, or about to leave.
            let ends = self.ending.load(Ordering::Acquire) > 0;
            if ends {
                last = Instant::now();
            }
            let is_over = || match ends {
                true => begun.elapsed() >= most.max(for_devices),
                false => last.elapsed() >= most,
            };
            match self.lock.try_write() {
                Ok(closed) => {
                    self.is_closed.store(true, Ordering::Release);
                    std::mem::forget(closed);
                    return true;
                }
                Err(TryLockError::Poisoned(_)) => return false,
                Err(TryLockError::WouldBlock) if is_over() => return false,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Runs work that touches a device, or may drop the last handle of a device, on a thread without waiters. Once the
/// process ends the call never returns.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> T {
    SHUTDOWN.inside(work)
}

/// As [`inside`], where the work is the end of a device.
pub(crate) fn ending<T>(work: impl FnOnce() -> T) -> T {
    SHUTDOWN.ending(work)
}

/// The end of a device, from the drop that begins it to the drop of this value, counted where it is inside.
#[derive(Debug, Default)]
pub(crate) struct DeviceEnd(AtomicBool);

impl DeviceEnd {
    pub(crate) fn begins(&self) {
        if INSIDE.get() && !self.0.swap(true, Ordering::Relaxed) {
            SHUTDOWN.ending.fetch_add(1, Ordering::Release);
        }
    }
}

impl Drop for DeviceEnd {
    fn drop(&mut self) {
        if *self.0.get_mut() {
            SHUTDOWN.ending.fetch_sub(1, Ordering::Release);
        }
    }
}

/// The most times the guard is watched: drivers register their exit handlers at first use, and there are not more
/// drivers.
const WATCHES: usize = 32;

/// Has the guard closed when the process ends. To be called after the first use of a driver: the last registered
/// handler runs first.
pub(crate) fn watch() {
    static WATCHED: AtomicUsize = AtomicUsize::new(0);
    if WATCHED.fetch_add(1, Ordering::Relaxed) < WATCHES {
        system::watch();
    } else {
        WATCHED.store(WATCHES, Ordering::Relaxed);
    }
}

/// A thread whose owner waits for the thread's end on drop, so the thread is never the last holder of a device.
#[derive(Debug, Default)]
pub(crate) struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    pub(crate) fn is(&self, thread: JoinHandle<()>) {
        *lock(&self.0) = Some(thread);
    }

    /// Whether the thread is over, or was never there.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.0).as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread, except on the thread itself. The thread must have been told to end.
    ///
    /// Threads inside never wait, since two might wait for each other; and behind a closed guard no thread ends.
    pub(crate) fn join(&self) {
        self.join_unless(&SHUTDOWN);
    }

    fn join_unless(&self, guard: &ShutdownGuard) {
        let thread = lock(&self.0).take();
        if let Some(thread) = thread
            && !INSIDE.get()
            && !guard.is_closed.load(Ordering::Acquire)
            && thread.thread().id() != std::thread::current().id()
        {
            // A panicking thread reports the panic.
            let _ = thread.join();
        }
    }
}

#[cfg(unix)]
mod system {
    use super::{MOST, MOST_FOR_DEVICES, SHUTDOWN};

    extern "C" fn close() {
        SHUTDOWN.close(MOST, MOST_FOR_DEVICES);
    }

    #[allow(unsafe_code)]
    pub(super) fn watch() {
        // SAFETY: `close` is a function for good, takes nothing, does not unwind, and neither allocates nor touches
        // anything ending earlier.
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

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_guard_closes_when_all_have_come_out() {
        let guard = ShutdownGuard::new();
        let (entered, has_entered) = channel();
        let (leave, may_leave) = channel::<()>();
        std::thread::scope(|scope| {
            let guard = &guard;
            let inside = scope.spawn(move || {
                guard.inside(|| {
                    entered.send(()).unwrap();
                    may_leave.recv_timeout(MINUTE).unwrap();
                });
            });
            has_entered.recv_timeout(MINUTE).unwrap();
            assert!(!guard.close(Duration::ZERO, Duration::ZERO));
            leave.send(()).unwrap();
            assert!(guard.close(MINUTE, Duration::ZERO));
            inside.join().unwrap();
        });
        // No thread comes in any more, and the guard is closed once.
        assert!(guard.lock.try_read().is_err());
        assert!(guard.close(Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn the_end_of_a_device_is_waited_for_longer() {
        let guard = ShutdownGuard::new();
        let ((entered, has_entered), (leave, may_leave)) = (channel(), channel::<()>());
        std::thread::scope(|scope| {
            let guard = &guard;
            scope.spawn(move || {
                guard.ending(|| {
                    entered.send(()).unwrap();
                    may_leave.recv_timeout(MINUTE).unwrap();
                });
            });
            has_entered.recv_timeout(MINUTE).unwrap();
            assert!(!guard.close(Duration::ZERO, Duration::ZERO));
            let closing = scope.spawn(|| guard.close(Duration::ZERO, MINUTE));
            leave.send(()).unwrap();
            assert!(closing.join().unwrap());
        });
    }

    #[test]
    fn who_ends_the_process_from_inside_does_not_wait_for_himself() {
        let guard = ShutdownGuard::new();
        assert!(!guard.inside(|| guard.close(MINUTE, MINUTE)));
        assert!(guard.close(Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn whoever_drops_what_a_thread_works_for_waits_for_it() {
        let guard = ShutdownGuard::new();
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
        worker.join_unless(&guard);
        has_left.try_recv().unwrap();
        // From inside, and at the end of the process, there is no wait for threads that may not end.
        let (worker, leave, has_left) = start();
        guard.inside(|| worker.join_unless(&guard));
        has_left.try_recv().unwrap_err();
        leave.send(()).unwrap();
        let (worker, leave, has_left) = start();
        assert!(guard.close(Duration::ZERO, Duration::ZERO));
        worker.join_unless(&guard);
        has_left.try_recv().unwrap_err();
        leave.send(()).unwrap();
    }
}
