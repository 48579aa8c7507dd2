//! The order of submissions.
//!
//! *How it works.* Submissions wait in a line. A thread of the queue, the *driver*, runs the line one by one. A small
//! submission to an empty line runs on the submitting thread: waking another thread takes longer.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    loss::{self, Loss},
    pool::{self, Pool},
};

/// Work of a submission.
pub(crate) trait Work: Send + 'static {
    /// Whether the work takes less time than waking another thread.
    fn is_small(&self) -> bool;

    /// Does the work, with the help of a pool, if given.
    ///
    /// # Errors
    /// If the work cannot be done: the device is lost then.
    fn run(&self, pool: Option<&Pool>, stop: &Arc<AtomicU32>) -> Result<(), Loss>;

    /// Reports the work as done.
    fn finish(self);

    /// Reports the work as abandoned.
    fn give_up(self);
}

/// The submissions of a queue.
pub(crate) struct Timeline<W> {
    shared: Arc<Shared<W>>,
}

struct Shared<W> {
    state: Mutex<State<W>>,
    changed: Condvar,
    /// Set when kernels are to stop
    stop: Arc<AtomicU32>,
    loss: OnceLock<Loss>,
    pool: Arc<Pool>,
}

struct State<W> {
    line: VecDeque<W>,
    /// Whether a submission is running, or being reported
    busy: bool,
    /// Whether no submission is running
    at_rest: bool,
    /// Whether there is a driver
    driven: bool,
    closed: bool,
}

impl<W> State<W> {
    fn begin(&mut self) {
        (self.busy, self.at_rest) = (true, false);
    }

    fn end(&mut self) {
        (self.busy, self.at_rest) = (false, true);
    }
}

impl<W: Work> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<W>>) -> MutexGuard<'a, State<W>> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a submission, with `busy` set to keep others from running.
    fn run(&self, work: W, pool: Option<&Pool>) {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| work.run(pool, &self.stop)));
        let loss = match result {
            // A stopped kernel may have left work out.
            Ok(Ok(())) if self.stop.load(Ordering::Relaxed) != 0 => Some(Loss::Dropped),
            Ok(Ok(())) => None,
            Ok(Err(loss)) => Some(loss),
            Err(panic) => Some(Loss::Panicked {
                message: loss::message(&*panic),
            }),
        };
        match loss {
            None => {
                // Before anybody is told: a told caller may ask for a copy at once.
                self.lock().at_rest = true;
                work.finish();
            }
            Some(loss) => {
                self.lose(loss);
                work.give_up();
            }
        }
    }

    /// Loses the device, with no work running: submissions in the line are given up.
    fn lose(&self, loss: Loss) {
        self.stop.store(1, Ordering::Relaxed);
        let mut state = self.lock();
        if self.loss.get().is_none() {
            log::error!("the device is lost: {loss}");
            // Set under the lock: no submission checks `loss` before, and enters the line after.
            let _ = self.loss.set(loss);
        }
        let line = std::mem::take(&mut state.line);
        drop(state);
        line.into_iter().for_each(W::give_up);
    }
}

impl<W: Work> Timeline<W> {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    line: VecDeque::new(),
                    busy: false,
                    at_rest: true,
                    driven: false,
                    closed: false,
                }),
                changed: Condvar::new(),
                stop: Arc::default(),
                loss: OnceLock::new(),
                pool,
            }),
        }
    }

    /// The threads of the queue's work.
    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// Why the device was lost, if so. Nothing of the device runs then.
    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.shared.loss.get()
    }

    /// Runs work after all earlier submissions.
    ///
    /// # Errors
    /// If the device is lost, or if there is no thread to run the work.
    pub(crate) fn submit(&self, work: W) -> Result<(), Loss> {
        let mut state = self.shared.lock();
        if let Some(loss) = self.loss() {
            return Err(loss.clone());
        }
        if !state.busy && state.line.is_empty() && work.is_small() {
            state.begin();
            drop(state);
            self.shared.run(work, None);
            self.shared.lock().end();
            self.shared.changed.notify_all();
            return Ok(());
        }
        state.line.push_back(work);
        if !state.driven {
            let shared = self.shared.clone();
            match pool::spawn("tombolo-cpu queue", move || drive(&shared)) {
                Ok(()) => state.driven = true,
                Err(error) => {
                    log::warn!("a thread for submissions cannot be started: {error}");
                    drop(state);
                    self.drain();
                    return Ok(());
                }
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Does `copy` on this thread if all submissions have ended, and nothing else keeps the copy from coming next. Submissions
    /// made meanwhile wait. Returns whether the copy was done.
    pub(crate) fn at_once(
        &self,
        is_small: bool,
        may_come_next: impl FnOnce() -> bool,
        copy: impl FnOnce(),
    ) -> bool {
        let mut state = self.shared.lock();
        let is_idle = state.at_rest && state.line.is_empty() && self.loss().is_none();
        if !is_idle || !may_come_next() {
            return false;
        }
        if is_small || state.busy {
            // A submitting thread waits for a lock no longer than for a small submission; or another submission is being
            // reported, and cannot go on to the next before.
            copy();
            return true;
        }
        state.begin();
        drop(state);
        copy();
        self.shared.lock().end();
        self.shared.changed.notify_all();
        true
    }

    /// Runs the line on this thread, without a driver.
    fn drain(&self) {
        let mut state = self.shared.lock();
        loop {
            while state.busy {
                state = self.shared.wait(state);
            }
            let Some(work) = state.line.pop_front() else {
                return;
            };
            state.begin();
            drop(state);
            self.shared.run(work, Some(&self.shared.pool));
            state = self.shared.lock();
            state.end();
            // Others may be here too, or wait for the end.
            self.shared.changed.notify_all();
        }
    }

    /// Waits until everything has run, up to `limit`: then kernels still running are stopped. Kernels waiting for this thread are
    /// stopped at once.
    pub(crate) fn finish(&self, limit: Duration) {
        let end = Instant::now().checked_add(limit);
        let mut state = self.shared.lock();
        if self.shared.pool.is_helping() {
            self.shared.stop.store(1, Ordering::Relaxed);
            let given_up = std::mem::take(&mut state.line);
            drop(state);
            given_up.into_iter().for_each(W::give_up);
            return;
        }
        while state.busy || !state.line.is_empty() {
            let rest = end.and_then(|end| end.checked_duration_since(Instant::now()));
            let Some(rest) = rest else {
                self.shared.stop.store(1, Ordering::Relaxed);
                // Out of reach of the driver, otherwise about to begin the next.
                let given_up = std::mem::take(&mut state.line);
                while state.busy {
                    state = self.shared.wait(state);
                }
                drop(state);
                self.shared.lose(Loss::Dropped);
                given_up.into_iter().for_each(W::give_up);
                return;
            };
            let waited = self.shared.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets the driver end.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

/// The loop of the driver.
fn drive<W: Work>(shared: &Shared<W>) {
    let mut state = shared.lock();
    loop {
        if !state.busy
            && let Some(work) = state.line.pop_front()
        {
            state.begin();
            drop(state);
            shared.run(work, Some(&shared.pool));
            state = shared.lock();
            state.end();
            shared.changed.notify_all();
        } else if state.closed && !state.busy {
            return;
        } else {
            state = shared.wait(state);
        }
    }
}
