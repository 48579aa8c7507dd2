//! Stop words: how kernels learn that they are to stop.
//!
//! *How it works.* A kernel in a long loop, and a thread between two work-groups, look at a word. Most dispatches look at the
//! word of the device. A dispatch that can be stopped by itself looks at a word of its own ([`StopWord`]), which a stop of the
//! device raises as well: [`Running`] knows the word of the running dispatch.
//!
//! A stop comes before the end, or too late: [`StopWord::ask`] and [`StopWord::close`] decide between the two once and for all,
//! so that a stop accepted is never a dispatch that counts as finished.
//!
//! Loom runs this file (`tests_loom.rs`).

use std::sync::PoisonError;

use super::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering},
};

/// What has become of a dispatch that can be stopped by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopState {
    /// The dispatch has not ended, and nobody has stopped it.
    Open,
    /// The dispatch was stopped before its end: by [`Stop::stop`](crate::Stop::stop).
    Asked,
    /// The dispatch was stopped before its end: the time limit was over.
    TimeLimit,
    /// The dispatch has ended by itself.
    Over,
}

const OPEN: u32 = 0;
const ASKED: u32 = 1;
const TIME_LIMIT: u32 = 2;
const OVER: u32 = 3;

/// The stop word of dispatches that can be stopped by themselves.
#[derive(Debug, Default)]
pub(crate) struct StopWord {
    state: AtomicU32,
    /// Looked at by kernels: not 0 if they are to stop
    word: Arc<AtomicU32>,
}

impl StopWord {
    pub(crate) fn state(&self) -> StopState {
        match self.state.load(Ordering::Acquire) {
            ASKED => StopState::Asked,
            TIME_LIMIT => StopState::TimeLimit,
            OVER => StopState::Over,
            _ => StopState::Open,
        }
    }

    /// Leaves [`StopState::Open`]; `false` if another state is there already.
    fn leave_open(&self, to: u32) -> bool {
        let left = self
            .state
            .compare_exchange(OPEN, to, Ordering::AcqRel, Ordering::Acquire);
        left.is_ok()
    }

    /// Has the dispatches stop, or never begin. `false` if they have ended, or were stopped before.
    pub(crate) fn ask(&self) -> bool {
        let is_first = self.leave_open(ASKED);
        if is_first {
            self.raise();
        }
        is_first
    }

    /// As [`Self::ask`], for time that is over.
    pub(crate) fn time_is_over(&self) -> bool {
        let is_first = self.leave_open(TIME_LIMIT);
        if is_first {
            self.raise();
        }
        is_first
    }

    /// The dispatches have ended: later stops come too late.
    pub(crate) fn close(&self) {
        self.leave_open(OVER);
    }

    fn raise(&self) {
        self.word.store(1, Ordering::Relaxed);
    }

    /// The word for kernels.
    pub(crate) fn word(&self) -> &Arc<AtomicU32> {
        &self.word
    }
}

/// The stop words of a queue, whose dispatches run one after the other.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Set when all kernels are to stop, for good
    all: Arc<AtomicU32>,
    /// The own word of the running dispatch
    own: Mutex<Option<Arc<StopWord>>>,
}

impl Running {
    fn own(&self) -> MutexGuard<'_, Option<Arc<StopWord>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The word for dispatches without one of their own.
    pub(crate) fn all(&self) -> &Arc<AtomicU32> {
        &self.all
    }

    /// Stops everything that runs, and everything that will.
    pub(crate) fn stop_all(&self) {
        self.all.store(1, Ordering::Relaxed);
        // Either `enter` comes behind, and sees the word; or the dispatch is found here.
        if let Some(own) = &*self.own() {
            own.raise();
        }
    }

    /// Whether everything was told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.all.load(Ordering::Relaxed) != 0
    }

    /// A dispatch with this word begins. `false` if the dispatch was stopped before: it must not begin.
    pub(crate) fn enter(&self, word: &Arc<StopWord>) -> bool {
        if matches!(word.state(), StopState::Asked | StopState::TimeLimit) {
            return false;
        }
        let mut own = self.own();
        if self.is_stopped() {
            word.raise();
        }
        *own = Some(word.clone());
        true
    }

    /// As [`Self::enter`], without the look: what goes wrong then is a test.
    #[cfg(test)]
    #[allow(dead_code)] // Used where loom runs the file.
    pub(crate) fn enter_unseen(&self, word: &Arc<StopWord>) {
        *self.own() = Some(word.clone());
    }

    /// The dispatch has ended.
    pub(crate) fn leave(&self) {
        *self.own() = None;
    }
}
