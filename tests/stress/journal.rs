//! What each thread is doing, for whoever finds that one of them does not go on.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many finished operations are remembered for each thread.
const REMEMBERED: usize = 12;

/// One page for each thread.
pub struct Journal(Vec<Mutex<Page>>);

struct Page {
    step: u64,
    doing: String,
    since: Instant,
    is_done: bool,
    before: VecDeque<String>,
}

impl Journal {
    pub fn new(threads: usize) -> Self {
        let page = || Page {
            step: 0,
            doing: "begins".to_owned(),
            since: Instant::now(),
            is_done: false,
            before: VecDeque::new(),
        };
        Self((0..threads).map(|_| Mutex::new(page())).collect())
    }

    /// The thread begins an operation.
    pub fn begin(&self, thread: usize, step: u64, what: &str) {
        let mut page = self.page(thread);
        let line = format!("{} {} ({:?})", page.step, page.doing, page.since.elapsed());
        page.before.push_back(line);
        if page.before.len() > REMEMBERED {
            page.before.pop_front();
        }
        what.clone_into(&mut page.doing);
        page.step = step;
        page.since = Instant::now();
    }

    /// Says more exactly what the thread does.
    pub fn note(&self, thread: usize, what: &str) {
        let mut page = self.page(thread);
        page.doing.push_str("; ");
        page.doing.push_str(what);
    }

    /// The thread does nothing any more.
    pub fn end(&self, thread: usize) {
        self.begin(thread, u64::MAX, "ended");
        self.page(thread).is_done = true;
    }

    /// Who has been at one operation for longest, and for how long.
    pub fn slowest(&self) -> Option<(usize, Duration)> {
        let times = self.0.iter().enumerate().filter_map(|(thread, _)| {
            let page = self.page(thread);
            (!page.is_done).then(|| (thread, page.since.elapsed()))
        });
        times.max_by_key(|(_, time)| *time)
    }

    /// Everything, to be read by people.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        for thread in 0..self.0.len() {
            let page = self.page(thread);
            let _ = writeln!(
                text,
                "thread {thread}: step {}, for {:?}: {}",
                page.step,
                page.since.elapsed(),
                page.doing
            );
            for line in page.before.iter().rev() {
                let _ = writeln!(text, "    before: {line}");
            }
        }
        text
    }

    fn page(&self, thread: usize) -> MutexGuard<'_, Page> {
        self.0[thread]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
