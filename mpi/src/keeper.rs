//! The keeper: looks after requests without a waiter, and after requests awaited by futures.
//!
//! One thread for a session, started by the first request in need of the keeper. The thread looks at each kept request in
//! turn, which moves MPI on as well, and parks while there are none.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::error::MpiError;
use crate::request::{Look, lock};

/// Keeps requests until they have ended.
#[derive(Default)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    kept: Mutex<Kept>,
    has_work: Condvar,
}

#[derive(Default)]
struct Kept {
    requests: Vec<Arc<dyn Look>>,
    is_closed: bool,
}

impl Keeper {
    /// Keeps a dropped request, until MPI is done with the memory.
    pub(crate) fn keep(&self, request: Arc<dyn Look>) {
        if let Err(error) = self.look_after(Arc::clone(&request)) {
            log::error!("the memory of a request is never given back: {error}");
            std::mem::forget(request);
        }
    }

    /// Has the thread look at a request until it has ended.
    ///
    /// # Errors
    /// [`MpiError::Thread`].
    pub(crate) fn look_after(&self, request: Arc<dyn Look>) -> Result<(), MpiError> {
        let mut kept = lock(&self.shared.kept);
        if kept.is_closed {
            drop(kept);
            // MPI is closed by then: the request ends at this look.
            request.look();
            return Ok(());
        }
        let is_known = kept
            .requests
            .iter()
            .any(|known| Arc::ptr_eq(known, &request));
        if !is_known {
            kept.requests.push(request);
        }
        drop(kept);
        self.shared.has_work.notify_one();
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new()
                .name("tombolo mpi".to_owned())
                .spawn(move || shared.run());
            *thread = Some(started.map_err(|error| MpiError::Thread {
                what: "requests that are awaited",
                reason: error.to_string(),
            })?);
        }
        Ok(())
    }

    /// Takes receives back, and waits for the remaining requests as long as `most`.
    pub(crate) fn wind_up(&self, most: Duration) {
        let begun = Instant::now();
        let mut left = lock(&self.shared.kept).requests.clone();
        left.iter().for_each(|request| request.cancel());
        let mut backoff = Backoff::default();
        loop {
            left.retain(|request| !request.look());
            if left.is_empty() || begun.elapsed() >= most {
                break;
            }
            backoff.pause();
        }
        if !left.is_empty() {
            let count = left.len();
            log::warn!(
                "{count} requests of MPI have not ended with the session: their memory stays"
            );
        }
    }

    /// Ends the thread. By now MPI is closed: the remaining requests end with [`MpiError::Finalized`], and waiting tasks are
    /// woken.
    pub(crate) fn close(&self) {
        lock(&self.shared.kept).is_closed = true;
        self.shared.has_work.notify_one();
        if let Some(thread) = lock(&self.thread).take()
            && thread.join().is_err()
        {
            log::error!("the thread that looked after requests of MPI has panicked");
        }
        let left = std::mem::take(&mut lock(&self.shared.kept).requests);
        for request in left {
            request.look();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut backoff = Backoff::default();
        loop {
            let mut kept = lock(&self.kept);
            while kept.requests.is_empty() && !kept.is_closed {
                backoff = Backoff::default();
                kept = self
                    .has_work
                    .wait(kept)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if kept.is_closed {
                return;
            }
            let looked_at = kept.requests.clone();
            drop(kept);
            // Wakers of programs run with nothing locked.
            let over: Vec<_> = looked_at
                .into_iter()
                .filter(|request| request.look())
                .collect();
            if over.is_empty() {
                backoff.pause();
                continue;
            }
            backoff = Backoff::default();
            let is_over = |known: &Arc<dyn Look>| over.iter().any(|one| Arc::ptr_eq(one, known));
            lock(&self.kept).requests.retain(|known| !is_over(known));
        }
    }
}
