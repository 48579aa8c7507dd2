//! The order of submissions.
//!
//! *How it works.* Submissions wait in a line. A thread of the queue, the *driver*, runs the line one by one. A small
//! submission to an empty line runs on the submitting thread: waking another thread takes longer. For the same reason, threads
//! are woken only for something to do: a system call for each small submission would take longer than the submission.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use super::{
    limit::Stops,
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
    fn run(&self, pool: Option<&Pool>, stops: &Stops) -> Result<(), Loss>;

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
    /// For the driver, while [`State::driver_sleeps`]
    next: Condvar,
    /// For the [`State::resting`] threads that wait for the end of a submission
    ended: Condvar,
    stops: Stops,
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
    driver_sleeps: bool,
    /// How many threads wait for [`Shared::ended`]
    resting: usize,
    closed: bool,
}

impl<W> State<W> {
    fn begin(&mut self) {
        (self.busy, self.at_rest) = (true, false);
    }

    /// Whether the driver sleeps, with something to do.
    fn is_driver_missed(&self) -> bool {
        self.driver_sleeps && !self.busy && (self.closed || !self.line.is_empty())
    }
}

impl<W: Work> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of a submission, up to `limit`; may return before.
    fn rest<'a>(
        &self,
        mut state: MutexGuard<'a, State<W>>,
        limit: Duration,
    ) -> MutexGuard<'a, State<W>> {
        state.resting += 1;
        let waited = self.ended.wait_timeout(state, limit);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.resting -= 1;
        state
    }

    /// Ends a submission, or a copy in its place, and wakes whoever waits for that.
    fn end<'a>(&'a self, mut state: MutexGuard<'a, State<W>>) -> MutexGuard<'a, State<W>> {
        (state.busy, state.at_rest) = (false, true);
        if state.resting > 0 {
            self.ended.notify_all();
        }
        state
    }

    /// Lets the line go, and wakes the driver if there is something to do.
    fn release(&self, mut state: MutexGuard<'_, State<W>>) {
        let is_driver_missed = state.is_driver_missed();
        if is_driver_missed {
            // Woken once only.
            state.driver_sleeps = false;
        }
        drop(state);
        if is_driver_missed {
            self.next.notify_one();
        }
    }

    /// Runs a submission, with `busy` set to keep others from running.
    fn run(&self, work: W, pool: Option<&Pool>) {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| work.run(pool, &self.stops)));
        let loss = match result {
            // Kernels told to stop may have left work out. A submission with dispatches stopped by themselves has run.
            Ok(Ok(())) if self.stops.is_stopped() => Some(Loss::Dropped),
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
        self.stops.stop_all();
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
                    driver_sleeps: false,
                    resting: 0,
                    closed: false,
                }),
                next: Condvar::new(),
                ended: Condvar::new(),
                stops: Stops::default(),
                loss: OnceLock::new(),
                pool,
            }),
        }
    }

    /// The threads of the queue's work.
    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// What stops the kernels of the queue.
    pub(crate) fn stops(&self) -> &Stops {
        &self.shared.stops
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
            self.shared.release(self.shared.end(self.shared.lock()));
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
        self.shared.release(state);
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
        self.shared.release(self.shared.end(self.shared.lock()));
        true
    }

    /// Runs the line on this thread, without a driver.
    fn drain(&self) {
        let mut state = self.shared.lock();
        loop {
            while state.busy {
                state = self.shared.rest(state, Duration::MAX);
            }
            let Some(work) = state.line.pop_front() else {
                return;
            };
            state.begin();
            drop(state);
            self.shared.run(work, Some(&self.shared.pool));
            // Others may be here too, or wait for the end.
            state = self.shared.end(self.shared.lock());
        }
    }

    /// Waits until everything has run, up to `limit`: then kernels still running are stopped. Kernels waiting for this thread are
    /// stopped at once.
    pub(crate) fn finish(&self, limit: Duration) {
        let end = Instant::now().checked_add(limit);
        let mut state = self.shared.lock();
        if self.shared.pool.is_helping() {
            self.shared.stops.stop_all();
            let given_up = std::mem::take(&mut state.line);
            drop(state);
            given_up.into_iter().for_each(W::give_up);
            return;
        }
        while state.busy || !state.line.is_empty() {
            let rest = end.and_then(|end| end.checked_duration_since(Instant::now()));
            let Some(rest) = rest else {
                self.shared.stops.stop_all();
                // Out of reach of the driver, otherwise about to begin the next.
                let given_up = std::mem::take(&mut state.line);
                while state.busy {
                    state = self.shared.rest(state, Duration::MAX);
                }
                drop(state);
                self.shared.lose(Loss::Dropped);
                given_up.into_iter().for_each(W::give_up);
                return;
            };
            state = self.shared.rest(state, rest);
        }
    }

    /// Lets the driver end.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.release(state);
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
            state = shared.end(shared.lock());
        } else if state.closed && !state.busy {
            return;
        } else {
            state.driver_sleeps = true;
            state = (shared.next.wait(state)).unwrap_or_else(PoisonError::into_inner);
            state.driver_sleeps = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, Sender, channel},
        thread::{Scope, scope},
    };

    use super::*;

    /// Rounds of a race; Miri takes its time for each.
    const ROUNDS: usize = if cfg!(miri) { 4 } else { 200 };
    /// How long a submission may take on a busy machine.
    const LIMIT: Duration = Duration::from_secs(60);

    /// A submission which says when it has begun and ended, and ends when it is told to.
    struct Told {
        is_small: bool,
        begun: Sender<()>,
        may_end: Receiver<()>,
        ended: Sender<()>,
    }

    /// The other ends of a [`Told`].
    struct Teller {
        begun: Receiver<()>,
        may_end: Sender<()>,
        ended: Receiver<()>,
    }

    fn told(is_small: bool) -> (Told, Teller) {
        let ((begin, begun), (allow, may_end), (end, ended)) = (channel(), channel(), channel());
        let work = Told {
            is_small,
            begun: begin,
            may_end,
            ended: end,
        };
        let teller = Teller {
            begun,
            may_end: allow,
            ended,
        };
        (work, teller)
    }

    impl Work for Told {
        fn is_small(&self) -> bool {
            self.is_small
        }

        fn run(&self, _pool: Option<&Pool>, _stops: &Stops) -> Result<(), Loss> {
            let _ = self.begun.send(());
            let _ = self.may_end.recv_timeout(LIMIT);
            Ok(())
        }

        fn finish(self) {
            let _ = self.ended.send(());
        }

        fn give_up(self) {}
    }

    fn timeline<W: Work>() -> Timeline<W> {
        Timeline::new(Arc::new(Pool::new(1)))
    }

    /// Runs a submission on a thread of its own, and waits for the beginning.
    fn begin<'s>(scope: &'s Scope<'s, '_>, line: &'s Timeline<Told>, is_small: bool) -> Teller {
        let (work, teller) = told(is_small);
        scope.spawn(move || line.submit(work).unwrap());
        teller.begun.recv_timeout(LIMIT).unwrap();
        teller
    }

    #[test]
    fn a_driver_asleep_is_woken_by_the_end_of_a_small_submission() {
        let line = timeline();
        for _ in 0..ROUNDS {
            scope(|scope| {
                let first = begin(scope, &line, false);
                first.may_end.send(()).unwrap();
                first.ended.recv_timeout(LIMIT).unwrap();
                line.finish(LIMIT);
                // The driver sleeps, or is on its way there; the small submission is on another thread.
                let small = begin(scope, &line, true);
                let (work, second) = told(false);
                line.submit(work).unwrap();
                assert!(second.begun.try_recv().is_err(), "one after the other");
                second.may_end.send(()).unwrap();
                small.may_end.send(()).unwrap();
                second.ended.recv_timeout(LIMIT).unwrap();
            });
        }
        line.finish(LIMIT);
        line.close();
    }

    #[test]
    fn the_end_of_a_small_submission_is_waited_for() {
        let line = timeline();
        for _ in 0..ROUNDS {
            scope(|scope| {
                let small = begin(scope, &line, true);
                let (tell, finished) = channel();
                let line = &line;
                scope.spawn(move || {
                    line.finish(LIMIT);
                    tell.send(()).unwrap();
                });
                assert!(finished.try_recv().is_err(), "nothing has ended");
                small.may_end.send(()).unwrap();
                finished.recv_timeout(LIMIT).unwrap();
                small.ended.try_recv().unwrap();
            });
        }
        assert_eq!(line.loss().map(ToString::to_string), None);
    }

    #[test]
    fn a_copy_at_once_lets_the_line_go_on() {
        let line = timeline();
        scope(|scope| {
            begin(scope, &line, false).may_end.send(()).unwrap();
            line.finish(LIMIT);
            let (work, second) = told(false);
            second.may_end.send(()).unwrap();
            let mut work = Some(work);
            let copied = line.at_once(
                false,
                || true,
                || line.submit(work.take().unwrap()).unwrap(),
            );
            assert!(copied);
            second.ended.recv_timeout(LIMIT).unwrap();
        });
        line.close();
    }

    /// A submission that sends the folder of its thread under `/proc`.
    #[cfg(all(target_os = "linux", not(miri)))]
    struct Where(bool, Sender<std::path::PathBuf>);

    #[cfg(all(target_os = "linux", not(miri)))]
    impl Work for Where {
        fn is_small(&self) -> bool {
            self.0
        }

        fn run(&self, _pool: Option<&Pool>, _stops: &Stops) -> Result<(), Loss> {
            let thread = std::fs::read_link("/proc/thread-self").unwrap();
            let _ = self.1.send(std::path::Path::new("/proc").join(thread));
            Ok(())
        }

        fn finish(self) {}

        fn give_up(self) {}
    }

    /// How often a thread has gone to sleep.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn sleeps(thread: &std::path::Path) -> u64 {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        let line = (status.lines()).find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn small_submissions_wake_no_thread() {
        let line = timeline();
        let (tell, told) = channel();
        line.submit(Where(false, tell.clone())).unwrap();
        let driver = told.recv_timeout(LIMIT).unwrap();
        line.finish(LIMIT);
        let before = sleeps(&driver);
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        for _ in 0..10_000 {
            line.submit(Where(true, tell.clone())).unwrap();
            assert!(told.try_recv().unwrap().ends_with(&own), "on this thread");
        }
        let times = sleeps(&driver) - before;
        // The first sleep may come after the first count.
        assert!(times <= 3, "the driver was woken {times} times");
        line.close();
    }
}
