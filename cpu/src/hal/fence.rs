//! Fences: growing values to wait for.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use wgpu_hal::FenceValue;

/// A fence.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    shared: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    value: AtomicU64,
    /// How many threads wait: without any, raising the value is no system call
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl Fence {
    /// Whether both are handles of the same fence.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The present value.
    pub fn value(&self) -> FenceValue {
        self.shared.value.load(Ordering::Acquire)
    }

    /// Raises the value and wakes the waiting threads.
    pub(super) fn signal(&self, value: FenceValue) {
        self.shared.value.fetch_max(value, Ordering::Release);
        // A waiter has the lock from the look at the value to the sleep.
        if *self.waiting() > 0 {
            self.shared.changed.notify_all();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, usize> {
        (self.shared.waiting.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a value, without end if there is no timeout. `false`: the time ran out.
    pub fn wait(&self, value: FenceValue, timeout: Option<Duration>) -> bool {
        if self.value() >= value {
            return true;
        }
        // A timeout beyond the range of clocks is none.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut waiting = self.waiting();
        *waiting += 1;
        let is_raised = loop {
            if self.value() >= value {
                break true;
            }
            let rest = match end {
                None => Duration::MAX,
                Some(end) => match end.checked_duration_since(Instant::now()) {
                    Some(rest) => rest,
                    None => break false,
                },
            };
            let waited = self.shared.changed.wait_timeout(waiting, rest);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        *waiting -= 1;
        is_raised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_only_grow() {
        let fence = Fence::default();
        fence.signal(3);
        fence.signal(2);
        assert_eq!(fence.value(), 3);
        assert!(fence.wait(3, None));
        assert!(!fence.wait(4, Some(Duration::ZERO)));
    }

    #[test]
    fn waiters_wake_when_their_value_comes() {
        let fence = Fence::default();
        let waiters: Vec<_> = [1, 9]
            .into_iter()
            .map(|value| {
                let fence = fence.clone();
                std::thread::spawn(move || fence.wait(value, None))
            })
            .collect();
        fence.signal(1);
        fence.signal(9);
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
    }
}
