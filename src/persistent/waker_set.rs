//! The waiting futures, and whether a thread looks after them.

use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// The wakers, by the condition waited for.
#[derive(Debug)]
pub(super) struct WakerSet<K> {
    state: Mutex<State<K>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<K> {
    running: bool,
    waiting: Vec<(K, Waker)>,
}

impl<K> Default for WakerSet<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                running: false,
                waiting: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }
}

impl<K> WakerSet<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread look again.
    pub fn look(&self) {
        self.changed.notify_all();
    }

    /// Notes a waker, in place of the `same` one; returns whether the caller has to start the thread.
    #[must_use]
    pub fn register(&self, key: K, waker: &Waker, same: impl Fn(&K, &Waker) -> bool) -> bool {
        let mut state = self.state();
        let known = (state.waiting.iter_mut()).find(|(key, known)| same(key, known));
        match known {
            Some((_, known)) => known.clone_from(waker),
            None => state.waiting.push((key, waker.clone())),
        }
        let starts = !std::mem::replace(&mut state.running, true);
        drop(state);
        self.changed.notify_all();
        starts
    }

    /// There is no thread after all: all that wait are to be woken.
    pub fn drain(&self) -> Vec<(K, Waker)> {
        let mut state = self.state();
        state.running = false;
        std::mem::take(&mut state.waiting)
    }

    /// Waits until somebody waits; `false` after so long without futures, when the thread is to end: the next future
    /// starts another.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state();
        if !state.waiting.is_empty() {
            return true;
        }
        let waited = self.changed.wait_timeout(state, timeout);
        let (now, time) = waited.unwrap_or_else(PoisonError::into_inner);
        state = now;
        if state.waiting.is_empty() && time.timed_out() {
            state.running = false;
            return false;
        }
        true
    }

    /// Takes the wakers whose condition has come true.
    pub fn take(&self, mut is_ready: impl FnMut(&K) -> bool) -> Vec<Waker> {
        let mut woken = Vec::new();
        self.state().waiting.retain(|(key, waker)| {
            let is_ready = is_ready(key);
            if is_ready {
                woken.push(waker.clone());
            }
            !is_ready
        });
        woken
    }
}
