//! Futures arriving while the waker thread ends for lack of futures.

/// As loom's, but every wait ends by its time limit, after other threads have had the lock if wanted.
mod sync {
    use std::ops::{Deref, DerefMut};
    use std::sync::LockResult;
    use std::time::Duration;

    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    #[derive(Debug)]
    pub struct MutexGuard<'m, T> {
        mutex: &'m Mutex<T>,
        guard: loom::sync::MutexGuard<'m, T>,
    }

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            let guard = self.0.lock().unwrap();
            Ok(MutexGuard { mutex: self, guard })
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    #[derive(Debug)]
    pub struct Condvar;

    pub struct TimedOut;

    impl TimedOut {
        pub fn timed_out(&self) -> bool {
            true
        }
    }

    impl Condvar {
        pub fn new() -> Self {
            Self
        }

        pub fn notify_all(&self) {}

        pub fn wait_timeout<'m, T>(
            &self,
            guard: MutexGuard<'m, T>,
            _: Duration,
        ) -> LockResult<(MutexGuard<'m, T>, TimedOut)> {
            let mutex = guard.mutex;
            drop(guard);
            Ok((mutex.lock().unwrap(), TimedOut))
        }
    }
}

#[path = "../waker_set.rs"]
#[allow(clippy::duplicate_mod)]
mod waker_set;

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use loom::sync::Arc;
use loom::thread;
use waker_set::WakerSet;

/// Counts the wakes; of no interest to loom.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread, whose looks find whatever it is asked for.
fn run(wakers: &WakerSet<u32>, wait: fn(&WakerSet<u32>) -> bool) {
    while wait(wakers) {
        wakers.take(|_| true).into_iter().for_each(Waker::wake);
    }
}

fn two_come(wait: fn(&WakerSet<u32>) -> bool) {
    loom::model(move || {
        let wakers = Arc::new(WakerSet::default());
        let come = move |wakers: &WakerSet<u32>, key: u32| {
            let count = std::sync::Arc::new(Count::default());
            let waker = Waker::from(std::sync::Arc::clone(&count));
            if wakers.register(key, &waker, |known, _| *known == key) {
                run(wakers, wait);
            }
            count
        };
        let other = {
            let wakers = Arc::clone(&wakers);
            thread::spawn(move || come(&wakers, 1))
        };
        let counts = [come(&wakers, 0), other.join().unwrap()];
        for count in counts {
            assert_eq!(count.0.load(Ordering::Relaxed), 1, "a future sleeps on");
        }
    });
}

#[test]
fn every_future_is_woken_by_the_thread_that_ends_or_by_another_one() {
    two_come(|wakers| wakers.wait(super::HOUR));
}

#[test]
#[should_panic(expected = "a future sleeps on")]
fn a_thread_that_ends_by_an_older_look_leaves_one() {
    two_come(|wakers| {
        let is_empty = std::cell::Cell::new(true);
        // A look taking nobody.
        let _ = wakers.take(|_| {
            is_empty.set(false);
            false
        });
        if is_empty.get() {
            drop(wakers.drain());
            return false;
        }
        true
    });
}

#[test]
fn no_thread_leaves_nobody() {
    loom::model(|| {
        let wakers = WakerSet::default();
        let count = std::sync::Arc::new(Count::default());
        let waker = Waker::from(std::sync::Arc::clone(&count));
        assert!(wakers.register(0, &waker, |_, _| false));
        // The second future relies on the thread to be started by the first.
        assert!(!wakers.register(1, &waker, |_, _| false));
        let waiting = wakers.drain().into_iter();
        waiting.for_each(|(_, waker)| waker.wake());
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        wakers.look();
        assert!(wakers.register(2, &waker, |_, _| false));
    });
}
