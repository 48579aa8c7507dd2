//! Time limits: a thread stops the dispatch that has run for too long.
//!
//! The time of a dispatch begins with its first work-group, not with its place in line. Dispatches of a queue run one after the
//! other, so at most one time is watched. The thread is started for the first stop with a limit: there the system's refusal is an
//! error, not a limit that nobody watches.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU32},
    time::{Duration, Instant},
};

use super::{
    loss::Loss,
    stop::{Running, StopWord},
};

/// Dispatches that can be stopped by themselves.
#[derive(Debug, Default)]
pub(crate) struct Stoppable {
    pub(crate) word: Arc<StopWord>,
    limit: Option<Duration>,
    /// When the first of the dispatches began
    since: OnceLock<Instant>,
}

impl Stoppable {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// When the time is over; `None` for never.
    fn end(&self) -> Option<Instant> {
        let limit = self.limit?;
        // A time beyond the range of clocks never comes.
        self.since.get_or_init(Instant::now).checked_add(limit)
    }
}

/// What stops the kernels of a queue.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    running: Running,
    watch: Watch,
}

impl Stops {
    /// Stops everything that runs, and everything that will.
    pub(crate) fn stop_all(&self) {
        self.running.stop_all();
    }

    /// Whether everything was told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.running.is_stopped()
    }

    /// Has a thread to watch time limits.
    ///
    /// # Errors
    /// If the system has no thread.
    pub(crate) fn watch_limits(&self) -> std::io::Result<()> {
        self.watch.begin()
    }

    /// Runs a dispatch with the word that stops it, unless the dispatch was stopped before.
    ///
    /// # Errors
    /// As `dispatch`.
    pub(crate) fn run(
        &self,
        own: Option<&Stoppable>,
        dispatch: impl FnOnce(&Arc<AtomicU32>) -> Result<(), Loss>,
    ) -> Result<(), Loss> {
        let Some(own) = own else {
            return dispatch(self.running.all());
        };
        if !self.running.enter(&own.word) {
            return Ok(());
        }
        // Also where the dispatch panics.
        let _left = Left(self);
        if let Some(end) = own.end() {
            self.watch.set(Some((end, own.word.clone())));
        }
        dispatch(own.word.word())
    }
}

/// Leaves a dispatch when dropped.
struct Left<'a>(&'a Stops);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.running.leave();
        self.0.watch.set(None);
    }
}

/// The watched time, and the thread that watches.
#[derive(Debug, Default)]
struct Watch {
    shared: Arc<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The end of the running dispatch's time
    end: Option<(Instant, Arc<StopWord>)>,
    has_thread: bool,
    closed: bool,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of the thread.
    fn watch(&self) {
        let mut state = self.lock();
        while !state.closed {
            let Some((end, word)) = &state.end else {
                state = (self.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                word.time_is_over();
                state.end = None;
            } else {
                let waited = self.changed.wait_timeout(state, rest);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Watch {
    fn begin(&self) -> std::io::Result<()> {
        let mut state = self.shared.lock();
        if !state.has_thread {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("tombolo-cpu limits".into());
            thread.spawn(move || shared.watch())?;
            state.has_thread = true;
        }
        Ok(())
    }

    fn set(&self, end: Option<(Instant, Arc<StopWord>)>) {
        let mut state = self.shared.lock();
        // A thread that looks at a time gone finds no time, and sleeps: no need to be woken for that.
        let is_new = end.is_some();
        state.end = end;
        drop(state);
        if is_new {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{atomic::Ordering, mpsc::channel};

    use super::*;
    use crate::exec::stop::StopState;

    /// How long a stop may take on a busy machine.
    const LONG: Duration = Duration::from_secs(60);

    /// Runs a dispatch that waits for its stop word, and tells whether the word was raised in time.
    fn endless(stops: &Stops, own: &Stoppable) -> bool {
        let mut raised = false;
        let run = stops.run(Some(own), |word| {
            let begin = Instant::now();
            while word.load(Ordering::Relaxed) == 0 && begin.elapsed() < LONG {
                std::thread::yield_now();
            }
            raised = word.load(Ordering::Relaxed) != 0;
            Ok(())
        });
        run.unwrap();
        raised
    }

    #[test]
    fn a_limit_stops_the_dispatch_that_runs_and_no_other() {
        let stops = Stops::default();
        stops.watch_limits().unwrap();
        stops.watch_limits().unwrap();
        for _ in 0..3 {
            let short = Stoppable::new(Some(Duration::from_millis(1)));
            assert!(endless(&stops, &short));
            assert_eq!(short.word.state(), StopState::TimeLimit);
            // Nothing is left of the limit.
            let free = Stoppable::new(Some(LONG));
            stops
                .run(Some(&free), |word| {
                    assert_eq!(word.load(Ordering::Relaxed), 0);
                    Ok(())
                })
                .unwrap();
            free.word.close();
            assert_eq!(free.word.state(), StopState::Over);
        }
        assert!(!stops.is_stopped());
    }

    #[test]
    fn several_dispatches_have_their_time_in_common() {
        let stops = Stops::default();
        stops.watch_limits().unwrap();
        let own = Stoppable::new(Some(Duration::from_millis(1)));
        assert!(endless(&stops, &own));
        let mut has_begun = false;
        let second = stops.run(Some(&own), |_| {
            has_begun = true;
            Ok(())
        });
        assert!(second.is_ok() && !has_begun);
    }

    #[test]
    fn a_limit_beyond_the_clock_is_none() {
        let stops = Stops::default();
        stops.watch_limits().unwrap();
        let own = Stoppable::new(Some(Duration::MAX));
        stops.run(Some(&own), |_| Ok(())).unwrap();
        assert_eq!(own.word.state(), StopState::Open);
    }

    #[test]
    fn a_stop_of_all_reaches_a_dispatch_with_a_word_of_its_own() {
        let stops = Stops::default();
        let own = Stoppable::new(None);
        let (begin, begun) = channel();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let _ = begin.send(());
                endless(&stops, &own)
            });
            begun.recv_timeout(LONG).unwrap();
            stops.stop_all();
            assert!(run.join().unwrap());
        });
        // Nobody stopped the dispatch by itself.
        assert_eq!(own.word.state(), StopState::Open);
    }
}
