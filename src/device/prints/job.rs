//! A launch with prints: the place of its records, and the state of their delivery.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::super::outcome::ExecutionError;
use super::super::staging::Lent;
use super::super::status::{self, Mirror, PendingMirror};
use super::super::wait::lock;
use super::memory::{Memory, Store};
use crate::print::record::{
    DROPPED, FAILED_INVOCATION, FAILED_SITE, FAILED_VALUES, HEAD, HEADER_WORDS, MAX_VALUES,
    SiteKind, Sites, Step, read_record,
};
use crate::print::{PrintLoss, PrintOptions, PrintRecord};

/// Where a job's records are.
pub(super) enum Phase {
    /// Its batch is open.
    Recorded,
    /// The device may be running the launch; the copy of the buffer is on its way, where a copy is needed.
    Running(Option<Mirror>),
    /// The launch has ended; the contents of the buffer are final. The words, unless in live memory.
    Ended(Option<Arc<Vec<u32>>>),
    /// Unknowable.
    Lost,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Words read so far.
    cursor: usize,
    /// Gone once everything is delivered.
    pub(super) memory: Option<Arc<Memory>>,
}

/// A printing launch.
pub(crate) struct Job {
    sites: Arc<Sites>,
    options: PrintOptions,
    pub(super) state: Mutex<State>,
    dropped: AtomicU64,
}

impl Job {
    pub(super) fn new(sites: &Arc<Sites>, options: &PrintOptions, memory: Arc<Memory>) -> Self {
        Self {
            sites: Arc::clone(sites),
            options: options.clone(),
            state: Mutex::new(State {
                phase: Phase::Recorded,
                cursor: 0,
                memory: Some(memory),
            }),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn memory(&self) -> Option<Arc<Memory>> {
        lock(&self.state).memory.clone()
    }

    /// Records that did not fit, once the launch is settled.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Acquire)
    }

    /// The batch is on its way.
    pub(super) fn submitted(&self, device: &wgpu::Device) {
        let mut state = lock(&self.state);
        let mirror = match state.memory.as_deref().map(|m| &m.store) {
            Some(Store::Mirrored { staging, .. }) => {
                let memory = Lent::of_owner(staging.clone());
                let pending = PendingMirror::of(memory, staging.size());
                let mirror = pending.mirror();
                pending.map(device);
                Some(mirror)
            }
            _ => None,
        };
        state.phase = Phase::Running(mirror);
    }

    /// Whether the host can read the records of the launch, whose batch has ended: false until the copy is mapped.
    pub(crate) fn is_readable(&self) -> bool {
        match &lock(&self.state).phase {
            Phase::Running(Some(mirror)) => !matches!(mirror.words(), status::Reading::Pending),
            _ => true,
        }
    }

    /// The launch has ended, by itself if `done`. Returns the assertion that failed.
    pub(super) fn settle(&self, done: bool) -> Option<ExecutionError> {
        let mut state = lock(&self.state);
        let words = match (&state.phase, done) {
            (Phase::Running(None), true) => None,
            (Phase::Running(Some(mirror)), true) => match mirror.words() {
                status::Reading::There(words) => Some(words),
                status::Reading::Pending | status::Reading::Gone => {
                    state.phase = Phase::Lost;
                    return None;
                }
            },
            _ => {
                state.phase = Phase::Lost;
                return None;
            }
        };
        let memory = state.memory.clone();
        let word = |index: usize| match &words {
            Some(words) => words.get(index).copied().unwrap_or(0),
            None => memory.as_ref().and_then(|m| m.word(index)).unwrap_or(0),
        };
        let dropped = u64::from(word(DROPPED[0])) | u64::from(word(DROPPED[1])) << 32;
        self.dropped.store(dropped, Ordering::Release);
        let failure = self.failure(word);
        state.phase = Phase::Ended(words);
        failure
    }

    fn failure(&self, word: impl Fn(usize) -> u32) -> Option<ExecutionError> {
        let site = self.sites.site(word(FAILED_SITE))?;
        if site.kind == SiteKind::Print {
            return None;
        }
        let values: Vec<u32> = (0..MAX_VALUES).map(|i| word(FAILED_VALUES + i)).collect();
        Some(ExecutionError::Assertion {
            kernel: self.sites.kernel.clone(),
            file: site.file.as_ref().into(),
            line: site.line,
            column: site.column,
            message: site.text(&values).into(),
            invocation: word(FAILED_INVOCATION),
            panicked: site.kind == SiteKind::Panic,
            excerpt: site.excerpt.as_str().into(),
        })
    }

    /// Delivers the arrived records. Only a single thread does this at a time.
    pub(super) fn deliver(&self) -> Delivery {
        // No lock is held while sinks run.
        let state = lock(&self.state);
        let Some(memory) = state.memory.clone() else {
            return Delivery::Over;
        };
        let (words, ended, lost) = match &state.phase {
            Phase::Recorded => return Delivery::Waiting { delivered: false },
            Phase::Running(_) if !memory.is_live() => {
                return Delivery::Waiting { delivered: false };
            }
            Phase::Running(_) => (None, false, false),
            Phase::Ended(words) => (words.clone(), true, false),
            Phase::Lost => (None, true, true),
        };
        let start = state.cursor;
        drop(state);

        let capacity = memory.words;
        let live = memory.live();
        let word = |index: usize| match &words {
            Some(words) => words.get(index).copied(),
            // Kernels count with atomics, which some devices show to the host only after the end of the kernel; each
            // record carries its own proof of being whole.
            None if !ended && index == HEAD => Some(u32::MAX),
            None => Some(live.get(index)?.load(Ordering::Acquire)),
        };
        let mut cut = lost;
        let reading = Reading {
            state: &self.state,
            at: Cell::new(start),
        };
        // Nothing is locked for a look that finds nothing.
        let mut target = None;
        loop {
            let at = reading.at.get();
            let take = |record: &PrintRecord<'_>, next| {
                reading.at.set(next);
                let target = target.get_or_insert_with(|| self.options.target.open());
                target.record(record, self.options.locate);
            };
            match read_record(&self.sites, at, capacity, word, take) {
                Step::Next(_) => {}
                Step::End => break,
                Step::Torn => {
                    // Behind the last fitting record nothing is written; the loss is counted.
                    let is_gap = word(HEADER_WORDS + at) == Some(0)
                        && word(HEAD).is_some_and(|head| head as usize > capacity);
                    cut |= ended && !is_gap;
                    break;
                }
            }
        }
        if let Some(target) = target {
            target.close();
        }
        let delivered = reading.at.get() > start;
        drop(reading);
        if delivered {
            self.options.target.flush();
        }
        if !ended {
            return Delivery::Waiting { delivered };
        }
        let dropped = self.dropped();
        if dropped > 0 || cut {
            self.options.target.lost(&PrintLoss {
                kernel: self.sites.kernel.clone(),
                dropped,
                capacity: capacity as u64 * 4,
                cut,
            });
        }
        Delivery::Over
    }
}

/// The position of a delivery; noted at its end, in whatever way.
struct Reading<'s> {
    state: &'s Mutex<State>,
    at: Cell<usize>,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        lock(self.state).cursor = self.at.get();
    }
}

/// The findings of a delivery.
pub(super) enum Delivery {
    /// The launch has not ended.
    Waiting { delivered: bool },
    /// Everything is delivered.
    Over,
}
